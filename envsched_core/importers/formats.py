"""The formats by name, and which of them a file is; a reader is imported when a name is looked up.

The order is that of sniffing: a format with telling keys stands before one that takes any table.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from envsched_core.errors import ConfigError, LogFormatError

from .base import Carries, Context, Drop, ImportOptions, Listed, Reader, Row
from .blocks import Block, InBlocks
from .fields import absent_column, checked_mapping
from .files import Head, Source, head_of
from .not_logs import why_no_log

__all__ = ["FORMATS", "carried", "format_of", "list_formats", "read_in_blocks", "reader_of", "sniff"]

FORMATS: dict[str, str] = {
    "traces": "verifiers_traces",
    "prime-rl": "prime_rl",
    "prime-hosted": "hosted",
    "openenv": "openenv",
    "tau-bench": "tau_bench",
    "verifiers": "verifiers_legacy",
    "verl": "verl",
    "trl": "trl_completions",
    "tau2": "tau2",
    "bfcl": "bfcl",
    "acebench": "acebench",
    "inspect": "inspect_log",
    "nemo-gym": "nemo_gym",
    "art": "art",
    "tinker": "tinker",
    "rllm": "rllm",
    "skyrl": "skyrl",
    "areal": "areal",
    "slime": "slime",
    "atropos": "atropos",
    "roll": "roll",
    "environments": "apollo",
    "reasoning-gym": "reasoning_gym",
    "table": "table",
    "tasks": "task_list",
}
"""Format -> module in this package."""


def reader_of(format: str) -> Reader:
    """The reader of a format.

    Raises:
        ConfigError: there is no such format.
    """
    if format not in FORMATS:
        raise ConfigError(f"unknown format '{format}'; formats are {', '.join(FORMATS)}")
    return cast(Reader, importlib.import_module(f"{__package__}.{FORMATS[format]}"))


def read_in_blocks(format: str, source: Source, context: Context) -> Iterator[Row | Drop | Listed | Block]:
    """Every row of a file, in blocks where the reader of its format makes them."""
    reader = reader_of(format)
    return reader.read_in_blocks(source, context) if isinstance(reader, InBlocks) else reader.read(source, context)


def list_formats() -> dict[str, str]:
    """Every format with one line on what it is."""
    return {name: reader_of(name).ABOUT for name in FORMATS}


def carried() -> dict[str, Carries]:
    """What logs of every format tell."""
    return {name: reader_of(name).CARRIES for name in FORMATS}


def format_of(head: Head, options: ImportOptions) -> str | None:
    """The format of a file that begins like `head`; None when no reader takes it."""
    return next((name for name in FORMATS if reader_of(name).claims(head, options)), None)


def sniff(path: Path, options: ImportOptions | None = None) -> str:
    """The format of a file by its content.

    Raises:
        LogFormatError: no reader takes it; says what it looks like.
    """
    options = options or ImportOptions()
    head = head_of(path)
    found = format_of(head, options)
    if found is None:
        raise unknown_format(head, options)
    return found


def unknown_format(head: Head, options: ImportOptions) -> LogFormatError:
    """What to say of a file that no reader takes."""
    absent = absent_column(head.keys, checked_mapping(options.mapping))
    known = head.problem or absent or why_no_log(head)
    if known:
        return LogFormatError(known, file=str(head.path))
    if head.kind == "empty":
        return LogFormatError("the file is empty", file=str(head.path))
    if head.kind == "array" and not head.keys:
        return LogFormatError("a JSON array in which no whole object was found", file=str(head.path))
    looks = {"jsonl": "JSON lines", "array": "a JSON array", "object": "one JSON object or damaged JSON lines"}
    looks |= {"csv": "CSV or text", "parquet": "Parquet", "zip": "a ZIP archive", "other": "neither text nor Parquet"}
    found = f" with {', '.join(map(repr, head.keys[:40]))}" if head.keys else ""
    return LogFormatError(
        f"no known format: it looks like {looks[head.kind]}{found}; `envsched import --list` shows the formats. A "
        "table needs an environment, a task and a reward: name their columns with --map reward=COLUMN --map "
        "task_id=COLUMN, or give --env NAME",
        file=str(head.path),
    )
