"""Environment and task by the user's rules, and logs that only list tasks."""

import json
import re
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadow_runs import Following, append

from envsched_core.errors import ConfigError, LogFormatError, StoreError
from envsched_core.importers import ImportOptions, ImportReport, import_log, import_run, report_lines
from envsched_core.replay import load_pool
from envsched_core.store import RunReader
from envsched_core.views import environment_graph
from envsched_core.views.run_view import RunView

FORMATS = Path(__file__).parent / "formats"


def read(path, **options):
    return import_log([path], ImportOptions(**options))


def lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ROWS = [
    {"prompt": "You are a retail agent. Cancel.", "index": 0, "reward": 1.0},
    {"prompt": "You are an airline agent. Book.", "index": 1, "reward": 0.0},
    {"prompt": "Hello.", "index": 2, "reward": 0.0},
]


def envs(log):
    return [(task.env, task.task) for task in log.tasks]


def test_a_pattern_on_the_prompt_names_the_environment(tmp_path):
    log = read(lines(tmp_path / "log.jsonl", *ROWS), env="rest", env_rules=((r"shop-\1", r"an? (\w+) agent"),))
    assert envs(log) == [("shop-retail", "0"), ("shop-airline", "1"), ("rest", "2")]


def test_a_pattern_on_the_path_names_the_environment(tmp_path):
    for name in ("one", "two"):
        lines(tmp_path / name / "log.jsonl", *ROWS[:1])
    log = read(tmp_path, env_rules=((r"\1", r"path:/(\w+)/log\.jsonl$"),))
    assert [env for env, _ in envs(log)] == ["one", "two"]


def test_the_first_rule_that_is_found_counts_and_goes_before_the_log(tmp_path):
    path = lines(tmp_path / "log.jsonl", *[row | {"env": "own"} for row in ROWS])
    log = read(path, env_rules=(("a", "retail"), ("b", "agent")))
    assert [env for env, _ in envs(log)] == ["a", "b", "own"]


@pytest.mark.parametrize("rule", [("a", "("), (r"\2", "(retail)")])
def test_a_rule_that_is_no_pattern_is_refused(tmp_path, rule):
    with pytest.raises(ConfigError, match="--env-rule"):
        read(lines(tmp_path / "log.jsonl", *ROWS), env_rules=(rule,))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_join_file_names_environment_task_and_tools(tmp_path, kind):
    path = lines(tmp_path / "log.jsonl", *[{"extra_info": {"index": row["index"]}} | row for row in ROWS])
    joined = lines(
        tmp_path / "data" / "train.jsonl",
        {"index": 0, "env": "retail", "task_id": "cancel", "tools": ["find", "cancel"]},
        {"index": 1, "env": "airline", "task_id": "book", "tools": ["book"]},
    )
    if kind == "parquet":
        target = joined.with_suffix(".parquet")
        duckdb.sql(f"SELECT * FROM read_json('{joined}')").write_parquet(str(target))
        joined = target
    for column in ("index", "extra_info.index"):
        log = read(path, env="rest", join=(column, joined))
        assert envs(log) == [("retail", "cancel"), ("airline", "book"), ("rest", "2")]
        assert [tool.name for tool in log.tasks[0].tools] == ["find", "cancel"]
        assert "1 rows are not in the join file" in log.report.notes[0]


def test_a_join_file_may_go_by_the_prompt_and_gives_the_task_its_key(tmp_path):
    log = lines(tmp_path / "log.jsonl", *[{"prompt": "p" * 300, "reward": reward} for reward in (0, 1)])
    joined = lines(tmp_path / "side.jsonl", {"prompt": "p" * 300, "env": "long"})
    ((env, task),) = envs(read(log, join=("prompt", joined)))
    assert env == "long"
    assert re.fullmatch("[0-9a-f]{16}", task)


@pytest.mark.parametrize(("row", "said"), [({"env": "a"}, "no column 'index'"), ({"index": 1, "x": 2}, "names no env")])
def test_a_useless_join_file_is_refused(tmp_path, row, said):
    path = lines(tmp_path / "log.jsonl", *ROWS)
    with pytest.raises(LogFormatError, match=said):
        read(path, join=("index", lines(tmp_path / "side" / "join.jsonl", row)))


@given(st.lists(st.tuples(st.text(min_size=1, max_size=12), st.sampled_from([0.0, 1.0])), min_size=1, max_size=12))
def test_tasks_named_by_their_prompt_are_those_of_equal_prompts(tmp_path_factory, rows):
    rows = [(text, reward) for text, reward in rows if text.strip()]
    if not rows:
        return
    path = lines(tmp_path_factory.mktemp("p") / "log.jsonl", *[{"input": text, "reward": r} for text, r in rows])
    log = read(path, env="e", format="table")
    expected: dict[str, list[float]] = {}
    for text, reward in rows:
        expected.setdefault(text, []).append(reward)
    assert [list(group.rewards) for group in log.groups()] == list(expected.values())


# ---------------------------------------------------------------- catalogues


def test_a_task_list_alone_is_a_catalogue_with_a_graph(tmp_path):
    rows = [
        {"env": f"e{k % 2}", "task_id": k, "question": f"Cook a soup of {k % 3}", "tools": ["stir", "taste"]}
        for k in range(8)
    ]
    report = import_run([lines(tmp_path / "tasks.jsonl", *rows)], tmp_path / "run")
    assert (report.groups, report.listed_tasks, report.environments) == (0, 8, 2)
    assert report_lines(report)[0] == "tasks.jsonl (tasks): a catalogue of 8 tasks of 2 environments, no rollouts"
    reader = RunReader(tmp_path / "run")
    graph = reader.graph()
    assert graph is not None
    assert graph.within.nnz > 0
    assert graph.cross.shape == (8, 8)
    assert all(task.draws is None for task in reader.tasks())
    view = RunView(tmp_path / "run")
    view.poll()
    assert len(environment_graph(view, "e0", None).nodes) == 4
    with pytest.raises(StoreError, match="no observed group"):
        load_pool(tmp_path / "run")


def test_a_task_list_beside_a_log_fills_it_in(tmp_path):
    lines(tmp_path / "log.jsonl", {"env": "e", "task_id": 1, "reward": 1.0})
    lines(tmp_path / "tasks.jsonl", *({"env": env, "task_id": k, "question": f"q{k}"} for k in (1, 2) for env in "ef"))
    report: ImportReport
    log = read(tmp_path)
    report = log.report
    assert [(task.key, task.text, task.draws) for task in log.tasks] == [("e::1", "q1", 1), ("e::2", "q2", 0)]
    assert (report.groups, report.listed_tasks, report.dropped) == (1, 1, 0)


def test_lines_of_a_task_list_that_are_none_are_dropped_with_their_place(tmp_path):
    path = lines(tmp_path / "tasks.jsonl", {"env": "e", "task_id": 1, "question": "q"}, {"env": "e", "question": "q"})
    path.write_bytes(path.read_bytes() + b"{torn")
    report = read(path).report
    assert (report.listed_tasks, report.drop_reasons) == (1, {"no task": 1, "torn last line": 1})
    assert "tasks.jsonl:2: no task" in "\n".join(report_lines(report))


def test_public_task_lists(shared_inputs, tmp_path):
    report = import_run([shared_inputs / "04-reasoning-gym-eval" / "tasks.jsonl"], tmp_path / "run")
    assert (report.environments, report.listed_tasks, report.groups) == (101, 3030, 0)


def test_a_followed_log_knows_the_task_list_beside_it_before_and_after_a_restart(tmp_path):
    log = tmp_path / "log"
    lines(log / "tasks.jsonl", *({"env": env, "task_id": f"t{k}", "question": f"q{k}"} for env in "ef" for k in (0, 9)))
    following = Following(log, tmp_path / "run")
    for step, env in enumerate("ef"):
        found = [{"env": env, "task_id": "t0", "step": step, "reward": float(k)} for k in range(2)]
        append(log / "rollouts.jsonl", "".join(json.dumps(row) + "\n" for row in found))
        following.look(everything=True)
        following.restart()
    following.shadow.close()
    tasks = {task.key: task.text for task in RunReader(tmp_path / "run").tasks()}
    assert tasks == {"e::t0": "q0", "e::t9": "q9", "f::t0": "q0", "f::t9": "q9"}
    assert following.shadow.counts["rows"] == 4
