"""Whether event numbers go on by one, told while the log is read; a line that cannot be read takes up one number."""

from __future__ import annotations

import pandas as pd

__all__ = ["COLUMNS", "Numbers", "gap_table"]

COLUMNS = ("file", "line", "offset", "after", "event", "missing")
MOST = 10_000
"""Gaps whose place is kept; all are counted."""

Gap = tuple[str, int, int, int | None, int, int]


class Numbers:
    """Follows the numbers of a log; give it the place of every event that could be read, in order."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.found: list[Gap] = []
        self.count = 0
        self._last: int | None = None
        self._unread = 0

    def take(self, number: int, segment: str, line: int, offset: int, unread: int) -> None:
        """The number of one event and where it stands; `unread`: lines passed over so far in the whole log."""
        ahead = number + 1 if self._last is None else number - self._last
        room = 1 + unread - self._unread
        if not 1 <= ahead <= room:
            self.count += 1
            if len(self.found) < MOST:
                self.found.append((segment, line, offset, self._last, number, max(ahead - room, 0)))
        self._last, self._unread = number, unread


def gap_table(numbers: Numbers) -> pd.DataFrame:
    """Where event numbers do not go on by one, at most 10,000 places.

    Columns: file, line, offset, after (number before; NULL at the beginning), event (number found), missing (events
    left out; 0 when the numbers go back).
    """
    whole = dict.fromkeys(COLUMNS[1:], "Int64")
    return pd.DataFrame(numbers.found.copy(), columns=list(COLUMNS)).astype(whole)
