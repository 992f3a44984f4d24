"""tinker-cookbook rollout summaries: `iteration_{i}/train_rollout_summaries.jsonl`, one trajectory a line.

They hold no text and no problem id. The environment is a tag `env:NAME`, else the first tag; the task is a tag
`task:ID` or a usual name in the first step's logs. Where nothing names it, each group is a task of its own: enough
to see how many groups had no variance, too little to learn which task is worth another draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .extras import named, objects
from .files import Head, Source, records
from .identity import Identity
from .values import floats, name, number, reward, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "tinker-cookbook rollout summaries: iteration_{i}/train_rollout_summaries.jsonl"
CARRIES = Carries(
    env="some",
    task="some",
    group="yes",
    step="yes",
    parts="some",
    tools="no",
    calls="no",
    messages="no",
    cost="yes",
    policy="yes",
    every_group="some",
    limits=(
        "no text; put task:ID (and env:NAME) into the environment's logging tags, or each group counts as a task of "
        "its own; groups of one reward are missing when remove_constant_reward_groups is on"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("group_idx", "traj_idx", "total_reward")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are summaries of trajectories."""
    return head.kind == "jsonl" and set(NEEDS) <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every trajectory of one file."""
    summaries = _Summaries(context)
    yield from as_rows(records(source, "jsonl"), source, summaries.row, Identity(source, context, "tinker"))
    if summaries.unnamed:
        context.notes.add(
            "nothing names the tasks of some groups: each counts as a task of its own (a logging tag task:ID names it)"
        )


class _Summaries:
    """Turns the rows of one file into `Row`s."""

    def __init__(self, context: Context) -> None:
        self.part = context.options.reward
        self.unnamed = 0

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One trajectory."""
        tags = [tag for tag in record.get("tags") or () if isinstance(tag, str)]
        steps = objects(*(record.get("steps") or ()))
        logs = objects(steps[0].get("logs")) if steps else []
        iteration, group = whole(record.get("iteration"), "iteration"), name(record.get("group_idx"))
        split = name(record.get("split")) or "train"
        metrics = floats(record.get("trajectory_metrics"))
        parts = metrics | floats({"final_reward": record.get("final_reward")})
        task = _tagged(tags, "task:") or named(logs, "task")
        if not task:
            self.unnamed += 1
            task = f"iteration {iteration}, {split} group {group}"
        value = record.get("total_reward") if self.part in (None, "total_reward") else parts.get(self.part or "")
        return Row(
            place,
            _tagged(tags, "env:") or named(logs, "env") or next((tag for tag in tags if ":" not in tag), ""),
            task,
            (reward(value),),
            group=f"{split}/{group}",
            step=iteration,
            policy_version=name(record.get("sampling_client_step")),
            trained=None if split == "train" else False,
            mark=mark,
            verifier=" + ".join(metrics),
            parts=parts,
            tokens=_sum(steps, "ac_len"),
            turns=float(len(steps)) if steps else None,
            status=text(steps[-1].get("stop_reason")) if steps else "",
        )


def _tagged(tags: list[str], prefix: str) -> str:
    """What follows a prefix in the first tag that has it; empty when none has."""
    return next((name(tag.removeprefix(prefix)) or "" for tag in tags if tag.startswith(prefix)), "")


def _sum(steps: list[Mapping[str, Any]], key: str) -> float | None:
    """The sum over steps; None when one does not tell."""
    amounts = [number(step.get(key)) for step in steps]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None
