"""The recorded run that comes with EnvSched: ToolWorld's small world, by EnvSched and by uniform picking.

    python -m envsched_core.bench.record data

trains both on the same seed (about half a minute; needs the extra `train`) and packs them into
data/toolworld.tar.xz. All draws are keyed by the seed, so the same code makes the same decisions again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from envsched_core.store import pack

from .training import TrainPlan, train_run

__all__ = ["ARCHIVE", "RECORDED", "record"]

ARCHIVE = "toolworld.tar.xz"
THIN = {"near_misses": 0.5, "sample": 0.25}
"""What is on record beside the picks, to keep the archive small."""
RECORDED = {
    "toolworld-uniform": TrainPlan(world="small", scheduler="uniform", settings=THIN),
    "toolworld-envsched": TrainPlan(world="small", scheduler="envsched", settings=THIN),
}
"""In order of making: a dashboard opens the newest."""


def record(folder: Path, *, steps: int | None = None) -> list[Path]:
    """Train both runs into `folder`; only EnvSched's keeps its rollouts' messages. Returns their folders."""
    made = []
    for name, plan in RECORDED.items():
        chosen = plan if steps is None else TrainPlan(plan.world, plan.scheduler, steps, settings=THIN)
        train_run(folder / name, chosen, keep_rollouts=plan.scheduler == "envsched")
        made.append(folder / name)
    return made


def main(target: Path) -> None:
    """Record both runs and pack them into `target`."""
    with tempfile.TemporaryDirectory(prefix="envsched-record-") as folder:
        pack(record(Path(folder)), target / ARCHIVE)
    sys.stdout.write(f"written to {target / ARCHIVE}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
