"""Prediction: what Beta pseudo-counts say of tasks: mean, variance, uncertainty, chance of a mixed group."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from .fused import Fused
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
        return np.asarray(self.phi * _product(self.a, self.n))

    @property
    def sd(self) -> Floats:
        """Standard deviation of the variance prediction [M]: phi sqrt(E[(pq)^2] - E[pq]^2), exact for a Beta."""
        return self.variance_and_sd()[1]

    def variance_and_sd(self) -> tuple[Floats, Floats]:
        """Both [M], which share most of the way.

        E[(pq)^2] = E[pq] (a + 1) (b + 1) / ((n + 2) (n + 3)), and (a + 1) (b + 1) = a b + n + 1.
        """
        first = _product(self.a, self.n)
        return self.phi * first, _sd(self.a, self.n, self.phi, first)

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval of the mean [M], [M] by Beta quantiles."""
        tail, b = (1.0 - level) / 2.0, self.n - self.a
        low, high = special.betaincinv(self.a, b, tail), special.betaincinv(self.a, b, 1.0 - tail)
        return np.asarray(low, dtype=float), np.asarray(high, dtype=float)

    def usable(self, group_size: int) -> Floats:
        """Chance [M] that a group of G is mixed: `mixing` times 1 - B(a+G, b)/B(a, b) - B(a, b+G)/B(a, b).

        The second factor is exact for binary rewards; the first corrects it by what the environment showed.
        """
        if group_size <= MOST_FACTORS:
            alike = _alike(group_size)(self.a, self.n)
        else:
            a, b = self.a, self.n - self.a
            base = special.betaln(a, b)
            alike = np.exp(special.betaln(a + group_size, b) - base) + np.exp(special.betaln(a, b + group_size) - base)
        return np.asarray(_usable(alike, self.mixing))


@Fused
def _product(a: Floats, n: Floats) -> Any:
    """E[p (1 - p)]."""
    return a * (n - a) / (n * (n + 1.0))


@Fused
def _sd(a: Floats, n: Floats, phi: Floats, first: Floats) -> Any:
    """Standard deviation of p (1 - p), whose expectation is `first`, times phi."""
    second = (a * (n - a) + (n + 1.0)) / ((n + 2.0) * (n + 3.0))
    return phi * np.sqrt(np.maximum(first * (second - first), 0.0))


@Fused
def _usable(alike: Floats, mixing: Floats) -> Any:
    return np.minimum(mixing * np.maximum(1.0 - alike, 0.0), 1.0)


@cache
def _alike(size: int) -> Fused:
    """Chance that `size` rollouts are all alike, B(a + size, b) / B(a, b) + B(a, b + size) / B(a, b) with b = n - a.

    The first is the product of (a + k) / (n + k) over k < size. Two factors from its ends are one:
    (a + k) (a + size - 1 - k) = a (a + size - 1) + k (size - 1 - k), and PAIRS of them are divided at once.
    Each size has a formula of its own, whose loops are of a known length: only then does a compiler take many tasks at
    once.
    """
    last, half, odd = size - 1.0, size // 2, size % 2

    @Fused
    def formula(a: Floats, n: Floats) -> Any:
        b = n - a
        ups: Any = 1.0
        downs: Any = 1.0
        if odd:
            middle = n + last / 2.0
            ups, downs = (a + last / 2.0) / middle, (b + last / 2.0) / middle
        ends_a, ends_b, ends_n = a * (a + last), b * (b + last), n * (n + last)
        for start in range(0, half, PAIRS):
            x, y, z = ends_a, ends_b, ends_n
            if start:
                more = start * (last - start)
                x, y, z = ends_a + more, ends_b + more, ends_n + more
            for k in range(start + 1, start + PAIRS):
                if k < half:
                    more = k * (last - k)
                    x, y, z = x * (ends_a + more), y * (ends_b + more), z * (ends_n + more)
            ups, downs = ups * (x / z), downs * (y / z)
        return ups + downs

    return formula


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
