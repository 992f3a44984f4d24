"""One way to write a table as CSV: for every download of the dashboard and for the files of a report."""

from __future__ import annotations

import csv
import re
from typing import Any

import pandas as pd

__all__ = ["csv_bytes"]

FORMULA = re.compile(r"(^|[;\t\r\n])( *)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet could begin to read a formula: at the start of a text, or behind what it may split cells at."""


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
    if not isinstance(value, str):
        return value
    # pandas keeps texts as UTF-8, which has no halves of a surrogate pair
    guarded = FORMULA.sub(r"\1'\2", value.encode("utf-8", "replace").decode())
    return f"'{guarded}" if guarded.startswith(("\t", "\r")) else guarded
