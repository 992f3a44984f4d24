"""tinker-cookbook summaries: tags name environment and task, and where they do not."""

import json
from pathlib import Path

from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log, sniff

RUN = Path(__file__).parent / "formats" / "tinker"
FIRST = RUN / "iteration_000000" / "train_rollout_summaries.jsonl"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def changed(path, change):
    rows = [change(json.loads(line)) for line in FIRST.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_summaries_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("tinker",), 16, 2)
    assert way.report.steps == (0, 1)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    assert way.rollouts[0].reward_parts.keys() == {"arrived", "final_reward"}
    assert way.rollouts[0].messages == (), "there is no text in such logs"


def test_groups_have_steps_costs_and_policy():
    group = next(read(RUN).groups())
    assert (group.group_id, group.rewards) == ("boats::trip-0#0/train/0", (1.0, 0.0, 0.0, 1.0))
    assert (group.step, group.policy_version, group.cost.tokens, group.cost.turns) == (0, "0", 66.0, 8.0)
    assert next(read(FIRST, reward="final_reward").groups()).rewards == (0.0,) * 4


def test_logs_of_the_first_step_may_name_the_task(tmp_path):
    def moved(row):
        row["steps"][0]["logs"] = {"task_id": row["tags"][1].removeprefix("task:"), "env": "ships"}
        return row | {"tags": []}

    assert read(changed(tmp_path / "log", moved)).tasks[0].key == "ships::trip-0"


def test_without_names_each_group_is_a_task_of_its_own_and_told(tmp_path):
    path = changed(tmp_path / "log", lambda row: row | {"tags": ["boats"]})
    report = read(path).report
    assert sniff(path) == "tinker"
    assert (report.tasks, report.groups) == (8, 8)
    assert any("each counts as a task of its own" in note for note in report.notes)


def test_evaluations_were_not_trained_on(tmp_path):
    log = read(FIRST, changed(tmp_path / "eval.jsonl", lambda row: row | {"split": "eval/hard"}))
    assert {group.trained for group in log.groups()} == {None, False}
    assert log.report.groups == 16
