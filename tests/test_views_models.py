from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from small_run import catalogue, write_log, write_run

from envsched_core import views
from envsched_core.config import Config
from envsched_core.replay import replay_pool
from envsched_core.views import decision
from envsched_core.views.layout import disc, layout
from envsched_core.views.run_view import RunView
from envsched_core.views.trends import uniform_coverage


@pytest.fixture(scope="session")
def view(tmp_path_factory) -> RunView:
    view = RunView(write_run(tmp_path_factory.mktemp("models") / "demo", last_open=True))
    view.poll()
    return view


@pytest.fixture(scope="session")
def replayed(tmp_path_factory) -> RunView:
    folder: Path = tmp_path_factory.mktemp("replayed")
    write_log(folder / "log", steps=False)
    replay_pool(folder / "log", folder / "replay", scheduler="envsched", config=Config(batch_size=4), steps=3)
    view = RunView(folder / "replay")
    view.poll()
    return view


# ---------------------------------------------------------------------- one batch


def test_a_batch_lists_picks_in_order_then_near_misses(view):
    table = views.batch(view, 2)
    picks = table[table["kept_as"] == "pick"]
    assert picks["position"].tolist() == list(range(8))
    assert (table["kept_as"].tolist()[:8], table["kept_as"].iloc[8]) == (["pick"] * 8, "near_miss")
    assert picks["ended"].tolist() == ["observed"] * 8
    assert picks["mixed"].notna().all()


def test_filters_narrow_a_batch(view):
    table = views.batch(view, 2, views.Filters(environments=("env1",), outcomes=("selected",)))
    assert set(table["env"]) == {"env1"}
    assert set(table["outcome"]) == {"selected"}
    assert views.batch(view, 2, views.Filters(states=("no such state",))).empty


def test_composition_adds_up(view):
    table = views.composition(view, 1)
    assert table["picks"].sum() == 8
    assert table["answered"].sum() == 7
    assert table["expected"].to_numpy() == pytest.approx(2.0)
    assert (table["picks"] <= table["limit_picks"]).all()


def test_every_task_of_the_pool_has_an_outcome(view):
    assert views.outcome_counts(view, 2)["tasks"].sum() == 48


def test_terms_are_means_over_all_picks_of_the_step(view):
    picks = [c for d in view.decisions(2) for c in d.candidates if c.kept_as == "pick"]
    table = views.term_totals(view, 2).set_index("name")
    for name, row in table.iterrows():
        assert row["total"] == pytest.approx(sum(c.terms.get(name, 0.0) for c in picks))
        assert row["mean"] == pytest.approx(row["total"] / len(picks))
    assert any(sum(name in c.terms for c in picks) < len(picks) for name in table.index)


def test_alike_picks_are_picks_and_ordered_by_weight(view):
    pairs = views.redundancy(view, 2)
    picks = {f"{e}::{t}" for e, t in view.query("SELECT env, task FROM outcomes WHERE step = 2").to_numpy()}
    assert set(pairs["a"]) | set(pairs["b"]) <= picks
    assert pairs["weight"].is_monotonic_decreasing


# ---------------------------------------------------------------------- one decision


def test_a_pick_is_explained_from_the_record(view):
    env, task = views.batch(view, 2)[["env", "task"]].iloc[0]
    found = views.explained(view, 2, f"{env}::{task}")
    assert (found.source, found.picked) == ("recorded", True)
    assert found.candidate is not None
    assert "was pick 1 of step 2" in found.verdict


def off_record(view: RunView, step: int) -> str:
    return next(t.key for t in catalogue() if views.explained(view, step, t.key).source == "scores")


def test_a_task_off_the_record_has_its_scores_and_can_be_rederived(view):
    key = off_record(view, 2)
    known, full = views.explained(view, 2, key), views.rederived(view, 2, key)
    assert known.candidate is None
    assert (full.source, full.outcome) == ("re-derived", known.outcome)
    assert full.score == pytest.approx(known.score, rel=1e-5)
    assert full.candidate is not None
    assert sum(full.candidate.terms.values()) == pytest.approx(full.score, abs=1e-8)


def test_scores_of_a_file_tie_where_no_digit_tells_them_from_the_cutoff():
    cutoff = 0.18900163109
    near = decision._snapped(np.array([cutoff, 0.189003, np.nan], dtype=np.float32), cutoff)
    assert near[0] == cutoff
    assert near[1] - cutoff > 1e-6
    assert decision._snapped(np.float32(0.5), None) == 0.5


def test_a_task_whose_groups_were_all_drawn_says_so(replayed):
    drawn = {step: {c.key for d in replayed.decisions(step) for c in d.picks} for step in range(3)}
    told = [views.explained(replayed, 2, key) for key in sorted(drawn[0] | drawn[1])]
    gone = [e for e in told if e.source == "scores" and e.outcome == "unavailable"]
    assert gone
    assert all(e.spent for e in gone)
    assert not any(views.explained(replayed, 0, f"{e.env}::{e.task}").spent for e in gone)


def test_a_step_that_never_was_has_no_word(view):
    assert views.explained(view, 77, "env0::task-0").source == "nothing"


def test_rivals_surround_the_task_in_rank(view):
    key = off_record(view, 1)
    table = views.rivals(view, 1, key, each=3)
    assert table["rank"].is_monotonic_increasing
    assert table["this"].sum() == 1
    assert len(table) <= 7


def test_a_timeline_joins_predictions_picks_and_results(view):
    env, task = view.query("SELECT env, task FROM outcomes WHERE step = 0 AND mixed").iloc[0]
    table = views.timeline(view, f"{env}::{task}")
    assert table["step"].tolist() == [0, 1, 2, 3]
    assert table["variance"].notna().all()
    first = table.iloc[0]
    assert (first["position"] >= 0, bool(first["mixed"]), first["observed"] > 0) == (True, True, True)


def test_from_a_decision_down_to_the_rollouts(view):
    env, task = view.query("SELECT env, task FROM outcomes WHERE ended = 'observed'").iloc[0]
    seen = views.afterwards(view, f"{env}::{task}")
    rollouts = views.group_rollouts(view, int(seen["number"].iloc[0]))
    assert seen["rewards"].iloc[0] == ", ".join(f"{r.reward:g}" for r in rollouts)
    assert [call.name for call in rollouts[0].calls] == ["search_flights", "book_flight"]
    assert rollouts[0].place is not None
    assert rollouts[0].place.file == "log.jsonl"


# ---------------------------------------------------------------------- the catalogue


def test_tasks_come_best_rank_first_and_say_how_many_there_are(view):
    table, total = views.tasks(view, 2, most=10)
    assert (len(table), total) == (10, 48)
    assert table["rank"].tolist() == list(range(1, 11))
    assert views.tasks(view, 2, views.Filters(environments=("env3",)))[1] == 12


def test_task_keys_say_when_they_are_cut(view):
    assert views.task_keys(view, ("env1",), most=3) == (["env1::task-0", "env1::task-1", "env1::task-2"], 12)


# ---------------------------------------------------------------------- a replay and its source


def test_uniform_draws_give_the_share_of_mixed_groups_in_the_pool(replayed):
    source = replayed.source()
    assert source is not None
    share = views.summary(source).informative_share
    assert views.comparator(replayed).share == pytest.approx(share)


def test_the_log_knows_what_a_replay_never_revealed(replayed):
    seen = {f"{e}::{t}" for e, t in replayed.query("SELECT env, task FROM outcomes").to_numpy()}
    key = next(t.key for t in catalogue(envs=2) if t.key not in seen)
    assert views.afterwards(replayed, key).empty
    log = views.recorded(replayed, key)
    assert log is not None
    assert len(log) == 1


def test_only_a_pool_replay_has_a_comparator(view):
    assert views.comparator(view).share is None


# ---------------------------------------------------------------------- over the run


def test_predicted_variance_is_the_mean_over_the_environment(view):
    grid = views.variance_grid(view, "predicted")
    scores = view.scores(2)
    row, column = grid.envs.index("env1"), grid.steps.index(2)
    assert grid.values[row, column] == pytest.approx(scores.variance[12:24].mean(), abs=1e-6)


def test_not_observed_is_a_gap_and_never_zero(view):
    grid = views.variance_grid(view, "observed")
    assert np.isnan(grid.values[:, grid.steps.index(3)]).all()
    assert (np.isnan(grid.values) == (grid.groups == 0)).all()


def test_a_difference_compares_the_same_tasks(view):
    grid = views.variance_grid(view, "difference")
    expected = view.row("SELECT avg(observed - 0.75 * predicted) d FROM outcomes WHERE env = 'env0' AND step = 0")["d"]
    assert grid.values[grid.envs.index("env0"), 0] == pytest.approx(expected, abs=1e-6)


def test_a_long_run_is_binned_and_says_so(view):
    grid = views.variance_grid(view, "predicted", most_steps=2, most_envs=3)
    assert (grid.span, grid.steps, len(grid.envs), grid.total) == (2, (0, 2), 3, 4)
    whole = views.variance_grid(view, "predicted")
    row = whole.envs.index(grid.envs[0])
    assert grid.values[0, 0] == pytest.approx(whole.values[row, :2].mean(), abs=1e-6)


def test_coverage_counts_distinct_picks(view):
    table = views.coverage(view).table
    picks = view.query("SELECT step, env, task FROM outcomes")
    for step, tasks, envs in table[["step", "tasks", "environments"]].itertuples(index=False):
        so_far = picks[picks["step"] <= step]
        assert (tasks, envs) == (len(so_far[["env", "task"]].drop_duplicates()), so_far["env"].nunique())


def test_uniform_coverage_equals_enumeration():
    sizes, draws = np.array([1.0, 3.0]), np.array([2.0, 2.0])
    batches = list(itertools.combinations(range(4), 2))
    seen = [len({*a, *b}) for a in batches for b in batches]
    envs = [len({min(t, 1) for t in (*a, *b)}) for a in batches for b in batches]
    tasks, environments = uniform_coverage(draws, sizes, once=False)
    assert tasks[1] == pytest.approx(np.mean(seen))
    assert environments[1] == pytest.approx(np.mean(envs))


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
    st.booleans(),
)
def test_uniform_coverage_grows_and_stays_within_the_catalogue(sizes, draws, once):
    tasks, envs = uniform_coverage(np.array(draws, dtype=float), np.array(sizes, dtype=float), once=once)
    assert (np.diff(tasks) >= -1e-9).all()
    assert (np.diff(envs) >= -1e-9).all()
    assert tasks[-1] <= min(sum(draws), sum(sizes)) + 1e-6
    assert envs[-1] <= len(sizes) + 1e-6
    if once:
        assert tasks[-1] == pytest.approx(min(sum(draws), sum(sizes)))


def test_environments_and_quota_hits(view):
    table = views.environments(view).set_index("env")
    hits = views.quota_hits(view)
    assert table["tasks"].tolist() == [12] * 4
    assert table["picks"].sum() == 32
    assert table["quota_hits"].sum() == len(hits)
    assert (hits["blocked"] > 0).all()


# ---------------------------------------------------------------------- the graph


def test_an_environment_graph_keeps_both_relations_apart(view):
    found = views.environment_graph(view, "env1", 2, most_cross=10)
    env = dict(zip(found.nodes["node"], found.nodes["env"], strict=True))
    same = found.edges["source"].map(env) == found.edges["target"].map(env)
    assert (same == (found.edges["relation"] == "within")).all()
    assert (found.nodes[found.nodes["centre"]]["env"] == "env1").all()
    assert (found.edges["relation"] == "cross").sum() == 10
    assert found.cross_total > 10


def test_what_is_cut_is_told(view):
    found = views.environment_graph(view, "env1", 2, most_nodes=5)
    assert (found.nodes["centre"].sum(), found.nodes_total) == (5, 12)


def test_an_ego_graph_holds_every_tie_of_its_task(view):
    found = views.ego_graph(view, "env2::task-4", 2)
    node = view.node("env2::task-4")
    graph = view.graph()
    ties = np.diff(graph.within.indptr)[node] + np.diff(graph.cross.indptr)[node]
    own = (found.edges["source"] == node) | (found.edges["target"] == node)
    assert own.sum() == ties
    assert found.nodes["centre"].sum() == 1


def test_parts_of_an_edge_sum_to_its_weight(view):
    edge = views.environment_graph(view, "env1", 2).edges.iloc[0]
    parts = [float(part.rsplit(" ", 1)[1]) for part in edge["parts"].split(" + ")]
    assert math.isclose(sum(parts), edge["weight"], abs_tol=0.03)


def test_positions_stay_put_while_the_step_changes(view):
    first, later = (views.environment_graph(view, "env0", step).nodes for step in (0, 3))
    assert first[["node", "x", "y"]].equals(later[["node", "x", "y"]])
    assert not first["variance"].equals(later["variance"])


def test_no_two_nodes_of_a_large_graph_meet():
    rng = np.random.default_rng(0)
    env = np.repeat(np.arange(12), 50)
    dense = rng.random((600, 600)) * (rng.random((600, 600)) < 0.02)
    ties = sparse.csr_array(np.maximum(dense, dense.T))
    places = layout(env, ties, ties, centre=3)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(600) * 1e9
    assert gaps.min() > 20.0
    assert np.abs(places[env == 3]).mean() < np.abs(places[env != 3]).mean()


def test_a_disc_of_one_or_none():
    assert disc(sparse.csr_array((0, 0))).shape == (0, 2)
    assert disc(sparse.csr_array((1, 1))).shape == (1, 2)
