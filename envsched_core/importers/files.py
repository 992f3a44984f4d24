"""Log files, record by record: JSON lines, JSON arrays, one JSON object, CSV, Parquet; lines also gzip or zstd.

Everything streams: no more than one record is held, an array is cut into items through a memory map (json_cut.py).
A record that is no JSON, too long or nested too deep becomes a `Record` with a problem and its line. CSV is read
with the standard library, because the exact line of every row (quoted line breaks included) goes into the run
folder. Packed files and Parquet: packed.py.
"""

from __future__ import annotations

import csv
import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from envsched_core.errors import LogFormatError
from envsched_core.limits import RECORD_BYTES

from .first_bytes import START, Kind, kind_of, why_no_text
from .json_cut import SURROGATES, Member, decode, items, members, without_surrogates
from .packed import TORN, is_packed, opened, parquet_columns, parquet_rows, zip_names

__all__ = [
    "Head",
    "Kind",
    "Numbered",
    "Record",
    "Source",
    "decode",
    "head_of",
    "items_of",
    "json_lines",
    "members_of",
    "readable",
    "records",
    "typed_lines",
]

HEAD_RECORDS = 20
HEAD_KEYS = 10_000
"""Fields of its first records that a `Head` has."""
HEAD_BYTES = 8 * 2**20
"""How far into one large object its members are looked for."""
SMALL = 2**16
"""Bytes of the largest member of one large object that its `Head` has."""
BEHIND = re.compile(rb"[\[\s,]*+\]\s*+\S")
"""The end of an array behind its last item, and more behind that."""
NEXT_OBJECT = re.compile(rb"\s*+\}(\s*+)\{")


Numbered = Iterable[tuple[int, bytes | None]]
"""Lines with their numbers from 1 on; None for one that is too long."""


class Record(NamedTuple):
    """One record of a file, or what is wrong with it."""

    line: int
    """1-based line, row or position in an array."""
    value: Any
    problem: str = ""
    mark: int = 0
    """Hash of its content, never 0 for a good record."""
    mended: tuple[tuple[str, str], ...] = ()
    """Texts that no UTF-8 file can hold: as they are in `value`, and as they were read."""


class Source:
    """One file of a log, or a part of one that is still being written, and how far it has been read."""

    def __init__(self, path: Path, label: str = "", *, start: int = 0, before: int = 0, end: int | None = None) -> None:
        """`label` is how places and the report call the file.

        The part is the bytes [start, end), whole lines with `before` lines before them; None = to the end.
        """
        self.path = path
        self.label = readable(label or path.name)
        self.start, self.before = start, before
        self.growing = end is not None
        self.most = RECORD_BYTES.now()
        """Bytes of the longest line, array item or CSV field that is read; longer ones are dropped."""
        self.size = path.stat().st_size if end is None else end
        self.done = start

    def open(self) -> IO[bytes]:
        """The bytes of the file, unpacked."""
        return opened(self.path)

    @contextmanager
    def mapped(self) -> Iterator[mmap.mmap]:
        """The bytes of the file as a memory map.

        Raises:
            LogFormatError: it is packed, so that it has none.
        """
        if is_packed(self.path):
            raise LogFormatError("a packed JSON array or object cannot be read; unpack it first", file=self.label)
        with self.open() as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data

    def lines(self, head: int = 0) -> Iterator[tuple[int, bytes | None]]:
        """Numbered lines; None for one that is longer than `most`. A part also has the file's first `head`."""
        number = 0
        with self.open() as stream:
            while number < min(head, self.before):
                number += 1
                yield number, stream.readline(self.most)
            if self.start:
                stream.seek(self.start)
                number = self.before
            most = self.most + 1
            while line := stream.readline(self._most(most) if self.growing else most):
                number += 1
                self.done = min(self.size, self.done + len(line))
                too_long = len(line) > self.most
                while len(line) > self.most and not line.endswith(b"\n"):
                    line = stream.readline(self._most(most)) or b"\n"
                    self.done = min(self.size, self.done + len(line))
                yield number, None if too_long else line

    def take(self, read: Callable[[int], bytes], size: int) -> bytes:
        """What `read` of the open file gives next, at most `size` bytes."""
        data = read(self._most(size))
        self.done = min(self.size, self.done + len(data))
        return data

    def too_long(self, line: int) -> Record:
        """What becomes of a record that is longer than `most`."""
        return Record(line, None, f"longer than {self.most:,} bytes, {RECORD_BYTES.remedy()}")

    def _most(self, size: int) -> int:
        """Bytes that may be read next: a part ends where it was told to, whatever stands behind."""
        return min(size, self.size - self.done) if self.growing else size


def readable(path: str) -> str:
    """A path as text that UTF-8 can hold; names of files are bytes, and some are no text."""
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _record(line: int, raw: bytes) -> Record:
    """A JSON object as a record."""
    mended: list[tuple[str, str]] = []
    try:
        value = decode(raw, mended)
    except ValueError as error:
        return Record(line, None, str(error))
    if not isinstance(value, dict):
        return Record(line, None, "not a JSON object")
    return Record(line, value, "", hash(raw) or 1, tuple(mended))


def typed_lines(source: Source, type: type[Any]) -> Iterator[Record]:
    """Objects of a JSON-lines file as a msgspec struct: what that does not name is passed over without being made."""
    decoder = msgspec.json.Decoder(type)

    def typed(line: int, raw: bytes) -> Record:
        try:
            return Record(line, decoder.decode(raw), "", hash(raw) or 1)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = _record(line, raw)  # bare NaN, half a surrogate pair, or no such object
        if found.problem:
            return found
        try:
            return found._replace(value=msgspec.convert(found.value, type))
        except msgspec.ValidationError as error:
            return Record(line, None, f"not of this format: {error}")

    return json_lines(source, parse=typed)


def json_lines(
    source: Source, lines: Numbered | None = None, parse: Callable[[int, bytes], Record] = _record
) -> Iterator[Record]:
    """Objects of a JSON-lines file, or of some of its lines; blank lines are no rows."""
    number = 0
    try:
        for number, line in source.lines() if lines is None else lines:
            if line is None:
                yield source.too_long(number)
                continue
            body = line.strip().removeprefix(b"\xef\xbb\xbf")
            if not body:
                continue
            record = parse(number, body)
            torn = record.problem == "not JSON" and not line.endswith(b"\n")
            yield record._replace(problem="torn last line") if torn else record
    except TORN:
        yield Record(number + 1, None, "the packed file ends early")


def _array(source: Source) -> Iterator[Record]:
    """Objects of one JSON array, item by item; the array itself is never decoded."""
    if source.size:
        with source.mapped() as data:
            yield from _cut(source, data, 0)


def _cut(source: Source, data: mmap.mmap, start: int) -> Iterator[Record]:
    """Items of the array that begins at `start`; one at 0 is all that a file may hold."""
    position = 0
    for position, (begin, end) in enumerate(items(data, start), 1):
        if end is None:
            yield Record(position, None, "torn last item")
            return
        source.done = end
        yield _record(position, data[begin:end]) if end - begin <= source.most else source.too_long(position)
    if start == 0 and BEHIND.match(data, source.done):
        yield Record(position + 1, None, "more behind the end of the array, which was not read")


def _object(source: Source) -> Iterator[Record]:
    """A file that is one object, as one record."""
    if source.size > source.most:
        yield source.too_long(1)
        return
    with source.mapped() as data:
        yield _record(1, data[:])
    source.done = source.size


def items_of(source: Source, key: str) -> Iterator[Record]:
    """Objects of the array that is the member `key` of a file that is one large object, item by item."""
    with source.mapped() as data:
        start = next((member.start for member in members(data, len(data)) if member.key == key), None)
        if start is not None and data[start : start + 1] == b"[":
            yield from _cut(source, data, start)


def members_of(source: Source, keys: frozenset[str] | None = None) -> dict[str, Any]:
    """Members of a file that is one large object, decoded: those in `keys`, or all that are small.

    What is no JSON, longer than the limit on a record or beyond the first 8 MiB is left out.
    """
    found = {}
    with source.mapped() as data:
        for member in members(data, len(data) if keys else HEAD_BYTES):
            if (member.key in keys) if keys else _is_small(member):
                try:
                    found[member.key] = decode(data[member.start : member.end or len(data)][: source.most])
                except ValueError:
                    continue
            if keys and keys <= found.keys():
                break
    return found


def _is_small(member: Member) -> bool:
    return member.end is not None and member.end - member.start <= SMALL


def _csv(source: Source) -> Iterator[Record]:
    """Rows of a CSV file as objects of strings; the delimiter is the commonest of the header's."""
    texts = (_text(line) for _, line in source.lines(head=1))
    try:
        header, dialect = _csv_header(next(texts, ""), source.most)
    except (csv.Error, *TORN) as error:
        bare = "lines that end with a carriage return alone; save it with line feeds"
        yield Record(1, None, bare if "new-line" in str(error) else f"not CSV: {error}")
        return
    rows = csv.reader(texts, delimiter=dialect)
    while True:
        try:
            line = rows.line_num + max(source.before, 1) + 1
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Record(line, None, f"not CSV: {error}")
            continue
        except TORN:
            yield Record(line, None, "the packed file ends early")
            return
        if len(row) == len(header):
            mended: list[tuple[str, str]] = []
            cells = without_surrogates(row, mended) if not all(map(_sound, row)) else row
            yield Record(line, dict(zip(header, cells, strict=True)), "", hash(tuple(row)) or 1, tuple(mended))
        elif row:
            yield Record(line, None, "another number of fields than the header")


def _csv_header(line: str, most: int) -> tuple[list[str], str]:
    """Columns of a CSV file and its delimiter, by its first line; no field is read beyond `most` characters."""
    csv.field_size_limit(most)
    line = SURROGATES.sub("\ufffd", line.removeprefix("\ufeff"))
    dialect = max(",\t;|", key=line.count)
    return next(csv.reader([line], delimiter=dialect), []), dialect


def _text(line: bytes | None) -> str:
    """A line of a CSV file; bytes that are no UTF-8 stay told apart, a line too long will not fit its header."""
    return line.decode("utf-8", "surrogateescape") if line is not None else "(line too long)\n"


def _sound(cell: str) -> bool:
    """Whether a cell was UTF-8."""
    return cell.isascii() or SURROGATES.search(cell) is None


def _parquet(source: Source, keep: frozenset[str] | None = None) -> Iterator[Record]:
    """Rows of a Parquet file; only the columns in `keep` are read, all when None."""
    for line, row in enumerate(parquet_rows(source.path, source.label, keep), 1):
        written = repr(row)
        yield Record(line, row, "", hash(written) or 1) if len(written) <= source.most else source.too_long(line)
    source.done = source.size


def records(source: Source, kind: Kind, keep: frozenset[str] | None = None) -> Iterator[Record]:
    """Every record of a file of this kind; of Parquet only the columns in `keep`."""
    if kind == "parquet":
        return _parquet(source, keep)
    readers = {"jsonl": json_lines, "array": _array, "csv": _csv, "object": _object}
    if kind not in readers:
        raise LogFormatError(f"holds no rows that can be read one by one ({kind})", file=source.label)
    return readers[kind](source)


class Head(NamedTuple):
    """How a file begins: all that sniffing looks at."""

    path: Path
    kind: Kind
    keys: tuple[str, ...]
    """Fields of its first records, its columns, members of one object as far as looked at, or names in a ZIP."""
    first: dict[str, Any]
    """Its first good record; of one large object its small members."""
    problem: str = ""
    """Why it cannot be read at all, where that is known."""
    doubled: tuple[str, ...] = ()
    """Columns that its CSV header names more than once."""


def head_of(path: Path) -> Head:
    """Look at the content of a file, never at its name."""
    source = Source(path)
    try:
        with source.open() as stream:
            start = stream.read(START)
    except TORN:
        return Head(path, "other", (), {}, "a packed file that is damaged or ends early; copy it again")
    kind = kind_of(start, path)
    if kind in ("empty", "other"):
        return Head(path, kind, (), {}, why_no_text(start) if kind == "other" else "")
    if kind == "zip":
        return Head(path, kind, tuple(islice(zip_names(path), HEAD_RECORDS)), {})
    if kind == "parquet":
        first_row = next(parquet_rows(path, source.label), {})
        return Head(path, kind, tuple(first_row) or tuple(parquet_columns(path, source.label)), first_row)
    first = list(islice(records(source, kind), HEAD_RECORDS))
    good = [record.value for record in first if not record.problem]
    if kind == "jsonl" and not good:
        found = _object_head(source)
        return found._replace(problem=_first_too_long(first) or found.problem)
    keys = tuple(dict.fromkeys(key for value in good for key in islice(value, HEAD_KEYS)))[:HEAD_KEYS]
    if kind != "csv":
        return Head(path, kind, keys, good[0] if good else {})
    problem = next((record.problem for record in first if record.line == 1), "")  # the header's: rows start at 2
    return Head(path, kind, keys, good[0] if good else {}, problem, () if problem else _doubled(source))


def _first_too_long(first: list[Record]) -> str:
    """What to say of a file whose first records are beyond the limit; empty when they are not."""
    return next((f"line {one.line}: {one.problem}" for one in first if one.problem.startswith("longer than")), "")


def _object_head(source: Source) -> Head:
    """The head of a file that is one object over many lines: its first members, the small ones with their values."""
    if is_packed(source.path):
        return Head(source.path, "object", (), {})
    with source.mapped() as data:
        found = list(members(data, min(len(data), HEAD_BYTES)))
        problem = _run_on(data, found[-1].end) if found else ""
    keys = tuple(member.key for member in found)
    return Head(source.path, "object", keys, members_of(source) if keys else {}, problem)


def _run_on(data: mmap.mmap, end: int | None) -> str:
    """What to say of objects that follow each other, but not one a line; `end`: behind the first one's members."""
    following = NEXT_OBJECT.match(data, end) if end is not None else None
    if end is None or following is None or (b"\n" in following.group(1) and data.find(b"\n", 0, end) < 0):
        return ""
    return "JSON objects that follow each other, but not one a line: `jq -c . FILE` writes them so"


def _doubled(source: Source) -> tuple[str, ...]:
    """Columns that a CSV header names more than once."""
    header, _ = _csv_header(next((_text(line) for _, line in source.lines()), ""), source.most)
    source.done = source.start
    return tuple(column for column, count in Counter(header).items() if count > 1)
