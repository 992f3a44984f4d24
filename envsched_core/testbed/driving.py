"""One run of the closed loop: a scheduler picks through its contract alone, a learner learns, and both are measured.

Runs are compared at equal generated rollouts. The unit of a curve is a step's worth of them: B groups of G. Most
schedulers train on all they generate, so that an update is a step. One that fills its batch (`fills_batch`, DAPO's
dynamic sampling, Yu et al. 2025, arXiv 2503.14476) discards flat groups and asks again within the same step until B
mixed groups are there, `FILLING_ROUNDS` are over or the rollouts of the run are spent, and only then trains, on the
first B; whatever it generated is billed, and the policy is measured when the bill reaches a measuring point, as it
then is: rollouts that still wait for their batch have not paid yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from envsched_core.baselines import FILLING_ROUNDS
from envsched_core.records import GroupResult
from envsched_core.scheduler import Scheduler

from .loop import AnyLearner

__all__ = ["EVALUATED", "Curve", "train"]

EVALUATED = (0, 5, 10, 20, 30, 40, 60, 80, 100, 120)
"""Steps of generated rollouts after which held-out success is measured."""


class Curve(NamedTuple):
    """How one run went."""

    macro: dict[int, float]
    """Held-out success over environments by steps of generated rollouts."""
    micro: dict[int, float]
    flat: tuple[float, ...]
    """Share of zero-variance groups in each round of B generated groups."""
    tasks_seen: int
    rollouts: int
    """All that were generated."""
    tool_calls: float
    """Of all of them."""
    updates: int
    """Training steps of the policy."""
    spent: dict[int, float]
    """Tool calls of all rollouts before each measurement, by the keys of `macro`."""
    trusted_within: float = 0.0
    """Share of decisions that trusted neighbours within environments, the first, which rests on the prior, included."""
    trusted_cross: float = 0.0
    """The same across environments."""

    def area(self) -> float:
        """Mean of the macro curve over steps, by the trapezium rule."""
        return _mean_height(list(self.macro), list(self.macro.values()))

    def area_of_calls(self, calls: float) -> float:
        """Mean of the macro curve over its first `calls` tool calls, which it must have made."""
        spent, values = list(self.spent.values()), list(self.macro.values())
        inside = [k for k, made in enumerate(spent) if made < calls]
        at = float(np.interp(calls, spent, values))
        return _mean_height([*(spent[k] for k in inside), calls], [*(values[k] for k in inside), at])


def _mean_height(at: Sequence[float], values: Sequence[float]) -> float:
    """Mean of a curve of straight lines; the value itself where it has no width."""
    width = at[-1] - at[0]
    return float(np.trapezoid(values, at) / width) if width > 0 else float(values[-1])


def train(
    learner: AnyLearner,
    scheduler: Scheduler,
    *,
    steps: int = 120,
    batch_size: int = 32,
    evaluated: Collection[int] = EVALUATED,
    progress: Callable[[int], None] | None = None,
) -> Curve:
    """Register the tasks and train until `steps` x `batch_size` groups are generated.

    `evaluated`: steps of generated rollouts after which held-out success is measured. `progress`: called with the
    number of rounds generated so far.
    """
    scheduler.register(learner.specs)
    run = _Run(learner, scheduler, batch_size, progress)
    points = sorted(point for point in evaluated if point <= steps)
    if getattr(scheduler, "fills_batch", False):
        run.filled(steps, points)
    else:
        run.plain(steps, points)
    return run.curve()


class _Run:
    """A run as it goes on."""

    def __init__(
        self, learner: AnyLearner, scheduler: Scheduler, batch_size: int, progress: Callable[[int], None] | None
    ) -> None:
        self.learner, self.scheduler, self.batch_size, self.progress = learner, scheduler, batch_size, progress
        self.macro: dict[int, float] = {}
        self.micro: dict[int, float] = {}
        self.spent: dict[int, float] = {}
        self.flat: list[float] = []
        self.seen: set[str] = set()
        self.trusted: list[tuple[bool, bool]] = []
        self.groups, self.rollouts, self.updates, self.tool_calls = 0, 0, 0, 0.0

    def plain(self, steps: int, points: Sequence[int]) -> None:
        """An update a step, on all that was generated."""
        for step in range(steps):
            self.measure([point for point in points if point == step])
            self.generate(step, self.batch_size)
            self.learn(None)
        self.measure([point for point in points if point == steps])

    def filled(self, steps: int, points: Sequence[int]) -> None:
        """An update a full batch of mixed groups; `points` are in order."""
        due, step, budget = list(points), 0, steps * self.batch_size
        due = self.measure(due, self.groups)
        while self.groups < budget:
            before, kept = self.groups, list[str]()
            for k in range(FILLING_ROUNDS):
                results = self.generate(step, min(self.batch_size, budget - self.groups))
                kept += [r.group_id for r in results if max(r.rewards) > min(r.rewards)]
                if len(kept) >= self.batch_size or self.groups == budget or not results or k == FILLING_ROUNDS - 1:
                    break
                due = self.measure(due, self.groups)
            if kept:
                self.learn(set(kept[: self.batch_size]))
            due = self.measure(due, self.groups)
            if self.groups == before:  # nothing can be picked any more
                break
            step += 1
        self.measure(due)

    def generate(self, step: int, count: int) -> list[GroupResult]:
        """Ask for groups, roll them out and have them observed."""
        decision = self.scheduler.ask(count, step=step, policy_version=self.learner.policy_version)
        if decision.trust is not None:
            self.trusted.append((decision.trust.tau_within > 0, decision.trust.tau_cross > 0))
        results = self.learner.rollouts([pick.key for pick in decision.picks], step)
        self.scheduler.observe(results)
        if results:
            self.flat.append(sum(max(r.rewards) == min(r.rewards) for r in results) / len(results))
        self.groups += len(results)
        self.seen.update(result.key for result in results)
        self.rollouts += sum(len(result.rewards) for result in results)
        self.tool_calls += sum(result.cost.tool_calls or 0.0 for result in results if result.cost)
        if self.progress:
            self.progress(len(self.flat))
        return results

    def learn(self, only: Collection[str] | None) -> None:
        """One update on what was generated since the last one, or on the groups named."""
        self.learner.update(only)
        self.updates += 1

    def measure(self, points: Sequence[int], groups: int | None = None) -> list[int]:
        """Measure the points that `groups` generated groups have reached (None = all); returns the others."""
        reached = [point for point in points if groups is None or point * self.batch_size <= groups]
        if reached:
            macro, micro = self.learner.evaluate()
            self.macro |= dict.fromkeys(reached, macro)
            self.micro |= dict.fromkeys(reached, micro)
            self.spent |= dict.fromkeys(reached, self.tool_calls)
        return [point for point in points if point not in reached]

    def curve(self) -> Curve:
        """What the run came to."""
        facts = (len(self.seen), self.rollouts, self.tool_calls, self.updates, self.spent)
        within, cross = np.mean(self.trusted or [(False, False)], axis=0).tolist()
        return Curve(self.macro, self.micro, tuple(self.flat), *facts, within, cross)
