"""The report of a run: what a person who was not there should know, as plain sentences, charts, caveats and tables.

It answers: what happened, did scheduling save rollouts and how sure is that, which environments were starved, when
did the scheduler stop guessing, were its predictions right, and why was one task picked (and another not). Nothing is
computed again and no clock is read: the same run gives the same report. `report_page` makes a file of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pandas as pd

from envsched_core.config import Config
from envsched_core.errors import UnknownTaskError
from envsched_core.evaluate import Interval, effective_number
from envsched_core.explanation import SOURCE_WORDS, TERM_WORDS

from .decision import Explained, afterwards, explained
from .report_against import Against, against
from .report_caveats import caveats
from .report_charts import Chart, charts
from .report_facts import (
    Guessing,
    Savings,
    calibration,
    evidence_of_picks,
    guessing,
    mixed_share,
    mixed_trend,
    rank_correlation,
    savings,
    visits_by_environment,
)
from .report_words import (
    GLOSSARY,
    KINDS,
    MISSING,
    between,
    count,
    coverage_sentence,
    guessing_figure,
    guessing_sentence,
    number,
    percent,
    prediction_sentence,
    savings_sentence,
    shared_sentence,
    starved_sentence,
    without_folders,
)
from .run_view import RunView
from .summary import Summary, measures, steps, summary
from .trends import Coverage, coverage, quota_hits, trust

__all__ = ["Answer", "Example", "Figure", "Report", "report"]


class Figure(msgspec.Struct, frozen=True):
    """One headline figure."""

    label: str
    value: str
    note: str
    """Its interval or what it is counted over; may be empty."""


class Answer(msgspec.Struct, frozen=True):
    """One question of the reader, answered with the numbers."""

    question: str
    sentence: str


class Example(msgspec.Struct, frozen=True):
    """One decision on record, with its terms; names in it come from a log."""

    step: int
    env: str
    task: str
    how: str
    """Why this one is shown."""
    picked: bool
    verdict: str
    score: float | None
    cutoff: float | None
    terms: pd.DataFrame
    """Columns: term (words), value (signed, in score units), code; they sum to the score."""
    shares: pd.DataFrame
    """Columns: source (words), share of the predicted mean [0, 1]."""
    evidence: pd.DataFrame
    """Columns: env, task, relation, share, weight, mean, rollouts, last_step; strongest first."""
    afterwards: str
    """What was observed of it for this step."""
    rival: str
    """The verdict on the task of the step that ranked best of those not picked; empty where none is on record."""


class Report(msgspec.Struct, frozen=True):
    """A whole report. All texts are plain and, where they name anything of a log, untrusted."""

    name: str
    """Of the run folder."""
    subtitle: str
    figures: tuple[Figure, ...]
    answers: tuple[Answer, ...]
    charts: tuple[Chart, ...]
    example: Example | None
    """None where no decision is on record."""
    caveats: tuple[str, ...]
    glossary: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    """What the run says of itself."""
    tables: dict[str, pd.DataFrame]
    """Every table by file name; columns in the docstring of the read model it comes from."""


def report(view: RunView, *, step: int | None = None, task: str | None = None, other: RunView | None = None) -> Report:
    """The report of a run as it stands; `step` and `task` (ENV::TASK) choose the example, `other` is held against it.

    Raises:
        UnknownTaskError: the run has no such task, or no decision at such a step.
    """
    example = _example(view, step, task)  # first: it may refuse
    told = summary(view)
    found = _Found(
        told, coverage(view), savings(view, told), mixed_share(view), guessing(view), visits_by_environment(view),
        *rank_correlation(view),
    )  # fmt: skip
    tables = _tables(view, found)
    if example is not None:
        tables |= {
            "example_terms": example.terms,
            "example_shares": example.shares,
            "example_evidence": example.evidence,
        }
    second = against(view, other) if other is not None else None
    if second is not None:
        tables["second_run"] = second.figures
    return Report(
        view.name,
        _subtitle(view, told),
        _figures(found, view.health().last_step),
        _answers(view, found, example, second),
        charts(tables, found.covered, found.saved, decided=told.picks > 0, predicts=found.guesses.predicts),
        example,
        (
            *caveats(view, told, found.saved, predicts=found.guesses.predicts),
            *(second.caveats if second is not None else ()),
        ),
        GLOSSARY,
        _facts(view, told),
        tables,
    )


class _Found(NamedTuple):
    """The facts, each computed once."""

    told: Summary
    covered: Coverage
    saved: Savings
    share: Interval
    guesses: Guessing
    environments: pd.DataFrame
    ranks: Interval
    judged: int


def _tables(view: RunView, found: _Found) -> dict[str, pd.DataFrame]:
    return {
        "steps": steps(view),
        "environments": found.environments,
        "mixed_by_step": mixed_trend(view),
        "evidence_by_step": evidence_of_picks(view),
        "calibration": calibration(view),
        "coverage": found.covered.table,
        "trust": trust(view),
        "quota_hits": quota_hits(view),
        "measures": measures(view),
    }


def _subtitle(view: RunView, told: Summary) -> str:
    who = f" with scheduler {told.scheduler}" if told.scheduler else ""
    simulated = ", with simulated rewards" if view.manifest.simulated else ""
    kind = KINDS.get(told.kind, told.kind)
    return f"{kind[0].upper()}{kind[1:]}{who}{simulated}: {count(told.steps)} steps, {count(told.rollouts)} rollouts."


def _figures(found: _Found, last_step: int | None) -> tuple[Figure, ...]:
    told, saved = found.told, found.saved
    known, sure = not math.isnan(saved.saved.mean), "" if saved.clear else "not clear: "
    ends = " to ".join(f"{end * saved.rollouts:+,.0f}" for end in (saved.saved.low, saved.saved.high))
    return (
        Figure("Groups with mixed rewards", percent(told.informative_share), _with_unit(between(found.share))),
        Figure(
            "Rollouts saved",
            f"{saved.saved.mean * saved.rollouts:+,.0f}" if known else MISSING,
            f"{sure}95 % interval {ends}, against uniform draws" if known else "cannot be told",
        ),
        Figure("Rollouts in flat groups", count(told.wasted_rollouts), f"of {count(told.rollouts)}"),
        Figure("Tasks reached", count(told.tasks_covered), f"of {count(told.tasks)}"),
        Figure(
            "Environments, effectively",
            number(effective_number(found.environments["visits"].tolist())),
            f"of {count(told.environments)}: so many, equally visited, would be as diverse",
        ),
        Figure("Stopped guessing", *guessing_figure(found.guesses, last_step)),
    )


def _with_unit(interval: str) -> str:
    """The interval of mixed groups, told apart from the one of Compare, which pairs steps."""
    return f"{interval}, from drawing tasks anew (Compare: steps)" if interval else ""


def _answers(view: RunView, found: _Found, example: Example | None, second: Against | None) -> tuple[Answer, ...]:
    told, saved, last = found.told, found.saved, view.health().last_step
    answers = [
        Answer("What happened?", f"{shared_sentence(told, found.share)} {coverage_sentence(told, found.covered)}"),
        Answer("Did scheduling save rollouts, and how sure is that?", _with_basis(savings_sentence(saved), saved)),
        *([Answer("And against a second run?", second.sentence)] if second is not None else []),
        Answer("Which environments were starved?", starved_sentence(found.environments, decided=told.picks > 0)),
        Answer("When did the scheduler stop guessing?", guessing_sentence(found.guesses, last)),
        Answer(
            "Were its predictions right?",
            prediction_sentence(told, found.ranks, found.judged, predicts=found.guesses.predicts),
        ),
    ]
    if example is not None:
        key = f"{example.env}::{example.task}"
        verb = f"was {key} picked" if example.picked else f"was {key} not picked"
        answers.append(Answer(f"Why {verb} at step {example.step}?", f"{example.verdict} {example.afterwards}".strip()))
        if example.rival:
            answers.append(Answer("And why not the best-ranked task that was not picked?", example.rival))
    return tuple(answers)


def _with_basis(sentence: str, saved: Savings) -> str:
    return sentence if saved.against == "nothing" else f"{sentence} {saved.how}."


# ---------------------------------------------------------------------- the example


def _example(view: RunView, step: int | None, task: str | None) -> Example | None:
    decided = [int(at) for at in view.query("SELECT DISTINCT step FROM decisions ORDER BY step")["step"]]
    if step is not None and step not in decided:
        raise UnknownTaskError(f"{view.name} has no decision at step {step}; `envsched explain` lists what it has")
    if task is not None:
        view.node(task)  # tells a task that the run does not have
    if not decided:
        return None
    at = decided[len(decided) // 2] if step is None else step
    key = task or _first_pick(view, at)
    if key is None:
        return None
    how = "chosen by the reader of the run" if task else "the first pick by score of that step"
    where = "" if step is not None else f"; step {at} is the middle one of the run"
    found = explained(view, at, key)
    rival = _rival(view, at) if found.picked else ""
    after = _afterwards(view, key, at) if found.picked else ""
    return _shown(found, f"{how}{where}, whatever came of it", after, rival)


def _rival(view: RunView, step: int) -> str:
    """Why the task that ranked best, of those on record that were not picked, was not; empty where there is none.

    By rank, not by score: a score holds the penalty, so the highest one left may have ranked far below others.
    """
    found = view.query(
        """
        SELECT env, task, rank FROM candidates WHERE step = $step AND rank > 0
            AND decision = (SELECT max(decision) FROM decisions WHERE step = $step)
            AND (env, task) NOT IN (SELECT env, task FROM outcomes WHERE step = $step)
        ORDER BY rank LIMIT 1""",
        {"step": step},
    )
    if found.empty:
        return ""
    said = explained(view, step, f"{found['env'].iloc[0]}::{found['task'].iloc[0]}").verdict
    rank = f"{found['rank'].iloc[0]:,} before quotas and penalties"
    return f"{said} It ranked {rank}, best of those on record that were not picked."


def _first_pick(view: RunView, step: int) -> str | None:
    """The first pick by score of a step, else its first pick."""
    found = view.query(
        "SELECT env, task FROM outcomes WHERE step = ? ORDER BY outcome = 'uniform_draw', position, candidate LIMIT 1",
        [step],
    )
    return None if found.empty else f"{found['env'].iloc[0]}::{found['task'].iloc[0]}"


def _shown(found: Explained, how: str, after: str, rival: str) -> Example:
    c = found.candidate
    terms = [(_term(name), value, name) for name, value in c.terms.items()] if c else []
    shares = [(SOURCE_WORDS.get(name, name), share) for name, share in c.shares.items()] if c else []
    columns = ["env", "task", "relation", "weight", "share", "mean", "rollouts", "last_step"]
    evidence = [tuple(getattr(one, name) for name in columns) for one in c.evidence] if c else []
    verdict = found.verdict or (
        f"{found.env}::{found.task} was not among the candidates whose terms were kept at step {found.step}; "
        f"`envsched explain` computes them again."
    )
    return Example(
        found.step, found.env, found.task, how, found.picked, verdict, found.score, found.cutoff,
        pd.DataFrame(terms, columns=["term", "value", "code"]), pd.DataFrame(shares, columns=["source", "share"]),
        pd.DataFrame(evidence, columns=columns), after, rival,
    )  # fmt: skip


def _term(name: str) -> str:
    return TERM_WORDS.get(name, name.replace("_", " "))


def _afterwards(view: RunView, key: str, step: int) -> str:
    """The rewards that a pick of this step brought."""
    found = afterwards(view, key, step)
    found = found[(found["step"] == step) & found["asked"]]
    if found.empty:
        return "No result of it is on record."
    row = found.iloc[0]
    kind = "mixed" if bool(row["mixed"]) else "flat"
    missing = f", {int(row['missing']):,} more without a reward" if row["missing"] else ""
    return f"Its group came out {kind}: rewards {row['rewards'] or 'none'}{missing}."


# ---------------------------------------------------------------------- what the run says of itself


def _facts(view: RunView, told: Summary) -> tuple[tuple[str, str], ...]:
    m, health = view.manifest, view.health()
    last = "none" if health.last_step is None else str(health.last_step)
    return (
        ("run", m.run_id),
        ("kind", m.kind),
        ("written by", m.writer),
        ("started (UTC)", m.created),
        ("scheduler", m.scheduler or "none"),
        ("seed", str(m.seed)),
        ("picks a step", str(m.batch_size) if m.batch_size else MISSING),
        ("made from", without_folders(str(m.source.get("run_id") or m.source.get("path") or MISSING))),
        ("catalogue", f"{count(told.tasks)} tasks in {count(told.environments)} environments"),
        ("on record", f"{count(health.events)} events, {count(told.groups)} groups, last step {last}"),
        *_changed_knobs(m.config),
    )


def _changed_knobs(config: Mapping[str, object]) -> list[tuple[str, str]]:
    """Knobs that are not at their default, as JSON; reward ranges are facts of a log, and may be long."""
    defaults = {key: msgspec.json.encode(value) for key, value in msgspec.structs.asdict(Config()).items()}
    given = {key: msgspec.json.encode(value) for key, value in config.items() if key != "reward_ranges"}
    return [(f"knob {key}", value.decode()) for key, value in given.items() if defaults.get(key) != value]
