"""What several read models of one state of a run need and is costly to make: the last of each kind is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

__all__ = ["Kept"]

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
