"""The table reader: columns, mapping, groups, missing rewards, hostile rows."""

import gzip
import json
import re
import tracemalloc
from pathlib import Path

import duckdb
import msgspec
import pytest

from envsched_core.errors import ConfigError, LogFormatError
from envsched_core.importers import ImportOptions, import_log

FORMATS = Path(__file__).parent / "formats"


def read(path, **options):
    return import_log([path], ImportOptions(**options))


def lines(folder, *rows, name="log.jsonl"):
    """A file of one row a line; bytes go in as they are."""
    path = folder / name
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows) + b"\n")
    return path


def row(**fields):
    return {"env": "e", "task_id": "t", "reward": 1.0} | fields


def test_csv_rows_become_groups_with_their_lines():
    log = read(FORMATS / "table.csv")
    soup, cake, weed = log.groups()
    assert (soup.env, soup.task, soup.step, soup.rewards) == ("kitchen", "soup", 0, (1.0, 0.0))
    assert [place.line for place in soup.places] == [2, 4]
    assert (cake.rewards, cake.missing, cake.status) == ((0.5,), 1, "partial")
    assert (weed.rewards, weed.missing, weed.cost.tokens) == ((1.0,), 1, 30.0)
    assert log.report.drop_reasons == {"another number of fields than the header": 1}
    assert log.report.first_drops[0].line == 10


def test_a_list_of_rewards_is_one_group():
    log = read(FORMATS / "table.jsonl")
    first, second, third = log.groups()
    assert (first.rewards, first.missing, first.policy_version) == ((1.0, 0.0), 1, "small")
    assert second.rewards == (0.0, 0.0, 0.0)
    assert third.policy_version == "large"
    assert [(task.key, task.draws) for task in log.tasks] == [("kitchen::1", 2), ("kitchen::2", 1)]
    assert [tool.name for tool in log.tasks[0].tools] == ["stir", "taste"]


def test_parquet_reads_like_jsonl(tmp_path):
    path = tmp_path / "odd [name]*.parquet"
    duckdb.sql(
        "SELECT 'e' AS env, i // 2 AS task_id, CASE WHEN i = 3 THEN 'NaN'::FLOAT ELSE i % 2 END AS score, i AS junk "
        "FROM range(4) t(i)"
    ).write_parquet(str(tmp_path / "plain.parquet"))
    (tmp_path / "plain.parquet").rename(path)
    first, second = read(path).groups()
    assert (first.task, first.rewards) == ("0", (0.0, 1.0))
    assert (second.rewards, second.missing, second.places[1].line) == ((0.0,), 1, 4)


def test_gzip_is_read_through(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(b"".join(json.dumps(row(reward=r)).encode() + b"\n" for r in (0, 1))))
    assert next(read(path).groups()).rewards == (0.0, 1.0)


def test_torn_gzip_keeps_what_came_before(tmp_path):
    whole = gzip.compress(b"".join(json.dumps(row(task_id=i)).encode() + b"\n" for i in range(20_000)))
    (tmp_path / "log").write_bytes(whole[: len(whole) // 2])
    report = read(tmp_path / "log").report
    assert report.kept > 100
    assert "the packed file ends early" in report.drop_reasons


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "", "NaN", "null"])
def test_a_missing_reward_is_never_zero(tmp_path, value):
    (group,) = read(lines(tmp_path, row(), row(reward=value))).groups()
    assert (group.rewards, group.missing, group.status) == ((1.0,), 1, "partial")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"env": "e", ', "not JSON"),
        (b"[" * 100_000, "JSON nested too deep"),
        (b'{"env": "\xff"}', "not UTF-8"),
        (b"[1, 2]", "not a JSON object"),
        (row(reward="good"), "reward is not a number"),
        (row(reward={"a": 1}), "reward is an object of parts: choose one with --map reward=COLUMN.PART"),
        (row(reward=[]), "empty list of rewards"),
        (row(reward=[[1]]), "reward is a list of lists"),
        (row(env=None), "no environment"),
        (row(task_id=" "), "no task"),
        (row(step=-1), "step is not a whole number of at least 0"),
        (row(step="late"), "step is not a whole number"),
    ],
)
def test_a_bad_line_is_dropped_with_its_place(tmp_path, bad, reason):
    good = row(step=0)
    report = read(lines(tmp_path, good, bad, good)).report
    assert (report.rows, report.kept, report.drop_reasons) == (3, 2, {reason: 1})
    assert (report.first_drops[0].file, report.first_drops[0].line) == ("log.jsonl", 2)


def test_a_torn_last_line_is_dropped_and_a_whole_one_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row()))
    assert read(path).report.kept == 2
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row())[:-9])
    assert read(path).report.drop_reasons == {"torn last line": 1}


def test_a_line_too_long_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSCHED_MAX_RECORD_BYTES", "200")
    path = lines(tmp_path, row(), row(text="x" * 1000), row(), name="log.jsonl")
    report = read(path).report
    assert (report.kept, report.dropped, report.first_drops[0].line) == (2, 1, 2)


def test_half_a_surrogate_pair_does_not_break_the_log(tmp_path):
    log = read(lines(tmp_path, row(), b'{"env": "e", "task_id": "\\ud800", "reward": 1, "text": "\\ud800"}'))
    assert re.fullmatch("\ufffd~[0-9a-f]{8}", log.tasks[1].task)
    assert log.tasks[1].text == "\ufffd"


def test_map_names_columns_and_goes_into_objects(tmp_path):
    path = lines(tmp_path, {"where": "e", "meta": {"id": 7}, "scores": {"final": 0.5}})
    mapping = {"env": "where", "task_id": "meta.id", "reward": "scores.final"}
    (group,) = read(path, mapping=mapping).groups()
    assert (group.key, group.rewards) == ("e::7", (0.5,))


def test_reward_chooses_a_part_or_a_column(tmp_path):
    path = lines(tmp_path, row(format=0.0, reward_parts={"final": 0.25}))
    assert next(read(path, reward="final").groups()).rewards == (0.25,)
    assert next(read(path, reward="format").groups()).rewards == (0.0,)
    only = lines(tmp_path, {"env": "e", "task_id": 1, "metrics": {"final": 1}}, name="only.jsonl")
    assert next(read(only, reward="final").groups()).rewards == (1.0,)
    with pytest.raises(LogFormatError, match="no row has a reward part or column 'x'"):
        read(path, reward="x")


@pytest.mark.parametrize(("fields", "named"), [(["task_id", "reward"], "env"), (["env", "reward"], "task")])
def test_a_missing_column_is_named_with_the_remedy(tmp_path, fields, named):
    path = lines(tmp_path, {field: 1 for field in fields} | {"question_": "?"})
    with pytest.raises(LogFormatError, match=rf"question_.*--map .*{named}") as caught:
        read(path, format="table")
    assert "log.jsonl" in str(caught.value)


def test_a_mapped_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LogFormatError, match=r"no column 'scroe' .*reward=scroe.*env, task_id, reward"):
        read(lines(tmp_path, row()), mapping={"reward": "scroe"})


def test_prompts_that_serve_as_ids_are_not_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [{"env": "e", "asked": f"{task} {'x' * 100_000}", "reward": r} for task in range(60) for r in (0, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    del rows
    options = ImportOptions(mapping={"task": "asked"})
    import_log([path], options)  # what is loaded once
    tracemalloc.start()
    assert import_log([path], options).report.group_sizes == ((2, 60),)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 100_000


def test_an_unknown_field_in_map_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'reward'"):
        read(lines(tmp_path, row()), mapping={"rewrad": "reward"})


def test_env_stands_in_where_no_column_says_it(tmp_path):
    (group,) = read(lines(tmp_path, {"task_id": 1, "reward": 1}), env="mine").groups()
    assert group.env == "mine"


def test_tasks_without_a_name_are_told_apart_by_prompt(tmp_path):
    rows = [{"env": "e", "input": text, "score": 1} for text in ("a", "b", "a")]
    log = read(lines(tmp_path, *rows))
    assert [len(group.rewards) for group in log.groups()] == [2, 1]
    assert "hash of the prompt" in log.report.notes[0]


def test_groups_by_id_then_step_then_policy(tmp_path):
    by_id = [row(group_id=g, step=s) for g, s in ((0, 0), (1, 0), (0, 0), (0, 1))]
    assert [len(g.rewards) for g in read(lines(tmp_path, *by_id)).groups()] == [2, 1, 1]
    by_step = [row(step=s, model=m) for s, m in ((1, "a"), (0, "a"), (1, "b"))]
    assert [(g.step, len(g.rewards)) for g in read(lines(tmp_path, *by_step)).groups()] == [(0, 1), (1, 2)]
    by_policy = [row(model=m) for m in ("a", "b", "a")]
    assert [len(g.rewards) for g in read(lines(tmp_path, *by_policy)).groups()] == [2, 1]


def test_repeated_rollouts_count_once_and_equal_rewards_do_not_repeat(tmp_path):
    rows = [row(rollout_id=i, reward=1) for i in (0, 1, 0)] + [row(rollout_id=0, reward=0)]
    log = read(lines(tmp_path, *rows))
    assert (next(log.groups()).rewards, log.report.repeats) == ((1.0, 1.0, 0.0), 1)


def test_a_failed_rollout_is_missing(tmp_path):
    rows = [row(reward=0.0, error="boom"), row(reward=0.0, error=None), row(reward=0.0, status="cancelled")]
    (group,) = read(lines(tmp_path, *rows)).groups()
    assert (group.rewards, group.missing) == ((0.0,), 2)


def test_calls_come_from_their_column_or_from_messages(tmp_path):
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "dig", "arguments": "{}"}}]}
    rows = [row(calls=["dig", "sow"]), row(messages=[message]), row()]
    (group,) = read(lines(tmp_path, *rows)).groups()
    assert group.calls == (("dig", "sow"), ("dig",), ())
    assert group.cost is None


def test_costs_are_summed_and_unknown_when_one_is(tmp_path):
    rows = [row(tokens=5, total_ms=1000), row(tokens=7)]
    (group,) = read(lines(tmp_path, *rows)).groups()
    assert (group.cost.tokens, group.cost.seconds) == (12.0, None)


def test_a_runaway_group_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("envsched_core.importers.grouping.MAX_GROUP", 2)
    report = read(lines(tmp_path, row(), row(), row())).report
    assert (report.kept, report.dropped) == (2, 1)
    assert "--map" in next(iter(report.drop_reasons))


def test_task_list_fills_in_what_the_log_leaves_open():
    log = read(FORMATS / "table.jsonl", tasks=FORMATS / "tasks.jsonl")
    soup, cake, egg = log.tasks
    assert (soup.text, soup.calls, soup.draws) == ("Cook a soup", ("stir", "taste"), 2)
    assert (cake.calls, egg.key, egg.draws) == (None, "kitchen::3", 0)
    assert (log.report.tasks, log.report.listed_tasks) == (2, 1)


def test_text_of_another_question_is_not_joined(tmp_path):
    rows = [{"env": "kitchen", "task_id": 1, "rewards": [1, 0], "same_question": False}]
    log = read(lines(tmp_path, *rows), tasks=FORMATS / "tasks.jsonl")
    assert (log.tasks[0].text, log.tasks[0].calls) == ("", None)
    assert "same_question" in log.report.notes[0]
    assert log.report.notes[1] == "the task list describes 1 of the log's 1 tasks"


@pytest.mark.parametrize("key", ["tasks", "tools"])
def test_a_useless_side_file_is_refused(tmp_path, key):
    side = lines(tmp_path, {"a": 1}, name="side.json")
    with pytest.raises(LogFormatError, match=r"side\.json"):
        read(FORMATS / "table.jsonl", **{key: side})


def test_names_cannot_steer_a_terminal_or_split_a_key(tmp_path):
    (group,) = read(lines(tmp_path, row(env="a::b", task_id="\x1b[2Jt"))).groups()
    assert re.fullmatch("a:b~[0-9a-f]{8}::\ufffd\\[2Jt~[0-9a-f]{8}", group.key)


@pytest.mark.parametrize(
    "names",
    [["a::b", "a:b", "a:::b", "a:", "a"], ["x\ny", "x\0y", "x\ufffdy"], ["\ud800", "\udc00"], ["p" * 300, "p" * 301]],
)
def test_different_names_stay_different_and_that_is_told(tmp_path, names):
    log = read(lines(tmp_path, *[json.dumps(row(env=name, task_id=name)).encode() for name in names]))
    assert (log.report.environments, log.report.tasks) == (len(names), len(names))
    assert log.report.notes[0].startswith(tuple("2345"))
    assert msgspec.json.encode(log.tasks)


def test_bytes_that_are_no_utf8_keep_names_apart(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"env,task_id,reward\ncaf\xe9,1,0\ncaf\xe8,1,1\ncaf\xe9,1,1\n")
    log = read(path)
    assert [len(group.rewards) for group in log.groups()] == [2, 1]
    assert "2 names were changed" in log.report.notes[0]
    assert r"'caf\udce9'" in log.report.notes[0]


def test_groups_of_a_task_with_a_number_sign_stay_its_own(tmp_path):
    log = read(lines(tmp_path, row(task_id="a#b", group_id="c"), row(task_id="a", group_id="b#c")))
    assert log.report.groups == 2


def test_a_task_list_is_joined_by_changed_names_too(tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"env": "a::b", "task_id": "t", "question": "Why?"}))
    log = read(lines(tmp_path, row(env="a::b", task_id="t")), tasks=tmp_path / "tasks.jsonl")
    assert log.tasks[0].text == "Why?"


def test_implausible_rewards_are_dropped(tmp_path):
    log = read(lines(tmp_path, row(), row(reward=1e308), row(reward=-1e101), row(reward=1e99)))
    assert log.report.drop_reasons == {"not a plausible reward (beyond 1e100)": 2}


def test_a_step_beyond_all_counting_is_dropped(tmp_path):
    log = read(lines(tmp_path, row(step=1), row(step=10**23), row(step=2**53)))
    assert log.report.drop_reasons == {"step is not a whole number of at least 0": 2}


def test_columns_named_twice_are_told(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("env,task_id,reward,reward\na,1,0,1\n")
    log = read(path)
    assert log.report.mean_reward == 1
    assert log.report.notes == ("log.csv: columns named more than once, of which the last is read: reward",)


def test_another_prompt_is_told_only_of_another_group(tmp_path):
    one, two = ([row(question=text, group_id=group) for text, group in pair] for pair in (["aG", "bG"], ["aG", "bH"]))
    mixed, changed = read(lines(tmp_path, *one)).report, read(lines(tmp_path, *two)).report
    assert (mixed.prompt_conflicts, mixed.changed_prompts) == (1, 0)
    assert (changed.prompt_conflicts, changed.changed_prompts) == (0, 1)
