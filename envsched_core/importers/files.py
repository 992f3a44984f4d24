"""Log files, record by record: JSON lines, JSON arrays, CSV, Parquet; plain or (line formats) gzip.

Everything streams: no more than one record is held, an array is cut into items through a memory map. A
record that is no JSON, too long or nested too deep becomes a `Record` with a problem and its line.
CSV is read with the standard library, because the exact line of every row (quoted line breaks included)
goes into the run folder; Parquet with DuckDB, imported only then.
"""

from __future__ import annotations

import csv
import gzip
import json
import mmap
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import msgspec

from envsched_core.errors import LogFormatError

__all__ = ["MAX_RECORD", "Head", "Kind", "Record", "Source", "decode", "head_of", "records"]

Kind = Literal["jsonl", "array", "object", "csv", "parquet", "other", "empty"]

MAX_RECORD = 64 * 2**20
"""Bytes of the longest line, array item or CSV field that is read; longer ones are dropped."""

HEAD_RECORDS = 20
TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
SURROGATES = re.compile("[\ud800-\udfff]")
TORN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)


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
        self.label = label or path.name
        self.start, self.before = start, before
        self.growing = end is not None
        self.size = path.stat().st_size if end is None else end
        self.done = start

    def open(self) -> IO[bytes]:
        """The bytes of the file, unpacked when gzipped."""
        try:
            with self.path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
            return cast(IO[bytes], gzip.open(self.path)) if packed else self.path.open("rb")
        except OSError as error:
            raise LogFormatError(f"cannot be read: {error.strerror}", file=str(self.path)) from error

    def lines(self, head: int = 0) -> Iterator[tuple[int, bytes | None]]:
        """Numbered lines; None for one that is longer than `MAX_RECORD`. A part also has the file's first `head`."""
        number = 0
        with self.open() as stream:
            while number < min(head, self.before):
                number += 1
                yield number, stream.readline(MAX_RECORD)
            if self.start:
                stream.seek(self.start)
                number = self.before
            while line := stream.readline(self._most(MAX_RECORD + 1)):
                number += 1
                self.done = min(self.size, self.done + len(line))
                too_long = len(line) > MAX_RECORD
                while len(line) > MAX_RECORD and not line.endswith(b"\n"):
                    line = stream.readline(self._most(MAX_RECORD + 1)) or b"\n"
                    self.done = min(self.size, self.done + len(line))
                yield number, None if too_long else line

    def _most(self, size: int) -> int:
        """Bytes that may be read next: a part ends where it was told to, whatever stands behind."""
        return min(size, self.size - self.done) if self.growing else size


def decode(raw: bytes, mended: list[tuple[str, str]] | None = None) -> Any:
    """One JSON value, bare NaN and Infinity allowed as Python writes them; what was mended in it goes to `mended`.

    Raises:
        ValueError: with the reason in words.
    """
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # slower, but it reads what Python's own json writes
    try:
        value = json.loads(raw.decode("utf-8"))
        return _without_surrogates(value, [] if mended is None else mended)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    except ValueError:
        raise ValueError("not JSON") from None


def _without_surrogates(value: Any, mended: list[tuple[str, str]]) -> Any:
    """Replace halves of surrogate pairs, which no UTF-8 file can hold."""
    if isinstance(value, str):
        clean = SURROGATES.sub("\ufffd", value)
        if clean != value:
            mended.append((clean, value))
        return clean
    if isinstance(value, list):
        return [_without_surrogates(item, mended) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key, mended): _without_surrogates(item, mended) for key, item in value.items()}
    return value


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


def _json_lines(source: Source) -> Iterator[Record]:
    """Objects of a JSON-lines file; blank lines are no rows."""
    number = 0
    try:
        for number, line in source.lines():
            if line is None:
                yield Record(number, None, f"longer than {MAX_RECORD >> 20} MiB")
                continue
            body = line.strip().removeprefix(b"\xef\xbb\xbf")
            if not body:
                continue
            record = _record(number, body)
            torn = record.problem == "not JSON" and not line.endswith(b"\n")
            yield record._replace(problem="torn last line") if torn else record
    except TORN_GZIP:
        yield Record(number + 1, None, "the gzip file ends early")


def _array(source: Source) -> Iterator[Record]:
    """Objects of one JSON array, item by item; the array itself is never decoded."""
    if source.size == 0:
        return
    with source.open() as stream:
        if not isinstance(stream, BufferedReader):
            raise LogFormatError("a gzipped JSON array cannot be read item by item; unpack it first", file=source.label)
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            depth = start = position = 0
            for match in TOKENS.finditer(data):
                token = data[match.start()]
                if token in b"[{":
                    depth += 1
                    start = match.start() if depth == 2 else start
                elif token in b"]}":
                    depth -= 1
                    if depth == 1:
                        position += 1
                        source.done = match.end()
                        yield _item(data, start, match.end(), position)
            if depth > 1:
                yield Record(position + 1, None, "torn last item")


def _item(data: mmap.mmap, start: int, end: int, position: int) -> Record:
    """One item of an array."""
    if end - start > MAX_RECORD:
        return Record(position, None, f"longer than {MAX_RECORD >> 20} MiB")
    return _record(position, data[start:end])


def _csv(source: Source) -> Iterator[Record]:
    """Rows of a CSV file as objects of strings; the delimiter is the commonest of the header's."""
    texts = (_text(line) for _, line in source.lines(head=1))
    try:
        header, dialect = _csv_header(next(texts, ""))
    except (csv.Error, *TORN_GZIP) as error:
        yield Record(1, None, f"not CSV: {error}")
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
        except TORN_GZIP:
            yield Record(line, None, "the gzip file ends early")
            return
        if len(row) == len(header):
            mended: list[tuple[str, str]] = []
            cells = _without_surrogates(row, mended) if not all(map(_sound, row)) else row
            yield Record(line, dict(zip(header, cells, strict=True)), "", hash(tuple(row)) or 1, tuple(mended))
        elif row:
            yield Record(line, None, "another number of fields than the header")


def _csv_header(line: str) -> tuple[list[str], str]:
    """Columns of a CSV file and its delimiter, by its first line."""
    csv.field_size_limit(MAX_RECORD)
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
    import duckdb

    # the name is a glob pattern to DuckDB, so its special characters are bracketed
    name = re.sub(r"([\[*?])", r"[\1]", str(source.path))
    settings: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "1GB", "threads": 1}
    settings["autoinstall_known_extensions"] = False  # nothing may be fetched
    try:
        with duckdb.connect(config=settings) as connection:
            described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [name]).fetchall()
            columns = [row[0] for row in described]
            wanted = [column for column in columns if keep is None or column in keep] or columns
            chosen = ", ".join('"' + column.replace('"', '""') + '"' for column in wanted)
            cursor = connection.execute(f"SELECT {chosen} FROM read_parquet(?)", [name])  # streams
            line = 0
            while rows := cursor.fetchmany(256):
                for row in rows:
                    line += 1
                    yield Record(line, dict(zip(wanted, row, strict=True)), "", hash(repr(row)) or 1)
    except duckdb.Error as error:
        raise LogFormatError(f"not a readable Parquet file: {error}", file=source.label) from error
    source.done = source.size


def records(source: Source, kind: Kind, keep: frozenset[str] | None = None) -> Iterator[Record]:
    """Every record of a file of this kind."""
    if kind == "parquet":
        return _parquet(source, keep)
    readers = {"jsonl": _json_lines, "array": _array, "csv": _csv}
    if kind not in readers:
        raise LogFormatError(f"holds no rows that can be read one by one ({kind})", file=source.label)
    return readers[kind](source)


class Head(NamedTuple):
    """How a file begins: all that sniffing looks at."""

    path: Path
    kind: Kind
    keys: tuple[str, ...]
    """Fields of its first records, or its columns."""
    first: dict[str, Any]
    """Its first good record."""
    problem: str = ""
    """Why it cannot be read at all, where that is known."""
    doubled: tuple[str, ...] = ()
    """Columns that its CSV header names more than once."""


def head_of(path: Path) -> Head:
    """Look at the content of a file, never at its name."""
    source = Source(path)
    kind = _kind(source)
    if kind in ("empty", "other", "object"):
        return Head(path, kind, (), {}, _why_unreadable(source) if kind == "other" else "")
    first = list(islice(records(source, kind), HEAD_RECORDS))
    good = [record.value for record in first if not record.problem]
    if kind == "jsonl" and not good:
        return Head(path, "object", (), {})
    keys = tuple(dict.fromkeys(key for value in good for key in value))
    if kind != "csv":
        return Head(path, kind, keys, good[0] if good else {})
    problem = next((record.problem for record in first if record.line == 1), "")  # the header's: rows start at 2
    return Head(path, kind, keys, good[0] if good else {}, problem, () if problem else _doubled(source))


def _doubled(source: Source) -> tuple[str, ...]:
    """Columns that a CSV header names more than once."""
    header, _ = _csv_header(next((_text(line) for _, line in source.lines()), ""))
    source.done = source.start
    return tuple(column for column, count in Counter(header).items() if count > 1)


def _why_unreadable(source: Source) -> str:
    """What is wrong with a file whose first bytes tell."""
    try:
        with source.open() as stream:
            start = stream.read(4096)
    except TORN_GZIP:
        return "a gzip file that is damaged or ends early; copy it again"
    utf16 = start.startswith((b"\xff\xfe", b"\xfe\xff")) or start[1:80:2] == bytes(len(start[1:80:2])) != b""
    return "text in UTF-16, which is not read; save it as UTF-8" if utf16 else ""


def _kind(source: Source) -> Kind:
    """The kind of a file by its first bytes."""
    try:
        with source.open() as stream:
            start = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    except TORN_GZIP:
        return "other"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "other"
    if start.startswith(b"PAR1"):
        return "parquet"
    if not start:
        return "empty"
    if start.startswith(b"["):
        return "array"
    if start.startswith(b"PK\x03\x04") or (b"\0" in start and not start.startswith(b"{")):
        return "other"
    lines = start.splitlines()[:HEAD_RECORDS]
    objects = sum(line.startswith(b"{") for line in lines)  # the first line of a log may be the damaged one
    return "jsonl" if start.startswith(b"{") or 2 * objects >= len(lines) > 1 else "csv"
