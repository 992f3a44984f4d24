from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import catalogue, opened, write_log, write_run

from envsched_core import views
from envsched_core.evaluate import effective_number, gini
from envsched_core.records import TaskSpec, Tool
from envsched_core.store import RunReader, RunWriter, new_manifest
from envsched_core.views import coverage_balance
from envsched_core.views.run_view import RunView
from envsched_core.views.trends import uniform_coverage


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("coverage") / "demo", steps=8, last_open=True)


@pytest.fixture(scope="module")
def view(path) -> RunView:
    return opened(path)


@pytest.fixture(scope="module")
def decisions(path):
    return [event.data for event, *_ in RunReader(path).events() if event.kind == "asked"]


@pytest.fixture(scope="module")
def picks(decisions) -> list[tuple[int, str, str]]:
    return [(d.step, c.env, c.task) for d in decisions for c in d.candidates if c.kept_as == "pick"]


# ---------------------------------------------------------------------- visits by environment and step


def test_visits_are_the_picks_and_the_longest_unvisited_come_first(view, picks):
    grid = views.visit_grid(view)
    for r, env in enumerate(grid.envs):
        steps = [step for step, e, _ in picks if e == env]
        assert grid.visits[r].tolist() == [steps.count(step) for step in grid.steps]
        assert grid.since[r] == (7 - max(steps) if steps else None)
        assert [at for at in grid.last_at[r] if at >= 0] == sorted(set(steps))
    ages = [np.inf if age is None else age for age in grid.since]
    assert ages == sorted(ages, reverse=True)


def test_wide_columns_hold_all_visits_and_the_last_step_of_each(view, picks):
    grid = views.visit_grid(view, most_steps=3)
    assert (grid.span, grid.visits.sum()) == (3, len(picks))
    for r, env in enumerate(grid.envs):
        for c, first in enumerate(grid.steps):
            steps = [step for step, e, _ in picks if e == env and first <= step < first + 3]
            assert grid.last_at[r, c] == max(steps, default=-1)


def test_only_chosen_environments_are_shown(view):
    grid = views.visit_grid(view, ("env1", "env3"), most_envs=1)
    assert (len(grid.envs), grid.total) == (1, 2)


# ---------------------------------------------------------------------- how evenly


@pytest.mark.parametrize("window", [0, 3])
def test_balance_is_that_of_the_visits_so_far_or_in_the_window(view, picks, window):
    found = views.visit_balance(view, window)
    assert found.table["step"].tolist() == list(range(8))
    for row in found.table.to_dict("records"):
        first = row["step"] - window + 1 if window else 0
        envs = [env for step, env, _ in picks if first <= step <= row["step"]]
        counts = [envs.count(f"env{e}") for e in range(4)]
        assert (row["visits"], row["environments"]) == (len(envs), len(set(envs)))
        assert (row["gini"], row["effective"]) == pytest.approx((gini(counts), effective_number(counts)))
        assert row["uniform_gini_low"] <= row["uniform_gini"] <= row["uniform_gini_high"]


def test_simulated_uniform_draws_are_as_uneven_as_uniform_draws(view):
    """The band against draws made one task at a time."""
    table = views.visit_balance(view).table
    rng = np.random.default_rng(1)
    drawn = [
        np.sum([np.bincount(rng.permutation(48)[:8] // 12, minlength=4) for _ in range(8)], axis=0) for _ in range(400)
    ]
    assert table["uniform_gini"].iloc[-1] == pytest.approx(np.mean([gini(c.tolist()) for c in drawn]), abs=0.02)
    effective = np.mean([effective_number(c.tolist()) for c in drawn])
    assert table["uniform_effective"].iloc[-1] == pytest.approx(effective, abs=0.06)


def test_both_numbers_of_many_rows_are_those_of_each(view):
    rows = np.random.default_rng(0).integers(0, 5, size=(20, 7))
    rows[0] = 0
    both = coverage_balance._measures(rows)
    expected = [(gini(row.tolist()), effective_number(row.tolist())) for row in rows]
    assert both == pytest.approx(np.array(expected))


def test_too_long_a_run_is_told_rather_than_simulated(view, monkeypatch):
    monkeypatch.setattr(coverage_balance, "MOST_NUMBERS", 100)
    found = views.visit_balance(view)
    assert found.simulated == 0
    assert found.table["uniform_gini"].isna().all()
    assert found.table["gini"].notna().all()


# ---------------------------------------------------------------------- uniform draws


@given(st.integers(0, 10_000), st.lists(st.integers(0, 7), min_size=1, max_size=5), st.booleans())
def test_uniform_coverage_equals_simulation(seed, draws, once):
    sizes, outside, runs = np.array([1.0, 2.0, 4.0]), 3, 1500
    env = np.repeat([0, 1, 2, 3], [1, 2, 4, outside])
    rng = np.random.default_rng(seed)
    tasks, cells = np.zeros((runs, len(draws))), np.zeros((runs, len(draws)))
    for r in range(runs):
        seen: set[int] = set()
        order = rng.permutation(10).tolist()
        for t, n in enumerate(draws):
            batch = order[:n] if once else rng.permutation(10)[:n].tolist()
            order = order[len(batch) :] if once else order
            seen |= {int(i) for i in batch if env[i] < 3}
            tasks[r, t], cells[r, t] = len(seen), len({int(env[i]) for i in seen})
    found = uniform_coverage(np.array(draws, dtype=float), sizes, once=once, total=10.0)
    assert np.abs(found[0] - tasks.mean(axis=0)).max() < 0.2
    assert np.abs(found[1] - cells.mean(axis=0)).max() < 0.1


def test_coverage_of_chosen_environments_counts_only_them(view, picks):
    found = views.coverage(view, ("env1", "env2"))
    assert (found.tasks, found.environments) == (24, 2)
    for row in found.table.to_dict("records"):
        inside = {(e, t) for step, e, t in picks if step <= row["step"] and e in ("env1", "env2")}
        assert (row["tasks"], row["environments"]) == (len(inside), len({e for e, _ in inside}))
        assert row["picks"] == 8
    whole = views.coverage(view).table
    assert found.table["uniform_tasks"].to_numpy() == pytest.approx(whole["uniform_tasks"].to_numpy() / 2)


# ---------------------------------------------------------------------- kinds of tasks


def test_tool_sets_and_patterns_count_tasks_and_visits(view, picks):
    graph = view.graph()
    found = views.kinds_reached(view, "pattern")
    names, pattern = graph.pattern_names, graph.pattern
    of = {t.key: names[pattern[i]] for i, t in enumerate(catalogue()) if pattern[i] >= 0}
    table = found.table.set_index("kind")
    assert table["tasks"].to_dict() == pd.Series(of).value_counts().to_dict()
    for name, row in table.iterrows():
        mine = [(step, e, t) for step, e, t in picks if of.get(f"{e}::{t}") == name]
        assert (row["visits"], row["tasks_seen"]) == (len(mine), len({(e, t) for _, e, t in mine}))
        assert row["expected"] == pytest.approx(len(picks) * row["tasks"] / 48)
        assert row["first_step"] == min(step for step, *_ in mine)
    assert found.reach["kinds"].iloc[-1] == len({of[f"{e}::{t}"] for _, e, t in picks})
    assert found.unknown == 48 - len(of)
    assert views.kinds_reached(view, "pattern", ("env0",)).table["tasks"].sum() <= 12


def test_tasks_without_tools_and_logs_without_a_graph_belong_to_no_kind(tmp_path):
    tools = (Tool("a", "", ()), Tool("b", "", ()))
    tasks = [
        TaskSpec("x", "1", "", tools, (), "", None),
        TaskSpec("x", "2", "", tools[::-1], (), "", None),
        TaskSpec("y", "3", "", tools[:1], (), "", None),
        TaskSpec("y", "4", "", (), (), "", None),
    ]
    with RunWriter.create(tmp_path / "log", new_manifest("log", "import")) as writer:
        writer.add_tasks(tasks)
    view = opened(tmp_path / "log")
    found = views.kinds_reached(view, "tools")
    assert dict(zip(found.table["kind"], found.table["tasks"], strict=True)) == {"a": 1, "a, b": 2}
    assert (found.unknown, found.tasks, found.reach.empty) == (1, 4, True)
    assert found.table["ratio"].isna().all()
    none = views.kinds_reached(view, "pattern")
    assert (none.table.empty, none.unknown) == (True, 4)


def test_a_log_without_steps_counts_its_groups(tmp_path):
    view = opened(write_log(tmp_path / "log", steps=False))
    found = views.kinds_reached(view, "tools")
    assert found.table["visits"].sum() == found.table["groups"].sum() == 24
    assert found.reach.empty
    assert views.visit_balance(view).table.empty
    assert views.visit_grid(view).visits.shape == (2, 0)


# ---------------------------------------------------------------------- quotas


def test_quotas_are_counted_from_the_decisions(view, decisions):
    table = views.quota_use(view).set_index("env")
    for env, row in table.iterrows():
        mine = [q for d in decisions for q in d.quotas if q.env == env]
        assert row["steps"] == len(mine)
        assert row["at_limit"] == sum(q.used >= q.limit for q in mine)
        assert (row["hits"], row["blocked"]) == (sum(q.blocked > 0 for q in mine), sum(q.blocked for q in mine))
        assert row["below_floor"] == sum(q.used < q.floor for q in mine)
        assert row["price"] == max(q.price for q in mine)
    by_step = views.quota_steps(view)
    assert by_step["blocked"].sum() == table["blocked"].sum()
    assert by_step["hits"].sum() == table["hits"].sum() == len(views.quota_hits(view))
    assert views.quota_steps(view, ("env0",))["blocked"].sum() == table.loc["env0", "blocked"]
    relaxed = [r for d in decisions for r in d.relaxed]
    assert len(views.relaxations(view)) == len(relaxed)


# ---------------------------------------------------------------------- headline trends and batches


def test_trends_and_alerts_are_those_of_the_events(view, path):
    table = views.reward_trend(view)
    found = [event for event, *_ in RunReader(path).events() if event.kind == "observed"]
    for row in table.to_dict("records"):
        groups = [e.data.rewards for e in found if e.step == row["step"]]
        assert row["groups"] == len(groups)
        if groups:
            assert row["mean_reward"] == pytest.approx(np.mean([np.mean(r) for r in groups]))
            assert row["mean_variance"] == pytest.approx(np.mean([np.var(r) for r in groups]))


def test_what_changed_since_the_step_before(view, picks):
    change = views.batch_change(view, 3)
    now, before = ({(e, t) for s, e, t in picks if s == step} for step in (3, 2))
    assert change.before == 2
    assert (change.kept, change.entered, change.left) == (len(now & before), len(now - before), len(before - now))
    table = change.environments
    assert table["picks"].sum() == table["before"].sum() == 8
    assert (table["change"] == table["picks"] - table["before"]).all()
    assert views.batch_change(view, 0).before is None


def test_the_matrix_of_likeness_holds_the_pairs(view):
    matrix, names = views.alike_matrix(view, 4)
    pairs = views.redundancy(view, 4, most=1000)
    assert len(names) == 8
    assert (matrix == matrix.T).all()
    for row in pairs.to_dict("records"):
        assert matrix[row["a_position"], row["b_position"]] >= row["weight"] - 1e-6
    assert np.count_nonzero(np.triu(matrix)) == len(pairs[["a", "b"]].drop_duplicates())
