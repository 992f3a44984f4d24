"""Costs: what a group of each task is expected to cost, by the propagation of the mean; a factor on its value.

Counted per rollout, so that groups of different sizes compare. With n_i the rollouts of task i in groups that told
their cost and y_i what those cost, discounted to now (predictor.py has the same sums of rewards):

    c_i = [y_i + tau_w sum_j W_ij y_j + tau_x sum_j X_ij y_j + kappa_e c_e + kappa_0 c_0]
        / [n_i + tau_w sum_j W_ij n_j + tau_x sum_j X_ij n_j + kappa_e     + kappa_0]
    factor_i = (c_0 / c_i) ^ weight, between 1/10 and 10

c_0 is the cost of a rollout over everything (the usual cost), c_e that of the environment, shrunk by two rollouts of
c_0; trust (tau, kappa_e, half-life) is the one in use for rewards. No number here has a unit of its own: costs in
another unit give the same factors. Where no cost was told yet nothing is expected, and values stay as they are.
Groups without any scored reward enter no statistic, so neither this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .config import Config
from .graph import DualRelationGraph
from .moments import Discount, Floats, Group
from .propagation import Spread, carried, carry
from .records import Cost

__all__ = ["MOST_FACTOR", "Costs", "ExpectedCost", "told"]

Indices = NDArray[np.int64]

MOST_FACTOR = 10.0
"""No value is multiplied or divided by more than this for its cost."""
MOST_COST = 1e100
"""Costs beyond this are no costs: their sums would overflow."""
DIGITS = 9
"""Decimals to which the logarithm of a factor is kept: equal costs summed in another order give a factor of 1."""
SHRINKAGE = 2.0
"""Rollouts of the usual cost in an environment's mean."""


def told(cost: Cost | None, name: str) -> Literal["known", "missing", "refused"]:
    """Whether a group tells its cost of that name; refused: a number that can be none (negative, NaN, infinite)."""
    amount = getattr(cost, name, None)
    if amount is None:
        return "missing"
    return "known" if 0.0 <= amount <= MOST_COST else "refused"  # false for NaN


class ExpectedCost(NamedTuple):
    """What groups are expected to cost, in the log's own unit."""

    group: Floats
    """Cost of a group of each task [M], >= 0."""
    usual: float
    """Cost of a group over everything, >= 0."""

    def factor(self, weight: float) -> Floats:
        """(usual / expected) ^ weight [M], in [1 / MOST_FACTOR, MOST_FACTOR]; 1 where all is free."""
        if self.usual <= 0.0:
            return np.ones_like(self.group)
        least = self.usual * np.finfo(float).tiny ** 0.5  # a cost of 0 against a usual one above it
        times = np.round(np.log(self.usual / np.maximum(self.group, least)), DIGITS)
        most = math.log(MOST_FACTOR)
        return np.asarray(np.exp(np.clip(weight * times, -most, most)))


class Costs:
    """Rollouts and their cost of N tasks in E environments at H half-lives, and what is carried along the edges."""

    SUMS = ("n", "s", "env_n", "env_s")

    def __init__(self, config: Config) -> None:
        """Reads which `cost` is meant, `half_lives`, `kappa_global` and `group_size`."""
        self.config, self.name = config, config.cost
        h = len(config.half_lives)
        self.env: Indices = np.zeros(0, dtype=np.int64)
        self.n, self.s = np.zeros((h, 0)), np.zeros((h, 0))
        self.env_n, self.env_s = np.zeros((h, 0)), np.zeros((h, 0))
        self.spread: Spread = carried(None, self.n, self.s)

    def grow(self, env: Indices, environments: int, graph: DualRelationGraph | None) -> None:
        """Make room: `env` [N] is the environment of every task, of `environments` in all."""
        tasks, more = len(env) - len(self.env), environments - self.env_n.shape[1]
        self.env = env
        self.n, self.s = (np.pad(sums, ((0, 0), (0, tasks))) for sums in (self.n, self.s))
        self.env_n, self.env_s = (np.pad(sums, ((0, 0), (0, more))) for sums in (self.env_n, self.env_s))
        self.carry_all(graph)

    def carry_all(self, graph: DualRelationGraph | None) -> None:
        """Carry everything along the edges of `graph`."""
        self.spread = carried(graph, self.n, self.s)

    def rescale(self, factor: Floats) -> None:
        """Multiply all stored sums by `factor` [H] (see `Discount.advance`)."""
        for sums in (*(getattr(self, name) for name in self.SUMS), *self.spread.values()):
            sums *= factor[:, None]

    def observe(self, groups: Sequence[Group], discount: Discount, graph: DualRelationGraph | None) -> None:
        """Take in the groups that tell their cost."""
        groups = [group for group in groups if told(group.cost, self.name) == "known"]
        if not groups:
            return
        tasks = np.array([group.task for group in groups])
        weights = discount.weight(np.array([group.step for group in groups]))
        counts = weights * np.array([float(group.rollouts) for group in groups])
        totals = weights * np.array([float(getattr(group.cost, self.name)) for group in groups])
        for h in range(len(weights)):
            for sums, added in ((self.n, counts), (self.s, totals)):
                np.add.at(sums[h], tasks, added[h])
            for sums, added in ((self.env_n, counts), (self.env_s, totals)):
                np.add.at(sums[h], self.env[tasks], added[h])
        carry(self.spread, graph, tasks, counts, totals)

    def expected(
        self, h: int, at: Any, scale: float, kappa: Floats, pulls: tuple[Floats, Floats]
    ) -> ExpectedCost | None:
        """What groups of the tasks `at` [M] cost at half-life `h`; None while no cost was told.

        `scale` turns stored sums into sums as of now, `kappa` [M] are the pseudo-rollouts of the environment's
        mean, `pulls` [M], [M] what a rollout of a neighbour within and across environments counts.
        """
        rollouts = float(self.env_n[h].sum())
        if rollouts <= 0.0:
            return None
        usual, k0 = float(self.env_s[h].sum()) / rollouts, self.config.kappa_global
        environment = (scale * self.env_s[h] + SHRINKAGE * usual) / (scale * self.env_n[h] + SHRINKAGE)
        spread = {name: sums[h][at] for name, sums in self.spread.items()}
        n = scale * (self.n[h][at] + pulls[0] * spread["wn"] + pulls[1] * spread["xn"]) + kappa + k0
        s = scale * (self.s[h][at] + pulls[0] * spread["ws"] + pulls[1] * spread["xs"])
        cost = (s + kappa * environment[self.env[at]] + k0 * usual) / n
        return ExpectedCost(self.config.group_size * cost, self.config.group_size * usual)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Which cost, and all sums."""
        sums = {name: getattr(self, name).copy() for name in self.SUMS}
        return {"name": self.name, **sums, "spread": {name: sums.copy() for name, sums in self.spread.items()}}

    def load_state_dict(
        self, state: Mapping[str, Any] | None, tasks: Indices, envs: Indices, graph: DualRelationGraph | None
    ) -> None:
        """Put saved sums at `tasks` and `envs` (indices here; -1 = gone); sums of another cost are left alone.

        What was carried is taken as saved when no task came or went, and carried again along `graph` otherwise.
        """
        if state is None or state["name"] != self.name:
            return
        for name, places in (("n", tasks), ("s", tasks), ("env_n", envs), ("env_s", envs)):
            getattr(self, name)[:, places[places >= 0]] = np.asarray(state[name])[:, places >= 0]
        if graph is not None and np.array_equal(tasks, np.arange(self.n.shape[1])):
            self.spread = {name: np.array(sums) for name, sums in state["spread"].items()}
        else:
            self.carry_all(graph)
