"""Samples of a hosted prime-rl run: `rollouts.jsonl` with `run.json` beside it.

A problem may be drawn more than once in a step, and nothing in a row tells the draws apart but the number of the
sample: those of a draw follow each other, as many as `rollouts_per_example` in run.json says. Such exports hold the
samples of a few steps only, and cut the last draw short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envsched_core.limits import RECORD_BYTES
from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .files import Head, Source, decode, records
from .identity import Identity
from .messages import calls_from, calls_of, messages_from
from .values import floats, name, number, prompt, reward, structured, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = (
    "samples of a hosted prime-rl run: rollouts.jsonl (step, problem_id, sample_id, env_name) with run.json beside it"
)
CARRIES = Carries(
    env="yes",
    task="yes",
    group="some",
    step="yes",
    parts="yes",
    tools="no",
    calls="some",
    messages="some",
    cost="yes",
    policy="no",
    every_group="no",
    limits="an export of some samples of some steps; draws of one problem are told apart by run.json only",
)
COMPANIONS = ("run.json", "metrics.jsonl")
NEEDS = ("problem_id", "sample_id", "reward")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are numbered samples of problems."""
    return head.kind == "jsonl" and {*NEEDS, "env_name", "step"} <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every sample of one file."""
    size = _group_size(source.path.with_name("run.json"))
    if size is None:
        context.notes.add(
            f"{source.label}: no run.json beside it tells the group size: all samples of a problem at one step are one "
            "group, even when it was drawn twice"
        )
    part = context.options.reward

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        return _sample(record, place, size, part)

    yield from as_rows(records(source, "jsonl"), source, parse, Identity(source, context, "hosted"))


def _group_size(file: Path) -> int | None:
    """Samples of one draw, None when nothing tells."""
    if not file.is_file() or file.stat().st_size > RECORD_BYTES.now():
        return None
    try:
        value = decode(file.read_bytes())
    except ValueError:
        return None
    size = value.get("rollouts_per_example") if isinstance(value, dict) else None
    return size if isinstance(size, int) and size > 0 else None


def _sample(record: Mapping[str, Any], place: Place, size: int | None, part: str | None) -> Row:
    """One sample."""
    number_ = whole(record.get("sample_id"), "sample_id")
    parts, timing = floats(record.get("metrics")), structured(record.get("timing"))
    asked, answer = messages_from(record.get("prompt")), messages_from(record.get("completion"))
    called = calls_of(answer) or calls_from(record.get("tool_calls"))
    return Row(
        place,
        name(record.get("env_name")) or "",
        name(record.get("problem_id")) or "",
        (reward(record.get("reward") if part in (None, "reward") else parts.get(part or "")),),
        group=None if size is None or number_ is None else f"draw {number_ // size}",
        step=whole(record.get("step"), "step"),
        mark=0 if number_ is None else hash(repr(number_)) or 1,
        text=prompt(record.get("prompt")),
        verifier=" + ".join(part for part in sorted(parts) if "reward" in part),
        parts=parts,
        messages=asked + answer,
        calls=called if answer or record.get("tool_calls") is not None else None,
        tokens=number(record.get("num_output_tokens")) or None,  # 0 where they were not counted
        seconds=number(timing.get("total")) if isinstance(timing, Mapping) else None,
        turns=number(parts.get("num_turns")),
        tool_calls=number(parts.get("total_tool_calls")),
    )
