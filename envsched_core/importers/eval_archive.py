"""Inspect's `.eval` archive: a ZIP of JSON members, read one at a time and within limits.

The members are packed with zstd, which Python reads by itself from 3.14 on; before that the small package of the
extra `inspect` teaches it. An archive is untrusted: how many members it has, how large they say they are and how far
they unpack is checked before any is opened, no more is unpacked than a member said, and names of members are only
compared, never used as paths.
"""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from envsched_core.errors import LogFormatError
from envsched_core.limits import ARCHIVE_MEMBERS, RECORD_BYTES, UNPACKED_BYTES, UNPACKED_TIMES

from .files import Source, decode
from .packed import TORN

__all__ = ["EvalArchive", "opened_archive"]

SMALL = 2**20
"""Bytes up to which a member may unpack any number of times its size."""
PIECE = 4096
"""Bytes asked for at a time, so that no more than as many packed ones are unpacked at once."""
ZSTD = 93
ENCRYPTED = 1
"""Bit of a member's flags."""


class EvalArchive:
    """The members of one archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        """Use `opened_archive`."""
        self._archive = archive
        self._members = {member.filename: member for member in archive.infolist()}  # of a name written twice the last

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def names(self) -> Iterator[str]:
        """Names in the order in which they were written."""
        yield from self._members

    def decoded(self, name: str) -> Any:
        """The JSON value that a member holds.

        Raises:
            ValueError: there is no such member, it is too long, damaged or no JSON; with the reason in words.
        """
        return decode(self._bytes(name))

    def _bytes(self, name: str) -> bytes:
        member = self._members.get(name)
        if member is None:
            raise ValueError(f"no {name} in the archive")
        if member.flag_bits & ENCRYPTED:
            raise ValueError("encrypted")
        if member.file_size > (most := RECORD_BYTES.now()):
            raise ValueError(f"longer than {most:,} bytes, {RECORD_BYTES.remedy()}")
        try:
            with self._archive.open(member) as stream:
                return b"".join(iter(lambda: stream.read(PIECE), b""))
        except _damages() as error:
            raise ValueError(f"damaged ({error or type(error).__name__})") from None


@contextmanager
def opened_archive(source: Source) -> Iterator[EvalArchive]:
    """The archive of a log.

    Raises:
        LogFormatError: it is no readable ZIP, beyond the limits, or packed with what nothing installed unpacks.
    """
    try:
        archive = zipfile.ZipFile(source.path)
    except (OSError, NotImplementedError, zipfile.BadZipFile) as error:
        raise LogFormatError(f"not a readable ZIP archive: {error}", file=source.label) from error
    with archive:
        members = archive.infolist()
        if problem := _beyond_limits(members, source.size):
            raise LogFormatError(f"not opened: {problem}", file=source.label)
        if any(member.compress_type == ZSTD for member in members):
            _learn_zstd(source.label)
        yield EvalArchive(archive)


def _beyond_limits(members: list[zipfile.ZipInfo], size: int) -> str:
    """Which limit an archive of `size` bytes goes beyond, by what it says of itself; empty when none."""
    if len(members) > (most := ARCHIVE_MEMBERS.now()):
        return f"{len(members):,} members, more than {most:,}, {ARCHIVE_MEMBERS.remedy()}"
    whole = sum(member.file_size for member in members)
    if whole > (most := UNPACKED_BYTES.now()):
        return f"it unpacks to {whole:,} bytes, more than {most:,}, {UNPACKED_BYTES.remedy()}"
    times = UNPACKED_TIMES.now()
    if whole > times * max(size, SMALL):  # members that share their bytes
        return f"it unpacks to more than {times:,} times its size, {UNPACKED_TIMES.remedy()}"
    for member in members:
        if member.file_size > max(SMALL, times * member.compress_size):
            return f"a member unpacks to more than {times:,} times its size, {UNPACKED_TIMES.remedy()}"
    return ""


def _learn_zstd(label: str) -> None:
    """Make zipfile read zstd.

    Raises:
        LogFormatError: neither this Python nor a package can.
    """
    if _reads_zstd():
        return
    try:
        importlib.import_module("zipfile_zstd")
    except ImportError:
        raise LogFormatError(
            "its members are packed with zstd, which needs Python 3.14 or zipfile-zstd: pip install "
            "'envsched[inspect]', or write it as JSON first (inspect log convert --to json)",
            file=label,
        ) from None


def _reads_zstd() -> bool:
    """Whether zipfile can by now, by itself or because it was taught."""
    return hasattr(zipfile, "ZIP_ZSTANDARD")


def _damages() -> tuple[type[Exception], ...]:
    """What reading a damaged member raises, the errors of the zstd in use included."""
    zstd = (sys.modules.get(module) for module in ("zstandard", "compression.zstd"))
    own = tuple(error for module in zstd if isinstance(error := getattr(module, "ZstdError", None), type))
    return (*TORN, OSError, NotImplementedError, zipfile.BadZipFile, *own)
