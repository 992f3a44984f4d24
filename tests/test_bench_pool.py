"""bench pool: known pools with known answers, paired runs, what is told and what is written."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import numpy as np
import pytest

from envsched_core.baselines import make_scheduler
from envsched_core.bench.dots import dots_svg
from envsched_core.bench.parallel import checked_folder, run_all
from envsched_core.bench.pool import PoolPlan, PoolReport, run_pool, write_pool
from envsched_core.bench.pool_scores import RunDraws, score
from envsched_core.bench.recorded import comparable, named, unusable
from envsched_core.bench.reveal import Drawn, draw, scheduler_for
from envsched_core.bench.rows import rows_of
from envsched_core.errors import ConfigError, StoreError
from envsched_core.evaluate import Interval
from envsched_core.records import Cost, GroupResult, TaskSpec
from envsched_core.replay import RecordedPool, config_for, is_mixed, load_pool, replay_pool
from envsched_core.store import RunWriter, new_manifest

MIXED, FLAT = (0.0, 1.0), (0.0, 0.0)


def invented(groups, **manifest):
    """A recorded pool of given groups."""
    tasks = {g.key: TaskSpec(g.env, g.task) for g in groups}
    return RecordedPool(Path("log"), new_manifest("log", "import", **manifest), tuple(tasks.values()), tuple(groups))


def group(i, rewards, task=None, env="e", **fields):
    return GroupResult(f"g{i}", env, task or f"t{i}", rewards, **fields)


def recorded(folder, groups):
    """The same as a run folder."""
    with RunWriter.create(folder, new_manifest(folder.name, "import")) as writer:
        writer.add_tasks(list({g.key: TaskSpec(g.env, g.task) for g in groups}.values()))
        writer.observed(groups, None)
    return folder


def lively(n=200, environments=8):
    """Every fourth group is mixed, the others are flat; with 8 environments two of them hold all that are mixed."""
    return [group(i, MIXED if i % 4 == 0 else FLAT, env=f"e{i % environments}") for i in range(n)]


def plan_of(*runs, **fields):
    given = {"schedulers": ("envsched", "mopps"), "steps": 4, "batch_size": 8, "seeds": 2, **fields}
    return PoolPlan(runs=tuple(runs), **given)


def drawn(*places):
    return Drawn(np.array(places), np.arange(len(places)) // 2)


def test_scores_of_a_replay_worked_out_by_hand():
    costs = [100.0, 300.0, 100.0, 500.0]
    rewards = [MIXED, FLAT, (0.0, 0.0, 1.0, 1.0), FLAT]
    groups = [
        group(i, r, env=f"e{i % 2}", cost=Cost(tokens=c)) for i, (r, c) in enumerate(zip(rewards, costs, strict=True))
    ]
    pool = invented(groups)
    config = config_for(pool, {"batch_size": 2})
    replays = {
        "envsched": [drawn(0, 2), drawn(0, 2)],
        "uniform": [drawn(0, 1), drawn(3, 1)],
        "empirical-bayes": [drawn(0, 1), drawn(0, 2)],
    }
    found = score([RunDraws(pool, config, 1, replays)])
    ours, uniform = found["envsched"], found["uniform"]
    assert (ours.informative_share, uniform.informative_share) == (1.0, 0.25)
    assert ours.minus_uniform[0] == 0.75
    assert ours.minus_empirical_bayes[0] == 0.25
    assert ours.envsched_minus == (0.0, 0.0, 0.0)
    assert uniform.envsched_minus is not None
    assert uniform.envsched_minus[0] == 0.75
    assert ours.mean_variance == 0.25
    assert ours.cold_start_ratio == 4.0
    assert (ours.environments_covered, ours.environments_gini) == (1.0, 0.5)
    assert (uniform.environments_covered, uniform.tasks_covered) == (1.5, 2.0)
    assert (ours.groups, ours.rollouts, ours.tokens, ours.seconds) == (2.0, 6.0, 200.0, None)
    assert ours.informative_per_1k_rollouts == pytest.approx(2000 / 6)
    assert ours.informative_per_mtoken == pytest.approx(1e4)
    assert uniform.informative_per_mtoken == pytest.approx(0.5 * 1e6 / 400)
    low, high = uniform.ci
    assert 0 <= low <= 0.25 <= high <= 1


def test_what_is_drawn_is_what_replay_pool_draws(imported_run):
    pool = load_pool(imported_run)
    config = config_for(pool, {"batch_size": 8})
    for name in ("envsched", "mopps", "round-robin"):
        found = draw(pool, make_scheduler(name, config), steps=5)
        told = replay_pool(pool, scheduler=name, config=config, steps=5)
        assert np.mean([is_mixed(pool.groups[i], config) for i in found.groups]) == told.informative_share
        assert len(found.groups) == told.picks == len(set(found.groups.tolist()))
        assert found.steps.tolist() == sorted(found.steps)


def test_references_know_the_log():
    pool = invented(lively(environments=7))
    config = config_for(pool, {"batch_size": 8})
    for name in ("oracle", "oracle-top"):
        found = draw(pool, scheduler_for(name, config, pool), steps=5)
        assert all(is_mixed(pool.groups[i], config) for i in found.groups)
    quota = np.bincount([int(pool.groups[i].env[1]) for i in found.groups[:8]], minlength=7)
    assert quota.max() <= np.ceil(config.max_share * 8)  # the second one keeps to it


def test_a_reference_digs_for_what_lies_behind_a_flat_group():
    groups = [group(f"{i}-{k}", MIXED if i >= 20 and k else FLAT, task=f"t{i}") for i in range(40) for k in range(2)]
    pool = invented(groups)
    config = config_for(pool, {"batch_size": 5})
    found = draw(pool, scheduler_for("oracle-top", config, pool), steps=2)
    assert all(int(pool.groups[i].task[1:]) >= 20 for i in found.groups)
    assert sum(is_mixed(pool.groups[i], config) for i in found.groups) == 5


def test_a_scheduler_that_fills_its_batch_pays_for_every_group():
    pool = invented(lively(400))
    config = config_for(pool, {"batch_size": 8})
    found = draw(pool, make_scheduler("dapo", config), steps=10)
    assert len(found.groups) == 80
    assert len(set(found.groups.tolist())) == 80
    mixed = np.array([is_mixed(pool.groups[i], config) for i in found.groups])
    assert 0.1 < mixed.mean() < 0.4  # the choice is uniform's
    assert mixed[found.steps == 0].sum() >= 8 or (found.steps == 0).sum() == 80
    assert found.steps.max() < 9


def test_pools_without_an_answer_are_told(tmp_path):
    assert "15 groups" in unusable(invented([group(i, MIXED) for i in range(15)]))
    assert "mixed" in unusable(invented(lively(), report={"kept_only": True}))
    assert not unusable(invented(lively()))
    assert len(comparable(invented([*lively(20), group("x", (1.0,))])).groups) == 20
    small = recorded(tmp_path / "small", [group(i, MIXED) for i in range(5)])
    whole = recorded(tmp_path / "whole", lively(80))
    report, _ = run_pool(plan_of(small, whole), workers=1)
    assert report.runs == 1
    assert list(report.per_run) == ["whole"]
    assert "5 groups" in report.left_out["small"]
    assert any(note.startswith("small is left out") for note in report.notes)
    with pytest.raises(ConfigError, match="no run can be compared"):
        run_pool(plan_of(small), workers=1)


def test_small_pools_take_an_eighth_and_at_most_half(tmp_path):
    report, found = run_pool(plan_of(recorded(tmp_path / "log", lively(40)), steps=20, batch_size=64), workers=1)
    run = report.per_run["log"]
    assert (run.batch_size, run.steps, run.groups) == (5, 4, 40)
    assert {len(d.groups) for draws in found["log"].draws.values() for d in draws} == {20}
    assert any("an eighth of its 40 tasks" in note for note in run.notes)
    assert any("half of its 40 groups" in note for note in run.notes)
    assert any("one group" in note for note in run.notes)


def test_runs_are_paired_and_processes_change_nothing(tmp_path):
    one, other = recorded(tmp_path / "one", lively(160, 5)), recorded(tmp_path / "other", lively(80))
    plan = plan_of(one, other, schedulers=("envsched", "envsched-no-within"))
    seen: list[tuple[int, int]] = []
    report, found = run_pool(plan, workers=1, progress=lambda done, total: seen.append((done, total)))
    assert list(report.schedulers) == ["envsched", "envsched-no-within", "uniform", "empirical-bayes"]
    assert seen[-1] == (2 * 6 * 2, 2 * 6 * 2)
    assert report.runs == 2
    assert report.schedulers["uniform"].minus_uniform == (0.0, 0.0, 0.0)
    assert report.oracle_top.informative_share >= report.schedulers["envsched"].informative_share
    means = [run.schedulers["envsched"].informative_share for run in report.per_run.values()]
    assert report.schedulers["envsched"].informative_share == pytest.approx(np.mean(means))
    again, _ = run_pool(plan, workers=2)
    assert msgspec.json.encode(again) == msgspec.json.encode(report)
    folder = checked_folder(tmp_path / "out")
    write_pool(report, found, folder)
    assert sorted(file.name for file in folder.iterdir()) == [
        "pool.json",
        "runs.csv",
        "schedulers.csv",
        "shares.svg",
        "steps.csv",
    ]
    assert msgspec.json.decode((folder / "pool.json").read_bytes(), type=PoolReport).runs == 2
    for name, rows in (("schedulers.csv", 1 + 6), ("runs.csv", 1 + 2 * 6), ("steps.csv", 1 + 2 * 6 * 2 * 4)):
        table = list(csv.reader((folder / name).read_text(encoding="utf-8").splitlines()))
        assert len(table) == rows
        assert len({len(row) for row in table}) == 1
    ET.fromstring((folder / "shares.svg").read_text(encoding="utf-8"))


def test_a_placebo_that_does_as_well_is_told(tmp_path):
    """Without text or tools there is nothing to relate tasks by, so taking a relation away changes nothing."""
    run = recorded(tmp_path / "log", lively(80))
    report, _ = run_pool(plan_of(run, schedulers=("envsched", "envsched-no-cross")), workers=1)
    assert report.schedulers["envsched-no-cross"].envsched_minus == (0.0, 0.0, 0.0)
    assert any(note.startswith("envsched-no-cross does as well as envsched") for note in report.notes)
    assert report.notes[0].startswith("exact on the log")


def test_wrong_plans_are_told_before_anything_runs(imported_run, tmp_path):
    for changes in ({"schedulers": ("magic",)}, {"settings": {"weight_tusk": 1}}, {"preset": "x"}, {"seeds": 0}):
        with pytest.raises(ConfigError):
            run_pool(plan_of(imported_run, **changes), workers=1)
    with pytest.raises(StoreError):
        run_pool(plan_of(tmp_path), workers=1)


def test_runs_of_one_name_keep_apart():
    assert list(named([Path("/a/x"), Path("/b/x"), Path("/b/y")])) == ["/a/x", "/b/x", "y"]


def test_work_comes_back_in_order():
    assert run_all(abs, [-3, 2, -1], workers=2) == run_all(abs, [-3, 2, -1], workers=1) == [3, 2, 1]
    assert run_all(abs, [], workers=2) == []


def test_the_chart_of_dots_is_one_harmless_file():
    rows = {"<a>": Interval(0.2, 0.1, 0.3), "uniform": Interval(0.1, 0.1, 0.1), "none": Interval(*[float("nan")] * 3)}
    svg = dots_svg(rows, title="t & t", x_label="x", marked="uniform")
    ET.fromstring(svg)
    assert "&lt;a&gt;" in svg
    assert svg.count("<circle") == 2
    assert "script" not in svg
    ET.fromstring(dots_svg({}, title="t", x_label="x", marked=""))
    assert list(rows_of(["a"], [])) == []


def test_the_command_prints_what_it_promises(imported_run, envsched, tmp_path):
    command = ["bench", "pool", imported_run, "--schedulers", "envsched", "--steps", 2, "--seeds", 1]
    command += ["--batch-size", 4, "--workers", 1]
    status, out, _ = envsched(*command, "--json", "--out", tmp_path / "out")
    found = json.loads(out)
    assert status == 0
    assert set(found["schedulers"]) == {"envsched", "uniform", "empirical-bayes"}
    promised = {"informative_share", "ci", "mean_variance", "environments_covered", "environments_gini"}
    assert promised <= set(found["schedulers"]["envsched"])
    assert found["runs"] == 1
    assert found["oracle"]["informative_share"] <= 1
    status, out, _ = envsched(*command)
    assert "oracle-top" in out
    assert "note: exact on the log" in out
    assert envsched(*command, "--out", tmp_path / "out")[0] == 2  # it holds something
    assert envsched("bench", "pool", imported_run, "--schedulers", "magic")[0] == 2
    assert envsched("bench", "pool", tmp_path / "none")[0] == 2
