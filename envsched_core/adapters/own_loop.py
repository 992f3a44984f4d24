"""ART, and any loop of one's own: scenarios one at a time, and plain calls.

    scenarios = Scenarios(my_scenarios, open_desk("runs/mine", {"batch_size": 16, "group_size": 8}))
    for scenario in scenarios:                          or PipelineTrainer(scenarios=scenarios, ...)
        group = ...                                     the loop's own rollouts
        scenarios.report(scenario, [t.reward for t in group])

Scenarios come as they are, so a rollout function needs no change. ART's PipelineTrainer resumes by pulling and
dropping as many scenarios as it had before: they are the same ones, and the next one is new. A scenario that fails
is given back by `drop`; one that is never reported expires by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from .desk import AnyDesk, harmless
from .reading import as_rows, number, tasks_of
from .slots import Slot, Slots

__all__ = ["Scenarios"]

MOST_DRAWN = 4
"""Draws of one scenario that may be under way at once."""

S = TypeVar("S")


class Scenarios(Generic[S]):
    """An endless iterator over scenarios, for plain and for async loops."""

    def __init__(
        self,
        scenarios: Iterable[S],
        desk: AnyDesk,
        *,
        describe: Callable[[Any, int], Any] | None = None,
        most: int | None = None,
        replay: bool = False,
    ) -> None:
        """`most`: end after that many (None = never).

        `replay`: after a restart the loop pulls again what it had pulled before (ART's PipelineTrainer does); else the
        first scenarios are those without an answer, then new ones.
        `describe(scenario, place)` -> TaskSpec, where environment and id are not found by their usual names.
        """
        self.scenarios = list(scenarios)
        self.slots = Slots(desk, tasks_of(self.scenarios, describe))
        self._rows = {id(scenario): row for row, scenario in enumerate(self.scenarios)}
        self.most, self.pulled = most, 0
        self._replay = replay
        self._drawn: dict[int, list[Slot]] = {}

    def __iter__(self) -> Scenarios[S]:
        return self

    def __aiter__(self) -> Scenarios[S]:
        return self

    def __next__(self) -> S:
        """The next scenario.

        Raises:
            StopIteration: `most` were pulled.
        """
        if self.most is not None and self.pulled >= self.most:
            raise StopIteration
        slot = self.slots.at(self.pulled) if self._replay else self.slots.next()
        self.pulled += 1
        drawn = self._drawn.setdefault(slot.row, [])
        drawn[:] = [*drawn[1 - MOST_DRAWN :], slot]
        return self.scenarios[slot.row]

    async def __anext__(self) -> S:
        """The next scenario.

        Raises:
            StopAsyncIteration: `most` were pulled.
        """
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    @harmless(lambda: None)
    def report(self, scenario: Any, rewards: Any, **more: Any) -> None:
        """The rewards of a scenario's rollouts, and what else is known (`cost`, `calls`, `policy_version`)."""
        slot = self._slot_of(scenario)
        if slot is not None:
            self.slots.observe([slot.result([number(reward) for reward in as_rows(rewards)], **more)])

    @harmless(lambda: None)
    def drop(self, scenario: Any, reason: str) -> None:
        """A scenario that will give no rewards."""
        slot = self._slot_of(scenario)
        if slot is not None and slot.pick_id is not None:
            self.slots.desk.release([slot.pick_id], reason)

    def _slot_of(self, scenario: Any) -> Slot | None:
        """The latest draw of a scenario that has not ended; older ones were skipped or lost."""
        row = self._rows.get(id(scenario))
        if row is None:  # a copy of it
            row = next((k for k, known in enumerate(self.scenarios) if known == scenario), -1)
        drawn = self._drawn.get(row)
        if not drawn:
            self.slots.counts["unknown_group"] += 1
            return None
        return drawn.pop()
