"""SkyRL evaluation dumps: `dumped_evals/global_step_{N}_evals/{data_source}.jsonl`, one trajectory a line.

The step stands in the folder's name. The task is the row's index in its data source where `env_extras` has one, else
a hash of the prompt; rows of a task at one step are a group. A score may be a list, one number a token: their sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .extras import named, objects
from .files import Head, Source, records
from .identity import Identity
from .messages import calls_of, messages_from
from .transcripts import asked_of, calls_in, spoken, tools_in
from .values import name, prompt, reward, structured, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "SkyRL evaluation dumps: dumped_evals/global_step_{N}_evals/{data_source}.jsonl"
CARRIES = Carries(
    env="yes",
    task="some",
    group="no",
    step="yes",
    parts="no",
    tools="some",
    calls="some",
    messages="yes",
    cost="no",
    policy="no",
    every_group="yes",
    limits="evaluations only: the dump of training batches is a pickle without ids and is never read",
)
COMPANIONS = ("aggregated_results.jsonl",)
NEEDS = ("input_prompt", "output_response", "score")

STEP = re.compile(r"global_step_(\d{1,15})_evals/")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows hold prompt, response, score and the class of the environment."""
    return head.kind == "jsonl" and {*NEEDS, "env_class"} <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every trajectory of one file."""
    found = STEP.findall(source.path.resolve().as_posix())
    step = int(found[-1]) if found else None

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        row = _trajectory(record, place)
        row.step = step
        return row

    yield from as_rows(records(source, "jsonl"), source, parse, Identity(source, context, "skyrl"))


def _trajectory(record: Mapping[str, Any], place: Place) -> Row:
    """One trajectory."""
    asked, said = structured(record.get("input_prompt")), structured(record.get("output_response"))
    before = spoken(asked, "user") if isinstance(asked, str) else messages_from(asked)
    after = spoken(said, "assistant") if isinstance(said, str) else messages_from(said)
    extras = objects(record.get("env_extras"))
    index = named(extras, "task")
    origin = name(record.get("data_source"))
    return Row(
        place,
        named([record], "env", "env_class"),
        f"{origin}/{index}" if index and origin else index,
        (_score(record.get("score")),),
        trained=False,
        text=asked_of(asked) if isinstance(asked, str) else prompt(asked),
        tools=tools_in(asked) if isinstance(asked, str) else (),
        messages=before + after,
        calls=calls_of(after) or (calls_in(said) or None if isinstance(said, str) else ()),
        status=text(record.get("stop_reason")),
    )


def _score(value: Any) -> float | None:
    """A reward, or the sum of one a token."""
    value = structured(value)
    if not isinstance(value, list):
        return reward(value)
    scores = [reward(item) for item in value]
    known = [score for score in scores if score is not None]
    return sum(known) if known else None
