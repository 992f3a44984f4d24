"""verl dumps of both trainers, and the transcripts that both they and TRL decode from tokens."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log, sniff
from envsched_core.importers.transcripts import asked_of, calls_in, spoken, tools_in

FORMATS = Path(__file__).parent / "formats"
OLD, NEW = FORMATS / "verl", FORMATS / "verl_v1"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def rewrite(source, target, change):
    """A copy of a JSON-lines file with every row changed; a row that becomes None is left out."""
    rows = [change(json.loads(line)) for line in source.read_text().splitlines()]
    target.write_text("".join(json.dumps(row) + "\n" for row in rows if row is not None))
    return target


def test_a_folder_of_steps_goes_the_whole_way(tmp_path):
    way = whole_way(OLD, tmp_path, mapping={"env": "shop"})
    assert (way.report.formats, way.report.environments, way.report.groups) == (("verl",), 2, 16)
    assert (way.report.steps, way.report.group_sizes) == ((1, 2), ((2, 16),))
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages][:3] == ["system", "user", "assistant"]
    assert first.place.file.startswith("verl/")


def test_rows_of_a_prompt_at_a_step_are_a_group_whatever_their_order():
    log = read(OLD, mapping={"env": "shop"})
    assert len(log.tasks) == 8
    assert {task.draws for task in log.tasks} == {2}
    task = next(task for task in log.tasks if task.text.endswith("job 0"))
    assert (task.env, task.text) == ("kitchen", "In the kitchen, do job 0")
    assert [(tool.name, tool.parameters) for tool in task.tools] == [("stir", ("pot",))]
    groups = [group for group in log.groups() if group.task == task.task]
    assert [(group.step, sorted(group.rewards)) for group in groups] == [(1, [1.0, 1.0]), (2, [0.0, 1.0])]
    assert sorted(groups[0].calls) == [(), ("stir",)]


def test_the_environment_comes_from_an_extra_a_rule_a_join_file_or_a_usual_name(tmp_path):
    assert {task.env for task in read(OLD).tasks} == {"verl"}
    assert {task.env for task in read(OLD, env_rules=((r"the \1", "In the (kitchen|garden)"),)).tasks} == {
        "the kitchen",
        "the garden",
    }
    join = tmp_path / "join.jsonl"
    join.write_text("".join(json.dumps({"gts": f"job-{i}", "env": f"e{i % 3}"}) + "\n" for i in range(8)))
    joined = read(OLD, join=("gts", join))
    assert {(task.env, task.task) for task in joined.tasks} == {(f"e{i % 3}", f"job-{i}") for i in range(8)}
    named = rewrite(OLD / "1.jsonl", tmp_path / "1.jsonl", lambda row: row | {"env_id": "e", "index": 7})
    assert [task.key for task in read(named).tasks] == ["e::7"]


def test_an_extra_may_be_the_reward_and_null_is_missing(tmp_path):
    assert all(set(group.rewards) == {1.0} for group in read(OLD, reward="format_ok").groups())
    log = read(rewrite(OLD / "1.jsonl", tmp_path / "1.jsonl", lambda row: row | {"score": None if row["acc"] else 0.0}))
    assert log.report.missing == 8
    assert all(reward == 0.0 for group in log.groups() for reward in group.rewards)


def test_a_row_without_step_has_that_of_its_file(tmp_path):
    path = rewrite(OLD / "1.jsonl", tmp_path / "17.jsonl", lambda row: {k: v for k, v in row.items() if k != "step"})
    assert read(path).report.steps == (17, 17)


def test_the_newer_trainer_names_draw_session_and_output():
    log = read(NEW)
    report = log.report
    assert (report.rows, report.kept, report.group_sizes, report.partial_groups) == (9, 8, ((2, 1), (3, 2)), 1)
    assert report.drop_reasons == {"an earlier output of a session of several; the last one counts": 1}
    soup = [group for group in log.groups() if len(group.rewards) == 3]
    assert len(soup) == 2
    assert len({group.key for group in soup}) == 1, "one prompt, two draws"
    assert [place.line for place in soup[0].places] == [1, 3, 4]


@given(st.permutations(range(9)))
def test_the_last_output_of_a_session_counts_in_any_order(tmp_path_factory, order):
    lines = (NEW / "40.jsonl").read_text().splitlines()
    path = tmp_path_factory.mktemp("verl") / "40.jsonl"
    path.write_text("".join(lines[i] + "\n" for i in order))
    found = {group.group_id: tuple(sorted(group.rewards)) for group in read(path).groups()}
    assert found == {group.group_id: tuple(sorted(group.rewards)) for group in read(NEW / "40.jsonl").groups()}


def test_the_same_session_twice_counts_once(tmp_path):
    path = tmp_path / "40.jsonl"
    path.write_text((NEW / "40.jsonl").read_text() * 2)
    assert read(path).report.repeats == 8


def test_a_torn_packed_dump_keeps_what_came_before(tmp_path):
    path = tmp_path / "40.jsonl.gz"
    lines = (NEW / "40.jsonl").read_bytes() * 200
    path.write_bytes(gzip.compress(lines)[:-200])
    report = read(path).report
    assert report.kept > 0
    assert report.drop_reasons["the packed file ends early"] == 1


def test_one_prompt_with_two_answers_is_told(tmp_path):
    answers = iter(range(100))
    path = rewrite(OLD / "1.jsonl", tmp_path / "1.jsonl", lambda row: row | {"gts": f"{next(answers)}"})
    assert read(path).report.answer_conflicts == 8


def test_a_dump_of_mixed_groups_only_is_told(tmp_path):
    """Dynamic sampling writes only the groups that it kept."""
    rows = [
        {"input": f"job {i}", "output": "", "gts": "", "score": float(k % 2), "step": i // 8}
        for i in range(24)
        for k in range(4)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(tmp_path / "log.jsonl").report.kept_only


def test_sniffing_does_not_take_tables(tmp_path):
    shutil.copy(NEW / "40.jsonl", tmp_path / "log.txt")
    assert sniff(tmp_path / "log.txt") == "verl"
    (tmp_path / "table").write_text('{"env": "e", "input": "x", "output": "y", "score": 1, "step": 1}\n')
    assert sniff(tmp_path / "table") == "table"


# ---------------------------------------------------------------------- transcripts


def test_roles_are_lines_of_their_own_and_only_from_the_start():
    text = "system\nBe kind.\nuser\nWho is\nassistant to the user?\nassistant\n"
    assert [(m.role, m.content) for m in spoken(text, "user")] == [
        ("system", "Be kind."),
        ("user", "Who is\nassistant to the user?"),
    ]
    assert asked_of(text) == "Who is\nassistant to the user?"
    assert [(m.role, m.content) for m in spoken("no role\nuser\nhere", "assistant")] == [
        ("assistant", "no role\nuser\nhere")
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call> <tool_call>{"name": "b"}</tool_call>',
            ["a", "b"],
        ),
        ('I call\n{"name": "a", "arguments": {}}\nand\n  {"name": "b", "parameters": {}}  ', ["a", "b"]),
        ('{"name": "Ann", "age": 3}', []),
        ("<tool_call>\nnot json\n</tool_call>", []),
        ("plain", []),
    ],
)
def test_calls_are_read_from_text(text, found):
    assert [call.name for call in calls_in(text)] == found


def test_tools_are_read_from_text():
    lines = '{"type": "function", "function": {"name": "a"}}\nnot json\n{"name": "b"}'
    assert [tool.name for tool in tools_in(f"x <tools>\n{lines}\n</tools> y")] == ["a", "b"]
    assert [tool.name for tool in tools_in('<tools>[{"name": "a"}]</tools>')] == ["a"]
    assert tools_in("<tools> never closed") == ()


PIECES = (
    "user\n",
    "system\n",
    "tool",
    "x",
    '{"name":',
    '"a"}',
    "}",
    "\n",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
)


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_taken_and_no_word_is_lost(text):
    assert all(call.name for call in calls_in(text))
    assert all(tool.name for tool in tools_in(text))
    assert asked_of(text) or not text
    said = "".join(message.content for message in spoken(text, "user"))
    assert said.count("x") == text.count("x")
