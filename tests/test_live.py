"""A trainer's loop around a LiveSession: accidents, disks that fill up, kills."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest
from live_checks import CONFIG, asked_lines, counted, reward, session, step_through
from scheduler_checks import invented_tasks

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.errors import LockedError, StoreError
from envsched_core.live import LiveSession
from envsched_core.records import GroupResult, Message, Rollout
from envsched_core.replay import verify
from envsched_core.store import RunReader, RunWriter

# ---------------------------------------------------------------- the loop


def test_a_run_is_recorded_and_verifies(tmp_path):
    with session(tmp_path / "run") as live:
        step_through(live, range(4))
        live.note(3, {"metric": "heldout_success", "value": 0.5})
    report = verify(tmp_path / "run")
    assert (report.ok, report.decisions) == (True, 4)
    reader = RunReader(tmp_path / "run")
    assert reader.manifest.kind == "live"
    assert reader.scored_steps() == [0, 1, 2, 3]
    kinds = [e.event.kind for e in reader.events()]
    assert kinds.count("observed") == 32
    assert kinds[0] == "registered"


def test_single_pulls_share_a_steps_ledger(tmp_path):
    with session(tmp_path / "whole") as whole_step, session(tmp_path / "single") as single:
        together = whole_step.ask(8, step=0)
        assert [pick for _ in range(8) for pick in single.ask(step=0)] == list(together)
    assert RunReader(tmp_path / "single").scored_steps() == [0]


def test_a_session_without_a_run_folder_records_nothing():
    live = LiveSession(session_scheduler())
    picks = live.ask(3, step=0)
    live.observe([{"pick_id": p.pick_id, "rewards": [0, 1]} for p in picks])
    live.note(0, {})
    assert (len(picks), live.save(1), live.open_picks()) == (3, False, {})
    live.close()


def session_scheduler():
    scheduler = make_scheduler("envsched", CONFIG)
    scheduler.register(invented_tasks())
    return scheduler


def test_rollouts_are_found_from_their_group(tmp_path):
    with session(tmp_path / "run") as live:
        (pick,) = live.ask(1, step=0)
        rollouts = [Rollout("g", pick.env, pick.task, i, float(i), messages=(Message("user", "hi"),)) for i in (0, 1)]
        live.observe(GroupResult("g", pick.env, pick.task, (0.0, 1.0), pick_id=pick.pick_id), rollouts)
    reader = RunReader(tmp_path / "run")
    group = next(e.event.data for e in reader.events() if e.event.kind == "observed")
    assert [r.reward for r in reader.rollouts(group)] == [0.0, 1.0]


def test_a_folder_has_one_session(tmp_path):
    with session(tmp_path / "run"):
        with pytest.raises(LockedError):
            LiveSession.resume(tmp_path / "run")
        with pytest.raises(StoreError):
            LiveSession.create(tmp_path / "run")


# ---------------------------------------------------------------- accidents


def test_steps_that_go_back_or_are_none_are_the_current_one(tmp_path):
    with session(tmp_path / "run") as live:
        live.ask(2, step=np.int64(5))
        live.ask(2, step=3)
        live.ask(1, step="soon")
        live.ask(1, step=5.0)
        live.ask(-2, step=5)
        live.ask("two", step=True)
        assert live.scheduler.step == 5
        names = ("session/step_back", "session/bad_step", "session/bad_count", "picks/asked")
        assert counted(live, *names) == [1, 2, 2, 6]
    assert verify(tmp_path / "run").ok


def test_results_of_any_shape_are_counted_never_raised(tmp_path):
    with session(tmp_path / "run") as live:
        one, two, three = live.ask(3, step=0)
        live.observe({"pick_id": one.pick_id, "rewards": np.array([0.0, 1.0], np.float32)})
        live.observe([{"pick_id": two.pick_id, "rewards": [1, None, "x", float("nan")], "cost": "much"}])
        live.observe([None, 7, "result", {"rewards": [1.0]}, {"pick_id": three.pick_id}, {"env": "e", "rewards": {}}])
        live.observe(None)
        live.observe({"env": "no", "task": "such", "group_id": 3, "rewards": 1})
        live.observe(GroupResult("odd", three.env, three.task, ("a", 1.0), pick_id=three.pick_id))  # type: ignore[arg-type]
        names = ("session/bad_result", "session/partial_result", "session/field_dropped", "observe/unknown_task")
        assert counted(live, *names) == [6, 2, 1, 1]
        assert counted(live, "picks/observed", "rewards/missing", "picks/open") == [3, 4, 0]
        live.ask(1, step=1)
    assert verify(tmp_path / "run").ok


def test_late_duplicate_and_unknown_results_are_told_apart(tmp_path):
    with session(tmp_path / "run") as live:
        kept, stale, lost = live.ask(3, step=0)
        for _ in range(2):
            live.observe({"pick_id": kept.pick_id, "env": kept.env, "task": kept.task, "rewards": [0, 1]})
        live.release(stale, "stale")
        live.release(["nonsense", stale.pick_id], "stale")
        for step in range(1, 4):
            live.ask(1, step=step)
        assert lost.pick_id in live.decision.expired
        for pick in (stale, lost):
            live.observe({"pick_id": pick.pick_id, "env": pick.env, "task": pick.task, "rewards": [1, 1]})
        live.observe({"pick_id": "9.9", "env": kept.env, "task": kept.task, "rewards": [1, 1]})
        names = ("late", "duplicate", "unknown_pick")
        assert counted(live, *(f"session/{name}_result" for name in names)) == [2, 1, 1]
        assert counted(live, "picks/expired", "picks/released", "picks/released_unknown") == [1, 1, 2]
    assert verify(tmp_path / "run").ok


def test_the_step_of_a_late_answer_is_that_of_its_pick(tmp_path):
    with session(tmp_path / "run") as live:
        (pick,) = live.ask(1, step=4)
        live.ask(1, step=5)
        live.observe({"pick_id": pick.pick_id, "rewards": [0, 1]})
    groups = [e.event for e in RunReader(tmp_path / "run").events() if e.event.kind == "observed"]
    assert [(event.step, event.data.step) for event in groups] == [(5, 4)]


def test_tasks_may_join_and_bad_ones_are_passed_over(tmp_path):
    with session(tmp_path / "run") as live:
        live.ask(2, step=0)
        version = live.scheduler.graph.version
        live.register(invented_tasks())
        assert live.scheduler.graph.version == version
        live.register([None, *invented_tasks(14)])
        assert len(live.scheduler.catalogue) == 42
        live.ask(2, step=0)
    assert verify(tmp_path / "run").ok


def test_without_tasks_nothing_is_asked(tmp_path):
    with LiveSession.create(tmp_path / "run", "envsched", CONFIG) as live:
        assert live.ask(4, step=0) == ()


# ---------------------------------------------------------------- disks


def break_disk(
    monkeypatch, kinds=("asked", "observed", "released", "note", "add_scores", "add_rollouts", "save_state")
):
    def full(self, *arguments, **more):
        raise StoreError("no space left") from OSError(28, "no space left")

    for kind in kinds:
        monkeypatch.setattr(RunWriter, kind, full)


def test_a_full_disk_is_told_once_and_the_record_catches_up(tmp_path, monkeypatch, caplog):
    with session(tmp_path / "whole") as whole_run:
        step_through(whole_run, range(8))
    with session(tmp_path / "run") as live:
        step_through(live, range(2))
        with monkeypatch.context() as broken:
            break_disk(broken)
            step_through(live, range(2, 5))
            assert counted(live, "sink/waiting")[0] > 20
        step_through(live, range(5, 8))
        assert counted(live, "sink/waiting") == [0]
        assert counted(live, "sink/failures")[0] >= 1
    assert sum("cannot be written" in record.message for record in caplog.records) == 1
    assert asked_lines(tmp_path / "run") == asked_lines(tmp_path / "whole")
    assert verify(tmp_path / "run").ok


def test_a_disk_that_stays_full_leaves_a_valid_run(tmp_path, monkeypatch):
    monkeypatch.setattr("envsched_core.live.sink.MOST_WAITING", 5)
    live = session(tmp_path / "run")
    step_through(live, range(2))
    with monkeypatch.context() as broken:
        break_disk(broken)
        step_through(live, range(2, 6))
        live.close()
    assert counted(live, "picks/observed", "sink/waiting") == [48, 0]
    assert verify(tmp_path / "run").decisions == 2


def test_notes_that_are_no_json_are_left_out(tmp_path):
    with session(tmp_path / "run") as live:
        live.note(0, {"x": object()})
        live.ask(1, step=0)
        assert counted(live, "sink/lost", "sink/failures") == [1, 0]


def test_what_cannot_be_written_blocks_nothing(tmp_path, monkeypatch, caplog):
    with session(tmp_path / "run", extra=lambda: {"x": object()}) as live:
        assert not live.save(0)
        with monkeypatch.context() as broken:
            break_disk(broken)
            live.sink.note(0, {"a": "\ud800"})
            live.sink.released([], object(), 0)  # type: ignore[arg-type]
            step_through(live, range(2))
        step_through(live, range(2, 6))
        live.sink.released([], object(), 0)  # type: ignore[arg-type]
        assert counted(live, "sink/unwritable", "sink/waiting") == [3, 0]
    assert verify(tmp_path / "run").decisions == 6


def test_what_a_sound_folder_refuses_twice_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("envsched_core.store.writer.MAX_LINE_BYTES", 200_000)
    with session(tmp_path / "run") as live:
        live.note(0, {"long": "x" * 300_000})
        step_through(live, range(8))
        assert counted(live, "sink/unwritable", "sink/waiting") == [1, 0]
    assert verify(tmp_path / "run").decisions == 8


def test_a_folder_that_is_removed_is_noticed_once(tmp_path, caplog):
    run = tmp_path / "run"
    with session(run, snapshot_every=1) as live:
        step_through(live, range(2))
        shutil.rmtree(run)
        step_through(live, range(2, 6))
        assert counted(live, "sink/gone", "sink/failures", "picks/observed") == [1, 1, 48]
    assert not run.exists()
    assert sum("was removed" in record.message for record in caplog.records) == 1


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("name", ["envsched", "round-robin", "mopps"])
@pytest.mark.parametrize("singly", [False, True])
def test_a_resumed_run_decides_as_the_unbroken_one(tmp_path, name, singly):
    with session(tmp_path / "whole", name) as unbroken:
        step_through(unbroken, range(9), singly=singly)
    wanted = asked_lines(tmp_path / "whole")
    for cut in (1, 60, 90, 130):
        run = tmp_path / f"run{cut}"
        with session(run, name, snapshot_every=3) as live:
            step_through(live, range(9), singly=singly)
        cut_events(run, cut)
        with LiveSession.resume(run, snapshot_every=3) as live:
            live.register(invented_tasks())
            step_through(live, range(live.scheduler.step, 9), singly=singly)
            assert counted(live, "session/step_back", "picks/duplicate") == [0, 0]
        assert asked_lines(run) == wanted
        assert verify(run).ok


def cut_events(run: Path, lines: int) -> None:
    """What a kill may leave: some whole lines and a torn one; snapshots of later steps are gone too."""
    segment = run / "events" / "seg-000000.jsonl"
    whole_lines = segment.read_bytes().splitlines(keepends=True)
    keep = min(lines, len(whole_lines) - 1)
    segment.write_bytes(b"".join(whole_lines[:keep]) + whole_lines[keep][:40])


def test_picks_without_an_answer_are_given_back_first(tmp_path):
    run = tmp_path / "run"
    live = session(run)
    picks = live.ask(8, step=0)
    live.observe({"pick_id": picks[0].pick_id, "rewards": reward(picks[0])})
    live.close()
    with LiveSession.resume(run) as again:
        assert again.resumed.asked == {0: picks}
        assert again.ask(3, step=0) == picks[1:4]
        assert again.ask(8, step=0) == picks[4:]
        assert again.ask(8, step=0) == ()
        assert counted(again, "session/given_back", "picks/asked") == [7, 8]
        assert len(again.ask(8, step=1)) == 8
    assert len(asked_lines(run)) == 2


def test_picks_about_to_expire_are_not_given_back(tmp_path):
    run = tmp_path / "run"
    live = session(run)
    live.ask(2, step=0)
    live.close()
    with LiveSession.resume(run) as again:
        assert len(again.ask(2, step=9)) == 2
        assert counted(again, "session/given_back", "picks/expired") == [0, 2]


def test_a_damaged_snapshot_is_passed_over(tmp_path):
    run = tmp_path / "run"
    with session(run, snapshot_every=2, extra=lambda: {"weights": np.arange(3.0)}) as live:
        step_through(live, range(7))
    states = sorted((run / "state").iterdir())
    assert [path.name for path in states] == ["4.npz", "6.npz"]
    with LiveSession.resume(run) as again:
        assert again.resumed.snapshot == 6
        assert list(again.resumed.trainer["weights"]) == [0.0, 1.0, 2.0]
        assert list(again.resumed.asked) == [6]
    states[1].write_bytes(b"PK nonsense")
    with LiveSession.resume(run) as again:
        assert again.resumed.snapshot == 4
    shutil.rmtree(run / "state")
    with LiveSession.resume(run) as again:
        assert (again.resumed.snapshot, again.resumed.trainer) == (None, None)
        assert again.scheduler.step == 6


def test_a_run_that_is_killed_often_gets_its_snapshots(tmp_path):
    run = tmp_path / "run"
    session(run, snapshot_every=5).close()
    for start in range(0, 9, 3):
        with LiveSession.resume(run, snapshot_every=5) as live:
            step_through(live, range(start, start + 3))
    assert RunReader(run).state_steps() == [5]


def test_a_run_that_comes_out_differently_is_not_resumed(tmp_path):
    run = tmp_path / "run"
    with session(run) as live:
        step_through(live, range(2))
    manifest = RunReader(run).manifest
    with RunWriter.resume(run) as writer:
        writer.update_manifest(config=msgspec.to_builtins(msgspec.structs.replace(Config(**manifest.config), seed=9)))
    with pytest.raises(StoreError, match="differently"):
        LiveSession.resume(run)
    with RunWriter.resume(run):  # and the folder is free again
        pass


def test_several_threads_may_pull_and_answer(tmp_path):
    with session(tmp_path / "run") as live:

        def pull(_: int) -> list[str]:
            keys = []
            for pick in live.ask(step=0):
                live.observe({"pick_id": pick.pick_id, "rewards": reward(pick)})
                keys.append(pick.key)
            return keys

        with ThreadPoolExecutor(4) as pool:
            keys = [key for found in pool.map(pull, range(16)) for key in found]
        assert len(keys) == len(set(keys)) == 16
        assert counted(live, "picks/observed", "picks/open") == [16, 0]
    assert verify(tmp_path / "run").ok
