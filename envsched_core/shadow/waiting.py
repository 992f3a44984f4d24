"""Rows of a growing log -> groups that wait until their step is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from envsched_core.importers.base import Row, RowError
from envsched_core.importers.driver import rollouts_of
from envsched_core.importers.grouping import Groups, group_id_of
from envsched_core.records import GroupResult, Rollout, TaskSpec

__all__ = ["Key", "Position", "Taken", "Waiting"]

ROLLOUTS_A_CALL = 256
NO_PLACE = -1
LEAP = 1000
"""Steps that a log may leave out without more than one group to show for it."""
LEAP_SHARE = 10
"""The same, for each step known."""

Key = int | str
"""A step; in a log without steps, a group id."""
Keep = Callable[[list[Rollout]], list[int]]
"""Writes rollouts and returns their offsets; fewer when they could not be kept."""


class Position(NamedTuple):
    """Where a row begins in its file."""

    offset: int
    lines: int
    """Lines before it."""
    rows: int
    """Rows before it."""


class Taken(NamedTuple):
    """Groups that wait no more."""

    results: list[GroupResult]
    tasks: list[TaskSpec]
    """As the log showed them."""
    text_known: list[bool]
    """Whether a task list's text may be put to each."""


class _Lot:
    """The groups of one key."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.rollouts: list[Rollout] = []
        self.whole = True
        """Whether all its rollouts were kept."""
        self.first: dict[str, Position] = {}
        """First row in each file."""

    def flush(self, keep: Keep) -> None:
        if self.rollouts:
            offsets = keep(self.rollouts)
            self.whole &= len(offsets) == len(self.rollouts)
            self.groups.keep(offsets if len(offsets) == len(self.rollouts) else [NO_PLACE] * len(self.rollouts))
        self.rollouts = []


class Waiting:
    """All groups that are not on record yet."""

    def __init__(self, keep: Keep | None) -> None:
        """`keep`: None when messages and calls are not kept."""
        self._keep = keep
        self._lots: dict[Key, _Lot] = {}

    @staticmethod
    def is_new(row: Row, taken: Mapping[str, int]) -> bool:
        """Whether the group of a row is not among those taken."""
        return group_id_of(row) not in taken

    def add(self, row: Row, file: str, position: Position) -> None:
        """Take in a row of the file with this label.

        Raises:
            RowError: its group is full.
        """
        key: Key = group_id_of(row) if row.step is None else row.step
        known = key in self._lots
        lot = self._lots.setdefault(key, _Lot())
        try:
            joined = lot.groups.add(row)
        except RowError:
            if not known:
                del self._lots[key]
            raise
        lot.first.setdefault(file, position)
        if self._keep is not None:
            lot.rollouts += rollouts_of(row, joined)
            if len(lot.rollouts) >= ROLLOUTS_A_CALL:
                lot.flush(self._keep)

    def steps(self) -> list[int]:
        """Steps that wait, lowest first."""
        return sorted(key for key in self._lots if isinstance(key, int))

    def doubtful(self, known: int, newest: int | None) -> set[int]:
        """Steps far above all others that a single group and no neighbour speaks for: one mistyped number, maybe.

        `known`, `newest`: how many steps are on record, and the last of them.
        """
        found, steps = set(), self.steps()
        for step, after in zip(steps, [*steps[1:], None], strict=False):
            leap = max(LEAP, LEAP_SHARE * known)
            far = newest is not None and step - newest > leap
            if far and (after is None or after - step > leap) and len(self._lots[step].groups.tasks) < 2:
                found.add(step)
                continue
            known, newest = known + 1, max(step, step if newest is None else newest)
        return found

    def drop(self, key: Key) -> int:
        """Leave out what waits under a key; how many rollouts that was."""
        return len(self._lots.pop(key).groups.reward)

    def loose(self, size: int = 0) -> list[str]:
        """Groups without a step that have at least `size` rollouts, in log order."""
        return [key for key, lot in self._lots.items() if isinstance(key, str) and len(lot.groups.reward) >= size]

    def take(self, keys: list[Key]) -> Taken:
        """The groups of some keys, and their tasks; they wait no more."""
        taken = Taken([], [], [])
        for key in keys:
            lot = self._lots.pop(key)
            if self._keep is not None:
                lot.flush(self._keep)
            found = list(lot.groups.results(lot.groups.order()))
            taken.results.extend(found if lot.whole else [msgspec.structs.replace(r, offsets=()) for r in found])
            taken.tasks.extend(lot.groups.tasks)
            taken.text_known.extend(lot.groups.text_known)
        return taken

    def first(self, file: str) -> Position | None:
        """The first row of a file that still waits."""
        return min((lot.first[file] for lot in self._lots.values() if file in lot.first), default=None)
