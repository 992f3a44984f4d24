"""Events in, rows out: which pick a group answers, how each pick ended, what was seen twice.

Which pick a group answers is open_picks.py's to say; groups never asked for are kept as such. A group id seen twice
counts once, as in the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from envsched_core.records import Decision, Event, GroupResult

from .open_picks import OpenPicks
from .tables import TABLES, Rows, decision_rows, group_row

__all__ = ["Intake"]


class Intake:
    """Turns the events of one run, in order, into rows; holds only what the next event needs."""

    def __init__(self, declared: Mapping[str, tuple[float, float]], thresholds: tuple[float, float]) -> None:
        """`declared`: reward range by environment; `thresholds`: the run's (`min_std`, `min_range`)."""
        self.declared = declared
        self.thresholds = thresholds
        self.ranges: dict[str, tuple[float, float]] = {}
        self.rows: Rows = {table: [] for table in TABLES}
        self.kinds: Counter[str] = Counter()
        self.duplicates = 0
        self.last_step: int | None = None
        self._decisions = self._candidates = self._groups = 0
        self._asks: Counter[int] = Counter()
        self._open: OpenPicks[tuple[int, int]] = OpenPicks()
        """Candidate number and step of each."""
        self._seen: set[str] = set()

    def drain(self) -> Rows:
        """The rows gathered since the last call."""
        rows, self.rows = self.rows, {table: [] for table in TABLES}
        return rows

    def take(self, event: Event) -> None:
        """Take in one event; kinds that make no rows are only counted."""
        self.kinds[event.kind] += 1
        if event.step is not None and event.kind in ("asked", "observed"):
            self.last_step = max(event.step, self.last_step or 0)
        if isinstance(event.data, Decision):
            self._asked(event.data)
        elif isinstance(event.data, GroupResult):
            self._observed(event.data, event.step)
        elif event.kind == "released":
            self._released(event.data, event.step)
        elif event.kind == "note":
            self._noted(event.data, event.step)

    def _asked(self, decision: Decision) -> None:
        for pick_id in decision.expired:
            self._end(pick_id, "expired", "no result came in time", decision.step)
        rows = decision_rows(decision, self._decisions, self._asks[decision.step], self._candidates)
        for table, lines in rows.items():
            self.rows[table].extend(lines)
        for i, candidate in enumerate(decision.candidates, self._candidates):
            if candidate.kept_as == "pick" and candidate.pick_id:
                self._open.add(candidate.pick_id, candidate.key, (i, decision.step))
        self._decisions += 1
        self._asks[decision.step] += 1
        self._candidates += len(decision.candidates)

    def _end(self, pick_id: str, ended: str, reason: str, step: int | None) -> None:
        found = self._open.close(pick_id)
        if found:
            self.rows["ends"].append((found[0], ended, reason, step))

    def _released(self, data: Any, step: int | None) -> None:
        for pick_id in data.get("pick_ids", ()):
            self._end(str(pick_id), "released", str(data.get("reason", "")), step)

    def _noted(self, data: Any, step: int | None) -> None:
        """A note that names a metric and its value at a step is a measure; all other notes are for people."""
        if step is not None and isinstance(data, dict) and isinstance(data.get("value"), int | float):
            micro, metric = data.get("micro"), str(data.get("metric", ""))
            with suppress(OverflowError):  # a whole number beyond all floats measures nothing
                number = float(micro) if isinstance(micro, int | float) else None
                self.rows["measures"].append((step, metric, float(data["value"]), number))

    def _observed(self, result: GroupResult, step: int | None) -> None:
        if result.group_id in self._seen:
            self.duplicates += 1
            return
        self._seen.add(result.group_id)
        found = self._open.close(self._open.answered(result) or "")
        own_step = result.step if result.step is not None else step
        number, place = found if found else (None, own_step)
        self._widen(result)
        row = group_row(
            result,
            self._groups,
            place,
            number,
            declared=self.declared.get(result.env),
            thresholds=self.thresholds,
        )
        self.rows["groups_raw"].append(row)
        self._groups += 1

    def _widen(self, result: GroupResult) -> None:
        """Keep the range that rewards of an environment are mapped by."""
        low, high = self.declared.get(result.env) or self.ranges.get(result.env, (0.0, 1.0))
        if result.env not in self.declared and result.rewards:
            low, high = min(low, *result.rewards), max(high, *result.rewards)
        self.ranges[result.env] = (low, high)
