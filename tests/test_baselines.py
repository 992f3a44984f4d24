"""The peers do what their names say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scheduler_checks import drive, invented_tasks

from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.errors import ConfigError
from envsched_core.records import GroupResult, TaskSpec


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ConfigError, match="empirical-bayes"):
        make_scheduler("magic")


def test_uniform_draws_every_task_alike() -> None:
    scheduler = make_scheduler("uniform", config_from({"batch_size": 4}))
    scheduler.register([TaskSpec("e", f"t{i}") for i in range(8)])
    counts: Counter[str] = Counter()
    for step in range(1000):
        for pick in scheduler.ask(4, step=step).picks:
            counts[pick.key] += 1
            scheduler.release([pick.pick_id], "test")
    # 500 expected each, sd 16: five sds leave no room for a wrong draw and none for a flaky test.
    assert all(abs(counts[f"e::t{i}"] - 500) < 80 for i in range(8))


def test_round_robin_takes_turns() -> None:
    scheduler = make_scheduler("round-robin", config_from({"batch_size": 6}))
    scheduler.register(invented_tasks(8))
    decisions = drive(scheduler, 4, n=6)
    for decision in decisions:
        assert set(Counter(p.env for p in decision.picks).values()) == {2}
    assert len({p.key for d in decisions for p in d.picks}) == 24


def test_empirical_bayes_takes_the_best_environment_first() -> None:
    scheduler = make_scheduler("empirical-bayes", config_from({"batch_size": 8, "max_share": 0.5}))
    scheduler.register([TaskSpec(f"e{e}", f"t{i}") for e in range(4) for i in range(20)])
    rng = np.random.default_rng(0)
    for e, p in enumerate((0.02, 0.5, 0.98, 0.99)):
        for i in range(10):
            rewards = tuple((rng.random(8) < p).astype(float))
            scheduler.observe([GroupResult(f"{e}.{i}", f"e{e}", f"t{i}", rewards, step=0)])
    decision = scheduler.ask(8, step=1)
    assert Counter(p.env for p in decision.picks)["e1"] == 4
    assert {name for c in decision.candidates for name in c.terms} <= {
        "exploitation_variance",
        "exploitation_usable",
        "uncertainty",
        "coverage_task",
        "tie_break",
    }
