"""Evidence flow: what one prediction is made of, source by source, and which neighbour gave how much of it."""

from __future__ import annotations

import pandas as pd

from .decision import Explained

__all__ = ["evidence_flow"]

NEIGHBOURS = ("within", "cross")
ROUNDING = 1e-6
COLUMNS = ("source", "key", "share", "weight", "mean", "rollouts", "last_step")


def evidence_flow(found: Explained) -> pd.DataFrame:
    """Everything that the predicted mean of an explained decision came from, largest first; shares sum to 1.

    Columns: source (own, within, cross, environment, features, global), key (ENV::TASK of who gave it; empty for the
    environment, features, all tasks, and for neighbours that are not on record one by one), share (of the predicted
    mean, [0, 1]), weight (of the edge, [0, 1]; 1 for own), mean (its own mean reward, [0, 1]), rollouts (its own,
    aged), last_step (observed); the last four are NULL where `key` is empty. Empty when no terms are on record.
    """
    if found.candidate is None:
        return pd.DataFrame({name: [] for name in COLUMNS})
    c = found.candidate
    rows: list[tuple[object, ...]] = [
        (e.relation, f"{e.env}::{e.task}", e.share, e.weight, e.mean, e.rollouts, e.last_step) for e in c.evidence
    ]
    listed = {name: sum(e.share for e in c.evidence if e.relation == name) for name in ("own", *NEIGHBOURS)}
    for source, share in c.shares.items():
        rest = share - listed.get(source, 0.0)
        if rest > ROUNDING:
            rows.append((source, "", rest, None, None, None, None))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame = frame.astype({"share": float, "weight": float, "mean": float, "rollouts": float, "last_step": "Int64"})
    return frame.sort_values("share", ascending=False, kind="stable", ignore_index=True)
