"""Follows every pick of a log from its ask to its end, and counts what does not add up.

Which pick a result answers is open_picks.py's to say; what names a pick that has ended already is counted.
"""

from __future__ import annotations

from collections import Counter

from envsched_core.records import Decision, Event, GroupResult

from .open_picks import OpenPicks

__all__ = ["PickEnds"]


class PickEnds:
    """Ledger of a whole log; give it every event in order."""

    def __init__(self) -> None:
        """Starts with no pick."""
        self.decisions = self.asked = self.results = self.expired = self.released = 0
        self.same_id = self.again = self.never_asked = self.unknown = 0
        self.open: OpenPicks[int] = OpenPicks()
        """Picks without an end, each with its step."""
        self.waits: Counter[int] = Counter()
        """Steps between a pick and its result -> how many."""
        self.first = dict.fromkeys(("same_id", "again", "never_asked", "unknown"), "")
        """Pick id of the first of each kind."""
        self._ended: set[str] = set()
        self._groups: set[str] = set()

    def take(self, event: Event) -> None:
        """Take in one event; kinds that end no pick are passed over."""
        if isinstance(event.data, Decision):
            self._asked(event.data)
        elif isinstance(event.data, GroupResult):
            self._observed(event.data, event.step)
        elif event.kind == "released" and isinstance(event.data, dict):
            self._released(event.data.get("pick_ids"))

    def _asked(self, decision: Decision) -> None:
        self.decisions += 1
        for pick_id in decision.expired:
            self.expired += 1
            self._end(pick_id, "never_asked")
        for pick in decision.picks:
            self.asked += 1
            if pick.pick_id in self.open or pick.pick_id in self._ended:
                self._count("same_id", pick.pick_id)
                continue
            self.open.add(pick.pick_id, pick.key, decision.step)

    def _observed(self, result: GroupResult, step: int | None) -> None:
        if result.group_id in self._groups:
            return
        self._groups.add(result.group_id)
        self.results += 1
        if result.pick_id in self._ended:
            self._count("again", str(result.pick_id))
        pick_id = self.open.answered(result)
        asked = self.open.close(pick_id) if pick_id else None
        if pick_id and asked is not None:
            self._ended.add(pick_id)
            if step is not None:
                self.waits[step - asked] += 1

    def _released(self, pick_ids: object) -> None:
        for pick_id in pick_ids if isinstance(pick_ids, list) else ():
            self.released += 1
            self._end(str(pick_id), "unknown")

    def _end(self, pick_id: str, otherwise: str) -> None:
        """End an open pick without a result; `otherwise` counts one that nobody asked for."""
        if self.open.close(pick_id) is not None:
            self._ended.add(pick_id)
        else:
            self._count("again" if pick_id in self._ended else otherwise, pick_id)

    def _count(self, what: str, pick_id: str) -> None:
        setattr(self, what, getattr(self, what) + 1)
        self.first[what] = self.first[what] or pick_id
