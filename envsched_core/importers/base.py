"""What passes between a reader and the rest of the importers: rows, dropped rows, listed tasks, options.

A reader is a module with six names: `ABOUT` (one line), `CARRIES` (what such logs tell), `NEEDS` (fields that every
such file has), `COMPANIONS` (files read beside a log), `claims(head, options)` (is this file mine, by content) and
`read(source, context)` (its rows, one by one). Adding a format is adding such a module and a line in formats.py.

A reader of a catalogue yields `Listed` tasks (`as_listed`) beside rows, or in their place: a log that lists tasks
and has no row becomes a run folder with a catalogue, its graph and no group. A log that does not name environment or
task gives `Row`s with an empty `env` or `task`, and `as_rows` an `Identity` (identity.py), which fills them in by the
user's rules: a mapped column, the join file, a pattern on prompt or path, `--env`, for the task a hash of its prompt.

A reader may also have `read_in_blocks` (blocks.py), which gives plain rows many at a time; the run is the same.

`Head.kind` says how to read a file (files.py): `records(source, head.kind)` for lines, arrays, CSV, Parquet and a
single object; `items_of(source, KEY)` for an array inside one large object. Nothing here opens a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from envsched_core.records import Message, Place, TaskSpec, Tool, ToolCall

from .catalogue import Join
from .files import Head, Record, Source
from .values import Given, RowError, parted, restored

__all__ = [
    "Carries",
    "Context",
    "Drop",
    "ImportOptions",
    "Level",
    "Listed",
    "Notes",
    "Reader",
    "Row",
    "RowError",
    "as_listed",
    "as_rows",
    "side_files",
    "step_of",
]

Level = Literal["yes", "some", "no"]

NAMES = ("env", "task", "group", "policy_version", "verifier")
"""Fields of a row that are ids."""

STEP_FOLDER = re.compile(r"(?:^|/)step_(\d{1,15})/")
UNUSABLE = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What a record of an unforeseen shape raises; it costs its own row and never the import."""


class Drop(msgspec.Struct, frozen=True):
    """A row that was not imported."""

    file: str
    line: int
    """1-based line, or position in an array."""
    reason: str


class Listed(NamedTuple):
    """A task that a log lists, whether it was rolled out or not."""

    place: Place
    task: TaskSpec


class Row(msgspec.Struct):
    """One row of a log: one rollout, or a whole group when the log gives a list of rewards."""

    place: Place
    env: str
    """Empty when the log does not name it: `as_rows` asks its `Identity`."""
    task: str
    """Empty when the log does not name it."""
    rewards: tuple[float | None, ...]
    """One per rollout; None = missing."""
    group: str | None = None
    """What tells the groups of one task apart; None = step and policy version do."""
    step: int | None = None
    policy_version: str | None = None
    trained: bool | None = None
    mark: int = 0
    """Hash of a row that names its rollout: the same mark twice in a group is a repeat; 0 = no name."""
    text: str = ""
    text_known: bool = True
    """False when the log says that a task list's text is not what the model saw."""
    answer: str = ""
    """What the task expects, where the log tells: two in one group are two tasks."""
    tools: tuple[Tool, ...] = ()
    state: tuple[str, ...] = ()
    verifier: str = ""
    reference: tuple[str, ...] | None = None
    """Reference call path."""
    parts: dict[str, float] = {}
    messages: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] | None = None
    """Observed calls; None = the log does not say."""
    tokens: float | None = None
    seconds: float | None = None
    turns: float | None = None
    tool_calls: float | None = None
    status: str = ""
    changed: tuple[tuple[str, str], ...] = ()
    """Names that could not be kept as the log has them: (as it has them, as they are here)."""


class ImportOptions(msgspec.Struct, frozen=True):
    """What the user may say about a log."""

    format: str | None = None
    """A name of `list_formats()`; None = by content."""
    env: str | None = None
    """Environment where the log names none."""
    tasks: Path | None = None
    """File with task texts, tools, calls."""
    tools: Path | None = None
    """File with tool documents."""
    mapping: Mapping[str, str] = {}
    """Field -> column (dots go into objects)."""
    reward: str | None = None
    """Part of the reward, or column, to schedule on."""
    keep_rollouts: bool = True
    """Whether messages and calls go to the run folder."""
    env_rules: tuple[tuple[str, str], ...] = ()
    """(name, pattern): the environment of rows whose prompt, or path with ``path:`` before it, the pattern is found
    in; ``\\1`` in a name is the pattern's first group. The first that is found counts."""
    join: tuple[str, Path] | None = None
    """(column, file): a table with that column too, whose rows name environment, task, text or tools."""


def side_files(options: ImportOptions) -> set[Path]:
    """Files that the user named beside the log; inside its folder they are no part of it."""
    join = options.join[1] if options.join is not None else None
    return {file.resolve() for file in (options.tasks, options.tools, join) if file is not None}


class Carries(msgspec.Struct, frozen=True, kw_only=True):
    """What logs of a format tell: "yes", "some" (derived, or by some writers only) or "no"."""

    env: Level
    """The environment."""
    task: Level
    """A stable id of the task, other than its prompt."""
    group: Level
    """What tells two groups of a task apart."""
    step: Level
    parts: Level
    """Named parts of the reward."""
    tools: Level
    """Documents of the tools at hand."""
    calls: Level
    """Tool calls that were made."""
    messages: Level
    """What was said, to be read on the pages."""
    cost: Level
    """Tokens or time."""
    policy: Level
    """The policy version or model."""
    every_group: Level
    """Whether groups that a filter took out of training are written too; "no" = kept groups only."""
    limits: str = ""
    """What a reader of numbers should know, in a sentence."""


class Notes:
    """Remarks for the report, each said once; a long list is cut and counted."""

    def __init__(self, most: int = 30) -> None:
        """At most `most` notes are kept."""
        self.most = most
        self.seen: dict[str | tuple[str, str], int] = {}
        """How often each was said, by its text, or by that before and that behind the count."""
        self.kept_only = ""
        """Why the log is known to hold kept groups only; empty when nothing says so."""

    def add(self, text: str) -> None:
        """Say `text` in the report."""
        self.seen.setdefault(text, 1)

    def count(self, before: str, behind: str) -> None:
        """Say once how often this was said: `before` N `behind`."""
        self.seen[before, behind] = self.seen.get((before, behind), 0) + 1

    def lines(self) -> tuple[str, ...]:
        """All notes in order."""
        lines = [
            said if isinstance(said, str) else f"{said[0]} {times:,} {said[1]}" for said, times in self.seen.items()
        ]
        more = len(lines) - self.most
        return tuple(lines[: self.most] + ([f"and {more} more notes of this kind"] if more > 0 else []))


class Context(NamedTuple):
    """What every reader may use."""

    options: ImportOptions
    notes: Notes
    join: Join | None = None


class Reader(Protocol):
    """A module that reads one family of formats."""

    @property
    def ABOUT(self) -> str:  # noqa: N802 - a module constant
        """One line for the list of formats."""

    @property
    def CARRIES(self) -> Carries:  # noqa: N802 - a module constant
        """What its logs tell, for `envsched import --list`."""

    @property
    def NEEDS(self) -> tuple[str, ...]:  # noqa: N802 - a module constant
        """Fields without which a file is refused even when the user names the format."""

    @property
    def COMPANIONS(self) -> tuple[str, ...]:  # noqa: N802 - a module constant
        """Names of files that it reads beside a log."""

    def claims(self, head: Head, options: ImportOptions) -> bool:
        """Whether a file that begins like this is of this format."""

    def read(self, source: Source, context: Context) -> Iterator[Row | Drop | Listed]:
        """Every row in log order."""


def as_rows(
    records: Iterable[Record],
    source: Source,
    parse: Callable[[Any, Place, int], Row],
    identify: Callable[[Row, Any], None] | None = None,
) -> Iterator[Row | Drop]:
    """Parse each record (its value, place and mark); what cannot be parsed becomes a `Drop` with its place.

    `identify` (an `Identity`) is given every row with its record, to name environment and task by the user's rules.
    A row without a step has that of its folder, where the log's folders are named so (``step_12``).
    """
    label, step = source.label, step_of(source.label)
    for line, value, problem, mark, mended in records:
        if problem:
            yield Drop(label, line, problem)
            continue
        try:
            row = parse(value, Place(label, line), mark)
            if identify is not None:
                identify(row, value)
        except RowError as error:
            yield Drop(label, line, str(error))
        except UNUSABLE as error:
            yield Drop(label, line, f"unexpected content ({type(error).__name__})")
        else:
            if row.step is None:
                row.step = step
            _name(row, mended)
            yield row


def as_listed(
    records: Iterable[Record], source: Source, parse: Callable[[Any], Iterable[TaskSpec]]
) -> Iterator[Listed | Drop]:
    """Parse each record into the tasks that it lists; what cannot be parsed becomes a `Drop` with its place."""
    for record in records:
        if record.problem:
            yield Drop(source.label, record.line, record.problem)
            continue
        try:
            found = list(parse(record.value))
        except RowError as error:
            yield Drop(source.label, record.line, str(error))
        except UNUSABLE as error:
            yield Drop(source.label, record.line, f"unexpected content ({type(error).__name__})")
        else:
            place = Place(source.label, record.line)
            for task in found:
                env, key = (str(restored(value, record.mended)) for value in (task.env, task.task))
                yield Listed(place, msgspec.structs.replace(task, env=str(parted(env)), task=key))


def _name(row: Row, mended: tuple[tuple[str, str], ...]) -> None:
    """Plain names, and word of those that had to be changed."""
    if mended:
        for field in ("env", "task", "group", "policy_version"):
            if (value := getattr(row, field)) is not None:
                setattr(row, field, restored(value, mended))
    row.env = parted(row.env)
    found = type(row.env), type(row.task), type(row.group), type(row.policy_version), type(row.verifier)
    if Given not in found:
        return
    for field in NAMES:
        value = getattr(row, field)
        if isinstance(value, Given):
            setattr(row, field, str(value))
            row.changed = (*row.changed, (value.given, str(value)))


def step_of(label: str) -> int | None:
    """The step in the name of a folder inside the log."""
    found = STEP_FOLDER.findall(label)
    return int(found[-1]) if found else None
