from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from shadow_runs import Following, append, lines, rows
from small_run import catalogue, opened, write_log, write_run

from envsched_core import views
from envsched_core.errors import StoreError
from envsched_core.records import Decision, GroupResult
from envsched_core.store import RunReader, RunWriter, new_manifest
from envsched_core.views.run_view import RunView

SEGMENT = "events/seg-000000.jsonl"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("health") / "demo", last_open=True)


@pytest.fixture(scope="module")
def view(run) -> RunView:
    return opened(run)


@pytest.fixture
def copy(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_facts_of_a_sound_run(view, run):
    facts = views.log_facts(view)
    assert (facts.gaps, facts.behind, facts.torn) == (0, 0, 0)
    assert views.format_versions(view)[["version", "known"]].to_numpy().tolist() == [[1, 1], [1, 1]]
    assert facts.bytes == (run / SEGMENT).stat().st_size
    assert (facts.waiting, facts.oldest_waiting, facts.last_step) == (8, 3, 3)


def test_what_is_not_taken_in_yet_and_what_is_torn(copy):
    view = opened(copy)
    line = (copy / SEGMENT).read_bytes().splitlines(keepends=True)[-1]
    with (copy / SEGMENT).open("ab") as file:
        file.write(line)
    assert views.log_facts(view).behind == len(line)
    with (copy / SEGMENT).open("ab") as file:
        file.write(b'{"v":1,')
    view.poll()
    assert (views.log_facts(view).behind, views.log_facts(view).torn) == (0, 7)


def test_files_are_listed_with_what_is_missing_and_what_is_foreign(copy):
    (copy / "tasks.jsonl").rename(copy / "notes <b>.txt")
    table = views.log_files(opened_without_catalogue(copy)).set_index("file")
    assert table.loc["tasks.jsonl", "what"] == "missing"
    assert table.loc["notes <b>.txt", "what"] == "not known"
    assert table.loc["scores", "files"] == 4
    assert table.loc[SEGMENT, "bytes"] == (copy / SEGMENT).stat().st_size
    assert table["changed"].notna().sum() == len(table) - 1


def opened_without_catalogue(path: Path) -> RunView:
    return RunView(path)


def test_unreadable_lines_come_with_their_offset_and_can_be_looked_at(copy):
    before = (copy / SEGMENT).read_bytes().splitlines(keepends=True)
    changed = before[3].replace(b'"step":0,', b'"step":99999999999999999,', 1)
    (copy / SEGMENT).write_bytes(b"".join([*before[:3], changed, b"{<b>broken\xff}\n", *before[4:]]))
    view = opened(copy)
    table = views.unreadable_lines(view).sort_values("line")
    start = sum(map(len, before[:3]))
    assert table["line"].tolist() == [4, 5]
    assert table["offset"].tolist() == [start, start + len(changed)]
    raw = views.raw_line(view, SEGMENT, int(table["offset"].iloc[1]))
    assert (raw.text, raw.bytes) == ("{<b>broken\ufffd}", 13)


@pytest.mark.parametrize(("inside", "cut"), [("\u00e9" * 9_000, False), ("x" * 30_000, True)])
def test_only_a_line_that_was_cut_is_said_to_be(copy, inside, cut):
    start = (copy / SEGMENT).stat().st_size
    with (copy / SEGMENT).open("ab") as file:
        file.write(inside.encode() + b"\n")
    raw = views.raw_line(opened(copy), SEGMENT, start)
    assert (raw.cut, raw.text == inside) == (cut, not cut)


@pytest.mark.parametrize(("file", "offset"), [("events/../run.json", 0), (SEGMENT, -1), ("run.json", 0)])
def test_only_lines_of_segments_can_be_looked_at(view, file, offset):
    with pytest.raises(StoreError):
        views.raw_line(view, file, offset)


def test_a_scores_file_that_cannot_be_read_has_no_line(copy):
    (copy / "scores" / "2.npz").write_bytes(b"no archive")
    view = opened(copy)
    views.evidence_states(view)
    table = views.unreadable_lines(view)
    assert table["file"].tolist() == ["scores/2.npz"]
    assert table[["line", "offset"]].isna().all(axis=None)


def odd_run(path: Path) -> Path:
    """env0 has a declared range; results that no trainer should hand in."""
    manifest = new_manifest(path.name, "live", scheduler="envsched", reward_ranges={"env0": (0.0, 1.0)})
    groups = [
        GroupResult("a", "env0", "task-0", (0.0, 1.5, -0.5, 1.0), step=0),
        GroupResult("a", "env0", "task-0", (0.0, 1.0), step=0),
        GroupResult("b", "env0", "nowhere", (1.0,), step=0),
        GroupResult("c", "env0", "task-1", (), step=0, missing=3, status="error"),
        GroupResult("d", "env1", "task-1", (9.0, 0.0), step=0),
    ]
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks(catalogue(envs=2))
        writer.observed(groups, 0)
    return path


def test_what_is_odd_is_counted(tmp_path):
    table = views.odd_counts(opened(odd_run(tmp_path / "odd"))).set_index("what")
    found = {what: (row["count"], row["among"]) for what, row in table.iterrows()}
    assert found["unknown task"] == (1, 4)
    assert found["observed twice"] == (1, 5)
    assert found["no usable reward"] == (1, 4)
    assert found["reward missing"] == (3, 10)
    assert found["reward clipped"] == (2, 7)
    assert found["malformed"] == (0, 6)
    assert "expired" not in found


def test_ends_without_a_result_are_counted_where_there_are_picks(view):
    table = views.odd_counts(view).set_index("what")
    assert (table.loc["released", "count"], table.loc["released", "among"]) == (1, 32)
    assert (table.loc["expired", "count"], table.loc["not asked for", "count"]) == (0, 0)


def test_an_observed_range_clips_nothing(tmp_path):
    table = views.odd_counts(opened(write_log(tmp_path / "log"))).set_index("what")
    assert table.loc["reward clipped", "count"] == 0


def test_a_sound_run_keeps_every_rule(view):
    table = views.invariants(view)
    assert set(table["status"]) == {"holds"}
    assert table["checked"].iloc[0] == view.query("SELECT count(*) n FROM candidates")["n"].iloc[0]


def test_a_decision_that_does_not_add_up_is_found(run, tmp_path):
    decision = next(event.data for event, *_ in RunReader(run).events() if event.kind == "asked")
    first = decision.candidates[0]
    wrong = msgspec.structs.replace(first, score=first.score + 0.01, shares={"own": 0.5}, env="<b>", task="twice")
    candidates = (wrong, wrong, *decision.candidates[2:])
    bad: Decision = msgspec.structs.replace(decision, candidates=candidates, asked=1)
    with RunWriter.create(tmp_path / "bad", new_manifest("bad", "live", scheduler="envsched")) as writer:
        writer.add_tasks(catalogue())
        writer.asked(bad)
    table = views.invariants(opened(tmp_path / "bad")).set_index("rule")
    assert table["broken"].tolist() == [2, 2, 1, 1, 0]
    assert table["status"].tolist() == ["broken"] * 4 + ["holds"]
    assert table["first"].tolist()[:4] == ["step 0, <b>::twice"] * 3 + ["step 0"]


def test_a_log_without_decisions_has_nothing_to_check(tmp_path):
    table = views.invariants(opened(write_log(tmp_path / "log")))
    assert set(table["status"]) == {"nothing to check"}


def test_what_an_import_left_out(tmp_path):
    report = {
        "drop_reasons": {"no reward": 3, "odd": "many"},
        "first_drops": [{"file": "log.jsonl", "line": 7, "reason": "no reward"}, "text", {"line": True}],
        "repeats": 2,
    }
    with RunWriter.create(tmp_path / "r", new_manifest("r", "import", report=report)) as writer:
        writer.add_tasks(catalogue(envs=1))
    reasons, first = views.import_drops(opened(tmp_path / "r"))
    assert reasons.to_numpy().tolist() == [["no reward", 3], ["repeats a rollout of its group", 2]]
    assert first["file"].tolist() == ["log.jsonl", ""]
    assert first["line"].iloc[0] == 7
    assert all(table.empty for table in views.import_drops(opened(write_log(tmp_path / "log"))))


def test_how_far_a_followed_log_was_taken(tmp_path):
    log = tmp_path / "log.jsonl"
    append(log, lines(rows(0)) + lines(rows(1)))
    following = Following(log, tmp_path / "shadow")
    following.look()
    following.shadow.close()
    table = views.ingest_lags(opened(tmp_path / "shadow"))
    assert table["file"].tolist() == ["log.jsonl"]
    assert table["taken"].iloc[0] == len(lines(rows(0)))
    assert table["behind"].iloc[0] == len(lines(rows(1)))
    log.unlink()
    gone = views.ingest_lags(opened(tmp_path / "shadow"))
    assert gone[["bytes", "behind"]].isna().all(axis=None)
    assert np.isnan(gone["age"].astype(float).iloc[0])


def test_a_run_that_follows_no_log_has_no_lag(view):
    assert views.ingest_lags(view).empty
