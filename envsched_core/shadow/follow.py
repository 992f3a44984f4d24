"""The loop of shadow mode: look, decide, wait; until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .steps import Shadow, ShadowStep

__all__ = ["follow"]

PATIENCE = 2.0
"""Seconds after which it is told that nothing can be read: a first line may be half written until then."""


def follow(
    shadow: Shadow,
    *,
    interval: float = 0.5,
    settle: float = 30.0,
    until_idle: float | None = None,
    at_end: bool = False,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[str], None] | None = None,
) -> Iterator[ShadowStep]:
    """Every step as it is decided on. All times in seconds; the caller closes `shadow`.

    `interval`: between two looks. `settle`: without a new row after which all that waits is taken to be complete.
    `until_idle`: without a new row after which the log is taken to be finished. `at_end`: it is finished now.
    It ends when `shadow.stopping` is set, too; then what waits is left for the next time. `tell` is given every
    problem once: what is passed over, and while no row can be read, why.

    Raises:
        LogFormatError: the only file there is cannot be read, or at the end, nothing could be.
    """
    stop, told = shadow.stopping, _Told(shadow, tell)
    last = clock()
    while not stop.is_set():
        fresh = shadow.read(final=at_end)
        if stop.is_set():
            return
        if fresh:
            last = clock()
            yield from shadow.settle()
            told.problems()
            continue
        idle = clock() - last
        finished = at_end or (until_idle is not None and idle >= until_idle)
        if finished:
            shadow.read(final=True)
        if finished and (nothing := shadow.nothing_readable()) is not None:
            raise nothing
        if finished or idle >= settle:
            yield from shadow.settle(everything=True, finished=finished)
        told.problems()
        if finished:
            return
        if idle >= min(settle, PATIENCE):
            told.waiting()
        stop.wait(interval)


class _Told:
    """What was told already."""

    def __init__(self, shadow: Shadow, tell: Callable[[str], None] | None) -> None:
        self._shadow, self._tell = shadow, tell
        self._problems, self._waiting = 0, False

    def problems(self) -> None:
        """Tell what is new among the problems."""
        found = self._shadow.problems
        if self._tell is not None:
            for problem in found[self._problems :]:
                self._tell(problem)
        self._problems = len(found)

    def waiting(self) -> None:
        """Tell once why nothing can be read yet."""
        if self._tell is None or self._waiting:
            return
        self._waiting = True
        if (nothing := self._shadow.nothing_readable()) is not None:
            self._tell(f"nothing to read yet, waiting: {nothing}")
