"""Any table with environment, task and reward: CSV, Parquet, JSON lines or one JSON array of objects.

fields.py lists the names that map by themselves; `--map FIELD=COLUMN` does the rest. A list of rewards in a
row is one group. Without a task column, tasks are named by a hash of their prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from envsched_core.errors import LogFormatError
from envsched_core.records import Place

from .base import Context, Drop, ImportOptions, Row, RowError, as_rows
from .fields import FIELDS, Columns, checked_mapping
from .files import Head, Source, head_of, records
from .messages import calls_from, calls_of, messages_from, tools_from
from .values import flag, floats, hashed, is_missing, name, names, number, prompt, reward, structured, whole

__all__ = ["ABOUT", "COMPANIONS", "claims", "read"]

ABOUT = "CSV, Parquet, JSON lines or a JSON array with environment, task and reward (--map names other columns)"
COMPANIONS: tuple[str, ...] = ()

FAILED = {"error", "errored", "exception", "crashed", "cancelled", "canceled", "aborted"}
"""Words of a status column that say that there was no usable rollout."""

SIMPLE: dict[str, Callable[[Any], Any]] = {
    "group": name,
    "step": lambda value: whole(value, "step"),
    "policy_version": name,
    "trained": flag,
    "text": prompt,
    "tools": tools_from,
    "state": names,
    "verifier": lambda value: name(value) or "",
    "reference": names,
    "parts": floats,
    "messages": messages_from,
    "calls": calls_from,
    "tokens": number,
    "seconds": number,
    "turns": number,
    "tool_calls": number,
}
"""Fields of a `Row` that come from one column each."""

LAYOUTS = 10_000
"""Sets of keys that are remembered; a log whose every row has other keys must not fill the memory."""


class _Layout(NamedTuple):
    """Where the fields stand in records with the same keys."""

    columns: Columns
    simple: tuple[tuple[str, Callable[[Any], Any]], ...]
    others: bool
    """Whether there is a status, an error, milliseconds or a `same_question`."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether a reward and a task can be found."""
    columns = Columns(head.keys, checked_mapping(options.mapping))
    return ("reward" in columns or options.reward in head.keys) and ("task" in columns or "text" in columns)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every row of a table."""
    head = head_of(source.path)
    table = _Table(context)
    table.check(head, source)
    yield from as_rows(records(source, head.kind, table.used(head.keys)), source, table.row)
    table.remark(source)


class _Table:
    """Turns the records of one table into rows."""

    def __init__(self, context: Context) -> None:
        self.options, self.notes = context.options, context.notes
        self.mapping = checked_mapping(context.options.mapping)
        self.layouts: dict[tuple[str, ...], _Layout] = {}
        self.by_prompt = self.failed = self.other_texts = 0

    def layout(self, record: Mapping[str, Any]) -> _Layout:
        """The layout of records with these keys."""
        keys = tuple(record)
        found = self.layouts.get(keys)
        if found is None:
            columns = Columns(keys, self.mapping)
            simple = tuple((field, parse) for field, parse in SIMPLE.items() if field in columns)
            others = any(field in columns for field in ("status", "error", "milliseconds", "same_text"))
            found = _Layout(columns, simple, others)
            if len(self.layouts) < LAYOUTS:
                self.layouts[keys] = found
        return found

    def used(self, keys: tuple[str, ...]) -> frozenset[str]:
        """Top-level columns that some field is read from."""
        columns = Columns(keys, self.mapping)
        used = {columns.first(field) for field in FIELDS} | {self.options.reward}
        return frozenset(column for column in used if column is not None)

    def check(self, head: Head, source: Source) -> None:
        """Refuse a table in which a needed column is not found.

        Raises:
            LogFormatError: with the columns there are and the remedy.
        """
        columns = Columns(head.keys, self.mapping)
        absent = [f"{field}={column}" for field, column in self.mapping.items() if field not in columns]
        needs = {"reward": "reward" in columns or self.options.reward in head.keys}
        needs["task"] = "task" in columns or "text" in columns
        needs["env"] = "env" in columns or self.options.env is not None
        missing = [field for field, there in needs.items() if not there]
        if not absent and not missing:
            return
        found = ", ".join(head.keys) or "none"
        what = f"--map {', '.join(absent)} names no column" if absent else f"no column for {', '.join(missing)}"
        remedy = f"name it with --map {missing[0] if missing else 'FIELD'}=COLUMN"
        remedy += " or give --env NAME" if "env" in missing else ""
        raise LogFormatError(f"{what}; the columns are: {found}; {remedy}", file=source.label)

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One row."""
        columns, simple, others = self.layout(record)
        fields = {}
        for field, parse in simple:
            value = columns.get(record, field)
            if value is not None:
                fields[field] = parse(value)
        value = self._reward(record, columns)
        listed = isinstance(value, list | tuple)
        rewards = tuple(map(reward, value)) if listed else (reward(value),)
        if not rewards:
            raise RowError("empty list of rewards")
        env = name(columns.get(record, "env")) or self.options.env
        task = name(columns.get(record, "task")) or self._by_prompt(fields.get("text"))
        if env is None or task is None:
            raise RowError("no environment" if env is None else "no task")
        row = Row(place, env, task, rewards, **fields)
        if listed and row.group is None:
            row.group = f"{place.file}:{place.line}"
        if columns.get(record, "rollout") is not None:
            row.mark = mark
        if row.calls is None and row.messages:
            row.calls = calls_of(row.messages) or None
        if others:
            self._others(row, record, columns)
        return row

    def _reward(self, record: Mapping[str, Any], columns: Columns) -> Any:
        """The reward, the list of a group's rewards, or the part of it that the user chose."""
        value, part = columns.get(record, "reward"), self.options.reward
        if part is not None:
            holders = (structured(value), structured(columns.get(record, "parts")), record)
            value = next((holder[part] for holder in holders if isinstance(holder, Mapping) and part in holder), None)
        return structured(value)

    def _by_prompt(self, text: str | None) -> str | None:
        """A name for the task of a row that names none."""
        if not text:
            return None
        self.by_prompt += 1
        return hashed(text)

    def _others(self, row: Row, record: Mapping[str, Any], columns: Columns) -> None:
        """Fields that say something about the whole row."""
        error, status = columns.get(record, "error"), columns.get(record, "status")
        failed = not (is_missing(error) or flag(error) is False or error in ({}, []))
        row.status = str(error) if failed else "" if is_missing(status) else str(status)
        if failed or row.status.strip().lower() in FAILED:
            row.rewards = (None,) * len(row.rewards)
            self.failed += len(row.rewards)
        milliseconds = number(columns.get(record, "milliseconds"))
        if row.seconds is None and milliseconds is not None:
            row.seconds = milliseconds / 1000.0
        if flag(columns.get(record, "same_text")) is False:
            row.text_known = False
            self.other_texts += 1

    def remark(self, source: Source) -> None:
        """Say in the report what was taken for granted."""
        if self.by_prompt:
            self.notes.add(f"{source.label}: {self.by_prompt:,} rows name no task; a hash of the prompt stands for it")
        if self.failed:
            self.notes.add(f"{source.label}: {self.failed:,} rollouts ended in an error; their rewards are missing")
        if self.other_texts:
            self.notes.add(
                f"{source.label}: {self.other_texts:,} rows say that the task list's text is not the one the model saw "
                "(same_question false); it was not put to them"
            )
