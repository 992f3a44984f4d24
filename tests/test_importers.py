"""The import as a whole: run folder, report, and the real public logs where they are at hand."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.errors import LogFormatError, StoreError
from envsched_core.importers import ImportOptions, ImportReport, import_log, import_run, list_formats, report_lines
from envsched_core.importers.statistics import group_stats
from envsched_core.moments import is_flat, population_variance
from envsched_core.store import RunReader, check_chain

FORMATS = Path(__file__).parent / "formats"


def observed(reader):
    return [found.event.data for found in reader.events() if found.event.kind == "observed"]


def log_of(folder, groups, **fields):
    """A log with these groups of rewards, each a task of its own."""
    path = folder / "log.jsonl"
    rows = [{"env": "e", "task_id": i, "rewards": list(rewards)} | fields for i, rewards in enumerate(groups)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_import_is_a_run_folder(tmp_path):
    report = import_run([FORMATS / "tau_bench.json"], tmp_path / "run", ImportOptions(tools=FORMATS / "tools.json"))
    reader = RunReader(tmp_path / "run")
    assert reader.manifest.kind == "import"
    assert reader.manifest.reward_ranges == {"retail": (0.0, 1.0)}
    assert msgspec.convert(reader.manifest.report, ImportReport) == report
    assert [task.draws for task in reader.tasks()] == [1, 1]
    assert [tool.name for tool in reader.tasks()[0].tools] == ["cancel_pending_order", "get_order_details"]
    assert check_chain(tmp_path / "run") == []


def test_rollouts_are_found_from_their_group(tmp_path):
    import_run([FORMATS / "tau_bench.json"], tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    first, second = observed(reader)
    rollouts = reader.rollouts(first)
    assert [rollout.index for rollout in rollouts] == [0, 1]
    assert [rollout.reward for rollout in rollouts] == [1.0, 0.0]
    assert rollouts[0].messages[1].content == "Please cancel."
    assert rollouts[0].reward_parts == {"r_actions": 1.0}
    failed = reader.rollouts(second)[-1]
    assert (failed.reward, failed.status, failed.place.line) == (None, "error: rate limit", 5)


def test_rollouts_may_be_left_out(tmp_path):
    import_run([FORMATS / "table.csv"], tmp_path / "run", ImportOptions(keep_rollouts=False))
    assert all(group.offsets == () for group in observed(RunReader(tmp_path / "run")))


def test_importing_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        import_run([FORMATS / "table.csv"], tmp_path / name)
    for file in ("tasks.jsonl", "events/seg-000000.jsonl", "rollouts/rollouts.jsonl"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_failed_import_leaves_nothing_and_a_used_folder_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"env": 1}\n')
    with pytest.raises(LogFormatError):
        import_run([tmp_path / "log.jsonl"], tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").write_text("mine")
    with pytest.raises(StoreError):
        import_run([FORMATS / "table.csv"], tmp_path / "used")
    assert (tmp_path / "used" / "notes").read_text() == "mine"


def test_progress_ends_at_the_whole(tmp_path):
    seen = []
    import_log([log_of(tmp_path, [[0, 1]] * 2500)], progress=lambda done, total: seen.append((done, total)))
    size = (tmp_path / "log.jsonl").stat().st_size
    assert len(seen) == 3
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_report_counts_shares_and_ranges(tmp_path):
    report = import_log([log_of(tmp_path, [[0, 0], [0, 1], [1, 1, 1], [5], [None, 1]])]).report
    assert (report.rows, report.rollouts, report.missing, report.groups) == (5, 10, 1, 5)
    assert report.group_sizes == ((1, 1), (2, 3), (3, 1))
    assert (report.usual_size, report.partial_groups, report.comparable_groups) == (2, 2, 3)
    assert report.flat_groups == pytest.approx(2 / 3)
    assert report.flat_rollouts == pytest.approx(5 / 7)
    assert report.mean_variance == pytest.approx(0.25 / 3)
    assert report.manifest_ranges() == ({"e": (0.0, 5.0)}, True)
    assert report.rewards[0].kind == "graded"


def test_report_is_plain_text_and_json(tmp_path):
    report = import_log([FORMATS / "table.csv"]).report
    assert msgspec.json.decode(msgspec.json.encode(report), type=ImportReport) == report
    text = "\n".join(report_lines(report))
    assert "table.csv:10: another number of fields" in text
    assert "zero variance" in text


@pytest.mark.parametrize(
    ("groups", "kept_only"),
    [
        ([[0, 1, 1, 0]] * 20, True),
        ([[0, 1, 1, 0]] * 5, False),  # too few to tell
        ([[0, 1, 1, 0]] * 20 + [[1, 1, 1, 1]], False),
        ([[0.1 * i, 0.2 * i, 0.31 * i] for i in range(1, 40)], False),  # rewards that never tie
        ([[0, 1] * 32] * 20, False),  # large groups are seldom flat
    ],
)
def test_a_log_of_mixed_groups_only_is_told(tmp_path, groups, kept_only):
    report = import_log([log_of(tmp_path, groups)]).report
    assert report.kept_only is kept_only
    assert bool(report.warning) is kept_only


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0, 1.0 + 1e-12, float("nan")]), min_size=1, max_size=6), min_size=1)
)
def test_statistics_agree_with_moments(groups):
    ends = np.cumsum([len(group) for group in groups])
    stats = group_stats(np.array([reward for group in groups for reward in group]), ends)
    for index, group in enumerate(groups):
        scored = [reward for reward in group if reward == reward]
        assert stats.scored[index] == len(scored)
        assert stats.flat[index] == (len(scored) > 1 and is_flat(scored))
        assert stats.variance[index] == pytest.approx(population_variance(scored), abs=1e-15)


def test_every_format_is_described():
    assert all(list_formats().values())


def test_tau_bench_public_log(shared_inputs, tmp_path):
    folder = shared_inputs / "01-tau-bench"
    options = ImportOptions(tools=folder / "airline_tools.json", tasks=folder / "airline_tasks.jsonl")
    report = import_run([folder / "gpt-4o-airline.trials.json"], tmp_path / "run", options)
    assert (report.rollouts, report.tasks, report.group_sizes) == (140, 35, ((4, 35),))
    assert report.mean_reward == pytest.approx(0.464, abs=5e-4)
    assert report.mean_variance == pytest.approx(0.109, abs=5e-4)
    assert report.flat_groups == pytest.approx(0.486, abs=5e-4)
    assert not report.kept_only
    tasks = RunReader(tmp_path / "run").tasks()
    assert (len(tasks), report.listed_tasks, len(tasks[0].tools), tasks[0].env) == (35, 0, 14, "airline")
    groups = observed(RunReader(tmp_path / "run"))
    calls = [path for group in groups for path in group.calls]
    assert sum(map(len, calls)) / 140 == pytest.approx(5.51, abs=0.005)
    assert sum(len(set(path)) for path in calls) / 140 == pytest.approx(3.38, abs=0.005)


@pytest.mark.parametrize(
    ("model", "mean", "variance", "flat", "other_texts"),
    [
        ("google_gemma-3-27b-it", 0.285, 0.019, 0.873, 72),
        ("meta-llama_llama-3.3-70b-instruct", 0.319, 0.0385, 0.743, 91),
        ("qwen_qwq-32b", 0.597, 0.0388, 0.786, 113),
    ],
)
def test_reasoning_gym_public_logs(shared_inputs, model, mean, variance, flat, other_texts):
    folder = shared_inputs / "04-reasoning-gym-eval"
    log = import_log([folder / f"rollouts_{model}.jsonl"], ImportOptions(tasks=folder / "tasks.jsonl"))
    report = log.report
    assert (report.environments, report.tasks, report.groups, report.rollouts) == (101, 3030, 3030, 9090)
    assert report.mean_reward == pytest.approx(mean, abs=6e-4)
    assert report.mean_variance == pytest.approx(variance, abs=3e-4)
    assert report.flat_groups == pytest.approx(flat, abs=6e-4)
    assert sum(not task.text for task in log.tasks) == other_texts
    assert f"{other_texts} rows say" in report.notes[0]


def test_verifiers_public_runs(shared_inputs):
    folder = shared_inputs / "06-verifiers-evals"
    report = import_log([folder]).report
    assert (len(report.files), report.rows, report.rollouts, report.environments) == (21, 293, 293, 8)
    assert report.group_sizes == ((1, 104), (3, 63))
    assert report.flat_groups == pytest.approx(0.508, abs=5e-4)
    assert max(item.high for item in report.rewards) == pytest.approx(8.38, abs=5e-3)
    assert (report.prompt_conflicts, report.answer_conflicts) == (
        35,
        10,
    )  # old writers numbered the rows in blocks, the rows go round
    single = [import_log([run]).report.rows for run in sorted(folder.iterdir()) if run.is_dir()]
    assert (len(single), sum(single)) == (21, 293)
