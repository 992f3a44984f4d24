"""reasoning-gym evaluations: one JSON object for a dataset, with questions and the graded completions of each.

The dataset is the environment, a question (its position, as the generator numbers it) is a task, and its completions
are a group. The file does not name the model, and its questions are the generator's, so a task's text tells it apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envsched_core.records import Message, Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .files import Head, Record, Source, items_of, members_of
from .identity import Identity
from .values import name, reward, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "reasoning-gym evaluations: one JSON object a dataset, with results of question and graded completions"
CARRIES = Carries(
    env="yes",
    task="some",
    group="yes",
    step="no",
    parts="no",
    tools="no",
    calls="no",
    messages="yes",
    cost="no",
    policy="no",
    every_group="yes",
    limits="a task is the question's position; the model is not named",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("name", "results")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether it is such an object."""
    return set(NEEDS) <= set(head.keys) and {"average_mean_score", "completions_per_prompt"} <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every completion."""
    env = name(members_of(source, frozenset({"name"})).get("name")) or ""

    def row(value: Any, place: Place, mark: int) -> Row:
        position, item, completion = value
        return _row(env, position, item, completion, place, context.options.reward or "score")

    yield from as_rows(_completions(source), source, row, Identity(source, context))


def _completions(source: Source) -> Iterator[Record]:
    """A record for each completion: its question's item and itself."""
    for record in items_of(source, "results"):
        graded = record.value.get("completions") if not record.problem else None
        if not isinstance(graded, list) or not graded:
            yield record if record.problem else record._replace(problem="no completions")
            continue
        for completion in graded:
            yield record._replace(value=(record.line, record.value, completion))


def _row(env: str, position: int, item: dict[str, Any], completion: Any, place: Place, score: str) -> Row:
    """One completion as a row; `score` is the field that is its reward."""
    if not isinstance(completion, dict):
        raise RowError("a completion is no object")
    said = text(completion.get("full_model_response") or completion.get("model_answer"))
    return Row(
        place,
        env,
        str(position - 1),
        (reward(completion.get(score)),),
        group=place.file,
        text=text(item.get("question")),
        answer=text(item.get("expected_answer")),
        verifier="score_answer",
        messages=(Message("user", text(item.get("question"))), Message("assistant", said)),
        turns=1.0,
    )
