"""Any table with environment, task and reward: CSV, Parquet, JSON lines or one JSON array of objects.

fields.py lists the names that map by themselves; `--map FIELD=COLUMN` does the rest. A list of rewards in a
row is one group. Without a task column, tasks are named by a hash of their prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from envsched_core.errors import LogFormatError
from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .blocks import Block, Work, lines_of, shape_of
from .fields import FIELDS, Columns, absent_column, checked_mapping
from .files import Head, Source, head_of, json_lines, records
from .identity import Identity
from .messages import calls_from, calls_of, messages_from, tools_from
from .values import (
    LISTS,
    Memo,
    flag,
    floats,
    hashed,
    is_missing,
    name,
    names,
    number,
    printable,
    prompt,
    reward,
    structured,
    whole,
)

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read", "read_in_blocks"]

ABOUT = "CSV, Parquet, JSON lines or a JSON array with environment, task and reward (--map names other columns)"
CARRIES = Carries(
    env="yes",
    task="some",
    group="some",
    step="some",
    parts="some",
    tools="some",
    calls="some",
    messages="some",
    cost="some",
    policy="some",
    every_group="some",
    limits="as much as its columns say; whether groups were filtered out, only their rewards tell",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

FAILED = {"error", "errored", "exception", "crashed", "cancelled", "canceled", "aborted"}
"""Words of a status column that say that there was no usable rollout."""

SIMPLE: dict[str, Callable[[Any], Any]] = {
    "group": name,
    "step": partial(whole, what="step"),
    "policy_version": name,
    "trained": flag,
    "text": prompt,
    "tools": tools_from,
    "state": names,
    "verifier": lambda value: str(name(value) or ""),
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


def ended(error: Any, status: Any) -> tuple[str, bool]:
    """The status of a rollout, and whether it failed, by what stands in those two columns."""
    if is_missing(error) or flag(error) is False or error in ({}, []):
        said = "" if is_missing(status) else str(status)
        return said, said.strip().lower() in FAILED
    return str(error), True


class _Layout:
    """How to read records with the same keys."""

    def __init__(self, keys: tuple[str, ...], mapping: Mapping[str, str]) -> None:
        columns = Columns(keys, mapping)
        self.env, self.task = columns.getter("env"), columns.getter("task")
        self.reward, self.parts = columns.getter("reward"), columns.getter("parts")
        self.rollout = columns.getter("rollout") if "rollout" in columns else None
        self.simple = [(field, parse, columns.getter(field)) for field, parse in SIMPLE.items() if field in columns]
        self.status, self.error = columns.getter("status"), columns.getter("error")
        self.ends = "status" in columns or "error" in columns
        self.milliseconds = columns.getter("milliseconds") if "milliseconds" in columns else None
        self.same_text = columns.getter("same_text") if "same_text" in columns else None
        self.others = self.ends or self.milliseconds is not None or self.same_text is not None


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether a reward and a task can be found."""
    columns = Columns(head.keys, checked_mapping(options.mapping))
    rows = head.kind in ("jsonl", "array", "csv", "parquet")
    return rows and _has_reward(columns, options) and ("task" in columns or "text" in columns)


def _has_reward(columns: Columns, options: ImportOptions) -> bool:
    """Whether there is a reward column, or where the chosen part of it may stand."""
    part = options.reward
    return "reward" in columns or (part is not None and (part in columns.keys or "parts" in columns))


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every row of a table."""
    table = _Table(context)
    yield from _one_by_one(source, context, table, table.head(source))


def read_in_blocks(source: Source, context: Context) -> Iterator[Row | Drop | Block]:
    """Every row of a table, in blocks as far as its lines are plain."""
    table = _Table(context)
    head = table.head(source)
    shape = shape_of(source, head, context, Work(SIMPLE, ended))
    if shape is None:
        yield from _one_by_one(source, context, table, head)
        return
    identity = Identity(source, context)
    for lines in lines_of(source):
        for part, block in shape.parts(lines):
            if block is not None:
                table.failed += block.failed
                yield block
            else:
                yield from as_rows(json_lines(source, part), source, table.row, identity)
    table.remark(source)


def _one_by_one(source: Source, context: Context, table: _Table, head: Head) -> Iterator[Row | Drop]:
    """The rows of a table that begins like `head`."""
    found = records(source, head.kind, table.used(head.keys))
    yield from as_rows(found, source, table.row, Identity(source, context))
    table.remark(source)


class _Table:
    """Turns the records of one table into rows."""

    def __init__(self, context: Context) -> None:
        self.options, self.notes = context.options, context.notes
        self.mapping = checked_mapping(context.options.mapping)
        self.layouts: dict[tuple[str, ...], _Layout] = {}
        self.name = Memo()
        self.join = context.join
        self.by_rules = bool(context.join or context.options.env_rules)
        self.by_prompt = self.failed = self.other_texts = 0

    def layout(self, record: Mapping[str, Any]) -> _Layout:
        """The layout of records with these keys."""
        keys = tuple(record)
        found = self.layouts.get(keys)
        if found is None:
            found = _Layout(keys, self.mapping)
            if len(self.layouts) < LAYOUTS:
                self.layouts[keys] = found
        return found

    def used(self, keys: tuple[str, ...]) -> frozenset[str]:
        """Top-level columns that some field is read from."""
        columns = Columns(keys, self.mapping)
        used = {columns.first(field) for field in FIELDS} | {self.options.reward}
        if self.join is not None:
            used |= {self.join.column, self.join.column.partition(".")[0]}
        return frozenset(column for column in used if column is not None)

    def head(self, source: Source) -> Head:
        """How a table begins.

        Raises:
            LogFormatError: a needed column is not found; with the columns there are and the remedy.
        """
        head = head_of(source.path)
        self._check(head, source)
        if head.doubled:
            named = printable(", ".join(head.doubled))
            self.notes.add(f"{source.label}: columns named more than once, of which the last is read: {named}")
        return head

    def _check(self, head: Head, source: Source) -> None:
        columns = Columns(head.keys, self.mapping)
        needs = {
            "env": "env" in columns or self.options.env is not None or self.by_rules,
            "task": "task" in columns or "text" in columns or self.by_rules,
            "reward": _has_reward(columns, self.options),
        }
        missing = [field for field, there in needs.items() if not there]
        absent = head.problem or absent_column(head.keys, self.mapping)
        if absent:
            raise LogFormatError(absent, file=source.label)
        if not missing:
            return
        found = printable(", ".join(head.keys[:60])) or "none"
        what = f"no column for {', '.join(missing)}"
        remedy = "name it with " + " ".join(f"--map {field}=COLUMN" for field in missing)
        remedy += " or give --env NAME" if "env" in missing else ""
        raise LogFormatError(f"{what}; the columns are: {found}; {remedy}", file=source.label)

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One row."""
        layout = self.layout(record)
        fields = {}
        for field, parse, get in layout.simple:
            value = get(record)
            if value is not None:
                fields[field] = parse(value)
        scores = self._reward(record, layout)
        listed = isinstance(scores, LISTS)
        rewards = tuple(map(reward, scores)) if listed else (reward(scores),)
        if not rewards:
            raise RowError("empty list of rewards")
        env = self.name(layout.env(record)) or ""
        task = self.name(layout.task(record)) or ("" if self.by_rules else self._by_prompt(fields.get("text")))
        row = Row(place, env, task, rewards, **fields)
        if listed:  # which of its rollouts a row of many means is not said
            row.messages, row.calls = (), None
            row.group = row.group or f"{place.file}:{place.line}"
        if layout.rollout is not None and layout.rollout(record) is not None:
            row.mark = mark
        if row.calls is None and row.messages:
            row.calls = calls_of(row.messages) or None
        if layout.others:
            self._others(row, record, layout)
        return row

    def _reward(self, record: Mapping[str, Any], layout: _Layout) -> Any:
        """The reward, the list of a group's rewards, or the part of it that the user chose."""
        value, part = layout.reward(record), self.options.reward
        if part is not None:
            holders = (structured(value), structured(layout.parts(record)), record)
            value = next((holder[part] for holder in holders if isinstance(holder, Mapping) and part in holder), None)
        return value if type(value) is float else structured(value)

    def _by_prompt(self, text: str | None) -> str:
        """A name for the task of a row that names none."""
        if not text:
            return ""
        self.by_prompt += 1
        return hashed(text)

    def _others(self, row: Row, record: Mapping[str, Any], layout: _Layout) -> None:
        """Columns that say something about the whole row."""
        if layout.ends:
            self._ended(row, layout.error(record), layout.status(record))
        if layout.milliseconds is not None and row.seconds is None:
            milliseconds = number(layout.milliseconds(record))
            row.seconds = None if milliseconds is None else milliseconds / 1000.0
        if layout.same_text is not None and flag(layout.same_text(record)) is False:
            row.text_known = False
            self.other_texts += 1

    def _ended(self, row: Row, error: Any, status: Any) -> None:
        """A rollout that ended in an error has no usable reward, whatever its reward column says."""
        row.status, failed = ended(error, status)
        if failed:
            row.rewards = (None,) * len(row.rewards)
            self.failed += len(row.rewards)

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
