"""Peers that count or draw and nothing more, and the two that fill a batch by discarding flat groups.

`fills_batch` is what benches read. A scheduler with it is to be driven as DAPO's dynamic sampling is (Yu et al.
2025, arXiv 2503.14476): ask for B, generate, observe every group, discard the flat ones; while fewer than B mixed
groups are kept, ask again within the same step for as many as the trainer generates at a time (B there), until
the batch is full, nothing is left, or `FILLING_ROUNDS` are over; train on the first B kept. All generated groups are
billed and all count in its informative share. What is asked again within a step is never a task of that step.
Within a step the scheduler learns nothing new: results are taken in when the next step begins. So DAPO with
uniform choice and DAPO with EnvSched differ in the choice alone, and are compared at equal generated rollouts.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from envsched_core.config import Config, config_from
from envsched_core.scheduler import EnvSched, Worth
from envsched_core.scheduler.worth import cells_of

from .peer import BARE, GREEDY, MEANS_ONLY, NO_COVERAGE

__all__ = ["FILLING_ROUNDS", "RoundRobin", "dapo", "dapo_envsched", "empirical_bayes", "uniform"]

FILLING_ROUNDS = 10
"""Most batches generated for one that is to be full of mixed groups."""


class RoundRobin(EnvSched):
    """Environments by turns, and tasks by turns within each; ties in seeded order. Predicts nothing.

    As gains: with g(n) = -n^2 / 2 one more pick of a cell visited n times gains -n, so the greedy loop
    takes the least visited environment, and in it the least visited task. No hyper-parameters.
    """

    CHANGES: ClassVar = {**MEANS_ONLY, **GREEDY, "coverage_half_life": 0.0, "cost": ""}

    def __init__(self, config: Config | None = None) -> None:
        """`config`: all knobs, of which the rule overrides its own; the defaults when None."""
        super().__init__(config_from(self.CHANGES, config), name="round-robin")

    def _worth(self) -> Worth:
        visits = self._visits()
        # A task's turn must never outweigh an environment's: scale it below one visit.
        turn = -visits / (1.0 + visits.max(initial=0.0)) * 0.5
        env = cells_of("turn_environment", self.catalogue.env, 1.0, visits)
        return Worth({"turn_task": turn}, np.zeros(len(visits)), [env._replace(shape="turn")])


def uniform(config: Config, *, name: str = "uniform") -> EnvSched:
    """Every pick a uniform draw from the tasks that can be picked. No hyper-parameters."""
    return EnvSched(config_from({**BARE, "uniform_share": 1.0}, config), name=name)


def empirical_bayes(config: Config) -> EnvSched:
    """Task and environment means, the environment's weight learned online; top-k on the predicted variance.

    The predictor without graph and features, under the same quota; no coverage, uncertainty, penalty, draw or
    uniform share.
    """
    changes = {
        **MEANS_ONLY,
        **NO_COVERAGE,
        **GREEDY,
        "weight_uncertainty": 0.0,
        "weight_usable": 0.0,
        "weight_variance": 1.0,
        "cost": "",
    }
    return EnvSched(config_from(changes, config), name="empirical-bayes")


def dapo(config: Config) -> EnvSched:
    """DAPO's dynamic sampling (arXiv 2503.14476) over a uniform choice: flat groups are discarded, more is asked for.

    The choice is `uniform`'s; the module's head says how a bench drives what has `fills_batch`.
    """
    scheduler = uniform(config, name="dapo")
    scheduler.fills_batch = True
    return scheduler


def dapo_envsched(config: Config) -> EnvSched:
    """The same filling over EnvSched's choice: what scheduling adds where the trainer discards flat groups already."""
    scheduler = EnvSched(config, name="dapo-envsched")
    scheduler.fills_batch = True
    return scheduler
