"""Files as bytes and as tables: plain, gzip or zstd text, and Parquet. Each library is imported only when needed.

gzip is Python's own. zstd, which trainers seal finished chunks with, is read with pyarrow, which comes with the
dashboard. Parquet is read with DuckDB, a row group at a time, in one thread and with a limit on memory.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from envsched_core.errors import LogFormatError
from envsched_core.limits import ROWS, UNPACKED_BYTES, UNPACKED_TIMES

if TYPE_CHECKING:
    import duckdb

__all__ = ["TORN", "is_packed", "opened", "parquet_columns", "parquet_rows", "zip_names"]

TORN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a packed file that ends early, or is damaged, raises."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
SMALL = 64 * 2**20
"""Bytes up to which a packed file may unpack any number of times its size."""
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "1GB",
    "threads": 1,
    "autoinstall_known_extensions": False,  # nothing may be fetched
    "temp_directory": "",  # nothing may be put beside whatever folder this was started in
}


def is_packed(path: Path) -> bool:
    """Whether a file is compressed as a whole, so that no byte offset in it means a line."""
    with path.open("rb") as raw:
        start = raw.read(4)
    return start.startswith(GZIP) or start == ZSTD


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked.

    Raises:
        LogFormatError: it cannot be opened, or nothing is installed that unpacks it.
    """
    try:
        with path.open("rb") as raw:
            start = raw.read(4)
        if start == ZSTD:
            stream = _zstd(path)
            return io.BufferedReader(_Unpacking(stream, stream.readinto, path), 1 << 20)
        if start.startswith(GZIP):
            unpacked = gzip.open(path)  # noqa: SIM115 - the reader closes it
            return io.BufferedReader(_Unpacking(unpacked, unpacked.readinto1, path), 1 << 20)
        return path.open("rb")
    except OSError as error:
        raise LogFormatError(f"cannot be read: {error.strerror or error}", file=str(path)) from error


class _Unpacking(io.RawIOBase):
    """A packed file's bytes within the limits; what is said of a damaged one is said as gzip says it."""

    def __init__(self, stream: Any, fill: Callable[[Any], int], path: Path) -> None:
        """`fill` is what of the stream's methods fills a buffer, without reading on when a part of it is filled."""
        self._stream, self._fill, self._path, self._done = stream, fill, path, 0
        self._most, self._times = UNPACKED_BYTES.now(), UNPACKED_TIMES.now()
        self._by_size = max(SMALL, self._times * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = int(self._fill(buffer))
        except (OSError, ValueError) as error:
            raise EOFError(str(error)) from error
        self._done += size
        if self._done > self._most:
            self._refuse(f"{self._most:,} bytes, {UNPACKED_BYTES.remedy()}")
        if self._done > self._by_size:
            self._refuse(f"{self._times:,} times its size, {UNPACKED_TIMES.remedy()}")
        return size

    def _refuse(self, limit: str) -> NoReturn:
        raise LogFormatError(f"unpacks to more than {limit}", file=str(self._path))

    def close(self) -> None:
        self._stream.close()
        super().close()


def _zstd(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise LogFormatError(
            "is packed with zstd, which needs pyarrow: pip install 'envsched[dashboard]', or unpack it (zstd -d)",
            file=str(path),
        ) from None
    return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path), "rb"), "zstd")


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    """The one database of this process: to open one takes longer than to read a small file."""
    import duckdb

    return duckdb.connect(config=SETTINGS)


def parquet_columns(path: Path, label: str) -> list[str]:
    """The columns of a Parquet file.

    Raises:
        LogFormatError: it cannot be read.
    """
    import duckdb

    try:
        with _database().cursor() as connection:
            described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [_literal(path)]).fetchall()
    except duckdb.Error as error:
        raise _unreadable(error, label) from error
    return [row[0] for row in described]


def parquet_rows(path: Path, label: str, keep: frozenset[str] | None = None) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file in order; only the columns in `keep` are read, all when None.

    Raises:
        LogFormatError: it cannot be read, or claims more rows than the limit.
    """
    import duckdb

    columns = parquet_columns(path, label)
    wanted = [column for column in columns if keep is None or column in keep] or columns
    chosen = ", ".join('"' + column.replace('"', '""') + '"' for column in wanted)
    try:
        with _database().cursor() as connection:
            claim = connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [_literal(path)])
            claimed = (claim.fetchone() or (0,))[0] or 0
            if not 0 <= claimed <= (most := ROWS.now()):
                raise LogFormatError(f"claims {claimed:,} rows, more than {most:,}, {ROWS.remedy()}", file=label)
            cursor = connection.execute(f"SELECT {chosen} FROM read_parquet(?)", [_literal(path)])  # streams
            while (row := cursor.fetchone()) is not None:  # one by one: a few bytes of a file can be many large rows
                yield dict(zip(wanted, row, strict=True))
    except duckdb.Error as error:
        raise _unreadable(error, label) from error


def _unreadable(error: Exception, label: str) -> LogFormatError:
    """What to say of a Parquet file that DuckDB refuses: its first line, the others show our query."""
    said = str(error).partition("\n")[0]
    return LogFormatError(f"not a readable Parquet file, or not whole: {said}", file=label)


def zip_names(path: Path) -> list[str]:
    """Names of the files in a ZIP archive; none of them is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return []


def _literal(path: Path) -> str:
    """A path as DuckDB takes it: the name is a glob pattern to it, so its special characters are bracketed."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))
