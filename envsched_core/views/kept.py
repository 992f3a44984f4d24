"""What several read models need and is costly to make.

Of one state of a run the last of each kind is kept (`Kept`), of its past, which never changes, as much as there is room
for (`Past`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar, cast

__all__ = ["Kept", "Past"]

T = TypeVar("T")


class Kept:
    """One thing of each name, with the key that it was made for (the run's version and arguments)."""

    def __init__(self) -> None:
        """Nothing is kept."""
        self._found: dict[str, tuple[Hashable, Any]] = {}

    def of(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave for `key`; made now where another key, or none, was the last. Two threads may both make."""
        found = self._found.get(name)
        if found is None or found[0] != key:
            found = self._found[name] = (key, make())
        return cast("T", found[1])


class Past(Generic[T]):
    """Things by step up to a total size; those put in first go first."""

    def __init__(self, room: int = 64 * 2**20) -> None:
        """`room`: bytes."""
        self._room = room
        self._found: dict[int, tuple[T, int]] = {}
        self._lock = Lock()

    def get(self, step: int) -> T | None:
        """What was put in for a step; None when it never was, or has gone."""
        found = self._found.get(step)
        return None if found is None else found[0]

    def put(self, step: int, thing: T, size: int) -> None:
        """Keep what takes `size` bytes."""
        with self._lock:
            if step in self._found:
                return
            self._room -= size
            self._found[step] = (thing, size)
            while self._room < 0:
                self._room += self._found.pop(next(iter(self._found)))[1]
