from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from small_run import opened, write_log, write_run

from envsched_core import views
from envsched_core.errors import StoreError, UnknownTaskError
from envsched_core.records import Event, GroupResult
from envsched_core.store import RunReader, RunWriter
from envsched_core.views.intake import Intake
from envsched_core.views.run_view import RunView


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "demo", last_open=True)


@pytest.fixture(scope="session")
def view(run) -> RunView:
    view = RunView(run)
    view.poll()
    return view


@pytest.fixture
def copy(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def segment(run: Path) -> Path:
    return run / "events" / "seg-000000.jsonl"


def test_summary_equals_a_direct_count(run, view):
    groups = [e.event.data for e in RunReader(run).events() if e.event.kind == "observed"]
    mixed = [len(set(g.rewards)) > 1 for g in groups]
    found = views.summary(view)
    assert (found.picks, found.groups, found.mixed, found.counted) == (32, 23, sum(mixed), 23)
    assert found.informative_share == pytest.approx(sum(mixed) / 23)
    assert found.mean_variance == pytest.approx(np.mean([np.var(g.rewards) for g in groups]))
    assert (found.open, found.rollouts, found.wasted_rollouts) == (8, 92, 4 * (23 - sum(mixed)))


def test_steps_tell_what_became_of_every_pick(view):
    table = views.steps(view)
    assert list(table["step"]) == [0, 1, 2, 3]
    assert list(table["ended"]) == [0, 1, 0, 0]
    assert list(table["waiting"]) == [0, 0, 0, 8]
    assert (table["mixed"] + table["flat"] + table["waiting"] + table["ended"] == table["picks"]).all()
    assert table["informative_share"].isna().tolist() == [False, False, False, True]


def test_poll_bumps_the_version_once_per_change(copy):
    view = RunView(copy)
    assert (view.poll(), view.version) == (True, 1)
    assert (view.poll(), view.version) == (False, 1)


def test_a_torn_line_waits_until_it_is_whole(copy):
    data = segment(copy).read_bytes()
    cut = data.rstrip(b"\n").rfind(b"\n") + 40
    segment(copy).write_bytes(data[:cut])
    view = opened(copy)
    events = view.health().events
    assert view.health().torn_bytes == 39
    segment(copy).write_bytes(data)
    assert view.poll()
    assert (view.health().events, view.health().torn_bytes) == (events + 1, 0)


def test_lines_that_cannot_be_read_are_counted_and_passed_over(copy):
    lines = segment(copy).read_bytes().splitlines(keepends=True)
    lines[3] = b'{"v":1,"seq":3,"en' + lines[3]
    segment(copy).write_bytes(b"".join(lines))
    view = opened(copy)
    assert [problem.line for problem in view.health().problems] == [4]
    assert view.health().events == len(lines) - 1


def test_a_log_that_shrank_is_read_anew(copy):
    view = opened(copy)
    data = segment(copy).read_bytes().splitlines(keepends=True)
    segment(copy).write_bytes(b"".join(data[:10]))
    assert view.poll()
    assert (view.health().events, view.version) == (10, 2)


def test_a_changed_manifest_is_read_anew(copy):
    view = opened(copy)
    text = (copy / "run.json").read_text(encoding="utf-8")
    (copy / "run.json").write_text(text.replace('"simulated": true', '"simulated": false'), encoding="utf-8")
    assert view.poll()
    assert not view.manifest.simulated
    assert views.summary(view).picks == 32


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(StoreError, match=r"run\.json"):
        RunView(tmp_path)


def test_reading_while_others_poll(copy):
    view, errors, done = RunView(copy), [], threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                view.poll()
                views.steps(view)
                views.coverage(view)
            except Exception as error:  # whatever it is, the test reports it
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (view.version, views.summary(view).picks) == (1, 32)


def test_a_poll_without_news_is_quick(view):
    start = time.perf_counter()
    for _ in range(20):
        view.poll()
    assert (time.perf_counter() - start) / 20 < 0.05


def test_terms_sum_to_the_score_and_shares_to_one(view):
    terms = view.query(
        "SELECT abs(any_value(score) - sum(value)) AS off FROM candidates JOIN terms USING (candidate) "
        "GROUP BY candidate"
    )
    shares = view.query("SELECT sum(share) whole FROM shares GROUP BY candidate")
    assert terms["off"].max() < 1e-8
    assert shares["whole"].to_numpy() == pytest.approx(1.0)


def test_rewards_are_mapped_by_the_range_of_their_environment(tmp_path):
    view = opened(write_log(tmp_path / "log"))
    found = view.query("SELECT env, max(variance) most, max(mean) high FROM groups GROUP BY env ORDER BY env")
    assert found["high"].tolist() == [0.5, 1.0]
    assert found["most"].tolist() == [0.0625, 0.25]


def observed(group_id: str, task: str, pick_id: str | None = None) -> Event:
    return Event(0, "observed", 5, GroupResult(group_id, "e", task, (0.0, 1.0), pick_id=pick_id), "")


def test_a_group_seen_twice_counts_once_and_nobody_asked_for_it():
    intake = Intake({}, (0.0, 1e-9))
    for event in (observed("a", "t"), observed("a", "t"), observed("b", "t", "no such pick")):
        intake.take(event)
    rows = intake.drain()["groups_raw"]
    assert [(row[1], row[2], row[5]) for row in rows] == [(5, None, "a"), (5, None, "b")]
    assert intake.duplicates == 1


def test_a_group_answers_the_open_pick_of_its_task(view):
    ends = view.query("SELECT ended, count(*) n FROM outcomes GROUP BY ended ORDER BY ended")
    assert dict(zip(ends["ended"], ends["n"], strict=True)) == {"observed": 23, "open": 8, "released": 1}


def test_unknown_tasks_are_refused(view):
    with pytest.raises(UnknownTaskError, match="nowhere::0"):
        views.explained(view, 1, "nowhere::0")


def test_numbers_that_cannot_be_cost_their_line_only(tmp_path):
    path = write_log(tmp_path / "log")
    before = views.summary(opened(path)).groups
    with RunWriter.resume(path) as writer:
        writer.observed([GroupResult("far", "env0", "task-0", (0.0, 1.0), step=10**22)], None)
        writer.observed([GroupResult("late", "env0", "task-0", (0.0, 1.0), step=2**40)], None)
    view = opened(path)
    assert views.summary(view).groups == before + 1
    assert [problem.message for problem in view.health().problems] == ["observed: a step is out of range"]
    assert view.steps()[-1] == 2**40


@pytest.mark.parametrize(("name", "value"), [("outcome", 99), ("state", -1)])
def test_scores_that_stand_for_nothing_are_not_used_and_told(copy, name, value):
    file = copy / "scores" / "1.npz"
    arrays = dict(np.load(file))
    arrays[name][0] = value
    np.savez(file, **arrays)
    view = opened(copy)
    assert view.scores(1) is None
    assert view.scores(2) is not None
    assert views.explained(view, 1, "env0::task-0")
    assert [problem.segment for problem in view.health().problems] == ["scores/1.npz"]


@pytest.mark.parametrize(("name", "value"), [("within_indices", 9999), ("cross_indices", -1), ("cross_indptr", 10**6)])
def test_a_graph_that_leads_nowhere_is_not_used_and_told(copy, name, value):
    file = copy / "graph" / "1" / f"{name}.npy"
    array = np.load(file)
    array[1] = value
    np.save(file, array)
    view = opened(copy)
    assert view.graph(1) is None
    assert len(views.environment_graph(view, "env0", None).nodes)
    assert "graph/1" in [problem.segment for problem in view.health().problems]


def test_runs_lists_readable_and_unreadable_folders(run, tmp_path):
    shutil.copytree(run, tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{", encoding="utf-8")
    table = views.runs(tmp_path).set_index("name")
    assert table.loc["good", "problem"] == ""
    assert "run.json" in table.loc["bad", "problem"]
    assert views.runs(tmp_path / "nowhere").empty


def test_an_imported_log_has_groups_but_no_decisions(tmp_path):
    view = opened(write_log(tmp_path / "log"))
    found = views.summary(view)
    assert (found.picks, found.groups, found.unasked, found.steps) == (0, 24, 24, 4)
    assert views.composition(view, 0).empty
    stepless = opened(write_log(tmp_path / "stepless", steps=False))
    assert (views.steps(stepless).empty, views.coverage(stepless).table.empty) == (True, True)
    assert views.summary(stepless).counted == 24
