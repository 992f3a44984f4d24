"""Sink: a run folder that never raises.

A write that fails (a full disk, a folder that is gone) is told once and counted, and the folder is closed.
Events are then kept in memory, in order, and written when it can be resumed again, so the record has no gap;
it is tried at later steps, less and less often. Beyond `MOST_WAITING` events it is given up: what is on disk
stays a valid run up to there. Scores, rollouts and snapshots of the meantime are left out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from envsched_core.errors import StoreError
from envsched_core.graph import DualRelationGraph
from envsched_core.records import Decision, GroupResult, Rollout, TaskSpec
from envsched_core.store import RunReader, RunWriter, StepScores

__all__ = ["MOST_WAITING", "Sink"]

MOST_WAITING = 10_000
T = TypeVar("T")
log = logging.getLogger("envsched")


class Sink:
    """Hands everything to a `RunWriter` while that works."""

    def __init__(self, writer: RunWriter) -> None:
        """`writer` has been created or resumed."""
        self.path: Path = writer.path
        self.failures = 0
        """Writes that failed."""
        self.lost = 0
        """Writes that are not on record and never will be."""
        self._writer: RunWriter | None = writer
        self._reader = RunReader(writer.path)
        self._waiting: deque[Callable[[RunWriter], object]] = deque()
        self._given_up = False
        self._patience = self._rest = 1
        """Steps between attempts, and until the next."""

    @property
    def works(self) -> bool:
        """Whether all events so far are on disk."""
        return self._writer is not None

    @property
    def waiting(self) -> int:
        """Events that are not on disk yet."""
        return len(self._waiting)

    def position(self) -> int:
        """Bytes of events on disk: where those to come will start."""
        return self._reader.size()

    def add_tasks(self, tasks: Sequence[TaskSpec]) -> None:
        """Tasks that joined."""
        self._event(lambda writer: writer.add_tasks(tasks))

    def add_graph(self, graph: DualRelationGraph, step: int | None) -> None:
        """A new version of the graph."""
        self._event(lambda writer: writer.add_graph(graph, step))

    def asked(self, decision: Decision) -> None:
        """One decision."""
        self._event(lambda writer: writer.asked(decision))

    def observed(self, results: Sequence[GroupResult], step: int | None) -> None:
        """Groups that were observed together."""
        self._event(lambda writer: writer.observed(results, step))

    def released(self, pick_ids: Sequence[str], reason: str, step: int | None) -> None:
        """Picks that ended without evidence."""
        self._event(lambda writer: writer.released(pick_ids, reason, step))

    def note(self, step: int | None, data: Mapping[str, Any]) -> None:
        """Anything that no replay depends on; data that is no JSON is left out."""
        try:
            msgspec.json.encode(data)
        except (TypeError, ValueError, OverflowError, RecursionError):
            self.lost += 1
            return
        self._event(lambda writer: writer.note(step, data))

    def add_scores(self, scores: StepScores) -> bool:
        """The scores of every task at a step; False when they were not kept."""
        return self._extra(lambda writer: writer.add_scores(scores), False)

    def add_rollouts(self, rollouts: Iterable[Rollout]) -> list[int]:
        """Rollouts; returns their offsets, none when they were not kept."""
        kept = list(rollouts)
        return self._extra(lambda writer: writer.add_rollouts(kept), [])

    def save_state(self, step: int, state: Mapping[str, Any], *, keep: int) -> bool:
        """A snapshot; older ones but the newest `keep` are dropped. False when it was not kept."""

        def write(writer: RunWriter) -> bool:
            writer.save_state(step, state)
            writer.drop_states(keep)
            return True

        return self._extra(write, False)

    def retry(self) -> None:
        """At a new step: try again to write what is waiting."""
        if self._writer is not None or self._given_up:
            return
        self._rest -= 1
        if self._rest > 0:
            return
        writer = None
        try:
            writer = RunWriter.resume(self.path)
            while self._waiting:
                self._waiting[0](writer)
                self._waiting.popleft()
        except (StoreError, OSError) as error:
            self._patience = self._rest = 2 * self._patience
            self._failed(error, writer)
        else:
            self._writer, self._patience = writer, 1
            log.warning("%s can be written again; nothing of the record is missing", self.path)
        self._rest = self._patience

    def close(self) -> None:
        """Give the folder free; what is still waiting is lost."""
        if self._writer is None:
            self._rest = 1
            self.retry()
        self.lost += len(self._waiting)
        self._waiting.clear()
        if self._writer is not None:
            self._writer.close()
        self._writer, self._given_up = None, True

    def _event(self, write: Callable[[RunWriter], object]) -> None:
        if self._writer is not None:
            try:
                write(self._writer)
                return
            except (StoreError, OSError) as error:
                self._failed(error, self._writer)
        if self._given_up or len(self._waiting) >= MOST_WAITING:
            self.lost += 1 + len(self._waiting)
            self._waiting.clear()
            self._given_up = True
            return
        self._waiting.append(write)

    def _extra(self, write: Callable[[RunWriter], T], otherwise: T) -> T:
        if self._writer is not None:
            try:
                return write(self._writer)
            except (StoreError, OSError) as error:
                self._failed(error, self._writer)
        self.lost += 1
        return otherwise

    def _failed(self, error: Exception, writer: RunWriter | None) -> None:
        self.failures += 1
        if self.failures == 1:
            log.warning("%s cannot be written (%s); the run goes on deciding without it", self.path, error)
        if writer is not None:
            with suppress(OSError):
                writer.close()
        self._writer = None
