import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from functools import partial
from importlib.util import find_spec

import pytest

from envsched_core.cli import main, show
from envsched_core.cli.output import number, say, settings_from
from envsched_core.cli.show import recorded_archive
from envsched_core.config import Config
from envsched_core.errors import ConfigError
from envsched_core.records import GroupResult, TaskSpec
from envsched_core.replay import verify
from envsched_core.store import RunWriter, list_runs, new_manifest, unpack

COMMANDS = ["import", "replay", "assess", "explain", "verify", "runs", "next", "config", "dashboard", "demo"]
COMMANDS += ["train", "follow", "bench", "report"]
LOG = "\n".join(
    f"{env},{task},{reward}" for env in "ab" for task in range(12) for reward in ((0, 1) if task % 3 else (0, 0))
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("env,task_id,reward\n" + LOG + "\n")
    return path


@pytest.fixture(scope="module")
def replayed(imported_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "runs" / "replayed"
    with pytest.raises(SystemExit) as end:
        main(["replay", str(imported_run), "--out", str(out), "--batch-size", "12", "--steps", "3"])
    assert not end.value.code
    return out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(envsched, command):
    status, out, _ = envsched(command, "--help")
    assert status == 0
    assert "Usage: envsched" in out


def test_the_commands_are_these(envsched):
    status, out, _ = envsched("--help")
    listed = [line.split()[0] for line in out.split("Commands:")[1].splitlines() if line.strip()]
    assert status == 0
    assert sorted(listed) == sorted(COMMANDS)


def test_from_a_table_to_an_explanation(envsched, log, tmp_path):
    run, out = tmp_path / "run", tmp_path / "replay"
    assert envsched("import", log, "--out", run)[0] == 0
    assert envsched("replay", run, "--out", out, "--batch-size", 4, "--steps", 2)[0] == 0
    assert envsched("verify", out)[:2] == (
        0,
        "ok: the hash chain holds and all 2 decisions were re-derived byte for byte\n",
    )
    status, text, _ = envsched("explain", out, "--step", 1)
    assert status == 0
    assert len(text.splitlines()) == 4
    task = text.split()[0]
    assert "cut-off" in envsched("explain", out, "--step", 1, "--task", task)[1]


def test_columns_can_be_mapped(envsched, tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"domain": "a", "nr": 1, "points": 3}\n{"domain": "a", "nr": 1, "points": 5}\n'
    )
    status, out, _ = envsched(
        *("import", tmp_path / "log.jsonl", "--out", tmp_path / "run", "--json"),
        *("--map", "task_id=nr", "--map", "reward=points"),
    )
    assert (status, json.loads(out)["groups"]) == (0, 1)


def test_replay_json_holds_what_it_promises(envsched, imported_run):
    status, out, err = envsched("replay", imported_run, "--steps", 2, "--batch-size", 6, "--seed", 5, "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    promised = ("scheduler", "steps", "batch_size", "picks", "informative_share", "mean_variance")
    assert set(found) >= {*promised, "environments_covered", "seconds", "preset"}
    assert (found["scheduler"], found["steps"], found["batch_size"], found["seed"]) == ("envsched", 2, 6, 5)


def test_replay_says_the_same_in_text_and_json(envsched, log, tmp_path):
    envsched("import", log, "--out", tmp_path / "run")
    notes = json.loads(envsched("replay", tmp_path / "run", "--json")[1])["notes"]
    text = envsched("replay", tmp_path / "run")[1]
    assert notes[0].startswith("3 picks a step: an eighth of the tasks")
    assert [line for line in text.splitlines() if line.startswith("note: ")] == [f"note: {note}" for note in notes]
    assert "8 steps of 3" in text
    assert json.loads(envsched("replay", tmp_path / "run", "--batch-size", 64, "--json")[1])["batch_size"] == 64


def test_next_on_a_step_out_of_range_is_a_sentence(envsched, tmp_path):
    with RunWriter.create(tmp_path / "run", new_manifest("run", "import")) as writer:
        writer.add_tasks([TaskSpec("e", "t")])
        writer.observed([GroupResult("g", "e", "t", (0.0, 1.0), step=10**22)], None)
    status, _, said = envsched("next", tmp_path / "run", "--n", 1)
    assert (status, "out of range" in said) == (2, True)


def test_audit_json(envsched, imported_run):
    status, out, _ = envsched(
        "replay", imported_run, "--mode", "audit", "--steps", 2, "--scheduler", "uniform", "--json"
    )
    found = json.loads(out)
    assert (status, found["mode"], found["scheduler"], found["steps"]) == (0, "audit", "uniform", 2)


@pytest.mark.parametrize("command", ["verify", "runs", "explain", "next", "assess", "config"])
def test_json_is_alone_on_stdout(envsched, replayed, command):
    arguments = {
        "runs": [replayed.parent],
        "explain": [replayed, "--step", 0],
        "next": [replayed, "--n", 3],
        "assess": [replayed, "--seeds", 1],
        "config": [],
    }.get(command, [replayed])
    status, out, err = envsched(command, *arguments, "--json")
    assert (status, err) == (0, "")
    json.loads(out)


def test_verify_fails_with_status_1_and_says_where(envsched, replayed, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(replayed, run)
    segment = run / "events" / "seg-000000.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"position":3', b'"position":4', 1))
    status, out, _ = envsched("verify", run)
    assert status == 1
    assert "FAILED" in out
    assert "events/seg-000000.jsonl:" in out
    assert "step 0" in out


def test_next_prints_ids_and_weights(envsched, imported_run):
    _, ids, _ = envsched("next", imported_run, "--n", 5, "--format", "ids")
    assert len(ids.splitlines()) == 5
    assert all("::" in line for line in ids.splitlines())
    _, lines, _ = envsched("next", imported_run, "--n", 5, "--format", "weights")
    assert sum(json.loads(line)["weight"] for line in lines.splitlines()) == pytest.approx(1)


def test_config_lists_every_knob(envsched):
    out = envsched("config")[1]
    assert all(name in out for name in Config.__struct_fields__)
    assert "preset replay" in out


def test_settings_reach_the_scheduler(envsched, imported_run, tmp_path):
    (tmp_path / "knobs.toml").write_text("weight_task = 0.0\nbatch_size = 7\n")
    out = tmp_path / "run"
    arguments = ("--config", tmp_path / "knobs.toml", "--set", "temperature=0.25", "--set", 'max_shares={"bank": 0}')
    envsched("replay", imported_run, "--out", out, "--steps", 1, *arguments)
    config = list_runs(out)[0][1].config
    assert (config["weight_task"], config["batch_size"], config["temperature"]) == (0.0, 7, 0.25)
    assert config["max_shares"] == {"bank": 0.0}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["verify", "nowhere"], "no run folder"),
        (["replay", "{run}", "--scheduler", "magic"], "magic"),
        (["replay", "{run}", "--preset", "fast"], "fast"),
        (["replay", "{run}", "--set", "weight_tusk=1"], "weight_task"),
        (["replay", "{run}", "--set", "temperature"], "KEY=VALUE"),
        (["replay", "{run}", "--scheduler", "dapo"], "only `envsched bench`"),
        (["train", "--out", "{new}", "--scheduler", "dapo-envsched"], "only `envsched bench`"),
        (["replay", "{run}", "--config", "nowhere.toml"], "nowhere.toml"),
        (["replay", "{run}", "--out", "{run}"], "pool"),
        (["explain", "{run}", "--step", "0"], "envsched replay"),
        (["import", "nowhere.csv", "--out", "{new}"], "nowhere.csv"),
        (["import", "{log}", "--out", "{new}", "--map", "reward"], "FIELD=COLUMN"),
        (["runs", "nowhere"], "nowhere"),
        (["dashboard", "--runs", "nowhere"], "nowhere"),
        (["replay"], "RUN"),
        (["replay", "{run}", "--steps", "0"], "steps"),
        (["fly"], "fly"),
    ],
)
def test_wrong_use_leaves_with_2_and_one_clear_word(envsched, imported_run, log, tmp_path, arguments, word):
    names = {"run": imported_run, "log": log, "new": tmp_path / "new"}
    status, out, err = envsched(*[argument.format(**names) for argument in arguments])
    assert (status, out) == (2, "")
    assert word in err
    assert "Traceback" not in err


def test_text_from_logs_cannot_drive_the_terminal(capsys):
    say("a\x1b[31mb\rc")
    assert capsys.readouterr().out == "a\ufffd[31mb\ufffdc\n"


def test_numbers_for_people():
    assert [number(None), number(float("nan")), number(1234), number(0.5)] == ["n/a", "n/a", "1,234", "0.500"]


def test_settings_come_from_file_then_pairs_then_options(tmp_path):
    (tmp_path / "a.json").write_text('{"seed": 1, "batch_size": 2, "cool_down": 3}')
    found = settings_from(tmp_path / "a.json", ["batch_size=4", 'pin_tasks=["a::1"]'], seed=5, steps=None)
    assert found == {"seed": 5, "batch_size": 4, "cool_down": 3, "pin_tasks": ["a::1"]}
    (tmp_path / "b.json").write_text("[1]")
    with pytest.raises(ConfigError, match="no table"):
        settings_from(tmp_path / "b.json", None)


# ---------------------------------------------------------------- the recorded run and the dashboard


def test_the_recorded_runs_are_what_the_scheduler_does(tmp_path):
    """After a change of the scheduler: `python -m envsched_core.bench.record data`."""
    archive = recorded_archive()
    assert archive is not None
    unpack(archive, tmp_path)
    names = [path.name for path, _ in list_runs(tmp_path)]
    assert sorted(names) == ["toolworld-envsched", "toolworld-uniform"]
    assert [verify(tmp_path / name).problems for name in names] == [(), ()]


def test_demo_trains_where_nothing_is_recorded(envsched, monkeypatch):
    record = pytest.importorskip("envsched_core.bench.record", reason="needs numba")
    served = []
    monkeypatch.setattr(show, "recorded_archive", lambda: None)
    monkeypatch.setattr(record, "record", partial(record.record, steps=1))
    monkeypatch.setattr(show, "_serve", lambda runs, port, browser: served.extend(p.name for p, _ in list_runs(runs)))
    assert envsched("demo", "--no-browser")[0] == 0
    assert sorted(served) == ["toolworld-envsched", "toolworld-uniform"]


def test_a_missing_extra_is_told_with_its_remedy(envsched, replayed, monkeypatch):
    monkeypatch.setattr(show, "find_spec", lambda name: None)
    status, _, err = envsched("dashboard", "--runs", replayed.parent)
    assert status == 2
    assert "streamlit" in err
    assert "pip install 'envsched[dashboard]'" in err


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


needs_dashboard = pytest.mark.skipif(
    find_spec("streamlit") is None or find_spec("envsched_dashboard") is None, reason="the dashboard is not installed"
)


@needs_dashboard
def test_the_dashboard_answers_and_leaves_politely():
    port = free_port()
    command = [sys.executable, "-m", "envsched_core.cli", "demo", "--no-browser", "--port", str(port)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert child.stdout is not None
        assert f"http://127.0.0.1:{port}" in child.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
            assert answer.read() == b"ok"
    finally:
        child.send_signal(signal.SIGTERM)
        started = time.monotonic()
        child.communicate(timeout=20)
    assert child.returncode == 0
    assert time.monotonic() - started < 15


@needs_dashboard
def test_a_port_in_use_is_told(envsched, replayed):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, err = envsched("dashboard", "--runs", replayed.parent, "--port", taken.getsockname()[1])
    assert status == 2
    assert "in use" in err
