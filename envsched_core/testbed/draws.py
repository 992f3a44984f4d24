"""Compiled keyed randomness, and the door to the compiler for all of the testbed.

Every rollout has a key made of what it is for (seed, stream, step, task, rollout); its k-th draw is a hash
of that key and k. So a rollout does not depend on what was rolled out before it or beside it. The mixer is
SplitMix64, as in keyed.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numba
import numpy as np

__all__ = ["compiled", "inlined", "mixed", "pick", "unit_draw", "weighted"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def compiled(function: F) -> F:
    """Compile with numba on first call.

    Compiled functions take their arguments by position. numba renews kept code when a function's own file
    changes, not when a callee's file does: after editing one of these modules, touch them all.
    """
    return _kept(function)


def inlined(function: F) -> F:
    """The same for a small function that is called everywhere: its text is put where it is called.

    Otherwise numba compiles it anew for every constant argument.
    """
    return _kept(function, inline="always")


def _kept(function: F, **options: Any) -> F:
    """Compiled; the machine code is kept in NUMBA_CACHE_DIR, beside the module, or in the user's cache folder.

    Compiling all takes half a minute, loading what was kept a second. Where numba may write in none of these, as in a
    read-only installation, it says so with a RuntimeError, and the code is compiled for this process alone.
    """
    try:
        return cast(F, numba.njit(cache=True, **options)(function))
    except RuntimeError:
        return cast(F, numba.njit(**options)(function))


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """One of `choices`, all alike (`Generator.choice` takes ten times as long)."""
    return choices[int(rng.integers(len(choices)))]


def weighted(rng: np.random.Generator, chances: Sequence[float]) -> int:
    """A place drawn by its chance; the chances sum to 1."""
    return min(int(np.searchsorted(np.cumsum(chances), rng.random(), side="right")), len(chances) - 1)


_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@compiled
def mixed(key: np.uint64, word: int) -> np.uint64:
    """Stir an integer into a 64-bit key."""
    out = (np.uint64(key) ^ np.uint64(word)) + _STEP
    out = (out ^ (out >> np.uint64(30))) * _FIRST
    out = (out ^ (out >> np.uint64(27))) * _SECOND
    return np.uint64(out ^ (out >> np.uint64(31)))


@compiled
def unit_draw(key: np.uint64, place: int) -> float:
    """The draw at `place` of a key: uniform in [0, 1)."""
    return float(mixed(key, place) >> np.uint64(11)) * 2.0**-53
