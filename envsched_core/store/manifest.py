"""The manifest of a run folder, and the list of runs under a folder."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from envsched_core.config import RULES_BEFORE
from envsched_core.errors import DamagedError, FormatVersionError, StoreError
from envsched_core.limits import MANIFEST_BYTES

from .files import EVENTS, MANIFEST, blake, encode, kept_inside, replace_file

FORMAT = 1
"""The format number that this version writes, and the highest it reads."""

Kind = Literal["import", "replay", "audit", "live", "shadow"]


class Manifest(msgspec.Struct, frozen=True):
    """What a run is, who wrote it and from what. `new_manifest` fills in writer and time."""

    format: int
    """Number of the run folder's format."""
    run_id: str
    kind: Kind
    writer: str
    """Package and version that wrote it."""
    created: str
    """ISO 8601, UTC."""
    scheduler: str = ""
    """Empty for an import."""
    config: dict[str, Any] = {}
    """Every knob of the scheduler."""
    seed: int = 0
    batch_size: int = 0
    """Picks in one step; 0 for an import."""
    source: dict[str, Any] = {}
    """run_id, digest and relative path of the run or log it was made from."""
    reward_ranges: dict[str, tuple[float, float]] = {}
    """Environment -> (lowest, highest) reward."""
    ranges_observed: bool = False
    """Whether the ranges are what was observed, not what was declared."""
    report: dict[str, Any] = {}
    """The import report."""
    simulated: bool = False
    """Whether its rewards come from a simulation."""
    notes: tuple[str, ...] = ()
    """Sentences that a reader of the run should see."""
    digest: str = ""
    """BLAKE2b-128 of the file's bytes before this field; set when it is written."""


class _Head(msgspec.Struct):
    format: int
    writer: str = "a newer version"


def new_manifest(run_id: str, kind: Kind, **fields: Any) -> Manifest:
    """A manifest of this version, made now (UTC)."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(FORMAT, run_id, kind, _writer(), created, **fields)


def _writer() -> str:
    try:
        return f"envsched {version('envsched')}"
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "envsched (not installed)"


def write_manifest(run: Path, manifest: Manifest) -> Manifest:
    """Put the manifest in its place; returns it with its digest."""
    blank = msgspec.json.format(encode(msgspec.structs.replace(manifest, digest="")), indent=2)
    body = blank[: blank.rindex(b'"digest"')]
    digest = blake([body])
    replace_file(run / MANIFEST, body + f'"digest": "{digest}"\n}}\n'.encode())
    return msgspec.structs.replace(manifest, digest=digest)


def read_manifest(run: Path) -> Manifest:
    """The manifest of a run folder.

    Raises:
        StoreError: it is no run folder. FormatVersionError: a newer version wrote it. DamagedError: it cannot be read.
    """
    data = manifest_bytes(run)
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format > FORMAT:
            raise FormatVersionError(
                f"{run}: format {head.format} was written by {head.writer}; this version reads up to format {FORMAT}: "
                f"use {head.writer} or newer"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DamagedError(f"{run / MANIFEST} cannot be read ({error}); make the run again from its source") from error
    if not manifest.config:  # an import
        return manifest
    return msgspec.structs.replace(manifest, config={**RULES_BEFORE, **manifest.config})


def manifest_bytes(run: Path) -> bytes:
    """The raw manifest."""
    try:
        with kept_inside(run, MANIFEST).open("rb") as file:
            data = file.read((most := MANIFEST_BYTES.now()) + 1)
    except OSError as error:
        there = isinstance(error, FileNotFoundError | NotADirectoryError) and run.exists()
        advice = "; `envsched import LOG --out RUN` makes one of a log" if there else ""
        raise StoreError(f"{run} is no run folder (no readable {MANIFEST}): {error.strerror}{advice}") from error
    if len(data) > most:
        raise DamagedError(f"{run / MANIFEST} is longer than {most:,} bytes, {MANIFEST_BYTES.remedy()}")
    return data


def manifest_intact(run: Path) -> bool:
    """Whether the manifest is byte for byte what was written."""
    body, found, tail = manifest_bytes(run).rpartition(b'"digest": "')
    match = re.fullmatch(rb'([0-9a-f]{32})"\n\}\n', tail)
    return bool(found and match and match[1].decode() == blake([body]))


def list_runs(folder: Path) -> list[tuple[Path, Manifest | StoreError]]:
    """Run folders in `folder` (or `folder` itself) by name; one that cannot be read comes with its error."""
    try:
        found = sorted(path for path in folder.iterdir() if _is_run(path))
    except OSError:  # a folder that is not there holds no runs; the caller can tell it apart by itself
        found = []
    if _is_run(folder):
        found.insert(0, folder)
    return [(path, _manifest_or_error(path)) for path in found]


def _is_run(path: Path) -> bool:
    try:
        return (path / MANIFEST).is_file() or (path / EVENTS).is_dir()
    except OSError:  # a folder that may not be looked into
        return False


def _manifest_or_error(path: Path) -> Manifest | StoreError:
    try:
        return read_manifest(path)
    except StoreError as error:
        return error
