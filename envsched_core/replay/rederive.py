"""Applies the calls of a recorded run to a fresh scheduler: live and replayed runs share one code path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config, config_from
from envsched_core.errors import UnknownTaskError
from envsched_core.explanation import explanation
from envsched_core.records import OUTCOME_CODES, Decision, Event, Explanation, TaskSpec
from envsched_core.scheduler import EnvSched, Scheduler
from envsched_core.store import RunReader

from .pool import RecordedPool, check_steps, config_for, load_pool

__all__ = ["Calls", "Weight", "config_of", "explain_run", "next_batch", "sampling_weights"]

NOT_PICKABLE = ("in_flight", "cooling_down", "unavailable")


class Calls:
    """The calls of a run, event by event, on a scheduler of the same name and config."""

    def __init__(self, reader: RunReader) -> None:
        """The scheduler is fresh."""
        self.scheduler: EnvSched = make_scheduler(reader.manifest.scheduler, config_from(reader.manifest.config))
        self._tasks: list[TaskSpec] = reader.tasks()

    def load(self, state: Mapping[str, Any], tasks: int) -> None:
        """Take over a snapshot, made when the first `tasks` lines of the catalogue were registered."""
        self.scheduler.register(self._tasks[:tasks])
        self.scheduler.load_state_dict(state)

    def apply(self, event: Event) -> Decision | None:
        """Repeat one call; the decision when it was an `ask`.

        Raises:
            DamagedError: its step is out of range.
        """
        check_steps(event, f"event {event.seq}")
        if event.kind == "registered":
            total, count = event.data["total"], event.data["count"]
            self.scheduler.register(self._tasks[total - count : total])
        elif event.kind == "observed":
            self.scheduler.observe([event.data])
        elif event.kind == "released":
            self.scheduler.release(event.data["pick_ids"], event.data["reason"])
        elif event.kind == "asked":
            asked: Decision = event.data
            return self.scheduler.ask(asked.asked, step=asked.step, policy_version=asked.policy_version)
        return None


def explain_run(run: Path, step: int, task: str | None = None) -> list[Explanation]:
    """Why, or why not, at any step of a run: of one task ``ENV::TASK``, or of every pick when None.

    Answers from the record where the candidate is on it, else computes the step again from the events.

    Raises:
        UnknownTaskError: the run has no such step or task.
    """
    reader = RunReader(run)
    decisions = [event.data for event in _asked(reader) if event.step == step]
    if not decisions:
        raise UnknownTaskError(f"{run}: {_steps_known(reader, step)}")
    candidates = [(c, d) for d in decisions for c in d.candidates]
    if task is None:
        return [explanation(c, d, "recorded") for c, d in candidates if c.kept_as == "pick"]
    # The latest word on a task counts, but a pick stays a pick in the later calls of its step.
    on_record = [(c, d) for c, d in candidates if c.key == task and (c.kept_as == "pick" or d is decisions[-1])]
    if on_record:
        return [explanation(*on_record[0], "recorded")]
    return [_rederived(reader, step, task)]


def _rederived(reader: RunReader, step: int, task: str) -> Explanation:
    calls = Calls(reader)
    for event, *_ in reader.events():
        if event.kind == "asked" and event.data.step > step:
            break
        calls.apply(event)
    return msgspec.structs.replace(calls.scheduler.explain(step, task), source="re-derived")


class Weight(msgspec.Struct, frozen=True):
    """How often a task should be sampled by a trainer that reads weights."""

    env: str
    task: str
    weight: float
    """In [0, 1]; sums to 1 over all tasks."""


def config_of(pool: RecordedPool, settings: Mapping[str, Any]) -> Config:
    """The run's own config, or for an import the `training` preset with what the log says; `settings` over it.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    recorded = pool.manifest.config
    return config_from(settings, config_from(recorded)) if recorded else config_for(pool, settings, preset="training")


def next_batch(
    source: Path | RecordedPool, n: int, config: Config | None = None, *, scheduler: str | None = None
) -> tuple[Decision, Scheduler]:
    """The next `n` tasks to roll out, given everything that a run observed; and the scheduler that chose them.

    Recorded tasks can be rolled out again, so they have no limit here. Scheduler and config are the run's own
    (`config_of`) unless given.

    Raises:
        StoreError: the run holds no groups. ConfigError: no such scheduler.
    """
    pool = source if isinstance(source, RecordedPool) else load_pool(source)
    config = msgspec.structs.replace(config or config_of(pool, {}), batch_size=n)
    chosen = make_scheduler(scheduler or pool.manifest.scheduler or "envsched", config)
    chosen.register([msgspec.structs.replace(task, draws=None) for task in pool.tasks])
    # Recorded picks belong to another ledger; groups without a step count as of step 0.
    chosen.observe(msgspec.structs.replace(group, step=group.step or 0, pick_id=None) for group in pool.groups)
    return chosen.ask(n, step=1 + max(group.step or 0 for group in pool.groups)), chosen


def sampling_weights(scheduler: Scheduler, tasks: Sequence[TaskSpec]) -> list[Weight]:
    """Weights in proportion to the scores of the latest step; tasks that could not be picked get 0.

    `tasks` are those registered, in order.
    """
    scores = scheduler.scores()
    if scores is None:
        return []
    open_to_picks = ~np.isin(scores.outcome, [OUTCOME_CODES.index(code) for code in NOT_PICKABLE])
    value = np.where(open_to_picks, np.maximum(scores.score.astype(float), 0.0), 0.0)
    if not value.any():
        value = open_to_picks.astype(float)
    total = float(value.sum()) or 1.0
    return [Weight(task.env, task.task, float(v) / total) for task, v in zip(tasks, value, strict=True)]


def _asked(reader: RunReader) -> Iterator[Event]:
    return (event for event, *_ in reader.events() if event.kind == "asked")


def _steps_known(reader: RunReader, step: int) -> str:
    steps = sorted({event.data.step for event in _asked(reader)})
    if not steps:
        return "nothing was asked in this run; `envsched replay` makes one with decisions"
    return f"step {step} was not asked for; its steps go from {steps[0]} to {steps[-1]}"
