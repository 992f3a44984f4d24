"""What replays drew -> scores, rows and a chart; pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.config import Config
from envsched_core.evaluate import Resampled, Spent, gini, mean, over_runs, resampled_rate, unit_weights
from envsched_core.records import Cost
from envsched_core.replay import RecordedPool, is_mixed
from envsched_core.replay.pool import mapped_variance

from .reveal import Drawn
from .rows import cell

__all__ = ["BAYES", "ENVSCHED", "UNIFORM", "PoolScore", "RunDraws", "score", "step_rows"]

ENVSCHED, UNIFORM, BAYES = "envsched", "uniform", "empirical-bayes"
EARLY = 3
"""First steps of a cold start."""
COSTS = {"tokens": 1e6, "seconds": 3600.0, "tool_calls": 1000.0}
"""What a group may have cost, and how much of it informative groups are counted per."""

Floats = NDArray[np.float64]
Two = tuple[float, float]
Three = tuple[float, float, float]


class PoolScore(msgspec.Struct, frozen=True):
    """How one scheduler did: means over seeds, then over runs. `ci` is low, high; a difference is mean, low, high."""

    informative_share: float
    """Share of all groups it generated whose rewards differ."""
    ci: Two
    mean_variance: float
    """Mean population variance of its groups, rewards mapped to [0, 1]."""
    mean_variance_ci: Two
    minus_uniform: Three
    """Paired difference of the informative share to uniform."""
    minus_empirical_bayes: Three
    envsched_minus: Three | None
    """EnvSched's informative share minus its own, paired; None when EnvSched was not run."""
    variance_minus_uniform: Three
    variance_minus_empirical_bayes: Three
    cold_start_share: float
    """Informative share of the groups of steps 1 to 3 (of as many groups as three batches have)."""
    cold_start_ratio: float | None
    """That over uniform's; None when uniform found none."""
    cold_start_minus_uniform: Three
    environments_covered: float
    """Environments it drew from."""
    environments_gini: float
    """Gini coefficient of its groups over the run's environments: 0 = evenly."""
    tasks_covered: float
    """Different tasks it drew."""
    groups: float
    rollouts: float
    tokens: float | None
    """None where a group of some run does not say; likewise the next."""
    seconds: float | None
    """Summed wall time of rollouts."""
    tool_calls: float | None
    informative_per_1k_rollouts: float
    informative_per_mtoken: float | None
    informative_per_hour: float | None
    """Per hour of summed rollout time."""
    informative_per_1k_tool_calls: float | None


class RunDraws(NamedTuple):
    """One run and what every scheduler drew from it."""

    pool: RecordedPool
    config: Config
    steps: int
    draws: Mapping[str, Sequence[Drawn]]
    """Scheduler -> seed -> what it drew."""


class _Run:
    """The groups of a run as arrays [n], and scores of its replays drawn anew with the same weights for all."""

    def __init__(self, run: RunDraws) -> None:
        self.draws, self.batch = run.draws, run.config.batch_size
        groups, config = run.pool.groups, run.config
        tasks = {task.key: i for i, task in enumerate(run.pool.tasks)}
        self.environments = {env: i for i, env in enumerate(dict.fromkeys(group.env for group in groups))}
        self.task = np.array([tasks[group.key] for group in groups])
        self.env = np.array([self.environments[group.env] for group in groups])
        self.mixed = np.array([float(is_mixed(group, config)) for group in groups])
        self.variance = np.array([mapped_variance(group, config) or 0.0 for group in groups])
        self.rollouts = np.array([float(len(group.rewards) + group.missing) for group in groups])
        costs = [group.cost or Cost() for group in groups]
        self.costs: dict[str, Floats] = {}
        for name in COSTS:
            known = [getattr(cost, name) for cost in costs]
            if all(amount is not None for amount in known) and sum(known) > 0:
                self.costs[name] = np.array(known, dtype=float)
        self._found: dict[tuple[str, str], Resampled] = {}

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """One bootstrap of the run's tasks, for all schedulers."""
        return unit_weights(int(self.task.max()) + 1, seed=0)

    def of(self, name: str, number: Callable[[Drawn], float]) -> float:
        """One number of a scheduler's replays, mean over seeds."""
        return mean([number(drawn) for drawn in self.draws[name]])

    def rate(self, name: str, measure: str) -> Resampled:
        """A rate of a scheduler's replays: `share`, `variance` or `early` (the share of the first steps)."""
        if (name, measure) not in self._found:
            counted = self.variance if measure == "variance" else self.mixed
            first = EARLY * self.batch if measure == "early" else None
            replays = [drawn.groups[:first] for drawn in self.draws[name]]
            spent = [Spent(self.task[at].tolist(), counted[at].tolist(), [1.0] * len(at)) for at in replays]
            self._found[name, measure] = resampled_rate(spent, self.weights, seed=0)
        return self._found[name, measure]

    def environments_drawn(self, drawn: Drawn) -> float:
        """How many environments a replay drew from."""
        return len(np.unique(self.env[drawn.groups]))

    def tasks_drawn(self, drawn: Drawn) -> float:
        """How many different tasks a replay drew."""
        return len(np.unique(self.task[drawn.groups]))

    def unevenness(self, drawn: Drawn) -> float:
        """Gini coefficient of a replay's groups over all environments of the run."""
        return gini(np.bincount(self.env[drawn.groups], minlength=len(self.environments)).tolist())

    def total(self, name: str, amounts: Floats) -> float:
        """What a scheduler's groups came to, mean over seeds."""
        return self.of(name, lambda drawn: float(amounts[drawn.groups].sum()))

    def per(self, name: str, amounts: Floats, unit: float) -> float:
        """Informative groups per `unit` of what they cost, mean over seeds."""
        return self.of(name, lambda drawn: unit * float(self.mixed[drawn.groups].sum() / amounts[drawn.groups].sum()))


def score(runs: Sequence[RunDraws]) -> dict[str, PoolScore]:
    """Every scheduler, mean over `runs`; all hold the same schedulers, uniform and empirical Bayes among them."""
    prepared = [_Run(run) for run in runs]
    return {name: _score(name, prepared) for name in runs[0].draws}


def _score(name: str, runs: Sequence[_Run]) -> PoolScore:
    share, variance = (over_runs([run.rate(name, m) for run in runs], seed=0) for m in ("share", "variance"))
    early, usual = (mean([run.rate(who, "early").value for run in runs]) for who in (name, UNIFORM))
    has_envsched = all(ENVSCHED in run.draws for run in runs)
    spent = {cost: _spent(name, runs, cost) for cost in COSTS}
    return PoolScore(
        informative_share=share.mean,
        ci=share[1:],
        mean_variance=variance.mean,
        mean_variance_ci=variance[1:],
        minus_uniform=_difference(name, UNIFORM, runs, "share"),
        minus_empirical_bayes=_difference(name, BAYES, runs, "share"),
        envsched_minus=_difference(ENVSCHED, name, runs, "share") if has_envsched else None,
        variance_minus_uniform=_difference(name, UNIFORM, runs, "variance"),
        variance_minus_empirical_bayes=_difference(name, BAYES, runs, "variance"),
        cold_start_share=early,
        cold_start_ratio=early / usual if usual > 0 else None,
        cold_start_minus_uniform=_difference(name, UNIFORM, runs, "early"),
        environments_covered=mean([run.of(name, run.environments_drawn) for run in runs]),
        environments_gini=mean([run.of(name, run.unevenness) for run in runs]),
        tasks_covered=mean([run.of(name, run.tasks_drawn) for run in runs]),
        groups=mean([run.of(name, lambda drawn: len(drawn.groups)) for run in runs]),
        rollouts=mean([run.total(name, run.rollouts) for run in runs]),
        tokens=spent["tokens"][0],
        seconds=spent["seconds"][0],
        tool_calls=spent["tool_calls"][0],
        informative_per_1k_rollouts=mean([run.per(name, run.rollouts, 1000.0) for run in runs]),
        informative_per_mtoken=spent["tokens"][1],
        informative_per_hour=spent["seconds"][1],
        informative_per_1k_tool_calls=spent["tool_calls"][1],
    )


def _spent(name: str, runs: Sequence[_Run], cost: str) -> tuple[float, float] | tuple[None, None]:
    """What a scheduler's groups cost, and the informative ones per unit of it; None unless every run knows."""
    if not all(cost in run.costs for run in runs):
        return None, None
    whole = mean([run.total(name, run.costs[cost]) for run in runs])
    return whole, mean([run.per(name, run.costs[cost], COSTS[cost]) for run in runs])


def _difference(ours: str, theirs: str, runs: Sequence[_Run], measure: str) -> Three:
    pairs = [[run.rate(name, measure) for run in runs] for name in (ours, theirs)]
    found = over_runs(*pairs, seed=0)
    return (found.mean, found.low, found.high)


def step_rows(runs: Mapping[str, RunDraws]) -> Iterator[list[str]]:
    """A row for every step of every replay, with a head."""
    yield ["run", "scheduler", "seed", "step", "groups", "informative", "mean_variance", "rollouts"]
    for name, run in runs.items():
        arrays = _Run(run)
        for scheduler, replays in run.draws.items():
            for seed, drawn in enumerate(replays):
                for step in np.unique(drawn.steps):
                    at = drawn.groups[drawn.steps == step]
                    counts = (len(at), int(arrays.mixed[at].sum()))
                    rest = (cell(float(arrays.variance[at].mean())), f"{arrays.rollouts[at].sum():.0f}")
                    yield [name, scheduler, *map(str, (seed, step + 1, *counts)), *rest]
