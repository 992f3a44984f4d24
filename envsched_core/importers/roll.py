"""ROLL dumps: `rollout_dump_data.step_{N}.jsonl`, one line of lists that stand side by side, an entry a rollout.

Rows of one prompt at one step are a group. The environment is the domain, else the tag or the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .extras import parallel, unpacked
from .files import Head, Source, records
from .identity import Identity
from .messages import messages_from
from .transcripts import asked_of, calls_in, spoken, tools_in
from .values import name, prompt, reward, structured, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "ROLL dumps: rollout_dump_data.step_{N}.jsonl, one line of parallel lists"
CARRIES = Carries(
    env="some",
    task="some",
    group="no",
    step="yes",
    parts="no",
    tools="some",
    calls="some",
    messages="yes",
    cost="no",
    policy="no",
    every_group="some",
    limits="groups are the rows of one prompt at one step; a step is one line, which the limit on records may drop",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("prompt", "responses", "scores")

EACH = ("id", "source", "difficulty", "prompt", "responses", "scores", "tag", "domain")
STEP = re.compile(r"step_(\d{1,15})\.jsonl")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether a row holds lists of prompts, responses and scores."""
    listed = all(isinstance(head.first.get(key), list) for key in NEEDS)
    return head.kind == "jsonl" and set(NEEDS) <= set(head.keys) and listed


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every rollout of one file."""
    found = STEP.search(source.label)
    step = int(found.group(1)) if found else None
    rows = unpacked(records(source, "jsonl"), lambda record: _rollouts(record, step))
    yield from as_rows(rows, source, _rollout, Identity(source, context, "roll"))


def _rollouts(record: Mapping[str, Any], step: int | None) -> Iterator[dict[str, Any]]:
    """The rollouts of a line, each with the step of all."""
    scores = record.get("scores")
    if not isinstance(scores, list) or not scores:
        raise RowError("no scores")
    steps = record.get("global_step")
    for index, item in enumerate(parallel(record, EACH, len(scores))):
        own = steps[index] if isinstance(steps, list) and index < len(steps) else steps
        yield item | {"step": step if own is None or isinstance(own, list) else own}


def _rollout(record: Mapping[str, Any], place: Place, mark: int) -> Row:
    """One rollout."""
    asked, said = structured(record["prompt"]), text(record["responses"])
    after = spoken(said, "assistant")
    return Row(
        place,
        next((found for key in ("domain", "tag", "source") if (found := name(record[key]))), ""),
        name(record["id"]) or "",
        (reward(record["scores"]),),
        step=whole(record["step"], "global_step"),
        text=asked_of(asked) if isinstance(asked, str) else prompt(asked),
        tools=tools_in(asked) if isinstance(asked, str) else (),
        messages=(spoken(asked, "user") if isinstance(asked, str) else messages_from(asked)) + after,
        calls=tuple(call for message in after for call in message.calls) or calls_in(said) or None,
    )
