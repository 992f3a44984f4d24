"""Formulas: a compiled loop gives what NumPy gives, to the last bit, and without numba nothing is missing."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_checks import drive, encoded, invented_tasks

import envsched_core.keyed
import envsched_core.prediction
import envsched_core.scores
from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.fused import LONG, Fused, _compiled, _numba, compiles
from envsched_core.passes import BLOCK

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")

MODULES = (envsched_core.keyed, envsched_core.prediction, envsched_core.scores)
FORMULAS = {
    formula.formula.__name__: formula
    for module in MODULES
    for formula in vars(module).values()
    if isinstance(formula, Fused)
} | {f"alike_{size}": envsched_core.prediction._alike(size) for size in (1, 2, 3, 8, 9, 10, 33, 64)}
CORE = Path(envsched_core.__file__).parent
SPECIAL = np.array([0.0, -0.0, 1e-300, 1e-12, 1e-9, 0.5, 1.0, 1.0 + 2.0**-52, 3.0, 1e6, 1e12])


def arguments(name: str, rng: np.random.Generator, n: int) -> list[Any]:
    """Arrays of ordinary and of extreme numbers, such as the formula is given."""

    def numbers(top: float = 1e9) -> np.ndarray:
        drawn = np.where(rng.random(n) < 0.5, rng.random(n), 10.0 ** rng.uniform(-12, 9, n))
        return np.minimum(np.where(rng.random(n) < 0.2, rng.choice(SPECIAL, n), drawn), top)

    if name in ("_stirred", "_unit", "_below"):
        hashes = rng.integers(0, 2**64, n, dtype=np.uint64)
        key = np.uint64(rng.integers(0, 2**64 if name == "_stirred" else 2**53, dtype=np.uint64))
        return [hashes] if name == "_unit" else [hashes, key]
    a = numbers() + 1e-9
    total, share = a + numbers() + 1e-9, rng.random(n)
    return {
        "_drawn": [numbers() - 0.5, numbers()],
        "_key": [numbers() - 0.5, share],
        "_usable": [2.0 * share, numbers()],
        "_sd": [a, total, share, a * (total - a) / (total * (total + 1.0))],
    }.get(name, [a, total])


@needs_numba
@pytest.mark.parametrize("name", FORMULAS)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 50))
@settings(max_examples=40, deadline=None)  # the first example waits for the compiler
def test_a_compiled_loop_gives_the_same_bits(name: str, seed: int, n: int) -> None:
    formula, drawn = FORMULAS[name], arguments(name, np.random.default_rng(seed), n)
    formula._loop = formula._loop or _compiled(formula.formula, tuple(drawn))
    assert formula._loop is not formula.formula
    plain, loop = formula.formula(*drawn), formula._loop(*drawn)
    assert plain.dtype == loop.dtype
    assert plain.tobytes() == loop.tobytes()


def test_every_formula_is_among_them() -> None:
    """A new one in another module must be held to the same."""
    found = {path for path in CORE.rglob("*.py") if "@Fused" in path.read_text(encoding="utf-8")}
    assert found == {Path(str(module.__file__)) for module in MODULES}


def broken() -> ModuleType:
    """A numba that starts and cannot compile."""
    return ModuleType("numba")


@pytest.mark.parametrize("numba", [None, broken()], ids=["missing", "broken"])
def test_without_numba_the_formula_stays(numba, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", numba)
    _numba.cache_clear()
    try:
        twice = Fused(lambda x: x * 2.0)
        assert np.array_equal(twice(np.ones(LONG)), np.full(LONG, 2.0))
        assert not compiles()
    finally:
        _numba.cache_clear()


@needs_numba
def test_threads_may_come_first_together() -> None:
    twice, together = Fused(lambda x: x * 2.0), Barrier(4)

    def call(_: int) -> Any:
        together.wait()
        return twice(np.ones(LONG))

    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, np.full(LONG, 2.0)) for found in pool.map(call, range(4)))


@needs_numba
def test_short_arrays_never_wait_for_a_compiler() -> None:
    twice = Fused(lambda x: x * 2.0)
    twice(np.ones(LONG - 1))
    assert twice._loop is None
    twice(np.ones(LONG))
    assert twice._loop not in (None, twice.formula)


def test_a_block_is_long_enough() -> None:
    """Passes over all tasks go block by block: with a longer LONG nothing would ever be compiled."""
    assert LONG <= BLOCK


@needs_numba
@pytest.mark.parametrize("name", ["envsched", "mopps", "dapo"])
def test_decisions_do_not_depend_on_numba(name: str, monkeypatch) -> None:
    def decided() -> list[bytes]:
        scheduler = make_scheduler(name, Config(batch_size=8, group_size=8))
        scheduler.register(invented_tasks())
        return encoded(drive(scheduler, 4))

    plain = decided()
    monkeypatch.setattr("envsched_core.fused.LONG", 1)
    assert decided() == plain
    key = envsched_core.scores._key
    assert key._loop not in (None, key.formula)  # it was used
