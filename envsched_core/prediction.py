"""Prediction: what Beta pseudo-counts say of tasks: mean, variance, uncertainty, chance of a mixed group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from .moments import Floats

__all__ = ["Prediction"]

MOST_FACTORS = 64
"""Rollouts of a group up to which chances are products; above, log-gamma costs less."""
PAIRS = 4
"""Pairs of factors before a division: few enough to stay finite for any number of rollouts."""


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
        flat = _run_chances(self.a, self.n, group_size)
        return np.clip(self.mixing * np.maximum(1.0 - flat, 0.0), 0.0, 1.0)


def _run_chances(a: Floats, n: Floats, size: int) -> Floats:
    """B(a + size, b) / B(a, b) + B(a, b + size) / B(a, b), b = n - a: the chance that `size` rollouts are all alike.

    The first is the product of (a + k) / (n + k) over k < size. Two factors from its ends are one:
    (a + k) (a + size - 1 - k) = a (a + size - 1) + k (size - 1 - k), and PAIRS of them are divided at once.
    """
    b, last = n - a, size - 1.0
    if size > MOST_FACTORS:
        base = special.betaln(a, b)
        return np.asarray(np.exp(special.betaln(a + size, b) - base) + np.exp(special.betaln(a, b + size) - base))
    odd = size % 2
    middle = (n + last / 2.0) if odd else 1.0
    up: Any = (a + last / 2.0) / middle if odd else 1.0
    down: Any = (b + last / 2.0) / middle if odd else 1.0
    ends = [c * (c + last) for c in (a, b, n)]
    for first in range(0, size // 2, PAIRS):
        product: list[Any] = [1.0, 1.0, 1.0]
        for k in range(first, min(first + PAIRS, size // 2)):
            product = [p * (end + k * (last - k)) for p, end in zip(product, ends, strict=True)]
        x, y, z = product
        up, down = up * (x / z), down * (y / z)
    return np.asarray(up + down)
