"""Paths as the user gave them -> the files to read, each with its format and a short label.

In a folder every file is looked at; files of no known format are passed over and told. A file that was named
itself must be readable.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from envsched_core.errors import LogFormatError

from .base import ImportOptions, Notes, side_files
from .fields import TASK_FIELDS, absent_column, checked_mapping
from .files import Head, Source, decode, head_of
from .formats import format_of, reader_of, unknown_format
from .not_logs import why_no_log

__all__ = ["Input", "files_below", "find_inputs", "natural_order"]


MANIFEST_KEYS = {"format", "run_id", "kind", "writer"}
MAX_MANIFEST = 16 * 2**20


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
        raise unknown_format(head, options)
    _check(head, found, options)
    return [Input(Source(path), found)]


def _check(head: Head, format: str, options: ImportOptions) -> None:
    """Refuse a file that cannot be of the format that the user named, or lacks a column that --map names.

    Raises:
        LogFormatError: with what it has. ConfigError: there is no such format.
    """
    needs = reader_of(format).NEEDS
    missing = [field for field in needs if field not in head.keys]
    if head.problem:
        raise LogFormatError(head.problem, file=str(head.path))
    if head.keys and missing:
        looks = format_of(head, ImportOptions(env=options.env, mapping=options.mapping, reward=options.reward))
        instead = f"; it looks like {looks}: leave --format out" if looks else ""
        raise LogFormatError(f"is not {format}: it has no {', '.join(missing)}{instead}", file=str(head.path))
    if absent := _absent(head, options):
        raise LogFormatError(absent, file=str(head.path))


def _absent(head: Head, options: ImportOptions) -> str:
    """What `absent_column` says, but for columns that may be meant for the task list."""
    mapping = checked_mapping(options.mapping)
    own = {field: column for field, column in mapping.items() if options.tasks is None or field not in TASK_FIELDS}
    return absent_column(head.keys, own)


def _folder(folder: Path, options: ImportOptions, notes: Notes) -> list[Input]:
    """Every log in a folder and below it."""
    given = side_files(options)
    inputs, passed = [], []
    runs: list[Path] = []
    for path in sorted(files_below(folder, runs), key=natural_order):
        if path.resolve() in given:
            continue
        head = head_of(path)
        chosen = options.format if options.format and reader_of(options.format).claims(head, options) else None
        found = chosen if options.format else format_of(head, options)
        if found is None:
            passed.append(path.relative_to(folder).as_posix())
            continue
        if absent := _absent(head, options):
            raise LogFormatError(absent, file=str(path))
        inputs.append(Input(Source(path, f"{folder.resolve().name}/{path.relative_to(folder).as_posix()}"), found))
    beside = {item.source.path.with_name(name) for item in inputs for name in reader_of(item.format).COMPANIONS}
    passed = [path for path in passed if folder / path not in beside]
    said = {path: why for path in passed if (why := why_no_log(head_of(folder / path)))}
    passed = [path for path in passed if path not in said]
    if runs:
        names = sorted(run.relative_to(folder).as_posix() for run in runs)
        notes.add(f"passed over {_list(names, 'run folder')}: decisions and groups that EnvSched wrote, not a log")
    if not inputs and runs and not passed and not said:
        what = "is a run folder" if folder in runs else f"holds only {_list(names, 'run folder')}"
        raise LogFormatError(f"{what} that EnvSched wrote, no log", file=str(folder))
    if not inputs:
        raise LogFormatError(
            "no log in this folder: "
            + "".join(f"{_list(names)}: {why}; " for why, names in _by_reason(said))
            + (f"{_list(passed)} of no known format; " if passed or not said else "")
            + "`envsched import --list` shows the formats. Name one file with --map reward=COLUMN --map task_id=COLUMN "
            "to read it as a table",
            file=str(folder),
        )
    for why, names in _by_reason(said):
        notes.add(f"passed over {_list(names)}: {why}")
    if passed:
        notes.add(f"passed over {_list(passed)} of no known format")
    return inputs


def _by_reason(said: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Why files are no logs, each reason with its files."""
    return [(why, [path for path, reason in said.items() if reason == why]) for why in dict.fromkeys(said.values())]


def files_below(folder: Path, runs: list[Path] | None = None) -> Iterable[Path]:
    """Regular files below a folder; hidden ones, links to folders and run folders (which go to `runs`) left out."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        if _is_run(here):
            if runs is not None:
                runs.append(here)
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and (here / name).is_file():
                yield here / name


def _is_run(folder: Path) -> bool:
    """Whether a folder holds a run's manifest; a log may be called run.json too."""
    manifest = folder / "run.json"
    try:
        if not manifest.is_file() or manifest.stat().st_size > MAX_MANIFEST:
            return False
        return (folder / "events").is_dir() or set(decode(manifest.read_bytes())) >= MANIFEST_KEYS
    except (OSError, TypeError, ValueError):
        return False


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts 2.jsonl before 10.jsonl."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.as_posix())]


def _list(names: Sequence[str], what: str = "file") -> str:
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    count = f"1 {what}" if len(names) == 1 else f"{len(names)} {what}s"
    return f"{count} ({shown})"
