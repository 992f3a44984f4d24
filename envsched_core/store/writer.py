"""RunWriter: the one way into a run folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from envsched_core.errors import DamagedError, StoreError
from envsched_core.graph import DualRelationGraph
from envsched_core.recording import StepScores
from envsched_core.records import Decision, GroupResult, Rollout, TaskSpec

from .arrays import drop_states, write_graph, write_scores, write_state
from .catalogue import Known, catalogue_lines, count_tasks, read_tools
from .counters import write_counters
from .files import (
    LINKED,
    LOCK,
    MANIFEST,
    ROLLOUTS,
    TASKS,
    TOOLS,
    AppendFile,
    Lock,
    blake,
    check_inside,
    cut,
    encode,
    rollouts_file,
    whole_size,
)
from .lines import (
    GENESIS,
    MAX_LINE_BYTES,
    VERSION,
    Appended,
    Drawn,
    Envelope,
    RawLine,
    Registered,
    decode_data,
    event_line,
    segment_name,
    segments,
)
from .manifest import Manifest, read_manifest, write_manifest
from .recovery import drop_unfinished, find_end, unfinished

SEGMENT_BYTES = 64 * 2**20
"""A new segment starts before one would grow beyond this."""
_BLOCK_BYTES = 1 << 20


class RunWriter:
    """Writes one run folder, alone; close it (or use `with`) to give the folder free."""

    segment_bytes = SEGMENT_BYTES

    def __init__(self, path: Path, lock: Lock, manifest: Manifest, *, durable: bool) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self.manifest = manifest
        self.dropped_bytes = 0
        """Bytes of unfinished lines that `resume` dropped."""
        self._lock: Lock | None = lock
        self._durable = durable
        self._files: dict[str, AppendFile] = {}
        self._segment = 0
        self._seq = 0
        self._hash = GENESIS
        self._tasks = 0
        self._tools: Known = {}
        self._graphs: set[int] = set()

    @classmethod
    def create(cls, path: Path, manifest: Manifest, *, durable: bool = False) -> Self:
        """Start a run in a folder that does not exist or is empty; `durable` waits for the disk at every call.

        Raises:
            StoreError: the folder holds something. LockedError: another process is writing it.
        """
        _refuse_used(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path} cannot be made: {error.strerror}; choose another folder") from error
        writer = cls(path, Lock(path), manifest, durable=durable)
        try:
            _refuse_used(path)  # another writer may have come and gone before the lock was ours
            drop_unfinished(path)
            writer.update_manifest()
            writer._file(segment_name(0))
        except BaseException:  # whatever happened, the folder must not stay locked
            writer.close()
            raise
        return writer

    @classmethod
    def resume(cls, path: Path, *, durable: bool = False) -> Self:
        """Go on with a run: unfinished lines are dropped (`dropped_bytes`), a `resumed` event is written.

        Raises:
            StoreError: it is no run folder. FormatVersionError: a newer version wrote it.
            LockedError: another process is writing it.
        """
        manifest = read_manifest(path)  # before a lock is put where there is no run
        writer = cls(path, Lock(path), manifest, durable=durable)
        try:
            writer.manifest = read_manifest(path)  # as the last writer left it
            files = writer._recover()
            writer._event("resumed", None, {"dropped_bytes": writer.dropped_bytes, "files": files})
        except BaseException:  # whatever happened, the folder must not stay locked
            writer.close()
            raise
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files and give the lock back; a second call does nothing."""
        for file in self._files.values():
            file.close()
        self._files = {}
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def update_manifest(self, **changes: Any) -> Manifest:
        """Put a changed manifest in the place of the old one (a report, reward ranges, notes)."""
        self._open()
        self.manifest = write_manifest(self.path, msgspec.structs.replace(self.manifest, **changes))
        return self.manifest

    def add_tasks(self, tasks: Sequence[TaskSpec]) -> None:
        """Append to the catalogue and write a `registered` event."""
        self._open()
        known = dict(self._tools)
        task_lines, tool_lines = catalogue_lines(tasks, known)
        total = self._tasks + len(tasks)
        try:
            tools = self._append(TOOLS, tool_lines)
            added = self._append(TASKS, task_lines)
            self._event("registered", None, Registered(len(tasks), total, added.digest, added.start, added.end, tools))
        except BaseException:  # lines without their event: `resume` drops them, nothing may follow them
            self.close()
            raise
        self._tasks, self._tools = total, known

    def add_graph(self, graph: DualRelationGraph, step: int | None) -> None:
        """Write a graph's arrays, then a `graph` event."""
        self._open()
        if graph.version in self._graphs:
            raise StoreError(f"graph/{graph.version} is already written; a new graph needs a new version number")
        digest = write_graph(self.path, graph)
        edges = int(graph.within.nnz), int(graph.cross.nnz)
        self._event("graph", step, Drawn(graph.version, digest, *edges, len(graph.pattern_names)))
        self._graphs.add(graph.version)

    def asked(self, decision: Decision) -> None:
        """Write an `asked` event."""
        self._event("asked", decision.step, decision)

    def observed(self, results: Sequence[GroupResult], step: int | None) -> None:
        """Write one `observed` event a group, all in one write."""
        self._events([("observed", step, result) for result in results])

    def released(self, pick_ids: Iterable[str], reason: str, step: int | None) -> None:
        """Write a `released` event."""
        self._event("released", step, {"pick_ids": list(pick_ids), "reason": reason})

    def note(self, step: int | None, data: Mapping[str, Any]) -> None:
        """Write a `note` event: timings, warnings; no replay depends on it."""
        self._event("note", step, dict(data))

    def add_scores(self, scores: StepScores) -> bool:
        """Keep the scores of a step; False, and nothing written, above 20,000 tasks."""
        self._open()
        return write_scores(self.path, scores)

    def save_state(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep a snapshot (`load_state` reads it)."""
        self._open()
        write_state(self.path, step, state)

    def drop_states(self, keep: int) -> None:
        """Delete all snapshots but the newest `keep`."""
        self._open()
        drop_states(self.path, keep)

    def save_counters(self, step: int | None, counts: Mapping[str, float]) -> None:
        """Keep what a session has counted so far (`read_counters` reads it)."""
        self._open()
        write_counters(self.path, step, counts)

    def add_rollouts(self, rollouts: Iterable[Rollout]) -> list[int]:
        """Append rollouts; returns the byte offset of each, for `GroupResult.offsets`."""
        self._open()
        if (self.path / LINKED).exists():
            raise StoreError(f"{self.path} shares the rollouts of its source run and takes no others")
        offsets: list[int] = []
        block: list[bytes] = []
        file = self._file(ROLLOUTS)
        size, start = 0, file.size
        for rollout in rollouts:
            line = encode(rollout) + b"\n"
            offsets.append(start + size)
            block.append(line)
            size += len(line)
            if size >= _BLOCK_BYTES:
                file.append(b"".join(block))
                start, size, block = start + size, 0, []
        file.append(b"".join(block))
        return offsets

    def link_rollouts(self, source_run: Path) -> None:
        """Share the rollouts of the source run: a hard link, or a copy where links do not reach."""
        self._open()
        source, target = rollouts_file(source_run), self.path / LINKED
        if not source.exists():
            return
        if rollouts_file(self.path).exists():
            raise StoreError(f"{self.path} has rollouts already; link those of the source run once, before any other")
        target.parent.mkdir(exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            shutil.copyfile(source, temporary)
            os.replace(temporary, target)

    def _open(self) -> None:
        if self._lock is None or not self._lock.held:
            raise StoreError(f"the writer of {self.path} is closed; resume the run to go on")

    def _file(self, name: str) -> AppendFile:
        self._open()
        if name not in self._files:
            self._files[name] = AppendFile(self.path / name, durable=self._durable)
        return self._files[name]

    def _append(self, name: str, lines: Sequence[bytes]) -> Appended:
        block = b"".join(lines)
        file = self._file(name)
        start = file.append(block)
        return Appended(len(lines), start, start + len(block), blake([block]))

    def _event(self, kind: str, step: int | None, data: Any) -> None:
        self._events([(kind, step, data)])

    def _events(self, events: Sequence[tuple[str, int | None, Any]]) -> None:
        """Build the lines of one call, write them at once, and only then move on."""
        self._open()
        seq, digest, lines = self._seq, self._hash, []
        for kind, step, data in events:
            line, digest = event_line(digest, _envelope(seq, kind, step, data))
            lines.append(line)
            seq += 1
        block = b"".join(lines)
        self._roll(len(block))
        self._file(segment_name(self._segment)).append(block)
        self._seq, self._hash = seq, digest

    def _roll(self, more: int) -> None:
        """Start the next segment when `more` bytes would be too many for this one."""
        size = self._file(segment_name(self._segment)).size
        if size and size + more > self.segment_bytes:
            self._files.pop(segment_name(self._segment)).close()
            self._segment += 1

    def _recover(self) -> dict[str, int]:
        """Drop what is unfinished and take up after it; returns the bytes dropped by file."""
        check_inside(self.path)
        drop_unfinished(self.path)
        end = find_end(self.path, self.manifest.writer)
        self._seq, self._hash, self._graphs = end.seq, end.hash, end.graphs
        names = [file.name for file in segments(self.path)]
        self._segment = int(names[-1][4:-6]) if names else 0
        dropped = {segment_name(self._segment): self._end_segment(end.torn)} | end.drop_rest(self.path)
        self._tasks, self._tools = count_tasks(self.path), read_tools(self.path)
        self.dropped_bytes = sum(dropped.values())
        return {name: size for name, size in dropped.items() if size}

    def _end_segment(self, torn: RawLine | None) -> int:
        """Make the last segment end in a newline; returns the bytes dropped for it."""
        name = segment_name(self._segment)
        dropped = cut(self.path / name, torn.offset) if torn else 0
        file = self._file(name)
        if file.size > whole_size(self.path / name):
            file.append(b"\n")
        return dropped


def _envelope(seq: int, kind: str, step: int | None, data: Any) -> Envelope:
    """An event ready to be hashed; what would not read back is refused before it is written."""
    raw = msgspec.Raw(encode(data))
    envelope = Envelope(VERSION, seq, kind, step, raw)
    try:
        decode_data(envelope)
    except DamagedError as error:
        raise StoreError(
            f"{error}: a number is not finite or a field has the wrong type; nothing was written"
        ) from error
    if len(bytes(raw)) > MAX_LINE_BYTES - 1024:
        raise StoreError(f"a {kind} event passes {MAX_LINE_BYTES:,} bytes; keep fewer near misses or smaller batches")
    return envelope


def _refuse_used(path: Path) -> None:
    """Refuse a path that is not a free folder (a writer that died before its manifest leaves its lock and a draft)."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} is a file; choose another folder")
    if path.is_dir() and set(path.iterdir()) - {path / LOCK, *unfinished(path)}:
        what = "already holds a run; resume it," if (path / MANIFEST).exists() else "is not empty;"
        raise StoreError(f"{path} {what} remove it or choose another folder")
