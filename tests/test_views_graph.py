from __future__ import annotations

import numpy as np
import pytest
from graph_runs import HOSTILE_ENVS, write_hostile_run
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from small_run import opened, write_log, write_run

from envsched_core import views
from envsched_core.config import Config
from envsched_core.errors import UnknownTaskError
from envsched_core.replay import replay_pool
from envsched_core.views.graph_edges import RELATIONS, Wanted, edge_table
from envsched_core.views.graph_rings import rings
from envsched_core.views.layout import disc, layout
from envsched_core.views.run_view import RunView


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> RunView:
    return opened(write_run(tmp_path_factory.mktemp("graph") / "demo", last_open=True))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> RunView:
    return opened(write_hostile_run(tmp_path_factory.mktemp("graph") / "hostile"))


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory) -> RunView:
    """A run that renewed its graph on the way."""
    folder = tmp_path_factory.mktemp("rebuilt")
    write_log(folder / "log", steps=False)
    replay_pool(folder / "log", folder / "run", config=Config(batch_size=4, refresh_groups=4), steps=4)
    view = opened(folder / "run")
    assert len(view.reader.graph_versions()) > 2
    return view


def test_positions_stay_put_when_the_graph_is_renewed(rebuilt):
    for build in (
        lambda step: views.environment_graph(rebuilt, "env0", step, most_cross=6),
        lambda step: views.ego_graph(rebuilt, "env0::task-3", step, most_nodes=9),
        lambda step: views.task_graph(rebuilt, step),
        lambda step: views.environment_map(rebuilt, step),
    ):
        seen: dict[int, tuple[float, float]] = {}
        for found in map(build, rebuilt.steps()):
            for node, *place in found.nodes[["node", "x", "y"]].itertuples(index=False):
                assert seen.setdefault(node, tuple(place)) == tuple(place)
    versions = {views.task_graph(rebuilt, step).version for step in rebuilt.steps()}
    assert len(versions) > 1


@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
def test_every_count_of_a_map_is_that_of_the_matrices(view, weight):
    graph = view.graph()
    found = views.task_graph(view, 2, weight=weight, most_within=10, most_cross=7)
    for name, total, heavy, most in (
        ("within", found.within_total, found.within_heavy, 10),
        ("cross", found.cross_total, found.cross_heavy, 7),
    ):
        matrix = getattr(graph, name)
        assert total == matrix.nnz // 2
        assert heavy == int((np.asarray(matrix.data) >= weight).sum()) // 2
        drawn = found.edges[found.edges["relation"] == name]
        assert len(drawn) == min(most, heavy)
        for edge in drawn.itertuples():
            assert matrix[edge.source, edge.target] == pytest.approx(edge.weight)
    assert found.heaviest == pytest.approx(max(graph.within.data.max(), graph.cross.data.max()))
    assert views.task_graph(view, 2, relations=("cross",)).edges["relation"].unique().tolist() == ["cross"]


def test_the_strongest_of_every_pair_of_environments_come_first(view):
    env = view.env_index()
    frame, total, _ = edge_table(view.graph(), "cross", np.arange(len(env)), None, Wanted(cross=6, fair=env))
    pairs = {frozenset((env[a], env[b])) for a, b in zip(frame["source"], frame["target"], strict=True)}
    assert len(pairs) == len(frame) == 6 < total


def test_an_edge_is_the_sum_of_its_parts_from_either_end(view):
    edges = views.task_graph(view, 2, most_within=5, most_cross=5).edges
    for edge in edges.itertuples():
        ends = ["::".join(view.names(node)) for node in (edge.source, edge.target)]
        facts, back = views.edge_facts(view, *ends, 2), views.edge_facts(view, *ends[::-1], 2)
        assert facts.relation == edge.relation
        assert facts.weight == pytest.approx(edge.weight)
        assert facts.parts["value"].sum() == pytest.approx(min(facts.weight, 1.0), abs=1e-5)
        assert facts.parts["share"].sum() == pytest.approx(1.0)
        assert facts.parts.equals(back.parts)
    with pytest.raises(UnknownTaskError):
        views.edge_facts(view, "env0::task-0", "env0::task-0", 2)


def test_the_neighbours_of_a_task_are_its_rows(view):
    graph, node = view.graph(), view.node("env2::task-4")
    table = views.neighbours(view, "env2::task-4", 2)
    assert len(table) == sum(len(graph.row(relation, node)[0]) for relation in RELATIONS)
    assert table["weight"].is_monotonic_decreasing
    assert (table["env"] == "env2").equals(table["relation"] == "within")
    assert table.groupby("relation")["weight"].sum().to_dict() == pytest.approx(
        {relation: float(graph.row(relation, node)[1].sum()) for relation in RELATIONS}, rel=1e-5
    )


def test_evidence_flow_is_the_whole_prediction(hostile):
    named = 0
    for candidate in hostile.decisions(2)[0].candidates:
        table = views.evidence_flow(views.explained(hostile, 2, candidate.key))
        assert table["share"].sum() == pytest.approx(1.0, abs=1e-5)
        assert table["share"].is_monotonic_decreasing
        given = table.groupby("source")["share"].sum().to_dict()
        assert given == pytest.approx({k: v for k, v in candidate.shares.items() if v > 1e-6}, abs=1e-5)
        named += int((table["source"].isin(RELATIONS) & (table["key"] != "")).sum())
    assert named > 3
    unseen = views.evidence_flow(views.Explained(2, "e", "t"))
    assert unseen.empty


def test_a_map_of_environments_puts_every_cross_edge_together(view):
    graph, env = view.graph(), view.env_index()
    found = views.environment_map(view, 2)
    assert found.edges["edges"].sum() == found.cross_heavy == found.cross_total == graph.cross.nnz // 2
    row = found.edges.iloc[0]
    between = graph.cross[np.flatnonzero(env == row["source"])][:, np.flatnonzero(env == row["target"])]
    assert (row["edges"], row["weight"]) == (between.nnz, pytest.approx(between.data.mean()))
    assert found.nodes["picks"].sum() == 8
    assert found.nodes["tasks"].tolist() == [12] * 4
    scores = view.scores(2)
    assert found.nodes["variance"].iloc[1] == pytest.approx(scores.variance[env == 1].mean())
    few = views.environment_map(view, 2, most_envs=2, most_pairs=1)
    assert (len(few.nodes), few.envs_total, len(few.edges), few.pairs_total) == (2, 4, 1, found.pairs_total)
    heavy = views.environment_map(view, 2, weight=0.6)
    assert heavy.cross_heavy == int((np.asarray(graph.cross.data) >= 0.6).sum()) // 2 == heavy.edges["edges"].sum()


def test_a_search_takes_its_words_as_they_are(view, hostile):
    assert views.find_tasks(view, "TASK-1")[0]["task"].str.startswith("task-1").all()
    assert views.find_tasks(view, "flight 7 in market 2")[0]["key"].tolist() == ["env2::task-7"]
    assert views.find_tasks(view, "%")[1] == views.find_tasks(view, "t_sk")[1] == 0
    table, total = views.find_tasks(hostile, '"owned"', most=2)
    assert (len(table), total) == (2, 6)
    assert views.find_tasks(hostile, "flight", (HOSTILE_ENVS[1],))[1] == 6


def test_why_there_is_no_graph(tmp_path):
    write_log(tmp_path / "log")
    replay_pool(tmp_path / "log", tmp_path / "uniform", scheduler="uniform", config=Config(batch_size=4), steps=2)
    for name, reason in (("log", "log"), ("uniform", "scheduler")):
        view = opened(tmp_path / name)
        for found in (
            views.environment_graph(view, "env0", 0),
            views.ego_graph(view, "env0::task-1", 0),
            views.task_graph(view, 0),
            views.environment_map(view, 0),
        ):
            assert (found.absent, found.version, len(found.edges)) == (reason, 0, 0)
            assert len(found.nodes)
    demo = write_run(tmp_path / "demo")
    (demo / "graph" / "1" / "within_indices.npy").write_bytes(b"no array")
    assert views.task_graph(opened(demo), 1).absent == "damaged"


@given(st.integers(1, 40), st.integers(0, 5), st.randoms(use_true_random=False))
def test_rings_keep_the_task_in_the_middle_and_everybody_apart(n, envs, random):
    ties = np.array([[random.random() * (random.random() < 0.3) for _ in range(n)] for _ in range(n)])
    ties = np.triu(ties, 1) + np.triu(ties, 1).T
    env = np.array([random.randint(0, envs) for _ in range(n)])
    middle = random.randrange(n)
    places = rings(sparse.csr_array(ties), env, middle)
    far = np.linalg.norm(places, axis=1)
    assert far[middle] == 0.0
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(n) * 1e9
    assert gaps.min() > 50.0
    direct = ties[middle] > 0
    rest = ~direct & (np.arange(n) != middle)
    if direct.any() and rest.any():
        assert far[direct].max() < far[rest].min()


def test_discs_and_spirals_of_many_are_found_without_all_eigenvectors():
    n = 1_200
    ring = sparse.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    places = disc(sparse.csr_array(ring + ring.T))
    assert np.array_equal(places, disc(sparse.csr_array(ring + ring.T)))
    assert len(np.unique(places.round(3), axis=0)) == n
    along = np.linalg.norm(places - np.roll(places, -1, axis=0), axis=1)
    assert np.median(along) < 0.25 * np.ptp(places[:, 0])
    empty = sparse.csr_array((n, n))
    assert len(np.unique(layout(np.arange(n), empty, empty, 0).round(3), axis=0)) == n
