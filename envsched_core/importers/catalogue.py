"""What is known of tasks besides the log: `--tasks FILE` (texts, tools, calls) and `--tools FILE`.

Both only fill in what the log leaves open. A task of the file that has no rollouts joins the catalogue with
`draws = 0` when its environment occurs in the log: it can then be explained and suggested, never replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envsched_core.errors import LogFormatError
from envsched_core.records import TaskSpec, Tool

from .fields import TASK_FIELDS, Columns
from .files import MAX_RECORD, Source, decode, head_of, records
from .messages import tools_from
from .values import name, names, parted, printable, prompt, restored

__all__ = ["TEXT_LIMIT", "Catalogue", "Known", "read_catalogue"]

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


class Catalogue:
    """Task lists and tool documents by environment."""

    def __init__(self) -> None:
        """Knows nothing."""
        self.tasks: dict[tuple[str, str], Known] = {}
        """By (environment, task); the environment is empty when the file names none."""
        self.tools: dict[str, tuple[Tool, ...]] = {}
        """By environment; under the empty name those of every environment."""

    def known(self, env: str, task: str) -> Known:
        """What the task list says of a task."""
        return self.tasks.get((env, task)) or self.tasks.get(("", task)) or NOTHING

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
        """Listed tasks of the log's environments that the log never rolled out."""
        rolled = set(seen)
        environments = {env for env, _ in rolled}
        only = next(iter(environments)) if len(environments) == 1 else ""
        missing = []
        for env, task in self.tasks:
            env = env or only
            if env in environments and (env, task) not in rolled:
                missing.append(self.fill(TaskSpec(env, task, draws=0)))
        return missing


def read_catalogue(tasks: Path | None, tools: Path | None, env: str | None, mapping: Mapping[str, str]) -> Catalogue:
    """Read both files; `env` stands in where the task list names no environment.

    Raises:
        LogFormatError: a file cannot be read, or names no tasks or tools.
    """
    catalogue = Catalogue()
    if tools is not None:
        catalogue.tools = _read_tools(tools)
    if tasks is not None:
        catalogue.tasks = _read_tasks(tasks, env or "", mapping)
    return catalogue


def _read_tasks(path: Path, env: str, mapping: Mapping[str, str]) -> dict[tuple[str, str], Known]:
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
        if task is not None:
            named = restored(name(columns.get(record.value, "env")) or env, record.mended)
            key = (str(parted(named)), str(restored(task, record.mended)))
            tasks.setdefault(key, _known(record.value, columns, shared))
    return tasks


def _known(record: Mapping[str, Any], columns: Columns, shared: dict[tuple[Tool, ...], tuple[Tool, ...]]) -> Known:
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


def _read_tools(path: Path) -> dict[str, tuple[Tool, ...]]:
    """A list of tool documents, or an object environment -> list."""
    if _existing(path).stat().st_size > MAX_RECORD:
        raise LogFormatError(f"longer than {MAX_RECORD >> 20} MiB", file=str(path))
    try:
        value = decode(path.read_bytes())
    except ValueError as error:
        raise LogFormatError(f"the tools file is {error}; it must be a JSON list of tools", file=str(path)) from None
    by_env = {"": value} if isinstance(value, list) else value if isinstance(value, Mapping) else {}
    tools = {
        str(parted(name(env) or "")): tools_from(documents)
        for env, documents in by_env.items()
        if isinstance(documents, list)
    }
    if not any(tools.values()):
        raise LogFormatError("no tool found; expected a JSON list of {name, description, parameters}", file=str(path))
    return tools


def _existing(path: Path) -> Path:
    """The path of a file that is there."""
    if not path.is_file():
        raise LogFormatError("no such file", file=str(path))
    return path
