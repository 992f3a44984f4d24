"""RunReader: a run folder as it stands, also while another process writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from envsched_core.errors import DamagedError
from envsched_core.graph import DualRelationGraph
from envsched_core.recording import StepScores
from envsched_core.records import Event, GroupResult, Rollout, TaskSpec

from .arrays import graph_versions, read_graph, read_scores, scored_steps, state_steps
from .catalogue import read_tasks
from .files import read_line, rollouts_file
from .lines import Located, Problem, RawLine, decode_data, decode_envelope, raw_lines, segments, split_hash
from .manifest import read_manifest


class RunReader:
    """Reads one run folder and never writes to it."""

    def __init__(self, path: Path) -> None:
        """Reads the manifest.

        Raises:
            StoreError: it is no run folder. FormatVersionError: a newer version wrote it.
            DamagedError: its manifest cannot be read.
        """
        self.path = path
        self.manifest = read_manifest(path)
        self.problems: list[Problem] = []
        """Lines that could not be read, each once."""
        self.unknown_kinds: Counter[str] = Counter()
        """Events of kinds not known here, by kind."""
        self.torn_bytes = 0
        """Bytes behind the last newline when `events` last came to the end: a line in the making, or never finished."""
        self.offset = 0
        """Where to go on: byte offset, over all segments, behind the last line that `events` took."""
        self._known = (0, 0)
        self._counted = 0

    def tasks(self) -> list[TaskSpec]:
        """The catalogue in order of registration.

        Raises:
            DamagedError: a line cannot be read.
        """
        return list(read_tasks(self.path))

    def size(self) -> int:
        """Bytes of all segments now."""
        return sum(file.stat().st_size for file in segments(self.path))

    def events(self, from_offset: int = 0) -> Iterator[Located]:
        """Events from a byte offset (0, or an `offset` of before) up to the last whole line of now, one by one.

        `data` is a Decision for `asked`, a GroupResult for `observed`, else a dict.

        Raises:
            FormatVersionError: a newer version wrote a line. DamagedError: the log is shorter than `from_offset`.
        """
        if from_offset > self.size():
            raise DamagedError(f"{self.path} has shrunk below byte {from_offset:,}; read it again from 0")
        self.torn_bytes = 0
        self.offset = from_offset
        for raw in raw_lines(self.path, from_offset, self._known):
            if raw.torn:
                self.torn_bytes = raw.end - raw.start
                return
            event = self._decode(raw, first_time=raw.start >= self._counted)
            self.offset, self._known = raw.end, (raw.end, raw.number)
            self._counted = max(self._counted, raw.end)
            if event is not None:
                yield Located(event, raw.segment, raw.number, raw.offset)

    def _decode(self, raw: RawLine, *, first_time: bool) -> Event | None:
        """The event of a line; None, and counted once, where there is none to be had."""
        try:
            envelope = decode_envelope(raw, self.manifest.writer)
            data = decode_data(envelope)
        except DamagedError as error:
            if first_time:
                self.problems.append(Problem(raw.segment, raw.number, raw.offset, str(error)))
            return None
        if data is None:
            self.unknown_kinds[envelope.kind] += first_time
            return None
        parts = split_hash(raw.data)
        return Event(envelope.seq, envelope.kind, envelope.step, data, parts[1] if parts else "")

    def graph(self, version: int | None = None) -> DualRelationGraph | None:
        """A graph with memory-mapped arrays: the newest, or one by number; None for version 0 or a run without.

        Raises:
            StoreError: there is no graph of that number. DamagedError: its files cannot be read.
        """
        if version is None:
            version = max(graph_versions(self.path), default=0)
        return read_graph(self.path, version) if version else None

    def graph_versions(self) -> list[int]:
        """Numbers of the graphs on disk, lowest first."""
        return graph_versions(self.path)

    def scores(self, step: int) -> StepScores | None:
        """The scores of every task at a step; None when they were not kept."""
        return read_scores(self.path, step)

    def scored_steps(self) -> list[int]:
        """Steps whose scores were kept, lowest first."""
        return scored_steps(self.path)

    def state_steps(self) -> list[int]:
        """Steps with a snapshot, lowest first."""
        return state_steps(self.path)

    def rollouts(self, result: GroupResult) -> list[Rollout]:
        """The rollouts of a group, where they were kept; empty otherwise.

        Raises:
            DamagedError: what stands at an offset is no rollout of this group.
        """
        path = rollouts_file(self.path)
        if not result.offsets or not path.exists():
            return []
        with path.open("rb") as file:
            return [_rollout(file, offset, result, path) for offset in result.offsets]


def _rollout(file: BinaryIO, offset: int, result: GroupResult, path: Path) -> Rollout:
    """The rollout whose line starts at `offset`."""
    try:
        file.seek(offset)
        rollout = msgspec.json.decode(read_line(file, path, f" at byte {offset:,}"), type=Rollout)
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{path} at byte {offset:,}: {error}; import the log again") from error
    if (rollout.env, rollout.task) != (result.env, result.task):
        raise DamagedError(f"{path} at byte {offset:,}: a rollout of {rollout.env}::{rollout.task}, not {result.key}")
    return rollout
