"""Event lines: how one is built, hashed, found in the segments and decoded. The package head documents the format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from envsched_core.errors import DamagedError, FormatVersionError
from envsched_core.records import Decision, Event, GroupResult

from .files import EVENTS, blake, encode, kept_inside

VERSION = 1
"""The event version that this version writes, and the highest it reads."""
GENESIS = "0" * 32
"""What stands for the previous hash before the first line."""
MAX_LINE_BYTES = 64 * 2**20
"""Longer lines are not written, and passed over when read."""

_HASH_KEY = b',"hash":"'
_TAIL = re.compile(rb',"hash":"([0-9a-f]{32})"\}\Z')
_TAIL_BYTES = len(_HASH_KEY) + 32 + 2
_CHUNK = 1 << 20


class Appended(msgspec.Struct, frozen=True):
    """A run of bytes that one call appended to a file."""

    count: int
    start: int
    end: int
    digest: str


class Registered(msgspec.Struct, frozen=True):
    """Payload of `registered`."""

    count: int
    """Tasks that joined."""
    total: int
    """Tasks registered so far."""
    digest: str
    start: int
    end: int
    tools: Appended


class Drawn(msgspec.Struct, frozen=True):
    """Payload of `graph`."""

    version: int
    digest: str
    edges_within: int
    edges_cross: int
    patterns: int


class Envelope(msgspec.Struct):
    """A line before its hash, its payload still raw."""

    v: int
    seq: int
    kind: str
    step: int | None
    data: msgspec.Raw


class _Version(msgspec.Struct):
    v: int


class Problem(NamedTuple):
    """A line that could not be read and was passed over."""

    segment: str
    line: int
    """1-based in its segment."""
    offset: int
    """Byte offset in its segment."""
    message: str


class Located(NamedTuple):
    """An event and where its line stands."""

    event: Event
    segment: str
    line: int
    offset: int
    """Byte offset in its segment."""


class RawLine(NamedTuple):
    """A line as it stands in a segment, without its newline."""

    segment: str
    number: int
    """1-based in its segment."""
    offset: int
    """Byte offset in its segment."""
    start: int
    """Byte offset over all segments."""
    end: int
    """Where the next line starts, over all segments."""
    data: bytes
    torn: bool
    """It is the last of the log and has no newline: not a line yet, or never one."""
    too_long: bool


_ENVELOPE = msgspec.json.Decoder(Envelope)
_PLAIN = msgspec.json.Decoder(dict[str, Any])
_DATA: dict[str, msgspec.json.Decoder[Any]] = {
    "registered": _PLAIN,
    "graph": _PLAIN,
    "asked": msgspec.json.Decoder(Decision),
    "observed": msgspec.json.Decoder(GroupResult),
    "released": _PLAIN,
    "resumed": _PLAIN,
    "note": _PLAIN,
}


def event_line(previous: str, envelope: Envelope) -> tuple[bytes, str]:
    """The whole line with newline, and its hash."""
    body = encode(envelope)[:-1]
    digest = line_hash(previous, body)
    return b"".join((body, _HASH_KEY, digest.encode(), b'"}\n')), digest


def line_hash(previous: str, body: bytes) -> str:
    """Hash of a line, from the hash before it and its bytes without hash."""
    return blake((previous.encode(), body))


def split_hash(line: bytes) -> tuple[bytes, str] | None:
    """The bytes that the hash covers, and the hash as written; None when the line does not end in one."""
    match = _TAIL.match(line, max(len(line) - _TAIL_BYTES, 0))
    return (line[: match.start()], match[1].decode()) if match else None


def decode_envelope(raw: RawLine, writer: str) -> Envelope:
    """The outer fields of a line.

    Raises:
        FormatVersionError: of a newer event version. DamagedError: it cannot be read.
    """
    if raw.too_long:
        raise DamagedError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        envelope = _ENVELOPE.decode(raw.data)
        newest = envelope.v
    except (msgspec.DecodeError, RecursionError) as error:
        newest = _version(raw.data)
        if newest <= VERSION:
            raise DamagedError(str(error)) from error
    if newest > VERSION:
        raise FormatVersionError(
            f"{raw.segment}:{raw.number}: event version {newest}, this version reads up to {VERSION}; "
            f"use the version that wrote the run ({writer}) or newer"
        )
    return envelope


def _version(data: bytes) -> int:
    try:
        return msgspec.json.decode(data, type=_Version).v
    except (msgspec.DecodeError, RecursionError):
        return 0


def decode_data(envelope: Envelope) -> Any:
    """The typed payload: Decision, GroupResult or dict; None for a kind not known here.

    Raises:
        DamagedError: it is not what its kind says.
    """
    decoder = _DATA.get(envelope.kind)
    if decoder is None:
        return None
    try:
        return decoder.decode(envelope.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DamagedError(f"{envelope.kind}: {error}") from error


def decode_told(envelope: Envelope) -> Registered | Drawn | None:
    """What an event says of other files of the run folder, if it does.

    Raises:
        DamagedError: it is not what its kind says.
    """
    kinds: dict[str, type[Registered | Drawn]] = {"registered": Registered, "graph": Drawn}
    if envelope.kind not in kinds:
        return None
    try:
        return msgspec.json.decode(envelope.data, type=kinds[envelope.kind])
    except (msgspec.DecodeError, RecursionError) as error:
        raise DamagedError(f"{envelope.kind}: {error}") from error


def segments(run: Path) -> list[Path]:
    """The segment files in order.

    Raises:
        DamagedError: one is a link that leads out of the run folder.
    """
    names = sorted(file.name for file in kept_inside(run, EVENTS, folder=True).glob("seg-[0-9]*.jsonl"))
    return [kept_inside(run, f"{EVENTS}/{name}") for name in names]


def segment_name(number: int) -> str:
    """File name of a segment, inside the run folder."""
    return f"{EVENTS}/seg-{number:06d}.jsonl"


def raw_lines(run: Path, start: int = 0, known: tuple[int, int] = (0, 0)) -> Iterator[RawLine]:
    """Lines from byte `start` (over all segments; the start of a line) on, a torn tail last.

    `known` = (offset over all segments, lines of its segment before it) spares counting lines.
    """
    files = segments(run)
    base = 0
    for file in files:
        size = file.stat().st_size
        last = file is files[-1]
        if start < base + size or last:
            yield from _segment_lines(file, base, max(start - base, 0), known, last=last)
        base += size


def _segment_lines(file: Path, base: int, skip: int, known: tuple[int, int], *, last: bool) -> Iterator[RawLine]:
    name = f"{EVENTS}/{file.name}"
    with file.open("rb", buffering=_CHUNK) as stream:
        stream.seek(skip)
        offset, number = skip, -1
        while data := stream.readline(MAX_LINE_BYTES):
            if number < 0:
                number = known[1] if known[0] == base + skip and skip else _lines_before(file, skip)
            number += 1
            size, ended = (len(data), data.endswith(b"\n")) if len(data) < MAX_LINE_BYTES else _rest(stream, data)
            too_long = size > len(data) or size >= MAX_LINE_BYTES
            whole = data[:-1] if data.endswith(b"\n") else data
            begin = base + offset
            yield RawLine(name, number, offset, begin, begin + size, whole, last and not ended, too_long)
            offset += size


def _rest(stream: BinaryIO, data: bytes) -> tuple[int, bool]:
    """Pass over the rest of a line that is too long; its whole size and whether it ends in a newline."""
    size = len(data)
    while data and not data.endswith(b"\n"):
        data = stream.readline(_CHUNK)
        size += len(data)
    return size, data.endswith(b"\n")


def _lines_before(file: Path, offset: int) -> int:
    count = 0
    with file.open("rb") as stream:
        while offset > 0 and (chunk := stream.read(min(_CHUNK, offset))):
            count += chunk.count(b"\n")
            offset -= len(chunk)
    return count
