"""Sentences: one plain line, with the numbers, for why a task was or was not picked."""

from __future__ import annotations

import math

from .records import Candidate, Decision, Explanation, Trust

__all__ = [
    "PART_WORDS",
    "SOURCE_WORDS",
    "TERM_WORDS",
    "explanation",
    "features_sentence",
    "logit_parts",
    "several",
    "ties",
    "trust_sentence",
    "verdict",
]

TERM_WORDS = {
    "exploitation_variance": "predicted reward variance",
    "exploitation_usable": "chance of a mixed group",
    "uncertainty": "uncertainty of the prediction",
    "cost": "expected cost of its groups",
    "coverage_environment": "environment coverage",
    "coverage_pattern": "pattern coverage",
    "coverage_task": "task coverage",
    "similarity_penalty": "similarity to earlier picks",
    "draw": "the draw",
    "tie_break": "tie-break",
    "turn_environment": "its environment's turn",
    "turn_task": "its turn in the environment",
    "turn": "the slot drawn for it",
    "pool_weight": "weight of its difficulty pool",
    "entry": "its place in the uniform order",
    "skipped": "being skipped for flat groups in a row",
    "distance_from_half": "distance of its drawn success rate from 1/2",
    "partly_solved": "predicted chance of being partly solved",
    "not_a_candidate": "not being among the candidates drawn for the step",
}
"""Term of a score -> words, as a label and in a sentence; a term not listed shows its own name."""

SOURCE_WORDS = {
    "own": "its own history",
    "within": "tasks like it in its environment",
    "cross": "tasks like it in other environments",
    "environment": "its environment",
    "features": "what its text, tools and environment predict",
    "global": "all tasks together",
}
"""Source of evidence -> words, nearest first."""

PART_WORDS = {
    "everything": "level of all tasks",
    "length": "length of text and reference calls",
    "words": "words of the text",
    "tools": "tools",
    "environment": "environment",
}
"""Kind of feature (features.py) -> words."""
LITTLE = 0.05
"""Logits that move a mean reward by about one hundredth at most."""
TIE = 1e-9
"""Scores nearer to each other than this differ by the tie-break, or by rounding: lots decided."""


def several(n: int, one: str, many: str = "") -> str:
    """A count with its noun, in the plural unless it is 1: ``1 task``, ``1,200 tasks``."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def ties(margin: float) -> bool:
    """Whether a score that is so far (score units) from the cut-off ties with it."""
    return abs(margin) < TIE


def verdict(candidate: Candidate, decision: Decision) -> str:
    """One sentence on one candidate of one decision."""
    sentence = _WHY[candidate.outcome](candidate, decision)
    return f"{candidate.key} {sentence}"


def explanation(candidate: Candidate, decision: Decision, source: str) -> Explanation:
    """The candidate in its decision, as `explain` returns it; `source` is ``recorded`` or ``re-derived``."""
    best = max((c for c in decision.candidates if c.kept_as != "pick"), key=lambda c: c.score, default=None)
    quota = next((q for q in decision.quotas if q.env == candidate.env), None)
    return Explanation(
        step=decision.step,
        env=candidate.env,
        task=candidate.task,
        picked=candidate.kept_as == "pick",
        verdict=verdict(candidate, decision),
        candidate=candidate,
        cutoff=decision.cutoff,
        runner_up=best.key if best else None,
        runner_up_score=best.score if best else None,
        trust=decision.trust,
        quota=quota,
        source="recorded" if source == "recorded" else "re-derived",
    )


def logit_parts(candidate: Candidate) -> dict[str, float]:
    """What each kind of feature adds to the logit of the mean that features predict; empty when not on record."""
    found = {name: candidate.details.get(f"logit_{name}") for name in PART_WORDS}
    return {name: float(value) for name, value in found.items() if value is not None}


def features_sentence(parts: dict[str, float]) -> str:
    """What a task's features predict, and which of them make it easier or harder than others."""
    mean = 0.5 + 0.5 * math.tanh(0.5 * sum(parts.values()))  # the logistic function, without overflow
    told = sorted((name for name in parts if name != "everything"), key=lambda name: -abs(parts[name]))
    said = [
        f"{PART_WORDS[name]} {'easier' if parts[name] > 0 else 'harder'} ({parts[name]:+.2f})"
        for name in told
        if abs(parts[name]) >= LITTLE
    ]
    what = f"Beside the level of all tasks: {', '.join(said)}." if said else "No feature says much."
    return f"The task's text, tools and environment predict a mean reward of {mean:.2f}. {what}"


def trust_sentence(trust: Trust) -> str:
    """How much each source is trusted, and how much better features predicted than the best trust without them."""
    t = trust
    text = (
        f"Trust in use: within {t.tau_within:g}, across {t.tau_cross:g}, environment {t.kappa_env:g} times its "
        "concentration"
    )
    if t.features_share > 0:
        text += f", {t.features_share:.0%} of that for what features predict"
        if t.loglik_no_features is not None:
            ahead = t.loglik - t.loglik_no_features
            text += f" ({ahead:+.1f} nats against the best trust without features)"
    return f"{text}; half-life {f'{t.half_life:g} steps' if t.half_life else 'none'}."


def _number(value: float | str | None) -> str:
    return f"{value:.3g}" if isinstance(value, float | int) else str(value)


def _prediction(c: Candidate) -> str:
    source = max(c.shares, key=lambda name: c.shares[name])
    return (
        f"predicted reward variance {_number(c.variance)} of at most 0.25 "
        f"(mean {_number(c.mean)}, {c.shares[source]:.0%} of it from {SOURCE_WORDS.get(source, source)})"
    )


def _strongest(c: Candidate) -> str:
    names = [name for name, value in c.terms.items() if name != "tie_break" and value != 0.0]
    if not names:
        return "no term"
    name = max(names, key=lambda term: c.terms[term])
    which = "largest term" if c.terms[name] > 0 else "term that took least"
    return f"{which}: {TERM_WORDS.get(name, name)} ({c.terms[name]:+.3g})"


def _selected(c: Candidate, d: Decision) -> str:
    place = f"was pick {(c.position or 0) + 1} of step {d.step}"
    how = str(c.details.get("how", "score"))
    if how == "pinned":
        return f"{place} because it is pinned; {_prediction(c)}."
    if how == "floor":
        return f"{place} to keep its environment's smallest share; {_prediction(c)}."
    if how == "relaxed":
        return f"{place} beyond a quota or a cool-down, since nothing else was left; {_prediction(c)}."
    cutoff = f" against a cut-off of {_number(d.cutoff)}" if d.cutoff is not None else ""
    return f"{place} with score {_number(c.score)}{cutoff}: {_prediction(c)}; {_strongest(c)}."


def _uniform(c: Candidate, d: Decision) -> str:
    place = f"was pick {(c.position or 0) + 1} of step {d.step}"
    return f"{place} by a uniform draw, whatever its score; {_prediction(c)}."


def _quota(c: Candidate, d: Decision) -> str:
    limit, used = c.details.get("quota_limit"), c.details.get("quota_used")
    return (
        f"was not picked at step {d.step}: {c.env} had used {_number(used)} of its {_number(limit)} picks; its score "
        f"{_number(c.score)} was over the cut-off {_number(d.cutoff)}."
    )


def _similar(c: Candidate, d: Decision) -> str:
    return (
        f"was not picked at step {d.step}: it is too similar to {c.details.get('similar_to', 'earlier picks')} "
        f"(similarity {_number(c.details.get('similarity'))}), which went first; the penalty of "
        f"{_number(-c.terms.get('similarity_penalty', 0.0))} took its score to {_number(c.score)}, "
        f"under the cut-off {_number(d.cutoff)}."
    )


def _below(c: Candidate, d: Decision) -> str:
    if d.cutoff is None:
        return f"was not drawn at step {d.step}: every pick of this call was made without comparing scores."
    margin = _number(d.cutoff - c.score)
    if ties(d.cutoff - c.score):
        return (
            f"was not picked at step {d.step}: its score {_number(c.score)} is tied with the cut-off; lots were drawn."
        )
    return (
        f"was not picked at step {d.step}: its score {_number(c.score)} was {margin} under the cut-off "
        f"{_number(d.cutoff)}; {_prediction(c)}."
    )


def _in_flight(c: Candidate, d: Decision) -> str:
    return f"could not be picked at step {d.step}: its pick {c.details.get('open_pick', '')} had no result yet."


def _cooling(c: Candidate, d: Decision) -> str:
    return f"could not be picked at step {d.step}: it rests until step {_number(c.details.get('rests_until'))}."


def _unavailable(c: Candidate, d: Decision) -> str:
    return f"could not be picked at step {d.step}: {c.details.get('reason', 'it is not available')}."


_WHY = {
    "selected": _selected,
    "uniform_draw": _uniform,
    "quota_full": _quota,
    "too_similar": _similar,
    "below_cutoff": _below,
    "in_flight": _in_flight,
    "cooling_down": _cooling,
    "unavailable": _unavailable,
}
