"""TRL completions: `completions/completions_{step}.parquet`, one rollout a row, one column per reward function.

Prompt and completion are lists of messages or decoded text. The total is not stored, nor are the weights: it is the
sum of the reward columns, each once; `--reward "a + 0.2*b"` says otherwise. A function that did not apply (NaN)
adds nothing; where none applied the reward is missing. The log's advantages are never a reward, but they order the
rollouts of a group as the true total does: where the sum orders them otherwise, the report says so, because then
weights were used or a column is no reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from envsched_core.errors import ConfigError
from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .fields import FIELDS, Columns, checked_mapping
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import calls_of, messages_from, tools_from
from .transcripts import asked_of, calls_in, spoken, tools_in
from .values import floats, name, number, prompt, structured, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "TRL completions (Parquet): step, prompt, completion, one column per reward function, advantage"
CARRIES = Carries(
    env="some",
    task="some",
    group="no",
    step="yes",
    parts="yes",
    tools="some",
    calls="yes",
    messages="yes",
    cost="no",
    policy="no",
    every_group="yes",
    limits=(
        "environment and task only where a reward function logs them (log_extra); groups are the rows of one prompt at "
        'one step; weights are not stored (--reward "a + 0.2*b"); a step that only repeats the completions of the '
        "one before is dropped"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("prompt", "completion", "advantage")

OWN = {"mode", "step", "prompt", "completion", "advantage", "image", "images", "timestamp"} | {
    column for field in FIELDS if field not in ("reward", "parts") for column in FIELDS[field]
}
"""Columns that are no reward, even when they hold numbers."""
STEP_FILE = re.compile(r"completions_(\d{1,15})\.parquet")
TERM = re.compile(r"\s*(?:([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\*\s*)?([^*+]*[^*+\s])\s*")
SAME, MOVES = 1e-9, 1e-3
"""Totals that are equal, and a difference that is more than the rounding of half precision."""
MOST_COMPARED = 200_000
"""Rows of a file of which totals and advantages are compared."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows hold prompt, completion, advantage and a step, and no id of another trainer."""
    keys = set(head.keys)
    return {"step", *NEEDS} <= keys and not {"example_id", "is_filtered", "rollout_id"} & keys


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every rollout of one file."""
    head = head_of(source.path)
    if (before := _before(source.path)) is not None and _digest_of(before) == _digest_of(source.path):
        reason = f"logged again: a step without new generations repeats {before.name}"
        yield from (Drop(source.label, record.line, reason) for record in records(source, head.kind))
        return
    table = _Completions(source, context, head)
    yield from as_rows(records(source, head.kind), source, table.row, Identity(source, context, "trl"))
    table.remark()


def _before(path: Path) -> Path | None:
    """The file of the step before, in the same folder."""
    return _steps(path.parent, path.parent.stat().st_mtime_ns).get(path.name)


@lru_cache(maxsize=4)
def _steps(folder: Path, changed: int) -> dict[str, Path]:
    """File -> that of the step before, of a folder as it is since `changed`."""
    numbered = [(int(match.group(1)), path) for path in folder.iterdir() if (match := STEP_FILE.fullmatch(path.name))]
    return {path.name: before for (_, before), (_, path) in pairwise(sorted(numbered))}


def _digest_of(path: Path) -> int:
    """A number for what a file says besides its step; read again only when the file has changed."""
    found = path.stat()
    return _digest(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=4)
def _digest(path: Path, size: int, changed: int) -> int:
    rows = records(Source(path), "parquet", frozenset(("prompt", "completion", "advantage")))
    return hash(tuple(record.mark for record in rows))


def weights_of(formula: str) -> dict[str, float]:
    """Weights of reward columns from ``a + 0.2*b``; a name alone counts once.

    Raises:
        ConfigError: a term is no NAME and no WEIGHT*NAME.
    """
    weights: dict[str, float] = {}
    for term in formula.split("+"):
        found = TERM.fullmatch(term)
        if found is None:
            raise ConfigError(f'--reward "{formula}": write COLUMN or WEIGHT*COLUMN, joined by +')
        weights[found.group(2)] = weights.get(found.group(2), 0.0) + float(found.group(1) or 1.0)
    return weights


class _Completions:
    """Turns the rows of one file into `Row`s."""

    def __init__(self, source: Source, context: Context, head: Head) -> None:
        self.notes = context.notes
        self.folder = source.label.rpartition("/")[0] or source.label
        self.columns = Columns(head.keys, checked_mapping(context.options.mapping))
        chosen = context.options.reward
        self.weights = None if chosen is None else {chosen: 1.0} if chosen in head.keys else weights_of(chosen)
        self.found: dict[str, None] = {}
        self.compared: dict[tuple[int | None, int], list[tuple[float, float]]] = {}
        self.rows = 0

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One rollout."""
        asked, said = structured(record.get("prompt")), structured(record.get("completion"))
        text = asked_of(asked) if isinstance(asked, str) else prompt(asked)
        if not text:
            raise RowError("no prompt")
        parts = floats({key: value for key, value in record.items() if key not in OWN and type(value) is not bool})
        self.found |= dict.fromkeys(parts)
        total = self._total(parts)
        step, mode = whole(record.get("step"), "step"), name(record.get("mode"))
        self._compare(step, asked, total, record.get("advantage"))
        before = spoken(asked, "user") if isinstance(asked, str) else messages_from(_told(asked))
        answer = spoken(said, "assistant") if isinstance(said, str) else messages_from(_told(said))
        listed = tools_from(self.columns.get(record, "tools"))
        return Row(
            place,
            name(self.columns.get(record, "env")) or "",
            name(self.columns.get(record, "task")) or "",
            (total,),
            group=name(self.columns.get(record, "group")) or mode,
            step=step,
            trained=None if mode is None else mode == "train",
            text=text,
            tools=listed or (tools_in(asked) if isinstance(asked, str) else ()),
            verifier=" + ".join(parts),
            parts=parts,
            messages=before + answer,
            calls=calls_of(answer) or (calls_in(said) or None if isinstance(said, str) else ()),
            tokens=number(self.columns.get(record, "tokens")),
        )

    def _total(self, parts: Mapping[str, float]) -> float | None:
        """The weighted sum of the functions that applied; None when none did."""
        weights = dict.fromkeys(parts, 1.0) if self.weights is None else self.weights
        applied = [weight * parts[column] for column, weight in weights.items() if column in parts]
        return sum(applied) if applied else None

    def _compare(self, step: int | None, asked: Any, total: float | None, advantage: Any) -> None:
        """Keep total and advantage of a rollout for the comparison at the end."""
        self.rows += 1
        if total is not None and isinstance(advantage, float) and advantage == advantage and self.rows < MOST_COMPARED:
            self.compared.setdefault((step, hash(repr(asked))), []).append((total, advantage))

    def remark(self) -> None:
        """Say what the reward was taken to be, and where the log's advantages speak against it."""
        shown = " + ".join(self.found)
        if self.weights is None and len(self.found) > 1:
            self.notes.add(f"the reward is the plain sum {shown}: weights are not in the log (--reward names them)")
        if not all(map(_agrees, self.compared.values())):
            self.notes.add(
                f"{self.folder}: advantages of some groups do not go with the reward taken here ({shown}): the run "
                "weighted these columns, one of them is no reward, or a prompt was drawn twice at one step"
            )


def _agrees(pairs: list[tuple[float, float]]) -> bool:
    """Whether equal totals have equal advantages, and a higher total a higher one."""
    for (low, before), (high, after) in pairwise(sorted(pairs)):
        gap = high - low
        if gap <= SAME and abs(after - before) > MOVES:
            return False
        if gap > MOVES and after <= before:
            return False
    return True


def _told(messages: Any) -> Any:
    """Messages of a Parquet row without the empty fields that its schema gives to every message and argument."""
    if isinstance(messages, dict):
        return {key: _told(value) for key, value in messages.items() if value is not None}
    return [_told(item) for item in messages] if isinstance(messages, list | tuple) else messages
