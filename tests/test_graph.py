"""The graph: relations keep to their side, edges are the sum of their parts, neighbours are the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_checks import invented_tasks

from envsched_core.config import Config, config_from
from envsched_core.graph import DualRelationGraph, GraphBuilder, Traces
from envsched_core.records import TaskSpec


def built(tasks: list[TaskSpec], config: Config | None = None, traces: Traces | None = None) -> DualRelationGraph:
    names = sorted({t.env for t in tasks})
    env = np.array([names.index(t.env) for t in tasks], dtype=np.int64)
    if traces is None:
        traces = Traces()
        traces.grow(len(tasks))
    return GraphBuilder(config or Config()).build(tasks, env, traces)


@pytest.fixture(scope="module")
def graph() -> DualRelationGraph:
    return built(invented_tasks(20))


def test_relations_keep_to_their_side(graph: DualRelationGraph) -> None:
    env = [t.env for t in invented_tasks(20)]
    for matrix, same in ((graph.within, True), (graph.cross, False)):
        rows, cols = matrix.nonzero()
        assert len(rows)
        assert all((env[i] == env[j]) is same and i != j for i, j in zip(rows, cols, strict=True))


def test_relations_are_symmetric_weights_are_sums_of_parts(graph: DualRelationGraph) -> None:
    for matrix, parts in ((graph.within, graph.within_parts), (graph.cross, graph.cross_parts)):
        assert abs(matrix - matrix.T).max() == 0
        assert matrix.data.min() > 0
        assert matrix.data.max() <= 1
        assert np.allclose(np.sum(list(parts.values()), axis=0), matrix.data, atol=1e-6)


def test_arrays_round_trip(graph: DualRelationGraph) -> None:
    again = DualRelationGraph.from_arrays(graph.version, graph.arrays(), graph.pattern_names)
    assert again.digest() == graph.digest()
    assert abs(again.cross - graph.cross).max() == 0


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_degree_is_capped(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = [TaskSpec("e", f"t{i}", text=" ".join(rng.choice(list("abcdef"), 3))) for i in range(30)]
    graph = built(tasks, config_from({"neighbours": k}))
    assert np.diff(graph.within.indptr).max(initial=0) <= 4 * k


def test_nearest_text_is_a_neighbour() -> None:
    texts = ["refund the blue shirt", "refund the red shirt", "move the old file", "move the new file"]
    graph = built([TaskSpec("e", str(i), text=t) for i, t in enumerate(texts)], config_from({"neighbours": 1}))
    index, weight = graph.row("within", 0)
    assert index.tolist() == [1]
    assert 0 < weight[0] <= 1


def test_patterns_follow_roles_not_names() -> None:
    tasks = [
        TaskSpec("shop", "a", calls=("get_order", "refund_payment")),
        TaskSpec("bank", "a", calls=("read_account", "pay_bill")),
        TaskSpec("bank", "b", calls=("delete_account",)),
        TaskSpec("chess", "a"),
    ]
    graph = built(tasks)
    assert graph.pattern[0] == graph.pattern[1] != graph.pattern[2]
    assert graph.pattern[3] == -1
    assert graph.pattern_names[graph.pattern[0]] == "look up > pay"
    assert graph.row("cross", 0)[0].tolist()[0] == 1


def test_observed_calls_and_rewards_link_tasks_without_reference_paths() -> None:
    tasks = [TaskSpec(env, "a") for env in ("x", "y", "z")]
    traces = Traces()
    traces.grow(3)
    assert built(tasks, traces=traces).cross.nnz == 0
    traces.add(0, [0.0, 1.0], [("get_order", "send_email")])
    traces.add(1, [0.0, 1.0], [("fetch_mail", "notify_user")])
    traces.add(2, [0.5, 0.7], [("delete_row",)])
    graph = built(tasks, config_from({"neighbours": 1}), traces)
    assert 1 in graph.row("cross", 0)[0]
    assert graph.pattern[0] == graph.pattern[1]


def test_no_words_no_tools_no_tasks() -> None:
    assert built([TaskSpec("e", "a"), TaskSpec("e", "b")]).within.nnz == 0
    assert built([TaskSpec("e", "a", text="one")]).within.nnz == 0
    assert built([]).pattern.shape == (0,)


def test_unchanged_environments_keep_their_edges() -> None:
    builder, traces = GraphBuilder(Config()), Traces()
    tasks = invented_tasks(6)
    names = sorted({t.env for t in tasks})
    traces.grow(len(tasks))
    first = builder.build(tasks, np.array([names.index(t.env) for t in tasks]), traces)
    traces.grow(len(tasks) + 1)
    more = [*tasks, TaskSpec("new", "t0", text="refund")]
    second = builder.build(more, np.array([[*names, "new"].index(t.env) for t in more]), traces)
    assert (first.version, second.version) == (1, 2)
    assert abs(second.within[: len(tasks), : len(tasks)] - first.within).max() == 0
