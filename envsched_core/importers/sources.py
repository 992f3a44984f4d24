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

import msgspec

from envsched_core.errors import LogFormatError

from .base import ImportOptions, Notes, side_files
from .fields import TASK_FIELDS, absent_column, checked_mapping
from .files import Head, Source, decode, head_of, readable
from .formats import format_of, reader_of, unknown_format
from .not_logs import why_no_log

__all__ = ["Input", "files_below", "find_inputs", "is_run_folder", "natural_order"]


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
    found = _once([item for path in paths for item in _inputs(path, options, notes)], notes)
    labels = Counter(source.label for source, _ in found)
    for source, _ in found:
        if labels[source.label] > 1:
            source.label = readable(str(source.path))
    return found


def _once(found: Sequence[Input], notes: Notes) -> list[Input]:
    """Each file once, under its own name where links lead to it too: its rollouts must not count twice."""
    kept: dict[tuple[int, int], Input] = {}
    again = []
    for item in sorted(found, key=lambda item: item.source.path.is_symlink()):
        stat = item.source.path.stat()
        if kept.setdefault((stat.st_dev, stat.st_ino), item) is not item:
            again.append(item.source.label)
    if again:
        notes.add(f"passed over {_list(again)}: named twice, or links to files that are read anyway")
    chosen = set(map(id, kept.values()))
    return [item for item in found if id(item) in chosen]


def _inputs(path: Path, options: ImportOptions, notes: Notes) -> list[Input]:
    if path.is_dir():
        return _folder(path, options, notes)
    if not path.is_file():
        why = (
            "neither a file nor a folder: write what it gives to a file" if path.exists() else "no such file or folder"
        )
        raise LogFormatError(why, file=str(path))
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
    inputs: list[Input] = []
    passed: dict[str, str] = {}
    """Files that are not read, and why; empty where nothing more is known of them."""
    left = Left([], [], [])
    for path in sorted(files_below(folder, left), key=natural_order):
        if path.resolve() in given:
            continue
        name = path.relative_to(folder).as_posix()
        try:
            head = head_of(path)
        except LogFormatError as error:
            passed[name] = str(error).removeprefix(f"{error.file}: ")
            continue
        chosen = options.format if options.format and reader_of(options.format).claims(head, options) else None
        found = chosen if options.format else format_of(head, options)
        if found is None:
            passed[name] = head.problem or why_no_log(head) or _not_chosen(head, options)
            continue
        if absent := _absent(head, options):
            raise LogFormatError(absent, file=str(path))
        inputs.append(Input(Source(path, f"{folder.resolve().name}/{name}"), found))
    beside = {item.source.path.with_name(name) for item in inputs for name in reader_of(item.format).COMPANIONS}
    passed = {name: why for name, why in passed.items() if folder / name not in beside}
    _tell_left(folder, left, notes)
    if not inputs:
        raise _no_log(folder, passed, left)
    for why, names in _by_reason(passed):
        notes.add(f"passed over {_list(names)}" + (f": {why}" if why else " of no known format"))
    return inputs


def _not_chosen(head: Head, options: ImportOptions) -> str:
    """Why a file of no format, or of another than --format names, is not read; empty when nothing more is known."""
    if head.kind == "empty":
        return "empty"
    if options.format is None:
        return ""
    looks = format_of(head, msgspec.structs.replace(options, format=None))
    return f"not {options.format} (--format), it looks like {looks}" if looks else f"not {options.format} (--format)"


def _tell_left(folder: Path, left: Left, notes: Notes) -> None:
    """Say which folders were not looked into."""
    said = {
        "run folder": (left.runs, "decisions and groups that EnvSched wrote, not a log"),
        "folder": (left.closed, "it may not be read"),
        "link": (left.links, "links to folders are not followed; name the folder"),
    }
    for what, (paths, why) in said.items():
        if paths:
            notes.add(f"passed over {_list(sorted(map(str, _below(folder, paths))), what)}: {why}")


def _no_log(folder: Path, passed: Mapping[str, str], left: Left) -> LogFormatError:
    """What to say of a folder that holds no log."""
    if left.runs and not passed:
        names = sorted(_below(folder, left.runs))
        what = "is a run folder" if folder in left.runs else f"holds only {_list(names, 'run folder')}"
        return LogFormatError(f"{what} that EnvSched wrote, no log", file=str(folder))
    if folder in left.closed:
        return LogFormatError("may not be read", file=str(folder))
    if left.closed and not passed:
        return LogFormatError(f"{_list(_below(folder, left.closed), 'folder')} may not be read", file=str(folder))
    said = [f"{_list(names)}" + (f": {why}" if why else " of no known format") for why, names in _by_reason(passed)]
    return LogFormatError(
        f"no log in this folder: {'; '.join(said) or 'it holds no file'}; `envsched import --list` shows the formats. "
        "Name one file with --map reward=COLUMN --map task_id=COLUMN to read it as a table",
        file=str(folder),
    )


def _below(folder: Path, paths: Iterable[Path]) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in paths]


def _by_reason(said: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Why files are no logs, each reason with its files."""
    reasons: dict[str, list[str]] = {}
    for name, why in sorted(said.items(), key=lambda item: not item[1]):  # stable: those of no known format last
        reasons.setdefault(why, []).append(name)
    return list(reasons.items())


class Left(NamedTuple):
    """Folders that `files_below` did not look into."""

    runs: list[Path]
    """Run folders."""
    links: list[Path]
    """Links to folders."""
    closed: list[Path]
    """Folders that may not be read."""


def files_below(folder: Path, left: Left | None = None) -> Iterable[Path]:
    """Regular files below a folder; hidden ones and what goes to `left` are left out."""
    left = left or Left([], [], [])
    for place, folders, names in os.walk(folder, onerror=lambda error: left.closed.append(Path(error.filename))):
        here = Path(place)
        if is_run_folder(here):
            left.runs.append(here)
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        left.links.extend(here / name for name in folders if (here / name).is_symlink())
        for name in names:
            if not name.startswith(".") and (here / name).is_file():
                yield here / name


def is_run_folder(folder: Path) -> bool:
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
    shown = readable(", ".join(names[:5])) + (", ..." if len(names) > 5 else "")
    count = f"1 {what}" if len(names) == 1 else f"{len(names)} {what}s"
    return f"{count} ({shown})"
