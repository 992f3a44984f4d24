"""A placebo keeps the shape of a relation and nothing of its meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_checks import drive, encoded, invented_tasks
from scipy import sparse

import envsched_core.graph.builder as builder_module
from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.graph import DualRelationGraph
from envsched_core.keyed import mix
from envsched_core.placebo import shuffled

BOTH = {"shuffle_within": True, "shuffle_cross": True}


def relation(n, pairs, rng):
    """A symmetric relation over `pairs`, its weight the sum of two parts."""
    first, second = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    parts = {name: rng.random(len(first)).astype(np.float32) / 2 for name in ("one", "two")}
    order = np.lexsort((np.concatenate([second, first]), np.concatenate([first, second])))
    both = {name: np.concatenate([part, part])[order] for name, part in parts.items()}
    rows, cols = np.concatenate([first, second])[order], np.concatenate([second, first])[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
    return sparse.csr_array((both["one"] + both["two"], cols.astype(np.int32), indptr), shape=(n, n)), both


def graph_of(env, degree, seed):
    """A random graph that keeps the rules of both relations."""
    rng, n = np.random.default_rng(seed), len(env)
    drawn = [tuple(sorted(pair)) for pair in rng.integers(0, n, (degree * n, 2)).tolist()]
    within, parts_within = relation(n, {(i, j) for i, j in drawn if i != j and env[i] == env[j]}, rng)
    cross, parts_cross = relation(n, {(i, j) for i, j in drawn if env[i] != env[j]}, rng)
    parts = {"within": parts_within, "cross": parts_cross}
    return DualRelationGraph(3, {"within": within, "cross": cross}, parts, np.zeros(n, np.int32), ["a"])


def hashes(n):
    return mix(np.arange(n, dtype=np.uint64), 99)


def degrees(matrix):
    return np.diff(matrix.indptr)


@given(st.integers(2, 40), st.integers(1, 5), st.integers(1, 6), st.integers(0, 10**6))
def test_degrees_weights_parts_and_rules_are_kept(n, environments, degree, seed):
    env = np.random.default_rng(seed).integers(0, environments, n)
    real = graph_of(env, degree, seed)
    placebo = shuffled(real, env, hashes(n), config_from({**BOTH, "seed": seed % 7}))
    assert (placebo.version, placebo.pattern_names) == (real.version, real.pattern_names)
    for name in ("within", "cross"):
        was, now = getattr(real, name), getattr(placebo, name)
        parts = placebo.within_parts if name == "within" else placebo.cross_parts
        assert (now != now.T).nnz == 0
        assert now.has_canonical_format
        assert sorted(now.data.tolist()) == sorted(was.data.tolist())
        assert np.array_equal(parts["one"] + parts["two"], now.data)
        rows = np.repeat(np.arange(n), degrees(now))
        assert np.all((env[rows] == env[now.indices]) == (name == "within"))
        assert np.all(rows != now.indices)
        assert (now.data.dtype, now.indices.dtype, now.indptr.dtype) == (
            was.data.dtype,
            was.indices.dtype,
            was.indptr.dtype,
        )
    assert np.array_equal(degrees(real.cross), degrees(placebo.cross))
    for e in range(environments):
        assert sorted(degrees(real.within)[env == e]) == sorted(degrees(placebo.within)[env == e])


def shared_edges(one, other):
    return (one != 0).multiply(other != 0).nnz / max(one.nnz, 1)


def test_little_of_a_sparse_relation_is_left_where_it_was():
    env = np.repeat(np.arange(10), 60)
    real = graph_of(env, 30, seed=1)
    placebo = shuffled(real, env, hashes(600), config_from(BOTH))
    assert shared_edges(real.within, placebo.within) < 0.15
    assert shared_edges(real.cross, placebo.cross) < 0.15


def test_environments_that_were_tied_come_apart():
    env = np.repeat(np.arange(10), 30)
    rng = np.random.default_rng(0)
    near = {(min(i, j), max(i, j)) for i, j in rng.integers(0, 300, (6000, 2)).tolist() if env[i] // 2 == env[j] // 2}
    cross, parts = relation(300, {(i, j) for i, j in near if env[i] != env[j]}, rng)
    within, none = relation(300, set(), rng)
    graph = DualRelationGraph(
        1, {"within": within, "cross": cross}, {"within": none, "cross": parts}, np.zeros(300), []
    )
    placebo = shuffled(graph, env, hashes(300), config_from({"shuffle_cross": True}))
    rows = np.repeat(np.arange(300), degrees(placebo.cross))
    # Of nine other environments one was the partner of all edges; by chance it is the partner of a ninth.
    assert 0.05 < np.mean(env[rows] // 2 == env[placebo.cross.indices] // 2) < 0.2


def test_only_what_is_named_is_shuffled_and_nothing_by_default():
    env = np.repeat(np.arange(4), 20)
    real = graph_of(env, 8, seed=2)
    assert shuffled(real, env, hashes(80), config_from({})) is real
    for name, other in (("within", "cross"), ("cross", "within")):
        placebo = shuffled(real, env, hashes(80), config_from({f"shuffle_{name}": True}))
        assert (getattr(placebo, name) != getattr(real, name)).nnz > 0
        assert (getattr(placebo, other) != getattr(real, other)).nnz == 0


def test_the_seed_decides():
    env = np.repeat(np.arange(4), 20)
    real = graph_of(env, 8, seed=2)
    first, again, other = (shuffled(real, env, hashes(80), config_from({**BOTH, "seed": s})) for s in (1, 1, 2))
    assert first.digest() == again.digest() != other.digest()


@pytest.mark.parametrize("name", ["within", "cross"])
def test_a_scheduler_installs_it_at_every_rebuild(name):
    # Nothing that is chosen may depend on the edges, so that both see the same rollouts and build the same graph.
    deaf = {"tau_within_grid": (0.0,), "tau_cross_grid": (0.0,), "weight_similarity": 0.0}
    values = {"batch_size": 8, "refresh_groups": 16, **deaf}
    real = make_scheduler("envsched", config_from(values))
    placebo = make_scheduler(f"envsched-shuffled-{name}", config_from(values))
    for scheduler in (real, placebo):
        scheduler.register(invented_tasks())
    for first in (0, 4):
        assert (getattr(real.graph, name) != getattr(placebo.graph, name)).nnz > 0
        assert sorted(degrees(getattr(real.graph, name))) == sorted(degrees(getattr(placebo.graph, name)))
        for scheduler in (real, placebo):
            drive(scheduler, 4, first=first)
    assert placebo.graph.version > 1


@pytest.mark.parametrize("name", ["envsched", "envsched-shuffled-cross"])
def test_a_resumed_run_of_a_large_catalogue_extends_the_true_relation(name, monkeypatch):
    monkeypatch.setattr(builder_module, "few_rows", lambda rows: False)
    unbroken, resumed = (make_scheduler(name, config_from({"batch_size": 8, "refresh_groups": 16})) for _ in range(2))
    unbroken.register(invented_tasks(60))
    drive(unbroken, 3)
    resumed.register(invented_tasks(60))
    resumed.load_state_dict(unbroken.state_dict())
    assert encoded(drive(unbroken, 5, first=3)) == encoded(drive(resumed, 5, first=3))
    assert unbroken.graph.digest() == resumed.graph.digest()
    assert unbroken.graph.version > 1
