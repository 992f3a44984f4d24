"""Features: columns that depend on the task alone, and a prediction that splits into them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_checks import invented_tasks

from envsched_core.catalogue import Catalogue
from envsched_core.features import ENV_FROM, LENGTH_FROM, PARTS, STARTS, TOOLS_FROM, Features
from envsched_core.records import TaskSpec, Tool
from envsched_core.regression import Regression

ODD = [
    TaskSpec("shop", "empty", text=""),
    TaskSpec("shop", "no tools", text="refund"),
    TaskSpec("bank", "huge", text="pay 12 bills\n" * 20_000),
    TaskSpec("bank", "unicode", text="Überweise 40 € an 李雷 🙂 \u2028\x00", tools=(Tool("überweisen_jetzt"),)),
    TaskSpec("bank", "long path", text="x", calls=("a",) * 10_000),
]

specs = st.builds(
    TaskSpec,
    st.sampled_from(["shop", "bank", "files"]),
    st.uuids().map(str),
    text=st.text(max_size=60) | st.sampled_from(["refund the order", "send money to anna"]),
    tools=st.lists(st.sampled_from([Tool("get_order"), Tool("send_money")]), max_size=2).map(tuple),
    calls=st.none() | st.lists(st.just("get_order"), max_size=9).map(tuple),
)


def features_of(tasks: list[TaskSpec]) -> Features:
    catalogue, features = Catalogue(), Features()
    catalogue.add(tasks)
    features.extend(catalogue.tasks, catalogue.env, len(catalogue.env_names))
    return features


def weights(features: Features, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=features.columns)


@given(st.lists(specs, min_size=1, max_size=12))
def test_one_pass_over_all_tasks_is_their_rows_times_the_weights(tasks) -> None:
    features = features_of(tasks)
    w = weights(features)
    assert features.dot(w) == pytest.approx(features.rows(np.arange(len(tasks))) @ w, abs=1e-5)


@given(st.lists(specs, min_size=1, max_size=6))
def test_parts_sum_to_the_prediction(tasks) -> None:
    features = features_of(tasks)
    w = weights(features)
    everyone = np.arange(len(tasks))
    parts = features.split(everyone, w)
    assert parts.shape == (len(tasks), len(PARTS))
    assert parts.sum(axis=1) == pytest.approx(features.rows(everyone) @ w, abs=1e-9)


def test_each_part_holds_its_own_columns() -> None:
    features = features_of([TaskSpec("shop", "a", text="refund the order 7", tools=(Tool("get_order"),), calls=("x",))])
    for k, part in enumerate(PARTS):
        w = np.zeros(features.columns)
        w[STARTS[k] : [*STARTS, features.columns][k + 1]] = 1.0
        (parts,) = features.split(np.array([0]), w)
        assert parts[k] > 0, part
        assert np.count_nonzero(parts) == 1


@given(st.lists(specs, min_size=1, max_size=10, unique_by=lambda t: t.task), st.integers(0, 10))
def test_tasks_that_join_later_change_no_bit(tasks, first) -> None:
    catalogue, grown = Catalogue(), Features()
    for part in (tasks[:first], tasks[first:]):
        catalogue.add(part)
        grown.extend(part, catalogue.env, len(catalogue.env_names))
    at_once = features_of(tasks)
    w = weights(at_once)
    assert np.array_equal(grown.dot(w), at_once.dot(w))
    assert np.array_equal(grown.split(range_of(tasks), w), at_once.split(range_of(tasks), w))


@given(st.lists(specs, min_size=1, max_size=12))
def test_the_text_adds_up_as_a_row_of_lengths_and_words_does_to_the_last_bit(tasks) -> None:
    features, text = features_of(tasks), slice(LENGTH_FROM, TOOLS_FROM)
    w = np.zeros(features.columns)
    w[text] = weights(features)[text]
    rows = features.rows(range_of(tasks))[:, text].astype(np.float32)
    assert np.array_equal(features.dot(w), rows @ w[text].astype(np.float32))


@given(st.lists(specs, min_size=2, max_size=10, unique_by=lambda t: t.task), st.randoms())
def test_the_order_of_joining_changes_no_shared_column(tasks, random) -> None:
    mixed = random.sample(tasks, len(tasks))
    one, other = features_of(tasks), features_of(mixed)
    rows = one.rows(np.arange(len(tasks)))[:, :ENV_FROM].toarray()
    same = other.rows(np.array([mixed.index(task) for task in tasks]))[:, :ENV_FROM].toarray()
    assert np.array_equal(rows, same)


@given(st.lists(specs, min_size=2, max_size=10, unique_by=lambda t: t.task), st.integers(1, 9))
def test_tasks_that_join_later_change_no_earlier_row(tasks, first) -> None:
    catalogue, features = Catalogue(), Features()
    catalogue.add(tasks[:first])
    features.extend(catalogue.tasks, catalogue.env, len(catalogue.env_names))
    known, columns = len(features), features.columns
    before = features.rows(np.arange(known)).toarray()
    fresh = catalogue.add(tasks[first:])
    features.extend([catalogue.tasks[i] for i in fresh], catalogue.env, len(catalogue.env_names))
    after = features.rows(np.arange(known)).toarray()
    assert np.array_equal(after[:, :columns], before)
    assert not after[:, columns:].any()
    assert np.array_equal(
        features.rows(np.arange(len(tasks))).toarray(), features_of(tasks).rows(range_of(tasks)).toarray()
    )


def range_of(tasks: list[TaskSpec]) -> np.ndarray:
    return np.arange(len(tasks))


def test_odd_tasks_have_finite_rows_of_bounded_length() -> None:
    features = features_of(ODD)
    rows = features.rows(range_of(ODD)).toarray()
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) < 4).all()
    words = rows[:, STARTS[2] : STARTS[3]]
    assert np.linalg.norm(words, axis=1) == pytest.approx([0, 1, 1, 1, 1])
    tools = rows[:, STARTS[3] : STARTS[4]]
    assert np.linalg.norm(tools, axis=1) == pytest.approx([0, 0, 0, 1, 0])
    assert np.isfinite(features.dot(weights(features))).all()


def test_nothing_at_all() -> None:
    features = Features()
    features.extend([], np.zeros(0, dtype=np.int64), 0)
    assert features.dot(np.zeros(features.columns)).shape == (0,)
    nobody = np.zeros(0, dtype=np.int64)
    assert features.rows(nobody).shape == (0, features.columns)
    assert features.split(nobody, np.zeros(features.columns)).shape == (0, len(PARTS))


def test_a_task_described_anew_is_read_anew() -> None:
    catalogue, regression = Catalogue(), Regression((0.0,))
    catalogue.add([TaskSpec("shop", "a", text="refund"), TaskSpec("shop", "b", text="refund")])
    regression.grow(catalogue)
    before = regression.features.rows(np.arange(2)).toarray()
    catalogue.add([TaskSpec("shop", "a", text="cancel everything now"), TaskSpec("bank", "c")])
    regression.grow(catalogue)
    after = regression.features.rows(np.arange(3)).toarray()
    assert not np.array_equal(after[0, : before.shape[1]], before[0])
    assert np.array_equal(after[1, : before.shape[1]], before[1])
    assert np.array_equal(after, features_of(catalogue.tasks).rows(np.arange(3)).toarray())


def test_equal_lengths_are_kept_once() -> None:
    texts = ("refund now", "cancel it", "pay 3 bills")
    features = features_of([TaskSpec("shop", text, text=text) for text in texts])
    assert features._lengths.shape[0] == 2


def test_equal_sets_of_tools_are_kept_once() -> None:
    features = features_of(invented_tasks())
    assert features._tools.shape[0] == 3
