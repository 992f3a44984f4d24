"""prime-rl v0.6 rollouts: `rollouts/step_N/train_rollouts.jsonl`, the legacy verifiers layout with more fields.

A row names environment (`env_name`), example, group, policy version and whether a filter took it out of training
(`is_filtered`); the step is the folder's. `eval_rollouts_{env}.jsonl` beside it is left out of a folder that is read
whole, since nothing was chosen there; name such a file to read it. Later versions write traces (verifiers_traces.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .files import Head, Source, records
from .identity import Identity
from .values import flag, name, reward, whole
from .verifiers_legacy import told

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "prime-rl v0.6 train_rollouts.jsonl (a folder of step_N, or one file)"
CARRIES = Carries(
    env="yes",
    task="yes",
    group="yes",
    step="yes",
    parts="yes",
    tools="yes",
    calls="yes",
    messages="yes",
    cost="some",
    policy="yes",
    every_group="some",
    limits="the step is the folder's; is_filtered tells what was not trained on",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("env_name", "example_id", "reward")

OWN = {
    *(
        "env_name",
        "group_id",
        "policy_version",
        "off_policy_steps",
        "rollout_id",
        "advantage",
        "is_filtered",
        "filters",
    ),
    *("eval_step", "step", "trajectory"),
}
"""Columns that are no part of the reward, even when they hold numbers."""
EVALUATION = re.compile(r"eval_rollouts_.*\.jsonl")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are rollouts of the legacy layout with the trainer's fields."""
    keys = set(head.keys)
    trains = {"group_id", "policy_version", "is_filtered", "off_policy_steps"} & keys
    return head.kind == "jsonl" and set(NEEDS) <= keys and {"prompt", "completion"} <= keys and bool(trains)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every rollout of one file."""
    label = PurePosixPath(source.label)
    if len(label.parts) > 1 and EVALUATION.fullmatch(label.name):
        context.notes.add(
            "evaluations during training are left out of a folder read whole; name such a file to read it"
        )
        return

    def row(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        return _row(record, place, context.options.reward)

    yield from as_rows(records(source, "jsonl"), source, row, Identity(source, context))


def _row(record: Mapping[str, Any], place: Place, part: str | None) -> Row:
    """One rollout as a row."""
    found = told(record, OWN)
    score = reward(found.parts.get(part) if part is not None else record.get("reward"))
    filtered = flag(record.get("is_filtered"))
    rollout = name(record.get("rollout_id"))
    return Row(
        place,
        name(record.get("env_name")) or "",
        name(record.get("example_id")) or "",
        (None if found.failed else score,),
        group=name(record.get("group_id")),
        step=whole(record.get("step", record.get("eval_step")), "step"),
        policy_version=name(record.get("policy_version")),
        trained=None if filtered is None else not filtered,
        mark=(hash(rollout) or 1) if rollout else 0,
        **found.fields,
    )
