"""The loop of shadow mode: look, decide, wait; until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .steps import Shadow, ShadowStep

__all__ = ["follow"]


def follow(
    shadow: Shadow,
    *,
    interval: float = 0.5,
    settle: float = 30.0,
    until_idle: float | None = None,
    at_end: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ShadowStep]:
    """Every step as it is decided on. All times in seconds; the caller closes `shadow`.

    `interval`: between two looks. `settle`: without a new row after which all that waits is taken to be complete.
    `until_idle`: without a new row after which the log is taken to be finished. `at_end`: it is finished now.
    It ends when `shadow.stopping` is set, too; then what waits is left for the next time.

    Raises:
        LogFormatError: the only file there is cannot be read.
    """
    stop = shadow.stopping
    last = clock()
    while not stop.is_set():
        fresh = shadow.read(final=at_end)
        if stop.is_set():
            return
        if fresh:
            last = clock()
            yield from shadow.settle()
            continue
        idle = clock() - last
        finished = at_end or (until_idle is not None and idle >= until_idle)
        if finished:
            shadow.read(final=True)
        if finished or idle >= settle:
            yield from shadow.settle(everything=True)
        if finished:
            return
        stop.wait(interval)
