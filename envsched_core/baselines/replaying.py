"""Rules that mix a buffer of what paid with what is new: prioritised level replay, and sampling for learnability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from envsched_core.keyed import gumbel, mix, unit
from envsched_core.problem import Floats, Indices
from envsched_core.scheduler import Worth

from .peer import HEIGHT_KEY, Column, Peer, Seen

__all__ = ["Learnability", "LevelReplay"]

REPLAY_KEY, COIN_KEY = 50, 51


class LevelReplay(Peer):
    """Prioritised level replay (Jiang et al. 2020, arXiv 2010.03934), levels being tasks.

    Each slot is a replay with the chance `share of tasks seen`, once that share is RHO, else a task never seen,
    uniformly. A replay comes with the chance 1 - STALENESS in proportion to rank^(-1 / BETA), else in proportion to
    age, where tasks seen are ranked by the mean |r - group mean| of their latest group (the L1 value loss of a group
    baseline), equal ones in seeded order, and age is in steps since that group. The paper draws with replacement; a
    batch here holds no task twice, so the mixture is kept slot by slot (one draw from the sum of the two chances
    would be by age alone once the first rank is taken). BETA, STALENESS and the proportionate schedule as
    published, RHO the default of the published code.
    """

    NAME = "level-replay"
    BETA = 0.1
    STALENESS = 0.1
    RHO = 0.2
    TASKS: ClassVar = {"loss": Column((), -1.0)}  # below 0: never seen

    def _take(self, groups: Sequence[Seen]) -> None:
        for group in groups:
            self.memory["loss"][group.task] = np.abs(group.mapped - group.mapped.mean()).mean()

    def _rate(self) -> Worth:
        seen = self.memory["loss"] >= 0
        share = float(seen.mean()) if len(seen) else 0.0
        replay = share if share >= self.RHO else 0.0
        height, free = self._uniform(HEIGHT_KEY), self._free()
        if replay:
            height[seen & free] = self._order(np.flatnonzero(seen), free)
        turn = self._turns(seen.astype(np.int64), np.array([1.0 - replay, replay]), height, free)
        return Worth({"turn": turn}, np.zeros(len(turn)), [])

    def _order(self, seen: Indices, free: NDArray[np.bool_]) -> Floats:
        """Evenly spread heights in [0, 1) of the free among the tasks `seen` [M], first replays highest."""
        hashes = mix(self.catalogue.hashes[seen], self.config.seed, self.step, REPLAY_KEY)
        rank = np.empty(len(seen))
        rank[np.lexsort((hashes, -np.round(self.memory["loss"][seen], 9)))] = np.arange(1, len(seen) + 1)
        age = np.maximum(self.step - self.predictor.moments.last_step[seen], 1e-9)
        chances = (-np.log(rank) / self.BETA, np.log(age))
        drawn = [(c + gumbel(mix(hashes, key)))[free[seen]] for key, c in enumerate(chances)]
        count = len(drawn[0])
        coins = unit(mix(np.arange(count, dtype=np.uint64), self.config.seed, self.step, COIN_KEY)) < self.STALENESS
        # Each of the two orders takes the slots whose coin is its own; a task comes where it comes first.
        first = np.full(count, np.inf)
        for order, slots in zip(drawn, (np.flatnonzero(~coins), np.flatnonzero(coins)), strict=True):
            best = np.argsort(-order, kind="stable")[: len(slots)]
            first[best] = np.minimum(first[best], slots)
        height = np.empty(count)
        height[np.lexsort((-drawn[0], first))] = 1.0 - (np.arange(count) + 0.5) / max(count, 1)
        return height


class Learnability(Peer):
    """Sampling for learnability (Foster et al. 2025, arXiv 2502.12272): half the batch from a buffer of high p (1 - p).

    The paper refreshes its buffer now and then with rollouts made for that alone; here, where every rollout is
    billed, learnability is p (1 - p) of the task's latest group, and the buffer holds the BUFFER x batch size most
    learnable free tasks above 0. Each slot comes uniformly from the buffer with the chance SHARE, else uniformly
    from all other tasks. BUFFER and SHARE as published (256 of 64 a step, 1/2).
    """

    NAME = "learnability"
    BUFFER = 4
    SHARE = 0.5
    TASKS: ClassVar = {"learnability": Column((), 0.0)}

    def _take(self, groups: Sequence[Seen]) -> None:
        for group in groups:
            mean = float(group.mapped.mean())
            self.memory["learnability"][group.task] = 0.0 if group.flat else mean * (1.0 - mean)

    def _rate(self) -> Worth:
        free, height = self._free(), self._uniform(HEIGHT_KEY)
        learnable = np.flatnonzero(free & (self.memory["learnability"] > 0))
        most = self.BUFFER * self.config.batch_size
        order = np.lexsort((height[learnable], -np.round(self.memory["learnability"][learnable], 9)))
        arm = np.zeros(len(free), dtype=np.int64)
        arm[learnable[order[:most]]] = 1
        # The heights above served as a tie-break, so the draw within the buffer needs others.
        turn = self._turns(arm, np.array([1.0 - self.SHARE, self.SHARE]), self._uniform(REPLAY_KEY), free)
        return Worth({"turn": turn}, np.zeros(len(turn)), [])
