"""Predictions that were made before seeing -> scores of one walk, and their means over orders and runs.

What is drawn anew for an interval are a run's tasks, with the same weights for every predictor, then runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.evaluate import (
    Resampled,
    Spent,
    auc,
    mean,
    over_runs,
    resampled_mean,
    resampled_ranks,
    resampled_rate,
    spearman,
    unit_weights,
    weighted_auc,
    weighted_spearman,
)

from .prequential import Groups, Predicted, Probed, ceiling_draws

__all__ = ["EnvironmentScore", "PredictScore", "Scored", "TruthScore", "combined", "score_walk", "true_combined"]

BAYES = "empirical-bayes"
SIMULATIONS = 16
"""Simulated logs behind the noise ceiling."""
FEWEST = 8
"""Groups of an environment below which it has no scores of its own."""
FEWEST_IN_PART = 20
"""Groups of a part (unseen, seen, uniform) below which it is left out: a few say nothing and would upset the means."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Three = tuple[float, float, float]
Measures = Mapping[str, Resampled]
Halves = Mapping[int, Floats]
"""Estimated success rates [C, 2] of the probed tasks, in two independent halves, by step."""


class PredictScore(msgspec.Struct, frozen=True):
    """How one predictor did on one part of the groups; means over orders, then runs. NaN where it has no answer.

    Differences are to empirical Bayes on the same groups: mean, low, high.
    """

    groups: float
    spearman: float
    """Rank correlation of the predicted variance with the population variance of the rewards that came."""
    spearman_ci: tuple[float, float]
    spearman_ceiling: float
    """What knowing every task's true success rate would reach (`prequential.ceiling_draws`)."""
    spearman_minus_empirical_bayes: Three
    value_spearman: float
    """The same of what the scheduler ranks by, a pick's value before coverage; empirical Bayes' is its variance."""
    value_spearman_minus_empirical_bayes: Three
    auc: float
    """Of the predicted chance that all rewards are equal, for groups where they were."""
    auc_minus_empirical_bayes: Three
    brier: float
    """Mean squared error of that chance: lower is better."""
    brier_minus_empirical_bayes: Three
    coverage: float
    """Share of groups whose mean fell into the central 90 % interval of the predicted Beta-binomial."""
    coverage_expected: float
    """What the predictions gave those intervals; above 0.9, since successes are whole numbers."""
    log_score: float
    """Log likelihood of the rewards under the predicted Beta, in nats a rollout: higher is better."""
    log_score_minus_empirical_bayes: Three


class TruthScore(msgspec.Struct, frozen=True):
    """Predictions against the true success rate p of the policy of the moment; means over steps, orders and runs."""

    tasks: float
    """Tasks compared at a step."""
    rate: float
    """Rank correlation of the predicted mean with p."""
    rate_ceiling: float
    """The most that p, estimated from a few rollouts, could show: square root of its split-half reliability."""
    rate_minus_empirical_bayes: Three
    variance: float
    """Rank correlation of the predicted variance with p (1 - p)."""
    variance_ceiling: float
    variance_minus_empirical_bayes: Three


class EnvironmentScore(msgspec.Struct, frozen=True):
    """One predictor on one environment of one run."""

    groups: int
    spearman: float
    auc: float
    brier: float
    log_score: float


class Scored(NamedTuple):
    """One walk of one predictor, scored: part of the groups -> measure -> score."""

    parts: Mapping[str, Measures]
    environments: Mapping[str, EnvironmentScore]
    truth: Mapping[str, Measures]


def score_walk(groups: Groups, told: Predicted, uniform: Flags, halves: Halves, tasks: int) -> Scored:
    """Score a walk: all groups, never-seen and seen tasks apart, and those drawn uniformly, where there are enough.

    `uniform` [n]: by place in the pool. `tasks`: tasks of the run.
    """
    weights = unit_weights(tasks, seed=0)
    true, came = ceiling_draws(groups, draws=SIMULATIONS, seed=0)
    drawn = uniform[told.places]
    parts = {"all": np.ones(len(told.places), dtype=bool), "unseen": ~told.seen, "seen": told.seen, "uniform": drawn}
    found = {}
    for name, at in parts.items():
        if name == "all" or at.sum() >= FEWEST_IN_PART:
            places = told.places[at]
            ceiling = mean([spearman(v[places], r[places]) for v, r in zip(true, came, strict=True)])
            found[name] = {**_measures(groups, told, at, weights), "ceiling": _fixed(ceiling)}
    truth = _truth([one for one in told.probed if one.step in halves], halves, weights)
    return Scored(found, _environments(groups, told), truth)


def _fixed(value: float) -> Resampled:
    """A number that nothing was drawn anew for."""
    return Resampled(value, np.full(1, value))


def _measures(groups: Groups, told: Predicted, at: Flags, weights: NDArray[np.float32]) -> dict[str, Resampled]:
    places = told.places[at]
    unit, flat = groups.task[places], groups.flat[places]
    spent = Spent(unit.tolist(), told.log_score[at].tolist(), groups.size[places].tolist())
    variance = groups.variance[places]
    ranked = {"spearman": told.variance, "value_spearman": told.value}
    return {
        "groups": _fixed(float(len(places))),
        **{m: resampled_ranks(weighted_spearman, x[at], variance, unit, weights) for m, x in ranked.items()},
        "auc": resampled_ranks(weighted_auc, told.flat[at], flat, unit, weights),
        "brier": resampled_mean((told.flat[at] - flat) ** 2, unit, weights),
        "coverage": resampled_mean(told.covered[at].astype(float), unit, weights),
        "coverage_expected": resampled_mean(told.mass[at], unit, weights),
        "log_score": resampled_rate([spent], weights, seed=0),
    }


def _environments(groups: Groups, told: Predicted) -> dict[str, EnvironmentScore]:
    found = {}
    for e, name in enumerate(groups.names):
        at = groups.env[told.places] == e
        places = told.places[at]
        if len(places) >= FEWEST:
            found[name] = EnvironmentScore(
                groups=len(places),
                spearman=spearman(told.variance[at], groups.variance[places]),
                auc=auc(told.flat[at], groups.flat[places] > 0),
                brier=float(np.mean((told.flat[at] - groups.flat[places]) ** 2)),
                log_score=float(told.log_score[at].sum() / groups.size[places].sum()),
            )
    return found


def _truth(probed: Sequence[Probed], halves: Halves, weights: NDArray[np.float32]) -> dict[str, Measures]:
    """Rank correlations with p and p (1 - p), mean over the steps that were probed."""
    steps: dict[str, list[dict[str, Resampled]]] = {"all": [], "unseen": [], "seen": []}
    for one in probed:
        parts = {"all": np.ones(len(one.tasks), dtype=bool), "unseen": ~one.seen, "seen": one.seen}
        for name, at in parts.items():
            if at.sum() >= FEWEST:
                steps[name].append(_true_step(one, at, halves[one.step][at], weights))
    return {name: {m: _mean([step[m] for step in found]) for m in found[0]} for name, found in steps.items() if found}


def _true_step(one: Probed, at: Flags, halves: Floats, weights: NDArray[np.float32]) -> dict[str, Resampled]:
    p, unit = halves.mean(axis=1), one.tasks[at]
    return {
        "tasks": _fixed(float(at.sum())),
        "rate": resampled_ranks(weighted_spearman, one.mean[at], p, unit, weights),
        "rate_ceiling": _fixed(_reliability(halves)),
        "variance": resampled_ranks(weighted_spearman, one.variance[at], p * (1.0 - p), unit, weights),
        "variance_ceiling": _fixed(_reliability(halves * (1.0 - halves))),
    }


def _reliability(halves: Floats) -> float:
    """Square root of the split-half reliability of [C, 2] (Spearman 1910, Brown 1910); NaN when they disagree."""
    r = spearman(halves[:, 0], halves[:, 1])
    return float(np.sqrt(2.0 * r / (1.0 + r))) if r > 0 else float("nan")


def _mean(found: Sequence[Resampled]) -> Resampled:
    """Mean over orders or steps that have a score."""
    known = [one for one in found if np.isfinite(one.value)]
    if not known:
        return found[0]
    return Resampled(mean([one.value for one in known]), np.mean([one.drawn for one in known], axis=0))


Walks = Mapping[str, Sequence[Scored]]
"""Predictor -> its walks of one run, an order each."""


def combined(runs: Sequence[Walks]) -> dict[str, dict[str, PredictScore]]:
    """Predictor -> part -> score, mean over orders and runs; empirical Bayes is among the predictors."""
    having = {part for run in runs for walks in run.values() for walk in walks for part in walk.parts}
    parts = [part for part in ("all", "unseen", "seen", "uniform") if part in having]
    return {name: {part: _score(runs, name, part) for part in parts} for name in runs[0]}


def true_combined(runs: Sequence[Walks]) -> dict[str, dict[str, TruthScore]]:
    """The same against the truth, over the runs that have it; empty when none has."""
    having = {part for run in runs for walks in run.values() for walk in walks for part in walk.truth}
    parts = [part for part in ("all", "unseen", "seen") if part in having]
    return {name: {part: _true_score(runs, name, part) for part in parts} for name in runs[0]} if parts else {}


def _score(runs: Sequence[Walks], name: str, part: str) -> PredictScore:
    mine, bayes = (_orders([[walk.parts for walk in run[who]] for run in runs], part) for who in (name, BAYES))
    found = over_runs([run["spearman"] for run in mine], seed=0)
    return PredictScore(
        groups=_value(mine, "groups"),
        spearman=found.mean,
        spearman_ci=(found.low, found.high),
        spearman_ceiling=_value(mine, "ceiling"),
        spearman_minus_empirical_bayes=_minus(mine, bayes, "spearman"),
        value_spearman=_value(mine, "value_spearman"),
        value_spearman_minus_empirical_bayes=_minus(mine, bayes, "value_spearman"),
        auc=_value(mine, "auc"),
        auc_minus_empirical_bayes=_minus(mine, bayes, "auc"),
        brier=_value(mine, "brier"),
        brier_minus_empirical_bayes=_minus(mine, bayes, "brier"),
        coverage=_value(mine, "coverage"),
        coverage_expected=_value(mine, "coverage_expected"),
        log_score=_value(mine, "log_score"),
        log_score_minus_empirical_bayes=_minus(mine, bayes, "log_score"),
    )


def _true_score(runs: Sequence[Walks], name: str, part: str) -> TruthScore:
    mine, bayes = (_orders([[walk.truth for walk in run[who]] for run in runs], part) for who in (name, BAYES))
    return TruthScore(
        tasks=_value(mine, "tasks"),
        rate=_value(mine, "rate"),
        rate_ceiling=_value(mine, "rate_ceiling"),
        rate_minus_empirical_bayes=_minus(mine, bayes, "rate"),
        variance=_value(mine, "variance"),
        variance_ceiling=_value(mine, "variance_ceiling"),
        variance_minus_empirical_bayes=_minus(mine, bayes, "variance"),
    )


def _orders(runs: Sequence[Sequence[Mapping[str, Measures]]], part: str) -> list[Measures]:
    """The scores of one part of every run that has it, mean over the run's orders."""
    having = [[walk[part] for walk in walks if part in walk] for walks in runs]
    return [{m: _mean([walk[m] for walk in walks]) for m in walks[0]} for walks in having if walks]


def _value(runs: Sequence[Measures], measure: str) -> float:
    return mean([run[measure].value for run in runs])


def _minus(ours: Sequence[Measures], theirs: Sequence[Measures], measure: str) -> Three:
    found = over_runs([run[measure] for run in ours], [run[measure] for run in theirs], seed=0)
    return (found.mean, found.low, found.high)
