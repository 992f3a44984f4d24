"""Samples of a hosted run: two draws of one problem in a step are two groups."""

import shutil
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, sniff

RUN = Path(__file__).parent / "formats" / "prime_hosted"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_samples_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("prime-hosted",), 16, 2)
    assert (way.report.steps, way.report.group_sizes) == ((0, 1), ((4, 16),))
    assert way.assessment.savings, way.assessment.sentence
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])
    assert "arrival_reward" in first.reward_parts


def test_draws_are_told_apart_by_the_group_size_of_the_run(tmp_path):
    first, second = list(read(RUN).groups())[:2]
    assert (first.key, first.rewards, second.rewards) == ("boats::0", (1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 0.0, 1.0))
    assert (first.cost.tokens, first.cost.seconds) == (48.0, 6.0)
    shutil.copy(RUN / "rollouts.jsonl", tmp_path / "any")
    log = read(tmp_path / "any")
    assert sniff(tmp_path / "any") == "prime-hosted"
    assert next(log.groups()).rewards == (1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    assert any("no run.json beside it" in note for note in log.report.notes)


def test_public_runs(shared_inputs):
    """Rows 0-7 and 8-15 of problem 1 have advantages around two means: they were two groups of eight."""
    report = read(shared_inputs / "08-security-verifiers-training").report
    assert (report.rows, report.groups, report.group_sizes) == (41, 6, ((1, 1), (8, 5)))
    second = list(read(shared_inputs / "08-security-verifiers-training" / "e2_hybrid").groups())
    assert [sum(group.rewards) for group in second] == pytest.approx([3.6, 5.6])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("08-security-verifiers-training/e1_executable/run.json", "settings of a training run, no rollouts"),
        (
            "08-security-verifiers-training/e1_executable/metrics.jsonl",
            "metrics of a training run by step, no rollouts",
        ),
        ("11-prime-community-metadata/evals.jsonl", "summaries of evaluations, no rollouts"),
        ("11-prime-community-metadata", "summaries of evaluations, no rollouts"),
    ],
)
def test_public_files_without_rollouts_say_what_they_are(shared_inputs, path, said):
    with pytest.raises(LogFormatError, match=said):
        read(shared_inputs / path)


def test_public_groups_before_and_after_training(shared_inputs):
    report = read(shared_inputs / "05-reasoning-gym-rl").report
    assert (report.environments, report.tasks, report.groups, report.rollouts) == (13, 1466, 3900, 11700)
    assert report.flat_groups == pytest.approx(0.834, abs=5e-4)
    assert (report.steps, report.dropped) == ((0, 500), 0)
