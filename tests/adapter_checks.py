"""What the tests of the adapters share: invented rows, rewards, and what must hold of the run that an adapter wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envsched_core import views
from envsched_core.adapters import desk as desks
from envsched_core.adapters.desk import Desk, open_desk
from envsched_core.replay import verify
from envsched_core.store import RunReader
from envsched_core.views.run_view import RunView

BATCH, GROUP = 4, 4
SIZES = {"batch_size": BATCH, "group_size": GROUP}
CONFIG = {**SIZES, "refresh_groups": 20, "expire_after": 2}


def rows(count: int = 24) -> list[dict[str, Any]]:
    """Rows as most trainers have them: a prompt as messages, environment and id in `extra_info`."""
    return [
        {
            "prompt": [{"role": "user", "content": f"Refund order {k} of the {('shop', 'bank')[k % 2]}."}],
            "data_source": ("shop", "bank")[k % 2],
            "extra_info": {"index": k, "task_id": f"t{k}"},
        }
        for k in range(count)
    ]


def reward(task: str, rollout: int) -> float:
    """One of several abilities by task; half of the tasks have mixed rewards."""
    return float((int(task[1:]) * 37 % 11) / 10 > (rollout + 0.5) / GROUP)


def rewards(task: str) -> list[float]:
    return [reward(task, k) for k in range(GROUP)]


def killed(run: Path, to: Path) -> Path:
    """The run folder as a kill at this moment would leave it; the process that goes on with it has nothing else."""
    return Path(shutil.copytree(run, to))


def at_desk(run: Path, config: dict[str, Any] | None = None) -> Desk:
    return open_desk(run, CONFIG if config is None else config, snapshot_every=2)


def close(run: Path) -> None:
    """End what the adapter's process would hold open."""
    desks.desk_here(run).close()


def picks(run: Path) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for located in RunReader(run).events():
        if located.event.kind == "asked":
            decision = located.event.data
            found.setdefault(decision.step, []).extend(pick.key for pick in decision.picks)
    return found


def observed(run: Path) -> dict[str, Any]:
    """Observed groups by pick id."""
    groups = [e.event.data for e in RunReader(run).events() if e.event.kind == "observed"]
    return {group.pick_id or group.group_id: group for group in groups}


def on_the_page(run: Path, step: int) -> int:
    """The record verifies, and the Decision page explains every pick of a step; returns how many."""
    assert verify(run).ok
    view = RunView(run)
    view.poll()
    keys = picks(run)[step]
    for key in keys:
        found = views.explained(view, step, key)
        assert found.outcome in ("selected", "uniform_draw")
        assert found.verdict
    return len(keys)


def same_after_a_kill(drive: Callable[[Path, int, int], Any], folder: Path, *, steps: int, kill_after: int) -> None:
    """`drive(run, first, last)` trains from one step to another, in a process of its own; broken or not, same picks."""
    whole, broken = folder / "whole", folder / "broken"
    drive(whole, 0, steps)
    close(whole)
    drive(broken, 0, kill_after)
    again = killed(broken, folder / "again")
    close(broken)
    drive(again, kill_after, steps)
    close(again)
    assert picks(again) == picks(whole)
    assert set(observed(again)) == set(observed(whole))
    assert verify(again).ok
