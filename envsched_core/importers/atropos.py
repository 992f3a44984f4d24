"""Atropos groups: JSON lines, a whole group each, as an environment saves them (`data_path_to_save_groups`).

A file belongs to one environment, whose name stands in the file's. Without messages a prompt is known by its tokens:
those that the first rollout has masked. By default the writer leaves groups out whose scores are all the same; a
file in which no such group is found is taken for one of kept groups only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .extras import opening, parallel, unpacked
from .files import Head, Source, records
from .identity import Identity
from .messages import calls_of, messages_from
from .values import floats, hashed, name, reward

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "Atropos groups: JSON lines of tokens, masks, scores and messages, a group each"
CARRIES = Carries(
    env="some",
    task="no",
    group="yes",
    step="no",
    parts="no",
    tools="no",
    calls="some",
    messages="some",
    cost="yes",
    policy="no",
    every_group="no",
    limits="groups with one score only are not written by default; the file's name is the environment's; no task ids",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("tokens", "masks", "scores")

MASKED = -100
EACH = ("scores", "tokens", "masks", "messages", "overrides")
"""Lists with one entry per rollout."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are groups of token lists with their scores."""
    return head.kind == "jsonl" and set(NEEDS) <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every rollout of one file."""
    groups = _Groups()
    rows = unpacked(records(source, "jsonl"), groups.rollouts)
    yield from as_rows(rows, source, _rollout, Identity(source, context, name(source.path.stem) or "atropos"))
    if groups.mixed and not groups.flat:
        context.notes.kept_only = (
            "Atropos leaves groups out whose scores are all the same unless it is told to keep them"
        )


class _Groups:
    """Takes groups apart, and counts those without variance."""

    def __init__(self) -> None:
        self.mixed = self.flat = 0

    def rollouts(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rollouts of a group, each with the task that they share."""
        scores = record.get("scores")
        if not isinstance(scores, list) or not scores:
            raise RowError("no scores")
        found = list(parallel(record, EACH, len(scores)))
        same = len({repr(score) for score in scores}) == 1
        self.flat, self.mixed = self.flat + same, self.mixed + (not same)
        task = "" if any(item["messages"] for item in found) else _prompt_of(found[0])
        for item in found:
            yield item | {"task": task}


def _prompt_of(rollout: Mapping[str, Any]) -> str:
    """A name for a prompt of which only the tokens are known.

    Raises:
        RowError: nothing is masked.
    """
    tokens, masks = rollout["tokens"], rollout["masks"]
    if not isinstance(tokens, list) or not isinstance(masks, list):
        raise RowError("no tokens")
    asked = next((place for place, mask in enumerate(masks) if mask != MASKED), len(masks))
    if not asked:
        raise RowError("no messages, and no token of the prompt is masked")
    return hashed(repr(tokens[:asked]))


def _rollout(record: Mapping[str, Any], place: Place, mark: int) -> Row:
    """One rollout of a group."""
    messages = messages_from(record["messages"])
    masks = record["masks"]
    return Row(
        place,
        "",
        record["task"],
        (reward(record["scores"]),),
        group=f"{place.file}:{place.line}",
        text=opening(record["messages"]),
        parts=floats(record["overrides"]),
        messages=messages,
        calls=calls_of(messages) if messages else None,
        tokens=float(sum(mask != MASKED for mask in masks)) if isinstance(masks, list) else None,
    )
