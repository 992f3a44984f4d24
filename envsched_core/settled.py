"""Settled: how every task stands against a batch once an ask is done: its score, its outcome, who came close.

Scores only fall as a batch grows, so a task that scored less than a bound before any pick scores less in the end: what
is asked of all N tasks is worked out for those that can matter, and nothing else is computed until it is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from .passes import ranks, threshold, top
from .problem import Floats, Indices
from .records import OUTCOME_CODES
from .selection import Batch

__all__ = ["CODE", "Settled"]

CODE = {name: i for i, name in enumerate(OUTCOME_CODES)}
"""Outcomes as small numbers."""


class Settled:
    """A batch as it stood after an ask; it keeps what later asks and releases would change."""

    def __init__(self, batch: Batch, step: int, cutoff: float | None, in_flight: Collection[int]) -> None:
        """`cutoff`: lowest score that was picked for its score; `in_flight`: tasks with an open pick."""
        self.batch, self.step, self.cutoff = batch, step, cutoff
        self._tables = batch.tables()
        held = np.fromiter(batch.penalty, np.int64, len(batch.penalty))
        order = np.argsort(held)
        self._held = held[order]  # tasks that resemble a pick [P], ascending
        self._penalty = np.fromiter(batch.penalty.values(), float, len(held))[order]
        self._eligible = batch.eligible.copy()
        self._full = batch.used >= batch.limit
        self._set = dict.fromkeys(in_flight, CODE["in_flight"])  # whatever they score
        for pick in batch.chosen.values():
            self._set[pick.task] = CODE["uniform_draw" if pick.how == "uniform" else "selected"]

    # ------------------------------------------------------------------ some tasks

    def keys(self, tasks: Indices) -> Floats:
        """Score of `tasks` [M] against the batch."""
        return self._keys(tasks, self._penalties(tasks, 0.0))

    def _keys(self, tasks: Indices, penalties: Floats | float) -> Floats:
        return self.batch.keys(self.batch.gains_of(tasks, self._tables) - penalties, tasks)

    def _penalties(self, tasks: Indices, otherwise: float) -> Floats:
        out = np.full(len(tasks), otherwise)
        if len(self._held):
            place = np.minimum(np.searchsorted(self._held, tasks), len(self._held) - 1)
            np.copyto(out, self._penalty[place], where=self._held[place] == tasks)
        return out

    def outcomes(self, tasks: Indices) -> NDArray[np.int8]:
        """Outcome code of `tasks` [M]; later lines overrule earlier ones."""
        out = np.full(len(tasks), CODE["below_cutoff"], dtype=np.int8)
        if self.cutoff is not None:
            penalties = self._penalties(tasks, np.nan)
            held = ~np.isnan(penalties)
            out[held & (self._keys(tasks, 0.0) >= self.cutoff)] = CODE["too_similar"]
            over = self._keys(tasks, np.where(held, penalties, 0.0)) >= self.cutoff
            out[over & self._full[self.batch.problem.env[tasks]]] = CODE["quota_full"]
        out[~self._eligible[tasks]] = CODE["unavailable"]
        out[self.batch.problem.reserve[tasks]] = CODE["cooling_down"]  # woken or not
        get = self._set.get
        fixed = np.array([get(task, -1) for task in tasks.tolist()], dtype=np.int8)
        return np.where(fixed >= 0, fixed, out)

    def ranks(self, tasks: Indices) -> NDArray[np.int32]:
        """Rank of `tasks` [M] among the available tasks before any pick, 1-based; 0 = not available."""
        eligible, first = self.batch.problem.eligible, self.batch.initial
        known, rank = eligible[tasks], np.zeros(len(tasks), dtype=np.int32)
        if known.any():
            values, barred = first[tasks[known]], np.sort(first[~eligible])  # few, as a rule
            rank[known] = ranks(values, first) - (len(barred) - np.searchsorted(barred, values, side="right"))
        return rank

    # ------------------------------------------------------------------ all tasks

    def counts(self) -> dict[str, int]:
        """Tasks by outcome, those that occur."""
        special = self._special()
        count = np.bincount(self.outcomes(special), minlength=len(OUTCOME_CODES))
        count[CODE["below_cutoff"]] += len(self._eligible) - len(special)
        return {name: int(n) for name, n in zip(OUTCOME_CODES, count, strict=True) if n}

    def all_outcomes(self) -> NDArray[np.int8]:
        """Outcome code [N]."""
        out = np.full(len(self._eligible), CODE["below_cutoff"], dtype=np.int8)
        special = self._special()
        out[special] = self.outcomes(special)
        return out

    def _special(self) -> Indices:
        """Every task that may have come to something else than to lie below the cut-off."""
        mark = ~self._eligible | self.batch.problem.reserve
        if self.cutoff is not None:
            mark |= self.batch.initial >= self.cutoff
        mark[list(self._set)] = True
        return np.flatnonzero(mark)

    def nearest(self, most: int) -> Indices:
        """The `most` eligible tasks that scored highest, best first.

        A task held back by similarity counts at its unpenalised height.
        """
        most = min(most, int(np.count_nonzero(self._eligible)))
        first, wanted = self.batch.initial, 8 * most
        held, penalty = self._held, self._penalty
        while True:
            bound = threshold(first, wanted, self._eligible)
            mark = first >= bound
            mark[held[first[held] + penalty >= bound]] = True
            tasks = np.flatnonzero(mark & self._eligible)
            penalties = self._penalties(tasks, 0.0)
            height = self._keys(tasks, penalties) + penalties
            found = top(height, most)
            if bound == -math.inf or not most or (len(found) == most and height[found[-1]] >= bound):
                return tasks[found]
            wanted *= 4
