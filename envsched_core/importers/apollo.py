"""Catalogues of environments: one line (or item) each, with env, state tables, tools and the list of its tasks.

A task has an instruction and its reference calls in order. Nothing was rolled out: the import is a run folder with a
catalogue and a graph, and no group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.records import TaskSpec, Tool

from .base import Carries, Context, Drop, ImportOptions, Listed, RowError, as_listed
from .fields import TASK_FIELDS, Columns
from .files import Head, Source, head_of, records
from .messages import tools_from
from .values import name, names, prompt

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "catalogue of environments: env, state_tables, tools and tasks (instruction, actions), no rollouts"
CARRIES = Carries(
    env="yes",
    task="yes",
    group="no",
    step="no",
    parts="no",
    tools="yes",
    calls="no",
    messages="no",
    cost="no",
    policy="no",
    every_group="no",
    limits="no rollouts: tasks and their graph, nothing to replay",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("tasks",)

SHARED = {field: TASK_FIELDS[field] for field in ("env", "tools", "state", "verifier")}
"""What an environment says for all its tasks."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether its records are environments that hold a list of tasks as objects."""
    tasks = head.first.get("tasks")
    listed = isinstance(tasks, list) and bool(tasks) and isinstance(tasks[0], dict)
    columns = Columns(head.keys, {}, TASK_FIELDS)
    return head.kind in ("jsonl", "array") and listed and "env" in columns and "simulations" not in head.keys


def read(source: Source, context: Context) -> Iterator[Drop | Listed]:
    """Every task of every environment."""
    catalogue = _Catalogue(source, context)
    yield from as_listed(records(source, head_of(source.path).kind), source, catalogue.tasks)
    catalogue.remark()


class _Catalogue:
    """Turns the environments of one file into tasks."""

    def __init__(self, source: Source, context: Context) -> None:
        self.label, self.env, self.notes = source.label, context.options.env, context.notes
        self.lists: list[str] = []
        """Tasks whose instruction is a list."""
        self.twice: list[str] = []
        """Ids that an environment has twice."""
        self.seen: set[tuple[str, str]] = set()
        self.texts: Counter[tuple[str, str]] = Counter()

    def tasks(self, record: Mapping[str, Any]) -> Iterator[TaskSpec]:
        """The tasks of one environment.

        Raises:
            RowError: it has no name.
        """
        columns = Columns(tuple(record), {}, SHARED)
        env = name(columns.get(record, "env")) or self.env
        if env is None:
            raise RowError("no environment")
        tools, state = tools_from(columns.get(record, "tools")), names(columns.get(record, "state"))
        around = TaskSpec(env, "", "", tools, state, str(name(columns.get(record, "verifier")) or ""))
        for number, item in enumerate(record.get("tasks") or ()):
            spec = _task(item, number, around)
            if (env, spec.task) in self.seen:
                self.twice.append(spec.key)
                continue
            self.seen.add((env, spec.task))
            self.texts[env, spec.text] += bool(spec.text)
            if isinstance(item.get("instruction"), list):
                self.lists.append(spec.task)
            yield spec

    def remark(self) -> None:
        """Odd ids and instructions."""
        if self.twice:
            self.notes.add(f"{self.label}: ids twice in an environment, the first counts: {_some(self.twice)}")
        if self.lists:
            self.notes.add(
                f"{self.label}: instructions that are a list, read as one text of their items: {_some(self.lists)}"
            )
        again = [env for (env, _), count in self.texts.items() if count > 1]
        if again:
            self.notes.add(
                f"{self.label}: instructions that stand in more than one task of their environment ({len(again):,}; "
                f"these stay tasks of their own, by their ids): {_some(list(dict.fromkeys(again)))}"
            )


def _task(item: Mapping[str, Any], number: int, around: TaskSpec) -> TaskSpec:
    """One task; what it says itself goes before what its environment says, and its number is its name if need be."""
    columns = Columns(tuple(item), {}, TASK_FIELDS)
    reference = columns.get(item, "reference")
    own: tuple[Tool, ...] = tools_from(columns.get(item, "tools"))
    return TaskSpec(
        around.env,
        str(name(columns.get(item, "task")) or number),
        prompt(columns.get(item, "text")),
        own or around.tools,
        names(columns.get(item, "state")) or around.state,
        str(name(columns.get(item, "verifier")) or "") or around.verifier,
        None if reference is None else names(reference),
    )


def _some(names_found: list[str]) -> str:
    """The first few names."""
    return ", ".join(names_found[:6]) + (f" and {len(names_found) - 6:,} more" if len(names_found) > 6 else "")
