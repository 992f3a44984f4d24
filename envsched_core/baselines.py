"""The peers of EnvSched behind the same protocol, each a few changes to it.

They share availability, quotas, ledger and records, so a comparison compares the choice and nothing else.
Where a peer predicts nothing, the prediction on record is the environment-level estimate; it had no part in
the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import betaincinv

from .config import Config, config_from
from .errors import ConfigError
from .keyed import mix, unit
from .problem import Cells
from .records import GroupResult, TaskSpec
from .scheduler import EnvSched, Worth

__all__ = ["NAMES", "Mopps", "RoundRobin", "make_scheduler"]

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


class Mopps(EnvSched):
    """MoPPS (Qu et al. 2025, arXiv 2507.04632): a Beta of its own for each task, drawn; nearest to 1/2 wins.

    Of `CANDIDATES` x batch size tasks drawn at random, those whose drawn rate (Thompson) lies nearest to 1/2. When
    a group of k rollouts with summed reward s comes in: a <- L a + (1 - L) a0 + s, b <- L b + (1 - L) b0 + k - s,
    with a0 = b0 = 1 and L = 1/2 (rewards mapped to [0, 1]). Tasks share nothing.
    """

    DECAY = 0.5
    CANDIDATES = 16
    DRAW, ENTRY = 20, 21  # keys of the Thompson draw and of the draw of candidates

    def __init__(self, config: Config | None = None, *, name: str = "mopps") -> None:
        """`config`: all knobs; the defaults when None."""
        super().__init__(config, name=name)
        self.beta = np.zeros((2, 0))
        """a and b of every task [2, N]."""

    def register(self, tasks: Sequence[TaskSpec]) -> None:
        """Make tasks known, at Beta(1, 1)."""
        fresh = len({task.key for task in tasks} - self.catalogue.index.keys())
        self.beta = np.concatenate([self.beta, np.ones((2, fresh))], axis=1)
        super().register(tasks)

    def _learn(self, results: Sequence[GroupResult]) -> None:
        moments = self.predictor.moments
        for result in results:
            task = self.catalogue.index[result.key]
            low, high = moments.low[moments.env[task]], moments.high[moments.env[task]]
            mapped = np.clip((np.array(result.rewards) - low) / max(high - low, 1e-300), 0.0, 1.0)
            gained = np.array([mapped.sum(), len(mapped) - mapped.sum()])
            self.beta[:, task] = self.DECAY * self.beta[:, task] + (1.0 - self.DECAY) + gained

    def _worth(self) -> Worth:
        hashes = mix(self.catalogue.hashes, self.config.seed, self.step)
        drawn = betaincinv(self.beta[0], self.beta[1], unit(mix(hashes, self.DRAW)))
        entry = unit(mix(hashes, self.ENTRY))
        free = ~self.ledger.in_flight() & ~self.ledger.exhausted() & ~self.ledger.resting(self.step)
        most = self.CANDIDATES * self.config.batch_size
        limit = np.sort(entry[free])[most - 1] if np.count_nonzero(free) > most else 1.0
        terms = {"distance_from_half": -np.abs(drawn - 0.5), "not_a_candidate": -(entry > limit).astype(float)}
        return Worth(terms, np.zeros(len(drawn)), [])

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays, no pickle."""
        return {**super().state_dict(), "beta": self.beta.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Carry on from a saved state; register the tasks first."""
        if "beta" in state:  # else it is no state of this scheduler, and the next line says so
            tasks, _ = self.catalogue.translate(state["catalogue"])
            self.beta[:, tasks[tasks >= 0]] = np.asarray(state["beta"])[:, tasks >= 0]
        super().load_state_dict(state)


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


def _mopps(config: Config) -> EnvSched:
    """As published: no quota, no coverage, no graph."""
    return Mopps(config_from({**NO_GRAPH, **NO_COVERAGE, **GREEDY, "max_share": 1.0}, config))


NAMES: dict[str, Callable[[Config], EnvSched]] = {
    "envsched": _envsched,
    "uniform": _uniform,
    "round-robin": _round_robin,
    "empirical-bayes": _empirical_bayes,
    "mopps": _mopps,
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
