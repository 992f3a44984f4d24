"""Ledger: which picks are open, which groups were already counted, and which tasks rest.

Every pick ends exactly once: observed, released or expired. `ask` changes nothing but this ledger.
Shared by every scheduler, so that a baseline lives under the same rules as EnvSched.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ledger", "OpenPick", "pick_id_of"]


class OpenPick(NamedTuple):
    """A pick that has not ended."""

    task: int
    """Index in [0, N)."""
    step: int
    position: int


def pick_id_of(step: int, position: int) -> str:
    """The name of the pick at `position` of `step`; unique in a run."""
    return f"{step}.{position}"


class Ledger:
    """Open picks by id (at most one a task), group ids seen lately, and per-task counts."""

    def __init__(self, *, expire_after: int, dedupe_steps: int, cool_down: int) -> None:
        """All three in steps."""
        self.expire_after, self.dedupe_steps, self.cool_down = expire_after, dedupe_steps, cool_down
        self.open: dict[str, OpenPick] = {}
        self.by_task: dict[int, str] = {}
        self.seen: dict[str, int] = {}
        self.drawn = np.zeros(0, dtype=np.int64)
        self.limit = np.zeros(0, dtype=np.int64)
        self.last_pick = np.zeros(0, dtype=np.int64)
        self.counts: Counter[str] = Counter()

    NEVER = -(1 << 40)
    """Step before any cool-down."""
    UNLIMITED = 1 << 40

    def grow(self, draws: Iterable[int | None]) -> None:
        """Add tasks: how many groups each can ever give (None = no limit)."""
        fresh = [self.UNLIMITED if d is None else d for d in draws]
        self.limit = np.concatenate([self.limit, np.array(fresh, dtype=np.int64)])
        self.drawn = np.concatenate([self.drawn, np.zeros(len(fresh), dtype=np.int64)])
        self.last_pick = np.concatenate([self.last_pick, np.full(len(fresh), self.NEVER, dtype=np.int64)])

    def set_limit(self, task: int, draws: int | None) -> None:
        """Change how many groups a known task can give."""
        self.limit[task] = self.UNLIMITED if draws is None else draws

    def pick(self, tasks: Sequence[int], step: int, positions: Sequence[int]) -> list[str]:
        """Open picks of different tasks [M] at `positions` [M] of `step`, and return their ids [M]."""
        ids = [pick_id_of(step, position) for position in positions]
        self.open.update(zip(ids, map(OpenPick, tasks, itertools.repeat(step), positions), strict=True))
        self.by_task.update(zip(tasks, ids, strict=True))
        self.drawn[tasks] += 1
        self.last_pick[tasks] = step
        self.counts["asked"] += len(ids)
        return ids

    def close(self, pick_id: str, how: str) -> OpenPick | None:
        """End a pick (`observed`, `released` or `expired`); None when it is not open."""
        pick = self.open.pop(pick_id, None)
        if pick is None:
            self.counts[f"{how}_unknown"] += 1
            return None
        del self.by_task[pick.task]
        self.counts[how] += 1
        if how != "observed":  # nothing was drawn, so a recorded task keeps its group
            self.drawn[pick.task] -= 1
        return pick

    def first_time(self, group_id: str, step: int) -> bool:
        """Whether a group id is new; remembers it."""
        if group_id in self.seen:
            self.counts["duplicate"] += 1
            return False
        self.seen[group_id] = step
        return True

    def expire(self, step: int) -> list[tuple[str, OpenPick]]:
        """End picks that are older than `expire_after` steps and forget old group ids."""
        old = [(i, p) for i, p in self.open.items() if p.step < step - self.expire_after]
        for pick_id, _ in old:
            self.close(pick_id, "expired")
        horizon = step - self.dedupe_steps
        stale = list(itertools.takewhile(lambda group_id: self.seen[group_id] < horizon, self.seen))
        for group_id in stale:  # oldest first, since ids join as time goes on
            del self.seen[group_id]
        return old

    def in_flight(self) -> NDArray[np.bool_]:
        """Tasks [N] with an open pick."""
        mask = np.zeros(len(self.limit), dtype=bool)
        mask[list(self.by_task)] = True
        return mask

    def resting(self, step: int) -> NDArray[np.bool_]:
        """Tasks [N] in their cool-down after a pick."""
        if self.cool_down == 0:
            return np.zeros(len(self.last_pick), dtype=bool)
        return np.asarray(step - self.last_pick <= self.cool_down)

    def exhausted(self) -> NDArray[np.bool_]:
        """Tasks [N] whose recorded groups are all drawn."""
        return self.drawn >= self.limit

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays."""
        return {
            "open": {pick_id: list(pick) for pick_id, pick in self.open.items()},
            "seen": dict(self.seen),
            "drawn": self.drawn.copy(),
            "last_pick": self.last_pick.copy(),
            "counts": dict(self.counts),
        }

    def load_state_dict(self, state: Mapping[str, Any], tasks: NDArray[np.int64]) -> None:
        """Take over; `tasks` maps saved indices to those here (-1 = gone: its open picks end as released)."""
        self.drawn[tasks[tasks >= 0]] = np.asarray(state["drawn"])[tasks >= 0]
        self.last_pick[tasks[tasks >= 0]] = np.asarray(state["last_pick"])[tasks >= 0]
        self.seen = {str(k): int(v) for k, v in state["seen"].items()}
        self.counts = Counter({str(k): int(v) for k, v in state["counts"].items()})
        self.open, self.by_task = {}, {}
        for pick_id, (task, step, position) in state["open"].items():
            if tasks[task] >= 0:
                self.open[pick_id] = OpenPick(int(tasks[task]), int(step), int(position))
                self.by_task[int(tasks[task])] = pick_id
            else:
                self.counts["released"] += 1
