from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import catalogue, opened, write_log, write_run

from envsched_core import views
from envsched_core.records import EVIDENCE_STATES, Decision, GroupResult
from envsched_core.store import RunReader, RunWriter, new_manifest
from envsched_core.views.cold_start import STATE_COLUMNS, _thinned
from envsched_core.views.run_view import RunView


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("cold") / "demo", steps=5, last_open=True)


@pytest.fixture(scope="module")
def view(run) -> RunView:
    return opened(run)


@pytest.fixture(scope="module")
def bare(run, tmp_path_factory) -> RunView:
    """The same run without the scores of every task."""
    copy = Path(shutil.copytree(run, tmp_path_factory.mktemp("bare") / "demo"))
    shutil.rmtree(copy / "scores")
    return opened(copy)


def decisions(run: Path) -> list[Decision]:
    return [event.data for event, *_ in RunReader(run).events() if event.kind == "asked"]


def test_states_are_those_of_the_scores_files(view):
    table = views.evidence_states(view)
    assert table["step"].tolist() == [0, 1, 2, 3, 4]
    assert set(table["basis"]) == {"counted"}
    for row in table.itertuples():
        counts = np.bincount(view.scores(row.step).state, minlength=4)
        assert [getattr(row, column) for column in STATE_COLUMNS] == counts.tolist()
    assert table["prior_only"].iloc[0] == 48
    assert table["own_history"].is_monotonic_increasing


def test_without_scores_the_states_are_estimated_and_add_up(bare, run):
    table = views.evidence_states(bare)
    assert set(table["basis"]) == {"estimated"}
    whole = table[[*STATE_COLUMNS, "not_known"]].sum(axis=1)
    assert whole.to_numpy() == pytest.approx(48)
    for decision, row in zip(decisions(run), table.itertuples(), strict=True):
        kept = [c.state for c in decision.candidates if c.kept_as != "sample"]
        for state, column in zip(EVIDENCE_STATES, STATE_COLUMNS, strict=True):
            assert getattr(row, column) >= kept.count(state) - 1e-9


def test_what_the_sample_cannot_tell_is_not_known(run, tmp_path):
    with RunWriter.create(tmp_path / "r", new_manifest("r", "live", scheduler="envsched")) as writer:
        writer.add_tasks(catalogue())
        first = decisions(run)[0]
        kept = tuple(c for c in first.candidates if c.kept_as != "sample")
        writer.asked(
            Decision(**{name: getattr(first, name) for name in first.__struct_fields__} | {"candidates": kept})
        )
    row = views.evidence_states(opened(tmp_path / "r")).iloc[0]
    assert (row["prior_only"], row["not_known"]) == (len(kept), 48 - len(kept))


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=60).map(sorted), st.integers(2, 30))
def test_thinning_keeps_the_early_steps_and_the_last(steps, most):
    kept = _thinned(steps, most)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(steps)
    assert len(kept) <= max(most, 0)
    assert kept[: most // 2] == steps[: most // 2]
    assert kept[-1:] == steps[-1:]


def test_picks_by_state_equal_the_decisions(view, run):
    table = views.picks_by_state(view)
    for decision, row in zip(decisions(run), table.itertuples(), strict=True):
        picks = [c for c in decision.candidates if c.kept_as == "pick"]
        counts = Counter(c.state for c in picks)
        assert [getattr(row, name) for name in STATE_COLUMNS] == [counts[state] for state in EVIDENCE_STATES]
        chosen = [c for c in picks if c.state == "prior only" and c.outcome != "uniform_draw"]
        assert (row.picks, row.guesses) == (len(picks), len(chosen))


def test_guesses_are_the_prior_only_picks(view):
    table = views.guesses(view)
    assert len(table) == views.picks_by_state(view)["prior_only"].sum()
    first = table[table["step"] == 0]
    assert first["position"].tolist() == list(range(8))
    assert (first["ended"] == "observed").all()
    assert (first["from_features"] == 0).all()  # nothing was observed that they could have been learned from
    told = {
        (d.step, c.task): c.shares.get("features", 0.0)
        for d in decisions(view.path)[1:]
        for c in d.candidates
        if c.kept_as == "pick" and c.state == "prior only"
    }
    later = table[table["step"] > 0]
    assert dict(zip(zip(later["step"], later["task"], strict=True), later["from_features"], strict=True)) == told


def test_reached_names_the_first_step_of_each_share(view):
    states = views.evidence_states(view)
    table = views.evidence_reached(view).set_index("evidence")
    any_result = states["tasks"] - states["prior_only"]
    half = states["step"][any_result >= 24].min()
    assert table.loc["environment_only", "half"] == half
    own = states["own_history"].iloc[-1]
    assert (table.loc["own_history", "tasks"], table.loc["own_history", "share"]) == (own, pytest.approx(own / 48))
    assert table.loc["own_history"].isna()["all_tasks"]


def test_first_evidence_equals_a_direct_look(view, run):
    table = views.first_evidence(view).set_index("env")
    groups = [event.data for event, *_ in RunReader(run).events() if event.kind == "observed"]
    for env in ("env0", "env1", "env2", "env3"):
        own = [g for g in groups if g.env == env]
        assert table.loc[env, "first_result"] == min(g.step for g in own)
        assert table.loc[env, "tasks_seen"] == len({g.task for g in own})
        assert table.loc[env, "wait"] == table.loc[env, "first_result"]
    assert table["blind_picks"].sum() == len(views.guesses(view))


def test_an_environment_without_a_result_waits_for_ever(tmp_path):
    view = opened(write_run(tmp_path / "new", steps=1, last_open=True))
    table = views.first_evidence(view)
    assert table["wait"].isna().all()
    assert table["tasks_seen"].sum() == 0


def odd_log(path: Path) -> RunView:
    """Tasks of env0: 0 fails always, 1 errs always, 2 fails once, 3 fails and then does not."""
    groups = [
        *(GroupResult(f"a{i}", "env0", "task-0", (0.0,) * 4, step=i) for i in range(3)),
        *(GroupResult(f"b{i}", "env0", "task-1", (), step=i, missing=4, status="error") for i in range(2)),
        GroupResult("c", "env0", "task-2", (0.0,) * 4, step=0),
        *(GroupResult(f"d{i}", "env0", "task-3", (0.0, float(i)), step=i) for i in range(2)),
    ]
    with RunWriter.create(path, new_manifest(path.name, "import", reward_ranges={"env0": (0.0, 1.0)})) as writer:
        writer.add_tasks(catalogue(envs=1))
        for group in groups:
            writer.observed([group], group.step)
    return opened(path)


def test_where_all_rewards_are_the_same_no_task_is_said_to_fail(tmp_path):
    groups = [GroupResult(f"a{i}", "env0", f"task-{i % 2}", (1.0,) * 4, step=i) for i in range(6)]
    with RunWriter.create(tmp_path / "r", new_manifest("r", "import", reward_ranges={"env0": (1.0, 1.0)})) as writer:
        writer.add_tasks(catalogue(envs=1))
        for group in groups:
            writer.observed([group], group.step)
    assert views.stuck_tasks(opened(tmp_path / "r"), 2).empty


@pytest.mark.parametrize(
    ("steps", "config", "learned"),
    [
        (3, {"tau_within_grid": [0.0], "tau_cross_grid": [0.0, 0.2]}, {"within": False, "cross": True}),
        (3, {"learn_trust": False}, {"within": False, "cross": False}),
        (1, {}, {"within": False, "cross": False}),
    ],
)
def test_why_nothing_is_transferred(run, tmp_path, steps, config, learned):
    """The recorded decisions with both weights at 0, of which the last step's trust was learned from groups or not."""
    manifest = new_manifest("r", "live", scheduler="envsched", config=config)
    with RunWriter.create(tmp_path / "r", manifest) as writer:
        writer.add_tasks(catalogue())
        for decision in decisions(run)[:steps]:
            none = msgspec.structs.replace(decision.trust, tau_within=0.0, tau_cross=0.0)
            writer.asked(msgspec.structs.replace(decision, trust=none))
    table = views.transfer_off(opened(tmp_path / "r"))
    assert dict(zip(table["relation"], table["learned"], strict=True)) == learned
    assert set(table["step"]) == {steps - 1}
    assert (table["scored"] > 0).all() == (steps > 1)


def test_where_relations_are_trusted_none_is_off(tmp_path):
    assert views.transfer_off(opened(write_log(tmp_path / "log"))).empty


def test_stuck_tasks_fail_or_err_every_time(tmp_path):
    view = odd_log(tmp_path / "odd")
    table = views.stuck_tasks(view, 2)
    found = table[["task", "why", "visits", "rollouts", "missing"]].to_numpy().tolist()
    assert found == [["task-0", "failing", 3, 12, 0], ["task-1", "erroring", 2, 8, 8]]
    assert (table["first_step"].tolist(), table["last_step"].tolist()) == ([0, 0], [2, 1])
    assert "task-2" in views.stuck_tasks(view, 1)["task"].tolist()
    assert views.rollouts_seen(view) == 28


def test_a_pick_that_was_given_back_counts_as_a_try(view):
    released = view.query("SELECT env, task FROM outcomes WHERE ended = 'released'").iloc[0]
    seen = view.query("SELECT mean FROM groups WHERE env = ? AND task = ?", [released["env"], released["task"]])["mean"]
    assert not seen.any()
    table = views.stuck_tasks(view, 1).set_index(["env", "task"])
    row = table.loc[(released["env"], released["task"])]
    assert (row["visits"], row["groups"], row["ended"], row["reasons"]) == (1 + len(seen), len(seen), 1, "truncated")
    assert row["why"] == ("failing" if len(seen) else "erroring")


def test_errors_equal_a_direct_computation(view):
    picks = view.query(
        "SELECT o.*, usable FROM outcomes o JOIN candidates USING (candidate) WHERE o.state = 'prior only' "
        "AND ended = 'observed'"
    )
    row = views.errors_by_state(view).set_index("state").loc["prior only"]
    off = (picks["observed_mean"] - picks["predicted_mean"]).to_numpy(float)
    assert row["groups"] == len(picks)
    assert row["mean_error"] == pytest.approx(np.sqrt((off**2).mean()))
    assert row["bias"] == pytest.approx(off.mean())
    assert row["noise"] == pytest.approx(np.sqrt((picks["observed"].astype(float) / 3).mean()))
    assert row["predicted_variance"] == pytest.approx(0.75 * picks["predicted"].mean())
    assert row["brier"] == pytest.approx(((picks["usable"] - picks["mixed"].astype(float)) ** 2).mean())


def test_errors_by_source_take_the_source_that_told_most(view, run):
    table = views.errors_by_source(view).set_index("source")
    picks = {
        c.pick_id: "global" if d.step == 0 else max(c.shares, key=c.shares.get)
        for d in decisions(run)
        for c in d.candidates
        if c.kept_as == "pick"
    }
    answered = view.query(
        "SELECT c.pick_id FROM outcomes JOIN candidates c USING (candidate) WHERE ended = 'observed' AND scored > 0"
    )["pick_id"]
    assert table["groups"].to_dict() == Counter(picks[pick_id] for pick_id in answered)
    assert table["groups"].sum() == views.errors_by_state(view)["groups"].sum()


def test_errors_of_uniform_draws_alone(view):
    draws = view.query("SELECT count(*) n FROM outcomes WHERE outcome = 'uniform_draw' AND ended = 'observed'")
    assert views.errors_by_state(view, draws_only=True)["groups"].sum() == draws["n"].iloc[0]


def test_sources_of_a_step_sum_to_one(view):
    table = views.source_shares(view)
    assert table.groupby("step")["share"].sum().to_numpy() == pytest.approx(1.0)


def test_the_player_shows_states_and_picks(view):
    found = views.first_steps(view, most_steps=3)
    assert (found.steps, found.states.shape, found.tasks_total) == ((0, 1, 2), (3, 4, 12), 48)
    scores = view.scores(2)
    for row, env in enumerate(found.envs):
        for column, task in enumerate(found.tasks[row]):
            assert found.states[2, row, column] == scores.state[view.node(f"{env}::{task}")]
    for pick in found.picks.itertuples():
        assert (found.envs[pick.row], found.tasks[pick.row][pick.column]) == (pick.env, pick.task)
    assert len(found.picks) == 24


def test_the_player_cuts_what_nothing_happened_to(view):
    found = views.first_steps(view, most_steps=1, most_envs=2, most_tasks=3)
    assert (len(found.envs), found.environments_total, found.states.shape) == (2, 4, (1, 2, 3))
    assert found.picks["row"].isna().any()
    first = found.picks.iloc[0]
    assert (first["row"], first["column"]) == (0, 0)


def test_the_player_without_scores_knows_what_is_on_record(bare, run):
    found = views.first_steps(bare, most_steps=1)
    known = {(c.env, c.task) for c in decisions(run)[0].candidates}
    for row, env in enumerate(found.envs):
        for column, task in enumerate(found.tasks[row]):
            assert (found.states[0, row, column] == -1) == ((env, task) not in known)


def test_logs_without_decisions_or_steps_have_empty_tables(tmp_path):
    for view in (opened(write_log(tmp_path / "log")), opened(write_log(tmp_path / "stepless", steps=False))):
        assert views.evidence_states(view).empty
        assert views.picks_by_state(view).empty
        assert views.guesses(view).empty
        assert views.errors_by_state(view).empty
        assert views.first_steps(view).steps == ()
        assert views.evidence_reached(view)["half"].isna().all()
        assert views.first_evidence(view)["tasks_seen"].sum() == 24
