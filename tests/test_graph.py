"""The graph: relations keep to their side, edges are the sum of their parts, neighbours are the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scheduler_checks import invented_tasks

from envsched_core.config import Config, config_from
from envsched_core.graph import DualRelationGraph, GraphBuilder, Traces, across
from envsched_core.graph import builder as builder_module
from envsched_core.records import TaskSpec
from envsched_core.similarity import CROSS_WEIGHTS, call_roles, combine, cross_blocks, pattern_blocks

Indices = NDArray[np.int64]


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


def plain_neighbours(tasks: list[TaskSpec], env: Indices, traces: Traces, k: int) -> dict[int, list[tuple[int, int]]]:
    """Each task's K nearest of other environments, as (distance, task), the next round first among equal ones."""
    roles = [
        tuple(call_roles(c, t.tools) for c in ([t.calls] if t.calls else traces.calls.get(i, [])))
        for i, t in enumerate(tasks)
    ]
    topology, n = traces.topology(env), len(tasks)
    blocks = cross_blocks(pattern_blocks(roles), np.arange(n), topology.rows[topology.of])
    features, _ = combine(blocks, CROSS_WEIGHTS)
    distance = np.rint((1.0 - (features @ features.T).toarray()) * 1e6).astype(int).tolist()
    known = [i for i in range(n) if features[[i]].nnz]
    found = {}
    for i in known:
        others = sorted((distance[i][j], (j - i) % n, j) for j in known if env[j] != env[i])
        found[i] = [(gap, j) for gap, _, j in others[:k]]
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(2, 6))
def test_cross_edges_are_those_of_a_plain_search(seed: int, k: int, environments: int) -> None:
    tasks, env, traces = shaken(seed, 40, environments)
    roles = GraphBuilder(Config())
    roles.build(tasks, env, traces)
    kinds, kind = roles._kinds()
    rows = across.make_rows(pattern_blocks([*kinds, ()]), kind, traces.topology(env), env)
    edges = across.edges_of(rows, np.arange(len(tasks)), k, 0)
    plain = plain_neighbours(tasks, env, traces, k)
    for i in range(len(tasks)):
        others = edges.cols[edges.rows == i].tolist()
        expected = plain.get(i, [])
        assert len(others) == len(set(others)) == len(expected)
        if 4 * k >= len(rows.lone):  # equally near rows are all looked at
            assert set(others) == {j for _, j in expected}
    weights = np.sum(list(edges.parts.values()), axis=0)
    found = [sorted(1 - weights[edges.rows == i]) for i in plain]
    near = [sorted(d / 1e6 for d, _ in plain[i]) for i in plain]
    assert np.allclose(np.concatenate([*found, []]), np.concatenate([*near, []]), atol=2e-6)


def shaken(seed: int, n: int, environments: int) -> tuple[list[TaskSpec], Indices, Traces]:
    """Tasks in mixed order, some with paths, some with traces, many alike."""
    rng = np.random.default_rng(seed)
    env = rng.integers(environments, size=n)
    names = ["get_x", "delete_x", "send_x"]
    tasks, traces = [], Traces()
    traces.grow(n)
    for i, e in enumerate(env.tolist()):
        path = tuple(rng.choice(names, size=1 + int(rng.integers(2))).tolist())
        tasks.append(TaskSpec(f"e{e}", f"t{i}", text=path[0], calls=path if rng.random() < 0.7 else None))
        if rng.random() < 0.3:
            traces.add(i, rng.integers(2, size=4).astype(float).tolist(), [path])
    return tasks, env, traces


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is done as in a large catalogue."""
    monkeypatch.setattr(builder_module, "few_rows", lambda rows: False)


@pytest.mark.usefixtures("large")
def test_tasks_that_join_extend_the_relations() -> None:
    tasks, env, traces = shaken(1, 60, 4)
    builder = GraphBuilder(config_from({"neighbours": 3}))
    first = builder.build(tasks[:52], env[:52], part(traces, 52))
    traces.changed = {i for i in traces.changed if i >= 52}
    second = builder.build(tasks, env, traces)
    assert second.version == 2
    kept, grown = first.cross.toarray(), second.cross.toarray()
    room = np.diff(second.cross.indptr)[:52] < 12
    assert np.array_equal(grown[:52, :52][room][:, room], kept[room][:, room])
    plain = plain_neighbours(tasks, env, traces, 3)
    assert all(grown[i, j] > 0 for i in range(52, 60) for _, j in plain[i] if room.all())
    assert np.diff(second.cross.indptr)[52:].min() >= 1
    whole = GraphBuilder(config_from({"neighbours": 3})).build(tasks, env, traces)
    assert abs(second.within - whole.within).max() == 0


def part(traces: Traces, n: int) -> Traces:
    """The traces of the first `n` tasks."""
    out = Traces()
    out.grow(n)
    out.load_state_dict(traces.state_dict(), np.where(np.arange(len(traces.mass)) < n, np.arange(len(traces.mass)), -1))
    return out


@pytest.mark.usefixtures("large")
def test_traces_renew_the_edges_of_their_tasks_alone() -> None:
    tasks, env, traces = shaken(2, 80, 4)
    builder = GraphBuilder(config_from({"neighbours": 3}))
    first = builder.build(tasks, env, traces)
    traces.add(5, [0.0, 1.0, 1.0, 1.0], [("send_x", "delete_x")])
    second = builder.build(tasks, env, traces)
    moved = np.unique(np.concatenate(abs(first.cross - second.cross).nonzero()))
    reach = {5, *first.row("cross", 5)[0].tolist(), *second.row("cross", 5)[0].tolist()}
    assert 5 in moved
    near = set(np.concatenate([second.row("cross", i)[0] for i in reach] + [first.row("cross", i)[0] for i in reach]))
    assert set(moved.tolist()) <= reach | near  # the cap may drop a neighbour's weakest
    assert abs(second.within - first.within).max() == 0
    parts = np.sum(list(second.cross_parts.values()), axis=0)
    assert np.allclose(parts, second.cross.data, atol=1e-6)


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_resumed_builder_builds_the_same(size: str, request: pytest.FixtureRequest) -> None:
    if size == "large":
        request.getfixturevalue("large")
    tasks, env, traces = shaken(3, 60, 4)
    config = config_from({"neighbours": 3})
    unbroken, resumed = GraphBuilder(config), GraphBuilder(config)
    saved = unbroken.build(tasks, env, traces)
    traces.add(5, [0.0, 1.0], [("send_x",)])
    blank = Traces()
    blank.grow(len(tasks))
    resumed.build(tasks, env, blank)
    resumed.resume(saved.version, saved)
    again = Traces()
    again.grow(len(tasks))
    again.load_state_dict(traces.state_dict(), np.arange(len(tasks)))
    assert unbroken.build(tasks, env, traces).digest() == resumed.build(tasks, env, again).digest()


@pytest.mark.usefixtures("large")
def test_a_builder_resumed_with_other_tasks_forgets_nothing_that_was_observed() -> None:
    tasks, env, traces = shaken(4, 60, 4)
    config = config_from({"neighbours": 3})
    resumed, blank = GraphBuilder(config), Traces()
    blank.grow(len(tasks))
    resumed.build(tasks, env, blank)
    resumed.resume(7, None)
    traces.changed = {3}
    whole = GraphBuilder(config).build(tasks, env, traces)
    traces.changed = {3}
    again = resumed.build(tasks, env, traces)
    assert again.version == 8
    assert abs(again.cross - whole.cross).max() == 0


@pytest.mark.usefixtures("large")
def test_a_task_of_which_nothing_is_known_any_more_keeps_no_cross_edge() -> None:
    tasks, env, traces = shaken(5, 60, 4)
    traces = Traces()
    traces.grow(len(tasks))
    builder = GraphBuilder(config_from({"neighbours": 3}))
    known = next(i for i, degree in enumerate(np.diff(builder.build(tasks, env, traces).cross.indptr)) if degree)
    tasks[known] = TaskSpec(tasks[known].env, tasks[known].task, text=tasks[known].text)
    assert np.diff(builder.build(tasks, env, traces).cross.indptr)[known] == 0


def test_a_task_described_anew_gets_new_edges() -> None:
    tasks = [TaskSpec("e", str(i), text=text) for i, text in enumerate(["red shirt", "red shirt", "blue file"])]
    builder, traces, env = GraphBuilder(config_from({"neighbours": 1})), Traces(), np.zeros(3, dtype=np.int64)
    traces.grow(3)
    assert builder.build(tasks, env, traces).row("within", 0)[0].tolist() == [1]
    tasks[0] = TaskSpec("e", "0", text="blue file")
    assert builder.build(tasks, env, traces).row("within", 0)[0].tolist() == [2]
