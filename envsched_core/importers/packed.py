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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from envsched_core.errors import LogFormatError

if TYPE_CHECKING:
    import duckdb

__all__ = ["TORN", "is_packed", "opened", "parquet_columns", "parquet_rows", "zip_names"]

TORN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a packed file that ends early, or is damaged, raises."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ROWS = 256
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "1GB",
    "threads": 1,
    "autoinstall_known_extensions": False,  # nothing may be fetched
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
            return _zstd(path)
        return cast(IO[bytes], gzip.open(path)) if start.startswith(GZIP) else path.open("rb")
    except OSError as error:
        raise LogFormatError(f"cannot be read: {error.strerror or error}", file=str(path)) from error


class _Unpacking(io.RawIOBase):
    """A zstd file's bytes; what pyarrow says of a damaged one is said as gzip says it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._stream.readinto(buffer))
        except (OSError, ValueError) as error:
            raise EOFError(str(error)) from error

    def close(self) -> None:
        self._stream.close()
        super().close()


def _zstd(path: Path) -> IO[bytes]:
    try:
        import pyarrow
    except ImportError:
        raise LogFormatError(
            "is packed with zstd, which needs pyarrow: pip install 'envsched[dashboard]', or unpack it (zstd -d)",
            file=str(path),
        ) from None
    stream = pyarrow.CompressedInputStream(pyarrow.OSFile(str(path), "rb"), "zstd")
    return io.BufferedReader(_Unpacking(stream), 1 << 20)


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
        raise LogFormatError(f"not a readable Parquet file: {error}", file=label) from error
    return [row[0] for row in described]


def parquet_rows(path: Path, label: str, keep: frozenset[str] | None = None) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file in order; only the columns in `keep` are read, all when None.

    Raises:
        LogFormatError: it cannot be read.
    """
    import duckdb

    columns = parquet_columns(path, label)
    wanted = [column for column in columns if keep is None or column in keep] or columns
    chosen = ", ".join('"' + column.replace('"', '""') + '"' for column in wanted)
    try:
        with _database().cursor() as connection:
            cursor = connection.execute(f"SELECT {chosen} FROM read_parquet(?)", [_literal(path)])  # streams
            while rows := cursor.fetchmany(ROWS):
                for row in rows:
                    yield dict(zip(wanted, row, strict=True))
    except duckdb.Error as error:
        raise LogFormatError(f"not a readable Parquet file: {error}", file=label) from error


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
