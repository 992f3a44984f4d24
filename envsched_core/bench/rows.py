"""Scores as rows of a CSV file: a column a field, two or three for the numbers of an interval."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from envsched_core.outgoing import harmless_cell

__all__ = ["cell", "rows_of", "write_csv"]


def rows_of(labels: Sequence[str], scores: Iterable[tuple[Sequence[str], msgspec.Struct]]) -> Iterator[list[str]]:
    """A head, then a row for every (its labels, its score); all scores are of one kind. Nothing for no scores.

    Fields named `...minus...` hold mean, low and high (or None), those named `...ci` low and high.
    """
    head: list[str] | None = None
    for names, one in scores:
        cells = dict(_cells(one))
        if head is None:
            head = [*labels, *cells]
            yield head
        yield [*names, *cells.values()]


def _cells(found: msgspec.Struct) -> Iterator[tuple[str, str]]:
    for field in found.__struct_fields__:
        value = getattr(found, field)
        if field.endswith("ci"):
            yield from zip((f"{field}_low", f"{field}_high"), map(cell, value), strict=True)
        elif "minus" in field:
            names = (field, f"{field}_low", f"{field}_high")
            yield from zip(names, map(cell, value or (None, None, None)), strict=True)
        else:
            yield field, cell(value)


def cell(value: float | None) -> str:
    """A number with six digits; empty where there is none."""
    return "" if value is None or value != value else f"{value:.6g}"  # NaN differs from itself


def write_csv(file: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write a table; names with commas or quotes are quoted, and none is a formula to a spreadsheet."""
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([_safe(text) for text in row] for row in rows)


def _safe(text: str) -> str:
    """A cell: numbers as they are, names guarded."""
    try:
        float(text)
    except ValueError:
        return harmless_cell(text).replace("\r", " ")  # the writer would not quote it, and it would end the row
    return text
