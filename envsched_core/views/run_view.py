"""RunView: one run folder, tailed into tables of its own memory while another process may be writing it.

Only whole lines are taken in; a line and its rows come together or not at all, and `version` grows by one
whenever anything changed. A second caller of `poll` does not wait for the first. Every query has a cursor of
its own, so any number of threads may read. Nothing is ever written to the run folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import duckdb
import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.config import Config
from envsched_core.errors import DamagedError, EnvSchedError, StoreError, UnknownTaskError
from envsched_core.graph import DualRelationGraph
from envsched_core.records import Decision, EvidenceState, GroupResult, OutcomeCode, Rollout, TaskSpec
from envsched_core.store import Located, Manifest, Problem, RunReader, StepScores, read_manifest

from .gaps import Numbers
from .intake import Intake
from .kept import Kept, Past
from .soundness import graph_fault, out_of_range, scores_fault
from .tables import create, insert, task_row, unpack

__all__ = ["OUTCOME_CODES", "STATES", "Health", "RunView"]

STATES: tuple[str, ...] = get_args(EvidenceState)
OUTCOME_CODES: tuple[str, ...] = get_args(OutcomeCode)

ALONE: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "temp_directory": "",
}
"""The tables stay in memory: no file is read or written, nothing is fetched."""
GROWING = ("live", "shadow")
"""Kinds of run whose manifest changes after it was first written."""

BLOCK = 10_000
"""Events taken in by one insert: each has a cost of its own, and whoever waits is told after each."""
LONG_BYTES = 4 * 2**20
"""A reading of more than this is told to whoever waits for it."""

Params = Sequence[Any] | Mapping[str, Any]
Told = Callable[[int, int], None]
"""Called with (bytes read, bytes there are)."""


class Health(msgspec.Struct, frozen=True):
    """What a reader should know before trusting the numbers."""

    events: int
    problems: tuple[Problem, ...]
    """Lines that could not be read and were passed over, then files of arrays that cannot be used (line 0)."""
    unknown: int
    """Events of kinds this version does not know."""
    torn_bytes: int
    """Bytes behind the last whole line: a line in the making, or never finished."""
    duplicates: int
    """Groups that came twice; counted once."""
    age: float
    """Seconds since the events last grew."""
    last_step: int | None
    """Newest step with a decision or a group."""

    @property
    def unread(self) -> int:
        """Lines and files of which nothing could be taken in: damaged ones, and kinds not known here."""
        return len(self.problems) + self.unknown


class RunView:
    """One run as tables and read models; see the package head for the map."""

    def __init__(self, path: Path) -> None:
        """Opens the folder; `poll` reads its events.

        Raises:
            StoreError: it is no run folder. FormatVersionError: a newer version wrote it. DamagedError: no readable
            manifest.
        """
        self.path = Path(path)
        self.version = 0
        self.reading: tuple[int, int] | None = None
        """Bytes read and bytes there are, while somebody takes in many; what is shown meanwhile is not the whole."""
        self._lock = threading.Lock()
        self._source: RunView | None = None
        self.kept = Kept()
        self._reset()

    @property
    def name(self) -> str:
        """Of the run folder, also where the path only points at it, as "." does."""
        return self.path.name if self.path.name not in ("", "..") else self.path.resolve().name

    @property
    def manifest(self) -> Manifest:
        """What the run says of itself."""
        return self.reader.manifest

    def _reset(self) -> None:
        self._read_stamp = self._stamp()  # before the manifest is read: one that comes in between is not missed
        self.reader = RunReader(self.path)
        config, manifest = self.reader.manifest.config, self.reader.manifest
        declared = {**config.get("reward_ranges", {}), **manifest.reward_ranges}
        thresholds = [config.get(name, getattr(Config(), name)) for name in ("min_std", "min_range")]
        ranges = {str(env): (float(low), float(high)) for env, (low, high) in declared.items()}
        self._intake = Intake(ranges, (float(thresholds[0]), float(thresholds[1])))
        self._connection = duckdb.connect(":memory:", config=ALONE)
        create(self._connection)
        self._offset = 0
        self._whole = True
        """Rows and offset agree."""
        self._specs: list[TaskSpec] = []
        self._nodes: dict[str, int] = {}
        self._envs: dict[str, int] = {}
        self._env_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._means: dict[int, NDArray[np.float64]] = {}
        self._scores: Past[StepScores] = Past()
        self.numbers = Numbers()
        """Whether the event numbers go on by one."""
        self._refused: list[Problem] = []
        """Lines whose numbers cannot be."""
        self._faults: dict[str, str] = {}
        """What is wrong with a file of arrays, by file; empty for one that was found sound."""

    # ------------------------------------------------------------------ tailing

    def poll(self, told: Told | None = None) -> bool:
        """Take in what was written since the last call; True when anything was.

        A long reading calls `told` after every block. Whatever `told` raises ends the reading there: what was read
        stays, and the next call goes on behind it.

        Raises:
            FormatVersionError: a newer version wrote an event. DamagedError: the catalogue cannot be read.
        """
        if not self._lock.acquire(blocking=False):
            return False
        begin = self.version
        try:
            if self._replaced():
                self._reset()
                self.version += 1
            size = self.reader.size()
            for done in self._take_new():
                self.version = begin + 1
                if size - done > 0 and size > LONG_BYTES:
                    self._tell(told, done, size)
            return self.version > begin
        except BaseException:
            if not self._whole:  # rows and offset must move together: start over from the first line
                self._reset()
            raise
        finally:
            self.reading = None
            self._lock.release()

    def _tell(self, told: Told | None, done: int, size: int) -> None:
        self.reading = done, size
        if told is not None:
            told(done, size)

    def _replaced(self) -> bool:
        """A shorter log, or another manifest (an import writes its reward ranges last): all of it is read anew."""
        return self.reader.size() < self._offset or self._stamp() != self._read_stamp

    def _stamp(self) -> tuple[int, int]:
        """Tells one manifest from another without reading it."""
        try:
            found = (self.path / "run.json").stat()
        except OSError:  # the reader says what is wrong
            return 0, 0
        return found.st_mtime_ns, found.st_ino

    def _take_new(self) -> Iterator[int]:
        """Take in what is new, block by block; the offset behind each, where rows and offset agree."""
        if self.reader.size() == self._offset:
            return
        begin, events = self._offset, self._numbered(self.reader.events(self._offset))
        self._whole = False
        while block := self._next_block(events):
            for located in block:
                if fault := out_of_range(located.event):
                    self._refused.append(Problem(located.segment, located.line, located.offset, fault))
                else:
                    self._intake.take(located.event)
            if any(located.event.kind == "registered" for located in block):
                self._catalogue()
            self._store()
            begin = self._offset = self.reader.offset
            self._whole = True
            yield self._offset
            self._whole = False
        self._offset = self.reader.offset
        self._whole = True
        if self._offset > begin:  # lines of which nothing could be read
            yield self._offset

    def _next_block(self, events: Iterator[Located]) -> list[Located]:
        """The next BLOCK events; a decision is worth as many events as it has candidates."""
        block: list[Located] = []
        room = BLOCK
        for located in events:
            block.append(located)
            room -= len(located.event.data.candidates) if isinstance(located.event.data, Decision) else 1
            if room <= 0:
                break
        return block

    def _numbered(self, events: Iterator[Located]) -> Iterator[Located]:
        """The same events, their numbers followed as they are read: what is passed over counts where it stands."""
        for located in events:
            unread = len(self.reader.problems) + sum(self.reader.unknown_kinds.values())
            self.numbers.take(located.event.seq, located.segment, located.line, located.offset, unread)
            yield located

    def _catalogue(self) -> None:
        specs = self.reader.tasks()
        for node in range(len(self._specs), len(specs)):
            spec = specs[node]
            self._intake.rows["tasks"].append(task_row(node, spec))
            self._nodes[spec.key] = node
            self._envs.setdefault(spec.env, len(self._envs))
        self._specs = specs
        self._env_of = np.array([self._envs[spec.env] for spec in specs], dtype=np.int64)

    def _store(self) -> None:
        rows = self._intake.drain()
        ranges = [(env, *ends, env in self._intake.declared) for env, ends in self._intake.ranges.items()]
        cursor = self._connection.cursor()
        cursor.begin()
        if rows["groups_raw"]:
            cursor.execute("DELETE FROM ranges")
            rows["ranges"] = ranges
        insert(cursor, rows)
        cursor.commit()

    # ------------------------------------------------------------------ reading

    def query(self, sql: str, params: Params = ()) -> pd.DataFrame:
        """A table; the statement is ours, values from outside go into `params`."""
        return self._connection.cursor().execute(sql, params).df()

    def row(self, sql: str, params: Params = ()) -> dict[str, Any]:
        """The first row as a dict with None for NULL.

        Raises:
            UnknownTaskError: there is no row.
        """
        cursor = self._connection.cursor().execute(sql, params)
        found = cursor.fetchone()
        if found is None:
            raise UnknownTaskError(f"{self.name} has no such record")
        return dict(zip([column[0] for column in cursor.description or []], found, strict=True))

    def health(self) -> Health:
        """What could not be read, and how old the newest event is."""
        files = list((self.path / "events").glob("*.jsonl"))
        newest = max((file.stat().st_mtime for file in files), default=0.0)
        unreadable = [Problem(file, 0, 0, fault) for file, fault in self._faults.copy().items() if fault]
        return Health(
            events=sum(self._intake.kinds.values()),
            problems=(*self.reader.problems, *self._refused, *unreadable),
            unknown=sum(self.reader.unknown_kinds.values()),
            torn_bytes=self.reader.torn_bytes,
            duplicates=self._intake.duplicates,
            age=max(time.time() - newest, 0.0),
            last_step=self._intake.last_step,
        )

    def steps(self) -> list[int]:
        """Steps with a decision, else (a log without decisions) with observed groups; in order."""
        frame = self.query("SELECT DISTINCT step FROM decisions ORDER BY step")
        if frame.empty:
            frame = self.query("SELECT DISTINCT step FROM groups_raw WHERE step IS NOT NULL ORDER BY step")
        return [int(step) for step in frame["step"]]

    def decisions(self, step: int) -> tuple[Decision, ...]:
        """The asks of a step in order, as they were written."""
        sql = "SELECT payload FROM decisions WHERE step = ? ORDER BY decision"
        return tuple(unpack(payload) for (payload,) in self._connection.cursor().execute(sql, [step]).fetchall())

    def scores(self, step: int) -> StepScores | None:
        """Score, rank and outcome of every task at a step; None when they were not kept or cannot be read."""
        if (known := self._scores.get(step)) is not None:
            return known
        file = f"scores/{step}.npz"
        try:
            found = self.reader.scores(step)
        except DamagedError as error:
            self._faults[file] = str(error)
            return None
        self._faults[file] = fault = scores_fault(found, len(self._specs)) if found is not None else ""
        # The last step's file may still be replaced by a further ask.
        if found is not None and not fault and step != self._intake.last_step:
            self._scores.put(step, found, sum(array.nbytes for array in found[1:]))
        return None if fault else found

    def scored_steps(self) -> list[int]:
        """Steps whose scores were kept, lowest first."""
        return self.reader.scored_steps()

    def predicted_means(self, step: int) -> NDArray[np.float64] | None:
        """Mean predicted variance of each environment [E] over all its tasks; None without a scores file."""
        if step in self._means:
            return self._means[step]
        scores = self.scores(step)
        if scores is None or not len(scores.variance):
            return None
        env = self._env_of[: len(scores.variance)]
        counts = np.bincount(env, minlength=len(self._envs))
        sums = np.bincount(env, weights=scores.variance[: len(env)], minlength=len(self._envs))
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        if step != self._intake.last_step:  # as with the scores
            self._means[step] = means
        return means

    # ------------------------------------------------------------------ the catalogue

    def knows(self, key: str) -> bool:
        """Whether `key` (ENV::TASK) is in the catalogue."""
        return key in self._nodes

    def node(self, key: str) -> int:
        """Position of a task in the catalogue.

        Raises:
            UnknownTaskError: it is not there.
        """
        if key not in self._nodes:
            raise UnknownTaskError(f"this run has no task {key}")
        return self._nodes[key]

    def names(self, node: int) -> tuple[str, str]:
        """Environment and task of a node."""
        return self._specs[node].env, self._specs[node].task

    def spec(self, node: int) -> TaskSpec:
        """The catalogue entry of a node."""
        return self._specs[node]

    def env_names(self) -> list[str]:
        """Environments [E] in the order the catalogue names them."""
        return list(self._envs)

    def env_index(self) -> NDArray[np.int64]:
        """Environment of every task [N], as an index into `env_names`."""
        return self._env_of

    def graph(self, version: int | None = None) -> DualRelationGraph | None:
        """A graph of the run: by number, or the newest; None where there is none or it cannot be read."""
        try:
            found = self.reader.graph(version)
        except DamagedError as error:
            self._faults[f"graph/{version or 'newest'}"] = str(error)
            return None
        except EnvSchedError:
            return None
        file = f"graph/{found.version}" if found is not None else ""
        if found is not None and self._faults.get(file) != "":  # checked once: its files never change
            self._faults[file] = graph_fault(found, len(self._specs))
        return None if self._faults.get(file) else found

    def rollouts(self, result: GroupResult) -> list[Rollout]:
        """The rollouts of a group, read now from the rollouts file; empty when none were kept."""
        return self.reader.rollouts(result)

    def source(self) -> RunView | None:
        """The run this one was made from, read up to now; None when it is not where it was.

        The manifest may name any folder: it is opened only when it holds the very run that the manifest names, too.
        """
        place = self.manifest.source.get("path")
        if self._source is None and place:
            for folder in (self.path / str(place), self.path.parent / str(place)):
                if _is_source(folder, self.manifest.source):
                    self._source = RunView(folder)
                    break
        if self._source is not None:
            self._source.poll()
        return self._source


def _is_source(folder: Path, told: Mapping[str, Any]) -> bool:
    """Whether a folder holds the run that was told of: its id, and its digest unless its writer changes that."""
    try:
        found = read_manifest(folder)
    except (StoreError, ValueError):  # none, a damaged one, or a name that no file can have
        return False
    return told.get("run_id") == found.run_id and (found.kind in GROWING or told.get("digest") == found.digest)
