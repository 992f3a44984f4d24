"""A world: its environments, its training and held-out tasks, and the arrays the compiled code works on.

make_world(name, seed) -> World      the same name and seed give the same world
world.specs                          what a scheduler registers: nothing of the flags
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envsched_core.keyed import name_hash
from envsched_core.records import TaskSpec

from . import words as w
from .environments import Environment, make_environment
from .policy import MOST_TOOLS, Arrays
from .specs import WorldSpec, base_spec, world_spec
from .tasks import Task, make_task
from .tools import OP, TOOL_COLUMNS

__all__ = ["World", "make_base_world", "make_world"]

ENVIRONMENT, TASK, TEMPLATE = 1, 2, 3  # keys of the draws
BASE = 1000  # added to the seed of the world a base policy is trained on


class World(NamedTuple):
    """A world as it was drawn; nothing in it changes."""

    name: str
    seed: int
    spec: WorldSpec
    environments: tuple[Environment, ...]
    tasks: tuple[Task, ...]
    """Training tasks [N], then held-out tasks."""
    arrays: Arrays
    places: dict[str, int]
    """Place of a training task by ``ENV::TASK``."""

    @property
    def specs(self) -> list[TaskSpec]:
        """The training tasks as a scheduler may know them [N]."""
        return [task.spec for task in self.tasks[: self.spec.tasks]]

    @property
    def held_out(self) -> NDArray[np.int64]:
        """Places of the held-out tasks."""
        return np.arange(self.spec.tasks, len(self.tasks))


def make_world(name: str, seed: int = 0) -> World:
    """A reference world or a variant (specs.py).

    Raises:
        ConfigError: no world or variant has that name.
    """
    return _draw_world(name, world_spec(name), seed)


def make_base_world(seed: int, local_features: bool) -> World:
    """The easier world on which the base policy of the worlds of a seed is trained; it shares no environment."""
    return _draw_world("base", base_spec(local_features), seed + BASE)


def _draw_world(name: str, spec: WorldSpec, seed: int) -> World:
    domains = list(w.DOMAINS)
    prefix = "base-" if name == "base" else ""
    environments = []
    for e in range(spec.environments):
        domain = domains[e % len(domains)]
        called = f"{prefix}{domain}-{e // len(domains):02d}"
        environments.append(make_environment(spec, called, domain=domain, seed=(seed, ENVIRONMENT, e)))
    tasks, env_of = [], []
    training, held_out = _sizes(spec, seed), np.full(spec.environments, spec.held_out // spec.environments)
    held_out[: spec.held_out % spec.environments] += 1
    drawn = ((training, "t", spec.broken, spec.broken_templates), (held_out, "h", 0.0, 0.0))
    for counts, kind, broken, broken_templates in drawn:
        for e, count in enumerate(counts):
            for i in range(count):
                key = (seed, TASK, e, i, ord(kind))
                task = make_task(spec, environments[e], f"{kind}{i:04d}", seed=key, broken=broken)
                tasks.append(task._replace(solvable=task.solvable and _is_sound(task, seed, broken_templates)))
                env_of.append(e)
    places = {task.spec.key: i for i, task in enumerate(tasks[: spec.tasks])}
    arrays = _arrays(spec, environments, tasks, env_of)
    return World(name, seed, spec, tuple(environments), tuple(tasks), arrays, places)


def _is_sound(task: Task, seed: int, broken: float) -> bool:
    """Whether the template of a task, its operations in order, can be solved: one draw for all environments."""
    if broken == 0.0:  # a generator for every task would take longer than the rest
        return True
    operations = task.asks[: task.turns, OP].tolist()
    return bool(np.random.default_rng((seed, TEMPLATE, *operations)).random() >= broken)


def _sizes(spec: WorldSpec, seed: int) -> NDArray[np.int64]:
    """Training tasks of each environment [E]: a power law by a seeded order, at least one each."""
    order = np.random.default_rng((seed, ENVIRONMENT)).permutation(spec.environments)
    share = np.asarray((1.0 + order) ** -spec.size_power, dtype=np.float64)
    spread: NDArray[np.int64] = np.maximum(np.floor(share / share.sum() * spec.tasks), 1).astype(np.int64)
    left = spec.tasks - int(spread.sum())
    spread[np.argsort(-share, kind="stable")[: abs(left)]] += np.sign(left)
    return spread


def _arrays(spec: WorldSpec, environments: list[Environment], tasks: list[Task], env_of: list[int]) -> Arrays:
    tools = np.zeros((len(environments), MOST_TOOLS, TOOL_COLUMNS), dtype=np.int64)
    value_words = np.zeros((len(environments), 3, 3, w.VALUES_EACH), dtype=np.int64)
    for e, env in enumerate(environments):
        tools[e, : len(env.table)] = env.table
        for k, entity in enumerate(env.entities):
            for a, attribute in enumerate(entity.attributes):
                value_words[e, k, a] = [w.word_id(value[0]) for value in w.ATTRIBUTES[attribute][1]]
    return Arrays(
        tools=tools,
        n_tools=np.array([len(env.table) for env in environments], dtype=np.int64),
        env_id=np.array([name_hash(env.name) >> 34 for env in environments], dtype=np.int64),
        flags=np.array([env.flags for env in environments], dtype=np.int64),
        flaky=np.array([env.flaky for env in environments], dtype=np.float64),
        value_words=value_words,
        local=int(spec.local_features),
        env=np.array(env_of, dtype=np.int64),
        turns=np.array([task.turns for task in tasks], dtype=np.int64),
        asks=np.array([task.asks for task in tasks], dtype=np.int64),
        start=np.array([task.start for task in tasks], dtype=np.int64),
        solvable=np.array([task.solvable for task in tasks], dtype=np.bool_),
    )
