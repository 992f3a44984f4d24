"""AReaL dumps: a dispatch is a group, its number no task."""

import shutil
from pathlib import Path

from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log, sniff

RUN = Path(__file__).parent / "formats" / "areal"
RULES = (("boats", "boats"), ("trains", "trains"))


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_dispatches_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path, env_rules=RULES)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("areal",), 16, 2)
    assert (way.report.steps, way.report.tasks) == ((1, 2), 8)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])


def test_the_prompt_is_the_task_and_versions_are_kept():
    log = read(RUN)
    group = next(log.groups())
    assert (group.rewards, group.step, group.policy_version, group.cost.tokens) == ((1.0, 0.0, 0.0, 1.0), 1, "0", 126.0)
    assert (group.trained, log.tasks[0].text, log.tasks[0].draws) == (None, "Plan boats trip 0", 2)
    assert any("it is called areal" in note for note in log.report.notes)


def test_samples_that_end_at_a_later_version_stay_in_their_group(tmp_path):
    text = (RUN / "rollout" / "1" / "1.jsonl").read_text()
    first, *rest = text.splitlines(keepends=True)
    (tmp_path / "any").write_text(first + "".join(rest).replace('"tail_version": 1', '"tail_version": 2'))
    assert sniff(tmp_path / "any") == "areal"
    assert [len(group.rewards) for group in read(tmp_path / "any").groups()] == [4]


def test_evaluations_are_groups_of_their_own(tmp_path):
    for name in ("rollout", "eval-rollout"):
        (tmp_path / name / "1").mkdir(parents=True)
        shutil.copy(RUN / "rollout" / "1" / "1.jsonl", tmp_path / name / "1")
    groups = list(read(tmp_path).groups())
    assert [group.trained for group in groups] == [False, None]
