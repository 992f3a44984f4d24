"""Passes over all tasks: blocks cover everything, the largest and the ranks are those of a sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.passes import BLOCK, BUCKETS, blocks, places_in_groups, ranks, runs, threshold, top

SHAPES = ("uniform", "equal", "nearly equal", "few", "wild")


def numbers(seed: int, shape: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return {
        "uniform": rng.random(n),
        "equal": np.full(n, 0.3),
        "nearly equal": 0.3 + 1e-10 * rng.random(n),
        "few": np.round(rng.random(n), 1),
        "wild": rng.standard_cauchy(n),
    }[shape]


any_numbers = st.builds(numbers, st.integers(0, 10_000), st.sampled_from(SHAPES), st.integers(1, 400))


def test_blocks_cover_everything_once() -> None:
    for n in (0, 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1):
        everything = np.arange(n)
        assert [i for part in blocks(n) for i in everything[part].tolist()] == everything.tolist()


@given(any_numbers, st.integers(0, 500))
def test_top_is_the_head_of_a_stable_sort(values: np.ndarray, most: int) -> None:
    assert top(values, most).tolist() == np.argsort(-values, kind="stable")[:most].tolist()


def test_top_passes_over_what_is_barred() -> None:
    assert top(np.array([1.0, -np.inf, 2.0, -np.inf]), 4).tolist() == [2, 0]


@given(any_numbers, st.data())
def test_ranks_count_what_is_larger(values: np.ndarray, data: st.DataObject) -> None:
    chosen = values[data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=6))]
    assert ranks(chosen, values).tolist() == [1 + int((values > one).sum()) for one in chosen]


def test_ranks_and_top_of_many() -> None:
    values = np.random.default_rng(0).gumbel(size=4 * BUCKETS)
    order = np.argsort(-values, kind="stable")
    assert top(values, 900).tolist() == order[:900].tolist()
    places = np.array([0, 5, 1000, len(values) - 1])
    assert ranks(values[order[places]], values).tolist() == (1 + places).tolist()


@given(any_numbers, st.integers(1, 500))
def test_a_threshold_lets_something_in(values: np.ndarray, most: int) -> None:
    assert (values >= threshold(values, most)).any()


@given(st.lists(st.integers(0, 5), max_size=40))
def test_places_in_groups(groups: list[int]) -> None:
    wanted = [groups[:i].count(group) for i, group in enumerate(groups)]
    assert places_in_groups(np.array(groups, dtype=np.int64)).tolist() == wanted
    assert runs(np.array(groups, dtype=np.int64)).tolist() == [i for length in groups for i in range(length)]
