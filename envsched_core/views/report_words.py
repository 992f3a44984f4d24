"""The report's sentences: a person who was not there reads these first. Pure: numbers in, plain text out.

Names of environments and tasks come from a log and stand in the sentences as they are: whoever shows them escapes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pandas as pd

from envsched_core.evaluate import Interval
from envsched_core.explanation import several

from .report_facts import STARVED, Guessing, Savings
from .summary import Summary
from .trends import Coverage

__all__ = [
    "GLOSSARY",
    "KINDS",
    "MISSING",
    "between",
    "count",
    "coverage_sentence",
    "guessing_figure",
    "guessing_sentence",
    "kind_caveat",
    "number",
    "percent",
    "prediction_sentence",
    "savings_sentence",
    "shared_sentence",
    "starved_sentence",
    "without_folders",
]

MISSING = "n/a"
ROOT = (
    r"(?:\bfile:/+(?:[A-Za-z]:[\\/]+)?|(?<![A-Za-z0-9])[A-Za-z]:[\\/]+|(?<![\w./\\~-])(?:~?/|\\\\)(?=[^\s/\\]+[\\/]))"
)
"""Where an absolute path begins: a file's address, a drive, a root or home with a folder, a shared folder."""
PATH = re.compile(
    rf"(?<=\"){ROOT}[^\"\n]*(?=\")|(?<=')(?:{ROOT})[^'\n]*(?=')|(?<=`){ROOT}[^`\n]*(?=`)|{ROOT}[^\s\"'`,;]*"
)
"""One absolute path; in quotes it may hold spaces."""
NAMED = 5
"""Environments a sentence names; the table has all."""

KINDS = {
    "import": "a log, as it was recorded",
    "replay": "a replay over the recorded groups of a log",
    "audit": "an audit of a log in its own order",
    "live": "a live run",
    "shadow": "a shadow run beside a trainer",
}

GLOSSARY = (
    ("environment", "A set of tasks with the same tools and the same rules, for instance the bookings of one airline."),
    ("task", "One problem of an environment, with what decides whether it was solved."),
    ("rollout", "One attempt of the policy at a task, from the first message to the reward."),
    ("group", "The rollouts of one task at one step. The policy learns from how their rewards differ."),
    ("mixed, flat", "A group is mixed if its rewards differ, flat if all are the same; a flat group teaches nothing."),
    ("reward variance", "How much the rewards of a group differ; for rewards between 0 and 1 it is 0.25 at most."),
    ("step", "One update of the policy, with one batch of tasks."),
    ("pick", "A task that the scheduler chose for a step's batch."),
    ("score", "What candidates are ranked by: expected signal, coverage of what was seldom visited, and a penalty for "
     "being like an earlier pick. Its terms add up to it exactly."),
    ("cut-off", "The lowest score that still came into the batch."),
    ("uniform draw", "A pick by lot, whatever its score: an unbiased sample to hold the others against."),
    ("quota", "The most picks of one step that one environment may have."),
    ("evidence", "What a prediction rests on: the task's own results, those of tasks like it (neighbours), those of "
     "its environment, or nothing yet (prior only)."),
    ("guess", "A pick by score of which nothing was known, not even of its environment."),
    ("starved", f"Got less than {STARVED:.0%} of the picks that uniform draws would have given."),
    ("95 % interval", "Where the figure could well lie if other tasks like these had been there. It says nothing of "
     "another seed or another training run."),
)  # fmt: skip


def without_folders(text: str) -> str:
    """A report is handed on; where things lie on this machine is not: of an absolute path the last part stays."""
    return PATH.sub(lambda found: re.split(r"[\\/]+", found[0].rstrip("\\/"))[-1], text)


def percent(value: float | None, digits: int = 0) -> str:
    """A share; n/a where it is not known."""
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}%}"


def count(value: float) -> str:
    """A whole number with separators."""
    return f"{round(value):,}"


def number(value: float | None) -> str:
    """Three significant digits, all of a larger number; n/a where it is not known."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def between(found: Interval, digits: int = 0) -> str:
    """The ends of an interval of shares, in words; empty where there is none."""
    if math.isnan(found.low):
        return ""
    return f"95 % interval {percent(found.low, digits)} to {percent(found.high, digits)}"


def shared_sentence(told: Summary, share: Interval) -> str:
    """How much of what was rolled out could teach anything."""
    if told.informative_share is None:
        waits = f"{several(told.picks, 'pick waits', 'picks wait')} for results." if told.picks else ""
        return f"Nothing was observed yet. {waits}".strip()
    within = f" ({between(share)})" if between(share) else ""
    return (
        f"{percent(told.informative_share)} of {several(told.counted, 'group')} had mixed rewards{within}; "
        f"{count(told.wasted_rollouts)} of {several(told.rollouts, 'rollout')} went to groups whose rewards were all "
        "the same."
    )


def savings_sentence(found: Savings) -> str:
    """Whether scheduling saved rollouts, and how sure that is."""
    if found.against == "nothing" or math.isnan(found.saved.mean):
        return f"It cannot be told: {found.how}."
    text = (
        f"scheduling spent {percent(found.flat, 1)} of {several(found.rollouts, 'rollout')} on groups whose rewards "
        f"were all the same; uniform draws {'are expected to spend' if found.against == 'pool' else 'spent'} "
        f"{percent(found.uniform, 1)}"
    )
    low, high = (end * found.rollouts for end in (found.saved.low, found.saved.high))
    if not found.clear:
        return (
            f"Not clearly: {text}. The difference could as well be none (95 % interval {low:+,.0f} to {high:+,.0f} "
            "rollouts saved)."
        )
    answer, side = ("Yes", "fewer") if found.saved.mean > 0 else ("No", "more")
    ends = sorted((abs(low), abs(high)))
    return (
        f"{answer}: {text}. That is {count(abs(found.saved.mean) * found.rollouts)} rollouts {side} wasted "
        f"(95 % interval {count(ends[0])} to {count(ends[1])})."
    )


def guessing_sentence(found: Guessing, last_step: int | None) -> str:
    """When picks ceased to be guesses, and when they began to rest on the task or on tasks like it."""
    if not found.picks:
        return "There is no decision in this run, so nothing was guessed."
    if not found.predicts:
        return "It chose without predictions: it neither guessed nor stopped."
    ended = found.guesses_until is None or found.guesses_until != last_step
    if found.guesses_until is None:
        text = "It hardly guessed at all: at no step were most picks guesses"
    elif ended:
        text = f"After step {found.guesses_until}, the last one at which most picks were guesses"
    else:
        text = "At the last step most picks were guesses"
    if ended and found.last_guess not in (None, found.guesses_until):
        text += f" (the very last guess was at step {found.last_guess})"
    return (
        f"{text}{f'. {_informed(found)}' if ended else '; so far it has not stopped'}. Over the whole run "
        f"{percent(found.guesses / found.picks)} of the picks were guesses (by score, with nothing known, not even of "
        f"the environment) and {percent(found.informed / found.picks)} rested on the task or on tasks like it."
    )


LAST_STATES = {
    "prior only": "nothing that was observed",
    "environment only": "results of their environment, not of tasks like them",
    "neighbours": "results of tasks like them",
    "own history": "their own results",
}


def _informed(found: Guessing) -> str:
    """Since when, or how often, most picks rested on the task or on tasks like it."""
    if found.informed_from is not None:
        return (
            f"From step {found.informed_from} on, most picks of every step rested on the task's own results or on "
            "tasks like it"
        )
    text = (
        "The next stage, most picks resting on the task's own results or on tasks like it, was reached at "
        f"{found.informed_steps:,} of {several(found.steps, 'step')}"
    )
    return f"{text}; at the last step the largest share of the picks rested on {LAST_STATES[found.last_state]}"


def guessing_figure(found: Guessing, last_step: int | None) -> tuple[str, str]:
    """Value and note of the headline figure."""
    if not found.picks or not found.predicts:
        return MISSING, "it chose without predictions" if found.picks else "there is no decision"
    note = (
        f"{percent(found.guesses / found.picks)} of all picks were guesses, {percent(found.informed / found.picks)} "
        "rested on the task or on tasks like it"
    )
    if found.guesses_until is None:
        return "from the start", note
    return ("not yet" if found.guesses_until == last_step else f"after step {found.guesses_until}"), note


def starved_sentence(table: pd.DataFrame, *, decided: bool) -> str:
    """Which environments got next to nothing, and whether there was anything to get."""
    what = "picks" if decided else "groups"
    never = int((table["visits"] == 0).sum())
    starved = table[table["starved"]]
    if not table["visits"].sum():
        return "Nothing was visited yet."
    if not len(starved):
        text = f"None: each of {several(len(table), 'environment')} got at least {STARVED:.0%} of the {what} that "
        rest = f"; {several(never, 'environment')} so small that none was to be expected got none" if never else ""
        return f"{text}uniform draws would have given{rest}.{_least(table, what)}"
    names = ", ".join(_named(row, what) for row in starved.head(NAMED).itertuples(index=False))
    more = f", and {len(starved) - NAMED:,} more" if len(starved) > NAMED else ""
    return (
        f"{len(starved):,} of {several(len(table), 'environment')} got less than {STARVED:.0%} of the {what} that "
        f"uniform draws would have given: {names}{more}.{_worth(starved, table)}"
    )


def _least(table: pd.DataFrame, what: str) -> str:
    """Who came closest to being starved; empty where none was to get any."""
    known = table[table["visits"] > 0]
    if len(known) < 2:
        return ""
    row = next((known.iloc[(known["visits"] / known["expected"]).argsort()]).itertuples(index=False))
    return f" Fewest, against that: {_named(row, what)}."


def _named(row: object, what: str) -> str:
    env, visits, expected = (getattr(row, name) for name in ("env", "visits", "expected"))
    return f"{env} ({several(int(visits), what.removesuffix('s'))}, {expected:,.0f} expected)"


def _worth(starved: pd.DataFrame, table: pd.DataFrame) -> str:
    """What the log holds for the starved: neglect, or nothing to learn there."""
    if table["log_mixed_share"].notna().any():
        theirs, all_of_them = (float(t["log_mixed_share"].mean()) for t in (starved, table))
        return (
            f" In the log, {percent(theirs)} of their groups are mixed, against {percent(all_of_them)} over all "
            "environments (means of environments)."
        )
    groups, mixed = int(starved["groups"].sum()), int(starved["mixed"].sum())
    if not groups:
        return " None of their groups was observed, so what was missed there is not known."
    return f" {mixed:,} of their {several(groups, 'observed group')} {'was' if mixed == 1 else 'were'} mixed."


def coverage_sentence(told: Summary, found: Coverage) -> str:
    """How much of the catalogue was reached, against uniform draws."""
    text = (
        f"{count(told.tasks_covered)} of {several(told.tasks, 'task')} and {count(told.environments_covered)} of "
        f"{several(told.environments, 'environment')} were reached"
    )
    if not len(found.table):
        return f"{text}."
    last = found.table.iloc[-1]
    return (
        f"{text}; uniform draws are expected to reach {count(last['uniform_tasks'])} and "
        f"{count(last['uniform_environments'])}."
    )


def prediction_sentence(told: Summary, ranks: Interval, picks: int, *, predicts: bool) -> str:
    """Whether tasks that were predicted to vary did; `predicts`: whether it chose by these predictions."""
    if told.predicted_shown is None or told.mean_variance is None:
        return "No prediction could be held against a result."
    beside = "" if predicts else "It chose without them; these are the predictions kept beside its picks. "
    level = (
        f"{beside}Picks were predicted to show a reward variance of {number(told.predicted_shown)} on average and "
        f"showed {number(told.mean_variance)} (0.25 is the most)"
    )
    if math.isnan(ranks.mean):
        return f"{level}. Their order cannot be judged on {several(picks, 'pick')}."
    ends = "" if math.isnan(ranks.low) else f", 95 % interval {ranks.low:.2f} to {ranks.high:.2f}"
    return (
        f"{level}. The order of {several(picks, 'pick')} by prediction and by result agrees with a rank correlation "
        f"of {ranks.mean:.2f} (0: not at all, 1: fully{ends}); one group of few rollouts is a noisy result, so even "
        "perfect predictions stay below 1."
    )


def kind_caveat(told: Summary, simulated: bool) -> Sequence[str]:
    """What a run of this kind can and cannot show."""
    said = {
        "import": "Logged: these are the groups as the log has them. No scheduler of EnvSched chose any of them.",
        "replay": "Logged, replayed: exact on the log, since every group shown was really recorded; silent on the "
        "policy, since another choice would have trained another policy.",
        "audit": "Logged, audited: choices are compared with the log's own; picks that the log did not roll out have "
        "no result, and none is invented.",
        "live": "Live: the policy learned from these picks. One run on one seed cannot say what another scheduler, "
        "or the same one on another seed, would have reached.",
        "shadow": "Shadow: nothing in the trainer changed. Only picks that the trainer happened to roll out have a "
        "result, and those are no fair sample.",
    }
    rewards = (
        "Rewards: simulated. They come from a simulation, not from the training of a language model."
        if simulated
        else "Rewards: recorded, not simulated, as far as the run says of itself."
    )
    return (said.get(told.kind, f"Runs of the kind {told.kind} are not known to this version."), rewards)
