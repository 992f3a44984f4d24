"""RewardMoments: discounting and the mapping of rewards are exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.moments import RewardMoments, is_flat, population_variance
from envsched_core.records import GroupResult

rewards = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def moments(half_lives: tuple[float, ...] = (0.0, 4.0), **ranges: tuple[float, float]) -> RewardMoments:
    out = RewardMoments(half_lives, ranges)
    out.grow(np.array([0, 0, 1]), ["a", "b"])
    return out


def feed(m: RewardMoments, stream: list[tuple[int, int, list[float]]]) -> None:
    for step, task, r in stream:
        factor = m.discount.advance(step)
        if factor is not None:
            m.rescale(factor)
        env = "ab"[m.env[task]]
        if not m.holds(int(m.env[task]), env, r):
            m.fit_range(int(m.env[task]), env, r)
        m.add([m.group(task, GroupResult("g", env, str(task), tuple(r)), step)], [0.5])


@given(st.lists(st.tuples(st.integers(0, 2), rewards), max_size=12), st.integers(1, 200))
def test_sums_are_discounted_by_age(groups: list[tuple[int, list[float]]], gap: int) -> None:
    m = moments()
    stream = [(i * gap, task, r) for i, (task, r) in enumerate(groups)]
    feed(m, stream)
    now = m.discount.now
    for h, life in enumerate((0.0, 4.0)):
        wanted = sum(len(r) * (0.5 ** ((now - step) / life) if life else 1.0) for step, task, r in stream if task == 1)
        assert m.n[h][1] * m.discount.scale()[h] == pytest.approx(wanted, rel=1e-9, abs=1e-300)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.floats(-5, 5), min_size=2, max_size=5)), min_size=1, max_size=8)
)
def test_a_widened_range_equals_one_known_from_the_start(groups: list[tuple[int, list[float]]]) -> None:
    stream = [(i, task, r) for i, (task, r) in enumerate(groups)]
    late = moments()
    feed(late, stream)
    ends = {"ab"[e]: (float(late.low[e]), float(late.high[e])) for e in range(2)}
    early = moments(**ends)
    feed(early, stream)
    for name in ("n", "s", *RewardMoments.ENV_SUMS):
        assert np.allclose(getattr(late, name), getattr(early, name), rtol=1e-6, atol=1e-9)


def test_binary_environments_have_dispersion_one() -> None:
    m = moments()
    feed(m, [(0, 0, [0, 1, 1])] + [(1, 2, [0.5, 0.6, 0.4])] * 9)
    assert m.dispersion(0)[0] == 1.0
    assert m.dispersion(0)[1] < 0.2


def test_concentration_tells_mixed_tasks_from_split_environments() -> None:
    m = moments()
    feed(m, [(0, 0, [0, 0, 0, 0]), (0, 1, [1, 1, 1, 1]), (0, 2, [0, 1, 0, 1])] * 6)
    split, mixed = m.concentration(0)
    assert split < 0.3 < 1.0 < mixed


@pytest.mark.parametrize(
    ("values", "flat"),
    [((1.0, 1.0), True), ((0.0, 1.0), False), ((1.0,), True), ((), True), ((0.3, 0.3 + 1e-12), True)],
)
def test_flat_groups(values: tuple[float, ...], flat: bool) -> None:
    assert is_flat(values) is flat


def test_thresholds_widen_what_is_flat() -> None:
    assert not is_flat((0.0, 0.1))
    assert is_flat((0.0, 0.1), min_range=0.1)
    assert is_flat((0.0, 0.1), min_std=0.05)


def test_population_variance() -> None:
    assert population_variance([0.0, 1.0]) == 0.25
    assert population_variance([3.0]) == 0.0
