"""Curves of many paired runs -> scores, rows and a chart; pure functions.

A pair is (world seed, run seed): same world, base policy and random streams. Differences are taken within pairs;
intervals are 95 %, by resampling worlds, then seeds in each (evaluate.nested_bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.evaluate import nested_bootstrap
from envsched_core.testbed import Curve

from .chart import Point, curves_svg
from .rows import cell

__all__ = [
    "BASELINE",
    "DAPO",
    "OURS",
    "OURS_FILLED",
    "REFERENCE",
    "Run",
    "Runs",
    "Score",
    "chart",
    "curve_rows",
    "early_share",
    "score",
    "score_rows",
]

BASELINE, REFERENCE, OURS = "uniform", "oracle", "envsched"
DAPO, OURS_FILLED = "dapo", "dapo-envsched"
MARK = 40
"""The step at which schedulers are compared besides the area."""
EARLY = 3
"""First steps of a cold start."""

Floats = NDArray[np.float64]
Three = tuple[float, float, float]


class Run(NamedTuple):
    """One run of one scheduler."""

    world_seed: int
    seed: int
    scheduler: str


class Score(msgspec.Struct, frozen=True):
    """How one scheduler did. Success is held-out success, mean over environments where it does not say micro.

    A step is a step's worth of generated rollouts (testbed/driving.py).
    """

    curve: dict[int, float]
    """Success by step, mean over pairs."""
    at_40: float | None
    """Success at step 40; None for a run that did not measure it."""
    difference_at_40: Three | None
    """Paired difference to uniform: mean, low, high."""
    area: float
    """Mean of the curve over steps (trapezium rule)."""
    steps_to_uniform_best: float | None
    """Step at which the mean curve reaches uniform's best, between measurements by a straight line; None = never."""
    headroom_captured: float | None
    """(it - uniform) / (oracle - uniform), by area; None without the oracle or when that gains nothing."""
    zero_variance_share: float
    """Share of groups whose rewards were all equal."""
    early_informative_share: float
    """Share of groups with mixed rewards in the first three steps: the cold start."""
    early_informative_ratio: Three | None
    """The same over uniform's; None where uniform met no mixed group."""
    trusted_within: float
    """Share of decisions that trusted neighbours within environments, the first included, which rests on the prior."""
    trusted_cross: float
    """The same across environments."""
    tasks_seen: float
    rollouts: float
    """All that were generated, flat groups that were discarded too."""
    tool_calls: float
    """The cost: tool calls of all of them."""
    updates: float
    difference_area: Three
    """The primary figure: paired difference of the area to uniform."""
    envsched_minus: Three | None
    """EnvSched's area minus this one's, paired; None without EnvSched, and for itself."""
    difference_at_equal_calls: Three
    """As `difference_area`, over as many tool calls as both runs of a pair made, in place of steps."""
    envsched_minus_at_equal_calls: Three | None
    """As `envsched_minus`, the same way."""
    dapo_envsched_minus: Three | None
    """The same of EnvSched in a loop that discards flat groups: beside `dapo`, what scheduling adds there."""
    at_end: float
    difference_at_end: Three
    steps_to_95_percent: float | None
    """As `steps_to_uniform_best`, for 95 % of it."""
    headroom_interval: tuple[float, float] | None
    headroom_captured_at_40: float | None
    curve_interval: dict[int, tuple[float, float]]
    curve_micro: dict[int, float]
    """Success by step, mean over tasks."""


class Runs:
    """The runs of all schedulers as arrays [worlds, seeds]."""

    def __init__(self, curves: Mapping[Run, Curve]) -> None:
        self.curves = curves
        self.worlds = list(dict.fromkeys(run.world_seed for run in sorted(curves)))
        self.seeds = list(dict.fromkeys(run.seed for run in sorted(curves)))
        self.names = list(dict.fromkeys(run.scheduler for run in curves))
        self.steps = list(next(iter(curves.values())).macro)

    def of(self, scheduler: str, number: Callable[[Curve], float]) -> Floats:
        """One number of every run of a scheduler [W, S]."""
        rows = [[number(self.curves[Run(w, s, scheduler)]) for s in self.seeds] for w in self.worlds]
        return np.array(rows, dtype=float)

    def gain(self, scheduler: str, number: Callable[[Curve], float], over: str = BASELINE) -> Floats:
        """Paired differences to uniform, or to another [W, S]."""
        return self.of(scheduler, number) - self.of(over, number)

    def gain_at_equal_calls(self, scheduler: str, over: str = BASELINE) -> Floats:
        """Paired differences of the mean success over as many tool calls as both runs of a pair made [W, S]."""

        def gain(world: int, seed: int) -> float:
            one, other = (self.curves[Run(world, seed, name)] for name in (scheduler, over))
            calls = min(one.tool_calls, other.tool_calls)
            return one.area_of_calls(calls) - other.area_of_calls(calls)

        return np.array([[gain(w, s) for s in self.seeds] for w in self.worlds])


def score(curves: Mapping[Run, Curve]) -> dict[str, Score]:
    """Every scheduler; `curves` holds uniform, and every pair for each."""
    runs = Runs(curves)
    uniform = {step: float(runs.of(BASELINE, _macro(step)).mean()) for step in runs.steps}
    return {name: _score(name, runs, uniform) for name in runs.names}


def _score(name: str, runs: Runs, uniform: Mapping[int, float]) -> Score:
    success = {step: runs.of(name, _macro(step)) for step in runs.steps}
    curve = {step: float(values.mean()) for step, values in success.items()}
    ends = {step: nested_bootstrap(values, seed=step) for step, values in success.items()}
    last, best = runs.steps[-1], max(uniform.values())
    marked = MARK in success
    headroom = _headroom(name, runs, Curve.area)
    at_mark = _headroom(name, runs, _macro(MARK)) if marked else None
    return Score(
        curve=curve,
        at_40=curve.get(MARK),
        difference_at_40=_difference(runs.gain(name, _macro(MARK))) if marked else None,
        area=float(runs.of(name, Curve.area).mean()),
        steps_to_uniform_best=_reaches(curve, best),
        headroom_captured=headroom[0] if headroom else None,
        zero_variance_share=float(runs.of(name, lambda c: float(np.mean(c.flat))).mean()),
        early_informative_share=float(runs.of(name, early_share).mean()),
        early_informative_ratio=_ratio(runs.of(name, early_share), runs.of(BASELINE, early_share)),
        trusted_within=float(runs.of(name, lambda c: c.trusted_within).mean()),
        trusted_cross=float(runs.of(name, lambda c: c.trusted_cross).mean()),
        tasks_seen=float(runs.of(name, lambda c: c.tasks_seen).mean()),
        rollouts=float(runs.of(name, lambda c: c.rollouts).mean()),
        tool_calls=float(runs.of(name, lambda c: c.tool_calls).mean()),
        updates=float(runs.of(name, lambda c: c.updates).mean()),
        difference_area=_difference(runs.gain(name, Curve.area)),
        envsched_minus=_lead(OURS, name, runs),
        difference_at_equal_calls=_difference(runs.gain_at_equal_calls(name)),
        envsched_minus_at_equal_calls=(
            _difference(runs.gain_at_equal_calls(OURS, over=name)) if _led(OURS, name, runs) else None
        ),
        dapo_envsched_minus=_lead(OURS_FILLED, name, runs),
        at_end=curve[last],
        difference_at_end=_difference(runs.gain(name, _macro(last))),
        steps_to_95_percent=_reaches(curve, 0.95 * best),
        headroom_interval=headroom[1:] if headroom else None,
        headroom_captured_at_40=at_mark[0] if at_mark else None,
        curve_interval={step: (interval.low, interval.high) for step, interval in ends.items()},
        curve_micro={step: float(runs.of(name, _micro(step)).mean()) for step in runs.steps},
    )


def _macro(step: int) -> Callable[[Curve], float]:
    return lambda curve: curve.macro[step]


def _micro(step: int) -> Callable[[Curve], float]:
    return lambda curve: curve.micro[step]


def early_share(curve: Curve) -> float:
    """Share of mixed groups in a run's first three steps."""
    return 1.0 - float(np.mean(curve.flat[:EARLY]))


def _difference(gains: Floats) -> Three:
    found = nested_bootstrap(gains, seed=0)
    return (found.mean, found.low, found.high)


def _lead(ours: str, name: str, runs: Runs) -> Three | None:
    """One scheduler's area minus another's; None where the first did not run, and for itself."""
    return _difference(runs.gain(ours, Curve.area, over=name)) if _led(ours, name, runs) else None


def _led(ours: str, name: str, runs: Runs) -> bool:
    """Whether the first ran, beside another."""
    return ours in runs.names and name != ours


def _ratio(tops: Floats, below: Floats) -> Three | None:
    """Mean over mean, and its interval; None where the lower one is not above 0."""
    if below.mean() <= 0:
        return None
    found = nested_bootstrap(tops, below, seed=0)
    return (found.mean, found.low, found.high)


def _headroom(name: str, runs: Runs, number: Callable[[Curve], float]) -> Three | None:
    """Share of the oracle's gain, and its interval; None when there is no oracle or it gains nothing."""
    return _ratio(runs.gain(name, number), runs.gain(REFERENCE, number)) if REFERENCE in runs.names else None


def _reaches(curve: Mapping[int, float], wanted: float) -> float | None:
    """The first step at which a curve of straight lines is at least `wanted`."""
    before: tuple[int, float] | None = None
    for step, value in curve.items():
        if value >= wanted:
            if before is None or value == before[1]:
                return float(step)
            share = (wanted - before[1]) / (value - before[1])
            return round(before[0] + share * (step - before[0]), 1)
        before = (step, value)
    return None


def chart(scores: Mapping[str, Score], title: str) -> str:
    """The mean curves with their intervals, as SVG."""
    curves = {
        name: [Point(step, value, *found.curve_interval[step]) for step, value in found.curve.items()]
        for name, found in scores.items()
    }
    return curves_svg(curves, title=title, x_label="steps of generated rollouts", y_label="held-out success")


def curve_rows(world: str, curves: Mapping[Run, Curve]) -> Iterator[list[str]]:
    """Every measurement of every run, with a head."""
    yield ["world", "world_seed", "seed", "scheduler", "step", "success", "success_micro"]
    for run, curve in sorted(curves.items()):
        for step, value in curve.macro.items():
            numbers = (f"{value:.6f}", f"{curve.micro[step]:.6f}")
            yield [world, str(run.world_seed), str(run.seed), run.scheduler, str(step), *numbers]


def score_rows(world: str, scores: Mapping[str, Score]) -> Iterator[list[str]]:
    """A row a scheduler, with a head; three numbers of an interval are three columns."""
    leads = ("envsched_minus", "dapo_envsched_minus")
    equal = ("difference_at_equal_calls", "envsched_minus_at_equal_calls")
    spread = ("difference_area", *leads, *equal, "difference_at_40", "difference_at_end", "early_informative_ratio")
    apart = (*spread, "curve", "curve_micro", "curve_interval", "headroom_interval")
    plain = [name for name in Score.__struct_fields__ if name not in apart]
    yield ["world", "scheduler", *plain, *(f"{name}{end}" for name in spread for end in ("", "_low", "_high"))]
    for name, found in scores.items():
        threes = [getattr(found, field) or (None, None, None) for field in spread]
        values = [getattr(found, field) for field in plain] + [value for three in threes for value in three]
        yield [world, name, *map(cell, values)]
