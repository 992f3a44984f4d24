"""ART trajectories: splits, scenarios in metadata, and what the place of a file tells."""

import json
import shutil
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, sniff

RUN = Path(__file__).parent / "formats" / "art"
TRAIN = RUN / "travel" / "models" / "toy" / "trajectories" / "train"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_trajectories_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("art",), 16, 2)
    assert way.report.steps == (0, 1)
    assert not way.report.kept_only
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])
    assert first.reward_parts.keys() == {"arrived", "n_calls"}


def test_splits_say_what_was_trained_on_and_groups_keep_their_number():
    groups = list(read(RUN).groups())
    assert {group.trained for group in groups if len(set(group.rewards)) > 1} == {True}
    assert {group.trained for group in groups if len(set(group.rewards)) == 1} == {False}
    group = next(group for group in groups if group.key == "boats::trip-0")
    assert (group.group_id, group.rewards, group.policy_version) == (
        "boats::trip-0#0/toy/train/0",
        (1.0, 0.0, 0.0, 1.0),
        "toy",
    )
    assert (group.cost.tokens, group.cost.seconds) == (86.0, 6.0)


def test_a_task_carries_tools_and_what_is_asked():
    task = read(TRAIN).tasks[0]
    assert (task.key, task.text) == ("boats::trip-0", "Plan boats trip 0")
    assert [(tool.name, tool.parameters) for tool in task.tools] == [("sail", ("to",))]


def test_the_file_alone_is_known_by_its_content(tmp_path):
    shutil.copy(TRAIN / "0001.parquet", tmp_path / "any")
    assert sniff(tmp_path / "any") == "art"
    group = next(read(tmp_path / "any").groups())
    assert (group.step, group.trained, group.policy_version) == (None, None, None)


def test_groups_of_older_releases_are_a_line_each(tmp_path):
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": "Here.", "tool_calls": None}}
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "Where?"}]
    walk = {
        "metadata": {"env": "maps", "scenario_id": 5},
        "metrics": {"found": 1},
        "messages_and_choices": [*asked, choice],
    }
    lines = [{"trajectories": [walk | {"reward": reward} for reward in rewards]} for rewards in ((0, 1), (1, 1))]
    folder = tmp_path / "maps" / "models" / "toy" / "trajectories" / "val"
    folder.mkdir(parents=True)
    (folder / "0003.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    seen = []
    log = import_log([folder], sink=lambda rollouts: [seen.append(rollout) or 0 for rollout in rollouts])
    assert [(group.key, group.rewards, group.step) for group in log.groups()] == [
        ("maps::5", (0.0, 1.0), 3),
        ("maps::5", (1.0, 1.0), 3),
    ]
    assert [message.content for message in seen[0].messages] == ["s", "Where?", "Here."]
    assert log.tasks[0].text == "Where?"


def test_a_metric_may_be_the_reward():
    assert next(read(TRAIN, reward="n_calls").groups()).rewards == (1.0, 1.0, 1.0, 1.0)
    with pytest.raises(LogFormatError, match="no row has a reward part or column 'speed'"):
        read(TRAIN, reward="speed")
