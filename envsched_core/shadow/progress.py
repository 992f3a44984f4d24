"""shadow.json: how far every file of a followed log was taken, replaced as a whole after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from envsched_core.importers.growing import GrowingFile, Mark, mark_at
from envsched_core.store.files import replace_file

from .waiting import Position

__all__ = ["Progress", "read_progress", "write_progress"]

NAME = "shadow.json"
FORMAT = 1


class Progress(msgspec.Struct):
    """The file's content."""

    format: int = FORMAT
    files: list[Mark] = []
    counts: dict[str, int] = {}


def read_progress(run: Path) -> Progress:
    """Marks and counts; without the file nothing: the log is read from its start, what is on record passed over."""
    try:
        found = msgspec.json.decode((run / NAME).read_bytes(), type=Progress)
    except (OSError, msgspec.DecodeError):
        return Progress()
    return found if found.format == FORMAT else Progress()


def write_progress(
    run: Path,
    files: Sequence[GrowingFile],
    first: Callable[[str], Position | None],
    counts: Mapping[str, int],
) -> None:
    """Marks of all files, set back to the first row that still waits.

    Raises:
        StoreError: it cannot be written.
    """
    marks = [_safe(file, first(file.mark.label)) for file in files]
    replace_file(run / NAME, msgspec.json.encode(Progress(FORMAT, marks, dict(counts))))


def _safe(file: GrowingFile, waits: Position | None) -> Mark:
    if waits is None:
        return file.mark
    if file.whole:
        return msgspec.structs.replace(file.mark, rows=waits.rows)
    return mark_at(file, waits.offset, waits.lines)
