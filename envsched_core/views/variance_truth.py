"""Was the prediction right? Calibration, rank correlation and interval coverage of the picks, by evidence state.

Every pick whose group was observed counts, if it passes the filters; its prediction is the one its batch was chosen
by. A group of G rollouts shows (G - 1) / G of a task's variance on average, so predictions are compared times that.
95 % intervals draw the tasks anew, all groups of a task together (a bootstrap, evaluate.py): they say nothing of
another seed. What "right predictions would show" follows from the Beta distribution that each prediction is
(mean m, n equivalent rollouts: Beta(m n, (1 - m) n)) and rewards of 0 and 1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from envsched_core.evaluate import (
    over_runs,
    resampled_mean,
    resampled_ranks,
    spearman,
    unit_weights,
    weighted_spearman,
)

from .batch import NO_FILTERS, Filters
from .run_view import STATES, RunView

__all__ = [
    "ALL_PICKS",
    "FEWEST_GROUPS",
    "NOMINAL",
    "calibration_curve",
    "interval_coverage",
    "rank_correlations",
    "variance_means",
]

Floats = NDArray[np.float64]

ALL_PICKS = "all picks"
"""Stands in the column of evidence states for all of them together."""
FEWEST_GROUPS = 16
"""Groups below which no correlation and no share is told."""
NOMINAL = 0.9
"""Level of the intervals on record."""
SEED = 0
"""Of every resampling: the same run gives the same numbers."""
UNITS = 20_000
"""Most units of a bootstrap; beyond, tasks are drawn in lots of several, which holds memory down."""
RANKED = 40_000
"""Most picks whose order is judged: more would change no digit shown."""
FEWEST_DRAWS, MOST_RANKED = 100, 3_000_000
"""Resamples behind an interval of a rank correlation are as many as rank so many items in all, at least the first."""
SIMULATED = 40
"""Simulated logs behind what right predictions would show."""


def calibration_curve(view: RunView, filters: Filters = NO_FILTERS, bins: int = 8) -> pd.DataFrame:
    """Predicted against observed variance in `bins` equally full bins of the prediction, all picks and by state.

    Columns: state ("all picks" or an evidence state), bin (0-based), from_predicted and to_predicted (its ends),
    predicted and observed (means, [0, 0.25]), low, high (95 % of observed), groups. A state has as many bins as leave
    `FEWEST_GROUPS` in each, at least one; one with fewer groups altogether is left out.
    """
    columns = ["state", "bin", "from_predicted", "to_predicted", "predicted", "observed", "low", "high", "groups"]
    rows = []
    for state, part, units, weights in _parts(view, filters):
        many = max(min(bins, len(part) // FEWEST_GROUPS), 1)
        x, y = (part[name].to_numpy(dtype=float) for name in ("shown", "observed"))
        edge = pd.qcut(part["shown"], many, labels=False, duplicates="drop").fillna(0).to_numpy()
        for number, inside in enumerate(edge == i for i in np.unique(edge)):
            found = over_runs([resampled_mean(y[inside], units[inside], weights)], seed=SEED)
            ends = (float(x[inside].min()), float(x[inside].max()), float(x[inside].mean()))
            rows.append((state, number, *ends, *found, int(inside.sum())))
    return pd.DataFrame(rows, columns=columns)


def variance_means(view: RunView, filters: Filters = NO_FILTERS) -> dict[str, float | None]:
    """Mean variances over what passes the filters, [0, 0.25]; None where there is none.

    predicted (all picks), shown (what groups of their sizes show of it on average, answered picks), observed (answered
    picks; in a log without decisions all its groups, of which only the environment is filtered).
    """
    decided = view.row("SELECT count(*) n FROM decisions")["n"]
    wanted = {"env": filters.environments}
    if decided:
        wanted |= {"outcome": filters.outcomes, "state": filters.states}
    named = {column: list(values) for column, values in wanted.items() if values}
    source = "outcomes" if decided else "(SELECT env, variance AS observed, NULL AS predicted, scored FROM groups)"
    passing = " AND ".join(["TRUE", *(f"list_contains(${column}, {column})" for column in named)])
    return view.row(
        f"""
        SELECT avg(predicted) predicted, avg(predicted * (scored - 1) / scored) FILTER (scored > 1) shown,
            avg(observed) observed FROM {source} WHERE {passing}""",
        named,
    )


def rank_correlations(view: RunView, filters: Filters = NO_FILTERS) -> pd.DataFrame:
    """Spearman's rank correlation of predicted and observed variance, all picks and by evidence state.

    Columns: state, groups, correlation, low, high (95 %), right (what these predictions would show on average if each
    were exactly right: the noise of the groups and what the predictions themselves leave open keep it below 1).
    Missing where one of the two never differs. Of more than `RANKED` picks a random sample is judged.
    """
    rows = []
    for state, part, units, weights in _parts(view, filters):
        kept = np.arange(len(part))
        if len(kept) > RANKED:
            kept = np.sort(np.random.default_rng(SEED).choice(kept, RANKED, replace=False))
        x, y = (part[name].to_numpy(dtype=float)[kept] for name in ("shown", "observed"))
        drawn = weights[: max(MOST_RANKED // len(kept), FEWEST_DRAWS)]
        found = over_runs([resampled_ranks(weighted_spearman, x, y, units[kept], drawn)], seed=SEED)
        rows.append((state, len(part), *found, _right_ranks(part.iloc[kept], x)))
    return pd.DataFrame(rows, columns=["state", "groups", "correlation", "low", "high", "right"])


def interval_coverage(view: RunView, filters: Filters = NO_FILTERS) -> pd.DataFrame:
    """How many observed group means lay inside 90 % intervals, all picks and by evidence state.

    Two rows a state, told by `interval`. group: the central 90 % interval of the mean of so many rollouts of 0 and 1
    (a beta-binomial, from the prediction on record). task: the interval on record, of the task's own mean; a group of
    few rollouts scatters wider than that. Columns: state, interval, groups, nominal (0.9), inside (share, [0, 1]),
    low, high (95 %), right (the share if each prediction were exactly right: group means come in whole steps, so that
    it is not quite nominal), binary (share of the groups whose rewards are all 0 or 1, for which `right` holds).
    """
    rows = []
    for state, part, units, weights in _parts(view, filters):
        mean, size = part["observed_mean"].to_numpy(dtype=float), part["scored"].to_numpy(dtype=np.int64)
        binary = np.abs(part["observed"].to_numpy(dtype=float) - mean * (1.0 - mean)) < 1e-9
        a, n = _beliefs(part)
        on_record = part["low"].to_numpy(dtype=float), part["high"].to_numpy(dtype=float)
        for interval, (low, high) in (("group", group_interval(a, n, size)), ("task", on_record)):
            inside = ((mean >= low - 1e-9) & (mean <= high + 1e-9)).astype(float)
            found = over_runs([resampled_mean(inside, units, weights)], seed=SEED)
            right = float(_mass(a, n, size, low, high).mean())
            rows.append((state, interval, len(part), NOMINAL, *found, right, float(binary.mean())))
    columns = ["state", "interval", "groups", "nominal", "inside", "low", "high", "right", "binary"]
    return pd.DataFrame(rows, columns=columns)


# ---------------------------------------------------------------------- observed picks


def _picks(view: RunView, filters: Filters) -> pd.DataFrame:
    """Observed picks: env, task, state, shown (prediction as a group shows it), the belief and what came."""
    return filters.keep(view.kept.of("observed picks", view.version, lambda: _all_picks(view)))


def _all_picks(view: RunView) -> pd.DataFrame:
    return view.query(
        """
        SELECT o.env, o.task, o.state, o.outcome, o.predicted * (scored - 1) / scored AS shown, o.observed,
            o.observed_mean, o.predicted_mean, o.scored, c.low, c.high, c.rollouts
        FROM outcomes o JOIN candidates c USING (candidate)
        WHERE scored > 1 AND o.predicted IS NOT NULL AND o.observed IS NOT NULL AND c.rollouts > 0
        ORDER BY candidate"""
    )


def _parts(view: RunView, filters: Filters) -> list[tuple[str, pd.DataFrame, NDArray[np.int64], NDArray[np.float32]]]:
    """All picks, then each evidence state, where there are enough groups: name, rows, task of each row, weights."""
    found = _picks(view, filters)
    out = []
    for state in (ALL_PICKS, *STATES):
        part = found if state == ALL_PICKS else found[found["state"] == state].reset_index(drop=True)
        if len(part) >= FEWEST_GROUPS:
            units = np.asarray(part.groupby(["env", "task"], sort=False).ngroup(), dtype=np.int64) % UNITS
            out.append((state, part, units, _weights(int(units.max()) + 1).astype(np.float32)))
    return out


@lru_cache(maxsize=8)
def _weights(units: int) -> NDArray[np.uint8]:
    """Poisson weights of so many units, in a quarter of their room: drawing them takes longer than all that follows."""
    return unit_weights(units, seed=SEED).astype(np.uint8)


# ---------------------------------------------------------------------- what right predictions would show


def _beliefs(part: pd.DataFrame) -> tuple[Floats, Floats]:
    """Pseudo-successes a and equivalent rollouts n of every prediction: it is Beta(a, n - a)."""
    n = part["rollouts"].to_numpy(dtype=float)
    return np.clip(part["predicted_mean"].to_numpy(dtype=float), 1e-9, 1.0 - 1e-9) * n, n


def _right_ranks(part: pd.DataFrame, shown: Floats) -> float:
    """Mean rank correlation of predictions and simulated groups whose rates are drawn from the predictions."""
    a, n = _beliefs(part)
    size = part["scored"].to_numpy(dtype=np.int64)
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(max(min(SIMULATED, 400_000 // max(len(part), 1)), 4)):
        share = rng.binomial(size, rng.beta(a, n - a)) / size
        found.append(spearman(shown, share * (1.0 - share)))
    known = [value for value in found if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def group_chances(a: Floats, n: Floats, most: int) -> Floats:
    """Beta-binomial chances [M, most + 1] of k successes in `most` rollouts under Beta(a, n - a) [M]."""
    k, b = np.arange(most + 1), (n - a)[:, None]
    choose = special.gammaln(most + 1) - special.gammaln(k + 1) - special.gammaln(most - k + 1)
    return np.asarray(np.exp(choose + special.betaln(a[:, None] + k, b + most - k) - special.betaln(a[:, None], b)))


def group_interval(a: Floats, n: Floats, size: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Central 90 % interval [M], [M] of the mean of `size` [M] rollouts of 0 and 1 under Beta(a, n - a).

    Its ends are the 5 % and 95 % quantiles of the beta-binomial distribution, so it holds at least 90 %.
    """
    low, high = np.empty(len(a)), np.empty(len(a))
    tail = (1.0 - NOMINAL) / 2.0
    for most in np.unique(size):
        at = size == most
        below = np.cumsum(group_chances(a[at], n[at], int(most)), axis=1)
        low[at] = (below < tail).sum(axis=1) / most
        high[at] = np.minimum((below < 1.0 - tail - 1e-12).sum(axis=1), most) / most
    return low, high


def _mass(a: Floats, n: Floats, size: NDArray[np.int64], low: Floats, high: Floats) -> Floats:
    """Chance [M] that the mean of `size` rollouts of 0 and 1 lies in [low, high] under Beta(a, n - a)."""
    out = np.empty(len(a))
    for most in np.unique(size):
        at = size == most
        means = np.arange(most + 1) / most
        inside = (means >= low[at, None] - 1e-9) & (means <= high[at, None] + 1e-9)
        out[at] = (group_chances(a[at], n[at], int(most)) * inside).sum(axis=1)
    return out
