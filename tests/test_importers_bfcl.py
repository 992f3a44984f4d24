"""BFCL: results joined with score files that list failures only, and its data as a catalogue."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, import_run, sniff
from envsched_core.importers.failures import path_of, score_file_of, written_calls
from envsched_core.store import RunReader

FORMATS = Path(__file__).parent / "formats"
RUNS, V3 = FORMATS / "bfcl", FORMATS / "bfcl_v3"
NAME = "BFCL_v4_multi_turn_base"
SCORES = Path("run0/score/tiny-FC/multi_turn") / f"{NAME}_score.json"
RESULTS = Path("run0/result/tiny-FC/multi_turn") / f"{NAME}_result.json"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


@pytest.fixture
def runs(tmp_path):
    shutil.copytree(RUNS, tmp_path / "bfcl")
    return tmp_path / "bfcl"


def test_several_runs_of_a_model_go_the_whole_way(tmp_path):
    way = whole_way(RUNS, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.group_sizes) == (("bfcl",), 16, ((2, 16),))
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == [
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "assistant",
    ]
    assert [call.name for call in first.calls] == ["open_ticket", "close_ticket", "mean"]


def test_an_id_that_the_score_file_does_not_list_is_right():
    log = read(RUNS)
    found = {group.task: group.rewards for group in log.groups()}
    patterns = [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0)]
    assert found == {f"multi_turn_base_{i}": patterns[i % 4] for i in range(16)}
    group = next(log.groups())
    assert (group.policy_version, group.cost.tokens, group.cost.seconds) == ("tiny-FC", 76.0, 3.0)


def test_tasks_have_classes_tools_and_the_answers_path():
    tasks = {task.task: task for task in read(RUNS).tasks}
    first, second = tasks["multi_turn_base_0"], tasks["multi_turn_base_1"]
    assert (first.env, first.state, first.text) == ("TicketAPI", ("TicketAPI",), "Open ticket 0.\nClose it.")
    assert first.calls == ("open_ticket", "get_ticket", "close_ticket")
    assert [tool.name for tool in first.tools] == ["open_ticket", "get_ticket", "close_ticket"]
    assert (second.env, "mean" in {tool.name for tool in second.tools}) == ("MathAPI+TicketAPI", False), "left out"
    assert "mean" in {tool.name for tool in tasks["multi_turn_base_3"].tools}


def test_a_score_file_that_does_not_add_up_is_told(runs):
    lines = (runs / SCORES).read_text().splitlines()
    (runs / SCORES).write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])
    notes = read(runs).report.notes
    assert any("1 lines of" in note and "count as right" in note for note in notes)
    assert any("counts 8 wrong answers and lists 7" in note for note in notes)
    (runs / SCORES).write_text(json.dumps({"correct_count": 4, "total_count": 4}) + "\n")
    assert any("scores 4 results, the result file has 16" in note for note in read(runs).report.notes)


def test_without_scores_rewards_are_missing_and_that_is_told(runs):
    (runs / SCORES).unlink()
    report = read(runs / RESULTS).report
    assert (report.missing, report.rollouts) == (16, 16)
    assert any("no score file" in note for note in report.notes)


def test_older_names_and_no_data_files():
    log = read(V3)
    assert [(task.env, task.task, task.verifier) for task in log.tasks] == [
        ("simple", "simple_0", "calls"),
        ("simple", "simple_1", "calls"),
    ]
    assert {group.rewards for group in log.groups()} == {(1.0,)}
    assert next(log.groups()).calls == (("area",),)
    assert any("no data file above it" in note for note in log.report.notes)


def test_a_back_end_of_the_memory_is_an_environment_of_its_own(tmp_path):
    """The data stands for all back ends, results and ids name one."""
    row = {"id": "memory_3-x-3", "question": [[{"role": "user", "content": "Who?"}]], "involved_classes": ["MemoryAPI"]}
    (tmp_path / "BFCL_v4_memory.json").write_text(json.dumps(row) + "\n")
    (tmp_path / "possible_answer").mkdir()
    answer = {"id": "memory_3-x-3", "ground_truth": ["Ann"], "source": "a(b)"}
    (tmp_path / "possible_answer/BFCL_v4_memory.json").write_text(json.dumps(answer) + "\n")
    for end in ("kv", "vector"):
        name = f"BFCL_v4_memory_{end}"
        folders = [tmp_path / tree / "m/agentic/memory" / end for tree in ("result", "score")]
        for folder in folders:
            folder.mkdir(parents=True)
        result = {"id": f"memory_{end}_3-x-3", "result": [["Ann."]], "latency": [[1.0]]}
        (folders[0] / f"{name}_result.json").write_text(json.dumps(result) + "\n")
        (folders[1] / f"{name}_score.json").write_text('{"accuracy": 1, "correct_count": 1, "total_count": 1}\n')
    log = read(tmp_path / "result")
    assert [(task.key, task.text, task.calls) for task in log.tasks] == [
        ("MemoryAPI_kv::memory_kv_3-x-3", "Who?", None),
        ("MemoryAPI_vector::memory_vector_3-x-3", "Who?", None),
    ]
    assert [(group.rewards, group.policy_version) for group in log.groups()] == [((1.0,), "m"), ((1.0,), "m")]
    assert len(read(tmp_path / "BFCL_v4_memory.json").tasks) == 1


def test_what_was_said_comes_from_the_inference_log_where_there_is_one(tmp_path):
    shutil.copytree(V3, tmp_path / "v3")
    path = tmp_path / "v3/result/tiny/BFCL_v3_simple_result.json"
    log = [
        {"role": "state_info", "content": "x"},
        {
            "begin_of_turn_query": [{"role": "user", "content": "Area?"}],
            "step_0": [{"role": "inference_input", "content": "x"}, {"role": "assistant", "content": "4"}],
            "step_1": [{"role": "tool", "content": {"area": 4}}],
        },
    ]
    row = json.loads(path.read_text().splitlines()[0]) | {"inference_log": log}
    path.write_text(json.dumps(row) + "\n")
    import_run([tmp_path / "v3"], tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    group = next(found.event.data for found in reader.events() if found.event.kind == "observed")
    assert [message.role for message in reader.rollouts(group)[0].messages] == ["user", "assistant", "tool"]


def test_the_data_alone_is_a_catalogue():
    log = read(RUNS / "data")
    assert (log.report.groups, len(log.tasks), {task.draws for task in log.tasks}) == (0, 16, {None})
    answers = read(RUNS / "data" / "possible_answer" / f"{NAME}.json")
    assert answers.tasks == log.tasks


def test_answers_without_their_tasks_still_name_paths(tmp_path):
    shutil.copy(RUNS / "data" / "possible_answer" / f"{NAME}.json", tmp_path)
    task = read(tmp_path / f"{NAME}.json").tasks[0]
    assert (task.env, task.calls) == ("multi_turn_base", ("open_ticket", "get_ticket", "close_ticket"))


@pytest.mark.parametrize("path", [SCORES, Path("data/multi_turn_func_doc/math_api.json")])
def test_a_file_without_rows_of_its_own_is_known_and_refused_alone(path):
    assert sniff(RUNS / path) == "bfcl"
    with pytest.raises(LogFormatError, match=r"holds no rows; files of .* are read with the"):
        read(RUNS / path)


def test_scores_are_found_beside_or_in_the_twin_tree(runs):
    assert score_file_of(runs / RESULTS) == runs / SCORES
    shutil.copy(runs / SCORES, (runs / RESULTS).parent)
    assert score_file_of(runs / RESULTS) == (runs / RESULTS).parent / SCORES.name
    assert score_file_of(runs / "other.json") is None


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("[a(x='1, 2'), b()]", ("a", "b")),
        ("a(x='Joe's')", ("a",)),
        ("GorillaFileSystem.mv(source='x')", ("mv",)),
        ("nothing to do", ()),
        ("", ()),
    ],
)
def test_written_calls(written, names):
    assert path_of(written) == names


@given(st.text())
def test_any_text_may_stand_where_calls_do(text):
    assert all(call.name for call in written_calls(text))


def test_public_data(shared_inputs):
    folder = shared_inputs / "02-bfcl-v4"
    log = read(folder)
    assert (len(log.tasks), len({task.env for task in log.tasks})) == (655, 22)
    assert all(task.text and task.tools and task.state for task in log.tasks)
    for task in log.tasks:
        assert {*(task.calls or ())} <= {tool.name for tool in task.tools}, task.key
    assert sum(task.calls is not None for task in log.tasks) == 400
    for path in sorted(folder.glob("*.json")):
        assert read(path).tasks
