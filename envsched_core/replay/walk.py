"""Repeats the calls of a run up to a step; going on to a later step costs only what lies between.

A walk begins at the saved state nearest before the step, where the run has one (state/, store), and else at the first
event. On its way it keeps states in memory, few and evenly apart, so that going back costs little as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envsched_core.errors import EnvSchedError, UnknownTaskError
from envsched_core.records import Event
from envsched_core.scheduler.changed import begin
from envsched_core.store import RunReader, load_state

from .pool import Progress
from .rederive import Calls
from .what_if import LEAN, Moment

__all__ = ["Walk"]

STANDS = 6
"""Most states kept in memory."""
KEPT_TASKS = 20_000
"""Of runs with more tasks none is kept: a state has some kilobytes a task."""


class _Stand(NamedTuple):
    """A scheduler as it stood between two steps."""

    step: int
    """The next one that was asked for."""
    offset: int
    tasks: int
    """Lines of the catalogue that were registered."""
    state: Mapping[str, Any]


class Walk:
    """A run's calls, repeated up to the step that is asked for."""

    def __init__(self, run: Path) -> None:
        """Nothing is repeated yet.

        Raises:
            StoreError: it is no run folder. ConfigError: its scheduler is not known here.
        """
        self.run = run
        self._reader = RunReader(run)
        self._stands: list[_Stand] = []
        self._apart = 1
        """Asked steps between two stands."""
        self._start(None)

    def _start(self, stand: _Stand | None) -> None:
        """A scheduler that stands where `stand` says; None = before the first event."""
        self._calls = Calls(self._reader)
        self._offset, self._tasks = (stand.offset, stand.tasks) if stand else (0, 0)
        if stand:
            self._calls.load(stand.state, stand.tasks)
        # What is decided on the way has been recorded once: only the picks matter.
        scheduler = self._calls.scheduler
        scheduler.recorder.config = msgspec.structs.replace(scheduler.config, **LEAN)
        self._moment: Moment | None = None

    def to(self, step: int, progress: Progress | None = None) -> Moment:
        """The moment when `step` began; `progress` counts steps.

        Raises:
            UnknownTaskError: nothing was asked for at that step. DamagedError: a line cannot be read.
        """
        self._nearest(step)
        self._forward(step, progress)
        calls = self._calls_of(step)
        if not calls:
            raise UnknownTaskError(f"{self.run.name}: no task was asked for at step {step}")
        kept = self._moment
        if kept is None or kept.step != step or len(kept.calls) != len(calls):
            begin(self._calls.scheduler, step)
            kept = self._moment = Moment(self._calls.scheduler, step, calls)
        return kept

    def _nearest(self, step: int) -> None:
        """Stand where the least is to be repeated: here, at a state in memory, or at one on disk."""
        scheduler = self._calls.scheduler
        ahead = self._moment.step if self._moment is not None else scheduler.step + 1 if scheduler.started else 0
        here = self._offset if ahead <= step else -1
        for stand in self._before(step, here):
            here = -1  # what stands here now is given up
            try:
                self._start(stand)
            except (EnvSchedError, KeyError, TypeError, ValueError, IndexError):
                continue  # damaged, or of another version: an earlier one may do
            if not self._calls.scheduler.started or self._calls.scheduler.step < step:
                return
        if here < 0:
            self._start(None)

    def _before(self, step: int, here: int) -> Iterator[_Stand]:
        """Stands before `step` that lie behind `here`, the nearest first."""
        found = [stand for stand in self._stands if stand.step <= step and stand.offset > here]
        nearest = max((stand.step for stand in found), default=-1)
        for saved in reversed(self._reader.state_steps()):
            if nearest < saved <= step:
                stand = _saved(self._reader, saved)
                if stand is not None and stand.offset > here:
                    yield stand
        yield from sorted(found, reverse=True, key=lambda stand: stand.step)

    def _forward(self, step: int, progress: Progress | None) -> None:
        """Repeat everything before the first ask of `step`."""
        first = last = None
        for located in self._reader.events(self._offset):
            event = located.event
            if event.kind == "asked":
                at = event.data.step
                if at != last:
                    self._keep(at)
                if at >= step:
                    return
                first = at if first is None else first
                if progress and at != last:
                    progress(at - first, step - first)
                last = at
            elif event.kind == "registered":
                self._tasks = int(event.data["total"])
            self._calls.apply(event)
            self._offset = self._reader.offset

    def _keep(self, step: int) -> None:
        """Keep the state before `step`, if it is far enough from the others."""
        if self._tasks > KEPT_TASKS or any(abs(step - stand.step) < self._apart for stand in self._stands):
            return
        self._stands.append(_Stand(step, self._offset, self._tasks, self._calls.scheduler.state_dict()))
        if len(self._stands) > STANDS:
            self._stands.sort(key=lambda stand: stand.step)
            self._stands = self._stands[::2]
            self._apart *= 2

    def _calls_of(self, step: int) -> tuple[Event, ...]:
        """The events from the first ask of the step to its last; none are repeated."""
        found: list[Event] = []
        last = 0
        for located in self._reader.events(self._offset):
            event = located.event
            if event.kind == "asked":
                if event.data.step != step:
                    break
                last = len(found) + 1
            found.append(event)
        return tuple(found[:last])


def _saved(reader: RunReader, step: int) -> _Stand | None:
    """A snapshot of the run folder; None when it cannot be used."""
    try:
        state = load_state(reader.path, step)
        stand = _Stand(step, int(state["offset"]), int(state["tasks"]), state["scheduler"])
    except (EnvSchedError, KeyError, TypeError, ValueError):
        return None
    return stand if 0 < stand.offset <= reader.size() else None
