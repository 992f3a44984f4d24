"""The run in numbers: headline figures, one row per step, and what uniform draws would have given."""

from __future__ import annotations

import msgspec
import pandas as pd

from .run_view import RunView

__all__ = ["COUNTED", "Comparator", "Summary", "comparator", "measures", "steps", "summary", "visits"]


class Comparator(msgspec.Struct, frozen=True):
    """What drawing tasks uniformly from the same pool is expected to give; None when it cannot be known."""

    share: float | None
    """Expected share of picks with mixed rewards, in [0, 1]."""
    variance: float | None
    """Expected variance of the mapped rewards of a pick, in [0, 0.25]."""
    how: str
    """Where the numbers come from, or why there are none."""


class Summary(msgspec.Struct, frozen=True):
    """Headline numbers of a run."""

    run_id: str
    kind: str
    scheduler: str
    """Empty for an imported log."""
    steps: int
    """Steps with a batch (or, in a log without decisions, with observed groups)."""
    picks: int
    draws: int
    """Picks that were uniform draws."""
    answered: int
    """Picks whose group was observed."""
    open: int
    """Picks without result, release or expiry so far."""
    groups: int
    """Observed groups, asked for or not."""
    unasked: int
    """Observed groups that nobody asked for."""
    mixed: int
    """Groups with mixed rewards among those that `informative_share` counts."""
    counted: int
    """Groups that `informative_share` counts: answers to picks, or all groups where there are no picks."""
    informative_share: float | None
    """mixed / counted, in [0, 1]; None when nothing was observed."""
    mean_variance: float | None
    """Mean population variance of the mapped rewards over the counted groups, in [0, 0.25]."""
    predicted_variance: float | None
    """Mean predicted variance of the picks, in [0, 0.25]."""
    predicted_shown: float | None
    """What groups of their sizes show of it on average: mean of (G - 1) / G times the prediction over answered
    picks; this is what `mean_variance` is to be compared with."""
    tasks: int
    """Tasks in the catalogue [N]."""
    tasks_covered: int
    environments: int
    """Environments in the catalogue [E]."""
    environments_covered: int
    rollouts: int
    """Rollouts of the counted groups, those without a usable reward included."""
    wasted_rollouts: int
    """Rollouts of counted groups that were flat: no gradient came of them."""
    quota_hits: int
    """Environment quotas that blocked a candidate, summed over steps."""
    relaxations: int
    """Limits that could not be kept."""
    duplicates: int
    """Groups that came twice and were counted once."""
    planned_steps: int | None
    """Steps the run was started for; None when its writer did not say."""


COUNTED = "(SELECT * FROM groups WHERE candidate IS NOT NULL OR NOT (SELECT count(*) > 0 FROM decisions))"
"""Answers to picks; in a log without decisions, every group."""


def visits(view: RunView) -> str:
    """A relation (step, env, task), one row a pick; in a log without decisions, one row a group with a step."""
    if view.row("SELECT count(*) n FROM decisions")["n"]:
        return "(SELECT step, env, task FROM outcomes)"
    return "(SELECT step, env, task FROM groups WHERE step IS NOT NULL)"


def summary(view: RunView) -> Summary:
    """The headline numbers of the run as it stands."""
    one = view.row
    ledger = one("SELECT count(*) picks, count(*) FILTER (outcome = 'uniform_draw') draws, avg(predicted) predicted, "
                 "avg(predicted * (scored - 1) / scored) FILTER (scored > 1) shown, "
                 "count(*) FILTER (ended = 'open') open, count(DISTINCT (env, task)) tasks, "
                 "count(DISTINCT env) envs FROM outcomes")  # fmt: skip
    seen = one(f"SELECT count(*) counted, count(*) FILTER (mixed) mixed, avg(variance) variance, "
               f"sum(scored + missing) rollouts, sum(scored + missing) FILTER (NOT mixed) wasted, "
               f"count(DISTINCT (env, task)) tasks, count(DISTINCT env) envs FROM {COUNTED}")  # fmt: skip
    groups = one("SELECT count(*) n, count(*) - count(candidate) unasked, count(candidate) answered FROM groups")
    pool = one("SELECT count(*) tasks, count(DISTINCT env) envs FROM tasks")
    limits = one("SELECT (SELECT count(DISTINCT (step, env)) FROM quotas WHERE blocked > 0) hits, "
                 "(SELECT count(*) FROM relaxed) relaxed")  # fmt: skip
    covered = ledger if ledger["picks"] else seen
    counted = int(seen["counted"])
    return Summary(
        run_id=view.manifest.run_id,
        kind=view.manifest.kind,
        scheduler=view.manifest.scheduler,
        steps=len(view.steps()),
        picks=int(ledger["picks"]),
        draws=int(ledger["draws"]),
        answered=int(groups["answered"]),
        open=int(ledger["open"]),
        groups=int(groups["n"]),
        unasked=int(groups["unasked"]),
        mixed=int(seen["mixed"]),
        counted=counted,
        informative_share=int(seen["mixed"]) / counted if counted else None,
        mean_variance=seen["variance"],
        predicted_variance=ledger["predicted"],
        predicted_shown=ledger["shown"],
        tasks=int(pool["tasks"]),
        tasks_covered=int(covered["tasks"]),
        environments=int(pool["envs"]),
        environments_covered=int(covered["envs"]),
        rollouts=int(seen["rollouts"] or 0),
        wasted_rollouts=int(seen["wasted"] or 0),
        quota_hits=int(limits["hits"]),
        relaxations=int(limits["relaxed"]),
        duplicates=view.health().duplicates,
        planned_steps=_planned(view),
    )


def _planned(view: RunView) -> int | None:
    plan = view.manifest.source.get("plan")
    steps = plan.get("steps") if isinstance(plan, dict) else None
    return steps if isinstance(steps, int) else None


def measures(view: RunView) -> pd.DataFrame:
    """What the trainer measured on the way, in order of step.

    Columns: step; metric (its name); value (in [0, 1] for success: mean over environments); micro (mean over
    tasks; missing where it was not given). A step measured twice, after a resume, counts once.
    """
    return view.query(
        "SELECT DISTINCT ON (metric, step) step, metric, value, micro FROM measures ORDER BY metric, step"
    )


def steps(view: RunView) -> pd.DataFrame:
    """One row per step, in order.

    Columns: step; asks, picks, draws (uniform draws), pool, cutoff (score), environments, tasks, new_tasks
    (picked for the first time), predicted_variance [0, 0.25], policy_version; groups (observed for this
    step), mixed, flat, waiting (picks still open), ended (released or expired), informative_share [0, 1],
    mean_variance [0, 0.25], rollouts, wasted_rollouts, quota_hits (environments whose quota blocked a
    candidate). Counts of a log without decisions are over its own groups.
    """
    return view.query(
        f"""
        WITH places AS (SELECT DISTINCT step FROM decisions UNION SELECT DISTINCT step FROM {COUNTED} WHERE step >= 0),
        asked AS (
            SELECT step, count(*) asks, sum(draws)::INTEGER draws, max(pool) pool, min(cutoff) cutoff,
                any_value(policy_version) policy_version
            FROM decisions GROUP BY step),
        first AS (SELECT env, task, min(step) step FROM outcomes GROUP BY env, task),
        fresh AS (SELECT step, count(*) new_tasks FROM first GROUP BY step),
        picked AS (
            SELECT step, count(*) picks, count(DISTINCT env) environments, count(DISTINCT (env, task)) tasks,
                avg(predicted) predicted_variance, count(*) FILTER (ended = 'open') waiting,
                count(*) FILTER (ended IN ('released', 'expired')) ended
            FROM outcomes GROUP BY step),
        seen AS (
            SELECT step, count(*) AS groups, count(*) FILTER (mixed) mixed, count(*) FILTER (NOT mixed) flat,
                avg(variance) mean_variance, sum(scored + missing)::INTEGER rollouts,
                sum(scored + missing) FILTER (NOT mixed)::INTEGER wasted_rollouts,
                count(DISTINCT env) environments, count(DISTINCT (env, task)) tasks,
                any_value(policy_version) policy_version
            FROM {COUNTED} GROUP BY step),
        hits AS (SELECT step, count(DISTINCT env) quota_hits FROM quotas WHERE blocked > 0 GROUP BY step)
        SELECT step, coalesce(asks, 0) asks, coalesce(picks, 0) picks, coalesce(asked.draws, 0) draws, pool, cutoff,
            coalesce(picked.environments, seen.environments) environments, coalesce(picked.tasks, seen.tasks) tasks,
            coalesce(new_tasks, 0) new_tasks, predicted_variance,
            coalesce(asked.policy_version, seen.policy_version) policy_version, coalesce(seen.groups, 0) AS groups,
            coalesce(mixed, 0) mixed, coalesce(flat, 0) flat, coalesce(waiting, 0) waiting, coalesce(ended, 0) ended,
            mixed / nullif(seen.groups, 0) informative_share, mean_variance, coalesce(rollouts, 0) rollouts,
            coalesce(wasted_rollouts, 0) wasted_rollouts, coalesce(quota_hits, 0) quota_hits
        FROM places LEFT JOIN asked USING (step) LEFT JOIN picked USING (step) LEFT JOIN seen USING (step)
            LEFT JOIN fresh USING (step) LEFT JOIN hits USING (step)
        ORDER BY step"""
    )


def comparator(view: RunView) -> Comparator:
    """What uniform draws from the source's pool would have given.

    Exact for a pool replay: every group of the source is known, so a first uniform draw of a task is mixed
    with the mean over tasks of each task's share of mixed groups.
    """
    if view.manifest.kind != "replay":
        return Comparator(None, None, "no recorded pool to compare with: only a pool replay knows what was not picked")
    source = view.source()
    if source is None:
        return Comparator(None, None, "the replayed log's run folder is not where it was")
    found = source.row(
        "SELECT avg(mixed) AS share, avg(variance) variance, count(*) tasks FROM ("
        "SELECT avg(mixed::INTEGER) mixed, avg(variance) variance FROM groups GROUP BY env, task)"
    )
    how = f"share of mixed groups among the {int(found['tasks']):,} recorded tasks: what uniform draws give on average"
    return Comparator(found["share"], found["variance"], how)
