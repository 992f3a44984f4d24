"""OpenPipe ART trajectories: Parquet files `{project}/models/{model}/trajectories/{split}/{step}.parquet`.

A row is a trajectory; `group_index` numbers the groups of one file, whose name is the step and whose folder is the
split (`train`, `val`, `discarded`). Scenario and environment stand in the metadata that the user's code wrote, if at
all: their usual names are looked for in that of the trajectory, then of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .extras import named, objects, opening
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import calls_of, messages_from, tools_from
from .values import floats, name, number, reward

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "OpenPipe ART trajectories (Parquet): {model}/trajectories/{split}/{step}.parquet"
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
        "the split discarded, the first 50 a step; trajectories that raised are no rows; older .jsonl: art migrate"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("group_index", "reward", "messages")

SCENARIO = ("scenario_id", "scenario", "task_id")
SPLITS = {"train": True, "val": False, "discarded": False}
"""Split -> whether it was trained on."""
FOLDER = "trajectories"
MEASURES = ("duration", "completion_tokens", "output_tokens")
"""Metrics that are costs, no parts of a reward."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are trajectories with the number of their group."""
    keys = set(head.keys)
    return head.kind == "parquet" and set(NEEDS) <= keys and bool({"group_metadata", "metadata"} & keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every trajectory of one file."""
    where = _Where(source)
    part = context.options.reward

    def parse(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        return where.row(record, place, part)

    yield from as_rows(
        records(source, head_of(source.path).kind), source, parse, Identity(source, context, where.project)
    )


class _Where:
    """What the place of a file says of its rows."""

    def __init__(self, source: Source) -> None:
        path = PurePosixPath(source.path.resolve().as_posix())
        self.step = int(path.stem) if path.stem.isdigit() and len(path.stem) < 16 else None
        self.split = path.parent.name if path.parent.name in SPLITS else ""
        above = path.parts[-5:-1]  # project, "models", model, FOLDER, split
        placed = path.parent.parent.name == FOLDER
        self.model = name(path.parts[-4]) if placed and len(path.parts) > 3 else None
        self.project = (name(path.parts[-6]) if placed and above[0] == "models" and len(path.parts) > 5 else None) or (
            "art"
        )

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
            group="/".join(filter(None, [self.model, self.split, name(record.get("group_index"))])),
            step=self.step,
            trained=SPLITS.get(self.split),
            text=opening(told),
            tools=tools_from(record.get("tools")),
            verifier=" + ".join(parts),
            parts=parts,
            messages=messages,
            calls=calls_of(messages),
            tokens=number(metrics.get("completion_tokens", metrics.get("output_tokens"))),
            seconds=number(metrics.get("duration")),
            policy_version=self.model,
        )
