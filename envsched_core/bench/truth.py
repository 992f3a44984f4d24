"""What was true: success rates of a run of the testbed, by training its policy again on the recorded picks.

A run that `envsched train` wrote names its world and seeds; rollouts are keyed by them, so the same picks make the
same policy again, and what it would do with any task can be rolled out without anybody being charged. Where the
rebuilt rewards differ from those on record (another version or machine), there is no truth to be had, and that is told.
Needs the extra `train`; `predict.py` loads this module only for such runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envsched_core.records import GroupResult
from envsched_core.store import RunReader
from envsched_core.testbed import Learner, make_learner

from .training import recorded_plan

__all__ = ["Truth", "true_rates"]

PROBES = 32
"""Rollouts of each probed task, in two halves."""


class Truth(NamedTuple):
    """Estimated success (mean reward) of the tasks that were asked for [C, 2], in two independent halves, by step."""

    halves: Mapping[int, NDArray[np.float64]]
    problem: str
    """Why there is none; empty when there is."""


def true_rates(run: Path, probes: Mapping[int, tuple[str, ...]]) -> Truth:
    """Success rates of tasks ``ENV::TASK`` before the steps of `probes`, under the policy of that moment."""
    plan = recorded_plan(run)
    seeds = {"world_seed": plan.world_seed, "run_seed": plan.seed}
    learner = make_learner(plan.world, group_size=plan.group_size, **seeds)
    if not isinstance(learner, Learner):
        return Truth({}, f"world {plan.world} does not tell its true success rates")
    picks, observed = _recorded(run)
    halves = {}
    for step in sorted(picks):
        if step in probes:
            tasks = np.array([learner.world.places[key] for key in probes[step]], dtype=np.int64)
            right, _ = learner.probe(tasks, PROBES, step=step)
            halves[step] = learner.rewards_of(right, tasks).reshape(len(tasks), 2, -1).mean(axis=2)
        if step not in observed:  # its rollouts failed, so nothing was learned
            continue
        for group in learner.rollouts(picks[step], step):
            if observed[step].get(group.group_id, group.rewards) != group.rewards:
                return Truth({}, f"its policy cannot be made again here: step {step} gives other rewards")
        learner.update()
    return Truth(halves, "")


def _recorded(run: Path) -> tuple[dict[int, list[str]], dict[int, dict[str, tuple[float, ...]]]]:
    """Keys that were picked, and rewards by group id that were observed, by step."""
    picks: dict[int, list[str]] = {}
    observed: dict[int, dict[str, tuple[float, ...]]] = {}
    for event, *_ in RunReader(run).events():
        if event.kind == "asked":
            picks.setdefault(event.data.step, []).extend(pick.key for pick in event.data.picks)
        elif event.kind == "observed":
            group: GroupResult = event.data
            observed.setdefault(group.step or 0, {})[group.group_id] = group.rewards
    return picks, observed
