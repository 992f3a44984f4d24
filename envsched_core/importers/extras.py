"""Helpers of the readers of trainers' own dumps: usual names in free-form metadata, prompts, groups in one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from envsched_core.records import Tool

from .base import UNUSABLE
from .fields import FIELDS
from .files import Record
from .messages import tools_from
from .values import RowError, name, prompt, structured

__all__ = ["Documents", "named", "objects", "opening", "parallel", "unpacked"]

ANSWERING = {"assistant", "tool"}


class Documents:
    """`tools_from` for rows that mostly repeat the tools of the row before."""

    def __init__(self) -> None:
        """Starts empty."""
        self._given: Any = None
        self._found: tuple[Tool, ...] = ()

    def __call__(self, value: Any) -> tuple[Tool, ...]:
        """The documented tools of a row."""
        if value != self._given:
            self._given, self._found = value, tools_from(value)
        return self._found


def objects(*values: Any) -> list[Mapping[str, Any]]:
    """Those of some values that are objects, or JSON text of one, and hold something."""
    return [found for value in values if isinstance(found := structured(value), Mapping) and found]


def named(holders: Iterable[Mapping[str, Any]], field: str, *more: str) -> str:
    """An id under one of the usual names of a field, or one of `more`; empty when no holder has it."""
    for holder in holders:
        for column in (*more, *FIELDS[field]):
            value = holder.get(column) if "." not in column else _at(holder, column)
            if isinstance(value, str | int | float) and (found := name(value)):
                return found
    return ""


def _at(holder: Mapping[str, Any], column: str) -> Any:
    """A value inside objects, some of which may be JSON text."""
    value: Any = holder
    for part in column.split("."):
        value = structured(value.get(part)) if isinstance(value, Mapping) else None
    return value


def opening(messages: Any) -> str:
    """What a transcript asks: all before the model first speaks, the system's part left out."""
    asked: list[Any] = []
    for message in messages if isinstance(messages, list | tuple) else ():
        if isinstance(message, Mapping) and message.get("role") in ANSWERING:
            break
        asked.append(message)
    return prompt(asked)


def parallel(record: Mapping[str, Any], keys: Iterable[str], length: int) -> Iterator[dict[str, Any]]:
    """The items of lists that stand side by side in a record; a list that is not there gives None.

    Raises:
        RowError: one is shorter or longer than `length`.
    """
    lists = {key: record.get(key) for key in keys}
    for key, values in lists.items():
        if values is not None and (not isinstance(values, list) or len(values) != length):
            raise RowError(f"{key} has not one entry per rollout")
    for index in range(length):
        yield {key: None if values is None else values[index] for key, values in lists.items()}


def unpacked(found: Iterable[Record], items: Callable[[Any], Iterable[dict[str, Any]]]) -> Iterator[Record]:
    """Records that hold several rollouts, taken apart; each keeps its line."""
    for record in found:
        if record.problem:
            yield record
            continue
        try:
            values = list(items(record.value))
        except RowError as error:
            yield Record(record.line, None, str(error))
            continue
        except UNUSABLE as error:
            yield Record(record.line, None, f"unexpected content ({type(error).__name__})")
            continue
        yield from (record._replace(value=value, mark=0) for value in values)
