"""Atropos groups: several rollouts in one line, prompts known by tokens only, kept groups only."""

import json
from pathlib import Path

from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log, sniff

GROUPS = Path(__file__).parent / "formats" / "atropos"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def group(**fields):
    return {"tokens": [[1, 2, 3], [1, 2, 4]], "masks": [[-100, -100, 3], [-100, -100, 4]], "scores": [1, 0]} | fields


def test_groups_go_the_whole_way(tmp_path):
    way = whole_way(GROUPS, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("atropos",), 8, 2)
    assert way.report.kept_only
    assert "Atropos leaves groups out" in way.report.warning
    assert way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])


def test_a_line_is_a_group_and_the_file_names_the_environment():
    log = read(GROUPS)
    groups = list(log.groups())
    assert groups[0].rewards == (1.0, -1.0, -1.0, 1.0)
    assert [place.line for place in groups[1].places] == [2] * 4
    assert (log.tasks[0].env, log.tasks[0].text, log.tasks[0].draws) == ("boats", "Plan boats trip 0", 2)


def test_without_messages_the_masked_tokens_are_the_prompt(tmp_path):
    path = written(tmp_path / "maze.jsonl", group(), group(), group(tokens=[[1, 9, 3], [1, 9, 4]]))
    log = read(path)
    assert sniff(path) == "atropos"
    assert [(task.env, task.draws) for task in log.tasks] == [("maze", 2), ("maze", 1)]
    assert next(log.groups()).cost.tokens == 2.0


def test_a_log_with_flat_groups_is_not_one_of_kept_groups(tmp_path):
    assert not read(written(tmp_path / "maze.jsonl", group(), group(scores=[1, 1]))).report.kept_only


def test_lists_of_another_length_cost_their_group(tmp_path):
    path = written(
        tmp_path / "maze.jsonl", group(), group(scores=[1]), group(scores=None), group(masks=[[1, 2, 3], [1, 2, 3]])
    )
    report = read(path).report
    assert report.drop_reasons == {
        "tokens has not one entry per rollout": 1,
        "no scores": 1,
        "no messages, and no token of the prompt is masked": 1,
    }
    assert report.kept == 2
