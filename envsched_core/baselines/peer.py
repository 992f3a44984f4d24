"""Peer: what published rules share behind our contract: bare config, memory by task and environment, arms by turns.

A peer keeps its own statistics as named arrays whose last axis is the tasks or the environments; they grow
with the catalogue and are saved and loaded with it. It says what tasks are worth in `_rate` and learns in
`_take`. All its randomness is keyed by (seed, step, task or slot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envsched_core.config import Config, config_from
from envsched_core.keyed import mix, unit
from envsched_core.moments import is_flat
from envsched_core.problem import Floats, Indices
from envsched_core.records import GroupResult
from envsched_core.scheduler import EnvSched, Worth

__all__ = ["BARE", "GREEDY", "MEANS_ONLY", "NO_COVERAGE", "Column", "Peer", "Seen", "draw_arms", "mean_advantage"]

MEANS_ONLY: dict[str, Any] = {
    "features_share_grid": (0.0,),
    "tau_within_grid": (0.0,),
    "tau_cross_grid": (0.0,),
    "weight_similarity": 0.0,
    "weight_pattern": 0.0,
}
"""Predictions from the means of task, environment and everything; neither graph nor features."""
NO_COVERAGE: dict[str, Any] = {"weight_environment": 0.0, "weight_task": 0.0}
GREEDY: dict[str, Any] = {"temperature": 0.0, "uniform_share": 0.0}

BARE: dict[str, Any] = {**MEANS_ONLY, **NO_COVERAGE, **GREEDY, "max_share": 1.0, "cost": ""}
"""As published: no graph, no features, no coverage, no quota, no cost, and no draw but the rule's own."""

SLOT_KEY, HEIGHT_KEY = 30, 31
SLOTS = 4
"""Slots drawn in advance, in batches; what is asked beyond them is drawn uniformly."""


class Column(NamedTuple):
    """One statistic kept for every task or environment: an array of `shape` for each, `fill` at first."""

    shape: tuple[int, ...]
    fill: float


class Seen(NamedTuple):
    """One group as a peer learns from it."""

    task: int
    env: int
    mapped: Floats
    """Its rewards [G], in [0, 1]."""
    flat: bool
    """Whether it gives no gradient."""


class Peer(EnvSched):
    """A published rule behind the contract."""

    NAME: ClassVar[str]
    CHANGES: ClassVar[Mapping[str, Any]] = {}
    """Knobs that differ from `BARE`."""
    TASKS: ClassVar[Mapping[str, Column]] = {}
    """Statistics of every task: `memory[name]` has shape [*shape, N]."""
    ENVIRONMENTS: ClassVar[Mapping[str, Column]] = {}
    """Statistics of every environment: `memory[name]` has shape [*shape, E]."""
    NUMBERS: ClassVar[Mapping[str, float]] = {}
    """Statistics of the whole: `memory[name]` has shape []."""

    def __init__(self, config: Config | None = None, *, name: str = "") -> None:
        """`config`: all knobs, of which the rule overrides its own; the defaults when None."""
        super().__init__(config_from({**BARE, **self.CHANGES}, config), name=name or self.NAME)
        sized = {**self.TASKS, **self.ENVIRONMENTS}
        self.memory: dict[str, Floats] = {key: np.zeros((*column.shape, 0)) for key, column in sized.items()}
        self.memory |= {key: np.array(value) for key, value in self.NUMBERS.items()}

    def _rate(self) -> Worth:
        """What every task is worth now."""
        raise NotImplementedError

    def _take(self, groups: Sequence[Seen]) -> None:
        """Learn from the groups of a step, those of earlier steps first; nothing by default."""

    # ------------------------------------------------------------------ the seams of EnvSched

    def _worth(self) -> Worth:
        self._grow()
        return self._rate()

    def _learn(self, results: Sequence[GroupResult]) -> None:
        self._grow()
        if results:
            self._take([self._seen(r) for r in sorted(results, key=lambda r: r.step or 0)])

    def _grow(self) -> None:
        for columns, size in ((self.TASKS, len(self.catalogue)), (self.ENVIRONMENTS, len(self.catalogue.env_names))):
            for key, column in columns.items():
                more = size - self.memory[key].shape[-1]
                if more:
                    fresh = np.full((*column.shape, more), column.fill)
                    self.memory[key] = np.concatenate([self.memory[key], fresh], axis=-1)

    def _seen(self, result: GroupResult) -> Seen:
        moments, task = self.predictor.moments, self.catalogue.index[result.key]
        env = int(self.catalogue.env[task])
        low, high = moments.low[env], moments.high[env]
        mapped = np.clip((np.array(result.rewards) - low) / max(high - low, 1e-300), 0.0, 1.0)
        return Seen(task, env, mapped, is_flat(result.rewards, self.config.min_std, self.config.min_range))

    # ------------------------------------------------------------------ tools of the rules

    def _free(self) -> NDArray[np.bool_]:
        """Tasks [N] that can be picked at this step."""
        c, ledger = self.config, self.ledger
        barred = ledger.in_flight() | ledger.exhausted() | ledger.resting(self.step)
        free: NDArray[np.bool_] = ~(barred | self.catalogue.mask(c.exclude_tasks, c.exclude_environments))
        return free

    def _uniform(self, key: int) -> Floats:
        """A uniform number in [0, 1) for every task [N], drawn anew at each step."""
        return unit(mix(self.catalogue.hashes, self.config.seed, self.step, key))

    def _turns(self, arm: Indices, probability: Floats, height: Floats, free: NDArray[np.bool_]) -> Floats:
        """Scores [N] under which the batch is a sequence of slots, each filled from an arm drawn for it.

        For every slot an arm is drawn with `probability` [A] from those that have tasks left, and takes its
        highest free task not taken yet. Slot k of S scores 1 - k / S; tasks that no slot reaches score below 0.

        Args:
            arm: the arm of each task [N].
            probability: weight of each arm [A]; needs no norm.
            height: order within an arm [N]; must be uniform over [0, 1) within each arm.
            free: tasks that can be picked [N].
        """
        score = height - 1.0
        left = np.bincount(arm[free], minlength=len(probability))
        draws = unit(
            mix(np.arange(SLOTS * self.config.batch_size, dtype=np.uint64), self.config.seed, self.step, SLOT_KEY)
        )
        slots = draw_arms(probability, left, draws)
        if not len(slots):
            return score
        wanted = np.bincount(slots, minlength=len(probability))
        # Heights are uniform, so the highest `wanted` of an arm lie above this line but for a chance below 1e-8;
        # sorting what lies above it costs no pass over N.
        share = (wanted + 6.0 * np.sqrt(wanted) + 12.0) / np.maximum(left, 1)
        line = np.where(wanted > 0, 1.0 - share, np.inf)
        high = np.flatnonzero(free & (height >= line[arm]))
        high = high[np.lexsort((-height[high], arm[high]))]
        of = arm[high]
        place = np.arange(len(high)) - np.searchsorted(of, of)
        high, of, place = (array[place < wanted[of]] for array in (high, of, place))
        slot = np.argsort(slots, kind="stable")[(np.cumsum(wanted) - wanted)[of] + place]
        score[high] = 1.0 - slot / len(draws)
        return score

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays, no pickle."""
        self._grow()
        return {**super().state_dict(), "memory": {key: array.copy() for key, array in self.memory.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Carry on from a saved state; register the tasks first.

        Raises:
            ContractError: the state is of a newer format or of another scheduler.
        """
        if state.get("scheduler") == self.name and "memory" in state:  # else the last line says what is wrong
            self._grow()
            tasks, envs = self.catalogue.translate(state["catalogue"])
            for columns, there in ((self.TASKS, tasks), (self.ENVIRONMENTS, envs)):
                for key in columns:
                    self.memory[key][..., there[there >= 0]] = np.asarray(state["memory"][key])[..., there >= 0]
            self.memory |= {key: np.array(state["memory"][key], dtype=float) for key in self.NUMBERS}
        super().load_state_dict(state)


def draw_arms(probability: Floats, left: Indices, draws: Floats) -> Indices:
    """Arms drawn one after another with `probability` [A], from those with tasks `left` [A].

    One for each of the uniform numbers `draws` [S]; fewer when nothing is left.
    """
    left, out = left.copy(), []
    total = np.cumsum(np.where(left > 0, probability, 0.0))
    for draw in draws.tolist():
        if not len(total) or total[-1] <= 0.0:
            break
        # The guard is for a product that rounds up to the total.
        arm = min(int(np.searchsorted(total, draw * total[-1], side="right")), int(np.searchsorted(total, total[-1])))
        out.append(arm)
        left[arm] -= 1
        if not left[arm]:
            total = np.cumsum(np.where(left > 0, probability, 0.0))
    return np.array(out, dtype=np.int64)


def mean_advantage(mapped: Floats) -> float:
    """Mean absolute GRPO advantage of a group [G]: |r - mean| over the unbiased standard deviation; 0 when it is flat.

    As trainers compute it (arXiv 2402.03300), with 1e-6 added to the deviation.
    """
    if len(mapped) < 2:
        return 0.0
    return float(np.abs(mapped - mapped.mean()).mean() / (mapped.std(ddof=1) + 1e-6))
