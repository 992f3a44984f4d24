"""The learner: a policy that really learns from what is rolled out.

    learner = Learner(world, run_seed=0)
    groups = learner.rollouts(keys, step)     G rollouts of every task, as the scheduler observes them
    learner.transcripts(groups[0])            the same rollouts as messages, until the next rollouts
    learner.update()                          one GRPO step on what was rolled out since the last one
    learner.evaluate()                        held-out success: (macro over environments, micro)

GRPO: advantage = (reward - mean) / std within a group, 0 where all rewards are equal; the gradient of
mean over all rollouts of advantage x log chance goes through Adam. Rollouts are keyed by (run seed, step,
task, rollout), held-out ones by (run seed, task, draw): the same stream at every evaluation and for every
scheduler. A saved learner carries on as the unbroken one would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from envsched_core.errors import ContractError, UnknownTaskError
from envsched_core.keyed import mix, name_hash
from envsched_core.records import Cost, GroupResult, Rollout, TaskSpec

from .messages import transcript
from .optimiser import Adam
from .policy import FEATURES, Floats, Player, initial_weights, new_scratch
from .rollout import CALLS_A_TURN, TRACE_COLUMNS, add_gradients, roll_out
from .tools import MAX_TURNS, Ints
from .world import World, make_base_world

__all__ = ["AnyLearner", "Learner", "Update", "advantages", "base_weights"]

BASE_BATCH = 256
"""Tasks of a step of the base policy."""
HELD_OUT_DRAWS = 2
"""Rollouts of every held-out task at an evaluation."""

TRAINING, HELD_OUT, PROBE = 1, 2, 3
"""Streams: rollouts that are trained on, held-out ones, and those that only an oracle sees."""


class AnyLearner(Protocol):
    """What a training loop relies on; `Learner` and `BfclLearner` keep to it."""

    run_seed: int
    group_size: int

    @property
    def specs(self) -> list[TaskSpec]:
        """The training tasks as a scheduler may know them."""

    @property
    def policy_version(self) -> str:
        """How many updates the policy has had."""

    def rollouts(self, keys: Sequence[str], step: int) -> list[GroupResult]:
        """Roll out tasks; see the module's head for this and what follows."""

    def update(self, only: Collection[str] | None = None) -> Update:
        """One training step."""

    def transcripts(self, group: GroupResult) -> list[Rollout]:
        """The rollouts of one of the latest groups as messages."""

    def evaluate(self) -> tuple[float, float]:
        """Held-out success: macro and micro."""

    def state_dict(self) -> dict[str, Any]:
        """Everything between two steps."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Carry on from a saved state."""


class Update(NamedTuple):
    """What one training step did."""

    groups: int
    informative: int
    """Groups whose rewards differed."""
    gradient_norm: float


class Rolled(NamedTuple):
    """Groups that were rolled out together."""

    step: int
    tasks: Ints
    """[B]"""
    rewards: Floats
    """[B, G]"""
    counts: Ints
    """Calls and turns [B, G, 2]."""
    traces: Ints
    """[B, G, longest, TRACE_COLUMNS]"""
    ids: tuple[str, ...]


def advantages(rewards: Floats) -> Floats:
    """Group-normalised advantages [B, G]; 0 for a group whose rewards are all equal."""
    spread = rewards.std(axis=1, keepdims=True)
    mixed = np.ptp(rewards, axis=1, keepdims=True) > 0
    return np.where(mixed, (rewards - rewards.mean(axis=1, keepdims=True)) / np.where(mixed, spread, 1.0), 0.0)


class Learner:
    """A policy that learns in a world."""

    def __init__(self, world: World, *, run_seed: int = 0, group_size: int = 8, weights: Floats | None = None) -> None:
        """`weights` [FEATURES + 1]: where to start; the world's base policy when None."""
        self.world = world
        self.run_seed = run_seed
        self.group_size = group_size
        self.adam = Adam(base_weights(world) if weights is None else weights)
        self._scratch = new_scratch()
        self._open: list[Rolled] = []
        self._trained = True
        self._names: dict[int, list[str]] = {}

    @property
    def specs(self) -> list[TaskSpec]:
        """The training tasks as a scheduler may know them [N]."""
        return self.world.specs

    @property
    def policy_version(self) -> str:
        """How many updates the policy has had."""
        return str(self.adam.steps)

    def rollouts(self, keys: Sequence[str], step: int) -> list[GroupResult]:
        """Roll out each task ``ENV::TASK`` `group_size` times with the policy as it is.

        Raises:
            UnknownTaskError: a key is no training task of this world.
        """
        unknown = [key for key in keys if key not in self.world.places]
        if unknown:
            raise UnknownTaskError(f"world {self.world.name} has no training task {unknown[0]}")
        tasks = np.array([self.world.places[key] for key in keys], dtype=np.int64)
        if self._trained:
            self._open, self._trained = [], False
        rolled = self._roll(tasks, step)
        self._open.append(rolled)
        return [self._group(rolled, b) for b in range(len(tasks))]

    def update(self, only: Collection[str] | None = None) -> Update:
        """One step on the groups rolled out since the last update, or on those whose ids are in `only`."""
        grad, groups, informative = np.zeros(FEATURES + 1), 0, 0
        for rolled in [] if self._trained else self._open:
            kept = np.array([only is None or group in only for group in rolled.ids], dtype=bool)
            gains = advantages(rolled.rewards[kept])
            groups += len(gains)
            informative += int((gains != 0).any(axis=1).sum())
            seed = self._seed(TRAINING)
            add_gradients(self._player(grad), rolled.tasks[kept], gains, seed, rolled.step)
        grad /= max(groups * self.group_size, 1)
        self.adam.step(grad)
        self._trained = True
        return Update(groups, informative, float(np.sqrt(np.square(grad).sum())))

    def transcripts(self, group: GroupResult) -> list[Rollout]:
        """The rollouts of a group as messages; kept until the first rollouts after the next update.

        Raises:
            ContractError: the group is not among those kept.
        """
        for rolled in self._open:
            if group.group_id in rolled.ids:
                b = rolled.ids.index(group.group_id)
                parts = (rolled.rewards[b], rolled.counts[b], rolled.traces[b])
                return transcript(self.world, int(rolled.tasks[b]), group.group_id, *parts)
        raise ContractError(f"group {group.group_id} is not among the latest rollouts")

    def evaluate(self) -> tuple[float, float]:
        """Held-out success: mean over environments of their means, and mean over tasks."""
        tasks = self.world.held_out
        if not len(tasks):
            return float("nan"), float("nan")
        right, _ = self.probe(tasks, HELD_OUT_DRAWS, stream=HELD_OUT)
        success = (right == self.world.arrays.turns[tasks][:, None]).mean(axis=1)
        env = self.world.arrays.env[tasks]
        by_env = np.bincount(env, success) / np.maximum(np.bincount(env), 1)
        return float(by_env[np.unique(env)].mean()), float(success.mean())

    def probe(self, tasks: Ints, size: int, *, step: int = 0, stream: int = PROBE) -> tuple[Ints, Ints]:
        """Rollouts that are neither trained on nor kept: turns right [B, size], calls and turns [B, size, 2]."""
        right = np.zeros((len(tasks), size), dtype=np.int64)
        counts = np.zeros((len(tasks), size, 2), dtype=np.int64)
        none = np.zeros((0, 0, 0, 0), dtype=np.int64)
        roll_out(self._player(np.zeros(0)), tasks, self._seed(stream), step, right, counts, none)
        return right, counts

    def rewards_of(self, right: Ints, tasks: Ints) -> Floats:
        """The verifier's reward [B, G] for turns that ended right [B, G]."""
        turns = self.world.arrays.turns[tasks][:, None]
        return right / turns if self.world.spec.graded else (right == turns).astype(np.float64)

    def state_dict(self) -> dict[str, Any]:
        """Everything between two steps, as plain data and arrays."""
        return {"format": 1, "run_seed": self.run_seed, "policy": self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Carry on from a saved state; rollouts that were not trained on are forgotten.

        Raises:
            ContractError: the state is of another format or run seed.
        """
        if int(state["format"]) != 1 or int(state["run_seed"]) != self.run_seed:
            raise ContractError(f"learner state of format {state['format']}, run seed {state['run_seed']} does not fit")
        self.adam.load_state_dict(state["policy"])
        self._open, self._trained = [], True

    def _player(self, grad: Floats) -> Player:
        return Player(self.world.arrays, self.adam.weights, grad, self._scratch)

    def _seed(self, stream: int) -> np.uint64:
        return np.uint64(mix(np.array([name_hash(f"testbed-{self.world.seed}")], np.uint64), self.run_seed, stream)[0])

    def _roll(self, tasks: Ints, step: int) -> Rolled:
        size = (len(tasks), self.group_size)
        right, counts = np.zeros(size, dtype=np.int64), np.zeros((*size, 2), dtype=np.int64)
        traces = np.zeros((*size, CALLS_A_TURN * MAX_TURNS, TRACE_COLUMNS), dtype=np.int64)
        roll_out(self._player(np.zeros(0)), tasks, self._seed(TRAINING), step, right, counts, traces)
        ids = tuple(f"{step}/{self.world.tasks[t].spec.key}" for t in tasks)
        return Rolled(step, tasks, self.rewards_of(right, tasks), counts, traces, ids)

    def _group(self, rolled: Rolled, b: int) -> GroupResult:
        """One group as the scheduler observes it."""
        task = int(rolled.tasks[b])
        spec = self.world.tasks[task].spec
        names = self._tool_names(int(self.world.arrays.env[task]))
        made = rolled.counts[b, :, 0].tolist()
        tools = rolled.traces[b, :, :, 1].tolist()
        return GroupResult(
            rolled.ids[b],
            spec.env,
            spec.task,
            tuple(rolled.rewards[b].tolist()),
            step=rolled.step,
            policy_version=self.policy_version,
            cost=Cost(turns=float(rolled.counts[b, :, 1].sum()), tool_calls=float(sum(made))),
            calls=tuple(tuple(names[t] for t in row[:count]) for row, count in zip(tools, made, strict=True)),
        )

    def _tool_names(self, env: int) -> list[str]:
        """Kept, since groups ask for them again and again."""
        if env not in self._names:
            self._names[env] = [tool.name for tool in self.world.environments[env].tools]
        return self._names[env]


def base_weights(world: World) -> Floats:
    """The base policy of a world [FEATURES + 1], the same for every run: trained on an easier world, uniformly."""
    return _base_weights(world.seed, world.spec.base_steps, world.spec.local_features).copy()


@lru_cache(maxsize=4)
def _base_weights(seed: int, steps: int, local: bool) -> Floats:
    easier = make_base_world(seed, local)
    learner = Learner(easier, weights=initial_weights())
    rng = np.random.default_rng((seed, steps))
    keys = list(easier.places)
    for step in range(steps):
        learner.rollouts([keys[i] for i in rng.permutation(len(keys))[:BASE_BATCH]], step)
        learner.update()
    return learner.adam.weights
