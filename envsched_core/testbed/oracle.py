"""References that know the current policy: schedulers that see p of the moment by rollouts nobody is charged for.

`oracle` draws in proportion to p (1 - p), `oracle-top` takes the top under the quota. At each step a seeded
sample of the training tasks is probed; drawing in proportion within a sample is drawing in proportion
from all. They are strong references for what prediction can give, not a proven limit.
"""

from __future__ import annotations

import numpy as np

from envsched_core.baselines import REFERENCES
from envsched_core.config import Config, config_from
from envsched_core.errors import ConfigError
from envsched_core.scheduler import EnvSched, Worth

from .loop import Learner
from .policy import Floats

__all__ = ["Oracle", "make_oracle"]

CANDIDATES = 512
"""Tasks probed at a step."""
PROBES = 16
"""Rollouts of each."""


class Oracle(EnvSched):
    """Knows the reward variance of a sample of tasks under the learner's policy as it is."""

    def __init__(self, config: Config, learner: Learner, *, name: str) -> None:
        """`learner`: the one whose rollouts will be observed."""
        super().__init__(config, name=name)
        self._learner = learner

    def _worth(self) -> Worth:
        variance = true_variance(self._learner, self.step)
        return Worth({"true_variance": variance}, np.zeros(len(variance)), [])


def true_variance(learner: Learner, step: int, *, candidates: int = CANDIDATES, probes: int = PROBES) -> Floats:
    """Estimated reward variance of every training task [N] under the current policy; 0 where not probed."""
    count = learner.world.spec.tasks
    tasks = np.random.default_rng((learner.world.seed, learner.run_seed, step)).permutation(count)[:candidates]
    right, _ = learner.probe(tasks, probes, step=step)
    variance = np.zeros(count)
    variance[tasks] = learner.rewards_of(right, tasks).var(axis=1)
    return variance


def make_oracle(name: str, config: Config, learner: Learner) -> Oracle:
    """A reference by name.

    Raises:
        ConfigError: no reference has that name.
    """
    if name not in REFERENCES:
        raise ConfigError(f"unknown reference '{name}'; known: {', '.join(REFERENCES)}")
    return Oracle(config_from(REFERENCES[name], config), learner, name=name)
