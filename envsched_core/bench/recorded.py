"""Recorded runs as benches take them: by name, with the groups that can be compared, or why there are too few."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from envsched_core.errors import ConfigError
from envsched_core.replay import RecordedPool, load_pool

from .assess import FEWEST_GROUPS

__all__ = ["Job", "comparable", "named", "pool_of", "unusable", "usable"]


class Job(NamedTuple):
    """One pass of one scheduler over one run: what a process does."""

    run: Path
    scheduler: str
    seed: int


def comparable(pool: RecordedPool) -> RecordedPool:
    """The pool without groups of fewer than two rewards, which can be neither mixed nor flat."""
    return pool._replace(groups=tuple(group for group in pool.groups if len(group.rewards) > 1))


def unusable(pool: RecordedPool) -> str:
    """Why schedulers cannot be compared on a pool of comparable groups; empty when they can."""
    if len(pool.groups) < FEWEST_GROUPS:
        return f"{len(pool.groups)} groups have two or more rewards, and at least {FEWEST_GROUPS} are needed"
    if pool.manifest.report.get("kept_only"):
        return "it seems to hold only groups with mixed rewards, so what flat ones cost is not in it"
    return ""


def named(runs: Sequence[Path]) -> dict[str, Path]:
    """Each run by its folder's name, or by its whole path where two have the same name."""
    short = [run.resolve().name for run in runs]
    return {name if short.count(name) == 1 else str(run): run for name, run in zip(short, runs, strict=True)}


@lru_cache(maxsize=2)
def pool_of(run: Path) -> RecordedPool:
    """The comparable groups of a run; the last two are kept, since a process gets a run's jobs one after the other."""
    return comparable(load_pool(run))


def usable(runs: Sequence[Path]) -> tuple[dict[str, Path], dict[Path, RecordedPool], dict[str, str]]:
    """The runs that can be compared, by name; their pools; and why each of the others cannot.

    Raises:
        ConfigError: none can. StoreError: one holds no groups.
    """
    every = named(runs)
    pools = {run: pool_of(run) for run in every.values()}
    left_out = {name: reason for name, run in every.items() if (reason := unusable(pools[run]))}
    kept = {name: run for name, run in every.items() if name not in left_out}
    if not kept:
        raise ConfigError("no run can be compared: " + "; ".join(f"{name}: {why}" for name, why in left_out.items()))
    return kept, pools, left_out
