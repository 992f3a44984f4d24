"""What all commands share: printing, JSON, progress and settings."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from envsched_core.errors import ConfigError

__all__ = ["ConfigFile", "Json", "SetOption", "bar", "number", "print_json", "say", "settings_from", "table"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML or JSON file of knobs; `envsched config` lists them."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One knob, over the file; VALUE as JSON. Repeatable."),
]


def say(text: str = "") -> None:
    """Print a line; text from logs cannot move the cursor or colour the terminal."""
    typer.echo("".join(c if c.isprintable() else "\ufffd" for c in text))


def print_json(value: Any) -> None:
    """Print any record as one JSON document; NaN becomes null."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def number(value: float | None, digits: int = 3) -> str:
    """A number for people; ``n/a`` when there is none."""
    if value is None or value != value:  # NaN is the only number that differs from itself
        return "n/a"
    return f"{value:,.{digits}f}" if isinstance(value, float) else f"{value:,}"


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print columns: the first to the left, the others to the right; a head is just the first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line in rows:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
        say("  ".join(cells).rstrip())


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, called with (done, total); silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        job = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(job, completed=done, total=total)


def settings_from(file: Path | None, pairs: Sequence[str] | None, **given: Any) -> dict[str, Any]:
    """Knobs of a file, then --set pairs, then options that were given.

    Raises:
        ConfigError: the file or a pair cannot be read.
    """
    settings = _read(file) if file else {}
    for pair in pairs or ():
        key, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"--set {pair}: write KEY=VALUE; `envsched config` lists the keys")
        settings[key.strip()] = _value(value)
    return settings | {key: value for key, value in given.items() if value is not None}


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        values = msgspec.json.decode(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError, RecursionError, msgspec.DecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config {file}: {error}; give a TOML file, or JSON with the ending .json") from error
    if not isinstance(values, Mapping):
        raise ConfigError(f"--config {file}: holds no table of knobs; `envsched config` lists them")
    return dict(values)


def _value(text: str) -> Any:
    """A value as JSON; what is no JSON is a string."""
    try:
        return msgspec.json.decode(text)
    except (RecursionError, msgspec.DecodeError):
        return text
