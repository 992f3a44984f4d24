import csv

import numpy as np
import pytest

from envsched_core.bench.simulate import ENVIRONMENTS, simulate, write_truth
from envsched_core.moments import population_variance
from envsched_core.similarity import role_of
from envsched_core.store import RunReader


def test_rewards_have_the_variance_that_is_said():
    pool = simulate(24, seed=3)
    groups = {g.key: g.rewards for g, _ in pool.rollouts(0, size=400)}
    for task in pool.tasks:
        rewards = groups[task.spec.key]
        span = ENVIRONMENTS[task.spec.env].high - ENVIRONMENTS[task.spec.env].low
        assert np.mean(rewards) == pytest.approx(task.mean, abs=0.12 * span)
        assert population_variance(rewards) == pytest.approx(task.variance, abs=0.05 * span**2)


def test_rollouts_are_keyed_by_the_seed():
    first, again, other = simulate(24, seed=1), simulate(24, seed=1), simulate(24, seed=2)
    assert list(first.rollouts(1, size=4)) == list(again.rollouts(1, size=4))
    assert list(first.rollouts(1, size=4)) != list(other.rollouts(1, size=4))


def test_environments_share_patterns_and_no_tool_name():
    tools = {
        env: {t.name for s in simulate(96).tasks if s.spec.env == env for t in s.spec.tools} for env in ENVIRONMENTS
    }
    names = [name for group in tools.values() for name in group]
    assert len(names) == len(set(names))
    assert "other" not in {role_of(name) for name in names}


def test_messages_are_kept_for_the_first_group_of_a_task(imported_run):
    groups = [e.data for e, *_ in RunReader(imported_run).events() if e.kind == "observed"]
    assert [bool(g.offsets) for g in groups] == [g.group_id.endswith("/0") for g in groups]


def test_truth_is_written_for_every_task(tmp_path):
    pool = simulate(12)
    write_truth(pool, tmp_path / "truth.csv")
    with (tmp_path / "truth.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["env"], r["task"]) for r in rows] == [(t.spec.env, t.spec.task) for t in pool.tasks]
    assert float(rows[3]["variance"]) == pytest.approx(pool.tasks[3].variance)
