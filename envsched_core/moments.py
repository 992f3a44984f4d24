"""RewardMoments: what has been seen, as discounted sums per task and per environment.

Rewards are mapped to [0, 1] by the environment's range: declared in the config, else [0, 1] widened by
what is observed (the widening is exact: all sums are affine in the reward). Every sum is kept at H
half-lives at once, so that trust can choose among them (predictor.py). Discounting is one scale factor
per half-life, `2 ** (-(now - step) / half_life)`, never a pass over the N tasks.
Variances that are shown or averaged are population variances: a group of [0, 1] has 1/4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .records import Cost, GroupResult

__all__ = ["Discount", "Group", "RewardMoments", "is_flat", "population_variance"]

Floats = NDArray[np.float64]

RENORMALISE_AT = 64.0
"""Powers of two after which the stored sums are scaled back; far from overflow (1,023)."""


def population_variance(rewards: Sequence[float]) -> float:
    """Mean squared deviation from the mean, in squared reward units; 0 for fewer than two rewards."""
    if len(rewards) < 2:
        return 0.0
    mean = sum(rewards) / len(rewards)
    return sum((r - mean) ** 2 for r in rewards) / len(rewards)


def is_flat(rewards: Sequence[float], min_std: float = 0.0, min_range: float = 1e-9) -> bool:
    """Whether a group teaches nothing: its rewards spread by no more than the two thresholds (reward units)."""
    if len(rewards) < 2:
        return True
    return max(rewards) - min(rewards) <= min_range or population_variance(rewards) <= min_std**2


class Group(NamedTuple):
    """One group as the statistics take it in."""

    task: int
    """Index of its task in [0, N)."""
    step: int
    size: int
    """Scored rollouts G >= 1."""
    total: float
    """Sum of its mapped rewards, in [0, G]."""
    mean: float
    variance: float
    """Unbiased variance of its mapped rewards; 0 when G = 1."""
    mixed: bool
    """Whether its rewards differ (by more than `min_std` and `min_range`)."""
    mapped: tuple[float, ...]
    """Its rewards, mapped to [0, 1]."""
    rollouts: int
    """All its rollouts, those without a usable reward too: what its cost is for."""
    cost: Cost | None


class Discount:
    """The age of evidence: one growing weight per half-life instead of many shrinking sums.

    A stored sum is `sum(weight(step) * x)`; its value now is `stored * scale()`.
    """

    def __init__(self, half_lives: Sequence[float]) -> None:
        """`half_lives` [H] in steps; 0 = never ages."""
        self.rates = np.array([1.0 / h if h > 0 else 0.0 for h in half_lives])
        self.now = 0
        self.shift = np.zeros(len(half_lives))

    def weight(self, steps: NDArray[np.int64]) -> Floats:
        """Stored weights [H, B] of what was seen at `steps` [B]."""
        return np.asarray(np.exp2(steps * self.rates[:, None] - self.shift[:, None]))

    def scale(self) -> Floats:
        """Factor [H] that turns stored sums into sums as of now."""
        return np.asarray(np.exp2(self.shift - self.now * self.rates))

    def advance(self, step: int) -> Floats | None:
        """Move the clock; returns exact factors [H] for all stored sums when they must be scaled back."""
        self.now = max(self.now, step)
        excess = np.floor(self.now * self.rates - self.shift)
        if excess.max(initial=0.0) < RENORMALISE_AT:
            return None
        self.shift += excess
        return np.exp2(-excess)


class RewardMoments:
    """Discounted counts and sums of N tasks in E environments at H half-lives."""

    ENV_SUMS = ("env_n", "env_s", "phi_w", "phi_m", "phi_m2", "phi_v", "phi_vg", "mixed", "mixed_expected")
    env_n: Floats  # [H, E] rollouts of the environment
    env_s: Floats  # their summed rewards
    phi_w: Floats  # groups of two or more rollouts
    phi_m: Floats  # sum of their means
    phi_m2: Floats  # sum of their squared means
    phi_v: Floats  # sum of their unbiased variances
    phi_vg: Floats  # sum of variance over group size
    mixed: Floats  # groups of two or more rollouts that were not flat
    mixed_expected: Floats  # how many were expected, from what was known before each

    def __init__(
        self,
        half_lives: Sequence[float],
        ranges: Mapping[str, tuple[float, float]],
        flat: tuple[float, float] = (0.0, 1e-9),
    ) -> None:
        """`ranges`: declared (lowest, highest) reward by environment name; `flat`: (min_std, min_range)."""
        self.flat = flat
        self.discount = Discount(half_lives)
        self.declared = dict(ranges)
        h = len(half_lives)
        self.env = np.zeros(0, dtype=np.int64)
        self.n = np.zeros((h, 0))
        self.s = np.zeros((h, 0))
        self.groups = np.zeros(0, dtype=np.int64)
        self.last_step = np.zeros(0, dtype=np.int64)
        self.low = np.zeros(0)
        self.high = np.zeros(0)
        self.two_ended = np.zeros(0, dtype=bool)
        for name in self.ENV_SUMS:
            setattr(self, name, np.zeros((h, 0)))
        self.clipped = 0
        self.widened: list[str] = []

    def grow(self, env: NDArray[np.int64], env_names: Sequence[str]) -> None:
        """Make room: `env` [N] is the environment index of every task, `env_names` [E] all environments."""
        more = len(env) - len(self.env)
        self.env = env
        self.n, self.s = _widen(self.n, more), _widen(self.s, more)
        self.groups = np.concatenate([self.groups, np.zeros(more, dtype=np.int64)])
        self.last_step = np.concatenate([self.last_step, np.full(more, -1, dtype=np.int64)])
        fresh = env_names[len(self.low) :]
        ends = [self.declared.get(name, (0.0, 1.0)) for name in fresh]
        self.low = np.concatenate([self.low, [lo for lo, _ in ends]])
        self.high = np.concatenate([self.high, [hi for _, hi in ends]])
        self.two_ended = np.concatenate([self.two_ended, np.ones(len(fresh), dtype=bool)])
        for name in self.ENV_SUMS:
            setattr(self, name, _widen(getattr(self, name), len(fresh)))

    def holds(self, env: int, name: str, rewards: Sequence[float]) -> bool:
        """Whether the range stays as it is: it is declared, or holds `rewards`."""
        return name in self.declared or (min(rewards) >= self.low[env] and max(rewards) <= self.high[env])

    def fit_range(self, env: int, name: str, rewards: Sequence[float]) -> tuple[float, float]:
        """Widen a range so that it holds `rewards`, which it does not hold yet.

        A mapped reward r is now a r + b: all sums are remapped, and (a, b) is returned.
        """
        low, high = min(rewards), max(rewards)
        old_low, old_span = self.low[env], self.high[env] - self.low[env]
        self.low[env], self.high[env] = min(low, self.low[env]), max(high, self.high[env])
        span = self.high[env] - self.low[env]
        moved = (float(old_span / span), float((old_low - self.low[env]) / span))
        self._remap(env, *moved)
        if name not in self.widened:
            self.widened.append(name)
        return moved

    def _remap(self, env: int, a: float, b: float) -> None:
        """Replace every reward r of one environment by a r + b, in the sums."""
        tasks = self.env == env
        self.s[:, tasks] = a * self.s[:, tasks] + b * self.n[:, tasks]
        self.env_s[:, env] = a * self.env_s[:, env] + b * self.env_n[:, env]
        weight, m = self.phi_w[:, env], self.phi_m[:, env].copy()
        self.phi_m[:, env] = a * m + b * weight
        self.phi_m2[:, env] = a * a * self.phi_m2[:, env] + 2 * a * b * m + b * b * weight
        self.phi_v[:, env] *= a * a
        self.phi_vg[:, env] *= a * a
        self.two_ended[env] &= self.env_n[:, env].max(initial=0.0) == 0

    def group(self, task: int, result: GroupResult, step: int) -> Group:
        """Map one result to [0, 1]; rewards outside a declared range are clipped and counted."""
        env = int(self.env[task])
        mapped = self._mapped(env, result.rewards)
        size, total = len(mapped), sum(mapped)
        mean = total / size
        variance = sum((r - mean) ** 2 for r in mapped) / (size - 1) if size > 1 else 0.0
        if self.two_ended[env] and any(1e-9 < r < 1 - 1e-9 for r in mapped):
            self.two_ended[env] = False
        mixed = not is_flat(result.rewards, *self.flat)
        return Group(task, step, size, total, mean, variance, mixed, mapped, size + result.missing, result.cost)

    def _mapped(self, env: int, rewards: Sequence[float]) -> tuple[float, ...]:
        """Rewards on the environment's scale, mapped to [0, 1]. Plain floats: a group is too small for an array."""
        low, span = float(self.low[env]), max(float(self.high[env] - self.low[env]), 1e-300)
        raw = [(r - low) / span for r in rewards]
        self.clipped += sum(not -1e-9 <= r <= 1 + 1e-9 for r in raw)
        return tuple(min(max(r, 0.0), 1.0) for r in raw)

    def add(self, groups: Sequence[Group], expected: Sequence[float] | Floats) -> None:
        """Take in groups (each once); order does not matter beyond float addition, so callers sort them.

        `expected`: the chance given to each group, before it was seen, of being mixed.
        """
        if not groups:
            return
        tasks, steps = np.array([g.task for g in groups]), np.array([g.step for g in groups])
        rows = [(g.size, g.total, g.mean, g.variance, g.mixed) for g in groups]
        size, total, mean, variance, mixed = np.array(rows, dtype=float).T
        weight, env = self.discount.weight(steps), self.env[tasks]
        many = size > 1
        sums = {"phi_w": np.ones(len(groups)), "phi_m": mean, "phi_m2": mean**2, "phi_v": variance}
        sums |= {"phi_vg": variance / size, "mixed": mixed, "mixed_expected": np.asarray(expected, dtype=float)}
        for h in range(len(weight)):
            for sum_name, values in (("n", size), ("s", total)):
                np.add.at(getattr(self, sum_name)[h], tasks, weight[h] * values)
                np.add.at(getattr(self, f"env_{sum_name}")[h], env, weight[h] * values)
            for sum_name, values in sums.items():
                np.add.at(getattr(self, sum_name)[h], env[many], (weight[h] * values)[many])
        np.add.at(self.groups, tasks, 1)
        np.maximum.at(self.last_step, tasks, steps)

    def rescale(self, factor: Floats) -> None:
        """Multiply all stored sums by `factor` [H] (see `Discount.advance`)."""
        for name in ("n", "s", *self.ENV_SUMS):
            getattr(self, name)[...] *= factor[:, None]

    def dispersion(self, h: int, prior: float = 0.5) -> Floats:
        """Phi [E] in [0, 1]: observed variance over the largest the means allow (algorithm: v = phi mu (1 - mu)).

        `sum v_g / sum [m_g (1 - m_g) + v_g / G]`, each environment shrunk to the whole with `prior` groups;
        1 while an environment has shown only the two ends of its range.
        """
        scale = self.discount.scale()[h]
        seen = scale * self.phi_v[h]
        most = scale * (self.phi_m[h] - self.phi_m2[h] + self.phi_vg[h])
        whole = (seen.sum() + prior) / (most.sum() + prior)
        phi = np.clip((seen + prior * whole) / (most + prior), 0.0, 1.0)
        return np.asarray(np.where(self.two_ended, 1.0, phi))

    def concentration(self, h: int, prior: float = 0.5) -> Floats:
        """Pseudo-rollouts [E] that an environment's mean is worth to a task nobody rolled out yet.

        An environment whose tasks are either always right or always wrong has a mean that says little about
        one task. Under Beta(k m, k (1 - m)) the expected within-task variance is k / (k + 1) m (1 - m), so k follows
        from the observed share `r = sum v_g / (phi sum m_e (1 - m_e))` as r / (1 - r): the method of moments of
        empirical Bayes, per environment, each shrunk to the whole by `prior` (in units of variance) and the whole to
        r = 1/2.
        """
        scale = self.discount.scale()[h]
        weight, seen = scale * self.phi_w[h], scale * self.phi_v[h]
        mean = (scale * self.phi_m[h] + 1.0) / (weight + 2.0)
        most = weight * mean * (1.0 - mean)
        whole = (seen.sum() + 0.5 * prior) / (most.sum() + prior)
        share = (seen + prior * whole) / (most + prior) / np.maximum(self.dispersion(h), 1e-9)
        share = np.clip(share, 0.05, 0.95)
        return np.asarray(share / (1.0 - share))

    def mixing(self, h: int, prior: float = 1.0) -> Floats:
        """Mixed groups seen over mixed groups expected [E], each environment shrunk to 1 by `prior` groups.

        Above 1 where rewards are graded: their groups are mixed far more often than a coin with the same mean.
        """
        scale = self.discount.scale()[h]
        return np.asarray((scale * self.mixed[h] + prior) / (scale * self.mixed_expected[h] + prior))

    def state_dict(self) -> dict[str, Any]:
        """Everything as plain arrays; `load_state_dict` is its inverse."""
        names = ("n", "s", "groups", "last_step", "low", "high", "two_ended", *self.ENV_SUMS)
        state: dict[str, Any] = {name: getattr(self, name).copy() for name in names}
        return {
            **state,
            "now": self.discount.now,
            "shift": self.discount.shift.copy(),
            "clipped": self.clipped,
            "widened": list(self.widened),
        }

    def load_state_dict(self, state: Mapping[str, Any], tasks: NDArray[np.int64], envs: NDArray[np.int64]) -> None:
        """Put saved statistics at `tasks` [saved N] and `envs` [saved E] (indices here; -1 = gone)."""
        for name in ("n", "s", "groups", "last_step"):
            getattr(self, name)[..., tasks[tasks >= 0]] = np.asarray(state[name])[..., tasks >= 0]
        for name in ("low", "high", "two_ended", *self.ENV_SUMS):
            getattr(self, name)[..., envs[envs >= 0]] = np.asarray(state[name])[..., envs >= 0]
        self.discount.now = int(state["now"])
        self.discount.shift = np.array(state["shift"])
        self.clipped, self.widened = int(state["clipped"]), list(state["widened"])


def _widen(array: Floats, more: int) -> Floats:
    """Add `more` zero columns."""
    return np.concatenate([array, np.zeros((array.shape[0], more))], axis=1)
