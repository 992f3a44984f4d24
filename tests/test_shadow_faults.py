"""Shadow mode against what goes wrong around it: rewritten files, copies, mistyped steps, nothing to read, stops."""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest
from shadow_runs import Following, append, lines, rows

from envsched_core.errors import ConfigError, LogFormatError
from envsched_core.replay import verify
from envsched_core.shadow import Shadow, ShadowPlan, follow


@pytest.fixture
def table(tmp_path):
    """Follows a JSON-lines table."""
    following = Following(tmp_path / "log.jsonl", tmp_path / "run")
    yield following
    following.shadow.close()


def constant_end(step: int) -> str:
    """Rows of equal length that end in the same 100 bytes."""
    return lines([{**row, "model": "m" * 100} for row in rows(step)])


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_rewritten_in_place_at_the_same_length_is_read_again(table, restart):
    for step in range(3):
        table.log.write_text(constant_end(step))
        assert [s.step for s in table.look(everything=True)] == [step]
        if restart:
            table.restart()
    assert table.shadow.counts["rows"] == 48


def test_a_rewritten_head_before_the_same_last_bytes_is_seen(table):
    filler = "".join(lines(rows(1, tasks=range(20))))
    table.log.write_text(constant_end(0) + filler)
    table.look(everything=True)
    table.log.write_text(constant_end(2) + filler)
    assert [s.step for s in table.look(everything=True)] == [2]


def test_marks_of_an_earlier_version_still_load(table):
    append(table.log, lines(rows(0)))
    table.look(everything=True)
    table.shadow.close()
    saved = json.loads((table.run / "shadow.json").read_bytes())
    for mark in saved["files"]:
        for name in ("head", "window", "counted"):
            del mark[name]
    (table.run / "shadow.json").write_bytes(msgspec.json.encode(saved))
    table.restart(kill=True)
    append(table.log, lines(rows(1)))
    assert [s.step for s in table.look(everything=True)] == [1]
    assert (table.shadow.counts["rows"], table.shadow.counts["late"]) == (32, 0)


@pytest.mark.parametrize("seen_between", [False, True])
def test_a_log_copied_and_cut_is_read_once(tmp_path, seen_between):
    log = tmp_path / "logs" / "log.jsonl"
    append(log, lines(rows(0)) + lines(rows(1)[:12]))
    following = Following(log.parent, tmp_path / "run")
    following.look()
    append(log, lines(rows(1)[12:]))
    shutil.copy(log, log.with_name("log.jsonl.1"))
    if seen_between:
        following.look()
        assert len(following.shadow.log.copies) == 1
    log.write_text("")
    append(log, lines(rows(2)))
    following.look(everything=True)
    assert sorted((g.step, len(g.rewards)) for g in following.groups()) == [(s, 4) for s in range(3) for _ in range(4)]
    assert (following.shadow.counts["rows"], following.shadow.counts["late"]) == (48, 0)
    following.shadow.close()
    assert verify(following.run).ok


def test_rows_that_wait_over_a_restart_count_once(table):
    broken = "{broken\n"
    append(table.log, lines(rows(0)) + lines(rows(1)[:6]) + broken + lines(rows(0)[:1]))
    table.look()
    append(table.log, lines(rows(0)[:1]))
    table.look()
    before = dict(table.shadow.counts)
    for _ in range(2):
        table.restart()
        table.look()
    assert dict(table.shadow.counts) == before
    append(table.log, lines(rows(1)[6:]))
    table.look(everything=True)
    assert (table.shadow.counts["rows"], table.shadow.counts["dropped"]) == (35, 1)


# ---------------------------------------------------------------- steps


def test_a_mistyped_step_does_not_end_the_others(table):
    append(table.log, lines(rows(0)[:8]) + lines(rows(10**12)[:1]) + lines(rows(0)[8:]))
    assert table.look() == []
    append(table.log, lines(rows(1)))
    assert [(s.step, s.groups) for s in table.look()] == [(0, 4)]
    assert [s.step for s in table.look(everything=True)] == [1]
    said: list[str] = []
    assert list(follow(table.shadow, at_end=True, tell=said.append)) == []
    assert "1,000,000,000,000" in said[0]
    assert len(said) == 1
    assert table.shadow.counts["implausible"] == 1


@pytest.mark.parametrize("witness", [rows(50_000, tasks=range(1, 2)), rows(50_001, tasks=range(1))])
def test_a_leap_that_a_second_group_or_step_confirms_is_taken(table, witness):
    append(table.log, lines(rows(0)) + lines(rows(50_000, tasks=range(1))))
    assert table.look() == []
    append(table.log, lines(witness))
    found = [s.step for s in [*table.look(), *table.look(everything=True)]]
    assert found[:2] == [0, 50_000]


# ---------------------------------------------------------------- the loop


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("log.jsonl", None, {}),
        ("log.jsonl", lines([{"who": "a", "what": 1}]), {}),
        ("log.txt", "not a log\nat all\n", {}),
        ("log.jsonl", lines(rows(0)), {"format": "tau-bench"}),
    ],
)
def test_nothing_to_read_is_an_error_at_the_end(tmp_path, name, text, options):
    log = tmp_path / name
    if text is not None:
        log.write_text(text)
    for how in ({"at_end": True}, {"until_idle": 0.0}):
        following = Following(log, tmp_path / "run", **options)
        with pytest.raises(LogFormatError, match=name):
            list(follow(following.shadow, interval=0, **how))
        following.shadow.close()


def test_nothing_to_read_is_told_once_while_waiting(table):
    said: list[str] = []
    with pytest.raises(LogFormatError):
        list(follow(table.shadow, interval=0.01, settle=0, until_idle=0.1, tell=said.append))
    assert len(said) == 1
    assert "no such file" in said[0]


def test_a_stop_ends_a_backlog_after_the_step_at_hand(table):
    append(table.log, "".join(lines(rows(step)) for step in range(6)))
    found = []
    for step in follow(table.shadow, at_end=True):
        found.append(step.step)
        table.shadow.stopping.set()
    assert found == [0]
    table.restart()
    assert [s.step for s in table.look(everything=True)] == [1, 2, 3, 4, 5]


def test_going_on_with_something_else_is_refused(tmp_path):
    log, run = tmp_path / "log.jsonl", tmp_path / "run"
    append(log, lines(rows(0)))
    following = Following(log, run, ShadowPlan("uniform"))
    following.look(everything=True)
    following.shadow.close()
    for paths, plan, word in [
        ([log], ShadowPlan("envsched"), "--scheduler uniform"),
        ([log], ShadowPlan(batch_size=9), "--batch-size 4"),
        ([tmp_path / "other.jsonl"], None, "LOG"),
    ]:
        with pytest.raises(ConfigError, match=word):
            Shadow(paths, run, plan=plan)
    Shadow([log, tmp_path / "other.jsonl"], run, plan=ShadowPlan(batch_size=4)).close()
