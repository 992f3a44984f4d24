"""rLLM: episodes (`episodes/{train|val}_step_{S}_epoch_{E}/episode_*.json`, one file each) and results of `rllm eval`.

The task is the episode's own id where its data has one, else its hash; what stands before the last colon of
`episode_id` names the draw. An episode of one trajectory is rewarded with that one's reward, an episode of several
with its outcome (`is_correct`): `--reward NAME` chooses a trajectory by its name. Results of an evaluation hold
rewards only: its items share the `idx` of their task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from envsched_core.records import Message, Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .extras import named, objects, opening
from .files import Head, Source, head_of, items_of, members_of, records
from .identity import Identity
from .messages import calls_of, messages_from
from .values import flag, floats, name, number, prompt, reward, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "rLLM episodes (one JSON file each, in a folder a step) and results of rllm eval"
CARRIES = Carries(
    env="some",
    task="yes",
    group="some",
    step="yes",
    parts="some",
    tools="no",
    calls="yes",
    messages="yes",
    cost="some",
    policy="some",
    every_group="yes",
    limits=(
        "environment only where the task's data names it; results of rllm eval hold rewards and no text; an episode "
        "of several trajectories is rewarded with is_correct (--reward NAME: a trajectory)"
    ),
)
COMPANIONS = ("batch_summary.json", "meta.json")
NEEDS: tuple[str, ...] = ()

EPISODE = {"episode_id", "trajectories", "task"}
RESULTS = {"items", "dataset_name", "model"}
ASKED = ("question", "problem", "prompt", "instruction", "query", "input")
"""Where a task's data may say what it asks."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether this is an episode, or the results of an evaluation."""
    keys = set(head.keys)
    return head.kind in ("object", "jsonl") and (keys >= EPISODE or keys >= RESULTS)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every episode of one file."""
    head = head_of(source.path)
    if set(head.keys) >= RESULTS:
        yield from _results(source, context)
        return
    where = PurePosixPath(source.label)
    validated = any(folder.startswith("val_step_") for folder in where.parts)
    part = context.options.reward

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        row, several = _episode(record, place, part)
        row.trained = False if validated else None
        row.mark = mark
        if several and part is None:
            context.notes.add(f"episodes of several trajectories ({several}) are rewarded with is_correct; --reward")
        return row

    yield from as_rows(records(source, head.kind), source, parse, Identity(source, context, "rllm"))


def _episode(record: Mapping[str, Any], place: Place, part: str | None) -> tuple[Row, str]:
    """One episode, and the names of its trajectories when there are several."""
    task, metadata = objects(record.get("task")), objects(record.get("metadata"))
    walks = objects(*(record.get("trajectories") or ()))
    parts = _rewards(walks)
    several = " + ".join(parts) if len(walks) > 1 else ""
    told, messages = _said(walks)
    episode = name(record.get("episode_id")) or ""
    row = Row(
        place,
        named([*task, *metadata], "env"),
        named(task, "task") or name(record.get("task_hash")) or "",
        (_reward(record, walks, parts, part),),
        group=episode.rpartition(":")[0] or None,
        step=whole(record.get("training_step"), "training_step"),
        text=_asked(record.get("task"), told),
        answer=text(next((item.get("ground_truth") or item.get("answer") for item in task), "")),
        verifier=" + ".join(floats(record.get("metrics"))),
        parts=parts | floats(record.get("metrics")),
        messages=messages,
        calls=calls_of(messages) if messages else None,
        seconds=number(next((item.get("total") for item in objects(record.get("timing"))), None)),
        turns=_turns(walks),
        status=text(record.get("termination_reason")),
    )
    return row, several


def _rewards(walks: list[Mapping[str, Any]]) -> dict[str, float]:
    """Reward of every trajectory by name; a name that comes again is numbered."""
    parts: dict[str, float] = {}
    for number_, walk in enumerate(walks):
        called = name(walk.get("name")) or "trajectory"
        parts |= floats({called if called not in parts else f"{called} {number_}": walk.get("reward")})
    return parts


def _reward(
    record: Mapping[str, Any], walks: list[Mapping[str, Any]], parts: Mapping[str, float], part: str | None
) -> float | None:
    """The reward of an episode."""
    if part is not None:
        return parts.get(part, floats(record.get("metrics")).get(part))
    alone = reward(walks[0].get("reward")) if len(walks) == 1 else None
    outcome = flag(record.get("is_correct"))
    return alone if alone is not None or outcome is None else float(outcome)


def _said(walks: list[Mapping[str, Any]]) -> tuple[Any, tuple[Message, ...]]:
    """What was said first to last in every trajectory: each step's list repeats that of the step before."""
    told: Any = None
    messages: list[Message] = []
    for walk in walks:
        steps = objects(*(walk.get("steps") or ()))
        lists = [step["chat_completions"] for step in steps if step.get("chat_completions")]
        last = lists[-1] if lists else [turn for step in steps for turn in _turn(step)]
        told = last if told is None else told
        messages += messages_from(last)
    return told, tuple(messages)


def _turn(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A step without a list of messages: what was seen, and what the model answered."""
    if seen := text(step.get("observation")):
        yield {"role": "user", "content": seen}
    if said := text(step.get("model_response")) or text(step.get("action")):
        yield {"role": "assistant", "content": said}


def _asked(task: Any, told: Any) -> str:
    """What a task asks: by its own data, else before the model first speaks."""
    for holder in objects(task):
        for key in ASKED:
            if holder.get(key):
                return prompt(holder[key])
    return opening(told) or (task if isinstance(task, str) else "")


def _turns(walks: list[Mapping[str, Any]]) -> float | None:
    """Steps of all trajectories."""
    amounts = [number(walk.get("num_steps")) for walk in walks]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _results(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every attempt of an evaluation."""
    about = members_of(source, frozenset(("dataset_name", "model", "timestamp")))
    env, model = name(about.get("dataset_name")) or "", name(about.get("model"))
    part = context.options.reward

    def parse(item: Mapping[str, Any], place: Place, mark: int) -> Row:
        task = name(item.get("task_id")) or name(item.get("idx"))
        if task is None:
            raise RowError("no idx")
        signals = floats(item.get("signals"))
        score = item.get("reward") if part in (None, "reward") else signals.get(part or "")
        failed = item.get("error") is not None
        return Row(
            place,
            env,
            task,
            (None if failed else reward(score),),
            group=source.label,
            policy_version=model,
            mark=hash(repr(item["attempt"])) or 1 if item.get("attempt") is not None and "idx" in item else 0,
            verifier=" + ".join(signals),
            parts=signals,
            status=f"error: {text(item['error'])}" if failed else text(item.get("termination_reason")),
        )

    yield from as_rows(items_of(source, "items"), source, parse, Identity(source, context, "rllm"))
