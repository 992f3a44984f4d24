"""Sink: a run folder that never raises.

A write that fails (a full disk, a folder that is gone) is told once and counted, and the folder is closed.
Events are then kept in memory, in order, and written when it can be resumed again, so the record has no gap;
it is tried at later steps, less and less often. Beyond `MOST_WAITING` events it is given up: what is on disk
stays a valid run up to there. Scores, rollouts and snapshots of the meantime are left out.

What cannot be written for what it holds, and not for the disk, is dropped and counted, so that it blocks
nothing else. A folder that was removed is noticed at the next write, and never made again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from envsched_core.errors import DamagedError, StoreError
from envsched_core.graph import DualRelationGraph
from envsched_core.records import Decision, GroupResult, Rollout, TaskSpec
from envsched_core.store import RunReader, RunWriter, StepScores

from .intake import MOST_BYTES, attempt

__all__ = ["MOST_WAITING", "Sink"]

MOST_WAITING = 10_000
CONTENT = (TypeError, ValueError, OverflowError, RecursionError, DamagedError)
"""What stands behind a `StoreError` about the thing to be written, not about the disk."""
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
        self.unwritable = 0
        """Writes dropped for what they held."""
        self.gone = False
        """Whether the folder was removed during the run."""
        self._writer: RunWriter | None = writer
        self._folder = _identity(writer.path)
        self._reader = RunReader(writer.path)
        self._waiting: deque[Callable[[RunWriter], object]] = deque()
        self._refused: Callable[[RunWriter], object] | None = None
        """What a folder that could be resumed did not take."""
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
        """Anything that no replay depends on; data that is no JSON, or too long for a line, is left out."""
        encoded, _ = attempt(msgspec.json.encode, data)
        if encoded is None or len(encoded) > MOST_BYTES:
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

    def save_counters(self, step: int | None, counts: Mapping[str, float]) -> bool:
        """What the session has counted so far; False when it was not kept."""

        def write(writer: RunWriter) -> bool:
            writer.save_counters(step, counts)
            return True

        return self.works and self._extra(write, False)

    def retry(self) -> None:
        """At a new step: see that the folder is there, and try again to write what is waiting."""
        if self._ready() is not None or self._given_up:
            return
        self._rest -= 1
        if self._rest > 0:
            return
        if _identity(self.path) == self._folder:  # another folder of the same name is another run
            self._catch_up()
        else:
            self._patience = 2 * self._patience
        self._rest = self._patience

    def _catch_up(self) -> None:
        writer, error = attempt(RunWriter.resume, self.path)
        while writer is not None and error is None and self._waiting:
            first = self._waiting[0]
            _, error = attempt(first, writer)
            if error is not None and (_of_content(error) or (first is self._refused and not _of_disk(error))):
                self._drop(error)
                error = None
            elif error is not None:
                self._refused = first
                break
            self._waiting.popleft()
        if error is not None:
            self._patience = 2 * self._patience
            self._failed(error, writer)
        else:
            self._writer, self._patience = writer, 1
            log.warning("%s can be written again; what was waiting is on record", self.path)

    def hurry(self) -> None:
        """Try now to write what is waiting."""
        self._rest = 1
        self.retry()

    def close(self) -> None:
        """Give the folder free; what is still waiting is lost."""
        self.lost += len(self._waiting)
        self._waiting.clear()
        if self._writer is not None:
            self._writer.close()
        self._writer, self._given_up = None, True

    def _ready(self) -> RunWriter | None:
        """The writer while it works and its folder is there."""
        if self._writer is not None and _identity(self.path) != self._folder:
            self._failed(StoreError("its folder was removed"), self._writer, told=not self.gone)
            self.gone = True
        return self._writer

    def _event(self, write: Callable[[RunWriter], object]) -> None:
        writer = self._ready()
        if writer is not None:
            _, error = attempt(write, writer)
            if error is None:
                return
            if _of_content(error):
                self._drop(error)
                return
            self._failed(error, writer)
        if self._given_up or len(self._waiting) >= MOST_WAITING:
            self.lost += 1 + len(self._waiting)
            self._waiting.clear()
            self._given_up = True
            return
        self._waiting.append(write)

    def _extra(self, write: Callable[[RunWriter], T], otherwise: T) -> T:
        writer = self._ready()
        if writer is not None:
            found, error = attempt(write, writer)
            if error is None and found is not None:
                return found
            if error is not None and _of_content(error):
                self._drop(error)
                return otherwise
            if error is not None:
                self._failed(error, writer)
        self.lost += 1
        return otherwise

    def _drop(self, error: Exception) -> None:
        self.unwritable += 1
        if self.unwritable == 1:
            log.warning("something could not be put on record in %s and is left out (%s)", self.path, error)

    def _failed(self, error: Exception, writer: RunWriter | None, *, told: bool = False) -> None:
        self.failures += 1
        if self.failures == 1 or told:
            log.warning("%s cannot be written (%s); the run goes on deciding without it", self.path, error)
        if writer is not None:
            with suppress(OSError):
                writer.close()
        self._writer = None


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a run folder from another of the same name; None when there is none."""
    try:
        found = path.stat()
        (path / "run.json").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _of_content(error: Exception) -> bool:
    """Whether the thing to be written is at fault."""
    if isinstance(error, StoreError):
        return isinstance(error.__cause__, CONTENT)
    return not isinstance(error, OSError)


def _of_disk(error: Exception) -> bool:
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)
