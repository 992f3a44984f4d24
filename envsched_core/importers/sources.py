"""Paths as the user gave them -> the files to read, each with its format and a short label.

In a folder every file is looked at; files of no known format are passed over and told. A file that was named
itself must be readable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from envsched_core.errors import LogFormatError

from .base import ImportOptions, Notes
from .fields import TASK_FIELDS, Columns
from .files import Source, head_of
from .formats import FORMATS, format_of, reader_of, unknown_format

__all__ = ["Input", "files_below", "find_inputs", "natural_order"]


class Input(NamedTuple):
    """One file to read."""

    source: Source
    format: str


def find_inputs(paths: Sequence[Path], options: ImportOptions, notes: Notes) -> list[Input]:
    """The files of a log in order.

    Raises:
        LogFormatError: a path does not exist, is of no known format, or a folder holds no log.
    """
    found = [item for path in paths for item in _inputs(path, options, notes)]
    labels = Counter(source.label for source, _ in found)
    for source, _ in found:
        if labels[source.label] > 1:
            source.label = str(source.path)
    return found


def _inputs(path: Path, options: ImportOptions, notes: Notes) -> list[Input]:
    if path.is_dir():
        return _folder(path, options, notes)
    if not path.is_file():
        raise LogFormatError("no such file or folder", file=str(path))
    head = head_of(path)
    found = options.format or format_of(head, options)
    if found is None:
        raise unknown_format(head)
    reader_of(found)
    return [Input(Source(path), found)]


def _folder(folder: Path, options: ImportOptions, notes: Notes) -> list[Input]:
    """Every log in a folder and below it."""
    given = {file.resolve() for file in (options.tasks, options.tools) if file is not None}
    inputs, passed = [], []
    for path in sorted(files_below(folder), key=natural_order):
        if path.resolve() in given:
            continue
        head = head_of(path)
        chosen = options.format if options.format and reader_of(options.format).claims(head, options) else None
        found = chosen if options.format else format_of(head, options)
        if found is None:
            passed.append(path.relative_to(folder).as_posix())
            continue
        inputs.append(Input(Source(path, f"{folder.resolve().name}/{path.relative_to(folder).as_posix()}"), found))
    beside = {item.source.path.with_name(name) for item in inputs for name in reader_of(item.format).COMPANIONS}
    passed = [path for path in passed if folder / path not in beside]
    if not inputs:
        raise LogFormatError(
            f"no log in this folder: {_list(passed)} of no known format; tried {', '.join(FORMATS)}. Name one file "
            "with --map reward=COLUMN --map task_id=COLUMN to read it as a table",
            file=str(folder),
        )
    if passed:
        notes.add(f"passed over {_list(passed)} of no known format")
    for name in passed if options.tasks is None else ():
        if _is_task_list(folder / name):
            notes.add(f"{name} looks like a task list: --tasks {folder / name} adds its texts")
    return inputs


def _is_task_list(path: Path) -> bool:
    """Whether a file that is no log names tasks and their texts."""
    columns = Columns(head_of(path).keys, {}, TASK_FIELDS)
    return "env" in columns and "task" in columns and "text" in columns


def files_below(folder: Path) -> Iterable[Path]:
    """Regular files below a folder, hidden ones and links to folders left out."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file():
            yield path


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts 2.jsonl before 10.jsonl."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.as_posix())]


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    count = "1 file" if len(names) == 1 else f"{len(names)} files"
    return f"{count} ({shown})"
