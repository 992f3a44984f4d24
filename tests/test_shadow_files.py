"""Shadow mode on logs as trainers write them, and on files that rotate, tear, shrink and come back."""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

import pytest
from shadow_runs import Following, append, lines, matches_import, rows

from envsched_core.replay import verify
from envsched_core.shadow import ShadowPlan


@pytest.fixture
def table(tmp_path):
    """Follows a JSON-lines table."""
    log = tmp_path / "log.jsonl"
    log.write_text("")
    following = Following(log, tmp_path / "run")
    yield following
    following.shadow.close()


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


def test_its_own_run_folder_is_no_part_of_the_log(tmp_path):
    log = tmp_path / "logs"
    append(log / "log.jsonl", lines(rows(0)))
    following = Following(log, log / "run")
    for step in (1, 2):
        following.look(everything=True)
        append(log / "log.jsonl", lines(rows(step)))
    following.look(everything=True)
    assert [file.mark.label for file in following.shadow.log.files] == ["logs/log.jsonl"]
    assert following.shadow.counts["rows"] == 48
    following.shadow.close()


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
