"""Scores of a scheduler: plain numbers in, plain numbers out.

Nothing here knows of tasks or runs. Shares are in [0, 1], variances are population variances (a group of
[0, 1] has 1/4). Every interval is a percentile bootstrap (Efron 1979) keyed by its seed, so the same
numbers give the same interval; what is resampled (seeds, groups) is what the caller passes as one item.
An empty input has no score: the answer is NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

__all__ = [
    "Interval",
    "Resampled",
    "Spent",
    "auc",
    "effective_number",
    "flat_share",
    "gini",
    "informative_share",
    "mean",
    "nested_bootstrap",
    "over_runs",
    "paired_bootstrap",
    "rate_bootstrap",
    "ratio_bootstrap",
    "resampled_mean",
    "resampled_ranks",
    "resampled_rate",
    "spearman",
    "unit_weights",
    "weighted_auc",
    "weighted_spearman",
]

DRAWS = 2000
"""Bootstrap resamples: enough for the ends of a 95 % interval to two digits."""
RATE_DRAWS = 500
"""The same where each draw costs a pass over all units of a run."""
BLOCK = 4_000_000
"""Most numbers of a resample held at once."""


class Interval(NamedTuple):
    """An estimate and the interval that holds it."""

    mean: float
    low: float
    high: float


class Spent(NamedTuple):
    """What each group [n] of one replay used up, and how much of it counts."""

    units: Sequence[int]
    """What each group belongs to (its task), in [0, M): the unit that is resampled."""
    counted: Sequence[float]
    """For instance its rollouts if its rewards were all equal, else 0."""
    amounts: Sequence[float]
    """For instance its rollouts; > 0."""

    @property
    def rate(self) -> float:
        """`sum(counted) / sum(amounts)`; NaN for nothing."""
        return _ratio(float(np.sum(self.counted)), float(np.sum(self.amounts)))


class Resampled(NamedTuple):
    """A score of one run, and what it comes to when the run's units and seeds are drawn anew."""

    value: float
    drawn: NDArray[np.float64]
    """[RATE_DRAWS]; two scores of one run that were drawn with the same weights and seed are paired."""


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of the finite values [n]; NaN when there is none."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")


def informative_share(mixed: Sequence[bool]) -> float:
    """Share of groups [n] whose rewards differ: only these give a policy gradient (arXiv 2310.20703).

    >>> informative_share([True, False, False, False])
    0.25
    """
    return mean([float(flag) for flag in mixed])


def flat_share(mixed: Sequence[bool], sizes: Sequence[float]) -> float:
    """Share of a cost (rollouts, tokens, seconds) that went into groups with equal rewards.

    `sum of sizes of flat groups / sum of sizes`, for `mixed` [n] and `sizes` [n] >= 0.
    """
    weights = np.asarray(sizes, dtype=float)
    flat = ~np.asarray(mixed, dtype=bool)
    return _ratio(float(weights[flat].sum()), float(weights.sum()))


def gini(counts: Sequence[float]) -> float:
    """Gini coefficient of counts [n] >= 0: 0 = all equal, (n - 1) / n = one has everything.

    `sum_i (2 i - n - 1) x_i / (n sum x)` over the sorted x, i from 1 (Dixon et al. 1987); 0 when all are 0.

    >>> gini([1, 1, 1, 1]), gini([0, 0, 0, 4])
    (0.0, 0.75)
    """
    x = np.sort(np.asarray(counts, dtype=float))
    n = len(x)
    if n == 0:
        return float("nan")
    total = float(x.sum())
    return float((2 * np.arange(1, n + 1) - n - 1) @ x / (n * total)) if total > 0 else 0.0


def effective_number(counts: Sequence[float]) -> float:
    """How many equally used items would be as diverse as counts [n]: `exp(-sum p ln p)` (Hill 1973, order 1).

    In [1, n]; 0 when nothing was counted.

    >>> round(effective_number([5, 5, 0]), 6)
    2.0
    """
    x = np.asarray(counts, dtype=float)
    x = x[x > 0]
    if len(x) == 0:
        return 0.0
    p = x / x.sum()
    return float(np.exp(-(p @ np.log(p))))


def paired_bootstrap(differences: Sequence[float], *, seed: int, level: float = 0.95) -> Interval:
    """Mean of paired differences [n] and its interval, by resampling the pairs.

    With one pair the interval is that point: it says nothing, so callers must show n beside it.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    return _bootstrap(len(values), lambda rows: float(values[rows].mean()), seed, level)


def ratio_bootstrap(
    numerators: Sequence[float], denominators: Sequence[float], *, seed: int, level: float = 0.95
) -> Interval:
    """`sum(numerators) / sum(denominators)` over items [n] and its interval, by resampling whole items.

    Items are groups for the share of rollouts in flat groups (rollouts in it if flat, rollouts in it), seeds for
    a relative saving (difference, baseline). NaN when the denominators sum to 0.
    """
    top, bottom = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if top.shape != bottom.shape:
        raise ValueError(f"{len(top)} numerators against {len(bottom)} denominators")
    if len(top) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    return _bootstrap(len(top), lambda rows: _ratio(float(top[rows].sum()), float(bottom[rows].sum())), seed, level)


def rate_bootstrap(ours: Sequence[Spent], theirs: Sequence[Spent], *, seed: int, level: float = 0.95) -> Interval:
    """Ratio of two rates, `mean rate of ours / mean rate of theirs`, over paired replays [seeds], and its interval.

    Resampled are the pairs and, with one Poisson weight for all replays, the units (Chamandy et al. 2012): the same
    log replayed again and again says no more about tasks than it holds.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} replays against {len(theirs)}")
    whole = _ratio(mean([s.rate for s in ours]), mean([s.rate for s in theirs]))
    rng = np.random.default_rng(seed)
    units = 1 + max((unit for replay in (*ours, *theirs) for unit in replay.units), default=-1)
    drawn = []
    for _ in range(RATE_DRAWS if ours else 0):
        weights, pairs = rng.poisson(1.0, size=units), rng.integers(len(ours), size=len(ours))
        rates = [np.mean([_weighted(side[i], weights) for i in pairs]) for side in (ours, theirs)]
        drawn.append(_ratio(float(rates[0]), float(rates[1])))
    return Interval(whole, *_ends(np.array(drawn), level))


def _weighted(replay: Spent, weights: NDArray[np.int64]) -> float:
    """The rate of a replay with weighted units; 0 when none of them was drawn."""
    mine = weights[np.asarray(replay.units)]
    total = float(mine @ np.asarray(replay.amounts))
    return float(mine @ np.asarray(replay.counted)) / total if total > 0 else 0.0


def nested_bootstrap(
    numerators: NDArray[np.float64],
    denominators: NDArray[np.float64] | None = None,
    *,
    seed: int,
    level: float = 0.95,
) -> Interval:
    """Mean of paired values [W, S] (worlds, seeds in each), or the ratio of two means, and its interval.

    Resampled are worlds, then seeds within each drawn world (Davison and Hinkley 1997, section 3.8): seeds of one
    world say little about the next. With one world the interval is over its seeds alone; callers must show W and S.
    """
    top = np.asarray(numerators, dtype=float)
    below = np.ones_like(top) if denominators is None else np.asarray(denominators, dtype=float)
    if top.ndim != 2 or top.shape != below.shape:
        raise ValueError(f"values of shapes {top.shape} and {below.shape}; both must be [worlds, seeds]")
    if not top.size:
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    worlds = rng.integers(top.shape[0], size=(DRAWS, top.shape[0], 1))
    seeds = rng.integers(top.shape[1], size=(DRAWS, *top.shape))
    sums = [values[worlds, seeds].sum(axis=(1, 2)) for values in (top, below)]
    drawn = np.array([_quotient(a, b) for a, b in zip(*sums, strict=True)])
    return Interval(_quotient(float(top.sum()), float(below.sum())), *_ends(drawn, level))


def unit_weights(units: int, *, seed: int) -> NDArray[np.float32]:
    """Poisson(1) weights [RATE_DRAWS, units]: a bootstrap of units that all scores of a run share (Chamandy 2012)."""
    return np.random.default_rng(seed).poisson(1.0, size=(RATE_DRAWS, units)).astype(np.float32)


def resampled_rate(replays: Sequence[Spent], weights: NDArray[np.float32], *, seed: int) -> Resampled:
    """Mean rate of the replays [S] of one run, with units weighted by `weights` [D, M] and seeds drawn anew.

    A replay none of whose units was drawn has no rate and counts in no mean.
    """
    size, rates = weights.shape[1], np.empty((len(weights), len(replays)))
    for s, replay in enumerate(replays):
        top = np.bincount(replay.units, replay.counted, minlength=size)
        bottom = weights @ np.bincount(replay.units, replay.amounts, minlength=size)
        rates[:, s] = _divided(weights @ top, bottom)
    chosen = np.random.default_rng(seed).integers(len(replays), size=rates.shape)
    return Resampled(mean([replay.rate for replay in replays]), _row_means(np.take_along_axis(rates, chosen, axis=1)))


def resampled_mean(values: NDArray[np.float64], units: Indices, weights: NDArray[np.float32]) -> Resampled:
    """Mean of values [n] that belong to units [n], with the units weighted by `weights` [D, M]."""
    if not len(values):
        return Resampled(float("nan"), np.full(len(weights), np.nan))
    size = weights.shape[1]
    top, bottom = weights @ np.bincount(units, values, minlength=size), weights @ np.bincount(units, minlength=size)
    return Resampled(float(np.mean(values)), _divided(top, bottom))


def resampled_ranks(
    score: Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32]], NDArray[np.float64]],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    units: Indices,
    weights: NDArray[np.float32],
) -> Resampled:
    """A rank score (`weighted_spearman`, `weighted_auc`) of x, y [n] that belong to units [n], weighted [D, M]."""
    rows = max(1, BLOCK // max(len(x), 1))
    parts = [score(x, y, weights[i : i + rows, units]) for i in range(0, len(weights), rows)]
    return Resampled(float(score(x, y, np.ones((1, len(x)), np.float32))[0]), np.concatenate(parts))


def over_runs(
    ours: Sequence[Resampled], theirs: Sequence[Resampled] | None = None, *, seed: int, level: float = 0.95
) -> Interval:
    """Mean over runs [R] of a score, or of its paired difference to `theirs`, and its interval.

    Resampled are runs, then what was resampled within each. With one run the interval is that run's own; with few it
    says little of other runs, so callers must show R.
    """
    pairs = zip(ours, theirs or [Resampled(0.0, np.zeros_like(found.drawn)) for found in ours], strict=True)
    values, drawn = zip(*((a.value - b.value, a.drawn - b.drawn) for a, b in pairs), strict=True)
    rng, inside = np.random.default_rng(seed), np.array(drawn)
    runs, draws = (rng.integers(size, size=(DRAWS, len(values))) for size in inside.shape)
    return Interval(mean(values), *_ends(_row_means(inside[runs, draws]), level))


def spearman(x: Sequence[float] | NDArray[np.float64], y: Sequence[float] | NDArray[np.float64]) -> float:
    """Spearman's rank correlation of x and y [n], ties at their middle rank; NaN where one of them is constant.

    >>> round(spearman([1, 2, 3, 4], [1, 3, 2, 9]), 6)
    0.8
    """
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    return float(weighted_spearman(a, b, np.ones((1, len(a)), np.float32))[0])


def weighted_spearman(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float32]
) -> NDArray[np.float64]:
    """`spearman` of x and y [n] with whole weights [D, n], as if each item stood there so many times: [D]."""
    if not len(x):
        return np.full(len(weights), np.nan)
    a, b = _middle_ranks(x, weights), _middle_ranks(y, weights)
    total = np.maximum(weights.sum(axis=1, dtype=float), 1.0)
    a -= ((weights * a).sum(axis=1) / total)[:, None]
    b -= ((weights * b).sum(axis=1) / total)[:, None]
    spread = np.sqrt((weights * a * a).sum(axis=1) * (weights * b * b).sum(axis=1))
    return _divided((weights * a * b).sum(axis=1), spread, least=1e-9)


def auc(scores: Sequence[float] | NDArray[np.float64], labels: Sequence[bool] | NDArray[np.bool_]) -> float:
    """Chance that a labelled item [n] scores above one that is not, ties half (Hanley and McNeil 1982).

    NaN when all labels are the same.

    >>> auc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875
    """
    x, y = np.asarray(scores, dtype=float), np.asarray(labels, dtype=float)
    return float(weighted_auc(x, y, np.ones((1, len(x)), np.float32))[0])


def weighted_auc(
    scores: NDArray[np.float64], labels: NDArray[np.float64], weights: NDArray[np.float32]
) -> NDArray[np.float64]:
    """`auc` of scores and labels (0 or 1) [n] with weights [D, n]: [D]."""
    if not len(scores):
        return np.full(len(weights), np.nan)
    labelled = weights * labels
    inside, whole = labelled.sum(axis=1, dtype=float), weights.sum(axis=1, dtype=float)
    above = (labelled * _middle_ranks(scores, weights)).sum(axis=1) - inside**2 / 2.0
    return _divided(above, inside * (whole - inside))


def _middle_ranks(x: NDArray[np.float64], weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Weight below each item [n] plus half the weight of those that tie with it, itself included: [D, n]."""
    _, place, starts = np.unique(x, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    firsts = np.cumsum(starts) - starts
    tied = np.add.reduceat(weights[:, order].astype(float), firsts, axis=1)
    return np.asarray((np.cumsum(tied, axis=1) - tied / 2.0)[:, place])


def _row_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the finite values of each row [D, n]; NaN where there is none."""
    finite = np.isfinite(values)
    return _divided(np.where(finite, values, 0.0).sum(axis=1), finite.sum(axis=1))


def _divided(top: NDArray[Any], bottom: NDArray[Any], least: float = 0.0) -> NDArray[np.float64]:
    """Top / bottom [D]; NaN where bottom is not above `least`."""
    out = np.full(len(top), np.nan)
    np.divide(top, bottom, out=out, where=bottom > least)
    return out


def _quotient(top: float, bottom: float) -> float:
    """Top / bottom, whatever the sign; NaN for a denominator of 0."""
    return top / bottom if bottom != 0 else float("nan")


def _bootstrap(n: int, statistic: Callable[[NDArray[np.int64]], float], seed: int, level: float) -> Interval:
    """Percentile interval of `statistic(rows)`, rows [n] drawn with replacement; one draw at a time bounds memory."""
    rng = np.random.default_rng(seed)
    drawn = np.array([statistic(rng.integers(n, size=n)) for _ in range(DRAWS)])
    return Interval(statistic(np.arange(n)), *_ends(drawn, level))


def _ends(drawn: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Lower and upper end of a percentile interval; NaN when nothing could be drawn."""
    finite = drawn[np.isfinite(drawn)]
    if len(finite) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _ratio(top: float, bottom: float) -> float:
    """Top / bottom; NaN for nothing over nothing."""
    return top / bottom if bottom > 0 else float("nan")
