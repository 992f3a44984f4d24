"""Sentences of the compare page: what an interval allows to say, and what a change of settings did. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from envsched_core.explanation import ties

from . import words

__all__ = [
    "INTERVALS",
    "change",
    "difference_sentence",
    "headline_sentence",
    "lacking_sentence",
    "setting",
    "smallest_sentence",
    "what_if_sentence",
]

INTERVALS = (
    "Intervals hold 95 % of what 2,000 draws of whole steps give (bootstrap; differences pair the steps that both runs "
    "observed). They say how far other steps like these could move a figure; they say nothing of another seed."
)
COUNTED_SHARES = ("informative_share", "flat_share")
FIGURES = {
    "informative_share": "Groups with mixed rewards",
    "flat_share": "Rollouts in groups whose rewards were all the same (fewer are better)",
    "mean_variance": "Mean variance of the groups' rewards",
    "mean_reward": "Mean reward of what was rolled out (easier tasks give more; no measure of the policy)",
}
SETTINGS = {
    "weight_variance": "weight of predicted variance",
    "weight_usable": "weight of the chance of a mixed group",
    "weight_uncertainty": "weight of uncertainty",
    "weight_cost": "exponent of expected cost",
    "weight_environment": "exponent of environment coverage",
    "weight_pattern": "exponent of pattern coverage",
    "weight_task": "exponent of task coverage",
    "weight_similarity": "weight of the similarity penalty",
    "temperature": "temperature of the draw (0 = greedy)",
    "uniform_share": "share of uniform draws",
    "max_share": "largest share of one environment",
    "max_shares": "largest share, by environment",
    "min_shares": "smallest share, by environment",
    "pin_tasks": "pinned tasks",
    "pin_environments": "pinned environments",
    "exclude_tasks": "excluded tasks",
    "exclude_environments": "excluded environments",
    "kappa_env": "trust in the environment's mean",
    "features_share": "share of features in it",
    "tau_within": "trust in the within-environment relation",
    "tau_cross": "trust in the cross-environment relation",
}


def setting(name: str) -> str:
    """A setting in words; one not known here shows its name."""
    return SETTINGS.get(name, name.replace("_", " "))


def headline_sentence(row: Mapping[str, Any]) -> str:
    """One figure of both runs with its intervals, and what their difference allows to say."""
    share = row["figure"] in COUNTED_SHARES
    a, b = (_side(row, side, share) for side in "ab")
    return f"{FIGURES.get(row['figure'], row['figure'])}: A {a}, B {b}. {difference_sentence(row)}"


def _side(row: Mapping[str, Any], side: str, share: bool) -> str:
    def text(value: float) -> str:
        return words.percent(value) if share else words.number(value)

    value, low, high = row[side], row[f"{side}_low"], row[f"{side}_high"]
    return text(value) if math.isnan(low) else f"{text(value)} ({text(low)} to {text(high)})"


def difference_sentence(row: Mapping[str, Any]) -> str:
    """Whether the paired difference A - B is more than the scatter of steps."""
    gap, low, high, steps = row["difference"], row["low"], row["high"], int(row["steps"])
    share = row["figure"] in COUNTED_SHARES
    if math.isnan(gap):
        return "No step tells it of both runs, so there is no difference to show."
    said = f"On the {words.several(steps, 'step')} of both, A - B is {_signed(gap, share)}"
    if steps < 2:
        return f"{said}; one step has no interval."
    said += f" (95 % {_signed(low, share)} to {_signed(high, share)})"
    if low == high == 0.0:
        return f"{said}: the runs do not differ in it."
    if low > 0 or high < 0:
        return f"{said}: without 0 in it, so {'A' if low > 0 else 'B'} is higher by more than the scatter of steps."
    return f"{said}: with 0 in it, so steps like these could as well show no difference, or the opposite."


def _signed(value: float, share: bool) -> str:
    """A difference; of shares in percentage points."""
    if share:
        return f"{100 * value:+.1f} points"
    return f"{value:+.3g}" if value else "0"


def what_if_sentence(*, step: int, stay: int, before: int, after: int) -> str:
    """How much of a batch the changed settings exchange."""
    if stay == before == after:
        return f"Under these settings step {step} picks the same {words.several(before, 'task')}."
    enter, leave = after - stay, before - stay
    return (
        f"Under these settings step {step} picks {words.several(enter, 'other task')}: "
        f"{words.several(enter, 'enters', 'enter')}, {words.several(leave, 'leaves', 'leave')} and "
        f"{words.count(stay)} of {words.count(before)} stay."
    )


def change(kind: str, name: str, was: float | None, needs: float | None) -> str:
    """One change in words; `name` is untrusted where it is an environment."""
    if kind == "pin":
        return "pin the task"
    if kind == "exclusion":
        return "no longer exclude it"
    if kind == "quota":
        return f"quota of {name}: {words.number(was)} to {words.number(needs)} picks a step"
    return f"{setting(name)}: {words.number(was)} to {words.number(needs)}"


def smallest_sentence(*, picked: bool, barred: str, changes: int, first: str, leave: int, tried: int) -> str:
    """What the search for the smallest change came to."""
    if picked:
        return "It is picked under the run's own settings: nothing has to change."
    if barred:
        return f"No weight or quota picks it at this step: {words.outcome(barred).split(' ', 1)[-1]}."
    if not changes:
        return f"No single setting picks it, not even the pin; the step was decided {words.several(tried, 'time')}."
    others = f"{words.several(leave, 'pick leaves', 'picks leave')} for it"
    return (
        f"Smallest change found: {first}; {others}. Confirmed by deciding the step again with it "
        f"({words.several(tried, 'trial')} in all)."
    )


def lacking_sentence(*, score: float | None, cutoff: float | None) -> str:
    """What a score lacks to the cut-off; empty where nothing is known, or nothing lacks."""
    if score is None or cutoff is None or not score < cutoff:
        return ""
    if ties(cutoff - score):
        return "Its score is tied with the cut-off; lots were drawn."
    return (
        f"Its score would have to rise by {words.number(cutoff - score)}, from {words.number(score)} to the cut-off "
        f"{words.number(cutoff)}, as both stand in the record."
    )
