"""rLLM: an episode a file, several trajectories in one, and results of an evaluation."""

import json
from pathlib import Path

from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log, sniff

RUN = Path(__file__).parent / "formats" / "rllm"
EPISODES = RUN / "episodes"
RESULTS = RUN / "eval_results" / "canals_toy_20260102.json"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def episode(folder, **changes):
    found = json.loads(next(iter(sorted(EPISODES.rglob("*.json")))).read_text())
    path = folder / "episode.json"
    path.write_text(json.dumps(found | changes))
    return path


def test_episodes_go_the_whole_way(tmp_path):
    way = whole_way(EPISODES, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("rllm",), 8, 2)
    assert way.report.steps == (0, 1)
    assert way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])


def test_draws_of_a_task_are_groups_by_the_episodes_name():
    log = read(EPISODES)
    group = next(log.groups())
    assert (group.group_id, group.rewards) == ("boats::00000000#0/draw-0-0", (1.0, 0.0, 0.0))
    assert (group.step, group.cost.turns, group.cost.seconds) == (0, 6.0, 3.75)
    assert log.tasks[0].text == "Plan boats trip 0"


def test_several_trajectories_are_rewarded_with_the_outcome_or_the_chosen_one(tmp_path):
    walks = [{"name": name, "reward": reward, "steps": []} for name, reward in (("solver", 0.25), ("judge", 0.75))]
    path = episode(tmp_path, trajectories=walks, is_correct=True, metadata={"env": "court"}, task={"id": "case-1"})
    log = read(path)
    group = next(log.groups())
    assert (group.key, group.rewards) == ("court::case-1", (1.0,))
    assert any("solver + judge" in note for note in log.report.notes)
    assert next(read(path, reward="judge").groups()).rewards == (0.75,)


def test_steps_without_messages_are_readable_too(tmp_path):
    steps = [{"observation": "a wall", "model_response": "left", "action": "L"}]
    path = episode(tmp_path, trajectories=[{"name": "walker", "reward": None, "steps": steps}], task="Leave the maze")
    seen = []
    log = import_log([path], sink=lambda rollouts: [seen.append(rollout) or 0 for rollout in rollouts])
    assert [(message.role, message.content) for message in seen[0].messages] == [
        ("user", "a wall"),
        ("assistant", "left"),
    ]
    assert (seen[0].reward, log.tasks[0].env) == (1.0, "rllm")


def test_validation_was_not_trained_on(tmp_path):
    folder = tmp_path / "val_step_3_epoch_0"
    folder.mkdir()
    episode(folder)
    assert next(read(tmp_path).groups()).trained is False


def test_results_of_an_evaluation_hold_rewards():
    assert sniff(RESULTS) == "rllm"
    log = read(RESULTS)
    even, odd = log.groups()
    assert (even.key, even.rewards, even.policy_version) == ("canals::0", (0.0, 1.0, 0.0, 1.0), "toy")
    assert (odd.rewards, odd.missing) == ((1.0, 0.0, 1.0), 1)
    assert next(read(RESULTS, reward="locks").groups()).rewards == (0.0, 1.0, 2.0, 3.0)
