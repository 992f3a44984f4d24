"""Which open pick a result answers: the one that it names, else the oldest of its task, as in the scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from envsched_core.records import GroupResult

__all__ = ["OpenPicks"]

T = TypeVar("T")


class OpenPicks(Generic[T]):
    """Picks without an end, each with what its keeper wants to know of it again."""

    def __init__(self) -> None:
        """None is open."""
        self._open: dict[str, tuple[str, T]] = {}
        self._by_task: dict[str, dict[str, None]] = {}

    def __contains__(self, pick_id: object) -> bool:
        return pick_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[str]:
        """Their ids, the one that has waited longest first."""
        return iter(self._open)

    def add(self, pick_id: str, key: str, kept: T) -> None:
        """Open a pick of task `key` (ENV::TASK)."""
        self._open[pick_id] = (key, kept)
        self._by_task.setdefault(key, {})[pick_id] = None

    def close(self, pick_id: str) -> T | None:
        """End a pick; what was kept of it, None when it is not open."""
        if pick_id not in self._open:
            return None
        key, kept = self._open.pop(pick_id)
        waiting = self._by_task[key]
        del waiting[pick_id]
        if not waiting:
            del self._by_task[key]
        return kept

    def answered(self, result: GroupResult) -> str | None:
        """The open pick that a result answers; None when it was never asked for, or has been answered."""
        if result.pick_id is not None and result.pick_id in self._open:
            return result.pick_id
        return next(iter(self._by_task.get(result.key, ())), None)
