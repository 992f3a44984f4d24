from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import catalogue, opened, simulated, write_log, write_run

from envsched_core import views
from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.errors import UnknownTaskError
from envsched_core.importers import ImportReport
from envsched_core.records import GroupResult
from envsched_core.replay import config_for, load_pool, replay_audit, replay_pool
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunReader, RunWriter, new_manifest
from envsched_core.views import RunView, report_against, report_charts, report_facts
from envsched_core.views.nearly_flat import NEARLY_FLAT, nearly_flat
from envsched_core.views.report_facts import savings

IMPORTED = ImportReport(
    formats=("plain",), files=("log.jsonl",), rows=8, kept=8, dropped=0, drop_reasons={}, first_drops=(),
    environments=1, tasks=2, listed_tasks=0, groups=2, rollouts=8, missing=0, group_sizes=((4, 2),), usual_size=4,
    partial_groups=0, comparable_groups=2, flat_groups=0.5, flat_rollouts=0.5, mean_reward=0.5, mean_variance=0.1,
    rewards=(), kept_only=False, warning="", prompt_conflicts=0, first_conflicts=(), answer_conflicts=0,
    changed_prompts=0, repeats=0, steps=None, policy_versions=0, notes=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> RunView:
    return opened(write_run(tmp_path_factory.mktemp("report") / "demo", last_open=True))


@pytest.fixture(scope="module")
def replayed(imported_run, tmp_path_factory) -> RunView:
    out = tmp_path_factory.mktemp("replayed") / "runs" / "replayed"
    config = config_for(load_pool(imported_run), {"batch_size": 12})
    replay_pool(imported_run, out, config=config, steps=6)
    return opened(out)


@pytest.fixture(scope="module")
def report(view) -> views.Report:
    return views.report(view)


@pytest.fixture(scope="module")
def replay_report(replayed) -> views.Report:
    return views.report(replayed)


def said(report: views.Report, question: str) -> str:
    return next(answer.sentence for answer in report.answers if question in answer.question)


def test_the_headline_equals_a_direct_computation(view, report):
    groups = [e.event.data for e in RunReader(view.path).events() if e.event.kind == "observed"]
    mixed = [len(set(group.rewards)) > 1 for group in groups]
    figures = {figure.label: figure.value for figure in report.figures}
    assert figures["Groups with mixed rewards"] == f"{sum(mixed) / len(mixed):.0%}"
    assert figures["Rollouts in flat groups"] == str(4 * (len(mixed) - sum(mixed)))
    assert "8 still wait" in " ".join(report.caveats)
    note = next(figure.note for figure in report.figures if figure.label == "Groups with mixed rewards")
    assert note.endswith("from drawing tasks anew (Compare: steps)")
    found = report_facts.mixed_share(view)
    assert found.mean == pytest.approx(sum(mixed) / len(mixed))
    assert found.low <= found.mean <= found.high


def test_savings_of_a_replay_are_held_against_the_whole_log(imported_run, replayed):
    found = savings(replayed, views.summary(replayed))
    told = views.summary(replayed)
    groups = [e.event.data for e in RunReader(imported_run).events() if e.event.kind == "observed"]
    flat: dict[str, list[bool]] = {}
    for group in groups:
        flat.setdefault(group.key, []).append(len(set(group.rewards)) == 1)
    assert found.against == "pool"
    assert found.uniform == pytest.approx(np.mean([np.mean(one) for one in flat.values()]))
    assert found.flat == pytest.approx(told.wasted_rollouts / told.rollouts)
    assert found.saved.mean == pytest.approx(found.uniform - found.flat)
    assert found.saved.low <= found.saved.mean <= found.saved.high


def drawn_run(path: Path) -> RunView:
    """A live run in which about half of the picks are uniform draws."""
    config, tasks, number = Config(batch_size=12, max_share=0.5, uniform_share=0.5, seed=1), catalogue(), 0
    scheduler = EnvSched(config)
    scheduler.register(tasks)
    with RunWriter.create(path, new_manifest("drawn", "live", scheduler="envsched", batch_size=12)) as writer:
        writer.add_tasks(tasks)
        for step in range(6):
            decision = scheduler.ask(12, step=step)
            groups = [simulated(pick.env, pick.task, step, number + i) for i, pick in enumerate(decision.picks)]
            number += len(groups)
            writer.asked(decision)
            scheduler.observe(groups)
            writer.observed(groups, step)
    return opened(path)


def test_savings_of_a_live_run_are_held_against_its_own_uniform_draws(tmp_path):
    view = drawn_run(tmp_path / "drawn")
    found = savings(view, views.summary(view))
    rows = view.query("SELECT outcome = 'uniform_draw' drawn, scored, mixed FROM outcomes WHERE number IS NOT NULL")
    for drawn, share in ((True, found.uniform), (False, found.flat)):
        part = rows[rows["drawn"] == drawn]
        assert share == pytest.approx(part.loc[~part["mixed"], "scored"].sum() / part["scored"].sum())
    assert (found.against, found.reference) == ("draws", rows["drawn"].sum())
    assert found.rollouts == rows.loc[~rows["drawn"], "scored"].sum()
    assert found.saved.mean == pytest.approx(found.uniform - found.flat)
    assert set(report_facts.mixed_trend(view)["who"]) == {"picks by score", "uniform draws"}


def test_savings_of_a_live_run_need_enough_uniform_draws(view):
    found = savings(view, views.summary(view))
    assert found.against == "nothing"
    assert "0 uniform draws of this run were observed; 16 are the least" in found.how


def test_what_cannot_be_told_is_not_told(tmp_path, imported_run, replayed):
    log = views.report(opened(write_log(tmp_path / "log")))
    assert said(log, "save rollouts").startswith("It cannot be told: this is a log")
    assert said(log, "stop guessing") == "There is no decision in this run, so nothing was guessed."
    assert log.example is None
    replay_audit(imported_run, tmp_path / "audit", steps=3)
    audit = views.report(opened(tmp_path / "audit"))
    assert "invents no reward" in said(audit, "save rollouts")
    assert next(f.value for f in audit.figures if f.label == "Rollouts saved") == "n/a"
    moved = without_source(replayed)
    assert "not where it was" in savings(moved, views.summary(moved)).how


def without_source(view: RunView) -> RunView:
    """The same run, its source out of reach."""
    moved = opened(view.path)
    moved.manifest.source["path"] = "nowhere"
    return moved


def test_when_guessing_ended_equals_a_direct_computation(view):
    table = view.query("SELECT step, state, outcome FROM outcomes")
    guess = (table["state"] == "prior only") & (table["outcome"] != "uniform_draw")
    knew = table["state"].isin(["neighbours", "own history"])
    most = knew.groupby(table["step"]).mean() > 0.5
    ahead = [int(step) for step in most.index if most[most.index >= step].all()]
    found = report_facts.guessing(view)
    assert (found.guesses, found.informed) == (guess.sum(), knew.sum())
    assert found.guesses_until == max(
        (step for step, part in guess.groupby(table["step"]) if part.mean() > 0.5), default=None
    )
    assert found.last_guess == max(table["step"][guess], default=None)
    assert found.informed_from == (ahead[0] if ahead else None)
    assert (found.informed_steps, found.steps) == (most.sum(), len(most))
    last = table[table["step"] == table["step"].max()]
    assert found.last_state == last["state"].mode()[0]


def test_a_scheduler_that_uses_no_prediction_is_not_said_to_predict(tmp_path, report):
    scheduler, tasks, number = make_scheduler("uniform", Config(batch_size=8, seed=3)), catalogue(), 0
    scheduler.register(tasks)
    with RunWriter.create(tmp_path / "r", new_manifest("r", "live", scheduler="uniform", batch_size=8)) as writer:
        writer.add_tasks(tasks)
        for step in range(3):
            decision = scheduler.ask(8, step=step)
            groups = [simulated(pick.env, pick.task, step, number + i) for i, pick in enumerate(decision.picks)]
            number += len(groups)
            writer.asked(decision)
            scheduler.observe(groups)
            writer.observed(groups, step)
    view = opened(tmp_path / "r")
    assert view.row("SELECT count(loglik) n FROM decisions")["n"]  # predictions are kept beside the picks
    found = views.report(view)
    figures = {figure.label: (figure.value, figure.note) for figure in found.figures}
    assert figures["Stopped guessing"] == ("n/a", "it chose without predictions")
    assert said(found, "stop guessing").startswith("It chose without predictions")
    assert "the predictions kept beside its picks" in said(found, "predictions right")
    assert next(c.title for c in found.charts if c.key == "evidence") == "What was known of the picks"
    assert "picks are chosen by prediction" not in " ".join(found.caveats)
    assert "kept beside" not in said(report, "predictions right")


def test_visits_are_held_against_what_uniform_draws_would_give(view):
    table = report_facts.visits_by_environment(view)
    assert table["visits"].sum() == views.summary(view).picks
    assert table["expected"].sum() == pytest.approx(views.summary(view).picks)
    assert (table["ratio"] * table["expected"]).tolist() == pytest.approx(table["visits"].tolist())
    assert (table["starved"] == (table["visits"] < 0.25 * table["expected"])).all()


def test_the_example_is_the_first_pick_by_score_and_its_terms_add_up(view, report):
    example = report.example
    assert example is not None
    assert (example.step, example.picked) == (2, True)
    assert example.terms["value"].sum() == pytest.approx(example.score, abs=1e-9)
    assert example.shares["share"].sum() == pytest.approx(1.0)
    first = view.query(
        "SELECT env, task FROM outcomes WHERE step = 2 AND outcome <> 'uniform_draw' ORDER BY position LIMIT 1"
    ).iloc[0]
    assert (example.env, example.task) == (first["env"], first["task"])
    key = f"{example.env}::{example.task}"
    assert said(report, f"Why was {key} picked at step 2").startswith(f"{key} was pick ")
    assert "rewards" in example.afterwards
    assert "was not picked at step 2" in said(report, "why not the best-ranked")
    missed = view.query(
        "SELECT env, task FROM candidates WHERE step = 2 AND kept_as <> 'pick' AND rank > 0 ORDER BY rank LIMIT 1"
    ).iloc[0]
    assert said(report, "why not the best-ranked").startswith(f"{missed['env']}::{missed['task']} ")


def test_a_reader_may_choose_the_example(view):
    missed = view.query("SELECT env, task FROM candidates WHERE step = 1 AND kept_as = 'near_miss' LIMIT 1").iloc[0]
    found = views.report(view, step=1, task=f"{missed['env']}::{missed['task']}").example
    assert found is not None
    assert (found.step, found.picked, found.rival) == (1, False, "")
    with pytest.raises(UnknownTaskError, match="no decision at step 99"):
        views.report(view, step=99)
    with pytest.raises(UnknownTaskError, match="nowhere"):
        views.report(view, task="nowhere::1")


def measured(path: Path, run: str, values: list[float]) -> RunView:
    """A run of the small world, after whose last step the trainer's measures were noted."""
    made = write_run(path / run, steps=len(values))
    with RunWriter.resume(made) as writer:
        for step, value in enumerate(values):
            writer.note(step, {"metric": "heldout_success", "value": value})
            writer.note(step, {"metric": "loss", "value": 1.0 - value})
    return opened(made)


def test_a_second_run_is_held_against_it_by_what_both_reached(tmp_path):
    a, b = measured(tmp_path, "a", [0.1, 0.6, 0.5]), measured(tmp_path, "b", [0.1, 0.2, 0.55])
    found = views.report(a, other=b)
    text = said(found, "second run")
    assert "Both reached heldout success 0.55: this run first, at step 1; b at step 2." in text
    ours, theirs = (views.steps(view)["rollouts"].cumsum()[i] for i, view in ((0, a), (1, b)))
    until = f"{ours} rollouts against {theirs} ({theirs - ours} fewer, {ours / theirs - 1:+.0%})"
    assert (
        f"Spent to get there, this run against b: {until}; {ours} turns against {theirs} (" in text
    )  # 4 turns a group
    assert f"; {2 * ours} tool calls against {2 * theirs} (" in text
    assert "At the end this run stood at 0.5, b at 0.55. " in text
    total = views.summary(a).rollouts
    assert f"Spent in all, this run against b: {total} rollouts against {total} (as many); " in text
    late = report_against.against(b, a).sentence
    assert "Both reached heldout success 0.55: a first, at step 1; this run at step 2." in late
    assert f"{theirs} rollouts against {ours} ({theirs - ours} more, {theirs / ours - 1:+.0%})" in late
    assert "they do not differ in it" in text
    assert "Both have one more measure, of which it is not known whether higher is better: left out." in text
    assert "loss" not in text
    assert any("one seed" in caveat for caveat in found.caveats)
    assert set(found.tables["second_run"]["figure"]) >= {"flat_share", "rollouts"}


def test_runs_that_took_as_many_rollouts_differ_by_no_share(tmp_path):
    a, b = measured(tmp_path, "a", [0.1, 0.6]), measured(tmp_path, "b", [0.2, 0.6])
    text = said(views.report(a, other=b), "second run")
    assert "Both reached heldout success 0.6: both at step 1." in text
    assert "32 rollouts against 32 (as many)" in text
    assert "0% more" not in text


def test_costs_that_one_run_does_not_tell_are_left_out(tmp_path, view):
    bare = write_log(tmp_path / "log", steps=False)  # no cost is on record
    assert set(report_against._spent(opened(bare), None).dropna().index) == {"rollouts"}
    assert set(report_against._spent(view, None).dropna().index) == set(report_against.COSTS)


def test_mixed_groups_that_hardly_differ_are_told(tmp_path):
    rewards = [(1.0, 1.0, 0.9995), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.99, 1.0, 0.99)]
    with RunWriter.create(tmp_path / "r", new_manifest("r", "import")) as writer:
        writer.add_tasks(catalogue(envs=1))
        groups = [GroupResult(f"g{i}", "env0", f"task-{i}", one) for i, one in enumerate(rewards)]
        writer.observed(groups, None)
    near = opened(tmp_path / "r")
    spread = [float(np.std(one)) for one in rewards]
    expected = sum(0 < one < NEARLY_FLAT for one in spread), sum(one > 0 for one in spread)
    assert nearly_flat(near) == expected == (2, 3)
    told = [caveat for caveat in views.report(near).caveats if "mixed groups differ by less" in caveat]
    assert [one.partition(" (")[0] for one in told] == [
        "2 of 3 mixed groups differ by less than 0.01 of the reward range"
    ]
    alert = views.alerts(near).set_index("alert").loc["nearly_flat"]
    assert (alert["count"], alert["of"]) == expected


def test_runs_that_cannot_be_compared_get_no_figures(view, replayed):
    text = said(views.report(view, other=replayed), "second run")
    assert "are not comparable: different pools" in text
    assert "Both reached" not in text
    assert "points by step" not in text


def test_every_chart_that_can_be_filled_is_there_and_has_its_table(replay_report, report):
    drawn = ["mixed", "evidence", "environments", "calibration", "coverage"]
    for one in (report, replay_report):
        assert [chart.key for chart in one.charts] == drawn
        assert {chart.table for chart in one.charts} <= set(one.tables)


def test_two_curves_that_are_one_line_are_not_drawn(view):
    covered = views.coverage(view)
    one_line = covered.table.assign(uniform_tasks=covered.table["tasks"].astype(float))
    assert report_charts._coverage(covered) is not None
    assert report_charts._coverage(msgspec.structs.replace(covered, table=one_line)) is None


def test_the_trend_counts_every_observed_pick_once(view):
    table = report_facts.mixed_trend(view)
    assert table["groups"].sum() == views.summary(view).counted
    assert table["mixed"].sum() == views.summary(view).mixed
    assert ((table["low"] <= table["share"]) & (table["share"] <= table["high"])).all()


def test_calibration_holds_every_answered_pick(replayed):
    table = report_facts.calibration(replayed)
    assert table["groups"].sum() == views.summary(replayed).answered
    assert table["predicted"].is_monotonic_increasing
    told = views.summary(replayed)
    mean = (table["observed"] * table["groups"]).sum() / table["groups"].sum()
    assert mean / 4 == pytest.approx(told.mean_variance)


def test_caveats_tell_logged_from_simulated_and_biased_from_complete(replay_report, report, tmp_path):
    text = " ".join(report.caveats)
    assert "Rewards: simulated" in text
    assert "One run on one seed" in text
    replay = " ".join(replay_report.caveats)
    assert "exact on the log" in replay
    assert "silent on the policy" in replay
    assert "observed, not what was declared" in " ".join(views.report(opened(write_log(tmp_path / "log"))).caveats)


def test_what_the_import_warns_of_is_said_once(tmp_path):
    report = msgspec.structs.replace(IMPORTED, prompt_conflicts=3, notes=("read ('/home/me/a b/log.jsonl')",))
    notes = (*report.warnings(), "taken from file:///home/me/log.jsonl")
    made = new_manifest("r", "import", report=msgspec.to_builtins(report), notes=notes)
    with RunWriter.create(tmp_path / "r", made) as writer:
        writer.add_tasks(catalogue(envs=1))
    caveats = views.report(opened(tmp_path / "r")).caveats
    warned = [caveat for caveat in caveats if "mix rollouts of different tasks" in caveat]
    assert [caveat.partition(":")[0] for caveat in warned] == ["The import warns"]
    assert "Said by the run: taken from log.jsonl" in caveats
    assert "Said by the import: read ('log.jsonl')." in caveats


def test_a_path_that_only_points_at_a_run_gives_its_name(view, monkeypatch):
    monkeypatch.chdir(view.path)
    assert views.report(opened(Path("."))).name == "demo"
    assert opened(Path("scores", "..")).name == "demo"


def test_an_empty_run_has_a_report(tmp_path):
    found = views.report(opened(write_run(tmp_path / "new", steps=0)))
    assert said(found, "What happened").startswith("Nothing was observed yet.")
    assert found.charts == ()


def test_the_same_run_gives_the_same_report(view, report):
    again = views.report(opened(view.path))
    assert (again.figures, again.answers, again.caveats, again.charts) == (
        report.figures, report.answers, report.caveats, report.charts,
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_an_interval_of_a_share_holds_it(pairs):
    n = np.array([a + b for a, b in pairs], dtype=float)
    k = np.array([a for a, _ in pairs], dtype=float)
    low, high = report_facts._jeffreys(k, n)
    share = k / np.maximum(n, 1.0)
    assert ((low >= 0.0) & (high <= 1.0) & (low <= high)).all()
    assert ((low <= share) & (share <= high))[n > 0].all()


@given(st.lists(st.integers(0, 10_000), unique=True).map(sorted), st.integers(1, 30))
def test_blocks_are_few_and_in_order(steps, most):
    block = report_facts._blocks(steps, most)
    firsts = [block[step] for step in steps]
    assert len(set(firsts)) <= most
    assert firsts == sorted(firsts)
    assert all(first <= step and first in steps for step, first in block.items())
