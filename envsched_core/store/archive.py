"""Archive: whole run folders in one compressed file, to be kept or sent; unpacked, they are the runs they were.

Snapshots and the lock stay out, since events rebuild the first and nobody writes a packed run. The archive is
the same to the byte for the same runs: names sorted, no owners, and for time that of the run.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from envsched_core.errors import StoreError
from envsched_core.limits import ARCHIVE_MEMBERS, RUN_BYTES

from .manifest import read_manifest

__all__ = ["pack", "unpack"]

LEFT_OUT = ("state", "writer.lock")


def pack(runs: Sequence[Path], archive: Path) -> None:
    """Write the run folders into one ``.tar.xz``; a file that stands there is replaced whole.

    Raises:
        StoreError: the archive cannot be written.
    """
    part = archive.with_name(archive.name + ".part")
    try:
        with tarfile.open(part, "w:xz", preset=6) as out:
            for run in runs:
                made = int(datetime.fromisoformat(read_manifest(run).created).timestamp())
                for file in sorted(p for p in run.rglob("*") if p.is_file()):
                    inside = file.relative_to(run)
                    if inside.parts[0] not in LEFT_OUT:
                        out.add(file, f"{run.name}/{inside.as_posix()}", filter=partial(_plain, made))
        part.replace(archive)
    except OSError as error:
        raise StoreError(f"{archive} cannot be written: {error}") from error


def _plain(made: int, member: tarfile.TarInfo) -> tarfile.TarInfo:
    """No owner, and the time at which the run was begun: a dashboard shows its age."""
    member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode = made, 0, 0, "", "", 0o644
    return member


def unpack(archive: Path, folder: Path) -> None:
    """Unpack run folders into `folder`; nothing is written outside of it.

    Raises:
        StoreError: it is no such archive, or claims to be far too large.
    """
    try:
        with tarfile.open(archive, "r:xz") as packed:
            packed.extractall(folder, list(_within_limits(packed, archive)), filter="data")
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        raise StoreError(f"{archive} cannot be unpacked: {error}") from error


def _within_limits(packed: tarfile.TarFile, archive: Path) -> Iterator[tarfile.TarInfo]:
    """The members: what each claims is counted before any byte behind it is unpacked."""
    size = 0
    for number, member in enumerate(packed, start=1):
        size += member.size
        for found, limit in ((size, RUN_BYTES), (number, ARCHIVE_MEMBERS)):
            if found > (most := limit.now()):
                raise StoreError(
                    f"{archive} is not unpacked: it claims more than {most:,} {limit.unit}, {limit.remedy()}"
                )
        yield member
