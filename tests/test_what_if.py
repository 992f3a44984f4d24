"""What if: unchanged settings give the recorded batch again, changed ones what a fresh scheduler would have decided."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import catalogue, simulated, write_run

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config, config_from
from envsched_core.errors import ConfigError, ContractError, UnknownTaskError
from envsched_core.live import LiveSession
from envsched_core.records import Decision
from envsched_core.replay import walk as walks
from envsched_core.replay.journal import Journal
from envsched_core.replay.rederive import Calls
from envsched_core.replay.smallest import smallest_change
from envsched_core.replay.walk import Walk
from envsched_core.replay.what_if import Moment, settings_of, what_if
from envsched_core.scheduler import EnvSched
from envsched_core.scheduler.changed import begin, explain_all
from envsched_core.store import RunReader, RunWriter, new_manifest

STEPS, BATCH = 4, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Four steps; a pick of step 1 is released."""
    return write_run(tmp_path_factory.mktemp("what_if") / "demo", steps=STEPS, batch=BATCH)


@pytest.fixture(scope="module")
def moment(run) -> Moment:
    return Walk(run).to(3)


@pytest.fixture(scope="module")
def before(run) -> EnvSched:
    """A scheduler that has repeated the calls before step 3, and step 3 has not begun for it."""
    calls = Calls(RunReader(run))
    for located in RunReader(run).events():
        if located.event.kind == "asked" and located.event.data.step == 3:
            break
        calls.apply(located.event)
    return calls.scheduler


def recorded(run: Path, step: int) -> list[Decision]:
    events = (located.event for located in RunReader(run).events())
    return [event.data for event in events if event.kind == "asked" and event.data.step == step]


def piecewise(path: Path, scheduler: str, **knobs: object) -> Path:
    """A run of any scheduler that asks for three picks at a time, with results and a release between the asks."""
    config = config_from({"batch_size": 6, "max_share": 0.4, **knobs})
    chosen, number = make_scheduler(scheduler, config), 0
    facts = {"scheduler": scheduler, "config": msgspec.to_builtins(chosen.config), "batch_size": 6}
    with RunWriter.create(path, new_manifest(path.name, "live", **facts)) as writer:
        journal = Journal(chosen, writer)
        journal.register(catalogue())
        for step in range(3):
            for part in range(2):
                picks = journal.ask(3, step).picks
                if part == 0:
                    journal.release([picks[0].pick_id], "stale", step)
                    picks = picks[1:]
                bare = [simulated(pick.env, pick.task, step, number + i) for i, pick in enumerate(picks)]
                number += len(picks)
                pairs = zip(bare, picks, strict=True)
                journal.observe([msgspec.structs.replace(g, pick_id=pick.pick_id) for g, pick in pairs], step)
    return path


# ---------------------------------------------------------------------- the recorded batch


def test_unchanged_settings_give_every_recorded_batch_again(run):
    walk = Walk(run)
    for step in range(STEPS):
        moment = walk.to(step)
        assert list(moment.recorded) == recorded(run, step)
        assert moment.decide().decisions == moment.recorded  # byte for byte: the same machine wrote it
        assert moment.fault() == ""


KINDS = ("envsched", "empirical-bayes", "round-robin", "mopps", "dump", "difficulty-pool")


@pytest.mark.parametrize("scheduler", KINDS)
def test_steps_asked_for_in_parts_come_out_again_under_every_kind_of_scheduler(tmp_path, scheduler):
    run = piecewise(tmp_path / "parts", scheduler)
    walk = Walk(run)
    for step in (1, 2):
        moment = walk.to(step)
        assert len(moment.recorded) == 2
        assert moment.decide({}).decisions == moment.recorded
        assert what_if(moment, {}).moves == ()


class Counted(Calls):
    """Calls that are counted."""

    applied = 0

    def apply(self, event):
        Counted.applied += 1
        return super().apply(event)


@pytest.fixture
def counted(monkeypatch):
    """Calls that were repeated since the last look."""
    monkeypatch.setattr(walks, "Calls", Counted)

    def look() -> int:
        found, Counted.applied = Counted.applied, 0
        return found

    look()
    return look


@given(st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=6))
@settings(max_examples=6)
def test_steps_may_be_asked_for_in_any_order(run, steps):
    walk = Walk(run)
    for step in steps:
        assert walk.to(step).decide().decisions == tuple(recorded(run, step))


def test_a_walk_goes_back_to_the_state_it_kept(run, counted):
    walk = Walk(run)
    walk.to(3)
    there = counted()
    for step in (2, 1, 0):
        walk.to(step)
        assert counted() == 0
    assert [stand.step for stand in walk._stands] == [0, 1, 2, 3]
    walk.to(3)
    assert counted() == 0
    assert there > 3 * BATCH


def test_few_states_are_kept_and_none_of_a_large_run(tmp_path, monkeypatch):
    run = write_run(tmp_path / "long", steps=12, batch=2)
    walk = Walk(run)
    walk.to(11)
    assert [stand.step for stand in walk._stands] == [0, 2, 4, 6, 8, 10]
    assert walk.to(7).decide().decisions == tuple(recorded(run, 7))
    monkeypatch.setattr(walks, "KEPT_TASKS", 1)
    large = Walk(run)
    large.to(5)
    assert large._stands == []


@pytest.fixture
def saved(tmp_path) -> Path:
    """A live session of 9 steps with a snapshot before steps 3 and 6."""
    path = tmp_path / "live"
    with LiveSession.create(path, "envsched", Config(batch_size=4, group_size=4, seed=2), snapshot_every=3) as live:
        live.register(catalogue())
        for step in range(9):
            bare = [(pick, simulated(pick.env, pick.task, step, i)) for i, pick in enumerate(live.ask(4, step=step))]
            live.observe([msgspec.structs.replace(g, pick_id=p.pick_id, group_id=p.pick_id) for p, g in bare])
    return path


def test_a_walk_begins_at_the_saved_state_nearest_before_the_step(saved, counted):
    assert RunReader(saved).state_steps() == [3, 6]
    for step in (8, 5, 7, 3):
        walk = Walk(saved)
        assert walk.to(step).decide().decisions == tuple(recorded(saved, step))
        assert walk.to(step).fault() == ""
        assert counted() <= 2 * 5  # one ask and four results a step
    (saved / "state" / "6.npz").write_bytes(b"damaged")
    assert Walk(saved).to(8).fault() == ""
    assert 10 < counted() <= 5 * 5


def test_a_step_that_was_not_asked_for_is_told(run):
    walk = Walk(run)
    with pytest.raises(UnknownTaskError, match="at step 9"):
        walk.to(9)


def test_progress_is_told(run):
    told: list[tuple[int, int]] = []
    Walk(run).to(3, lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_a_changed_record_is_told(tmp_path):
    """The manifest's seed is not that of the run: its decisions do not come out again."""
    run = write_run(tmp_path / "other", steps=2)
    manifest = run / "run.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace('"seed": 3', '"seed": 4'), encoding="utf-8")
    fault = Walk(run).to(1).fault()
    assert "of the 8 recorded picks come out again" in fault


def test_a_step_begins_once(moment):
    scheduler = make_scheduler("envsched", Config(batch_size=2))
    scheduler.register(catalogue())
    begin(scheduler, 0)
    scheduler.ask(2, step=0)
    with pytest.raises(ContractError, match="step 0 cannot begin"):
        begin(scheduler, 0)


# ---------------------------------------------------------------------- changed settings

changes = st.fixed_dictionaries(
    {},
    optional={
        "weight_task": st.sampled_from([0.0, 0.5, 3.0]),
        "weight_environment": st.sampled_from([0.0, 2.0]),
        "weight_similarity": st.sampled_from([0.0, 1.0]),
        "temperature": st.sampled_from([0.0, 1.0]),
        "max_share": st.sampled_from([0.25, 1.0]),
        "max_shares": st.sampled_from([{"env1": 0.0}, {"env2": 1.0}]),
        "pin_tasks": st.sampled_from([("env1::task-3",), ("env0::task-9", "env2::task-2")]),
        "exclude_environments": st.sampled_from([("env0",)]),
    },
)


@given(changes)
@settings(max_examples=8)
def test_changed_settings_decide_as_a_fresh_scheduler_that_carries_on(moment, before, wanted):
    """The law: sharing what was learned gives what saving, changing the config and carrying on gives."""
    fresh = make_scheduler("envsched", config_from(wanted, before.config))
    fresh.register(catalogue())
    fresh.load_state_dict(before.state_dict())
    assert moment.decide(wanted).decisions == (fresh.ask(BATCH, step=3),)


@given(changes)
@settings(max_examples=6)
def test_deciding_leaves_the_moment_as_it_was(moment, wanted):
    moment.decide(wanted)
    assert moment.decide().decisions == moment.recorded


def test_a_lean_trial_picks_the_same(moment):
    for wanted in ({}, {"weight_task": 0.0}, {"max_share": 1.0}):
        assert list(moment.decide(wanted, lean=True).picks()) == list(moment.decide(wanted).picks())


def test_what_enters_and_leaves_and_why(moment):
    found = what_if(moment, {"exclude_environments": ["env0"], "weight_task": 0})
    before, after = ({p.key for d in side for p in d.picks} for side in (found.before, found.after))
    assert {m.key for m in found.moves if m.change == "enters"} == after - before
    assert {m.key for m in found.moves if m.change == "leaves"} == before - after
    assert found.stay == len(before & after)
    assert not any(key.startswith("env0::") for key in after)
    assert found.changes["weight_task"] == (1.0, 0.0)
    for move in found.moves:
        assert (move.before.picked, move.after.picked) == (move.change == "leaves", move.change == "enters")
        for told in (move.before, move.after):
            assert sum(told.candidate.terms.values()) == pytest.approx(told.candidate.score, abs=1e-9)


def test_a_relation_is_switched_off(moment):
    off = moment.decide({"tau_within": 0.0, "tau_cross": 0.0})
    trust = off.decisions[0].trust
    assert (trust.tau_within, trust.tau_cross) == (0.0, 0.0)
    assert all(c.shares["within"] == c.shares["cross"] == 0.0 for c in off.picks().values())


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"half_lives": (1.0,)}, "'half_lives' cannot be changed for one step"),
        ({"weight_task": -1}, "weight_task"),
        ({"tau_within": 0.17}, "tau_within must be one of the values"),
        ({"tau_within": "off"}, "tau_within must be a number"),
        ({"max_shares": 3}, "max_shares"),
    ],
)
def test_settings_that_cannot_be_are_refused(moment, wanted, said):
    with pytest.raises(ConfigError, match=said):
        moment.decide(wanted)


def test_only_what_the_scheduler_reads_may_be_set(run, moment, tmp_path):
    names = {s.name: s for s in settings_of(RunReader(run).manifest, moment.recorded[-1])}
    assert names["weight_task"].value == 1.0
    assert names["max_share"].value == 0.3
    assert names["tau_within"].choices == tuple(sorted(Config().tau_within_grid))
    assert "weight_cost" not in names
    peer = piecewise(tmp_path / "peer", "mopps")
    kinds = {s.kind for s in settings_of(RunReader(peer).manifest, recorded(peer, 1)[-1])}
    assert kinds == {"draw", "quota"}


def test_only_the_asks_before_tasks_joined_are_decided_again(tmp_path):
    tasks = catalogue()
    chosen = make_scheduler("envsched", Config(batch_size=4))
    facts = {"scheduler": "envsched", "config": msgspec.to_builtins(chosen.config), "batch_size": 4}
    with RunWriter.create(tmp_path / "joined", new_manifest("joined", "live", **facts)) as writer:
        journal = Journal(chosen, writer)
        journal.register(tasks[:30])
        journal.ask(2, 0)
        journal.register(tasks[30:])
        journal.ask(2, 0)
    moment = Walk(tmp_path / "joined").to(0)
    assert [len(d.picks) for d in moment.recorded] == [2]
    assert moment.fault() == ""
    assert "joined in the middle" in what_if(moment, {}).notes[0]


# ---------------------------------------------------------------------- the smallest change


def not_picked(moment: Moment, outcome: str) -> str:
    candidates = moment.unchanged().decisions[-1].candidates
    return next(c.key for c in candidates if c.outcome == outcome)


def test_every_smallest_change_is_confirmed_and_nothing_smaller_was_a_trial(run, moment):
    known = settings_of(RunReader(run).manifest, moment.recorded[-1])
    told: list[tuple[int, int]] = []
    key = not_picked(moment, "below_cutoff")
    found = smallest_change(moment, key, known, lambda done, total: told.append((done, total)))
    assert (found.key, found.picked, found.barred) == (key, False, "")
    assert found.changes[-1].kind == "pin"
    for change in found.changes:
        picks = moment.decide(change.settings).picks()
        assert picks[key].position == change.position
        assert len(moment.unchanged().picks().keys() - picks.keys()) == change.leave
        if change.kind == "weight":  # a tenth of the way short of it, it is not picked: bisection ends within 3 %
            short = change.was + 0.9 * (change.needs - change.was)
            assert key not in moment.decide({change.name: short}).picks()
    leaves = [change.leave for change in found.changes[:-1]]
    assert leaves == sorted(leaves)
    assert told[-1][0] == told[-1][1]
    assert found.tried >= len(found.changes)


def test_a_full_quota_needs_one_more(tmp_path):
    """Everything but the quota is switched off, and all tasks of an environment are worth the same."""
    config = Config(batch_size=6, max_share=0.5, temperature=0.0, uniform_share=0.0, weight_similarity=0.0, seed=1)
    config = msgspec.structs.replace(config, weight_environment=0.0, weight_task=0.0, weight_pattern=0.0)
    config = msgspec.structs.replace(config, features_share_grid=(0.0,), tau_within_grid=(0.0,))
    chosen = make_scheduler("envsched", config)
    facts = {"scheduler": "envsched", "config": msgspec.to_builtins(config), "batch_size": 6}
    with RunWriter.create(tmp_path / "quota", new_manifest("quota", "live", **facts)) as writer:
        journal = Journal(chosen, writer)
        journal.register(catalogue(envs=2))
        journal.observe([simulated("env1", f"task-{t}", 0, t) for t in range(12)], 0)
        journal.ask(6, 1)
    moment = Walk(tmp_path / "quota").to(1)
    key = not_picked(moment, "quota_full")
    found = smallest_change(moment, key, ())
    quota = next(change for change in found.changes if change.kind == "quota")
    assert quota.was == 3.0
    assert quota.needs >= 4.0
    assert key not in moment.decide({"max_shares": {quota.name: (quota.needs - 1) / 6}}).picks()


def test_a_pick_needs_no_change_and_an_unknown_task_has_none(moment):
    assert smallest_change(moment, moment.recorded[0].picks[0].key, ()).picked
    with pytest.raises(UnknownTaskError, match="no task nowhere::1"):
        smallest_change(moment, "nowhere::1", ())


def test_a_task_that_could_not_be_picked_has_a_bar_or_an_exclusion(tmp_path):
    run = piecewise(tmp_path / "excluded", "envsched", exclude_tasks=("env1::task-1",), cool_down=1)
    moment = Walk(run).to(2)
    found = smallest_change(moment, "env1::task-1", ())
    assert found.barred == "unavailable" or found.changes[0].kind == "exclusion"
    for change in found.changes:
        assert "env1::task-1" in moment.decide(change.settings).picks()
    resting = recorded(run, 1)[-1].picks[0].key
    barred = smallest_change(moment, resting, ())
    assert (barred.barred, barred.changes) == ("cooling_down", ())


def test_many_tasks_are_explained_as_each_is(moment):
    again = moment.decide({"weight_task": 0.0})
    keys = [task.key for task in catalogue()[::5]]
    assert explain_all(again.scheduler, keys) == [again.explain(key) for key in keys]
