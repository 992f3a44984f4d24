"""TRL completions: messages and decoded text, reward columns, weights, and what the advantages tell."""

import shutil
from pathlib import Path

import duckdb
import pytest
from whole_way import whole_way

from envsched_core.errors import ConfigError
from envsched_core.importers import ImportOptions, import_log, sniff
from envsched_core.importers.trl_completions import weights_of

FORMATS = Path(__file__).parent / "formats"
MESSAGES, TEXT = FORMATS / "trl", FORMATS / "trl_text"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def parquet(path, query):
    duckdb.sql(query).write_parquet(str(path))
    return path


def test_completions_go_the_whole_way(tmp_path):
    way = whole_way(MESSAGES, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("trl",), 16, 2)
    assert way.report.steps == (1, 2)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "assistant"]
    assert [(call.name, call.arguments.startswith('{"list":')) for call in first.calls] == [("sort", True)]
    assert "order" not in first.calls[0].arguments, "a field that only the table's schema has"
    assert set(first.reward_parts) == {"accuracy_reward", "format_reward"}


def test_the_reward_is_the_sum_of_its_functions_unless_weights_say_otherwise():
    assert {sum(group.rewards) for group in read(MESSAGES).groups()} == {1.0, 2.0, 3.0}
    weighted = read(MESSAGES, reward="accuracy_reward + 0.2*format_reward")
    assert {round(sum(group.rewards), 9) for group in weighted.groups()} == {0.2, 1.2, 2.2}
    assert {sum(group.rewards) for group in read(MESSAGES, reward="format_reward").groups()} == {1.0}


@pytest.mark.parametrize(
    ("formula", "weights"),
    [
        ("a", {"a": 1.0}),
        ("a + b", {"a": 1.0, "b": 1.0}),
        ("0.5*a+-2 * org/model-b", {"a": 0.5, "org/model-b": -2.0}),
        ("1e-1*a + a", {"a": 1.1}),
    ],
)
def test_weights_are_read(formula, weights):
    assert weights_of(formula) == weights


@pytest.mark.parametrize("formula", ["", "a +", "2*", "a*b*c"])
def test_a_formula_that_is_none_is_refused(formula):
    with pytest.raises(ConfigError, match="WEIGHT"):
        weights_of(formula)


def test_decoded_text_is_split_and_where_no_function_applied_the_reward_is_missing():
    log = read(TEXT, env="sort")
    assert (log.report.missing, log.report.partial_groups) == (1, 1)
    assert log.tasks[0].text == "Sort list 0"
    assert any("a hash of the prompt" in note for note in log.report.notes)


def test_advantages_that_speak_against_the_sum_are_told(tmp_path):
    """One function counted ten times, which the log does not store."""
    query = (
        "SELECT 1 AS step, 'p' || i // 4 AS prompt, 'c' || i AS completion, i % 4 / 4.0::DOUBLE AS a, "
        "(i * 7) % 4 / 4.0::DOUBLE AS b, 10 * (i % 4) + (i * 7) % 4 AS total, (total - 16.5)::DOUBLE AS advantage "
        "FROM range(16) t(i)"
    )
    path = parquet(tmp_path / "completions_00001.parquet", f"SELECT * EXCLUDE total FROM ({query})")
    assert any("advantages of some groups do not go with" in note for note in read(path, env="e").report.notes)
    notes = read(path, env="e", reward="10*a + b").report.notes
    assert not any("advantages" in note for note in notes)


def test_a_step_that_only_repeats_the_one_before_is_dropped(tmp_path):
    """Several updates on one generation log it several times."""
    shutil.copy(MESSAGES / "completions" / "completions_00001.parquet", tmp_path)
    again = tmp_path / "completions_00002.parquet"
    source = tmp_path / "completions_00001.parquet"
    duckdb.sql(f"SELECT * REPLACE (2 AS step) FROM read_parquet('{source}')").write_parquet(str(again))
    shutil.copy(MESSAGES / "completions" / "completions_00002.parquet", tmp_path / "completions_00010.parquet")
    report = read(tmp_path).report
    assert (report.groups, report.kept) == (16, 32)
    assert report.drop_reasons == {"logged again: a step without new generations repeats completions_00001.parquet": 16}


def test_columns_of_ids_and_flags_are_no_reward(tmp_path):
    query = (
        "SELECT '7' AS step, 'p' AS prompt, 'c' AS completion, 0.5::DOUBLE AS quality, i AS index, true AS seen, "
        "3 AS tokens, 'NaN'::DOUBLE AS other, 0.0::DOUBLE AS advantage FROM range(2) t(i)"
    )
    log = read(parquet(tmp_path / "log", query), env="e", mapping={"task_id": "prompt"})
    group = next(log.groups())
    assert (group.key, group.step, group.rewards, group.cost.tokens) == ("e::p", 7, (0.5, 0.5), 6.0)


def test_sniffing_looks_at_content(tmp_path):
    shutil.copy(TEXT / "completions_00003.parquet", tmp_path / "any")
    assert sniff(tmp_path / "any") == "trl"
