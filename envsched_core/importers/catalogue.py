"""What is known of tasks besides the rows of a log: `--tasks FILE`, `--tools FILE`, `--join COLUMN=FILE`.

The first two, and tasks that the log itself lists, only fill in what its rows leave open. A listed task without
rollouts joins the catalogue with `draws = 0` when its environment occurs in the log, or when there is no rollout
at all: it can then be explained and suggested, never replayed. A join file names what rows cannot: environment
and task of a dataset index, say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envsched_core.errors import LogFormatError
from envsched_core.limits import RECORD_BYTES
from envsched_core.records import TaskSpec, Tool

from .fields import TASK_FIELDS, Columns
from .files import Source, decode, head_of, records
from .messages import tools_from
from .packed import opened
from .values import name, names, parted, printable, prompt, restored

__all__ = ["TEXT_LIMIT", "Catalogue", "Join", "Known", "known_task", "read_catalogue", "read_join"]

TEXT_LIMIT = 16_384
"""Characters of a task's text that are kept: the catalogue stays in memory."""


class Known(NamedTuple):
    """What a task list says of one task; empty where it says nothing."""

    text: str = ""
    tools: tuple[Tool, ...] = ()
    state: tuple[str, ...] = ()
    verifier: str = ""
    calls: tuple[str, ...] | None = None


NOTHING = Known()
AGAIN = "says otherwise than an earlier one, which counts"


class Join(NamedTuple):
    """A table that says what rows with a value of one column are."""

    column: str
    """Of the log; a dot goes into an object."""
    rows: dict[str, tuple[str, str, Known]]
    """Value as a name -> environment and task (each empty when it names none), and the rest."""
    passed: Counter[str]
    """What of the file was not used, and how often."""


class Catalogue:
    """Task lists and tool documents by environment."""

    def __init__(self) -> None:
        """Knows nothing."""
        self.tasks: dict[tuple[str, str], Known] = {}
        """By (environment, task); the environment is empty when the file names none."""
        self.tools: dict[str, tuple[Tool, ...]] = {}
        """By environment; under the empty name those of every environment."""
        self.passed: Counter[str] = Counter()
        """What of the task list was not used, and how often."""
        self._shared: dict[tuple[Tool, ...], tuple[Tool, ...]] = {}

    def known(self, env: str, task: str) -> Known:
        """What the task list says of a task."""
        return self.tasks.get((env, task)) or self.tasks.get(("", task)) or NOTHING

    def add(self, spec: TaskSpec) -> None:
        """A task that the log lists; what is known of it already stands."""
        tools = self._shared.setdefault(spec.tools, spec.tools)
        found = Known(spec.text[:TEXT_LIMIT], tools, spec.state, spec.verifier, spec.calls)
        self.tasks.setdefault((spec.env, spec.task), found)

    def describes(self, env: str, task: str) -> bool:
        """Whether the task list knows a task."""
        return (env, task) in self.tasks or ("", task) in self.tasks

    def tools_of(self, env: str) -> tuple[Tool, ...]:
        """Tools of an environment from the tools file."""
        return self.tools.get(env) or self.tools.get("", ())

    def fill(self, spec: TaskSpec, *, text_known: bool = True) -> TaskSpec:
        """Put what the files know where the log said nothing; no text and calls when they are another task's."""
        known = self.known(spec.env, spec.task)
        return msgspec.structs.replace(
            spec,
            text=spec.text or (known.text if text_known else ""),
            tools=spec.tools or known.tools or self.tools_of(spec.env),
            state=spec.state or known.state,
            verifier=spec.verifier or known.verifier,
            calls=spec.calls if spec.calls is not None or not text_known else known.calls,
        )

    def without_rollouts(self, seen: Iterable[tuple[str, str]]) -> list[TaskSpec]:
        """Listed tasks that the log never rolled out: of its environments, or all when it has no rollout."""
        rolled = set(seen)
        environments = {env for env, _ in rolled}
        only = next(iter(environments)) if len(environments) == 1 else ""
        missing = []
        for env, task in self.tasks:
            env = env or only
            if (env in environments or not environments) and (env, task) not in rolled:
                missing.append(self.fill(TaskSpec(env, task, draws=0)))
        return missing

    def elsewhere(self, environments: Set[str]) -> int:
        """How many listed tasks are of none of these environments."""
        return sum(env != "" and env not in environments for env, _ in self.tasks)


def read_catalogue(tasks: Path | None, tools: Path | None, env: str | None, mapping: Mapping[str, str]) -> Catalogue:
    """Read both files; `env` stands in where the task list names no environment.

    Raises:
        LogFormatError: a file cannot be read, or names no tasks or tools.
    """
    catalogue = Catalogue()
    if tools is not None:
        catalogue.tools = _read_tools(tools)
    if tasks is not None:
        catalogue.tasks = _read_tasks(tasks, env or "", mapping, catalogue.passed)
    return catalogue


def _read_tasks(path: Path, env: str, mapping: Mapping[str, str], passed: Counter[str]) -> dict[tuple[str, str], Known]:
    """A task list in any table format."""
    head = head_of(_existing(path))
    same_names = {field: column for field, column in mapping.items() if field in TASK_FIELDS and column in head.keys}
    columns = Columns(head.keys, same_names, TASK_FIELDS)
    if "task" not in columns:
        found = printable(", ".join(head.keys[:60])) or "none"
        raise LogFormatError(f"the task list has no task column (found: {found}); name one task_id", file=str(path))
    tasks: dict[tuple[str, str], Known] = {}
    shared: dict[tuple[Tool, ...], tuple[Tool, ...]] = {}
    for record in records(Source(path), head.kind):
        task = None if record.problem else name(columns.get(record.value, "task"))
        if task is None:
            passed[record.problem or "no task"] += 1
            continue
        named = restored(name(columns.get(record.value, "env")) or env, record.mended)
        key = (str(parted(named)), str(restored(task, record.mended)))
        known = known_task(record.value, columns, shared)
        passed[AGAIN] += tasks.setdefault(key, known) != known
    return tasks


def known_task(record: Mapping[str, Any], columns: Columns, shared: dict[tuple[Tool, ...], tuple[Tool, ...]]) -> Known:
    """One line of a task list; equal tool lists are kept once."""
    tools = tools_from(columns.get(record, "tools"))
    reference = columns.get(record, "reference")
    return Known(
        prompt(columns.get(record, "text"))[:TEXT_LIMIT],
        shared.setdefault(tools, tools),
        names(columns.get(record, "state")),
        str(name(columns.get(record, "verifier")) or ""),
        None if reference is None else names(reference),
    )


def read_join(column: str, path: Path, mapping: Mapping[str, str]) -> Join:
    """Read a join file: a table in any format with a column of this name, or of its last part.

    Raises:
        LogFormatError: it cannot be read, has no such column, or nothing beside it.
    """
    head = head_of(_existing(path))
    own = next((name for name in (column, column.rpartition(".")[2]) if name.partition(".")[0] in head.keys), None)
    found = printable(", ".join(head.keys[:60])) or "none"
    if own is None:
        raise LogFormatError(f"the join file has no column '{column}' (found: {found})", file=str(path))
    rest = tuple(key for key in head.keys if key != own)
    columns = Columns(rest, {}, TASK_FIELDS)
    if not columns.paths:
        raise LogFormatError(f"the join file names no environment, task or tools (found: {found})", file=str(path))
    key = Columns(head.keys, {"task": own}, {"task": ()})
    rows: dict[str, tuple[str, str, Known]] = {}
    passed: Counter[str] = Counter()
    shared: dict[tuple[Tool, ...], tuple[Tool, ...]] = {}
    for record in records(Source(path), head.kind):
        value = None if record.problem else name(key.get(record.value, "task"))
        if value is None:
            passed[record.problem or f"no {own}"] += 1
            continue
        env, task = (name(columns.get(record.value, field)) or "" for field in ("env", "task"))
        said = (env, task, known_task(record.value, columns, shared))
        passed[AGAIN] += rows.setdefault(str(value), said) != said
    return Join(column, rows, passed)


def _read_tools(path: Path) -> dict[str, tuple[Tool, ...]]:
    """A list of tool documents (or one on each line), or an object environment -> list, or -> object with `tools`."""
    if _existing(path).stat().st_size > RECORD_BYTES.now():
        raise LogFormatError(f"longer than {RECORD_BYTES.now():,} bytes, {RECORD_BYTES.remedy()}", file=str(path))
    with opened(path) as stream:
        raw = stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        value = decode(raw)
    except ValueError as error:
        value = _lines(raw)
        if not value:
            message = f"the tools file is {error}; it must be a JSON list of tools"
            raise LogFormatError(message, file=str(path)) from None
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):  # lines of which there is one
        value = [value]
    by_env = {"": value} if isinstance(value, list) else value if isinstance(value, Mapping) else {}
    listed = {env: item.get("tools") if isinstance(item, Mapping) else item for env, item in by_env.items()}
    tools = {
        str(parted(name(env) or "")): tools_from(documents)
        for env, documents in listed.items()
        if isinstance(documents, list)
    }
    if not any(tools.values()):
        raise LogFormatError("no tool found; expected a JSON list of {name, description, parameters}", file=str(path))
    return tools


def _lines(raw: bytes) -> list[Any]:
    """The values of a text with one on each line; empty when a line is no JSON."""
    try:
        return [decode(line) for line in raw.splitlines() if line.strip()]
    except ValueError:
        return []


def _existing(path: Path) -> Path:
    """The path of a file that is there."""
    if not path.is_file():
        raise LogFormatError("no such file", file=str(path))
    return path
