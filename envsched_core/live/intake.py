"""What a trainer hands in -> records: steps, counts and results of any shape; nothing here raises."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from envsched_core.records import GroupResult, Pick

__all__ = ["as_list", "group_from", "whole"]

FIELDS = GroupResult.__struct_fields__
NEEDED = ("group_id", "env", "task", "rewards", "step", "missing", "status", "pick_id")
"""What is kept of a result whose other fields are of no use."""
LARGEST = 2**53
"""Whole numbers up to here pass through JSON and floats unchanged."""


def whole(value: Any) -> int | None:
    """A whole number, also from NumPy or as a float without fraction; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if not isinstance(value, bool) and abs(number) < LARGEST else None


def as_list(value: Any) -> list[Any]:
    """Several things, or one: a lone id, pick or result counts as a list of one; None as an empty one."""
    if value is None:
        return []
    if isinstance(value, str | Mapping | GroupResult | Pick) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def group_from(item: Any, open_picks: Mapping[str, Pick]) -> tuple[GroupResult, bool] | None:
    """A result, and whether all of it could be used; None when it names no task or holds no rewards.

    A mapping may leave out what its open pick says (environment, task, step), and its group id: the pick's id.
    """
    fields = _fields(item)
    if fields is None:
        return None
    pick = open_picks.get(str(fields.get("pick_id")))
    if pick is not None:
        fields = {"env": pick.env, "task": pick.task, "group_id": pick.pick_id, **fields}
    rewards, missing = _rewards(fields.get("rewards"))
    if rewards is None:
        return None
    missing += max(whole(fields.get("missing")) or 0, 0)
    fields |= {"rewards": rewards, "missing": missing, "status": _status(len(rewards), missing)}
    fields["step"] = whole(fields.get("step"))
    for name in ("group_id", "pick_id"):
        fields[name] = str(fields[name]) if fields.get(name) is not None else None
    fields["group_id"] = fields["group_id"] or fields["pick_id"]
    return _converted(fields)


def _fields(item: Any) -> dict[str, Any] | None:
    if isinstance(item, GroupResult):
        return {name: getattr(item, name) for name in FIELDS}
    return {name: item[name] for name in FIELDS if name in item} if isinstance(item, Mapping) else None


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
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _status(scored: int, missing: int) -> Literal["ok", "partial", "error"]:
    return "ok" if not missing else "partial" if scored else "error"


def _converted(fields: Mapping[str, Any]) -> tuple[GroupResult, bool] | None:
    """The record; without its optional fields when those are of the wrong type."""
    for names in (FIELDS, NEEDED):
        kept = {name: fields[name] for name in names if name in fields}
        try:
            return msgspec.convert(msgspec.to_builtins(kept), GroupResult), names is FIELDS
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError):
            continue
    return None
