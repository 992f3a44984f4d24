"""ACEBench: the join by id or by line, milestones counted again, and its data as a catalogue."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log
from envsched_core.importers.acebench import reached

RUNS = Path(__file__).parent / "formats" / "acebench"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_several_runs_of_a_model_go_the_whole_way(tmp_path):
    way = whole_way(RUNS, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("acebench",), 16, 2)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    assert way.rollouts[0].messages[0].role == "user"
    assert way.rollouts[0].calls


def test_failures_are_found_by_id_and_by_line():
    found = {group.task: group.rewards for group in read(RUNS).groups()}
    patterns = [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0)]
    kinds = ("agent_multi_step", "normal_similar_api")
    assert found == {f"{kind}_{i}": patterns[i % 4] for kind in kinds for i in range(8)}


def test_milestones_grade_agent_tasks():
    found = {group.task: group.rewards for group in read(RUNS, reward="process").groups() if group.rewards}
    assert found["agent_multi_step_0"] == (0.5, 0.5)
    assert found["agent_multi_step_2"] == (1.0, 0.5), "the best of two lists of milestones"
    assert not any(task.startswith("normal") for task in found)


def test_tasks_have_classes_tools_and_reference_calls():
    tasks = {task.task: task for task in read(RUNS).tasks}
    agent, normal = tasks["agent_multi_step_1"], tasks["normal_similar_api_0"]
    assert (agent.env, agent.verifier, agent.calls) == ("BaseApi+Travel", "end state", ("search", "book"))
    assert [tool.name for tool in agent.tools] == ["search", "book"]
    assert (normal.env, normal.calls) == ("normal_similar_api", ("plan_a", "plan_a")), "numbered when called twice"


def test_a_run_away_from_its_data_has_categories(tmp_path):
    shutil.copytree(RUNS / "run0", tmp_path / "run0")
    log = read(tmp_path / "run0")
    assert {task.env for task in log.tasks} == {"agent_multi_step", "normal_similar_api"}
    assert any("no data file above it" in note for note in log.report.notes)


def test_the_data_alone_is_a_catalogue():
    log = read(RUNS / "data_all")
    assert (log.report.groups, len(log.tasks)) == (0, 16)
    assert all(task.text and task.tools and task.calls for task in log.tasks)


CALLS = st.lists(st.sampled_from("abc"), max_size=6)


@given(CALLS, CALLS, CALLS)
def test_milestones_count_in_order_and_more_calls_never_reach_fewer(milestones, calls, more):
    assert reached(milestones, [*calls, *milestones, *more]) == 1.0
    assert reached(milestones, calls) <= reached(milestones, calls + more) <= 1.0
    assert reached([], calls) == 1.0


@pytest.mark.parametrize(
    ("name", "tasks"), [("agent_multi_step", 20), ("agent_multi_turn", 30), ("normal_similar_api", 50)]
)
def test_public_data(shared_inputs, name, tasks):
    folder = shared_inputs / "03-acebench"
    log = read(folder / f"data_en__data_{name}.json")
    assert len(log.tasks) == tasks
    for task in log.tasks:
        assert task.text
        assert task.calls
        assert set(task.calls) <= {tool.name for tool in task.tools}, task.key
    assert read(folder / f"data_en__possible_answer__data_{name}.json").tasks == log.tasks
