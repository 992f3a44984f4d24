from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from small_run import opened, write_log, write_run

from envsched_core import views
from envsched_core.evaluate import spearman
from envsched_core.store import RunReader
from envsched_core.views import report_facts
from envsched_core.views.run_view import RunView
from envsched_core.views.variance_truth import FEWEST_GROUPS, group_chances, group_interval


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("variance") / "demo", steps=12, last_open=True)


@pytest.fixture(scope="module")
def view(path) -> RunView:
    return opened(path)


@pytest.fixture(scope="module")
def groups(path) -> dict[tuple[str, str, int], float]:
    """Observed variance of each (env, task, step), straight from the events."""
    found = [event for event, *_ in RunReader(path).events() if event.kind == "observed"]
    return {(e.data.env, e.data.task, e.step): float(np.var(e.data.rewards)) for e in found}


@pytest.fixture(scope="module")
def picks(path):
    """Candidates of each pick by (env, task, step), straight from the events."""
    asked = [event.data for event, *_ in RunReader(path).events() if event.kind == "asked"]
    return {(c.env, c.task, d.step): c for d in asked for c in d.candidates if c.kept_as == "pick"}


# ---------------------------------------------------------------------- environments by steps


def test_the_largest_shows_the_hot_task_that_a_mean_hides(view, groups):
    grid = views.variance_grid(view, "observed", together="largest")
    for r, env in enumerate(grid.envs):
        for c, step in enumerate(grid.steps):
            seen = [v for (e, _, s), v in groups.items() if (e, s) == (env, step)]
            assert grid.groups[r, c] == len(seen)
            assert np.isnan(grid.values[r, c]) if not seen else grid.values[r, c] == pytest.approx(max(seen))
    hot = views.variance_grid(view, "predicted", together="largest")
    scores = view.scores(5)
    assert hot.values[hot.envs.index("env2"), 5] == pytest.approx(scores.variance[24:36].max())


def test_filters_narrow_what_a_cell_is_made_of(view, groups, picks):
    filters = views.Filters(states=("own history",), outcomes=("selected",))
    observed = views.variance_grid(view, "observed", filters=filters)
    kept = {key for key, c in picks.items() if c.state == "own history" and c.outcome == "selected"}
    assert observed.groups.sum() == len(kept & set(groups))
    told = views.variance_grid(view, "predicted", filters=views.Filters(states=("own history",)))
    scores = view.scores(6)
    inside = (scores.state == views.STATES.index("own history"))[:12]
    cell = told.values[told.envs.index("env0"), 6]
    assert cell == pytest.approx(scores.variance[:12][inside].mean(), rel=1e-5)


@given(st.integers(1, 14), st.sampled_from(["mean", "largest"]), st.sampled_from(["predicted", "observed"]))
def test_a_wider_column_holds_what_its_steps_hold(view, span, together, kind):
    fine = views.variance_grid(view, kind, together=together)
    wide = views.variance_grid(view, kind, together=together, span=span)
    assert (wide.span, wide.groups.sum()) == (span, fine.groups.sum())
    for c in range(len(wide.steps)):
        part, n = fine.values[:, c * span : (c + 1) * span], fine.groups[:, c * span : (c + 1) * span]
        for r in range(len(fine.envs)):
            known = np.isfinite(part[r])
            if not known.any():
                assert np.isnan(wide.values[r, c])
            elif together == "largest":
                assert wide.values[r, c] == part[r][known].max()
            else:
                weights = n[r][known] if kind == "observed" else None
                assert wide.values[r, c] == pytest.approx(np.average(part[r][known], weights=weights), abs=1e-6)


def test_without_scores_the_candidates_on_record_stand_in(path, tmp_path, picks):
    bare = Path(shutil.copytree(path, tmp_path / "bare"))
    shutil.rmtree(bare / "scores")
    grid = views.task_grid(opened(bare), "env1")
    for (env, task, step), candidate in picks.items():
        if env == "env1":
            cell = grid.values[grid.tasks.index(task), grid.steps.index(step)]
            assert cell == pytest.approx(candidate.variance, abs=1e-6)
    assert np.isnan(grid.values).any()


# ---------------------------------------------------------------------- tasks of one environment


def test_tasks_by_steps_are_the_scores_the_groups_and_the_picks(view, groups, picks):
    told, seen = (views.task_grid(view, "env1", kind) for kind in ("predicted", "observed"))
    off = views.task_grid(view, "env1", "difference")
    assert set(told.tasks) == {f"task-{i}" for i in range(12)}
    assert told.total == 12
    for r, task in enumerate(told.tasks):
        for c, step in enumerate(told.steps):
            variance = view.scores(step).variance[view.node(f"env1::{task}")]
            assert told.values[r, c] == pytest.approx(variance)
            came, pick = groups.get(("env1", task, step)), picks.get(("env1", task, step))
            assert told.picks[r, c] == (pick is not None)
            assert told.picked_at[r, c] == (-1 if pick is None else step)
            if came is None:
                assert np.isnan(seen.values[r, c])
                assert np.isnan(off.values[r, c])
            else:
                assert seen.values[r, c] == pytest.approx(came)
                assert off.values[r, c] == pytest.approx(came - 0.75 * pick.variance, abs=1e-6)


def test_an_environment_that_is_not_there_has_no_tasks(view):
    grid = views.task_grid(view, "nowhere")
    assert (grid.tasks, grid.values.shape, grid.total) == ((), (0, 12), 0)


def test_most_visited_tasks_come_first_and_a_cut_is_told(view):
    grid = views.task_grid(view, "env1", most_tasks=5)
    whole = views.task_grid(view, "env1")
    assert (len(grid.tasks), grid.total) == (5, 12)
    assert (np.diff(whole.picks.sum(axis=1)) <= 0).all()


def test_a_log_shows_what_was_observed_and_predicts_nothing(tmp_path):
    view = opened(write_log(tmp_path / "log"))
    assert np.isnan(views.task_grid(view, "env0").values).all()
    assert np.isfinite(views.task_grid(view, "env0", "observed").values).sum() == 12
    for found in (views.calibration_curve(view), views.rank_correlations(view), views.interval_coverage(view)):
        assert found.empty


# ---------------------------------------------------------------------- was it right?


def observed(picks, groups, state=None) -> list[tuple[float, float]]:
    return [
        (0.75 * c.variance, groups[key])
        for key, c in picks.items()
        if key in groups and (state is None or c.state == state)
    ]


def test_calibration_is_the_mean_of_what_lies_in_each_bin(view, picks, groups):
    table = views.calibration_curve(view, bins=4)
    whole = table[table["state"] == "all picks"]
    pairs = sorted(observed(picks, groups))
    assert whole["groups"].sum() == len(pairs)
    for row in whole.to_dict("records"):
        inside = [y for x, y in pairs if row["from_predicted"] - 1e-12 <= x <= row["to_predicted"] + 1e-12]
        assert (len(inside), np.mean(inside)) == (row["groups"], pytest.approx(row["observed"]))
        assert row["low"] <= row["observed"] <= row["high"]
    for state, part in table.groupby("state"):
        if state != "all picks":
            assert part["groups"].sum() == len(observed(picks, groups, state)) >= FEWEST_GROUPS


def test_rank_correlation_is_that_of_the_events_and_of_the_report(view, picks, groups):
    table = views.rank_correlations(view).set_index("state")
    x, y = zip(*observed(picks, groups), strict=True)
    assert table.loc["all picks", "correlation"] == pytest.approx(spearman(x, y))
    told, n = report_facts.rank_correlation(view)
    assert tuple(table.loc["all picks", ["correlation", "low", "high"]]) == pytest.approx(tuple(told))
    assert table.loc["all picks", "groups"] == n == len(x)


def test_filters_narrow_what_is_judged(view, picks, groups):
    filters = views.Filters(environments=("env0", "env1"))
    kept = [key for key in picks if key in groups and key[0] in ("env0", "env1")]
    assert views.rank_correlations(view, filters)["groups"].iloc[0] == len(kept)
    assert views.interval_coverage(view, views.Filters(states=("no such state",))).empty


def test_interval_coverage_counts_the_events(view, path, picks):
    table = views.interval_coverage(view).set_index(["state", "interval"])
    found = [event for event, *_ in RunReader(path).events() if event.kind == "observed"]
    means = {(e.data.env, e.data.task, e.step): float(np.mean(e.data.rewards)) for e in found}
    pairs = [(picks[key], mean) for key, mean in means.items()]
    task = np.mean([c.low - 1e-9 <= mean <= c.high + 1e-9 for c, mean in pairs])
    assert table.loc[("all picks", "task"), "inside"] == pytest.approx(task)
    inside, right = [], []
    for c, mean in pairs:
        belief = stats.betabinom(4, c.mean * c.rollouts, (1.0 - c.mean) * c.rollouts)
        low, high = belief.ppf(0.05), belief.ppf(0.95)
        inside.append(low <= round(4 * mean) <= high)
        right.append(belief.cdf(high) - belief.cdf(low - 1))
    group = table.loc[("all picks", "group")]
    assert (group["inside"], group["right"]) == (pytest.approx(np.mean(inside)), pytest.approx(np.mean(right)))
    assert (group["nominal"], group["binary"]) == (0.9, 1.0)


@given(st.floats(0.02, 0.98), st.floats(0.5, 200.0), st.integers(2, 24))
def test_chances_of_a_group_are_a_distribution_and_its_interval_holds_nine_tenths(mean, n, size):
    a, whole = np.array([mean * n]), np.array([n])
    chances = group_chances(a, whole, size)
    assert chances[0] == pytest.approx(stats.betabinom(size, mean * n, (1.0 - mean) * n).pmf(np.arange(size + 1)))
    low, high = group_interval(a, whole, np.array([size]))
    k = np.arange(size + 1) / size
    inside = chances[0][(k >= low[0] - 1e-9) & (k <= high[0] + 1e-9)].sum()
    assert inside >= 0.9 - 1e-9


def test_right_predictions_reach_what_is_said_of_them(view, monkeypatch):
    """Groups drawn from the predictions themselves are as well ordered as `right` says, to the noise of one draw."""
    from envsched_core.views import variance_truth

    real = variance_truth._picks(view, views.Filters())
    many = real.loc[np.repeat(real.index, 30)].reset_index(drop=True)
    rng = np.random.default_rng(5)
    a, n = variance_truth._beliefs(many)
    share = rng.binomial(many["scored"].to_numpy(dtype=int), rng.beta(a, n - a)) / many["scored"]
    many = many.assign(observed=share * (1 - share), observed_mean=share)
    many["task"] += [f"-{i}" for i in range(len(many))]
    monkeypatch.setattr(variance_truth, "_picks", lambda view, filters: many)
    ranks = views.rank_correlations(view).iloc[0]
    assert abs(ranks["correlation"] - ranks["right"]) < 0.04
    for row in views.interval_coverage(view).to_dict("records"):
        assert abs(row["inside"] - row["right"]) < 0.03 + 1.0 / row["groups"] ** 0.5
    curve = views.calibration_curve(view)
    curve = curve[curve["state"] == "all picks"]
    assert np.abs(curve["observed"] - curve["predicted"]).max() < 0.02
