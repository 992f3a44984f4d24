"""OpenPipe ART trajectories: Parquet files `{project}/models/{model}/trajectories/{split}/{step}.parquet`.

A row is a trajectory; `group_index` numbers the groups of one file, whose name is the step and whose folder is the
split (`train`, `val`, `discarded`). Scenario and environment stand in the metadata that the user's code wrote, if at
all: their usual names are looked for in that of the trajectory, then of its group. Older releases wrote JSON lines,
a group each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from envsched_core.errors import LogFormatError
from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .extras import Documents, named, objects, opening, unpacked
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import calls_of, messages_from
from .values import floats, name, number, reward

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "OpenPipe ART trajectories (Parquet, older JSON lines): {model}/trajectories/{split}/{step}.parquet"
CARRIES = Carries(
    env="some",
    task="some",
    group="yes",
    step="yes",
    parts="some",
    tools="yes",
    calls="yes",
    messages="yes",
    cost="some",
    policy="some",
    every_group="some",
    limits=(
        "environment and task only where the metadata has them; the pipeline trainer moves groups without variance to "
        "the split discarded, the first 50 a step; trajectories that raised are no rows"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

TRAJECTORY = {"group_index", "reward", "messages"}
SCENARIO = ("scenario_id", "scenario", "task_id")
SPLITS = {"train": True, "val": False, "discarded": False}
"""Split -> whether it was trained on."""
FOLDER = "trajectories"
MEASURES = ("duration", "completion_tokens", "output_tokens")
"""Metrics that are costs, no parts of a reward."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are trajectories with the number of their group, or groups as older releases wrote them."""
    keys = set(head.keys)
    if head.kind == "parquet":
        return keys >= TRAJECTORY and bool({"group_metadata", "metadata"} & keys)
    walks = head.first.get("trajectories")
    older = isinstance(walks, list) and any(isinstance(walk, dict) and "messages_and_choices" in walk for walk in walks)
    return head.kind == "jsonl" and older


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every trajectory of one file."""
    head = head_of(source.path)
    if not claims(head, context.options):
        raise LogFormatError("is no log of ART: neither trajectories with a group_index nor groups", file=source.label)
    where = _Where(source)
    part = context.options.reward

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        return where.row(record, place, part)

    found = records(source, head.kind)
    rows = unpacked(found, _older) if head.kind == "jsonl" else found
    yield from as_rows(rows, source, parse, Identity(source, context, where.project))


def _older(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The trajectories of a group as older releases wrote it, a group a line."""
    for walk in objects(*(record.get("trajectories") or ())):
        told = walk.get("messages_and_choices") or ()
        messages = [item.get("message", item) if isinstance(item, Mapping) else item for item in told]
        yield {**walk, "messages": messages, "group_metadata": record.get("metadata")}


class _Where:
    """What the place of a file says of its rows."""

    def __init__(self, source: Source) -> None:
        self.documents = Documents()
        path = PurePosixPath(source.path.resolve().as_posix())
        self.step = int(path.stem) if path.stem.isdigit() and len(path.stem) < 16 else None
        self.split = path.parent.name if path.parent.name in SPLITS else ""
        project, models, model, folder = (("",) * 5 + path.parent.parts)[-5:-1]
        self.model = name(model) if folder == FOLDER else None
        self.project = (name(project) if (models, folder) == ("models", FOLDER) else None) or "art"

    def row(self, record: Mapping[str, Any], place: Place, part: str | None) -> Row:
        """One trajectory."""
        holders = objects(record.get("metadata"), record.get("group_metadata"))
        metrics = floats(record.get("metrics"))
        parts = {key: value for key, value in metrics.items() if key not in MEASURES}
        told = [item for item in record.get("messages") or () if isinstance(item, Mapping)]
        messages = messages_from(told)
        return Row(
            place,
            named(holders, "env"),
            named(holders, "task", *SCENARIO),
            (reward(record.get("reward") if part in (None, "reward") else parts.get(part or "")),),
            group="/".join(
                filter(None, [self.model, self.split, name(record.get("group_index")) or f"line {place.line}"])
            ),
            step=self.step,
            trained=SPLITS.get(self.split),
            text=opening(told),
            tools=self.documents(record.get("tools")),
            verifier=" + ".join(parts),
            parts=parts,
            messages=messages,
            calls=calls_of(messages),
            tokens=number(metrics.get("completion_tokens", metrics.get("output_tokens"))),
            seconds=number(metrics.get("duration")),
            policy_version=self.model,
        )
