"""A report's word on a second run: what differs, whether that speaks of the schedulers, and how sure it is.

Two runs that trained are held against each other where it counts: which was first at what both reached, and what each
spent on it.
"""

from __future__ import annotations

import math

import msgspec
import pandas as pd

from .comparable import comparability
from .compare import compare
from .report_words import count, number, percent
from .run_view import RunView
from .summary import COUNTED, measures

__all__ = ["Against", "against"]

HIGHER_IS_BETTER = ("heldout_success",)
"""Measures of a trainer of which more is better; of any other (a loss, a length) the highest value says nothing."""
COSTS = ("rollouts", "turns", "tool_calls")
"""What runs are held against each other by; columns of the counted groups but for the first."""


class Against(msgspec.Struct, frozen=True):
    """What the second run says; names in it come from manifests."""

    sentence: str
    caveats: tuple[str, ...]
    figures: pd.DataFrame
    """`Comparison.headline`: a is the run of the report, b the second one."""


def against(a: RunView, b: RunView) -> Against:
    """Run `a`, of which the report is, against run `b`."""
    found, fit = compare(a, b), comparability(a, b)
    name = b.name
    said = []
    if fit.word != "comparable":
        told = "; ".join((*fit.against, *fit.care))
        said.append(f"This run (A) and {name} (B) are {fit.word}: {told}.")
    if not fit.against:  # else any figure would be read as the schedulers' doing
        said += [_shared(found.headline, name), *_measured(a, b, name), _bill("Spent in all", a, b, name)]
    caveats = tuple(f"{name}: {text}." for text in fit.limits)
    return Against(" ".join(filter(None, said)), caveats, found.headline)


def _shared(headline: pd.DataFrame, name: str) -> str:
    """The share of rollouts in flat groups, and what lies between the two."""
    row = headline[headline["figure"] == "flat_share"].iloc[0]
    if math.isnan(row["a"]) or math.isnan(row["b"]):
        return f"{name} and this run observed nothing that could be held against each other."
    text = (
        f"{percent(row['a'], 1)} of this run's rollouts went to groups whose rewards were all the same, "
        f"{percent(row['b'], 1)} of those of {name}"
    )
    if math.isnan(row["low"]) or row["steps"] < 2:
        return f"{text}; their steps cannot be paired, so the difference has no interval."
    if row["low"] == row["high"] == 0.0:
        return f"{text}: on {count(row['steps'])} steps of both they do not differ in it."
    ends = " to ".join(f"{100 * end:+.1f}" for end in (row["low"], row["high"]))
    clear = "clear" if row["low"] > 0 or row["high"] < 0 else "not clear"
    return (
        f"{text}: a difference of {100 * row['difference']:+.1f} points by step (95 % interval {ends}, "
        f"{count(row['steps'])} steps), {clear} on these two runs."
    )


def _measured(a: RunView, b: RunView, name: str) -> list[str]:
    """What both trainers measured, as far as it is known that more of it is better."""
    left, right = (set(measures(view)["metric"]) for view in (a, b))
    common = left & right
    told = [_reached(a, b, metric, name) for metric in HIGHER_IS_BETTER if metric in common]
    if others := len(common.difference(HIGHER_IS_BETTER)):
        what = "one more measure" if others == 1 else f"{count(others)} more measures"
        told.append(f"Both have {what}, of which it is not known whether higher is better: left out.")
    return told


def _reached(a: RunView, b: RunView, metric: str, name: str) -> str:
    """Which run was first at the highest value of a metric that both reached, and what each spent before."""
    curves = [_curve(view, metric) for view in (a, b)]
    if not all(len(curve) for curve in curves):
        return ""
    level = min(float(curve["value"].max()) for curve in curves)
    ours, theirs = (int(curve["step"][curve["value"] >= level].iloc[0]) for curve in curves)
    last = [number(float(curve["value"].iloc[-1])) for curve in curves]
    if ours == theirs:
        first = f"both at step {ours}"
    elif ours < theirs:
        first = f"this run first, at step {ours}; {name} at step {theirs}"
    else:
        first = f"{name} first, at step {theirs}; this run at step {ours}"
    bill = _bill("Spent to get there", a, b, name, ours, theirs)
    return (
        f"Both reached {metric.replace('_', ' ')} {number(level)}: {first}. {bill} "
        f"At the end this run stood at {last[0]}, {name} at {last[1]}."
    )


def _curve(view: RunView, metric: str) -> pd.DataFrame:
    """The known values of a metric, in order of step."""
    found = measures(view)
    return found[(found["metric"] == metric) & found["value"].notna()].sort_values("step")


def _bill(
    when: str, a: RunView, b: RunView, name: str, before_a: int | None = None, before_b: int | None = None
) -> str:
    """What each run spent before a step (without one, in all) and the difference, of costs that both have on record."""
    ours, theirs = _spent(a, before_a), _spent(b, before_b)
    told = [
        f"{count(x)} {cost.replace('_', ' ')} against {count(y)} ({_difference(x, y)})"
        for cost in COSTS
        if not math.isnan(x := ours[cost]) and not math.isnan(y := theirs[cost])
    ]
    return f"{when}, this run against {name}: {'; '.join(told)}."


def _spent(view: RunView, before: int | None) -> pd.Series[float]:
    """Each of `COSTS` over the counted groups; NaN unless all groups tell it."""
    sums = ", ".join(f"CASE WHEN count({cost}) = count(*) THEN sum({cost}) END AS {cost}" for cost in COSTS[1:])
    found = view.query(
        f"SELECT coalesce(sum(scored + missing), 0) rollouts, {sums} FROM {COUNTED} "
        "WHERE $before IS NULL OR step < $before",
        {"before": before},
    )
    return found.iloc[0].astype(float)


def _difference(ours: float, theirs: float) -> str:
    if ours == theirs:
        return "as many"
    share = f", {ours / theirs - 1:+.0%}" if theirs else ""
    return f"{count(abs(ours - theirs))} {'more' if ours > theirs else 'fewer'}{share}"
