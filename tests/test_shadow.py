"""Shadow mode: when a step is over, what is on record of it, restarts and kills, the loop."""

from __future__ import annotations

import json

import pytest
from shadow_runs import Following, append, lines, matches_import, rows

from envsched_core.errors import ConfigError, LogFormatError, StoreError
from envsched_core.importers import ImportOptions
from envsched_core.replay import verify
from envsched_core.shadow import Shadow, ShadowPlan, follow
from envsched_core.store import RunReader


@pytest.fixture
def table(tmp_path):
    """Follows a JSON-lines table."""
    log = tmp_path / "log.jsonl"
    log.write_text("")
    following = Following(log, tmp_path / "run")
    yield following
    following.shadow.close()


# ---------------------------------------------------------------- steps


def test_a_step_is_over_when_the_next_has_begun(table, tmp_path):
    append(table.log, lines(rows(0)))
    assert table.look() == []
    append(table.log, lines(rows(1)[:1]))
    (first,) = table.look()
    assert (first.step, first.groups, first.new_tasks, first.rows) == (0, 4, 4, 17)
    assert first.informative_share == 0.5
    append(table.log, lines(rows(1)[1:] + rows(2, tasks=range(6))))
    (second,) = table.look()
    assert (second.step, second.new_tasks) == (1, 0)
    (third,) = table.look(everything=True)
    assert (third.groups, third.new_tasks, third.overlap_by_chance) == (6, 2, 1.0)
    matches_import(table, tmp_path, table.log)
    run = RunReader(table.run)
    kinds = [e.event.kind for e in run.events()]
    assert (kinds.count("asked"), kinds.count("observed")) == (3, 14)
    assert run.manifest.kind == "shadow"
    assert run.manifest.config["batch_size"] == 4
    notes = [e.event for e in run.events() if e.event.kind == "note"]
    assert [(n.step, n.data["shadow"]["groups"]) for n in notes] == [(0, 4), (1, 4), (2, 6)]


def test_what_would_have_been_picked_is_released_and_gives_no_evidence(tmp_path):
    log = tmp_path / "log.jsonl"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        "".join(json.dumps({"env": "shop", "task_id": f"t{i}", "text": f"do {i}"}) + "\n" for i in range(20))
    )
    following = Following(log, tmp_path / "run", tasks=tasks)
    append(log, "".join(lines(rows(step)) for step in range(3)))
    steps = following.look(everything=True)
    assert len(following.shadow.session.scheduler.catalogue) == 20
    assert all(step.overlap_by_chance == 0.2 for step in steps)
    metrics = following.shadow.session.metrics()
    answered = sum(round(step.overlap * 4) for step in steps)
    assert metrics["picks/observed"] == answered
    assert metrics["picks/released"] == 12 - answered
    assert metrics["observe/unasked"] == 12 - answered
    assert metrics["picks/open"] == 0
    following.shadow.close()
    assert verify(following.run).ok


def test_late_rows_are_counted_and_late_groups_observed(table):
    append(table.log, lines(rows(0)) + lines(rows(1)[:1]))
    table.look()
    append(table.log, lines(rows(0)[:2]) + lines(rows(0, tasks=range(7, 8))))
    assert table.look(everything=True)[0].step == 1
    assert (table.shadow.counts["late"], table.shadow.counts["late_groups"]) == (2, 1)
    assert [g.task for g in table.groups() if g.step == 0][-1] == "t7"
    table.shadow.close()
    assert verify(table.run).ok


def test_without_steps_groups_come_in_chunks_of_log_order(tmp_path):
    log = tmp_path / "log.jsonl"
    following = Following(log, tmp_path / "run", ShadowPlan(batch_size=3, group_size=4))
    append(log, lines(rows(None, tasks=range(7))[:-1]))
    assert [(s.step, s.groups) for s in following.look()] == [(0, 3), (1, 3)]
    assert following.look() == []
    append(log, lines(rows(None, tasks=range(7))[-1:]))
    assert [(s.step, s.groups) for s in following.look(everything=True)] == [(2, 1)]
    assert [g.step for g in following.groups()] == [0, 0, 0, 1, 1, 1, 2]
    following.shadow.close()
    assert verify(following.run).ok


# ---------------------------------------------------------------- restarts


@pytest.mark.faults
@pytest.mark.parametrize("kill", [False, True])
def test_restarts_change_nothing(tmp_path, kill):
    log, text = tmp_path / "log.jsonl", "".join(lines(rows(step, size=2)) for step in range(6))
    following = Following(log, tmp_path / "run")
    for start in range(0, len(text), 400):
        append(log, text[start : start + 400])
        following.look()
        following.restart(kill=kill)
    following.look(everything=True)
    asked = [e.event.data for e in RunReader(following.run).events() if e.event.kind == "asked"]
    assert [d.step for d in asked] == list(range(6))
    whole = Following(log, tmp_path / "whole")
    whole.look(everything=True)
    assert [d.picks for d in asked] == [
        e.event.data.picks for e in RunReader(whole.run).events() if e.event.kind == "asked"
    ]
    whole.shadow.close()
    matches_import(following, tmp_path, log)


@pytest.mark.faults
@pytest.mark.parametrize("after", ["asked", "observed", "released"])
@pytest.mark.parametrize("stepped", [True, False])
def test_a_step_cut_by_a_kill_is_completed_not_asked_again(tmp_path, monkeypatch, after, stepped):
    log = tmp_path / "log.jsonl"
    following = Following(log, tmp_path / "run", ShadowPlan(batch_size=4, group_size=4))
    append(log, lines(rows(0 if stepped else None)) + lines(rows(1 if stepped else None, tasks=range(4, 9))))
    following.shadow.read()
    with monkeypatch.context() as killed:
        sink = "envsched_core.live.sink.Sink."
        kinds = ["asked", "observed", "released", "note"]
        for kind in kinds[kinds.index(after) + 1 :]:
            killed.setattr(sink + kind, lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            list(following.shadow.settle(everything=True))
    following.restart(kill=True)
    following.look()
    append(log, lines(rows(2 if stepped else None, tasks=range(10, 14))))
    following.look(everything=True)
    steps = {e.event.step: e.event.data["shadow"] for e in RunReader(following.run).events() if e.event.kind == "note"}
    assert steps[0]["groups"] == 4
    asked = [e.event.data.step for e in RunReader(following.run).events() if e.event.kind == "asked"]
    assert asked == sorted(set(asked)) == sorted(steps)
    assert len({g.group_id for g in following.groups()}) == len(following.groups()) == 13
    assert following.shadow.session.metrics()["picks/open"] == 0
    following.shadow.close()
    assert verify(following.run).ok


def test_another_run_is_not_followed_into(tmp_path, imported_run):
    with pytest.raises(StoreError, match="import"):
        Shadow([tmp_path / "log"], imported_run)
    for wrong in (ShadowPlan("magic"), ShadowPlan(settings={"tusk": 1})):
        with pytest.raises(ConfigError):
            Shadow([tmp_path / "log"], tmp_path / "run", plan=wrong)
    with pytest.raises(ConfigError):
        Shadow([tmp_path / "log"], tmp_path / "run", ImportOptions(format="magic"))
    assert not (tmp_path / "run").exists()


def test_a_log_of_other_columns_is_refused_at_the_first_look(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("task_id,reward\n1,0\n")
    following = Following(log, tmp_path / "run")
    with pytest.raises(LogFormatError, match="--env"):
        following.look()
    following.shadow.close()


# ---------------------------------------------------------------- the loop


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_the_loop_stops_at_the_end(table):
    append(table.log, lines(rows(0) + rows(1)))
    assert [s.step for s in follow(table.shadow, at_end=True)] == [0, 1]


def test_the_loop_settles_and_stops_when_nothing_comes(table):
    append(table.log, lines(rows(0) + rows(1)))
    found = follow(table.shadow, interval=0, settle=3, until_idle=9, clock=Clock())
    assert next(found).step == 0
    assert next(found).step == 1
    append(table.log, lines(rows(2)))
    assert [s.step for s in found] == [2]


def test_the_loop_stops_on_request_and_leaves_what_waits(table):
    append(table.log, lines(rows(0) + rows(1)))
    for step in follow(table.shadow, interval=0):
        assert step.step == 0
        table.shadow.stopping.set()
    table.restart()
    assert [s.step for s in table.look(everything=True)] == [1]
