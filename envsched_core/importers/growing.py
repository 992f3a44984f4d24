"""A log that another process is writing: which files it has by now, and what is new in each.

Line formats (JSON lines, CSV) are read on from a byte offset, whole lines only: a torn last line waits for its
newline, a quoted CSV field for its end. A file is known by its inode, so one that was renamed (rotated) is read
to its end under its new name; one that was truncated or replaced by other content is read from its start. A
file that was replaced by its own continuation (written anew and renamed into place) goes on where it was. A copy
beside a followed file is not read twice; when the file itself is cut then, the copy goes on in its place. Arrays,
Parquet and packed files have no lines to go on from: they are read whole when they change, and the rows that were taken
already are passed over by their count.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from envsched_core.errors import LogFormatError

from .base import ImportOptions, side_files
from .files import Kind, Source, decode, head_of, readable
from .formats import format_of, reader_of
from .packed import is_packed
from .sources import files_below, natural_order

__all__ = ["GrowingFile", "GrowingLog", "Mark", "Part"]

TAIL = 64
"""Last bytes before an offset; a mark of an earlier version knows a file by them alone."""
WINDOW = 4096
"""Bytes at a file's head, and before an offset, by which it is known again; rows may end alike beyond `TAIL`."""
CHUNK = 1 << 20


class Mark(msgspec.Struct):
    """How far a file has been taken."""

    label: str
    path: str
    """As text; one that is no UTF-8 is found again by its inode alone."""
    device: int
    inode: int
    offset: int = 0
    """Bytes taken (line formats)."""
    lines: int = 0
    """Lines in them."""
    rows: int = 0
    """Rows taken (formats read whole)."""
    tail: str = ""
    """Digest of the last `TAIL` bytes before `offset`."""
    head: str = ""
    """Digest of the first `WINDOW` bytes, as far as they were taken; empty in marks of an earlier version."""
    window: str = ""
    """Digest of the last `WINDOW` bytes before `offset`; empty in marks of an earlier version."""
    counted: int = 0
    """How far its rows were counted: `offset` or `rows`, never less than those; rows that are read again count once."""


class GrowingFile:
    """One file of the log."""

    def __init__(self, path: Path, mark: Mark) -> None:
        """`mark`: how far it was taken before."""
        self.path, self.mark = path, mark
        self.format: str | None = None
        self.kind: Kind = "empty"
        self.whole = False
        """Whether it can only be read from its start."""
        self.looked: tuple[int, int] | None = None
        """Size and time of change when it was last looked at."""


class Part(NamedTuple):
    """What is new in a file."""

    file: GrowingFile
    source: Source
    format: str
    skip: int
    """Rows at its start that were taken already."""
    lines: int
    """Whole lines in it, for line formats."""

    def taken(self, rows: int) -> None:
        """It was read to its end; `rows` counts those passed over too."""
        mark = self.file.mark
        if self.file.whole:
            mark.rows = rows
            return
        offset, lines = self.source.size, mark.lines + self.lines
        self.file.mark = mark_at(self.file, offset, lines)


class GrowingLog:
    """All files of a log under the paths that the user gave."""

    def __init__(self, paths: Sequence[Path], options: ImportOptions, marks: Iterable[Mark] = ()) -> None:
        """Paths need not exist yet. `marks`: where an earlier process stopped."""
        self.paths, self.options = paths, options
        self.files = [GrowingFile(Path(mark.path), mark) for mark in marks]
        self.rotated = 0
        """Files that were replaced or cut since they were last looked at."""
        self.copies: dict[Path, Path] = {}
        """Files that were passed over at some time as the copy of another."""
        self._given = side_files(options)

    def parts(self, *, final: bool = False) -> Iterator[Part]:
        """What is new, file by file; `final`: the log is finished, so a last line needs no newline.

        Raises:
            ConfigError: there is no such format.
        """
        self._look()
        for file in list(self.files):
            try:
                part = self._part(file, final=final)
            except OSError:  # it went away while it was looked at
                continue
            if part is not None:
                yield part

    def _look(self) -> None:
        """Find new, renamed and replaced files."""
        found = self._paths()
        by_inode = {(file.mark.device, file.mark.inode): file for file in self.files}
        present = {}
        for label, path in found:
            try:
                stat = path.stat()
            except OSError:
                continue
            present[stat.st_dev, stat.st_ino] = (label, path, stat)
        for key, (_, path, _) in present.items():
            if key in by_inode:
                by_inode[key].path = path
        copies = {
            key for key, (_, path, stat) in present.items() if key not in by_inode and self._copy(path, stat, by_inode)
        }
        for key, (label, path, stat) in present.items():
            if key not in by_inode and key not in copies:
                self._join(label, path, stat, by_inode)
        self._keep_renamed(by_inode, present.keys())

    def _paths(self) -> list[tuple[str, Path]]:
        """Label and path of every file there is."""
        found = []
        for path in self.paths:
            if path.is_dir():
                root = path.resolve().name
                below = sorted(files_below(path), key=natural_order)
                found += [(f"{root}/{p.relative_to(path).as_posix()}", p) for p in below]
            elif path.is_file():
                found.append((path.name, path))
        return [(label, path) for label, path in found if path.resolve() not in self._given]

    def _copy(self, path: Path, stat: os.stat_result, by_inode: dict[tuple[int, int], GrowingFile]) -> bool:
        """Whether a new file is a copy to pass over; once the original is cut, its copy is followed in its place."""
        likely = (file for file in self.files if file.mark.lines > 1 and _named_after(path, file.path))
        original = next((file for file in likely if _continues(path, file.mark)), None)
        if original is None:
            return False
        mark = original.mark
        if _continues(original.path, mark):
            self.copies[path] = original.path
            return True
        by_inode.pop((mark.device, mark.inode), None)
        mark.device, mark.inode, original.path, original.looked = stat.st_dev, stat.st_ino, path, None
        by_inode[stat.st_dev, stat.st_ino] = original
        return False

    def _join(self, label: str, path: Path, stat: os.stat_result, by_inode: dict[tuple[int, int], GrowingFile]) -> None:
        """A file of an inode not seen before: new, another in an old one's place, or an old one written anew."""
        before = next((file for file in self.files if file.path == path), None)
        if before is not None and (before.whole or _continues(path, before.mark)):
            before.mark.device, before.mark.inode = stat.st_dev, stat.st_ino
            by_inode[stat.st_dev, stat.st_ino] = before
            return
        file = GrowingFile(path, Mark(self._label(readable(label)), readable(str(path)), stat.st_dev, stat.st_ino))
        self.files.append(file)
        by_inode[stat.st_dev, stat.st_ino] = file

    def _label(self, label: str) -> str:
        """The label, with a number when another file had it: places and groups of the two must not mix."""
        labels = {file.mark.label for file in self.files}
        if label not in labels:
            return label
        self.rotated += 1
        return next(name for k in range(2, len(labels) + 3) if (name := f"{label}~{k}") not in labels)

    def _keep_renamed(self, by_inode: dict[tuple[int, int], GrowingFile], present: Iterable[tuple[int, int]]) -> None:
        """A followed file that was renamed out of sight is looked for beside its old place; one deleted is let go."""
        gone = {key: file for key, file in by_inode.items() if key not in set(present)}
        for folder in {file.path.parent for file in gone.values()}:
            for path in _entries(folder):
                try:
                    stat = path.stat()
                except OSError:
                    continue
                if file := gone.pop((stat.st_dev, stat.st_ino), None):
                    file.path = path
        lost = [
            file for file in gone.values() if any(other.path == file.path for other in self.files if other is not file)
        ]
        self.files = [file for file in self.files if file not in lost]

    def _part(self, file: GrowingFile, *, final: bool) -> Part | None:
        stat = file.path.stat()
        before, file.looked = file.looked, (stat.st_size, stat.st_mtime_ns)
        changed = before != file.looked
        if not (changed or final) or not self._known(file) or file.format is None:
            return None
        mark = file.mark
        mark.path = readable(str(file.path))
        if file.whole:
            if not changed:
                return None
            if not _closed(file):
                file.looked = None
                return None
            return Part(file, Source(file.path, mark.label), file.format, mark.rows, 0)
        if stat.st_size < mark.offset or not _continues(file.path, mark):
            label = self._label(mark.label.rpartition("~")[0] or mark.label)
            mark = file.mark = Mark(label, mark.path, stat.st_dev, stat.st_ino)
        end, lines = _whole_lines(file, stat.st_size, final=final)
        if end == mark.offset:
            return None
        source = Source(file.path, mark.label, start=mark.offset, before=mark.lines, end=end)
        return Part(file, source, file.format, 0, lines)

    def _known(self, file: GrowingFile) -> bool:
        """Whether the format of a file is known by now; a file of no known format may become one."""
        if file.format is not None:
            return True
        try:
            head = head_of(file.path)
            if self.options.format is None:
                file.format = format_of(head, self.options)
            elif file.path in self.paths or reader_of(self.options.format).claims(head, self.options):
                file.format = self.options.format if head.keys else None
        except LogFormatError:
            return False
        file.kind = head.kind
        file.whole = head.kind not in ("jsonl", "csv") or is_packed(file.path)
        return file.format is not None


def mark_at(file: GrowingFile, offset: int, lines: int) -> Mark:
    """The mark of a file of lines that was taken to `offset`."""
    tail, head, window = _digests(file.path, offset)
    return msgspec.structs.replace(file.mark, offset=offset, lines=lines, tail=tail, head=head, window=window)


def _digests(path: Path, offset: int) -> tuple[str, str, str]:
    """Digests of tail, head and window of the bytes before an offset; empty when the file does not reach there."""
    size = min(WINDOW, offset)
    try:
        with path.open("rb") as stream:
            head = stream.read(size)
            stream.seek(offset - size)
            window = stream.read(size)
    except OSError:
        return "", "", ""
    if len(window) < size:
        return "", "", ""
    tail, first, last = (hashlib.blake2b(data, digest_size=8).hexdigest() for data in (window[-TAIL:], head, window))
    return tail, first, last


def _continues(path: Path, mark: Mark) -> bool:
    """Whether what was taken of a file is still what stands there."""
    if mark.offset == 0:
        return True
    known, found = (mark.tail, mark.head, mark.window), _digests(path, mark.offset)
    return mark.tail != "" and all(old in ("", new) for old, new in zip(known, found, strict=True))


def _named_after(path: Path, original: Path) -> bool:
    """Whether a file is named as copies are: log.jsonl.1, log.jsonl-20260101, log-1.jsonl."""
    if path.parent != original.parent or path == original:
        return False
    middle = rf"{re.escape(original.stem)}[-._]\d+{re.escape(original.suffix)}"
    return path.name.startswith(original.name) or re.fullmatch(middle, path.name) is not None


def _closed(file: GrowingFile) -> bool:
    """Whether a file that is read whole looks finished: JSON that is being rewritten has no end yet."""
    if file.kind not in ("array", "object"):
        return True
    with file.path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - TAIL, 0))
        return stream.read().rstrip().endswith((b"]", b"}"))


def _whole_lines(file: GrowingFile, size: int, *, final: bool) -> tuple[int, int]:
    """Where the last whole record ends, and how many lines stand between the mark and there."""
    end, lines, position, quotes = file.mark.offset, 0, file.mark.offset, 0
    counted = 0
    with file.path.open("rb") as stream:
        stream.seek(position)
        while position < size and (chunk := stream.read(min(CHUNK, size - position))):
            if file.kind == "csv":
                for line in chunk.splitlines(keepends=True):
                    quotes += line.count(b'"')
                    position += len(line)
                    if line.endswith(b"\n"):
                        counted += 1
                        if quotes % 2 == 0:
                            end, lines = position, counted
                continue
            last = chunk.rfind(b"\n")
            if last >= 0:
                counted += chunk.count(b"\n")
                end, lines = position + last + 1, counted
            position += len(chunk)
    if final and end < size and _readable(file, end):
        return size, lines + 1
    return end, lines


def _readable(file: GrowingFile, start: int) -> bool:
    """Whether the unfinished last line of a finished log is a record."""
    if file.kind == "csv":
        return True
    with file.path.open("rb") as stream:
        stream.seek(start)
        try:
            decode(stream.read())
        except ValueError:
            return False
    return True


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except OSError:
        return []
