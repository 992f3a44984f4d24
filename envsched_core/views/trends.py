"""Over the whole run: rewards, coverage against uniform draws, quota hits, learned trust."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import gammaln

from .run_view import RunView
from .summary import COUNTED, visits

__all__ = [
    "Coverage",
    "coverage",
    "environments",
    "quota_hits",
    "reward_trend",
    "trust",
    "uniform_coverage",
    "uniform_rule",
]

Floats = NDArray[np.float64]


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


def coverage(view: RunView, envs: tuple[str, ...] = ()) -> Coverage:
    """Distinct tasks and environments picked (in a log without decisions: observed) so far, against uniform draws.

    Uniform: each step draws its picks without replacement from the N tasks, so a task is still unseen after
    steps of b_1..b_T picks with probability prod (1 - b_t / N), and an environment of N_e tasks with
    prod C(N - N_e, b_t) / C(N, b_t). Where every task has one recorded group only, draws are without
    replacement over the whole run: the same with one step of b_1 + ... + b_T picks. Both are exact. With `envs`
    only these environments and their tasks are counted, while picks and uniform draws are of the whole catalogue.
    """
    table = view.query(
        f"""
        WITH visits AS {visits(view)},
        inside AS (SELECT * FROM visits WHERE len($envs::VARCHAR[]) = 0 OR list_contains($envs::VARCHAR[], env)),
        first_task AS (SELECT env, task, min(step) step FROM inside GROUP BY env, task),
        first_env AS (SELECT env, min(step) step FROM inside GROUP BY env)
        SELECT step, count(*) picks,
            sum(coalesce(any_value(t.n), 0)) OVER (ORDER BY step)::INTEGER tasks,
            sum(coalesce(any_value(e.n), 0)) OVER (ORDER BY step)::INTEGER environments
        FROM visits
        LEFT JOIN (SELECT step, count(*) n FROM first_task GROUP BY step) t USING (step)
        LEFT JOIN (SELECT step, count(*) n FROM first_env GROUP BY step) e USING (step)
        GROUP BY step ORDER BY step""",
        {"envs": list(envs)},
    )
    found = view.query("SELECT env, count(*) n FROM tasks GROUP BY env ORDER BY env")
    total = float(found["n"].sum())
    sizes = (found[found["env"].isin(envs)] if envs else found)["n"].to_numpy(dtype=float)
    once, how = uniform_rule(view)
    draws = table["picks"].to_numpy(dtype=float)
    expected = uniform_coverage(draws, sizes, once=once, total=total)
    table["uniform_tasks"], table["uniform_environments"] = expected
    return Coverage(table, int(sizes.sum()), len(sizes), how)


def uniform_rule(view: RunView) -> tuple[bool, str]:
    """Whether uniform draws from this catalogue never repeat a task, and how their expectation is computed."""
    limits = view.row("SELECT coalesce(bool_and(draws = 1), false) once, count(draws) limited FROM tasks")
    if limits["once"]:
        return True, "exact: every task has one recorded group, so uniform draws never repeat a task"
    if limits["limited"]:
        return False, "each step draws uniformly without replacement; that recorded tasks run out is left aside"
    return False, "exact: each step draws uniformly without replacement, tasks may come again at later steps"


def uniform_coverage(draws: Floats, sizes: Floats, *, once: bool, total: float | None = None) -> tuple[Floats, Floats]:
    """Expected distinct tasks, and cells that they lie in, [S] after each step of uniform draws.

    `draws` [S]: picks of each step; `sizes` [C]: tasks of each cell (environments, or any others that do not
    overlap); `once`: no task ever comes twice; `total`: tasks that are drawn from, those outside the cells included
    (None = the cells hold all).
    """
    total = float(sizes.sum()) if total is None else total
    if not total or not len(draws):
        return np.zeros(len(draws)), np.zeros(len(draws))
    b = np.minimum(np.cumsum(draws) if once else draws, total)
    with np.errstate(divide="ignore"):
        unseen = np.log1p(-b / total)
    distinct, counts = np.unique(sizes, return_counts=True)  # cells of one size have one chance
    missed = _log_choose(total - distinct[:, None], b[None, :]) - _log_choose(np.float64(total), b)[None, :]
    if not once:
        unseen, missed = np.cumsum(unseen), np.cumsum(missed, axis=1)
    return sizes.sum() * (1.0 - np.exp(unseen)), counts @ (1.0 - np.exp(missed))


def _log_choose(n: Floats | np.float64, k: Floats) -> Floats:
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


def reward_trend(view: RunView) -> pd.DataFrame:
    """What each step brought, in order of step; steps without an observed group are left out.

    Columns: step, groups, mean_reward ([0, 1], mean over groups), mean_variance (observed, [0, 0.25]),
    predicted_variance (of the same groups, times (G - 1) / G; NULL in a log without decisions), informative_share
    (groups with mixed rewards, [0, 1]).
    """
    return view.query(
        f"""
        SELECT g.step, count(*) AS groups, avg(g.mean) mean_reward, avg(g.variance) mean_variance,
            avg(c.variance * (g.scored - 1) / g.scored) FILTER (g.scored > 1) predicted_variance,
            avg(g.mixed::INTEGER) informative_share
        FROM {COUNTED} g LEFT JOIN candidates c USING (candidate)
        WHERE g.step IS NOT NULL GROUP BY g.step ORDER BY g.step"""
    )
