"""A task list: a table of tasks with their texts, tools or reference calls, and no rewards. A catalogue.

Alone, it becomes a run folder with tasks and their graph before any rollout exists; beside a log in the same
folder, it tells what the log's rows leave open, as `--tasks FILE` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envsched_core.records import TaskSpec, Tool

from .base import Carries, Context, Drop, ImportOptions, Listed, RowError, as_listed
from .catalogue import known_task
from .fields import FIELDS, TASK_FIELDS, Columns, checked_mapping
from .files import Head, Source, head_of, records
from .values import name

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "task list: a table with environment, task and its text, tools or calls, and no reward: a catalogue"
CARRIES = Carries(
    env="yes",
    task="yes",
    group="no",
    step="no",
    parts="no",
    tools="some",
    calls="some",
    messages="no",
    cost="no",
    policy="no",
    every_group="no",
    limits="no rollouts: tasks and their graph, nothing to replay; calls are the reference path",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

SAYS = ("text", "tools", "reference")
"""A table that has none of these describes no task."""
RESULTS = {*FIELDS["reward"], *FIELDS["messages"], "avg_reward"} - {"output"}


def _columns(head_keys: tuple[str, ...], options: ImportOptions) -> Columns:
    mapping = checked_mapping(options.mapping)
    return Columns(head_keys, {field: column for field, column in mapping.items() if field in TASK_FIELDS}, TASK_FIELDS)


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether tasks are named and described, and nothing says how one went."""
    columns = _columns(head.keys, options)
    rows = head.kind in ("jsonl", "array", "csv", "parquet") and not RESULTS & set(head.keys)
    named = "task" in columns and ("env" in columns or options.env is not None)
    return rows and named and any(field in columns for field in SAYS)


def read(source: Source, context: Context) -> Iterator[Listed | Drop]:
    """Every task."""
    head = head_of(source.path)
    columns = _columns(head.keys, context.options)
    shared: dict[tuple[Tool, ...], tuple[Tool, ...]] = {}

    def listed(record: Any) -> Iterator[TaskSpec]:
        env, task = name(columns.get(record, "env")) or context.options.env, name(columns.get(record, "task"))
        if not env or not task:
            raise RowError("no environment" if not env else "no task")
        known = known_task(record, columns, shared)
        yield TaskSpec(env, task, known.text, known.tools, known.state, known.verifier, known.calls)

    yield from as_listed(records(source, head.kind), source, listed)
