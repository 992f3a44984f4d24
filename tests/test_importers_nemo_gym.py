"""NeMo-Gym: rollouts with their failures beside them, inputs as tasks, and Gym's own public examples."""

import json
import shutil
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, sniff
from envsched_core.importers.nemo_gym import messages_of

RUN = Path(__file__).parent / "formats" / "nemo_gym"
ROLLOUTS = RUN / "rollouts.jsonl"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(**fields):
    return {"responses_create_params": {"input": "ask"}, "response": {"output": []}, "reward": 1.0} | fields


def test_rollouts_go_the_whole_way(tmp_path):
    for number in range(2):
        shutil.copytree(RUN, tmp_path / "logs" / str(number))
    way = whole_way(tmp_path / "logs", tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("nemo-gym",), 16, 2)
    assert (way.report.rollouts, way.report.missing, way.report.listed_tasks) == (64, 4, 1)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert (first.messages[2].content, len(first.messages[2].calls), len(first.calls)) == ("One call.", 1, 1)
    assert first.reward_parts.keys() == {"balanced", "ledger_gap"}


def test_failures_have_no_reward_and_a_second_try_counts_once():
    groups = {group.key: group for group in read(RUN).groups()}
    failed = groups["ledger_agent::3"]
    assert (failed.rewards, failed.missing, failed.status) == ((0.0, 1.0, 0.0), 1, "partial")
    masked = groups["post_agent::parcel-3"]
    assert (masked.rewards, masked.missing) == ((1.0, 0.0, 1.0), 1)
    notes = read(RUN).report.notes
    assert any("2 rollouts failed; their rewards are missing" in note for note in notes)
    assert any("1 rollouts are masked by the verifier" in note for note in notes)
    assert read(RUN).report.repeats == 1


def test_a_task_carries_tools_verifier_and_what_is_asked():
    task = read(ROLLOUTS).tasks[0]
    assert (task.env, task.task, task.text) == ("ledger_agent", "0", "Ledger job 0")
    assert [(tool.name, tool.parameters) for tool in task.tools] == [("post_entry", ("amount", "account"))]
    assert task.verifier == "balanced + ledger_gap"
    group = next(read(ROLLOUTS).groups())
    assert (group.policy_version, group.cost.tokens, group.cost.turns) == ("toy", 42.0, 8.0)
    assert group.calls == (("post_entry",),) * 4


def test_inputs_alone_are_tasks(tmp_path):
    log = read(RUN / "rollouts_materialized_inputs.jsonl")
    assert (log.report.groups, len(log.tasks), log.tasks[-1].task) == (0, 9, "parcel-9")
    assert any("read as tasks" in note for note in log.report.notes)
    bare = {"responses_create_params": {"input": "How far?"}, "verifier_metadata": {"answer": 4}}
    task = read(written(tmp_path / "roads.jsonl", bare)).tasks[0]
    assert (task.env, task.text) == ("roads", "How far?")


def test_a_part_of_the_reward_may_be_chosen():
    assert next(read(ROLLOUTS, reward="ledger_gap").groups()).rewards == (0.0, 1.0, 1.0, 0.0)


def test_the_file_names_the_environment_where_the_rows_do_not(tmp_path):
    for environment in ("sums", "maps"):
        folder = tmp_path / environment / "data"
        folder.mkdir(parents=True)
        written(folder / "example_rollouts.jsonl", row(_ng_task_index=0), row(_ng_task_index=0))
    log = read(tmp_path)
    assert [group.key for group in log.groups()] == ["maps::0", "sums::0"]
    assert any("have their file's name for an environment" in note for note in log.report.notes)
    assert next(read(tmp_path / "sums", env="mine").groups()).key == "mine::0"
    other = written(tmp_path / "toys.jsonl", row())
    assert read(other).tasks[0].env == "toys"


def test_tasks_that_ask_the_same_are_told_apart_by_what_they_are_graded_by(tmp_path):
    rows = [row(difficulty=level, reward=float(k)) for level in ("easy", "hard") for k in range(3)]
    log = read(written(tmp_path / "laws.jsonl", *rows))
    assert [(group.env, group.rewards) for group in log.groups()] == [("laws", (0.0, 1.0, 2.0))] * 2
    assert any("a hash of the request and of what it is graded by" in note for note in log.report.notes)


@pytest.mark.parametrize(
    ("fields", "reward", "status"),
    [
        ({"reward": None}, None, ""),
        ({"error": "sandbox lost"}, None, "error: sandbox lost"),
        ({"reward": -100.0, "exception_type": "ValueError"}, -100.0, "error: ValueError"),
        ({"response": {"output": [], "incomplete_details": {"reason": "max_output_tokens"}}}, 1.0, "max_output_tokens"),
        ({"response": {"output": [], "error": {"code": "server_error"}}}, 1.0, "error: server_error"),
    ],
)
def test_how_a_rollout_ended(tmp_path, fields, reward, status):
    seen = []
    path = written(tmp_path / "log.jsonl", row(**fields), row(_ng_task_index=1))
    import_log([path], sink=lambda rollouts: [seen.append(rollout) or 0 for rollout in rollouts])
    assert (seen[0].reward, seen[0].status) == (reward, status)


def test_items_of_the_model_are_one_message_until_somebody_else_speaks():
    items = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "name": "a", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "b", "input": "x"},
        {"type": "custom_tool_call_output", "output": "y"},
        {"type": "message", "role": "assistant", "content": "end"},
    ]
    found = messages_of(items)
    assert [(item.role, item.content) for item in found] == [
        ("user", "go"),
        ("assistant", "hm\nno"),
        ("tool", "y"),
        ("assistant", "end"),
    ]
    assert [(call.name, call.arguments) for call in found[1].calls] == [("a", "{}"), ("b", "x")]


def test_torn_and_odd_rows_cost_themselves(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [json.dumps(row(_ng_task_index=0)), "<PLACEHOLDER ROW>", json.dumps({"reward": 1}), '{"responses_create']
    path.write_text("\n".join(lines))
    report = read(path).report
    assert (report.kept, report.dropped) == (1, 3)
    assert report.drop_reasons == {"not JSON": 1, "no task": 1, "torn last line": 1}


def test_sniffing_looks_at_content(tmp_path):
    shutil.copy(ROLLOUTS, tmp_path / "any")
    assert sniff(tmp_path / "any") == "nemo-gym"
    with pytest.raises(LogFormatError, match="it has no responses_create_params"):
        read(written(tmp_path / "other.jsonl", {"reward": 1}), format="nemo-gym")


def test_the_trainers_own_data_says_why_it_is_no_log(tmp_path):
    path = written(tmp_path / "train_data_step1.jsonl", {"content": ["a"], "rewards": [1.0], "input_lengths": [3]})
    with pytest.raises(LogFormatError, match="names no prompt: groups cannot be told"):
        read(path)


def test_public_examples(shared_inputs):
    """45 environments of five tasks; what is none of them says why."""
    folder = shared_inputs / "07-nemo-gym"
    log = read(folder)
    report = log.report
    assert (len(report.files), report.rows, report.dropped, report.environments) == (44, 215, 0, 43)
    assert (min(item.low for item in report.rewards), max(item.high for item in report.rewards)) == (-100.0, 10.0)
    assert sum(bool(task.tools) for task in log.tasks) == 41
    assert any("genrm_compare.jsonl: rows hold neither response nor reward" in note for note in report.notes)
    assert any("ether0.reward_profiling.jsonl): rewards summed up" in note for note in report.notes)
    for name, said in (
        ("browsecomp_advanced_harness", "placeholders, no records"),
        ("bbq", "no known format: .*'source_id'"),
        ("ether0.reward_profiling", "rewards summed up by task, no rollouts"),
    ):
        with pytest.raises(LogFormatError, match=said):
            read(folder / f"{name}.jsonl")
    assert read(folder / "bbq.jsonl", env="bbq", mapping={"task_id": "source_id"}).report.rows == 5
