"""Coverage as a factor: 1 where a cell was visited as much as usual, and never rising with picks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.problem import Cells

counts = st.lists(st.floats(0, 500), min_size=1, max_size=8).map(np.array)
weights = st.floats(0, 3)


def cells(visits: np.ndarray, weight: float, shape: str = "factor") -> Cells:
    return Cells("coverage_environment", np.arange(len(visits)), visits, weight, shape)  # type: ignore[arg-type]


def effect(found: Cells, picked: np.ndarray | None = None) -> np.ndarray:
    """After `picked` picks of each cell; before any when None."""
    picked = np.zeros(len(found.counts)) if picked is None else picked
    return np.array(found.effect(picked, found.usual()))


@given(counts, weights, st.sampled_from(["factor", "turn"]))
def test_no_pick_raises_any_effect(visits, weight, shape) -> None:
    found = cells(visits, weight, shape)
    before = effect(found)
    for cell in range(len(visits)):
        after = effect(found, np.eye(len(visits))[cell])
        assert (after <= before).all()
        assert np.array_equal(np.delete(after, cell), np.delete(before, cell))


@given(counts, weights)
def test_a_factor_is_one_at_the_mean_and_falls_with_visits(visits, weight) -> None:
    factor = effect(cells(visits, weight))
    assert (factor > 0).all()
    assert ((factor >= 1) | (visits > visits.mean() - 1e-9)).all()
    assert (np.diff(factor[np.argsort(visits)]) <= 1e-12).all()
    level = effect(cells(np.full(len(visits), visits[0]), weight))
    assert level == pytest.approx(1.0)


def test_a_factor_means_the_same_at_every_level_of_value() -> None:
    factor = effect(cells(np.array([0.0, 2.0, 4.0]), 1.0))
    assert factor == pytest.approx([3.0, 1.0, 0.6])


def test_turns_count_visits_down() -> None:
    assert effect(cells(np.array([0.0, 2.0]), 1.0, "turn"), np.array([1.0, 0.0])).tolist() == [-1.0, -2.0]


@given(counts, weights, st.integers(0, 7))
def test_a_cell_alone_is_as_among_all(visits, weight, cell) -> None:
    found, picked = cells(visits, weight), np.arange(len(visits), dtype=float)
    cell %= len(visits)
    assert found.effect_of(float(visits[cell] + picked[cell]), found.usual()) == effect(found, picked)[cell]
