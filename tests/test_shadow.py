"""Shadow mode on logs that grow: prime-rl-like, verl-like, tables, arrays; rotation, torn lines, restarts."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from envsched_core.errors import ConfigError, LogFormatError, StoreError
from envsched_core.importers import ImportOptions, import_run
from envsched_core.replay import verify
from envsched_core.shadow import Shadow, ShadowPlan, ShadowStep, follow
from envsched_core.store import RunReader


def rows(step: int | None, *, tasks: range = range(4), size: int = 4, env: str = "shop") -> list[dict[str, Any]]:
    """Rows of one step, the rollouts of a task together."""
    out = []
    for task in tasks:
        for k in range(size):
            row = {"env": env, "task_id": f"t{task}", "prompt": f"do {task}", "reward": float(k * 3 < task * size)}
            out.append(row if step is None else {**row, "step": step})
    return out


def lines(found: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in found)


def append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


class Following:
    """A shadow run that a test drives look by look."""

    def __init__(self, log: Path, run: Path, plan: ShadowPlan | None = None, **options: Any) -> None:
        self.log, self.run, self.plan, self.options = log, run, plan, ImportOptions(**options)
        self.shadow = Shadow([log], run, self.options, plan)

    def look(self, *, everything: bool = False, final: bool = False) -> list[ShadowStep]:
        self.shadow.read(final=final)
        return list(self.shadow.settle(everything=everything))

    def restart(self, *, kill: bool = False) -> None:
        """A clean stop, or the end of a process that could say nothing more."""
        if kill:
            (self.shadow.session.sink if self.shadow.session else self.shadow._writer).close()
        else:
            self.shadow.close()
        self.shadow = Shadow([self.log], self.run, self.options, self.plan)

    def groups(self) -> list[Any]:
        return [e.event.data for e in RunReader(self.run).events() if e.event.kind == "observed"]


@pytest.fixture
def table(tmp_path):
    """Follows a JSON-lines table."""
    log = tmp_path / "log.jsonl"
    log.write_text("")
    following = Following(log, tmp_path / "run")
    yield following
    following.shadow.close()


def matches_import(following: Following, tmp_path: Path, log: Path, **options: Any) -> None:
    """The groups on record are those that an import of the finished log finds, and the run verifies."""
    import_run([log], tmp_path / "imported", ImportOptions(**options))
    imported = [e.event.data for e in RunReader(tmp_path / "imported").events() if e.event.kind == "observed"]
    facts = [{(g.group_id, g.rewards, g.step, g.places) for g in found} for found in (following.groups(), imported)]
    assert facts[0] == facts[1]
    following.shadow.close()
    assert verify(following.run).ok


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


# ---------------------------------------------------------------- how trainers write


def test_a_prime_rl_like_run_folder(tmp_path):
    """`rollouts/step_N/train_rollouts.jsonl`, appended as rollouts finish; the step is the folder's."""
    log = tmp_path / "rollouts"
    following = Following(log, tmp_path / "run")
    assert following.look() == []
    for step in range(3):
        found = [
            {
                "env_name": f"env{t % 2}",
                "example_id": t,
                "group_id": f"g{t}",
                "policy_version": step,
                "reward": r,
                "prompt": p,
            }
            for t in range(6)
            for r, p in ((0.0, f"ask {t}"), (float(t % 3), f"ask {t}"))
        ]
        path = log / f"step_{step}" / "train_rollouts.jsonl"
        for start in range(0, 12, 5):
            append(path, lines(found[start : start + 5]))
            steps = following.look()
            assert [s.step for s in steps] == ([step - 1] if step and not start else [])
    assert [s.step for s in following.look(everything=True)] == [2]
    assert {(g.step, len(g.rewards)) for g in following.groups()} == {(0, 2), (1, 2), (2, 2)}
    matches_import(following, tmp_path, log)


def test_a_verl_like_folder_of_step_files(tmp_path):
    """`{step}.jsonl`, each written anew in one go; no environment, no task id."""
    log = tmp_path / "dump"
    log.mkdir()
    following = Following(log, tmp_path / "run", env="retail")
    seen = []
    for step in range(9, 12):
        found = [
            {"input": f"user\nask {t}", "output": "...", "gts": None, "score": float((t + k) % 2), "step": step}
            for t in range(3)
            for k in range(4)
        ]
        (log / f"{step}.jsonl").write_text(lines(found[:7]))  # caught in the middle of writing
        seen += following.look()
        (log / f"{step}.jsonl").write_text(lines(found))
        seen += following.look()
    seen += following.look(everything=True)
    assert [(s.step, s.groups, s.dropped) for s in seen] == [(9, 3, 0), (10, 3, 0), (11, 3, 0)]
    assert len(following.shadow.log.files) == 3
    matches_import(following, tmp_path, log, env="retail")


def test_a_csv_with_quoted_line_breaks(tmp_path):
    log = tmp_path / "log.csv"
    following = Following(log, tmp_path / "run")
    text = "env,task_id,reward,step,prompt\n"
    for step in range(3):
        for task in range(3):
            text += "".join(f'shop,t{task},{k % 2},{step},"line one\nline ""{task}"", two"\n' for k in range(2))
    for start in range(0, len(text), 37):
        append(log, text[start : start + 37])
        following.look()
    following.look(everything=True)
    assert following.shadow.counts["dropped"] == 0
    matches_import(following, tmp_path, log)


def test_a_json_array_that_is_written_anew(tmp_path):
    log = tmp_path / "trials.json"
    following = Following(log, tmp_path / "run", ShadowPlan(group_size=3, batch_size=2))
    trials: list[dict[str, Any]] = []
    steps = []
    for k in range(3):
        for task in range(5):
            instruction = {"instruction": f"fly {task}", "actions": [{"name": "book_reservation"}]}
            trials.append(
                {"task_id": task, "trial": k, "reward": float(task % 2), "info": {"task": instruction}, "traj": []}
            )
            whole = json.dumps(trials)
            log.write_text(whole[: len(whole) // 2])
            steps += following.look()
            other = tmp_path / ".trials.json"
            other.write_text(whole)
            os.replace(other, log)
            steps += following.look()
    steps += following.look(everything=True)
    assert [s.groups for s in steps] == [2, 2, 1]
    assert [(g.env, g.task, len(g.rewards)) for g in following.groups()] == [("airline", str(t), 3) for t in range(5)]
    following.shadow.close()
    assert verify(following.run).ok


def test_a_gzipped_table_is_read_whole_when_it_changes(tmp_path):
    log = tmp_path / "log.jsonl.gz"
    following = Following(log, tmp_path / "run")
    for step in range(3):
        log.write_bytes(gzip.compress("".join(lines(rows(s)) for s in range(step + 1)).encode()))
        following.look()
    following.look(everything=True)
    matches_import(following, tmp_path, log)
    assert following.shadow.counts["rows"] == 48


def test_verifiers_results_keep_their_ids_while_they_grow(tmp_path):
    log = tmp_path / "outputs" / "math--m" / "abc" / "results.jsonl"
    following = Following(log.parent, tmp_path / "run", ShadowPlan(group_size=2))
    log.parent.mkdir(parents=True)
    (log.parent / "metadata.json").write_text(json.dumps({"env_id": "math", "model": "m"}))
    for example in (0, 0, 1, 1, 2, 2):
        append(log, lines([{"example_id": example, "prompt": f"p{example}", "completion": "c", "reward": 1.0}]))
        following.look()
    following.look(everything=True)
    assert [(g.env, g.task, len(g.rewards)) for g in following.groups()] == [("math", str(t), 2) for t in range(3)]
    following.shadow.close()


# ---------------------------------------------------------------- what goes wrong with files


def test_every_cut_of_the_log_gives_the_same_groups(table, tmp_path):
    text = "".join(lines(rows(step, tasks=range(2), size=2)) for step in range(3)).encode()
    written = 0
    for size in (1, 7, 30, 60, 3, 200, 90, 15, 500, 1000):
        with table.log.open("ab") as file:
            file.write(text[written : written + size])
        written += size
        table.look()
    table.look(everything=True)
    assert table.shadow.counts["dropped"] == 0
    matches_import(table, tmp_path, table.log)


def test_an_unfinished_last_line_counts_only_at_the_end(table):
    append(table.log, lines(rows(0))[:-1])
    table.look(everything=True)
    assert len(table.groups()[3].rewards) == 3
    append(table.log, "\n" + lines(rows(1))[:-20])
    table.look()
    table.look(everything=True, final=True)
    assert table.shadow.counts["rows"] == 31
    assert table.shadow.counts["dropped"] == 0


def test_bad_lines_are_dropped_and_counted(table):
    append(table.log, lines(rows(0)) + "{broken\n[1]\n\n" + json.dumps({"env": "shop", "reward": 1}) + "\n")
    (step,) = table.look(everything=True)
    assert (step.rows, step.dropped) == (19, 3)


@pytest.mark.parametrize("restart", [False, True])
def test_a_rotated_log_is_read_to_its_end_and_on(tmp_path, restart):
    log = tmp_path / "logs" / "log.jsonl"
    append(log, lines(rows(0)))
    following = Following(log, tmp_path / "run")
    following.look()
    append(log, lines(rows(1)))
    following.look()
    append(log, lines(rows(2)))
    if restart:
        following.restart()
    log.rename(log.with_name("log.jsonl.1"))
    append(log, lines(rows(3)))
    following.look(everything=True)
    assert [g.step for g in following.groups()] == sorted(4 * list(range(4)))
    assert {g.places[0].file for g in following.groups() if g.step == 3} == {"log.jsonl~2"}
    following.shadow.close()


def test_a_log_that_is_cut_and_written_anew(table):
    append(table.log, lines(rows(0)) + lines(rows(1)))
    table.look(everything=True)
    table.log.write_text(lines(rows(2)))
    table.look(everything=True)
    assert [g.step for g in table.groups()] == [0] * 4 + [1] * 4 + [2] * 4
    assert table.shadow.log.rotated == 1


def test_a_log_replaced_by_its_continuation_goes_on(table):
    append(table.log, lines(rows(0)))
    table.look(everything=True)
    other = table.log.with_name("other")
    other.write_text(lines(rows(0)) + lines(rows(1)))
    os.replace(other, table.log)
    table.look(everything=True)
    assert (table.shadow.counts["rows"], table.shadow.counts["late"]) == (32, 0)


def test_a_log_may_come_later_and_go_for_a_while(tmp_path):
    log = tmp_path / "log.jsonl"
    following = Following(log, tmp_path / "run")
    assert following.look() == []
    append(log, lines(rows(0)))
    following.look()
    kept = log.read_text()
    log.unlink()
    assert following.look() == []
    log.write_text(kept + lines(rows(1)))
    assert [s.step for s in following.look(everything=True)] == [0, 1]
    following.shadow.close()


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
