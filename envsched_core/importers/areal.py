"""AReaL rollout dumps: `rollout/{tail_version}/{task_id}.jsonl`, one file a dispatch.

`task_id` counts dispatches, so it is the group; the task is a hash of the prompt. Trajectories that the accept filter
then rejected are in it without a mark, so nothing is known of what was trained on. `eval-rollout/` was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .files import Head, Source, records
from .identity import Identity
from .transcripts import asked_of, calls_in, spoken, tools_in
from .values import name, number, reward, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "AReaL rollout dumps: rollout/{version}/{task_id}.jsonl, one file a dispatch"
CARRIES = Carries(
    env="no",
    task="no",
    group="yes",
    step="yes",
    parts="no",
    tools="some",
    calls="some",
    messages="yes",
    cost="yes",
    policy="yes",
    every_group="yes",
    limits="no environment and no task: --env, a rule or a join file; rejected trajectories are in it, unmarked",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("task_id", "sample_idx", "reward", "tail_version")

EVALUATED = "eval-rollout"


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are samples of a dispatch with the versions that wrote them."""
    return head.kind == "jsonl" and set(NEEDS) <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every sample of one file."""
    evaluated = EVALUATED in PurePosixPath(source.path.resolve().as_posix()).parts
    steps: dict[str, int | None] = {}

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        dispatch = name(record.get("task_id"))
        if dispatch is None:
            raise RowError("no task_id")
        row = _sample(record, place)
        row.group = f"{EVALUATED}/{dispatch}" if evaluated else dispatch
        row.trained = False if evaluated else None
        # samples of a dispatch may end at another version than its first: they stay one group
        row.step = steps.setdefault(dispatch, whole(record.get("tail_version"), "tail_version"))
        row.mark = mark
        return row

    yield from as_rows(records(source, "jsonl"), source, parse, Identity(source, context, "areal"))


def _sample(record: Mapping[str, Any], place: Place) -> Row:
    """One sample."""
    asked, said = text(record.get("prompt")), text(record.get("completion"))
    after = spoken(said, "assistant")
    length, before = number(record.get("seqlen")), number(record.get("prompt_len"))
    return Row(
        place,
        "",
        "",
        (reward(record.get("reward")),),
        policy_version=name(record.get("head_version")),
        text=asked_of(asked),
        tools=tools_in(asked),
        messages=spoken(asked, "user") + after,
        calls=tuple(call for message in after for call in message.calls) or calls_in(said) or None,
        tokens=number(length - before) if length is not None and before is not None else None,
    )
