"""slime rollouts as its converter (pickles.py) writes them: JSON lines, one sample each.

slime itself saves pickles, which are never loaded here. `slime_iteration` is the iteration of training (the file's
`rollout_id`); a sample's own `rollout_id` is one execution: several samples of one repeat its reward and count once.
Environment and task stand in the sample's metadata, if at all. Samples that were aborted have no reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.errors import LogFormatError
from envsched_core.records import Message, Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .extras import named, objects
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import messages_from, tools_from
from .pickles import is_pickle, why_not_loaded
from .transcripts import asked_of, calls_in, spoken, tools_in
from .values import RowError, flag, floats, name, number, prompt, reward, structured, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "slime rollouts, converted from rollout_{n}.pt to JSON lines (naming a .pt shows the script that does it)"
CARRIES = Carries(
    env="some",
    task="some",
    group="yes",
    step="yes",
    parts="some",
    tools="some",
    calls="some",
    messages="yes",
    cost="some",
    policy="yes",
    every_group="some",
    limits=(
        ".pt is a pickle and never loaded: convert it where the trainer runs; environment and task only where the "
        "metadata has them; groups without variance are missing when the dynamic filter is on; a reward of several "
        "numbers needs --reward"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

SAMPLE = {"slime_iteration", "group_index", "reward"}
NO_REWARD = {"aborted", "failed", "pending"}


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are samples as the converter writes them."""
    return head.kind == "jsonl" and set(head.keys) >= SAMPLE


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every sample of one file."""
    head = head_of(source.path)
    if is_pickle(head):
        raise LogFormatError(why_not_loaded(), file=source.label)
    if not claims(head, context.options):
        raise LogFormatError(f"is no log of slime: its rows need {', '.join(sorted(SAMPLE))}", file=source.label)
    part = context.options.reward

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        return _sample(record, place, part)

    yield from as_rows(records(source, "jsonl"), source, parse, Identity(source, context, "slime"))


def _sample(record: Mapping[str, Any], place: Place, part: str | None) -> Row:
    """One sample."""
    metadata = objects(record.get("metadata"))
    evaluated = flag(record.get("slime_eval")) is True
    asked, said = structured(record.get("prompt")), text(record.get("response"))
    before, after = _before(asked), spoken(said, "assistant")
    parts, status = floats(record.get("reward")), text(record.get("status")).rpartition(".")[2].lower()
    versions = record.get("weight_versions")
    execution = record.get("rollout_id", record.get("index"))
    calls = tuple(call for message in after for call in message.calls) or calls_in(said)
    return Row(
        place,
        named(metadata, "env"),
        named(metadata, "task"),
        (None if status in NO_REWARD else _reward(record.get("reward"), parts, part),),
        group=("eval/" if evaluated else "") + (name(record.get("group_index")) or ""),
        step=whole(record.get("slime_iteration"), "slime_iteration"),
        policy_version=name(versions[0]) if isinstance(versions, list) and versions else None,
        trained=False if evaluated or flag(record.get("remove_sample")) else None,
        mark=0 if execution is None else hash(repr(execution)) or 1,
        text=asked_of(asked) if isinstance(asked, str) else prompt(asked),
        answer=text(record.get("label")),
        tools=next((tools_from(item["tools"]) for item in metadata if item.get("tools")), ()) or _documented(asked),
        verifier=" + ".join(parts),
        parts=parts,
        messages=before + after,
        calls=calls or None,
        tokens=number(record.get("response_length")),
        status="" if status == "completed" else status,
    )


def _before(asked: Any) -> tuple[Message, ...]:
    return spoken(asked, "user") if isinstance(asked, str) else messages_from(asked)


def _documented(asked: Any) -> Any:
    return tools_in(asked) if isinstance(asked, str) else ()


def _reward(value: Any, parts: Mapping[str, float], part: str | None) -> float | None:
    """The reward, or the one number of a reward that is an object.

    Raises:
        RowError: it holds several, and none was chosen.
    """
    if part not in (None, "reward"):
        return parts.get(part or "")
    if isinstance(value, Mapping):
        if len(parts) == 1:
            return next(iter(parts.values()))
        raise RowError(
            f"the reward holds several numbers ({', '.join(list(parts)[:5])}): choose one with --reward NAME"
        )
    return reward(value)
