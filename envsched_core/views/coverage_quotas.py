"""Quotas of environments: limits reached, smallest shares kept or missed, candidates turned away, limits given up.

On record at a step are the environments that were picked from, whose quota turned a candidate away, or that had a
smallest share. Of several asks in a step the last word counts, since they share one ledger.
"""

from __future__ import annotations

import pandas as pd

from .run_view import RunView

__all__ = ["quota_steps", "quota_use", "relaxations"]

EACH = """(SELECT step, env, arg_max(limit_picks, decision) limit_picks, max(floor_picks) floor_picks, max(used) used,
    max(blocked) blocked, max(price) price FROM quotas GROUP BY step, env)"""
"""One row a step and environment."""


def quota_use(view: RunView) -> pd.DataFrame:
    """What quotas did to each environment that has any on record, most candidates turned away first.

    Columns: env; steps (with its quota on record); limit_picks (most allowed a step, as last set); at_limit (steps at
    which all it was allowed were taken); hits (steps at which its quota turned candidates away); blocked (candidates,
    summed over steps); price (largest shadow price, score units: the most that one more pick of it would have gained);
    floor_picks (fewest wanted a step, as last set); below_floor (steps that fell short of it); over_limit (steps that
    took more than allowed, since nothing else was left).
    """
    return view.query(
        f"""
        SELECT env, count(*) steps, arg_max(limit_picks, step) limit_picks,
            count(*) FILTER (used >= limit_picks) at_limit, count(*) FILTER (blocked > 0) hits,
            sum(blocked)::BIGINT blocked, max(price) price, arg_max(floor_picks, step) floor_picks,
            count(*) FILTER (used < floor_picks) below_floor, count(*) FILTER (used > limit_picks) over_limit
        FROM {EACH} GROUP BY env ORDER BY blocked DESC, at_limit DESC, env"""
    )


def quota_steps(view: RunView, envs: tuple[str, ...] = ()) -> pd.DataFrame:
    """What quotas did at each step that has any on record, in order; with `envs` only of these environments.

    Columns: step; at_limit (environments whose limit was reached), hits (environments whose quota turned candidates
    away), blocked (candidates), below_floor (environments that got less than their smallest share), price (largest
    shadow price, score units).
    """
    return view.query(
        f"""
        SELECT step, count(*) FILTER (used >= limit_picks) at_limit, count(*) FILTER (blocked > 0) hits,
            sum(blocked)::BIGINT blocked, count(*) FILTER (used < floor_picks) below_floor, max(price) price
        FROM {EACH} WHERE len($envs::VARCHAR[]) = 0 OR list_contains($envs::VARCHAR[], env)
        GROUP BY step ORDER BY step""",
        {"envs": list(envs)},
    )


def relaxations(view: RunView) -> pd.DataFrame:
    """Limits that could not be kept, in order of step.

    Columns: step; kind (quota: an environment took more than allowed; floor: it got less than its smallest share;
    cool_down: tasks came back before their time; shortfall: the batch could not be filled); env (empty when it
    concerns the whole batch); limit_picks (what was wanted), used (what was done).
    """
    return view.query("SELECT step, kind, env, limit_picks, used FROM relaxed ORDER BY step, kind, env")
