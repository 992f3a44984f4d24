"""What a trainer, a replay or a benchmark may rely on: the contract, and nothing of how it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from envsched_core.config import Config
from envsched_core.graph import DualRelationGraph
from envsched_core.moments import Floats
from envsched_core.problem import Cells, Terms, added, terms_at
from envsched_core.recording import StepScores
from envsched_core.records import Decision, Explanation, GroupResult, TaskSpec

__all__ = ["Scheduler", "Worth"]


class Scheduler(Protocol):
    """What a trainer, a replay or a benchmark may rely on."""

    name: str
    config: Config

    @property
    def graph(self) -> DualRelationGraph | None:
        """The graph in use, if the scheduler has one."""

    def register(self, tasks: Sequence[TaskSpec]) -> None:
        """Make tasks known; a known key is described anew."""

    def ask(self, n: int, *, step: int, policy_version: str | None = None) -> Decision:
        """Choose `n` tasks for `step`, which never goes back."""

    def observe(self, results: Iterable[GroupResult]) -> None:
        """Take in groups of rollouts, asked for or not."""

    def release(self, pick_ids: Iterable[str], reason: str) -> None:
        """End open picks that will give no result; unknown ids are counted and passed over."""

    def explain(self, step: int, task: str) -> Explanation:
        """Why the task ``ENV::TASK`` was or was not picked at the latest step."""

    def scores(self) -> StepScores | None:
        """What every task scored at the latest step; None before the first."""

    def metrics(self) -> dict[str, float]:
        """Counters and gauges, names separated by slashes."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays from which a fresh scheduler carries on identically."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state; register the tasks first."""


class Worth(NamedTuple):
    """What a scheduler thinks of every task at a step."""

    terms: Mapping[str, Floats] | Terms
    """Fixed signed terms [N], or what works them out for some tasks."""
    value: Floats
    """Value of a pick [N], >= 0."""
    cells: list[Cells]
    fixed: Floats | None = None
    """Sum of the terms [N]; None = add them up."""

    def settled(self) -> tuple[Terms, Floats]:
        """The terms of some tasks on demand, and their sum over all [N]."""
        if callable(self.terms):
            everyone = np.arange(len(self.value))
            return self.terms, self.fixed if self.fixed is not None else added(self.terms(everyone), len(everyone))
        return terms_at(self.terms), added(self.terms, len(self.value))
