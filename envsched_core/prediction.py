"""Prediction: what Beta pseudo-counts say of tasks: mean, variance, uncertainty, chance of a mixed group."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import NamedTuple

import numpy as np
from scipy import special

from .moments import Floats

__all__ = ["Prediction", "beta_binomial"]

MOST_FACTORS = 64
"""Rollouts of a group up to which chances are products; above, log-gamma costs less."""
MOST_COUNTED = 16
"""Rollouts of a group up to which likelihoods are products."""
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
        return self.phi * self._product()

    @property
    def sd(self) -> Floats:
        """Standard deviation of the variance prediction [M]: phi sqrt(E[(pq)^2] - E[pq]^2), exact for a Beta."""
        return self.variance_and_sd()[1]

    def variance_and_sd(self) -> tuple[Floats, Floats]:
        """Both [M], which share most of the way.

        E[(pq)^2] = E[pq] (a + 1) (b + 1) / ((n + 2) (n + 3)), and (a + 1) (b + 1) = a b + n + 1.
        """
        n, first = self.n, self._product()
        second = (self.a * (n - self.a) + (n + 1.0)) / ((n + 2.0) * (n + 3.0))
        return self.phi * first, self.phi * np.sqrt(np.maximum(first * (second - first), 0.0))

    def _product(self) -> Floats:
        """E[p (1 - p)] [M]."""
        return self.a * (self.n - self.a) / (self.n * (self.n + 1.0))

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval of the mean [M], [M] by Beta quantiles."""
        tail, b = (1.0 - level) / 2.0, self.n - self.a
        low, high = special.betaincinv(self.a, b, tail), special.betaincinv(self.a, b, 1.0 - tail)
        return np.asarray(low, dtype=float), np.asarray(high, dtype=float)

    def usable(self, group_size: int) -> Floats:
        """Chance [M] that a group of G is mixed: `mixing` times 1 - B(a+G, b)/B(a, b) - B(a, b+G)/B(a, b).

        The second factor is exact for binary rewards; the first corrects it by what the environment showed.
        """
        mixed = np.maximum(1.0 - _run_chances(self.a, self.n, group_size), 0.0)
        return np.minimum(self.mixing * mixed, 1.0)


def _run_chances(a: Floats, n: Floats, size: int) -> Floats:
    """B(a + size, b) / B(a, b) + B(a, b + size) / B(a, b), b = n - a: the chance that `size` rollouts are all alike.

    The first is the product of (a + k) / (n + k) over k < size. Two factors from its ends are one:
    (a + k) (a + size - 1 - k) = a (a + size - 1) + k (size - 1 - k), and PAIRS of them are divided at once.
    """
    b, last = n - a, size - 1.0
    if size > MOST_FACTORS:
        base = special.betaln(a, b)
        return np.asarray(np.exp(special.betaln(a + size, b) - base) + np.exp(special.betaln(a, b + size) - base))
    ups, downs = [], []
    if size % 2:
        middle = n + last / 2.0
        ups.append((a + last / 2.0) / middle)
        downs.append((b + last / 2.0) / middle)
    ends = [c * (c + last) for c in (a, b, n)]
    for first in range(0, size // 2, PAIRS):
        pairs = range(first, min(first + PAIRS, size // 2))
        x, y, z = (reduce(mul, (end + k * (last - k) if k else end for k in pairs)) for end in ends)
        ups.append(x / z)
        downs.append(y / z)
    return np.asarray(reduce(mul, ups) + reduce(mul, downs))


def beta_binomial(a: Floats, n: Floats, success: Floats, failure: Floats) -> Floats:
    """How likely groups [M] are under Beta counts [Q, M]: log B(a + success, b + failure) / B(a, b) [Q, M], b = n - a.

    Where successes are whole numbers of few rollouts, the quotient is one of products, B(a + s, b + f) / B(a, b) =
    a (a + 1) .. (a + s - 1) b .. (b + f - 1) / (n .. (n + s + f - 1)): a fraction of the time of six log-gammas.
    """
    size = success + failure
    whole = (success == np.rint(success)) & (failure == np.rint(failure)) & (size <= MOST_COUNTED)
    out, graded = np.empty(a.shape), ~whole
    if graded.any():
        x, y = a[:, graded], n[:, graded] - a[:, graded]
        out[:, graded] = special.betaln(x + success[graded], y + failure[graded]) - special.betaln(x, y)
    if whole.any():
        x, z = a.T[whole], n.T[whole]
        chance = _rising(x, success[whole])
        chance *= _rising(z - x, failure[whole])
        chance /= _rising(z, size[whole])
        out[:, whole] = np.log(chance, out=chance).T
    return out


def _rising(x: Floats, count: Floats) -> Floats:
    """The products x (x + 1) .. (x + count - 1) [M, Q] for whole counts [M]: the longest first, to have no gaps."""
    order = np.argsort(-count)
    x, count = x[order], count[order]
    out, factor = np.ones_like(x), np.empty_like(x)
    for k in range(int(count.max(initial=0))):
        longer = int(np.count_nonzero(count > k))
        out[:longer] *= np.add(x[:longer], k, out=factor[:longer])
    back = np.empty_like(out)
    back[order] = out
    return back
