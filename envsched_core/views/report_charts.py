"""The report's charts: at most six, each with the table it is drawn from and a sentence on how to read it.

Drawn as SVG by the helpers of bench/ (lines with intervals, dots), so they need neither a browser nor a script.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pandas as pd

from envsched_core.bench.chart import Point, curves_svg
from envsched_core.bench.dots import dots_svg
from envsched_core.evaluate import Interval

from .report_facts import Savings
from .run_view import STATES
from .trends import Coverage

__all__ = ["Chart", "charts", "printable", "svg"]

MOST_ROWS = 20
"""Environments drawn; the table has all."""
LONGEST = 30
"""Characters of a name beside a chart; its table has the whole name."""

Curves = dict[str, tuple[Point, ...]]


class Chart(msgspec.Struct, frozen=True):
    """One chart: what it shows, and what it is drawn from. Names in it come from a log."""

    key: str
    title: str
    reading: str
    """How to read it, in a sentence."""
    table: str
    """Key of its table among the report's."""
    x_label: str
    y_label: str = ""
    curves: Curves = {}
    """Lines by name; empty where dots are drawn."""
    dots: dict[str, Interval] = {}


def svg(chart: Chart) -> str:
    """The chart as one SVG element, every text in it escaped."""
    if chart.curves:
        return curves_svg(chart.curves, title=chart.title, x_label=chart.x_label, y_label=chart.y_label)
    return dots_svg(chart.dots, title=chart.title, x_label=chart.x_label, marked="")


def charts(
    tables: dict[str, pd.DataFrame], covered: Coverage, saved: Savings, *, decided: bool, predicts: bool
) -> tuple[Chart, ...]:
    """The charts that these tables can fill, the weightiest first.

    `decided`: whether the run holds decisions (else it is a log); `predicts`: whether they rest on predictions.
    """
    found = [
        _mixed(tables["mixed_by_step"], saved),
        _measures(tables["measures"]),
        _states(tables["evidence_by_step"], predicts=predicts),
        _environments(tables["environments"], decided=decided),
        _calibration(tables["calibration"]),
        _coverage(covered),
    ]
    return tuple(chart for chart in found if chart is not None)


def _curve(table: pd.DataFrame, x: str, y: str, low: str = "", high: str = "") -> tuple[Point, ...]:
    """Points with a known y, in order of x."""
    known = table[table[y].notna() & (table[x] >= 0)].sort_values(x)
    ends = (known[low or y], known[high or y])
    return tuple(Point(*map(float, row)) for row in zip(known[x], known[y], *ends, strict=True))


def _lines(curves: Curves) -> Curves:
    """Those that are lines: one point is none."""
    return {name: points for name, points in curves.items() if len(points) > 1}


def _mixed(table: pd.DataFrame, saved: Savings) -> Chart | None:
    curves = _lines({str(who): _curve(part, "step", "share", "low", "high") for who, part in table.groupby("who")})
    if not curves:
        return None
    reading = "Higher is better: only mixed groups teach the policy anything. The shade is a 95 % interval."
    if saved.against == "pool" and not math.isnan(saved.uniform):
        steps = [point.x for points in curves.values() for point in points]
        level = 1.0 - saved.uniform
        curves["uniform, expected"] = tuple(Point(x, level, level, level) for x in (min(steps), max(steps)))
        reading += " The level line is what uniform draws from the log are expected to give."
    title, y = "Groups that could teach something", "share of mixed groups"
    return Chart("mixed", title, reading, "mixed_by_step", "step", y, curves)


def _measures(table: pd.DataFrame) -> Chart | None:
    curves = {str(name): _curve(part, "step", "value") for name, part in table.groupby("metric")}
    curves = dict(list(_lines(curves).items())[:4])
    if not curves:
        return None
    names = " and ".join(name.replace("_", " ") for name in curves)
    reading = "What the trainer measured on the way. Without a second run it does not tell what scheduling added."
    drawn = dict(zip(_distinct(list(curves)), curves.values(), strict=True))
    return Chart("measures", f"Measured by the trainer: {_short(names)}", reading, "measures", "step", "value", drawn)


def _states(table: pd.DataFrame, *, predicts: bool) -> Chart | None:
    parts = {state: table[table["state"] == state] for state in STATES}
    curves = _lines({state: _curve(part, "step", "share") for state, part in parts.items() if len(part)})
    if not curves:
        return None
    title = "What picks rested on"
    reading = (
        "What the picks of a step rested on. Guessing stops after the last step at which most picks were guesses: "
        "prior only, and chosen by score (a uniform draw is no guess). A point may stand for several steps."
    )
    if not predicts:
        title = "What was known of the picks"
        reading = "What was on record of the picks of a step. The choice was made without it."
    return Chart("evidence", title, reading, "evidence_by_step", "step", "share of picks", curves)


def _environments(table: pd.DataFrame, *, decided: bool) -> Chart | None:
    known = table[table["ratio"].notna()].sort_values(["ratio", "env"])
    if len(known) < 2 or not known["visits"].sum():
        return None
    half = MOST_ROWS // 2
    shown = known if len(known) <= MOST_ROWS else pd.concat([known.head(half), known.tail(half)])
    what = "picks" if decided else "groups"
    reading = f"1 means as many {what} as uniform draws would give; near 0 means starved."
    if len(shown) < len(known):
        reading += f" Shown are the {half} least and the {half} most visited of {len(known):,}; the table has all."
    dots = dict(zip(_distinct(shown["env"].tolist()), map(_dot, shown["ratio"]), strict=True))
    x = f"{what}, over what uniform draws would give"
    return Chart("environments", "Who got how much", reading, "environments", x, dots=dots)


def _calibration(table: pd.DataFrame) -> Chart | None:
    curves = _lines({"observed": _curve(table, "predicted", "observed", "low", "high")})
    if not curves:
        return None
    ends = [point.x for point in curves["observed"]]
    curves["if predictions held"] = tuple(Point(x, x, x, x) for x in (min(ends), max(ends)))
    reading = "On the dashed line predictions hold; above it tasks varied more than was predicted, below it less."
    x, y = "predicted reward variance, as part of the most there can be (0.25)", "observed, the same"
    return Chart("calibration", "Were predictions right?", reading, "calibration", x, y, curves)


def _coverage(covered: Coverage) -> Chart | None:
    pairs = {"this run": "tasks", "uniform, expected": "uniform_tasks"}
    curves = _lines({name: _curve(covered.table, "step", column) for name, column in pairs.items()})
    ours, theirs = (covered.table[name].to_numpy(dtype=float) for name in pairs.values())
    if not curves or np.allclose(ours, theirs):  # where no task can come twice, every scheduler reaches as many
        return None
    reading = f"How many of the {covered.tasks:,} tasks were reached, against uniform draws of as many picks."
    return Chart("coverage", "Tasks reached so far", reading, "coverage", "step", "distinct tasks", curves)


def _dot(value: float) -> Interval:
    return Interval(float(value), math.nan, math.nan)


def printable(text: str) -> str:
    """White space as plain spaces; marks that could turn or hide the text around them as unknown characters."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def _short(name: str) -> str:
    """A name that fits beside a chart, its middle left out; what cannot be printed is marked."""
    clean = printable(name)
    return clean if len(clean) <= LONGEST else f"{clean[: LONGEST // 2]}…{clean[1 - LONGEST // 2 :]}"


def _distinct(names: list[str]) -> list[str]:
    """Short names, told apart by a number where they have become the same."""
    seen: dict[str, int] = {}
    out = []
    for name in map(_short, names):
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
