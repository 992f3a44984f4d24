"""Bytes on disk: whole appends, atomic replacement, the writer's lock, and the names in a run folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec
import numpy as np

from envsched_core.errors import DamagedError, LockedError, StoreError
from envsched_core.limits import RUN_LINE_BYTES

MANIFEST = "run.json"
TASKS = "tasks.jsonl"
TOOLS = "tools.jsonl"
EVENTS = "events"
GRAPH = "graph"
SCORES = "scores"
STATE = "state"
ROLLOUTS = "rollouts/rollouts.jsonl"
LINKED = "rollouts/linked.jsonl"
LOCK = "writer.lock"
COUNTERS = "counters.json"


def blake(parts: Iterable[bytes]) -> str:
    """BLAKE2b-128 (hex) of the parts put together."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def _plain(value: Any) -> Any:
    """NumPy scalars as Python numbers; anything else that is not a record or plain data is refused."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def encode(record: Any) -> bytes:
    """One record as JSON bytes without a newline; equal records give equal bytes.

    Raises:
        StoreError: when it holds something that JSON has no place for.
    """
    try:
        return _ENCODER.encode(record)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"a {type(record).__name__} cannot be written as JSON: {error}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, then rename it: readers see the old bytes or the new ones."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"{path} cannot be written: {error}; make room or write elsewhere") from error


def kept_inside(run: Path, name: str, *, folder: bool = False) -> Path:
    """A file (or `folder`) of a run folder; that of a run whose folder is itself a link is inside it.

    Raises:
        DamagedError: it is, or lies behind, a link that leads nowhere or out of the run folder, so that it is no part
            of the run; or it is no file, but a pipe, a device or a folder.
    """
    inside, here = os.path.realpath(run), run
    for part in Path(name).parts:
        here = here / part
        if here.is_symlink() and not (here.exists() and Path(os.path.realpath(here)).is_relative_to(inside)):
            raise DamagedError(f"{here} is a link that leads nowhere or out of its run folder; put a copy there")
    if here.exists() and not (here.is_file() or here.is_dir()):
        raise DamagedError(f"{here} is a pipe or device, no file of a run; remove it")
    if here.exists() and here.is_dir() != folder:
        raise DamagedError(f"{here} is {'no folder' if folder else 'a folder, no file'}; remove it")
    return here


def check_inside(run: Path) -> None:
    """Before a run is written: nothing of it leads out of its folder.

    Raises:
        DamagedError: as in `kept_inside`.
    """
    for name in (EVENTS, GRAPH, SCORES, STATE, ROLLOUTS.partition("/")[0]):
        kept_inside(run, name, folder=True)
    for name in (MANIFEST, TASKS, TOOLS, ROLLOUTS, LINKED, COUNTERS):
        kept_inside(run, name)


def read_line(file: BinaryIO, path: Path, at: str) -> bytes:
    """The next line of a file of a run folder; `at` says where it is.

    Raises:
        DamagedError: it is longer than the limit.
    """
    most = RUN_LINE_BYTES.now()
    line = file.readline(most + 1)
    if len(line) > most:
        raise DamagedError(f"{path}{at}: longer than {most:,} bytes, {RUN_LINE_BYTES.remedy()}")
    return line


def rollouts_file(run: Path) -> Path:
    """Where a run's rollouts stand: its own, or those of its source."""
    return kept_inside(run, LINKED if (run / LINKED).exists() else ROLLOUTS)


class AppendFile:
    """A file that only grows, by whole blocks; `size` is where the next block will start."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        """Opens or creates it; `durable` waits for the disk after every block."""
        self.path = path
        self.durable = durable
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened for writing: {error.strerror}") from error
        self.size = os.fstat(self._fd).st_size

    def append(self, block: bytes) -> int:
        """Write one block of whole lines; returns its byte offset.

        A block that stops half-way is left as it is, since a reader may have taken its whole lines already.
        """
        start = self.size
        # A write that failed half-way, an interrupt right after one, or a foreign writer shows here.
        if os.fstat(self._fd).st_size != start:
            raise StoreError(f"{self.path} is not as this writer left it; close it and resume the run")
        try:
            self._write(block)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error}; make room, then resume the run") from error
        self.size = start + len(block)
        return start

    def _write(self, block: bytes) -> None:
        rest = memoryview(block)
        while rest:  # once, unless the disk is full or the block passes 2 GB
            rest = rest[os.write(self._fd, rest) :]
        if self.durable:
            os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def cut(path: Path, size: int) -> int:
    """Drop what stands behind `size` bytes; returns how many bytes that were."""
    extra = path.stat().st_size - size if path.exists() else 0
    if extra > 0:
        os.truncate(path, size)
    return max(extra, 0)


def whole_size(path: Path) -> int:
    """Size up to and including the last newline, in bytes; 0 when there is none or no file."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


class Lock:
    """The exclusive lock of a run folder's one writer; given back when closed or when the process ends.

    A forked child (a data loader's worker) does not have it: it may live longer than the writer, which then could not
    be resumed, and must not write beside it.
    """

    _held: ClassVar[weakref.WeakSet[Lock]] = weakref.WeakSet()

    def __init__(self, run: Path) -> None:
        """Takes it at once.

        Raises:
            LockedError: another process writes this run.
        """
        path = kept_inside(run, LOCK)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{run} cannot be written: {error.strerror}; choose another folder") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            self.close()
            who = f"process {holder}" if holder else "another process"
            raise LockedError(f"{run} is being written by {who}; wait for it or choose another folder") from error
        except OSError as error:
            self.close()
            raise StoreError(f"{run} is on a file system without locks ({error}); choose a local folder") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        Lock._held.add(self)

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self._fd >= 0

    def close(self) -> None:
        """Give it back; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    @classmethod
    def let_go(cls) -> None:
        """In a forked child: close what it inherited; the parent's locks stand."""
        for lock in list(cls._held):
            lock.close()


os.register_at_fork(after_in_child=Lock.let_go)
