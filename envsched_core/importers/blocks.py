"""Rows of a table many at a time: JSON lines with the same keys, decoded into columns.

Row by row, a table costs what Python needs for a row, however short it is. The lines of a block are decoded by msgspec
into structs of just the columns that are read, and each column is then worked on as a whole. Only plain rows become a
block: lines that are anything else (no JSON, other columns, an id that must be changed, no task) are left to be read
row by row, so that every rule about rows stands in one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import repeat
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from envsched_core.records import Place, Rollout

from .base import UNUSABLE, Context, Drop, Listed, Row, step_of
from .fields import FIELDS, Columns, checked_mapping
from .files import Head, Source
from .messages import calls_of
from .packed import is_packed
from .values import LARGEST, LARGEST_REWARD, Given, RowError, name, parted

__all__ = ["Block", "InBlocks", "Shape", "Work", "block_rollouts", "lines_of", "shape_of"]

BLOCK_BYTES = 2**17
"""Bytes of the lines that are read together: many rows, and little beside all else in memory."""
FEWEST = 16
"""Rows below which a block is not worth its while."""
MOST_KEYS = 200
"""Keys of a row beyond which rows are read one by one."""
ESCAPED = re.compile(r'[\x00-\x1f"\\]')
"""What JSON escapes: msgspec takes no such key for a field."""
REMEMBERED = 65_536
"""Names that are remembered, as ids come again and again."""

Cost = Annotated[float, Meta(ge=0, le=LARGEST_REWARD)] | None
TYPES: dict[str, Any] = {
    "env": str | int,
    "task": str | int,
    "reward": Annotated[float, Meta(ge=-LARGEST_REWARD, le=LARGEST_REWARD)] | None,
    "group": str | int | None,
    "step": Annotated[int, Meta(ge=0, lt=2**53)] | None,
    "policy_version": str | int | None,
    "parts": dict[str, Annotated[float, Meta(gt=-LARGEST, lt=LARGEST)]] | None,
    **dict.fromkeys(("tokens", "seconds", "turns", "tool_calls"), Cost),
}
"""Fields that need no more work once they are decoded as this, ids apart."""
IDS = ("env", "task", "group", "policy_version")
ROW_BY_ROW = ("milliseconds", "same_text")
"""Fields that are read row by row only."""
CANDIDATES = {column.partition(".")[0] for usual in FIELDS.values() for column in usual}
NOTHING = Row(Place("", 0), "", "", ())
"""A row of which the log tells nothing."""


Lines = list[tuple[int, bytes | None]]
"""Lines with their numbers from 1 on; None for one that is too long."""


class Block(msgspec.Struct, frozen=True):
    """Rows of one rollout each, in columns of equal length."""

    file: str
    line: list[int]
    reward: list[float | None]
    columns: dict[str, list[Any]]
    """Further fields of a `Row` by name; one that is not there has its default in all rows."""
    failed: int
    """Rollouts that ended in an error."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.line)

    def __getitem__(self, field: str) -> list[Any]:
        """A field of all rows."""
        return self.columns.get(field) or [getattr(NOTHING, field)] * len(self)

    def row(self, index: int) -> Row:
        """One row by itself."""
        fields = {field: values[index] for field, values in self.columns.items()}
        return Row(Place(self.file, self.line[index]), rewards=(self.reward[index],), **fields)


@runtime_checkable
class InBlocks(Protocol):
    """A reader that can give many rows together."""

    def read_in_blocks(self, source: Source, context: Context) -> Iterator[Row | Drop | Listed | Block]:
        """As `read`, some rows in blocks."""


def block_rollouts(block: Block, group_ids: list[str], positions: list[int]) -> Iterable[Rollout]:
    """The rollouts of a block; `positions`: of each in its group."""
    return map(
        Rollout,
        group_ids,
        block["env"],
        block["task"],
        positions,
        block.reward,
        block["parts"],
        block["messages"],
        [calls or () for calls in block["calls"]],
        block["tokens"],
        block["seconds"],
        block["status"],
        map(Place, repeat(block.file), block.line),
    )


class Work(NamedTuple):
    """What a reader does to the columns."""

    parsers: Mapping[str, Callable[[Any], Any]]
    """Field of a `Row` -> what makes its value of a column's."""
    ended: Callable[[Any, Any], tuple[str, bool]]
    """(error, status) -> the `Row`'s status, and whether the rollout failed."""


class _Names(dict[Any, str | None]):
    """Values -> names, for ids that are kept as the log has them."""

    def __missing__(self, value: Any) -> str | None:
        found = name(value)
        if isinstance(found, Given):
            raise RowError("a name to be changed")
        if len(self) >= REMEMBERED:
            self.clear()
        self[value] = found
        return found


class Shape:
    """How the lines of one file become blocks; `shape_of` makes it."""

    def __init__(self, source: Source, columns: Columns, others: Sequence[str], *, env: str, work: Work) -> None:
        """`columns`: where fields stand; `others`: what else a row may have; `env`: where no column names it."""
        self.file, self.step, self.env, self.work = source.label, step_of(source.label), env, work
        self.names = _Names()
        self.fields = [field for field in columns.paths if field in IDS or field in work.parsers]
        self.get = {field: attrgetter(f"_{k}") for k, field in enumerate(columns.paths)}
        read = [(f"_{k}", TYPES.get(field, Any)) for k, field in enumerate(columns.paths)]
        passed = {f"_{k}": key for k, key in enumerate(others, len(read))}
        struct = msgspec.defstruct(
            "Line",
            [*read, *((attribute, Raw | UnsetType, UNSET) for attribute in passed)],
            rename={f"_{k}": path[0] for k, path in enumerate(columns.paths.values())} | passed,
            forbid_unknown_fields=True,
            gc=False,
        )
        self.decode = msgspec.json.Decoder(struct).decode

    def parts(self, lines: Lines) -> Iterator[tuple[Lines, Block | None]]:
        """Lines in order, each part with its block; None where they must be read row by row."""
        if not _is_utf8(lines):  # what is passed over is not looked at
            yield lines, None
            return
        start, bodies = 0, [line for _, line in lines]
        while start < len(lines):
            found: list[Any] = []
            rest = map(bodies.__getitem__, range(start, len(bodies)))
            with suppress(msgspec.DecodeError, RecursionError, TypeError):  # TypeError: a line that was too long
                found.extend(map(self.decode, rest))  # type: ignore[arg-type]
            part = lines[start : start + max(len(found), FEWEST)]
            yield part, self._block(part, found) if len(found) >= FEWEST else None
            start += len(part)

    def _block(self, lines: Lines, found: list[Any]) -> Block | None:
        """Decoded lines as a block; None when one of them is not plain."""
        try:
            columns = {field: self._column(field, found) for field in self.fields}
        except (RowError, *UNUSABLE):
            return None
        columns.setdefault("env", [self.env] * len(found))
        if None in columns["task"] or any(not env or parted(env) is not env for env in set(columns["env"])):
            return None
        self._derive(columns, lines, found)
        reward, failed = self._values("reward", found), 0
        if "status" in self.get or "error" in self.get:
            ends = list(map(self.work.ended, self._values("error", found), self._values("status", found)))
            columns["status"] = [status for status, _ in ends]
            reward = [None if end[1] else value for value, end in zip(reward, ends, strict=True)]
            failed = sum(end[1] for end in ends)
        return Block(self.file, [number for number, _ in lines], reward, columns, failed)

    def _values(self, field: str, found: list[Any]) -> list[Any]:
        """What the lines have in a field's column."""
        get = self.get.get(field)
        return list(map(get, found)) if get is not None else [None] * len(found)

    def _column(self, field: str, found: list[Any]) -> list[Any]:
        """The values of a `Row`'s field."""
        values = self._values(field, found)
        if field in IDS:
            return list(map(self.names.__getitem__, values))
        default = getattr(NOTHING, field)
        if field not in TYPES:
            parse = self.work.parsers[field]
            return [default if value is None else parse(value) for value in values]
        return values if default is None else [default if value is None else value for value in values]

    def _derive(self, columns: dict[str, list[Any]], lines: Lines, found: list[Any]) -> None:
        """Fields of a `Row` that follow from others."""
        if self.step is not None:
            columns["step"] = [self.step if step is None else step for step in columns.get("step", [None] * len(found))]
        if "rollout" in self.get:
            marks = [hash(line.strip()) or 1 for _, line in lines if line is not None]
            named = zip(marks, self._values("rollout", found), strict=True)
            columns["mark"] = [mark if rollout is not None else 0 for mark, rollout in named]
        if "messages" in columns:
            both = zip(columns.get("calls", [None] * len(found)), columns["messages"], strict=True)
            columns["calls"] = [calls_of(said) or None if calls is None else calls for calls, said in both]


def lines_of(source: Source) -> Iterator[Lines]:
    """The lines of a file that is not packed, as `Source.lines` gives them, but a block at a time."""
    number = source.before
    with source.open() as stream:
        stream.seek(source.start)
        while block := source.take(stream.read, BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block += source.take(stream.readline, source.most + 1)
            lines = BytesIO(block).readlines()
            more = lines[-1] if len(lines[-1]) > source.most else b"\n"
            while more and not more.endswith(b"\n"):  # the rest of a line that is too long
                more = source.take(stream.readline, source.most)
            kept = (line if len(line) <= source.most else None for line in lines)
            yield list(enumerate(kept, number + 1))
            number += len(lines)


def _is_utf8(lines: Lines) -> bool:
    try:
        return all(line is None or line.isascii() or line.decode() is not None for _, line in lines)
    except UnicodeDecodeError:
        return False


def shape_of(source: Source, head: Head, context: Context, work: Work) -> Shape | None:
    """The shape of a file's first record; None when the file's rows must be read one by one."""
    options, keys = context.options, tuple(head.first)
    mapping = checked_mapping(options.mapping)
    columns = Columns(keys, mapping)
    known = CANDIDATES | {column.partition(".")[0] for column in mapping.values()}
    others = {*keys, *(key for key in head.keys if key not in known)} - {path[0] for path in columns.paths.values()}
    if (
        head.kind != "jsonl"
        or is_packed(source.path)
        or options.reward is not None
        or options.env_rules
        or context.join is not None
        or not {"reward", "task"} <= columns.paths.keys()
        or any(field in columns for field in ROW_BY_ROW)
        or any(len(path) > 1 for path in columns.paths.values())
        or len(set(columns.paths.values())) < len(columns.paths)
        or len(head.keys) > MOST_KEYS
        or any(ESCAPED.search(key) for key in (*keys, *head.keys))
    ):
        return None
    return Shape(source, columns, sorted(others), env=options.env or "", work=work)
