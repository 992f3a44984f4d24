"""Numbers to plain sentences and labels; pure. Nothing here knows Streamlit, Plotly or a run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from envsched_core.explanation import SOURCE_WORDS, TERM_WORDS, ties

__all__ = [
    "GLOSSARY",
    "OUTCOMES",
    "SOURCES",
    "age",
    "batch_sentence",
    "count",
    "coverage_sentence",
    "number",
    "outcome",
    "overview_sentence",
    "percent",
    "prediction_sentence",
    "reason",
    "several",
    "signed",
    "size_note",
    "source",
    "standing_sentence",
    "term",
    "variance",
    "worth_sentence",
]

MISSING = "n/a"
VARIANCE_MOST = 0.25
"""The largest variance a reward in [0, 1] can have."""

OUTCOMES: dict[str, tuple[str, str]] = {
    "selected": ("✔", "picked"),
    "uniform_draw": ("⚄", "picked by a uniform draw"),
    "quota_full": ("▦", "environment quota full"),
    "too_similar": ("≈", "too similar to a pick"),
    "below_cutoff": ("↓", "below the cut-off"),
    "in_flight": ("…", "waiting for its result"),
    "cooling_down": ("❄", "cooling down"),
    "unavailable": ("∅", "not available"),
}
"""Outcome code -> (sign, words): never told by colour alone."""


GLOSSARY = {
    "shadow price": "what one more pick of the environment would have gained at most, in score units; 0 where its "
    "quota turned nobody away.",
    "equivalent rollouts": "how much is known of a task: the prediction is as sure as if so many rollouts of the task "
    "itself had been seen.",
    "times its concentration": "the concentration says how alike the tasks of an environment are, as a number of "
    "rollouts; trust times concentration is how many rollouts the environment's mean counts for. Trust in neighbours "
    "is in the same unit: where tasks differ much, a neighbour says little.",
    "nats": "the unit of log-likelihood: 1 nat more, and the rewards seen so far were 2.7 times as probable under the "
    "prediction.",
    "half-life": "the number of steps after which a reward counts half, since the policy has changed; none: all count "
    "fully.",
}
"""Words of the decision page that are no everyday ones -> what they mean."""

SOURCES = tuple(SOURCE_WORDS)
"""Sources of evidence, nearest first."""


def _known(value: float | None) -> bool:
    try:
        return value is not None and not math.isnan(value)
    except TypeError:  # pandas.NA
        return False


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits, all of a larger number; n/a for a missing value."""
    if value is None or not _known(value):
        return MISSING
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def signed(value: float | None) -> str:
    """A signed term of a score."""
    return f"{value:+.3g}" if value is not None and _known(value) else MISSING


def variance(value: float | None) -> str:
    """A variance to 3 significant digits."""
    return number(value)


def percent(value: float | None) -> str:
    """A share without decimals; n/a for a missing value."""
    return f"{value:.0%}" if value is not None and _known(value) else MISSING


def count(value: float | None) -> str:
    """A whole number with separators, compact from 10 million."""
    if value is None or not _known(value):
        return MISSING
    return f"{int(value):,}" if value < 1e7 else f"{value / 1e6:.1f} M"


def several(n: float, one: str, many: str = "") -> str:
    """A count with its noun, in the plural unless it is 1."""
    return f"{count(n)} {one if n == 1 else many or f'{one}s'}"


def age(seconds: float) -> str:
    """How long ago, in the largest fitting unit; short, since it stands in narrow boxes."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def term(name: str) -> str:
    """A term of the score in words."""
    return TERM_WORDS.get(name, name.replace("_", " "))


def source(name: str) -> str:
    """A source of evidence in words."""
    return SOURCE_WORDS.get(name, name.replace("_", " "))


def outcome(code: str | None, margin: float | None = None) -> str:
    """Sign and words of an outcome code; a code not known here shows itself. `margin`: score minus cut-off."""
    if not isinstance(code, str) or not code:
        return "not on record"
    sign, text = OUTCOMES.get(code, ("", code.replace("_", " ")))
    if code == "below_cutoff" and margin is not None and ties(margin):
        text = "tied; lots were drawn"
    return f"{sign} {text}".strip()


def reason(code: str, details: str) -> str:
    """An outcome with the numbers behind it; `details` is the JSON text of a candidate's details."""
    found: Mapping[str, float | str] = json.loads(details or "{}")
    text = outcome(code)
    if code == "selected":
        how = str(found.get("how", "score"))
        return text if how == "score" else f"{text} ({ {'pinned': 'pinned', 'floor': 'smallest share'}.get(how, how) })"
    if code == "quota_full" and "quota_limit" in found:
        return f"{text} ({_plain(found['quota_used'])} of {_plain(found['quota_limit'])})"
    if code == "too_similar" and "similar_to" in found:
        return f"{text}: {found['similar_to']} ({_plain(found['similarity'])})"
    if code == "below_cutoff" and "margin" in found:
        margin = float(found["margin"])
        return outcome(code, margin) if ties(margin) else f"{text} by {_plain(abs(margin))}"
    if code == "unavailable" and "reason" in found:
        return f"{text}: {found['reason']}"
    return text


def _plain(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float | int) else str(value)


def overview_sentence(
    *, share: float | None, uniform: float | None, wasted: int, rollouts: int, picks: int, waiting: int
) -> str:
    """What the run amounts to, in one sentence."""
    if share is None:
        return "Nothing was observed yet." if not picks else f"{_waiting(picks)}."
    head = f"{percent(share)} of the observed groups had mixed rewards"
    if uniform is not None:
        times = f", {share / uniform:.2f} times" if uniform > 0 else ", against"
        head += f"{times} the {percent(uniform)} that uniform draws from the same tasks give"
    tail = f"{count(wasted)} of {count(rollouts)} rollouts went to groups whose rewards were all the same"
    open_ones = f", and {_waiting(waiting)}" if waiting else ""
    return f"{head}; {tail}{open_ones}."


def _waiting(picks: int) -> str:
    return several(picks, "pick waits for its result", "picks wait for their results")


def batch_sentence(*, step: int, picks: int, envs: int, draws: int, bound: int, mixed: int, answered: int) -> str:
    """What a batch is made of, in one sentence."""
    text = f"Step {step} picked {several(picks, 'task')} from {several(envs, 'environment')}"
    if draws:
        text += f", {count(draws)} of them by uniform draws"
    if bound:
        text += f"; {several(bound, 'environment quota')} turned candidates away"
    if answered:
        return f"{text}; {count(mixed)} of {several(answered, 'observed group')} had mixed rewards."
    return f"{text}; no result has come in yet."


def worth_sentence(totals: Mapping[str, float]) -> str:
    """How much of what was gained is exploitation and how much coverage; penalties, cost and the draw beside it."""
    kinds = {"exploitation": 0.0, "coverage": 0.0, "draw": 0.0, "cost": 0.0, "penalty": 0.0}
    for name, value in totals.items():
        kind = "coverage" if name.startswith(("coverage_", "turn_")) else "penalty" if value < 0 else "exploitation"
        kinds[name if name in ("draw", "cost") else kind] += value
    whole = kinds["exploitation"] + max(kinds["coverage"], 0.0)
    if whole <= 0:
        return "No term of the score was positive."
    text = f"Exploitation {percent(kinds['exploitation'] / whole)}"
    if kinds["coverage"] >= 0:
        text += f", coverage {percent(kinds['coverage'] / whole)}"
    else:  # a factor below 1: cells visited more than usual
        text += f"; coverage took off {percent(-kinds['coverage'] / whole)}"
    cost = "low cost added" if kinds["cost"] > 0 else "high cost took off"
    draw = "the draw added" if kinds["draw"] > 0 else "the draw took off"
    for kind, said in (("penalty", "similarity took off"), ("cost", cost), ("draw", draw)):
        if abs(kinds[kind]) > 0.005 * whole:
            text += f"; {said} {percent(abs(kinds[kind]) / whole)}"
    return text + "."


def prediction_sentence(*, mean: float, low: float, high: float, value: float, usable: float, rollouts: float) -> str:
    """What was believed of a task when the batch was chosen."""
    return (
        f"Predicted mean reward {mean:.3f} (90 % interval {low:.3f} to {high:.3f}), variance "
        f"{variance(value)} of at most {VARIANCE_MOST}; the chance of a mixed group was {percent(usable)}. "
        f"Behind it stand {number(rollouts)} equivalent rollouts."
    )


def standing_sentence(
    *, rank: int | None, score: float | None, cutoff: float | None, code: str, eligible: int, spent: bool = False
) -> str:
    """What the scores file alone says of a task: no terms, no evidence."""
    why = ", since all its recorded groups had been drawn" if spent else ""
    place = f"rank {count(rank)} of {count(eligible)}" if rank else f"no rank (it could not be picked{why})"
    margin = None if cutoff is None or score is None else score - cutoff
    text = f"{outcome(code, margin).split(' ', 1)[-1].capitalize()}: {place}, score {number(score)}"
    if cutoff is not None and score is not None:
        text += f" against a cut-off of {number(cutoff)}"
    return text + "."


def coverage_sentence(
    *, seen: int, tasks: int, envs_seen: int, envs: int, uniform_tasks: float | None, uniform_envs: float | None
) -> str:
    """How much was reached, against uniform draws."""
    reached = f"{count(seen)} of {several(tasks, 'task')}", f"{count(envs_seen)} of {several(envs, 'environment')}"
    text = f"{reached[0]} and {reached[1]} were reached"
    if uniform_tasks is None or uniform_envs is None:
        return f"{text}."
    expected = several(round(uniform_tasks), "task"), several(round(uniform_envs), "environment")
    return f"{text}; uniform draws are expected to reach {expected[0]} and {expected[1]}."


def size_note(shown: int, total: int, what: str) -> str:
    """How much of a whole is shown, never cut in silence; `what` begins with the plural of what is counted."""
    if shown == total == 1:
        first, *rest = what.partition(",")[0].split(" ")
        return f"The only {' '.join([first.removesuffix('s'), *rest])}."
    return f"Showing {count(shown)} of {count(total)} {what}." if shown < total else f"All {count(total)} {what}."
