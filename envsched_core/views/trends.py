"""Over the whole run: variance by environment and step, coverage against uniform draws, quota hits, learned trust."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import gammaln

from .run_view import RunView
from .summary import visits

__all__ = ["Coverage", "Grid", "coverage", "environments", "quota_hits", "trust", "variance_grid"]

Floats = NDArray[np.float64]
GridKind = Literal["predicted", "observed", "difference"]


class Grid(msgspec.Struct, frozen=True):
    """Environments by steps."""

    envs: tuple[str, ...]
    """Rows [E]."""
    steps: tuple[int, ...]
    """Columns [S]; with `span` > 1 the first step of each column."""
    span: int
    """Steps in a column."""
    values: NDArray[np.float32]
    """Mean variance [E, S] in [0, 0.25] (a difference: in [-0.25, 0.25]); NaN where there is none."""
    groups: NDArray[np.int32]
    """Observed groups [E, S]."""
    total: int
    """Environments in the run; more than E when the grid shows the most visited only."""


def variance_grid(
    view: RunView, kind: GridKind = "predicted", envs: tuple[str, ...] = (), most_envs: int = 250, most_steps: int = 500
) -> Grid:
    """Mean variance of each environment at each step, most visited environments first; NaN = not known.

    predicted: mean over all tasks of the environment as the step's scores file has them (over the candidates
    on record where there is no file). observed: mean population variance of the mapped rewards of the groups
    observed for the step. difference: observed minus predicted, over the observed tasks' own predictions, each
    times (G - 1) / G: what a group of G rollouts shows of the task's variance on average.
    """
    rows = _most_visited(view, envs, most_envs)
    steps = view.steps()
    span = max(-(-len(steps) // most_steps), 1)
    columns = steps[::span]
    observed, groups = _observed(view, rows, columns)
    if kind == "observed":
        values = observed
    elif kind == "predicted":
        values = _predicted(view, rows, steps, span)
    else:
        values = _difference(view, rows, columns)
    total = int(view.row("SELECT count(DISTINCT env) n FROM tasks")["n"])
    return Grid(tuple(rows), tuple(columns), span, values.astype(np.float32), groups.astype(np.int32), total)


def _most_visited(view: RunView, envs: tuple[str, ...], most: int) -> list[str]:
    frame = view.query(
        """
        SELECT env FROM (SELECT env, count(*) n FROM tasks GROUP BY env)
        LEFT JOIN (SELECT env, count(*) visits FROM groups GROUP BY env) USING (env)
        ORDER BY coalesce(visits, 0) DESC, env"""
    )
    names = [str(env) for env in frame["env"] if not envs or env in envs]
    return names[:most]


def _pivot(frame: pd.DataFrame, rows: list[str], columns: list[int]) -> tuple[Floats, Floats]:
    """Means weighted by `n` of a long frame (env, step, value, n) on the grid, and the sums of `n`."""
    sums, weight = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)))
    place = {env: i for i, env in enumerate(rows)}
    i = frame["env"].map(place)
    kept = frame[i.notna() & frame["value"].notna()]
    if len(kept) and columns:
        r = i[kept.index].to_numpy(dtype=np.int64)
        c = np.searchsorted(columns, kept["step"].to_numpy(dtype=np.int64), side="right") - 1
        n = kept["n"].to_numpy(dtype=float)
        np.add.at(weight, (r, c), n)
        np.add.at(sums, (r, c), n * kept["value"].to_numpy(dtype=float))
    return np.where(weight > 0, sums / np.maximum(weight, 1e-300), np.nan), weight


def _observed(view: RunView, rows: list[str], columns: list[int]) -> tuple[Floats, Floats]:
    frame = view.query(
        "SELECT env, step, avg(variance) AS value, count(variance) n FROM groups WHERE step IS NOT NULL GROUP BY ALL"
    )
    return _pivot(frame[frame["step"].isin(view.steps())].reset_index(drop=True), rows, columns)


def _difference(view: RunView, rows: list[str], columns: list[int]) -> Floats:
    frame = view.query(
        """
        SELECT env, step, avg(observed - predicted * (scored - 1) / scored) AS value, count(observed) n
        FROM outcomes WHERE scored > 1 GROUP BY env, step"""
    )
    return _pivot(frame, rows, columns)[0]


def _predicted(view: RunView, rows: list[str], steps: list[int], span: int) -> Floats:
    """Per-environment means of the scores files; steps without a file come from the candidates on record."""
    order = {env: i for i, env in enumerate(view.env_names())}
    index = np.array([order[env] for env in rows], dtype=np.int64)
    found: dict[int, Floats] = {}
    for step in steps:
        means = view.predicted_means(step)
        if means is not None:
            found[step] = np.append(means, np.full(max(len(order) - len(means), 0), np.nan))[index]
    missing = [step for step in steps if step not in found]
    if missing:
        frame = view.query("SELECT env, step, avg(variance) AS value, count(*) n FROM candidates GROUP BY env, step")
        values, _ = _pivot(frame[frame["step"].isin(missing)].reset_index(drop=True), rows, missing)
        found |= {step: values[:, i] for i, step in enumerate(missing)}
    whole = np.array([found[step] for step in steps]).T.reshape(len(rows), len(steps))
    if span == 1:
        return whole
    known = np.add.reduceat(np.isfinite(whole), np.arange(0, len(steps), span), axis=1)
    sums = np.add.reduceat(np.nan_to_num(whole), np.arange(0, len(steps), span), axis=1)
    return np.where(known > 0, sums / np.maximum(known, 1), np.nan)


class Coverage(msgspec.Struct, frozen=True):
    """How much of the catalogue was reached, step by step."""

    table: pd.DataFrame
    """Columns: step, picks, tasks and environments (distinct so far), uniform_tasks and uniform_environments
    (expected under uniform draws of as many picks a step)."""
    tasks: int
    """Tasks in the catalogue [N]."""
    environments: int
    """Environments in the catalogue [E]."""
    how: str
    """How the uniform expectation was computed."""


def coverage(view: RunView) -> Coverage:
    """Distinct tasks and environments picked (in a log without decisions: observed) so far, against uniform draws.

    Uniform: each step draws its picks without replacement from the N tasks, so a task is still unseen after
    steps of b_1..b_T picks with probability prod (1 - b_t / N), and an environment of N_e tasks with
    prod C(N - N_e, b_t) / C(N, b_t). Where every task has one recorded group only, draws are without
    replacement over the whole run: the same with one step of b_1 + ... + b_T picks. Both are exact.
    """
    table = view.query(
        f"""
        WITH visits AS {visits(view)},
        first_task AS (SELECT env, task, min(step) step FROM visits GROUP BY env, task),
        first_env AS (SELECT env, min(step) step FROM visits GROUP BY env)
        SELECT step, count(*) picks,
            sum(coalesce(any_value(t.n), 0)) OVER (ORDER BY step)::INTEGER tasks,
            sum(coalesce(any_value(e.n), 0)) OVER (ORDER BY step)::INTEGER environments
        FROM visits
        LEFT JOIN (SELECT step, count(*) n FROM first_task GROUP BY step) t USING (step)
        LEFT JOIN (SELECT step, count(*) n FROM first_env GROUP BY step) e USING (step)
        GROUP BY step ORDER BY step"""
    )
    sizes = view.query("SELECT env, count(*) n FROM tasks GROUP BY env")["n"].to_numpy(dtype=float)
    limits = view.row("SELECT coalesce(bool_and(draws = 1), false) once, count(draws) limited FROM tasks")
    once = bool(limits["once"])
    draws = table["picks"].to_numpy(dtype=float)
    table["uniform_tasks"], table["uniform_environments"] = uniform_coverage(draws, sizes, once=once)
    how = "exact: each step draws uniformly without replacement, tasks may come again at later steps"
    if once:
        how = "exact: every task has one recorded group, so uniform draws never repeat a task"
    elif limits["limited"]:
        how = "each step draws uniformly without replacement; that recorded tasks run out is left aside"
    return Coverage(table, int(sizes.sum()), len(sizes), how)


def uniform_coverage(draws: Floats, sizes: Floats, *, once: bool) -> tuple[Floats, Floats]:
    """Expected distinct tasks and environments [S] after each step of uniform draws.

    `draws` [S]: picks of each step; `sizes` [E]: tasks of each environment; `once`: no task ever comes twice.
    """
    total = sizes.sum()
    if not total or not len(draws):
        return np.zeros(len(draws)), np.zeros(len(draws))
    b = np.minimum(np.cumsum(draws) if once else draws, total)
    with np.errstate(divide="ignore"):
        unseen = np.log1p(-b / total)
    missed = _log_choose(total - sizes[:, None], b[None, :]) - _log_choose(total, b)[None, :]
    if not once:
        unseen, missed = np.cumsum(unseen), np.cumsum(missed, axis=1)
    return total * (1.0 - np.exp(unseen)), (1.0 - np.exp(missed)).sum(axis=0)


def _log_choose(n: Floats, k: Floats) -> Floats:
    """Log of the binomial coefficient; -inf where k > n."""
    room = n - k
    out: Floats = gammaln(n + 1) - gammaln(k + 1) - gammaln(np.maximum(room, 0) + 1)
    return np.where(room < 0, -np.inf, out)


def environments(view: RunView) -> pd.DataFrame:
    """One row per environment of the catalogue, least covered first.

    Columns: env, tasks, tasks_seen, picks, groups, mixed, mean_variance (observed, [0, 0.25]), last_step (NULL =
    never), since (steps since then), quota_hits (steps in which its quota blocked a candidate).
    """
    steps = view.steps()
    return view.query(
        """
        WITH pool AS (SELECT env, count(*) tasks FROM tasks GROUP BY env),
        visits AS (
            SELECT env, task, step FROM outcomes UNION ALL
            SELECT env, task, step FROM groups WHERE candidate IS NULL),
        seen AS (SELECT env, count(DISTINCT task) tasks_seen, max(step) last_step FROM visits GROUP BY env),
        picked AS (SELECT env, count(*) picks FROM outcomes GROUP BY env),
        got AS (SELECT env, count(*) AS groups, count(*) FILTER (mixed) mixed, avg(variance) mean_variance
            FROM groups GROUP BY env),
        hits AS (SELECT env, count(DISTINCT step) quota_hits FROM quotas WHERE blocked > 0 GROUP BY env)
        SELECT env, tasks, coalesce(tasks_seen, 0) tasks_seen, coalesce(picks, 0) picks,
            coalesce(got.groups, 0) AS groups, coalesce(mixed, 0) mixed, mean_variance, last_step,
            $last - last_step since, coalesce(quota_hits, 0) quota_hits
        FROM pool LEFT JOIN seen USING (env) LEFT JOIN picked USING (env) LEFT JOIN got USING (env)
            LEFT JOIN hits USING (env)
        ORDER BY tasks_seen / tasks, env""",
        {"last": steps[-1] if steps else None},
    )


def quota_hits(view: RunView) -> pd.DataFrame:
    """Every time an environment's quota blocked a candidate, in order.

    Columns: step, env, limit_picks, used, blocked (candidates), price (shadow price in score units: the most
    that one more pick of this environment would have gained).
    """
    return view.query(
        """
        SELECT step, env, max(limit_picks) limit_picks, max(used) used, max(blocked) blocked, max(price) price
        FROM quotas WHERE blocked > 0 GROUP BY step, env ORDER BY step, env"""
    )


def trust(view: RunView) -> pd.DataFrame:
    """The trust in use at each step, as learned so far, in order; empty for a scheduler that predicts nothing.

    Columns: step; kappa_env (environment's weight, in its concentration), features_share (part of that weight for
    what features predict, [0, 1]), tau_within, tau_cross, half_life (steps; 0 = none); gain_within, gain_cross,
    gain_features (nats by which the trust in use predicted better than the best one without that source, aged; below
    0 while the other is not yet enough ahead to be taken; NULL where it is not on record), scored (groups it was
    learned from). Of several asks in a step the last counts.
    """
    return view.query(
        """
        SELECT step, kappa_env, features_share, tau_within, tau_cross, half_life, loglik - loglik_no_within gain_within,
            loglik - loglik_no_cross gain_cross, loglik - loglik_no_features gain_features, scored
        FROM decisions WHERE loglik IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY step ORDER BY decision DESC) = 1 ORDER BY step"""
    )
