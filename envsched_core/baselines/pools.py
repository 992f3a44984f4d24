"""Rules on what the latest groups of a task were: prime-rl's difficulty pools and GRESO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from envsched_core.scheduler import Worth

from .peer import Column, Peer, Seen

__all__ = ["DifficultyPool", "Greso"]


class DifficultyPool(Peer):
    """The difficulty pools of prime-rl's orchestrator: a weight by the mean of the task's latest group.

    Mean <= 0.25: hard, weight 0.2. <= 0.75: normal, 1. Above: easy, 0.2. Not seen yet: 1. The batch is drawn in
    proportion to the weights, without replacement (log weight + Gumbel). Rewards are mapped to [0, 1] first.
    """

    NAME = "difficulty-pool"
    CHANGES: ClassVar[dict[str, Any]] = {"temperature": 1.0}
    THRESHOLDS = (0.25, 0.75)
    WEIGHTS = (0.2, 1.0, 0.2)
    UNSEEN = 1.0
    TASKS: ClassVar = {"latest": Column((), np.nan)}

    def _take(self, groups: Sequence[Seen]) -> None:
        for group in groups:
            self.memory["latest"][group.task] = group.mapped.mean()

    def _rate(self) -> Worth:
        latest = self.memory["latest"]
        pool = np.searchsorted(np.array(self.THRESHOLDS) + 1e-9, latest)  # the NaN of a task not seen goes last
        weight = np.array((*self.WEIGHTS, self.UNSEEN))[np.where(np.isnan(latest), len(self.WEIGHTS), pool)]
        return Worth({"pool_weight": weight}, np.zeros(len(weight)), [])


class Greso(Peer):
    """GRESO (Zheng et al. 2025, arXiv 2506.02177): skip a task with a chance that grows with its flat groups in a row.

    Candidates come in uniform order; one whose last z groups were flat of one kind is skipped with the chance
    1 - max(p^z, LEAST), p being `p_easy` where they were all right and `p_hard` otherwise. After the first epoch
    (as many groups as tasks) p_easy falls by STEP when the share of easy flat groups in a step is at least
    TARGET_EASY, and rises by it otherwise; p_hard likewise; both stay in BOUNDS. All skipped tasks come after all
    others, so that the batch is full. Constants as published (a target of 25 % flat, easy to hard 1 : 2).
    The paper's pipeline also discards flat groups after generation; that is `dapo`'s part, not this rule's.
    """

    NAME = "greso"
    START = 0.5
    LEAST = 0.01
    STEP = 0.01
    BOUNDS = (0.05, 0.95)
    TARGET_EASY, TARGET_HARD = 0.25 / 3, 0.5 / 3
    EASY = 0.98
    """Mean from which a flat group counts as all right."""
    ENTRY_KEY, SKIP_KEY = 40, 41
    TASKS: ClassVar = {"streak": Column((), 0.0), "easy": Column((), 0.0)}
    NUMBERS: ClassVar = {"p_easy": START, "p_hard": START, "groups": 0.0}

    def _take(self, groups: Sequence[Seen]) -> None:
        streak, easy = self.memory["streak"], self.memory["easy"]
        count = np.zeros(2)
        for group in groups:
            right = float(group.mapped.mean() >= self.EASY)
            again = group.flat and (streak[group.task] == 0 or easy[group.task] == right)
            streak[group.task] = (streak[group.task] + 1.0 if again else 1.0) if group.flat else 0.0
            easy[group.task] = right
            count[int(right)] += group.flat
        if self.memory["groups"] >= len(self.catalogue):
            for name, flat, target in (
                ("p_hard", count[0], self.TARGET_HARD),
                ("p_easy", count[1], self.TARGET_EASY),
            ):
                moved = self.memory[name] + (-self.STEP if flat / len(groups) >= target else self.STEP)
                self.memory[name] = np.array(np.clip(moved, *self.BOUNDS))
        self.memory["groups"] = np.array(self.memory["groups"] + len(groups))

    def _rate(self) -> Worth:
        p = np.where(self.memory["easy"] > 0, self.memory["p_easy"], self.memory["p_hard"])
        kept = self._uniform(self.SKIP_KEY) < np.maximum(p ** self.memory["streak"], self.LEAST)
        terms = {"entry": self._uniform(self.ENTRY_KEY), "skipped": -(~kept).astype(float)}
        return Worth(terms, np.zeros(len(kept)), [])
