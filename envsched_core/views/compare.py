"""Two runs side by side: headline figures, every step, every environment, and the tasks that only one of them picked.

Nothing is computed again: both runs are read as they stand. Steps are paired by their number. An interval says what
other steps like these could have given; it says nothing of another seed, which takes another run.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.evaluate import Interval, paired_bootstrap, ratio_bootstrap

from .run_view import RunView
from .summary import COUNTED, visits

__all__ = ["Comparison", "compare"]

Floats = NDArray[np.float64]

SEED = 0
"""Of the bootstrap: the same two runs give the same intervals."""
SHARES = (
    # name, sum over groups, over the sum of
    ("informative_share", "mixed", "groups"),
    ("flat_share", "wasted_rollouts", "rollouts"),
    ("mean_variance", "variance", "measured"),
    ("mean_reward", "reward", "rewarded"),
)
COSTS = ("rollouts", "tokens", "seconds", "turns", "tool_calls")
NOT_KNOWN = Interval(math.nan, math.nan, math.nan)


class Comparison(msgspec.Struct, frozen=True):
    """Run `a` and run `b`; columns of both end in _a and _b, differences are a minus b, what is not known is NaN."""

    headline: pd.DataFrame
    """One row a figure. Columns: figure; kind (share: a mean over groups; total: a sum); a, b; a_low, a_high, b_low,
    b_high (95 %, bootstrap of steps; shares only); a_known, b_known (part of the groups that tell it, [0, 1]);
    difference, low, high (95 %, paired bootstrap of the steps that both runs observed: of a share the mean over steps,
    of a total the sum over them); steps (how many those are).

    Figures: informative_share (groups with mixed rewards), flat_share (rollouts in groups whose rewards were all the
    same: zero variance), mean_variance ([0, 0.25]), mean_reward ([0, 1]); rollouts, tokens, seconds, turns, tool_calls,
    of groups that tell them (no difference unless all groups of both runs do)."""
    steps: pd.DataFrame
    """One row a step of either run. Columns, for both: groups, informative_share, predicted_variance (mean over picks),
    realised_variance (mean over groups), picks (distinct tasks), environments and tasks (distinct so far); shared
    (tasks picked by both), jaccard (shared / picked by either), shared_by_chance (expected of uniform draws of as many
    tasks from the two catalogues)."""
    environments: pd.DataFrame
    """One row an environment of either catalogue. Columns, for both: picks, picks_share (of all picks), groups,
    informative_share; picks_difference, share_difference (of picks_share), informative_difference."""
    only: pd.DataFrame
    """Tasks that one run picked and the other never did. Columns: run ('a' or 'b'), env, task, picks, first_step,
    groups, mixed, known (whether the other run's catalogue has it)."""
    tasks: tuple[int, int, int]
    """Tasks in the catalogue of a, of b, and of both."""


def compare(a: RunView, b: RunView) -> Comparison:
    """The tables of two runs beside each other; see `Comparison` for their columns."""
    sizes, common = _catalogues(a, b)
    steps = _steps(a, b, sizes, common)
    headline = _headline(_sums(a), _sums(b))
    return Comparison(headline, steps, _environments(a, b), _only(a, b), (*sizes, common))


def _catalogues(a: RunView, b: RunView) -> tuple[tuple[int, int], int]:
    left, right = (view.query("SELECT env, task FROM tasks") for view in (a, b))
    return (len(left), len(right)), len(left.merge(right, on=["env", "task"]))


# ---------------------------------------------------------------------- headline


def _sums(view: RunView) -> pd.DataFrame:
    """One row a step (NULL = groups without one), what the figures are made of."""
    costs = ", ".join(f"sum({name}) AS {name}, count({name}) {name}_known" for name in COSTS[1:])
    return view.query(
        f"""
        SELECT step, count(*)::DOUBLE AS groups, count(*) FILTER (mixed)::DOUBLE mixed,
            sum(scored + missing)::DOUBLE rollouts, count(*) rollouts_known,
            coalesce(sum(scored + missing) FILTER (NOT mixed), 0)::DOUBLE wasted_rollouts,
            coalesce(sum(variance), 0) variance, count(variance)::DOUBLE measured,
            coalesce(sum(mean), 0) reward, count(mean)::DOUBLE rewarded, {costs}
        FROM {COUNTED} GROUP BY step ORDER BY step"""
    )


def _headline(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    both = a[a["step"].notna()].merge(b[b["step"].notna()], on="step", suffixes=("_a", "_b"))
    rows = [_share(name, top, bottom, a, b, both) for name, top, bottom in SHARES]
    return pd.DataFrame([*rows, *(_total(name, a, b, both) for name in COSTS)])


def _share(
    name: str, top: str, bottom: str, a: pd.DataFrame, b: pd.DataFrame, both: pd.DataFrame
) -> dict[str, str | float]:
    row: dict[str, str | float] = {"figure": name, "kind": "share"}
    for side, sums in (("a", a), ("b", b)):
        whole, placed = float(sums[bottom].sum()), sums[sums["step"].notna()]
        found = ratio_bootstrap(placed[top].tolist(), placed[bottom].tolist(), seed=SEED) if len(placed) else NOT_KNOWN
        row |= {side: float(sums[top].sum()) / whole if whole > 0 else math.nan}
        row |= {f"{side}_low": found.low, f"{side}_high": found.high, f"{side}_known": 1.0 if whole > 0 else 0.0}
    used = both[(both[f"{bottom}_a"] > 0) & (both[f"{bottom}_b"] > 0)]
    left, right = (used[f"{top}_{side}"] / used[f"{bottom}_{side}"] for side in "ab")
    return row | _paired((left - right).to_numpy(dtype=float), 1.0)


def _total(name: str, a: pd.DataFrame, b: pd.DataFrame, both: pd.DataFrame) -> dict[str, str | float]:
    row: dict[str, str | float] = {"figure": name, "kind": "total"}
    for side, sums in (("a", a), ("b", b)):
        groups, known = float(sums["groups"].sum()), float(sums[f"{name}_known"].sum())
        row |= {side: float(sums[name].sum()) if known else math.nan, f"{side}_low": math.nan, f"{side}_high": math.nan}
        row[f"{side}_known"] = known / groups if groups else 0.0
    whole = all((both[f"{name}_known_{side}"] == both[f"groups_{side}"]).all() for side in "ab")
    differences = (both[f"{name}_a"] - both[f"{name}_b"]).to_numpy(dtype=float)
    return row | _paired(differences if whole else differences[:0], float(len(differences)))


def _paired(differences: Floats, times: float) -> dict[str, float]:
    found = paired_bootstrap(differences.tolist(), seed=SEED) if len(differences) else NOT_KNOWN
    scaled = {name: value * times for name, value in zip(("difference", "low", "high"), found, strict=True)}
    return {**scaled, "steps": len(differences)}


# ---------------------------------------------------------------------- steps


def _steps(a: RunView, b: RunView, sizes: tuple[int, int], common: int) -> pd.DataFrame:
    left, right = (_run_steps(view).add_suffix(f"_{side}") for view, side in ((a, "a"), (b, "b")))
    table = left.join(right, how="outer").sort_index()
    first, second = (view.query(f"SELECT DISTINCT step, env, task FROM {visits(view)}") for view in (a, b))
    table["shared"] = first.merge(second, on=["step", "env", "task"]).groupby("step").size()
    one, other = table["picks_a"], table["picks_b"]
    table["shared"] = table["shared"].fillna(0.0).where((one > 0) & (other > 0))
    table["jaccard"] = table["shared"] / (one + other - table["shared"])
    chance = common / (sizes[0] * sizes[1]) if all(sizes) else math.nan
    table["shared_by_chance"] = one * other * chance
    return table.rename_axis("step").reset_index()


def _run_steps(view: RunView) -> pd.DataFrame:
    """By step: groups, what they showed, what was picked, and what was reached so far."""
    table = view.query(
        f"""
        WITH visits AS {visits(view)},
        first_task AS (SELECT env, task, min(step) step FROM visits GROUP BY env, task),
        first_env AS (SELECT env, min(step) step FROM visits GROUP BY env),
        fresh AS (SELECT step, count(*) n FROM first_task GROUP BY step),
        opened AS (SELECT step, count(*) n FROM first_env GROUP BY step),
        picked AS (SELECT step, count(DISTINCT (env, task))::DOUBLE picks FROM visits GROUP BY step),
        believed AS (SELECT step, avg(predicted) predicted_variance FROM outcomes GROUP BY step),
        seen AS (SELECT step, count(*)::DOUBLE AS groups, avg(mixed::INTEGER) informative_share,
            avg(variance) realised_variance FROM {COUNTED} WHERE step IS NOT NULL GROUP BY step),
        places AS (SELECT step FROM picked UNION SELECT step FROM seen)
        SELECT step, coalesce(groups, 0) AS groups, informative_share, predicted_variance, realised_variance,
            coalesce(picks, 0) picks, sum(coalesce(opened.n, 0)) OVER (ORDER BY step)::DOUBLE environments,
            sum(coalesce(fresh.n, 0)) OVER (ORDER BY step)::DOUBLE tasks
        FROM places LEFT JOIN seen USING (step) LEFT JOIN picked USING (step) LEFT JOIN believed USING (step)
            LEFT JOIN fresh USING (step) LEFT JOIN opened USING (step)
        ORDER BY step"""
    )
    return table.set_index("step")


# ---------------------------------------------------------------------- environments and tasks


def _environments(a: RunView, b: RunView) -> pd.DataFrame:
    left, right = (_run_environments(view).add_suffix(f"_{side}") for view, side in ((a, "a"), (b, "b")))
    table = left.join(right, how="outer").sort_index()
    counts = [f"{name}_{side}" for name in ("picks", "picks_share", "groups") for side in "ab"]
    table[counts] = table[counts].fillna(0.0)
    for name, given in (("picks", "picks"), ("share", "picks_share"), ("informative", "informative_share")):
        table[f"{name}_difference"] = table[f"{given}_a"] - table[f"{given}_b"]
    return table.rename_axis("env").reset_index()


def _run_environments(view: RunView) -> pd.DataFrame:
    table = view.query(
        f"""
        WITH pool AS (SELECT DISTINCT env FROM tasks),
        picked AS (SELECT env, count(*)::DOUBLE picks FROM {visits(view)} GROUP BY env),
        seen AS (SELECT env, count(*)::DOUBLE AS groups, avg(mixed::INTEGER) informative_share
            FROM {COUNTED} GROUP BY env)
        SELECT env, coalesce(picks, 0) picks, coalesce(picks / sum(picks) OVER (), 0) picks_share,
            coalesce(groups, 0) AS groups, informative_share
        FROM pool LEFT JOIN picked USING (env) LEFT JOIN seen USING (env) ORDER BY env"""
    )
    return table.set_index("env")


def _only(a: RunView, b: RunView) -> pd.DataFrame:
    first, second = _picked(a), _picked(b)
    tables = []
    for side, mine, theirs, other in (("a", first, second, b), ("b", second, first, a)):
        table = mine[~mine.index.isin(theirs.index)].reset_index()
        catalogue = pd.MultiIndex.from_frame(other.query("SELECT env, task FROM tasks"))
        table["known"] = pd.MultiIndex.from_frame(table[["env", "task"]]).isin(catalogue)
        table.insert(0, "run", side)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _picked(view: RunView) -> pd.DataFrame:
    """By task: picks, first step, and what its counted groups were."""
    table = view.query(
        f"""
        WITH picked AS (SELECT env, task, count(*) picks, min(step) first_step FROM {visits(view)} GROUP BY env, task),
        seen AS (SELECT env, task, count(*) AS groups, count(*) FILTER (mixed) mixed FROM {COUNTED} GROUP BY env, task)
        SELECT env, task, picks, first_step, coalesce(groups, 0) AS groups, coalesce(mixed, 0) mixed
        FROM picked LEFT JOIN seen USING (env, task) ORDER BY env, task"""
    )
    return table.set_index(["env", "task"])
