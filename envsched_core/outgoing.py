"""Text of a log on its way out: into the cell of a table that a spreadsheet may open, and onto a terminal."""

from __future__ import annotations

import re

__all__ = ["harmless_cell", "printable_lines"]

FORMULA = re.compile(r"(^|[;\t\r\n])( *)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet could begin to read a formula: at the start of a text, or behind what it may split cells at."""


def harmless_cell(text: str) -> str:
    """The text with an apostrophe before all that a spreadsheet could take for a formula.

    What is no character (half of a surrogate pair) becomes a question mark.
    """
    guarded = FORMULA.sub(r"\1'\2", text.encode("utf-8", "replace").decode())
    return f"'{guarded}" if guarded.startswith(("\t", "\r")) else guarded


def printable_lines(text: str) -> str:
    """The text with all but its line ends that could move a cursor, colour a terminal or turn text round replaced."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
