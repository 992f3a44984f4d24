"""`envsched train` and `envsched follow` as commands: kills, resumes, signals, JSON."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envsched_core.cli import main
from envsched_core.replay import verify
from envsched_core.store import RunReader, RunWriter

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
PATIENCE = 60.0


def start(*arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "envsched_core.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def wait_for(condition: Any, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)


def asked(run: Path) -> list[bytes]:
    return [msgspec.json.encode(e.event.data) for e in RunReader(run).events() if e.event.kind == "asked"]


def lines_of(run: Path, kind: bytes) -> int:
    segment = run / "events" / "seg-000000.jsonl"
    return segment.read_bytes().count(b'"kind":"' + kind) if segment.exists() else 0


# ---------------------------------------------------------------- train

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="the extra train is not installed")
TRAIN = ("train", "--world", "small", "--steps", 14, "--batch-size", 6, "--group-size", 4)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    """A whole run that nothing interrupted."""
    run = tmp_path_factory.mktemp("train") / "whole"
    with pytest.raises(SystemExit) as end:
        main([*map(str, TRAIN), "--out", str(run)])
    assert not end.value.code
    return run


@needs_numba
def test_a_training_run_is_on_record(unbroken):
    report = verify(unbroken)
    assert (report.ok, report.decisions) == (True, 14)
    reader = RunReader(unbroken)
    assert (reader.manifest.kind, reader.manifest.simulated) == ("live", False)
    events = [e.event for e in reader.events()]
    notes = {e.step: e.data for e in events if e.kind == "note" and "metric" in e.data}
    assert list(notes) == [0, 5, 10, 14]
    assert all(set(data) == {"metric", "value", "micro"} for data in notes.values())
    groups = [e.data for e in events if e.kind == "observed"]
    assert len(groups) == 84
    assert all(group.pick_id and len(group.rewards) == 4 for group in groups)
    assert len(reader.rollouts(groups[0])) == 4
    assert reader.state_steps() == [10]
    assert reader.scored_steps() == list(range(14))


@needs_numba
@pytest.mark.faults
def test_killed_at_any_write_it_goes_on_to_the_same_decisions(unbroken, tmp_path, envsched, monkeypatch):
    """Kills, as an exception nothing catches, before or after single writes; then a resume in the same process."""
    randomly, write, left = random.Random(3), RunWriter._events, [0]

    class Killed(BaseException):
        pass

    def killing(self, events):
        left[0] -= 1
        if left[0] == 0 and randomly.random() < 0.5:
            raise Killed
        write(self, events)
        if left[0] == 0:
            raise Killed

    run = tmp_path / "run"
    monkeypatch.setattr(RunWriter, "_events", killing)
    for k in range(5):
        left[0] = 2 + randomly.randrange(9)
        with pytest.raises(Killed):
            main([*map(str, TRAIN), "--out", str(run), *(["--resume"] if k else [])])
    left[0] = -1
    assert envsched("train", "--out", run, "--resume")[0] == 0  # the plan is on record
    assert asked(run) == asked(unbroken)
    assert verify(run).ok
    assert lines_of(run, b"observed") == lines_of(unbroken, b"observed")
    assert lines_of(run, b"resumed") == 5


@needs_numba
@pytest.mark.faults
def test_kill_9_and_resume(unbroken, tmp_path):
    run, randomly = tmp_path / "run", random.Random(5)
    for target in (randomly.randrange(2, 5), randomly.randrange(11, 13)):
        child = start(*TRAIN, "--out", run, "--resume")
        wait_for(lambda wanted=target: lines_of(run, b"asked") >= wanted, child)
        time.sleep(randomly.random() * 0.1)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=PATIENCE)
    child = start(*TRAIN, "--out", run, "--resume", "--json")
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err
    assert json.loads(out)["steps"] == 14
    assert asked(run) == asked(unbroken)
    assert verify(run).ok


@needs_numba
def test_sigterm_leaves_a_closed_run(tmp_path):
    run = tmp_path / "run"
    child = start("train", "--world", "small", "--steps", 500, "--batch-size", 4, "--out", run, "--no-rollouts")
    wait_for(lambda: lines_of(run, b"asked") >= 2, child)
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1
    assert "--resume" in err
    assert "Traceback" not in err
    assert verify(run).ok


@needs_numba
def test_a_finished_run_may_be_made_longer(unbroken, tmp_path, envsched):
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    status, out, err = envsched("train", "--out", run, "--resume", "--steps", 16, "--json")
    assert (status, json.loads(out)["steps"]) == (0, 16), err
    assert asked(run)[:14] == asked(unbroken)
    assert RunReader(run).manifest.source["plan"]["steps"] == 16
    assert verify(run).ok


@needs_numba
def test_a_finished_run_is_not_made_shorter_and_measures_nothing_twice(unbroken, tmp_path, envsched):
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    status, out, err = envsched("train", "--out", run, "--resume", "--steps", 6)
    assert (status, out) == (2, "")
    assert "14 steps on record" in err
    assert envsched("train", "--out", run, "--resume")[0] == 0
    events = [e.event for e in RunReader(run).events()]
    assert [e.step for e in events if e.kind == "note" and "metric" in e.data] == [0, 5, 10, 14]


@needs_numba
def test_a_run_goes_on_with_the_tasks_it_began_with(unbroken, tmp_path, envsched, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    worlds = importlib.import_module("envsched_core.testbed.specs").WORLDS
    monkeypatch.setitem(worlds, "small", worlds["small"]._replace(paths=True))
    status, out, err = envsched("train", "--out", run, "--resume", "--steps", 16)
    assert (status, out) == (2, "")
    assert "had other tasks" in err


@needs_numba
def test_wrong_use_of_train_is_told(unbroken, imported_run, tmp_path, envsched):
    wrong = [
        (["--out", unbroken], "holds"),
        (["--out", unbroken, "--resume", "--seed", 4], "seed 0"),
        (["--out", imported_run, "--resume"], "envsched train"),
        (["--out", tmp_path / "a", "--world", "Q"], "Q"),
        (["--out", tmp_path / "b", "--scheduler", "magic"], "magic"),
        (["--out", tmp_path / "c", "--set", "weight_tusk=1"], "weight_task"),
    ]
    for arguments, word in wrong:
        status, out, err = envsched("train", *arguments)
        assert (status, out) == (2, "")
        assert word in err
    assert not list(tmp_path.iterdir())


def test_without_numba_the_extra_is_named(envsched, monkeypatch, tmp_path):
    monkeypatch.setattr("envsched_core.cli.closed_loop.find_spec", lambda name: None)
    for command in (("train", "--out", tmp_path / "run"), ("bench", "learn")):
        status, _, err = envsched(*command)
        assert status == 2
        assert "envsched[train]" in err


# ---------------------------------------------------------------- follow


def table(step: int) -> str:
    rows = [{"env": "a", "task_id": t, "reward": (t + k) % 2, "step": step} for t in range(3) for k in range(2)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_follow_to_the_end_prints_a_line_a_step(tmp_path, envsched):
    log, run = tmp_path / "log.jsonl", tmp_path / "run"
    log.write_text(table(0) + table(1))
    status, out, err = envsched("follow", log, "--out", run, "--at-end", "stop")
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["step 0", "step 1"]
    assert "12 rows, 0 dropped" in err
    with log.open("a") as file:
        file.write(table(2))
    command = ("follow", log, "--out", run, "--until-idle", 0, "--interval", 0.01, "--json")
    status, out, _ = envsched(*command)
    (step,) = map(json.loads, out.splitlines())
    assert (status, step["step"], step["groups"], step["rows"]) == (0, 2, 3, 18)
    assert verify(run).decisions == 3


def test_follow_stops_on_a_signal_and_goes_on_where_it_was(tmp_path):
    log, run = tmp_path / "log.jsonl", tmp_path / "run"
    log.write_text(table(0) + table(1))
    for number, wanted in ((signal.SIGTERM, 0), (signal.SIGINT, 1)):
        child = start("follow", log, "--out", run, "--interval", 0.05)
        assert child.stdout is not None
        assert child.stdout.readline().startswith(f"step {wanted}:")
        child.send_signal(number)
        _, err = child.communicate(timeout=PATIENCE)
        assert (child.returncode, "Traceback" in err) == (0, False)
        with log.open("a") as file:
            file.write(table(wanted + 2))
    assert verify(run).decisions == 2


def test_wrong_use_of_follow_is_told(tmp_path, envsched, imported_run):
    bad = tmp_path / "log.csv"
    bad.write_text("task_id,reward\n1,0\n")
    for arguments, word in [
        ([bad, "--out", tmp_path / "run", "--at-end", "stop"], "--env"),
        ([bad, "--out", imported_run], "import"),
        ([bad, "--out", tmp_path / "run2", "--map", "reward"], "FIELD=COLUMN"),
    ]:
        status, out, err = envsched("follow", *arguments)
        assert (status, out) == (2, "")
        assert word in err.splitlines()[-1]
