"""What a report is made of: a few facts about a whole run, each with its interval, and the tables behind its charts.

Intervals are 95 %. Those of shares over the run draw its tasks anew, all groups of a task together (a bootstrap,
evaluate.py); those of a block of steps take its groups one by one (Jeffreys: Brown, Cai and DasGupta 2001). Neither
says anything of another seed.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import betaincinv

from envsched_core.evaluate import (
    Interval,
    Spent,
    over_runs,
    resampled_mean,
    resampled_ranks,
    resampled_rate,
    unit_weights,
    weighted_spearman,
)

from .cold_start import STATE_COLUMNS, picks_by_state
from .run_view import STATES, RunView
from .summary import COUNTED, Summary, steps
from .trends import environments

__all__ = [
    "BLOCKS",
    "FEWEST",
    "STARVED",
    "Guessing",
    "Savings",
    "calibration",
    "evidence_of_picks",
    "guessing",
    "mixed_share",
    "mixed_trend",
    "rank_correlation",
    "savings",
    "visits_by_environment",
]

Floats = NDArray[np.float64]

SEED = 0
"""Of every bootstrap: the same run gives the same report."""
UNITS = 20_000
"""Most units of a bootstrap; beyond, tasks are drawn in lots of several, which holds memory down."""
RANKED = 40_000
"""Most picks whose order is judged: each bootstrap draw ranks them all, and more would change no digit shown."""
BLOCKS = 20
"""Most points of a curve over the steps."""
FEWEST = 16
"""Groups on either side below which a comparison with uniform draws says nothing."""
STARVED = 0.25
"""An environment that got less than this part of what uniform draws would have given it counts as starved."""
INFORMED = STATE_COLUMNS[2:]
"""Evidence states in which the task itself or tasks like it are known."""
NOT_KNOWN = Interval(math.nan, math.nan, math.nan)


class Savings(msgspec.Struct, frozen=True):
    """What scheduling spent on groups whose rewards were all the same, against uniform draws."""

    against: Literal["pool", "draws", "nothing"]
    """pool: every group of the replayed log. draws: the run's own uniform draws. nothing: it cannot be told."""
    how: str
    """What is compared, or why nothing can be."""
    rollouts: int = 0
    """Rollouts that scheduling spent."""
    groups: int = 0
    """Groups they came in."""
    reference: int = 0
    """Groups that stand for uniform draws."""
    flat: float = math.nan
    """Share of scheduling's rollouts in groups whose rewards were all the same."""
    uniform: float = math.nan
    """The same of uniform draws."""
    saved: Interval = NOT_KNOWN
    """uniform - flat, in shares of all rollouts."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.saved.low > 0.0 or self.saved.high < 0.0


class Guessing(msgspec.Struct, frozen=True):
    """When picks began to rest on evidence."""

    picks: int
    guesses: int
    """Picks by score of which nothing was known, not even of their environment (`picks_by_state`)."""
    informed: int
    """Picks that rested on the task's own results or on those of tasks like it."""
    guesses_until: int | None
    """Last step at which most picks were guesses; None = there was none."""
    last_guess: int | None
    """Last step with any guess."""
    informed_from: int | None
    """Step from which on most picks of every step were informed; None = those of the last step were not."""
    informed_steps: int
    """Steps at which most picks were informed."""
    steps: int
    """Steps with picks."""
    last_state: str
    """Evidence state of most picks of the last step; empty without picks."""
    predicts: bool
    """Whether any pick was chosen by a score made of predictions; beside their picks all schedulers keep some."""


def mixed_share(view: RunView) -> Interval:
    """Share of the counted groups with mixed rewards (`Summary.informative_share`), tasks drawn anew."""
    found = _by_task(view, f"{COUNTED}", mixed="count(*) FILTER (mixed)", n="count(*)")
    return _rate(found, "mixed", "n")


def savings(view: RunView, told: Summary) -> Savings:
    """Rollouts in flat groups against uniform draws; exact on a replayed log, estimated from a live run's own draws."""
    if told.kind == "replay":
        return _against_pool(view)
    if told.kind == "live" and told.scheduler != "uniform":
        return _against_draws(view)
    return Savings("nothing", _why_not(told))


def _why_not(told: Summary) -> str:
    reasons = {
        "import": "this is a log without a scheduler; replay it to learn what one would have saved",
        "audit": "an audit invents no reward for what the log did not roll out",
        "shadow": "in a shadow run the trainer chose; what it did not roll out is not known",
        "live": "every pick of this run was a uniform draw",
    }
    return reasons.get(told.kind, "runs of this kind hold nothing to compare with")


def _against_pool(view: RunView) -> Savings:
    source = view.source()
    if source is None:
        return Savings("nothing", "the run folder of the replayed log is not where it was")
    ours = _spent(view, f"{COUNTED}")
    pool = source.query(
        """
        SELECT env, task, count(*) AS groups, avg(scored + missing) rollouts,
            avg(CASE WHEN mixed THEN 0 ELSE scored + missing END) flat
        FROM groups GROUP BY env, task ORDER BY env, task"""
    )
    how = (
        f"Every group of the log is on record, so what uniform draws from its {len(pool):,} tasks spend on average is "
        "computed exactly, not drawn"
    )
    return _compared("pool", how, ours, pool)


def _against_draws(view: RunView) -> Savings:
    sides = [
        _spent(view, f"(SELECT * FROM outcomes WHERE number IS NOT NULL AND outcome {sign} 'uniform_draw')")
        for sign in ("<>", "=")
    ]
    ours, drawn = (int(side["groups"].sum()) for side in sides)
    if min(ours, drawn) < FEWEST:
        return Savings("nothing", f"only {drawn:,} uniform draws of this run were observed; {FEWEST} are the least")
    how = (
        f"{drawn:,} picks of the same run were uniform draws, whatever their score: they stand for what uniform "
        "picking meets under the same policy"
    )
    return _compared("draws", how, *sides)


def _compared(against: Literal["pool", "draws"], how: str, ours: pd.DataFrame, theirs: pd.DataFrame) -> Savings:
    if not len(ours) or not len(theirs):
        return Savings("nothing", "no result has come in yet")
    keys = pd.concat([ours[["env", "task"]], theirs[["env", "task"]]]).drop_duplicates().reset_index(drop=True)
    place = {key: i % UNITS for i, key in enumerate(zip(keys["env"], keys["task"], strict=True))}
    weights = unit_weights(min(len(keys), UNITS), seed=SEED)
    spent = [
        Spent([place[key] for key in zip(t["env"], t["task"], strict=True)], t["flat"].tolist(), t["rollouts"].tolist())
        for t in (ours, theirs)
    ]
    one, other = (resampled_rate([side], weights, seed=SEED) for side in spent)
    return Savings(
        against,
        how,
        int(ours["rollouts"].sum()),
        int(ours["groups"].sum()),
        int(theirs["groups"].sum()),
        one.value,
        other.value,
        over_runs([other], [one], seed=SEED),
    )


def _spent(view: RunView, relation: str) -> pd.DataFrame:
    flat = "coalesce(sum(scored + missing) FILTER (NOT mixed), 0)"
    return _by_task(view, relation, groups="count(*)", rollouts="sum(scored + missing)", flat=flat)


def _by_task(view: RunView, relation: str, **sums: str) -> pd.DataFrame:
    """Sums over the groups of each task, as floats; `relation` and `sums` are SQL of this module."""
    columns = ", ".join(f"({said})::DOUBLE AS {name}" for name, said in sums.items())
    return view.query(f"SELECT env, task, {columns} FROM {relation} GROUP BY env, task ORDER BY env, task")


def _rate(found: pd.DataFrame, top: str, bottom: str) -> Interval:
    if not len(found):
        return NOT_KNOWN
    spent = Spent([i % UNITS for i in range(len(found))], found[top].tolist(), found[bottom].tolist())
    weights = unit_weights(min(len(found), UNITS), seed=SEED)
    return over_runs([resampled_rate([spent], weights, seed=SEED)], seed=SEED)


# ---------------------------------------------------------------------- over the steps


def _blocks(places: list[int], most: int) -> dict[int, int]:
    """Step -> first step of its block, of at most `most` blocks of equally many steps."""
    span = max(-(-len(places) // most), 1)
    return {step: places[i // span * span] for i, step in enumerate(places)}


def mixed_trend(view: RunView) -> pd.DataFrame:
    """Share of groups with mixed rewards by block of steps, scheduled picks and uniform draws apart.

    Columns: step (first of the block), who ("picks by score", "uniform draws"; "groups" in a log without decisions),
    groups, mixed, share, low, high (95 %, Jeffreys). Uniform draws stand in blocks four times as long.
    """
    if len(steps(view)["picks"].to_numpy().nonzero()[0]):
        found = view.query(
            """
            SELECT step, CASE WHEN outcome = 'uniform_draw' THEN 'uniform draws' ELSE 'picks by score' END who,
                count(*)::DOUBLE AS groups, count(*) FILTER (mixed)::DOUBLE mixed
            FROM outcomes WHERE number IS NOT NULL GROUP BY ALL ORDER BY step, who"""
        )
    else:
        found = view.query(
            "SELECT step, 'groups' who, count(*)::DOUBLE AS groups, count(*) FILTER (mixed)::DOUBLE mixed FROM groups "
            "WHERE step IS NOT NULL GROUP BY ALL ORDER BY step"
        )
    places = view.steps()
    short, long = _blocks(places, BLOCKS), _blocks(places, BLOCKS // 4)
    found = found[found["step"].isin(places)]
    drawn = found["who"] == "uniform draws"
    found = found.assign(step=found["step"].map(short).where(~drawn, found["step"].map(long)))
    table = found.groupby(["step", "who"], as_index=False)[["groups", "mixed"]].sum()
    n, k = table["groups"].to_numpy(dtype=float), table["mixed"].to_numpy(dtype=float)
    table["share"], (table["low"], table["high"]) = k / np.maximum(n, 1.0), _jeffreys(k, n)
    return table.astype({"step": "int64", "groups": "int64", "mixed": "int64"})


def _jeffreys(k: Floats, n: Floats) -> tuple[Floats, Floats]:
    """95 % interval of a share, k of n: quantiles of Beta(k + 1/2, n - k + 1/2); 0 and 1 stay ends."""
    low, high = (np.asarray(betaincinv(k + 0.5, n - k + 0.5, at)) for at in (0.025, 0.975))
    return np.where(k == 0, 0.0, low), np.where(k == n, 1.0, high)


def evidence_of_picks(view: RunView) -> pd.DataFrame:
    """What picks rested on, by block of steps.

    Columns: step (first of the block), state, picks, share (of the block's picks).
    """
    found = picks_by_state(view)
    block = found["step"].map(_blocks(found["step"].tolist(), BLOCKS))
    sums = found.groupby(block)[list(STATE_COLUMNS)].sum()
    rows = [
        (int(str(step)), state, int(count), count / max(sum(counts), 1))
        for step, *counts in sums.itertuples()
        for state, count in zip(STATES, counts, strict=True)
    ]
    return pd.DataFrame(rows, columns=["step", "state", "picks", "share"])


def guessing(view: RunView) -> Guessing:
    """When most picks of a step ceased to be guesses, and when they began to rest on the task or on tasks like it."""
    found = picks_by_state(view)
    used = view.row(
        "SELECT count(*) AS picks FROM terms JOIN candidates USING (candidate) WHERE kept_as = 'pick' "
        "AND outcome <> 'uniform_draw' AND (name LIKE 'exploitation_%' OR name = 'uncertainty')"
    )
    informed = found[list(INFORMED)].sum(axis=1)
    guessed = found["step"][2 * found["guesses"] > found["picks"]]
    ever = found["step"][found["guesses"] > 0]
    knew = 2 * informed > found["picks"]
    after = found["step"][~knew].max()  # NaN where there is none
    settled = found["step"] if pd.isna(after) else found["step"][found["step"] > after]
    return Guessing(
        picks=int(found["picks"].sum()),
        guesses=int(found["guesses"].sum()),
        informed=int(informed.sum()),
        guesses_until=int(guessed.iloc[-1]) if len(guessed) else None,
        last_guess=int(ever.iloc[-1]) if len(ever) else None,
        informed_from=int(settled.iloc[0]) if len(settled) else None,
        informed_steps=int(knew.sum()),
        steps=len(found),
        last_state=STATES[int(found[list(STATE_COLUMNS)].iloc[-1].to_numpy().argmax())] if len(found) else "",
        predicts=bool(used["picks"]),
    )


# ---------------------------------------------------------------------- environments and predictions


def visits_by_environment(view: RunView) -> pd.DataFrame:
    """Who got how much: one row an environment, fewest visits against uniform draws first.

    Columns: env, tasks (in the catalogue), seen (of them), visits (picks; in a log without decisions, groups),
    expected (visits that uniform draws over the catalogue would have given), ratio (visits / expected), groups, mixed,
    mixed_share, log_mixed_share (the same over all groups of the replayed log; missing without one), last_step,
    starved (ratio below STARVED, at least one visit expected).
    """
    table = environments(view)
    visits = table["picks"] if table["picks"].sum() else table["groups"]
    total, tasks = float(visits.sum()), float(table["tasks"].sum())
    expected = total * table["tasks"].astype(float) / max(tasks, 1.0)
    ratio = (visits.astype(float) / expected).where(expected > 0)
    out = pd.DataFrame(
        {
            "env": table["env"],
            "tasks": table["tasks"],
            "seen": table["tasks_seen"],
            "visits": visits,
            "expected": expected,
            "ratio": ratio,
            "groups": table["groups"],
            "mixed": table["mixed"],
            "mixed_share": (table["mixed"] / table["groups"]).where(table["groups"] > 0),
            "last_step": table["last_step"],
            "starved": (ratio < STARVED) & (expected >= 1.0),
        }
    )
    source = view.source() if view.manifest.kind == "replay" else None
    known = source.query("SELECT env, avg(mixed::INTEGER) log_mixed_share FROM groups GROUP BY env") if source else None
    out = out.merge(known, on="env", how="left") if known is not None else out.assign(log_mixed_share=math.nan)
    return out.sort_values(["ratio", "env"]).reset_index(drop=True)


def _predictions(view: RunView) -> pd.DataFrame:
    """Observed picks: env, task, predicted (what groups of their size show of it on average) and observed variance."""
    return view.query(
        """
        SELECT env, task, predicted * (scored - 1) / scored predicted, observed FROM outcomes
        WHERE scored > 1 AND predicted IS NOT NULL AND observed IS NOT NULL ORDER BY candidate"""
    )


def _units(found: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The task of each row as a number [n], and how often each task is drawn [D, M]."""
    units = np.asarray(found.groupby(["env", "task"], sort=False).ngroup(), dtype=np.int64) % UNITS
    return units, unit_weights(int(units.max()) + 1, seed=SEED)


def rank_correlation(view: RunView) -> tuple[Interval, int]:
    """Spearman's rank correlation of predicted and observed variance over the picks, tasks drawn anew, and how many.

    Of more than RANKED picks a random sample is judged.
    """
    found = _predictions(view)
    if len(found) < FEWEST:
        return NOT_KNOWN, len(found)
    if len(found) > RANKED:
        found = found.sample(RANKED, random_state=SEED)
    units, weights = _units(found)
    x, y = (found[name].to_numpy(dtype=float) for name in ("predicted", "observed"))
    return over_runs([resampled_ranks(weighted_spearman, x, y, units, weights)], seed=SEED), len(found)


def calibration(view: RunView, bins: int = 8) -> pd.DataFrame:
    """Predicted against observed variance in `bins` equally full bins of the prediction, as parts of the largest, 0.25.

    Columns: predicted and observed (means, [0, 1]), low, high (95 % of observed, tasks drawn anew), groups.
    """
    columns = ["predicted", "observed", "low", "high", "groups"]
    found = _predictions(view)
    if len(found) < FEWEST:
        return pd.DataFrame({name: pd.Series(dtype=float) for name in columns})
    units, weights = _units(found)
    x, y = (4.0 * found[name].to_numpy(dtype=float) for name in ("predicted", "observed"))
    edge = pd.qcut(found["predicted"], bins, labels=False, duplicates="drop").fillna(0).to_numpy()
    rows = []
    for part in (edge == i for i in np.unique(edge)):
        observed = over_runs([resampled_mean(y[part], units[part], weights)], seed=SEED)
        rows.append((float(x[part].mean()), *observed, int(part.sum())))
    return pd.DataFrame(rows, columns=columns)
