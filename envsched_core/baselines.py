"""The peers of EnvSched behind the same protocol, each a few changes to it.

They share availability, quotas, ledger and records, so a comparison compares the choice and nothing else.
Where a peer predicts nothing, the prediction on record is the environment-level estimate; it had no part in
the choice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .config import Config, config_from
from .errors import ConfigError
from .problem import Cells
from .scheduler import EnvSched, Worth

__all__ = ["NAMES", "RoundRobin", "make_scheduler"]

NO_GRAPH = {
    "tau_within_grid": (0.0,),
    "tau_cross_grid": (0.0,),
    "weight_similarity": 0.0,
    "weight_pattern": 0.0,
}
NO_COVERAGE = {"weight_environment": 0.0, "weight_task": 0.0}
GREEDY = {"temperature": 0.0, "uniform_share": 0.0}


class RoundRobin(EnvSched):
    """Environments by turns, and tasks by turns within each; ties in seeded order. Predicts nothing.

    As gains: with g(n) = -n^2 / 2 one more pick of a cell visited n times gains -n, so the greedy loop
    takes the least visited environment, and in it the least visited task.
    """

    def _worth(self) -> Worth:
        visits = self._visits()
        # A task's turn must never outweigh an environment's: scale it below one visit.
        turn = -visits / (1.0 + visits.max(initial=0.0)) * 0.5
        env = self._cells("turn_environment", self.catalogue.env, 1.0, visits)
        cells: list[Cells] = [env._replace(shape="turn")]
        return Worth({"turn_task": turn}, np.zeros(len(visits)), cells)


def _envsched(config: Config) -> EnvSched:
    return EnvSched(config)


def _uniform(config: Config) -> EnvSched:
    """Every pick a uniform draw from the tasks that can be picked. No hyper-parameters."""
    changes = {**NO_GRAPH, **NO_COVERAGE, "temperature": 0.0, "uniform_share": 1.0, "max_share": 1.0}
    return EnvSched(config_from(changes, config), name="uniform")


def _round_robin(config: Config) -> EnvSched:
    return RoundRobin(config_from({**NO_GRAPH, **GREEDY, "coverage_half_life": 0.0}, config), name="round-robin")


def _empirical_bayes(config: Config) -> EnvSched:
    """Task and environment means, the environment's weight learned online; top-k on the predicted variance.

    The predictor without the graph, under the same quota; no coverage, uncertainty, penalty, draw or uniform share.
    """
    changes = {
        **NO_GRAPH,
        **NO_COVERAGE,
        **GREEDY,
        "weight_uncertainty": 0.0,
        "weight_usable": 0.0,
        "weight_variance": 1.0,
    }
    return EnvSched(config_from(changes, config), name="empirical-bayes")


NAMES: dict[str, Callable[[Config], EnvSched]] = {
    "envsched": _envsched,
    "uniform": _uniform,
    "round-robin": _round_robin,
    "empirical-bayes": _empirical_bayes,
}
"""Every scheduler by the name used on the command line and in run folders."""


def make_scheduler(name: str, config: Config | None = None) -> EnvSched:
    """A fresh scheduler by name.

    Raises:
        ConfigError: no scheduler has that name.
    """
    if name not in NAMES:
        raise ConfigError(f"unknown scheduler '{name}'; known: {', '.join(NAMES)}")
    return NAMES[name](config or Config())
