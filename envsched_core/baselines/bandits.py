"""Bandits over environments: DUMP and SEC. The papers' arms are data sources and categories; here, environments.

Both draw an arm for every slot of the batch and a task uniformly from it (`Peer._turns`). An environment whose
tasks are all taken within a step leaves its slots to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from envsched_core.problem import Floats
from envsched_core.scheduler import Worth

from .peer import HEIGHT_KEY, Column, Peer, Seen, mean_advantage

__all__ = ["Dump", "Sec"]


class Bandit(Peer):
    """Environments drawn with softmax of their value over a temperature, tasks uniformly within."""

    TEMPERATURE: ClassVar[float]

    def _values(self) -> Floats:
        """Value of every environment [E]."""
        raise NotImplementedError

    def _rate(self) -> Worth:
        values = self._values()
        weight = np.exp((values - values.max(initial=-np.inf)) / self.TEMPERATURE)
        turn = self._turns(self.catalogue.env, weight, self._uniform(HEIGHT_KEY), self._free())
        return Worth({"turn": turn}, np.zeros(len(turn)), [])


class Dump(Bandit):
    """DUMP (Wang et al. 2025, arXiv 2504.09710): an upper confidence bound on each source's mean |advantage|.

        value_d = mean |A| over the last WINDOW rollouts of d + sqrt(2 ln(n + 1) / (n_d + 1))
        P(d)    = softmax(value / TEMPERATURE)

    with GRPO advantages and n, n_d counted in rollouts, never forgotten. Sources are environments; until the
    first results all are drawn alike. WINDOW and TEMPERATURE as published.
    """

    NAME = "dump"
    WINDOW = 300
    TEMPERATURE = 0.1
    ENVIRONMENTS: ClassVar = {"window": Column((300,), 0.0), "rollouts": Column((), 0.0)}

    def _take(self, groups: Sequence[Seen]) -> None:
        window, rollouts = self.memory["window"], self.memory["rollouts"]
        for group in groups:
            size, first = len(group.mapped), int(rollouts[group.env])
            deviation = group.mapped.std(ddof=1) if size > 1 else 0.0
            advantages = np.abs(group.mapped - group.mapped.mean()) / (deviation + 1e-6)
            places = np.arange(first, first + size)[-self.WINDOW :]
            window[places % self.WINDOW, group.env] = advantages[-self.WINDOW :]
            rollouts[group.env] += size

    def _values(self) -> Floats:
        rollouts = self.memory["rollouts"]
        mean = self.memory["window"].sum(axis=0) / np.clip(rollouts, 1.0, self.WINDOW)
        value: Floats = mean + np.sqrt(2.0 * np.log(rollouts.sum() + 1.0) / (rollouts + 1.0))
        return value


class Sec(Bandit):
    """SEC, the self-evolving curriculum (Chen et al. 2025, arXiv 2505.14970): TD(0) on a category's mean |advantage|.

        Q_c <- ALPHA r_c + (1 - ALPHA) Q_c,  r_c = mean |A| over the step's rollouts in c
        P(c) = softmax(Q / TEMPERATURE)

    with GRPO advantages and Q = 0 at first; categories without a rollout keep their Q. Categories are
    environments. ALPHA as published; TEMPERATURE is the paper's where several problem types are trained at once
    (0.2; it has 1.0 and 0.4 for single ones).
    """

    NAME = "sec"
    ALPHA = 0.5
    TEMPERATURE = 0.2
    ENVIRONMENTS: ClassVar = {"quality": Column((), 0.0)}

    def _take(self, groups: Sequence[Seen]) -> None:
        total, rollouts = np.zeros((2, len(self.catalogue.env_names)))
        for group in groups:
            total[group.env] += len(group.mapped) * mean_advantage(group.mapped)
            rollouts[group.env] += len(group.mapped)
        seen = rollouts > 0
        quality = self.memory["quality"]
        quality[seen] = self.ALPHA * total[seen] / rollouts[seen] + (1.0 - self.ALPHA) * quality[seen]

    def _values(self) -> Floats:
        return self.memory["quality"]
