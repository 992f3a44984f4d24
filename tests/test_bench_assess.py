from pathlib import Path

import pytest

from envsched_core.bench.assess import assess, assess_pool
from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions
from envsched_core.records import Cost, GroupResult, TaskSpec
from envsched_core.replay import RecordedPool, load_pool
from envsched_core.store import new_manifest


def invented(tmp_path, groups, **manifest):
    """A recorded pool of given groups."""
    tasks = {g.key: TaskSpec(g.env, g.task) for g in groups}
    return RecordedPool(tmp_path, new_manifest("log", "import", **manifest), tuple(tasks.values()), tuple(groups))


def group(i, rewards, env="e", **fields):
    return GroupResult(f"g{i}", env, f"t{i}", rewards, **fields)


def dull_and_lively(n, **fields):
    """Half of the environments always fail, the other half is always mixed."""
    return [group(i, (0.0, 0.0) if i % 4 < 2 else (0.0, 1.0), env=f"e{i % 4}", **fields) for i in range(n)]


def test_a_log_with_dull_environments_is_worth_it(tmp_path):
    found = assess_pool(invented(tmp_path, dull_and_lively(600)), seeds=3)
    assert found.verdict == "worth it"
    assert found.flat.mean == 0.5
    assert found.savings[0].avoided.low > 0.3
    assert found.sentence.startswith("Worth it: 50%")


def test_a_log_of_equals_is_not_worth_it(tmp_path):
    groups = [group(i, (0.0, 1.0) if i % 20 else (0.0, 0.0), env=f"e{i % 3}") for i in range(900)]
    found = assess_pool(invented(tmp_path, groups), seeds=2)
    assert found.verdict != "worth it"
    assert found.flat.mean == pytest.approx(0.05)


def test_a_log_without_waste_is_not_worth_it(tmp_path):
    found = assess_pool(invented(tmp_path, [group(i, (0.0, 1.0)) for i in range(64)]), seeds=1)
    assert found.verdict == "not worth it"
    assert "wasted nothing" in found.sentence


def test_single_rollouts_cannot_tell(tmp_path):
    found = assess_pool(invented(tmp_path, [group(i, (1.0,)) for i in range(100)]))
    assert found.verdict == "cannot tell"
    assert "0 of 100 groups" in found.sentence
    assert found.savings == ()


def test_groups_that_cannot_show_anything_are_left_out_and_told(tmp_path):
    groups = dull_and_lively(100) + [group(f"x{i}", (1.0,)) for i in range(40)]
    found = assess_pool(invented(tmp_path, groups), seeds=1)
    assert found.comparable_groups == 100
    assert any("40 of 140 groups" in caveat for caveat in found.caveats)


def test_kept_only_logs_cannot_tell(tmp_path):
    groups = [group(i, (0.0, 1.0)) for i in range(100)]
    found = assess_pool(invented(tmp_path, groups, report={"kept_only": True}))
    assert found.verdict == "cannot tell"
    assert "before they are filtered" in found.sentence


def test_tiny_logs_have_wide_intervals(tmp_path):
    few, many = (assess_pool(invented(tmp_path, dull_and_lively(n)), seeds=2).savings[0].avoided for n in (24, 600))
    assert few.high - few.low > many.high - many.low


def test_tokens_and_seconds_count_where_every_group_has_them(tmp_path):
    cost = Cost(tokens=100.0, seconds=3.0)
    found = assess_pool(invented(tmp_path, dull_and_lively(64, cost=cost)), seeds=1)
    assert {s.unit for s in found.savings} == {"rollout", "token", "second"}
    partly = [*dull_and_lively(64, cost=cost), group("no cost", (0.0, 1.0))]
    assert {s.unit for s in assess_pool(invented(tmp_path, partly), seeds=1).savings} == {"rollout"}


def test_a_gain_per_rollout_that_is_a_loss_per_token_is_told(tmp_path):
    kinds = {
        "dear": ((0.0, 1.0, 0.0, 1.0), Cost(tokens=500.0)),
        "cheap": ((0.0, 0.0, 0.0, 1.0), Cost(tokens=1.0)),
        "dull": ((0.0, 0.0, 0.0, 0.0), Cost(tokens=1.0)),
    }
    envs = ["dear", "cheap", "cheap", "dull"] * 150
    groups = [group(i, kinds[env][0], env=env, cost=kinds[env][1]) for i, env in enumerate(envs)]
    found = assess_pool(invented(tmp_path, groups), seeds=2)
    assert found.verdict == "worth it"
    assert any("a loss per token" in caveat for caveat in found.caveats)


def test_uniform_avoids_exactly_nothing_of_its_own_waste(imported_run):
    found = assess_pool(load_pool(imported_run), seeds=2)
    uniform = [s for s in found.savings if s.scheduler == "uniform"]
    assert {s.avoided for s in uniform} == {(0.0, 0.0, 0.0)}


def test_a_run_folder_and_the_same_answer_twice(imported_run):
    first, report = assess([imported_run], seeds=2)
    assert report is None
    assert first == assess([imported_run], seeds=2)[0]


def test_a_folder_that_is_no_log_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(LogFormatError, match="no log in this folder"):
        assess([tmp_path])


def test_a_log_with_a_run_json_of_its_trainer_is_no_run_folder():
    found, report = assess([Path(__file__).parent / "formats" / "prime_hosted"], seeds=1)
    assert report is not None
    assert report.formats == ("prime-hosted",)
    assert found.groups == report.groups


@pytest.mark.parametrize(
    ("log", "fields", "flat"),
    [
        ("01-tau-bench/gpt-4o-airline.trials.json", {"tools": "01-tau-bench/airline_tools.json"}, 0.486),
        (
            "04-reasoning-gym-eval/rollouts_google_gemma-3-27b-it.jsonl",
            {"tasks": "04-reasoning-gym-eval/tasks.jsonl"},
            0.873,
        ),
    ],
)
def test_real_logs_get_a_true_verdict(shared_inputs, log, fields, flat):
    options = ImportOptions(**{name: shared_inputs / file for name, file in fields.items()})
    found, report = assess([shared_inputs / log], options, seeds=1)
    assert found.flat.mean == pytest.approx(flat, abs=0.01)
    assert report is not None
    assert found.groups == report.groups
