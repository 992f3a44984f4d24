"""Reward statistics of a log's groups and environments, as arrays; pure functions for the report."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.config import Config

__all__ = ["GroupStats", "RewardRange", "group_stats", "only_mixed", "reward_ranges"]

FLAT_RANGE = Config().min_range
TIES = 0.25
"""Chance that two rewards of an environment are equal above which a log without any flat group is odd."""
SURELY_SOME_FLAT = 4.6
"""Expected flat groups from which finding none has a chance below 1 in 100 (exp(-4.6))."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RewardRange(msgspec.Struct, frozen=True):
    """The rewards of one environment, on its own scale."""

    env: str
    low: float | None
    """Lowest reward; None when all are missing."""
    high: float | None
    kind: Literal["binary", "graded", "missing"]
    """binary: only 0 and 1."""
    rollouts: int
    """Scored rollouts."""
    mean: float | None


class GroupStats(NamedTuple):
    """Statistics of every group [M]."""

    size: Ints
    """Rollouts, missing ones included."""
    scored: Ints
    """Rewards."""
    flat: NDArray[np.bool_]
    """Two or more rewards, all the same."""
    variance: Floats
    """Population variance; 0 below two rewards."""


def group_stats(rewards: Floats, ends: Ints) -> GroupStats:
    """Statistics of groups that end at `ends` [M] in `rewards` (NaN = missing); no group is empty."""
    if not len(ends):
        empty = np.zeros(0, dtype=np.int64)
        return GroupStats(empty, empty, empty.astype(bool), empty.astype(float))
    size = np.diff(ends, prepend=0)
    starts = ends - size
    good = ~np.isnan(rewards)
    scored = np.add.reduceat(good.astype(np.int64), starts)
    mean = np.add.reduceat(np.where(good, rewards, 0.0), starts) / np.maximum(scored, 1)
    off = np.where(good, rewards - np.repeat(mean, size), 0.0)
    variance = np.add.reduceat(off * off, starts) / np.maximum(scored, 1)
    low = np.minimum.reduceat(np.where(good, rewards, np.inf), starts)
    high = np.maximum.reduceat(np.where(good, rewards, -np.inf), starts)
    flat = (scored >= 2) & ~(high - low > FLAT_RANGE)
    return GroupStats(size, scored, flat, variance)


def reward_ranges(names: list[str], env: Ints, rewards: Floats) -> list[RewardRange]:
    """Range of every environment; `env` is the environment's index of each reward (NaN = missing)."""
    return [_range(name, values) for name, values in zip(names, _by_env(len(names), env, rewards), strict=True)]


def _by_env(environments: int, env: Ints, rewards: Floats) -> list[Floats]:
    """The rewards of every environment, missing ones left out."""
    if not environments:
        return []
    good = ~np.isnan(rewards)
    order = np.argsort(env[good], kind="stable")
    ends = np.cumsum(np.bincount(env[good], minlength=environments))
    return np.split(rewards[good][order], ends[:-1])


def _range(name: str, values: Floats) -> RewardRange:
    if not len(values):
        return RewardRange(name, None, None, "missing", 0, None)
    binary = bool(((values == 0.0) | (values == 1.0)).all())
    kind: Literal["binary", "graded"] = "binary" if binary else "graded"
    return RewardRange(name, float(values.min()), float(values.max()), kind, len(values), float(values.mean()))


def only_mixed(stats: GroupStats, group_env: Ints, env: Ints, rewards: Floats) -> bool:
    """Whether flat groups were taken out of the log before it was written.

    Only environments whose rewards often tie can tell. If their tasks' success rates were spread evenly over
    [0, 1], a group of G rewards would be flat with chance 2 / (G + 1); with so many flat groups expected that
    none at all is next to impossible, the answer is yes.
    """
    environments = int(group_env.max(initial=-1)) + 1
    ties = np.array([_tie_chance(values) for values in _by_env(environments, env, rewards)])
    telling = (stats.scored >= 2) & (ties[group_env] >= TIES) if environments else stats.flat
    expected = (2.0 / (stats.scored[telling] + 1.0)).sum()
    return bool(expected >= SURELY_SOME_FLAT and not stats.flat[telling].any())


def _tie_chance(values: Floats) -> float:
    """Chance that two rewards drawn from `values` are equal."""
    _, counts = np.unique(values, return_counts=True)
    return float(((counts / max(1, len(values))) ** 2).sum())
