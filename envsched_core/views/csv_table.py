"""One way to write a table as CSV: for every download of the dashboard and for the files of a report."""

from __future__ import annotations

import csv
from typing import Any

import pandas as pd

from envsched_core.outgoing import harmless_cell

__all__ = ["csv_bytes"]


def csv_bytes(data: pd.DataFrame) -> bytes:
    """All rows as CSV, texts in quotes; an apostrophe goes before what a spreadsheet could take for a formula.

    What is no character (half of a surrogate pair) becomes a question mark.
    """
    safe = data.rename(columns=_harmless)
    for name in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[name]):
            safe[name] = safe[name].map(_harmless)
    text: str = safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    return text.encode()


def _harmless(value: Any) -> Any:
    return harmless_cell(value) if isinstance(value, str) else value
