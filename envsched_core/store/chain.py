"""check_chain: whether a run folder still holds what was written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from envsched_core.errors import DamagedError, FormatVersionError
from envsched_core.records import task_key

from .arrays import graph_digest, graph_folder
from .files import MANIFEST, TASKS, TOOLS, blake, kept_inside
from .lines import (
    GENESIS,
    Appended,
    Envelope,
    RawLine,
    Registered,
    decode_envelope,
    decode_told,
    line_hash,
    raw_lines,
    split_hash,
)
from .manifest import manifest_intact, read_manifest

_TASK = re.compile(rb'"env":("(?:[^"\\]|\\.)*"),"task":("(?:[^"\\]|\\.)*")')
_HEAD = re.compile(rb'\{"v":\d+,"seq":(\d+),"kind":"(\w+)","step":(\d+|null),')
_BLOCK = 1 << 20


class ChainProblem(NamedTuple):
    """One place where a run folder is not what was written."""

    segment: str
    """File inside the run folder."""
    line: int
    """1-based; 0 where lines do not apply."""
    seq: int | None
    """Sequence number as the line has it."""
    step: int | None
    task: str | None
    """ENV::TASK where the line is about one group."""
    message: str


class _Spans:
    """What the events say of other files: spans of the catalogue and digests of graphs."""

    def __init__(self) -> None:
        self.tasks: list[tuple[int, Appended]] = []
        self.tools: list[tuple[int, Appended]] = []
        self.graphs: list[tuple[int, int | None, int, str]] = []

    def take(self, envelope: Envelope) -> None:
        """Note down one event, if it speaks of other files and can be understood."""
        try:
            told = decode_told(envelope)
        except DamagedError:  # a changed line: the chain names it
            return
        if isinstance(told, Registered):
            self.tasks.append((envelope.seq, Appended(told.count, told.start, told.end, told.digest)))
            self.tools.append((envelope.seq, told.tools))
        elif told is not None:
            self.graphs.append((envelope.seq, envelope.step, told.version, told.digest))


def check_chain(path: Path) -> list[ChainProblem]:
    """Check the hash chain of the events, then catalogue, graphs and manifest; empty when all is as written.

    A torn tail is no problem: it never was a line. Lines lost whole at the very end leave no trace in a chain.

    Raises:
        StoreError: it is no run folder. FormatVersionError: a newer version wrote it.
    """
    manifest = read_manifest(path)
    spans = _Spans()
    problems = _check_events(path, manifest.writer, spans)
    for name, told in ((TASKS, spans.tasks), (TOOLS, spans.tools)):
        problems += _check_catalogue(path, name, told)
    problems += _check_graphs(path, spans)
    if not manifest_intact(path):
        problems.append(ChainProblem(MANIFEST, 0, None, None, None, "the manifest was changed after it was written"))
    return problems


def _check_events(path: Path, writer: str, spans: _Spans) -> list[ChainProblem]:
    problems = []
    previous: set[str] = {GENESIS}
    expected: int | None = 0
    for raw in raw_lines(path):
        if raw.torn:
            break
        message, previous = _check_hash(raw, previous)
        envelope = _envelope(raw, writer, damaged=bool(message))
        message = message or _check_envelope(envelope, expected)
        if message:
            problems.append(_problem(raw, message))
        if envelope is not None:
            spans.take(envelope)
        expected = None if message or envelope is None else envelope.seq + 1
    return problems


def _check_envelope(envelope: Envelope | None, expected: int | None) -> str:
    if envelope is None:
        return "it cannot be read"
    return f"event {expected} was expected here" if expected not in (None, envelope.seq) else ""


def _check_hash(raw: RawLine, previous: set[str]) -> tuple[str, set[str]]:
    """What is wrong with a line, and which hashes the next line may follow (none known: any)."""
    parts = split_hash(raw.data)
    if raw.too_long or parts is None:
        return f"no whole event line ({raw.end - raw.start:,} bytes)", set()
    body, written = parts
    fitting = {line_hash(before, body) for before in previous}
    if previous and written not in fitting:
        # Either the line or its hash was changed; both are let through to the next line so that it is not blamed.
        return "the line, or one that stood before it, was changed after it was written (hash differs)", {
            written,
            *fitting,
        }
    return "", {written}


def _envelope(raw: RawLine, writer: str, *, damaged: bool) -> Envelope | None:
    try:
        return decode_envelope(raw, writer)
    except DamagedError:
        return None
    except FormatVersionError:
        if damaged:  # a changed digit, not a newer version
            return None
        raise


def _problem(raw: RawLine, message: str) -> ChainProblem:
    """Name the event by what can still be read of it."""
    head = _HEAD.match(raw.data)
    seq = int(head[1]) if head else None
    step = int(head[3]) if head and head[3] != b"null" else None
    names = _TASK.search(raw.data) if head and head[2] == b"observed" else None
    return ChainProblem(raw.segment, raw.number, seq, step, _key(names) if names else None, message)


def _key(names: re.Match[bytes]) -> str | None:
    try:
        return task_key(msgspec.json.decode(names[1], type=str), msgspec.json.decode(names[2], type=str))
    except msgspec.DecodeError:
        return None


def _check_catalogue(path: Path, name: str, told: list[tuple[int, Appended]]) -> list[ChainProblem]:
    file = kept_inside(path, name)
    problems, line, end = [], 1, 0
    for seq, span in told:
        digest = _digest(file, span)
        if span.start != end or digest != span.digest:
            message = f"lines {line}-{line + span.count - 1}, registered by event {seq}, were changed after it"
            problems.append(ChainProblem(name, line, seq, None, None, message))
        line, end = line + span.count, span.end
    size = file.stat().st_size if file.exists() else 0
    if size > end:
        message = f"{size - end:,} bytes that no event registers; resuming the run drops them"
        problems.append(ChainProblem(name, line, None, None, None, message))
    return problems


def _digest(path: Path, span: Appended) -> str:
    """BLAKE2b-128 of a span, or of what is left of it."""
    if not path.exists():
        return blake([])
    with path.open("rb") as file:
        file.seek(span.start)
        return blake(iter(lambda: file.read(min(_BLOCK, max(span.end - file.tell(), 0))), b""))


def _check_graphs(path: Path, spans: _Spans) -> list[ChainProblem]:
    problems = []
    for seq, step, version, digest in spans.graphs:
        folder = path / graph_folder(version)
        if not folder.is_dir():
            problems.append(ChainProblem(graph_folder(version), 0, seq, step, None, "the graph is missing"))
        elif graph_digest(path, folder.name) != digest:
            message = "an array of the graph was changed after it was written"
            problems.append(ChainProblem(graph_folder(version), 0, seq, step, None, message))
    return problems
