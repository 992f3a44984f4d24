"""Nearest rows: exact is what a plain sort finds, lists find nearly all of it, nothing barred is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from envsched_core.graph import neighbours
from envsched_core.graph.neighbours import Bars, nearest, nearest_in_lists, next_round
from envsched_core.similarity import Matrix


def unit_rows(n: int, width: int, seed: int, *, clusters: int = 0) -> Matrix:
    """Sparse rows of length 1, in clusters or anywhere."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n, width)) * (rng.random((n, width)) < 0.3)
    if clusters:
        dense = 0.3 * dense + rng.random((clusters, width))[rng.integers(clusters, size=n)]
    dense[:, 0] += 1e-3
    return sparse.csr_array(dense / np.linalg.norm(dense, axis=1, keepdims=True))


def sorted_plainly(features: Matrix, k: int, bars: Bars, query: int) -> list[int]:
    """What `nearest` promises, by a sort of everything."""
    n = features.shape[0]
    distance = np.rint((1.0 - (features[[query]] @ features.T).toarray().ravel()) * 1e6)
    allowed = [j for j in range(n) if bars.label[j] != bars.barred[query]]
    return sorted(allowed, key=lambda j: (distance[j], (j - query) % n))[:k]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 150), st.integers(1, 6), st.integers(1, 5))
def test_exact_is_a_plain_sort(seed: int, n: int, k: int, labels: int) -> None:
    features = unit_rows(n, 3, seed)
    features.data = features.data.round(1)  # many equal ones
    label = np.random.default_rng(seed).integers(labels, size=n)
    bars = Bars(label, label)
    found = nearest(features, k, np.arange(n), bars)
    for query in range(n):
        assert [j for j in found.rows[query].tolist() if j >= 0] == sorted_plainly(features, k, bars, query)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    features, everyone = unit_rows(50, 20, 1), np.arange(50)
    whole = nearest(features, 4, everyone, Bars(everyone, everyone))
    monkeypatch.setattr(neighbours, "BLOCK_BYTES", 8 * 50 * 7)
    monkeypatch.setattr(neighbours, "DENSE_BYTES", 0)
    in_blocks = nearest(features, 4, everyone, Bars(everyone, everyone))
    assert np.array_equal(whole.rows, in_blocks.rows)


@pytest.mark.parametrize(("dimensions", "found_share", "similarity"), [(60, 0.95, 0.999), (24, 0.5, 0.99)])
def test_lists_find_nearly_all_and_nothing_barred(
    dimensions: int, found_share: float, similarity: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "LIST_ROWS", 40)
    monkeypatch.setattr(neighbours, "LISTS_READ", 12)
    monkeypatch.setattr(neighbours, "DIMENSIONS", dimensions)
    monkeypatch.setattr(neighbours, "QUERIES_AT_ONCE", 700)
    features = unit_rows(2000, 60, 3, clusters=30)
    label = np.random.default_rng(0).integers(100, size=2000)
    queries = np.arange(0, 2000, 2)
    bars = Bars(label, label[queries])
    exact, found = nearest(features, 8, queries, bars), nearest_in_lists(features, 8, queries, bars, seed=0)
    assert np.all(found.rows >= 0)
    assert not np.any(label[found.rows] == label[queries][:, None])
    assert (found.distance <= exact.distance[:, -1:] + 1).mean() > found_share
    assert (1e6 - found.distance).sum() > similarity * (1e6 - exact.distance).sum()
    again = nearest_in_lists(features, 8, queries, bars, seed=0)
    assert np.array_equal(found.rows, again.rows)


@given(st.integers(1, 300), st.integers(1, 20), st.integers(0, 99), st.sampled_from([np.float32, np.float64]))
def test_the_largest_of_each_row(width: int, most: int, seed: int, kind: type) -> None:
    values = np.random.default_rng(seed).integers(2 * width, size=(3, width)).astype(kind)  # some are equal
    columns = neighbours._largest(values, most)
    largest = np.sort(np.take_along_axis(values, columns, axis=1), axis=1)
    assert np.array_equal(largest, np.sort(values, axis=1)[:, -most:])


def test_turns_go_round() -> None:
    assert next_round(np.array([3, 3]), np.array([1, 3]), 5).tolist() == [3, 0]
