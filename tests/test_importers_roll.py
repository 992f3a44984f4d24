"""ROLL dumps: a step in one line of parallel lists."""

import json
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, sniff

STEPS = Path(__file__).parent / "formats" / "roll"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_steps_of_roll_go_the_whole_way(tmp_path):
    way = whole_way(STEPS, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("roll",), 16, 2)
    assert way.report.steps == (0, 1)
    assert way.assessment.savings, way.assessment.sentence
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])


def test_rows_of_roll_are_told_apart_by_task_and_step(tmp_path):
    found = next(read(STEPS).groups())
    assert (found.group_id, found.rewards) == ("boats::boats-0#step 0", (1.0, 0.0, 0.0, 1.0))
    bare = {"prompt": ["p", "p"], "responses": ["a", "b"], "scores": [0, 1], "tag": ["t", "t"]}
    path = written(tmp_path / "rollout_dump_data.step_7.jsonl", bare)
    assert sniff(path) == "roll"
    log = read(path)
    assert [(item.env, item.step, item.rewards) for item in log.groups()] == [("t", 7, (0.0, 1.0))]
    with pytest.raises(LogFormatError, match="responses has not one entry per rollout"):
        read(written(path, bare | {"responses": ["a"]}))
