"""What a trainer hands in -> records: steps, counts, tasks and results of any shape; nothing here raises.

Whatever passes here can be written and read back: scheduler and run folder get the same record.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec
import numpy as np

from envsched_core.records import GroupResult, Pick, Rollout, TaskSpec

__all__ = [
    "MOST_BYTES",
    "MOST_NAME",
    "as_list",
    "attempt",
    "group_from",
    "label_of",
    "name_of",
    "plain",
    "rollout_from",
    "task_from",
    "text_of",
    "whole",
]

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

NEEDED = ("group_id", "env", "task", "rewards", "step", "missing", "status", "pick_id")
"""What is kept of a result whose other fields are of no use."""
LARGEST = 2**53
"""Whole numbers up to here pass through JSON and floats unchanged."""
MOST_DRAWS = 2**40
"""Groups of one task beyond this are as good as no limit, and would not fit the ledger's arrays."""
MOST_BYTES = 2**25
"""A record or note beyond this fits no line of a run folder, with room for what a line adds."""
MOST_NAME = 10_000
"""Characters of a name; a decision repeats the names of its tasks many times, and must fit a line too."""
SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters; no UTF-8 holds them."""


def attempt(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[T | None, Exception | None]:
    """The result of a call, or the exception that it ended in."""
    try:
        return call(*arguments, **named), None
    except Exception as error:  # what a trainer hands in may run any code, and must not end its training
        return None, error


def whole(value: Any) -> int | None:
    """A whole number, from anything that equals one (a NumPy number, a float without fraction); None for the rest."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        return None
    number, failed = attempt(operator.index, value)
    if failed:
        number, _ = attempt(int, value)
        if number is None or not attempt(lambda: bool(number == value))[0]:
            return None
    return number if number is not None and abs(number) < LARGEST else None


def as_list(value: Any, counts: Counter[str] | None = None) -> list[Any]:
    """Several things, or one: a lone id, record or mapping counts as a list of one; None as an empty one.

    Of an iterable that breaks off with an error, what came before; `counts` is told.
    """
    if value is None:
        return []
    if isinstance(value, str | bytes | Mapping | msgspec.Struct) or not isinstance(value, Iterable):
        return [value]
    found: list[Any] = []
    _, error = attempt(found.extend, value)
    if error is not None and counts is not None:
        counts["broken_iterable"] += 1
    return found


def text_of(value: Any) -> str | None:
    """The text of anything, such that it can be written; None for None and for what has no text."""
    text = attempt(str, value)[0] if value is not None else None
    return None if text is None else _clean(text)


def label_of(value: Any) -> str | None:
    """The same, cut to the length of a name."""
    text = text_of(value)
    return None if text is None else text[:MOST_NAME]


def name_of(value: Any) -> Any:
    """A name that came as a number or as NumPy text -> text; anything else as it is."""
    if isinstance(value, str | int | np.integer) and not isinstance(value, bool):
        return text_of(value)
    return value


def plain(value: Any) -> Any:
    """Records, arrays and text of any kind -> plain data with text that can be written; the rest as it is."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {plain(key): plain(value[key]) for key in value}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def _clean(text: str) -> str:
    return SURROGATES.sub("\ufffd", str.__str__(text))


def task_from(item: Any) -> TaskSpec | None:
    """A task; None when it has no name, or a field is of no use."""
    fields = _fields(item, TaskSpec)
    if fields is None:
        return None
    fields |= {name: name_of(fields[name]) for name in ("env", "task", "text", "verifier") if name in fields}
    task = _remade(fields, TaskSpec)
    if task is None or not task.env or not task.task or "::" in task.env or _too_long(task.env, task.task):
        return None
    return task if task.draws is None or 0 <= task.draws <= MOST_DRAWS else None


def rollout_from(item: Any) -> Rollout | None:
    """A rollout that can be written; None for anything else."""
    return _remade(item, Rollout) if isinstance(item, Rollout) else None


def group_from(item: Any, picks: Mapping[str, Pick]) -> tuple[GroupResult, bool] | None:
    """A result, and whether all of it could be used; None when it names no task or holds no rewards.

    A mapping may leave out what its pick says (environment, task), and its group id: the pick's id.
    """
    fields = _fields(item, GroupResult)
    if fields is None:
        return None
    for name in ("group_id", "pick_id"):
        fields[name] = text_of(fields.get(name))
    pick = picks.get(fields["pick_id"] or "")
    if pick is not None:
        fields = {"env": pick.env, "task": pick.task, **fields}
    fields["group_id"] = fields["group_id"] or fields["pick_id"]
    if _too_long(fields["group_id"], fields["pick_id"], fields.get("env"), fields.get("task")):
        return None
    rewards, missing = _rewards(fields.get("rewards"))
    if rewards is None:
        return None
    missing += max(whole(fields.get("missing")) or 0, 0)
    fields |= {"rewards": rewards, "missing": missing, "status": _status(len(rewards), missing)}
    fields["step"] = whole(fields.get("step"))
    fields |= {name: name_of(fields[name]) for name in ("env", "task") if name in fields}
    made = _remade(fields, GroupResult)
    if made is not None:
        return made, True
    made = _remade({name: fields[name] for name in NEEDED if name in fields}, GroupResult)
    return (made, False) if made is not None else None


def _too_long(*names: Any) -> bool:
    return any(isinstance(name, str) and len(name) > MOST_NAME for name in names)


def _fields(item: Any, kind: type[msgspec.Struct]) -> dict[str, Any] | None:
    names = kind.__struct_fields__
    if isinstance(item, kind):
        return {name: getattr(item, name) for name in names}
    return {name: item[name] for name in names if name in item} if isinstance(item, Mapping) else None


def _rewards(value: Any) -> tuple[tuple[float, ...] | None, int]:
    """The usable rewards and how many were not; None where there are no rewards at all."""
    if hasattr(value, "tolist"):  # an array or tensor
        value = value.tolist()
    if isinstance(value, int | float):
        value = [value]
    if value is None or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return None, 0
    found = [_number(reward) for reward in value]
    usable = tuple(reward for reward in found if reward is not None)
    return usable, len(found) - len(usable)


def _number(value: Any) -> float | None:
    number, _ = attempt(float, value)
    return number if number is not None and math.isfinite(number) else None


def _status(scored: int, missing: int) -> Literal["ok", "partial", "error"]:
    return "ok" if not missing else "partial" if scored else "error"


def _remade(value: Any, kind: type[S]) -> S | None:
    """The record as a reader of the run folder will get it back; None when it would not."""
    made, error = attempt(_round_trip, value, kind)
    if error is not None:
        made, _ = attempt(lambda: _round_trip(plain(value), kind))
    return made


def _round_trip(value: Any, kind: type[S]) -> S:
    data = msgspec.json.encode(value)
    if len(data) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES:,} bytes")
    return msgspec.json.decode(data, type=kind)
