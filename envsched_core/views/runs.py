"""The runs of a folder, without reading their events."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from envsched_core.store import list_runs

__all__ = ["runs"]

COLUMNS = ["name", "path", "run_id", "kind", "scheduler", "batch_size", "source", "created", "simulated", "problem"]


def runs(folder: Path) -> pd.DataFrame:
    """Every run folder in `folder` (or `folder` itself), newest first; unreadable ones say why.

    Columns: name (of the folder), path, run_id, kind (import, replay, audit, live, shadow), scheduler (empty for an
    import), batch_size (picks a step), source (run id it was made from), created (ISO, UTC), simulated,
    problem (empty when readable).
    """
    rows = []
    for path, manifest in list_runs(folder):
        if isinstance(manifest, Exception):
            rows.append((path.name, str(path), "", "", "", 0, "", "", False, str(manifest)))
            continue
        m = manifest
        source = str(m.source.get("run_id", ""))
        rows.append(
            (path.name, str(path), m.run_id, m.kind, m.scheduler, m.batch_size, source, m.created, m.simulated, "")
        )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.sort_values(["created", "name"], ascending=[False, True]).reset_index(drop=True)
