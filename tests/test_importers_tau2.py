"""tau2-bench: results in one file and in a folder, and task files as a catalogue."""

import json
import shutil
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, import_run
from envsched_core.store import RunReader

FORMATS = Path(__file__).parent / "formats"
RUN = FORMATS / "tau2" / "results.json"
FOLDER = FORMATS / "tau2_folder"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_results_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.missing) == (("tau2",), 16, 1)
    assert way.assessment.groups == 16
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["assistant", "user", "assistant", "tool", "tool"]
    assert [call.name for call in first.calls] == ["find_order", "change_order"], (
        "the user's own call is not the agent's"
    )
    assert set(first.reward_parts) == {"DB", "COMMUNICATE"}


def test_trials_of_a_task_are_a_group_with_its_costs():
    log = read(RUN)
    group = next(log.groups())
    assert (group.key, group.rewards, group.policy_version) == ("bakery::t0", (0.0, 0.0), "small-agent")
    assert (group.cost.tokens, group.cost.seconds, group.cost.turns, group.cost.tool_calls) == (40.0, 5.0, 4.0, 4.0)
    assert [place.line for place in group.places] == [1, 17]
    failed = next(group for group in log.groups() if group.missing)
    assert (failed.task, failed.rewards, failed.status) == ("t5", (1.0,), "partial")


def test_tasks_carry_what_the_user_is_told_tools_and_the_agents_reference_calls():
    task = read(RUN).tasks[3]
    assert task.text == "Be brief.\nYou want order #3 changed.\nYou are customer 3."
    assert task.calls == ("find_order", "change_order")
    assert [tool.name for tool in task.tools] == ["find_order", "change_order"]
    assert task.verifier == "DB + COMMUNICATE"
    assert read(RUN).tasks[0].state == ("orders",)


def test_a_part_of_the_reward_may_be_scheduled_on():
    assert {reward for group in read(RUN, reward="COMMUNICATE").groups() for reward in group.rewards} == {1.0}


def test_a_folder_of_simulations_is_one_run():
    log = read(FOLDER)
    assert (log.report.groups, log.report.group_sizes, log.report.environments) == (2, ((2, 2),), 1)
    group = next(log.groups())
    assert (group.key, group.policy_version, group.places[0].file) == (
        "bakery::t0",
        "small-agent",
        "tau2_folder/simulations/s0-0.json",
    )
    alone = read(FOLDER / "simulations" / "s1-0.json")
    assert (alone.tasks[0].key, alone.tasks[0].text[:9]) == ("bakery::t1", "Be brief.")


def test_one_line_and_torn_files_are_read_as_far_as_they_go(tmp_path):
    line = tmp_path / "line.json"
    line.write_text(json.dumps(json.loads(RUN.read_text())))
    assert read(line).report.rows == 32
    torn = tmp_path / "torn.json"
    torn.write_text(RUN.read_text()[:-3000])
    report = read(torn).report
    assert (report.environments, report.kept, report.drop_reasons) == (1, 29, {"torn last item": 1})


def test_a_simulation_without_its_run_needs_a_name(tmp_path):
    shutil.copy(FOLDER / "simulations" / "s0-0.json", tmp_path)
    assert read(tmp_path / "s0-0.json").tasks[0].env == "tau2"
    assert read(tmp_path / "s0-0.json", env="bakery").tasks[0].env == "bakery"


def test_tasks_alone_are_a_catalogue_with_a_graph(tmp_path):
    report = import_run([FORMATS / "tau2_tasks"], tmp_path / "run")
    tasks = RunReader(tmp_path / "run").tasks()
    assert [task.key for task in tasks] == ["bakery::t0", "bakery::t1"], (
        "the second names no domain: the file's name does"
    )
    assert tasks[1].text == "You want bread."
    assert [tool.parameters for tool in tasks[0].tools] == [("order",)]
    assert any("1 tools of the reference calls are not in tools-data.json" in note for note in report.notes)


@pytest.mark.parametrize(("name", "tasks", "actions"), [("airline", 50, 2.8), ("retail", 114, 4.8), ("mock", 10, 0.8)])
def test_public_tasks(shared_inputs, name, tasks, actions):
    log = read(shared_inputs / "10-tau2-bench" / f"{name}_tasks.json")
    assert ({task.env for task in log.tasks}, len(log.tasks)) == ({name}, tasks)
    assert all(task.text and task.tools and task.verifier for task in log.tasks)
    assert sum(len(task.calls or ()) for task in log.tasks) / tasks == pytest.approx(actions, abs=0.05)


@pytest.mark.parametrize("shape", ["by domain", "lines"])
def test_tool_documents_beside_a_run_come_in_by_option(tmp_path, shape):
    run = json.loads(RUN.read_text())
    run["info"]["environment_info"]["tool_defs"] = None
    (tmp_path / "results.json").write_text(json.dumps(run, indent=1))
    documents = FORMATS / "tau2_tasks" / "tools-data.json"
    if shape == "lines":
        tools = json.loads(documents.read_text())["bakery"]["tools"]
        documents = tmp_path / "tools.jsonl"
        documents.write_text("".join(json.dumps(tool) + "\n" for tool in tools))
    log = read(tmp_path / "results.json", tools=documents)
    assert {tuple(tool.name for tool in task.tools) for task in log.tasks} == {("find_order",)}


def test_tool_documents_alone_are_told_to_be_that(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "a", "description": "b", "parameters": {}}]))
    with pytest.raises(LogFormatError, match="tool documents, no log: --tools FILE"):
        read(tmp_path / "tools.json")
    with pytest.raises(LogFormatError, match="are read with the task files beside them"):
        read(FORMATS / "tau2_tasks" / "tools-data.json")
