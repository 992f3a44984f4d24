"""What a trainer may hand in by accident, made sound: `observe` never raises for what a result holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from envsched_core.errors import ContractError
from envsched_core.records import Cost, GroupResult

__all__ = ["MOST_STEP", "checked_step", "reason_of", "sound"]

MOST_STEP = 1 << 53
"""Steps beyond this are no step numbers (and no array or JSON reader holds them exactly)."""
MOST_REWARD = 1e100
"""Rewards beyond this are no rewards: their squares would overflow."""

MOST_REASONS = 50
"""Reasons of release that are counted by name; a trainer may give an error's text, another each time."""
REASON_LENGTH = 80


def reason_of(reason: str, counts: Mapping[str, int]) -> str:
    """The name that a released pick is counted under: its reason, or `other` when there are too many of them."""
    name = f"released/{reason[:REASON_LENGTH]}"
    known = sum(other.startswith("released/") for other in counts) if name not in counts else 0
    return name if known < MOST_REASONS else "released/other"


def checked_step(step: Any) -> int:
    """A plain integer step, from whatever integer the trainer counts with.

    Raises:
        ContractError: it is no integer, or too large to be a step.
    """
    try:
        value = int(step)
    except (TypeError, ValueError, OverflowError):
        raise ContractError(f"ask: step must be an integer, got {step!r}") from None
    if value != step or abs(value) >= MOST_STEP:
        raise ContractError(f"ask: step must be an integer below 2**53, got {step!r}")
    return value


def sound(result: Any) -> GroupResult | None:
    """The result with plain finite rewards and a plain step; None when it is none, or lacks what it must have."""
    if not isinstance(result, GroupResult) or not isinstance(result.group_id, str):
        return None
    try:
        step = None if result.step is None else checked_step(result.step)
        given = list(result.rewards)
        calls = tuple(tuple(map(str, c)) for c in result.calls)
    except (ContractError, TypeError):
        return None
    rewards = _plain(given)
    told = min(max(int(result.missing), 0), MOST_STEP) if isinstance(result.missing, int) else 0
    missing = told + len(given) - len(rewards)
    cost = _plain_cost(result.cost)
    return msgspec.structs.replace(result, rewards=rewards, missing=missing, step=step, calls=calls, cost=cost)


def _plain_cost(cost: Any) -> Cost | None:
    """The same with plain floats; NaN stands for what is no number, so that it is told from what was left out."""
    if cost is None:
        return None
    amounts = []
    for name in Cost.__struct_fields__:
        amount = getattr(cost, name, math.nan)
        try:
            amounts.append(None if amount is None else float(amount))
        except (TypeError, ValueError, OverflowError):
            amounts.append(math.nan)
    return Cost(*amounts)


def _plain(rewards: Sequence[Any]) -> tuple[float, ...]:
    out = []
    for reward in rewards:
        try:
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            continue
        if abs(value) <= MOST_REWARD:  # false for NaN
            out.append(value)
    return tuple(out)
