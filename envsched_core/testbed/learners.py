"""A learner by the name of its world: ToolWorld's, its variants, and ``bfcl``.

BFCL's modules import the package `bfcl-eval`, so they are loaded only when asked for.
"""

from __future__ import annotations

import importlib
import importlib.util

from envsched_core.errors import ConfigError

from .loop import AnyLearner, Learner
from .world import make_world

__all__ = ["make_learner"]


def make_learner(name: str, *, world_seed: int = 0, run_seed: int = 0, group_size: int = 8) -> AnyLearner:
    """A fresh learner in a fresh world.

    Raises:
        ConfigError: no world has that name, or `bfcl-eval` is not installed.
    """
    if name != "bfcl":
        return Learner(make_world(name, world_seed), run_seed=run_seed, group_size=group_size)
    if any(importlib.util.find_spec(package) is None for package in ("bfcl_eval", "mpmath")):
        raise ConfigError("world bfcl needs `pip install --no-deps bfcl-eval` and `pip install mpmath`")
    world = importlib.import_module("envsched_core.testbed.bfcl_world").make_bfcl_world(world_seed)
    learner = importlib.import_module("envsched_core.testbed.bfcl_learner").BfclLearner
    made: AnyLearner = learner(world, run_seed=run_seed, group_size=group_size)
    return made
