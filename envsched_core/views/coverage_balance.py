"""Who is visited when, and how evenly: visits of environments by step, their Gini coefficient and effective number.

A visit is a pick; in a log without decisions, an observed group that has a step. Nothing is 0 for want of a record:
no visit is a fact of every step that has a batch.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.evaluate import effective_number, gini

from .run_view import RunView
from .summary import visits
from .trends import uniform_rule

__all__ = ["Balance", "Visits", "visit_balance", "visit_grid"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SEED = 0
"""Of the simulated uniform draws: the same run gives the same numbers."""
SIMULATED = 60
"""Simulated runs of uniform draws."""
MOST_NUMBERS = 12_000_000
"""Most numbers drawn for them; a longer run gets fewer simulated ones."""
FEWEST = 10
"""Simulated runs below which a band says nothing."""


class Visits(msgspec.Struct, frozen=True):
    """Environments by steps."""

    envs: tuple[str, ...]
    """Rows [E]: never visited first, then those that were visited longest ago."""
    steps: tuple[int, ...]
    """Columns [S]; with `span` > 1 the first step of each column."""
    span: int
    """Steps in a column."""
    visits: NDArray[np.int32]
    """Visits [E, S]; 0 = none."""
    last_at: NDArray[np.int64]
    """Last step of the column with a visit [E, S]; -1 = none."""
    since: tuple[int | None, ...]
    """Steps of the run since the last visit [E]; None = never visited."""
    total: int
    """Environments that pass the filter; more than E when the grid shows only those longest without a visit."""


class Balance(msgspec.Struct, frozen=True):
    """How evenly environments were visited, at each shown step."""

    table: pd.DataFrame
    """Columns: step, visits (in the window), environments (of these), gini (0 = all environments of the catalogue
    visited alike, (E - 1) / E = only one visited), effective (effective number of environments: exp of the entropy of
    their shares); uniform_gini, uniform_effective (mean over simulated uniform draws of as many picks at the same
    steps), each also with _low and _high (90 % of the simulated runs); missing where none were simulated."""
    environments: int
    """Environments in the catalogue, or chosen [E]."""
    simulated: int
    """Simulated runs of uniform draws; 0 = too costly at this size."""


def visit_grid(view: RunView, envs: tuple[str, ...] = (), most_envs: int = 250, most_steps: int = 500) -> Visits:
    """Visits of every environment at every step, those without a visit for longest first."""
    names, steps, counts = _counts(view, envs)
    span = max(-(-len(steps) // most_steps), 1)
    seen = counts > 0
    last = np.where(seen.any(axis=1), counts.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1), -1) if steps else None
    last = np.full(len(names), -1) if last is None else last
    order = np.argsort(last, kind="stable")[:most_envs]
    starts = np.arange(0, len(steps), span)
    at = np.where(seen, np.array(steps, dtype=np.int64)[None, :], -1) if steps else np.zeros((len(names), 0), np.int64)
    joined = np.add.reduceat(counts, starts, axis=1) if len(starts) else counts
    last_at = np.maximum.reduceat(at, starts, axis=1) if len(starts) else at
    return Visits(
        envs=tuple(names[i] for i in order),
        steps=tuple(steps[::span]),
        span=span,
        visits=joined[order].astype(np.int32),
        last_at=last_at[order].astype(np.int64),
        since=tuple(None if last[i] < 0 else len(steps) - 1 - int(last[i]) for i in order),
        total=len(names),
    )


def visit_balance(view: RunView, window: int = 0, envs: tuple[str, ...] = (), most_points: int = 120) -> Balance:
    """Gini coefficient and effective number of environments over the last `window` steps (0 = all so far).

    Of more than `most_points` steps evenly spaced ones are shown; every step counts in them. With `envs` only these
    environments are looked at. Few picks over many environments are uneven whatever picks them: hence the band of
    uniform draws, which are simulated (keyed, the same for the same run) since neither number has a closed form.
    """
    names, steps, counts = _counts(view, envs)
    if not steps or not names:
        return Balance(_table([], [], np.zeros((0, 2)), None), len(names), 0)
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), most_points)).astype(int))
    sums = np.cumsum(counts, axis=1)
    inside = np.stack([_windowed(sums, int(i), window) for i in shown])
    measured = np.array([(gini(row.tolist()), effective_number(row.tolist())) for row in inside])
    rows = [(steps[i], int(row.sum()), int((row > 0).sum())) for i, row in zip(shown, inside, strict=True)]
    uniform = _simulated(view, names, shown, window)
    return Balance(_table(rows, shown, measured, uniform), len(names), 0 if uniform is None else uniform.shape[1])


def _table(rows: list[tuple[int, int, int]], shown: object, measured: Floats, uniform: Floats | None) -> pd.DataFrame:
    """`uniform` [S, R, 2]: both numbers of every simulated run."""
    table = pd.DataFrame(rows, columns=["step", "visits", "environments"])
    for k, name in enumerate(("gini", "effective")):
        table[name] = measured[:, k]
        for suffix, at in (("", None), ("_low", 0.05), ("_high", 0.95)):
            column = f"uniform_{name}{suffix}"
            if uniform is None or not len(table):
                table[column] = np.nan
            else:
                table[column] = uniform[:, :, k].mean(axis=1) if at is None else np.quantile(uniform[:, :, k], at, 1)
    return table


def _counts(view: RunView, envs: tuple[str, ...]) -> tuple[list[str], list[int], Counts]:
    """Environments, steps, and visits [E, S]."""
    names = [env for env in view.env_names() if not envs or env in envs]
    frame = view.query(f"SELECT env, step, count(*) n FROM {visits(view)} GROUP BY env, step")
    steps = view.steps()
    place, column = {env: i for i, env in enumerate(names)}, {step: i for i, step in enumerate(steps)}
    frame = frame[frame["env"].isin(place.keys()) & frame["step"].isin(column.keys())]
    counts = np.zeros((len(names), len(steps)), dtype=np.int64)
    counts[frame["env"].map(place).to_numpy(dtype=np.int64), frame["step"].map(column).to_numpy(dtype=np.int64)] = (
        frame["n"].to_numpy(dtype=np.int64)
    )
    return names, steps, counts


def _windowed(sums: Counts, at: int, window: int) -> Counts:
    """Visits of the last `window` steps up to column `at`, from running sums along the last axis."""
    before = at - window
    found: Counts = sums[..., at] - sums[..., before] if window and before >= 0 else sums[..., at]
    return found


def _simulated(view: RunView, names: list[str], shown: NDArray[np.int64], window: int) -> Floats | None:
    """Gini coefficient and effective number [S, R, 2] of simulated uniform draws; None where they cost too much."""
    size = len(view.steps()) * len(view.env_names())
    runs = min(SIMULATED, MOST_NUMBERS // max(size, 1))
    if runs < FEWEST:
        return None
    sums = view.kept.of("uniform draws", (view.version, runs), lambda: _drawn(view, runs))
    place = {env: i for i, env in enumerate(view.env_names())}
    inside = sums if len(names) == len(place) else sums[:, [place[name] for name in names]]
    return np.stack([_measures(_windowed(inside, int(i), window)) for i in shown])


def _drawn(view: RunView, runs: int) -> Counts:
    """Running sums [R, E, S] of the visits of every environment in simulated runs of uniform draws.

    Uniform draws take the picks of a step without replacement: multivariate hypergeometric over the environments;
    where no task comes twice in the whole run, over what is left of them.
    """
    _, steps, whole = _counts(view, ())
    sizes = np.bincount(view.env_index(), minlength=len(view.env_names())).astype(np.int64)
    draws = np.minimum(whole.sum(axis=0), sizes.sum())
    once, _ = uniform_rule(view)
    rng = np.random.default_rng(SEED)
    sums = np.zeros((runs, len(sizes), len(steps)), dtype=np.int64)
    left = np.tile(sizes, (runs, 1))
    for t, n in enumerate(draws):
        if once:
            drawn = np.stack([rng.multivariate_hypergeometric(row, min(n, int(row.sum()))) for row in left])
            left -= drawn
        else:
            drawn = rng.multivariate_hypergeometric(sizes, int(n), size=runs)
        sums[:, :, t] = drawn
    return np.cumsum(sums, axis=2, out=sums)


def _measures(counts: Counts) -> Floats:
    """Gini coefficient and effective number [R, 2] of every row of counts [R, E]."""
    x = np.sort(counts.astype(float), axis=1)
    size, total = x.shape[1], np.maximum(x.sum(axis=1), 1e-300)
    spread = x @ (2.0 * np.arange(1, size + 1) - size - 1.0) / (size * total)
    p = x / total[:, None]
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    return np.stack([spread, np.where(x.sum(axis=1) > 0, np.exp(entropy), 0.0)], axis=1)
