"""Prediction: what Beta pseudo-counts say of tasks: mean, variance, uncertainty, chance of a mixed group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from .moments import Floats

__all__ = ["Prediction"]


class Prediction(NamedTuple):
    """What is expected of tasks [M]."""

    a: Floats
    """Pseudo-successes, > 0."""
    n: Floats
    """Equivalent rollouts, > a."""
    phi: Floats
    """Dispersion of the task's environment, in [0, 1]."""
    mixing: Floats
    """Mixed groups seen over expected in the task's environment, > 0."""

    @property
    def mean(self) -> Floats:
        """Expected mean reward [M], in (0, 1)."""
        return self.a / self.n

    @property
    def variance(self) -> Floats:
        """Expected within-task reward variance [M], in [0, 1/4]: phi E[p (1 - p)] under Beta(a, n - a)."""
        return self.phi * self.a * (self.n - self.a) / (self.n * (self.n + 1.0))

    @property
    def sd(self) -> Floats:
        """Standard deviation of the variance prediction [M]: phi sqrt(E[(pq)^2] - E[pq]^2), exact for a Beta."""
        a, b, n = self.a, self.n - self.a, self.n
        first = a * b / (n * (n + 1.0))
        second = first * (a + 1.0) * (b + 1.0) / ((n + 2.0) * (n + 3.0))
        return self.phi * np.sqrt(np.maximum(second - first**2, 0.0))

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval of the mean [M], [M] by Beta quantiles."""
        tail, b = (1.0 - level) / 2.0, self.n - self.a
        low, high = special.betaincinv(self.a, b, tail), special.betaincinv(self.a, b, 1.0 - tail)
        return np.asarray(low, dtype=float), np.asarray(high, dtype=float)

    def usable(self, group_size: int) -> Floats:
        """Chance [M] that a group of G is mixed: `mixing` times 1 - B(a+G, b)/B(a, b) - B(a, b+G)/B(a, b).

        The second factor is exact for binary rewards; the first corrects it by what the environment showed.
        """
        flat = _run_chance(self.a, self.n, group_size) + _run_chance(self.n - self.a, self.n, group_size)
        return np.clip(self.mixing * np.maximum(1.0 - flat, 0.0), 0.0, 1.0)


def _run_chance(a: Floats, n: Floats, size: int) -> Floats:
    """B(a + size, n - a) / B(a, n - a): the chance of `size` successes in a row, as a product (no log-gamma)."""
    if size > 64:
        return np.asarray(np.exp(special.betaln(a + size, n - a) - special.betaln(a, n - a)))
    chance = np.ones_like(a)
    for k in range(size):
        chance *= (a + k) / (n + k)
    return chance
