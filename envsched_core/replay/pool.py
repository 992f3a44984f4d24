"""Pool replay: every recorded group is known beforehand, and each pick reveals one of its task's."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from envsched_core import evaluate
from envsched_core.baselines import one_ask_a_step
from envsched_core.config import PRESETS, Config, config_from
from envsched_core.errors import ConfigError, DamagedError, StoreError
from envsched_core.moments import is_flat, population_variance
from envsched_core.records import Decision, Event, GroupResult, TaskSpec
from envsched_core.scheduler import Scheduler
from envsched_core.store import Manifest, RunReader, RunWriter, new_manifest

from .journal import Journal

__all__ = [
    "Clock",
    "Progress",
    "RecordedPool",
    "ReplayResult",
    "ReplayStep",
    "Revealed",
    "batch_for",
    "config_for",
    "drive",
    "is_mixed",
    "load_pool",
    "manifest_of",
    "mapped_variance",
    "no_clock",
    "preset_of",
    "replay_pool",
]

Clock = Callable[[], float]
"""Seconds from some fixed moment."""
Progress = Callable[[int, int], None]
"""Called with (done, total)."""

MAX_STEP = 2**53
"""From here on whole numbers do not fit the floats that ages are computed in."""


def no_clock() -> float:
    """A clock that stands still: all seconds come out as 0."""
    return 0.0


class RecordedPool(NamedTuple):
    """What a run recorded: its tasks and all their groups, in log order."""

    path: Path
    manifest: Manifest
    tasks: tuple[TaskSpec, ...]
    groups: tuple[GroupResult, ...]

    def queues(self) -> dict[str, deque[GroupResult]]:
        """Task key -> its groups in log order; every task is there."""
        queues: dict[str, deque[GroupResult]] = {task.key: deque() for task in self.tasks}
        for group in self.groups:
            queues[group.key].append(group)
        return queues

    def drawable(self) -> list[TaskSpec]:
        """The tasks, each with as many draws as it has groups."""
        counts = Counter(group.key for group in self.groups)
        return [msgspec.structs.replace(task, draws=counts[task.key]) for task in self.tasks]


def load_pool(source: Path) -> RecordedPool:
    """Read the tasks and groups of a run folder.

    Raises:
        StoreError: it is no run folder, or holds no groups. DamagedError: a step in it is out of range.
    """
    reader = RunReader(source)
    tasks = {task.key: task for task in reader.tasks()}
    groups = []
    for event, segment, line, _ in reader.events():
        if event.kind == "observed":
            check_steps(event, f"{source}: {segment}:{line}")
            groups.append(event.data)
    known = tuple(group for group in groups if group.key in tasks)
    if not known:
        raise StoreError(f"{source} holds no observed group to replay; import a log with rewards first")
    return RecordedPool(source, reader.manifest, tuple(tasks.values()), known)


def check_steps(event: Event, place: str) -> None:
    """Refuse an event whose step no count can be.

    Raises:
        DamagedError: with the place.
    """
    for step in (event.step, getattr(event.data, "step", None)):
        if step is not None and abs(step) >= MAX_STEP:
            raise DamagedError(f"{place}: its step is out of range (they lie below 2**53); import the log again")


def config_for(pool: RecordedPool, settings: Mapping[str, Any], *, preset: str = "replay") -> Config:
    """The preset, then what the log says, then `settings`.

    The log says reward ranges, its usual group size, and whether it has so few environments that the preset's quota
    would leave no choice between them: then twice an even share is allowed.

    Raises:
        ConfigError: no such preset, or a setting is unknown or out of range.
    """
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset '{preset}'; there are {', '.join(PRESETS)}")
    sizes = Counter(len(group.rewards) + group.missing for group in pool.groups)
    usual = max(sizes, key=lambda size: (sizes[size], size))
    ranges = {env: _range(pool.manifest, pair) for env, pair in pool.manifest.reward_ranges.items()}
    fair = min(1.0, 2.0 / len({task.env for task in pool.tasks}))
    chosen = config_from(PRESETS[preset])
    said = {"group_size": max(usual, 1), "reward_ranges": ranges, "max_share": max(chosen.max_share, fair)}
    return config_from({**said, **settings}, chosen)


def batch_for(pool: RecordedPool) -> int:
    """Picks a step that leave a replay of this pool some steps to learn in: an eighth of its tasks, at most 64."""
    return min(64, max(1, len({group.key for group in pool.groups}) // 8))


def _range(manifest: Manifest, pair: tuple[float, float]) -> tuple[float, float]:
    """A declared range as it is; an observed one holds at least [0, 1]."""
    low, high = pair
    return (min(low, 0.0), max(high, 1.0)) if manifest.ranges_observed or high <= low else (low, high)


def preset_of(config: Config) -> str:
    """The name of the preset that a config follows, else ``custom``; its quota may be the log's (`config_for`)."""
    keys = {key for preset in PRESETS.values() for key in preset} - {"max_share"}
    for name, values in PRESETS.items():
        whole = config_from(values)
        if all(getattr(config, key) == getattr(whole, key) for key in keys):
            return name
    return "custom"


class Revealed(NamedTuple):
    """One step of a replay."""

    decision: Decision
    results: tuple[GroupResult, ...]
    seconds: float
    """Time the scheduler took to decide and to take in the results."""


def drive(pool: RecordedPool, journal: Journal, *, steps: int, clock: Clock = no_clock) -> Iterator[Revealed]:
    """Replay step by step; ends early when nothing can be picked any more, which is no step and not on record."""
    queues = pool.queues()
    journal.register(pool.drawable())
    for step in range(steps):
        start = clock()
        decision = journal.ask(journal.scheduler.config.batch_size, step, empty=False)
        if not decision.picks:
            return
        results = tuple(
            msgspec.structs.replace(queues[pick.key].popleft(), step=step, pick_id=pick.pick_id)
            for pick in decision.picks
        )
        journal.observe(results, step)
        yield Revealed(decision, results, clock() - start)


class ReplayStep(msgspec.Struct, frozen=True):
    """What one step of a pool replay came to."""

    step: int
    picks: int
    informative_share: float
    """Share of its groups with mixed rewards."""
    mean_variance: float | None
    """Mean reward variance of its groups with two or more rewards, rewards mapped to [0, 1]; None without any."""
    environments_covered: int
    """Environments picked from so far."""
    tasks_covered: int
    """Tasks picked so far."""
    rollouts_generated: int
    seconds: float


class ReplayResult(msgspec.Struct, frozen=True):
    """What a pool replay came to: exact on the log, silent on how the choice would have changed the policy."""

    scheduler: str
    preset: str
    steps: int
    """Steps that gave a batch."""
    batch_size: int
    picks: int
    informative_share: float | None
    """Share of picked groups with mixed rewards; None when nothing was picked."""
    mean_variance: float | None
    environments_covered: int
    environments: int
    tasks_covered: int
    tasks: int
    rollouts_generated: int
    """Rollouts in all picked groups: nothing else was rolled out."""
    seconds: float
    """Time spent in the scheduler."""
    exhausted: bool
    """Whether it ended early because no recorded group was left."""
    seed: int
    per_step: tuple[ReplayStep, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know about the log."""


def is_mixed(group: GroupResult, config: Config) -> bool:
    """Whether a group teaches something: its rewards differ by more than the config's thresholds."""
    return not is_flat(group.rewards, config.min_std, config.min_range)


def mapped_variance(group: GroupResult, config: Config) -> float | None:
    """Population variance of a group's rewards mapped to [0, 1]; None for fewer than two rewards."""
    if len(group.rewards) < 2:
        return None
    low, high = config.reward_ranges.get(group.env, (0.0, 1.0))
    return population_variance(group.rewards) / (high - low) ** 2


def replay_pool(
    source: Path | RecordedPool,
    out: Path | None = None,
    *,
    scheduler: str = "envsched",
    config: Config | None = None,
    steps: int = 20,
    keep_rollouts: bool = True,
    progress: Progress | None = None,
    clock: Clock = no_clock,
) -> ReplayResult:
    """Replay a run's recorded groups under a scheduler; with `out`, everything goes to a run folder there.

    `keep_rollouts`: share the source's rollouts (a hard link where the file system has them).

    Raises:
        StoreError: `source` holds no groups, or `out` is not empty. ConfigError: no such scheduler.
    """
    pool = source if isinstance(source, RecordedPool) else load_pool(source)
    config = config or config_for(pool, {"batch_size": batch_for(pool)})
    chosen, tally = one_ask_a_step(scheduler, config), _Tally(pool, config)
    if out is None:
        return tally.replay(Journal(chosen), steps, progress, clock)
    with RunWriter.create(out, manifest_of(out, "replay", pool, chosen)) as writer:
        if keep_rollouts:
            writer.link_rollouts(pool.path)
        return tally.replay(Journal(chosen, writer), steps, progress, clock)


def manifest_of(out: Path, kind: Literal["replay", "audit"], pool: RecordedPool, scheduler: Scheduler) -> Manifest:
    """The manifest of a run made from `pool`; its source's path is relative, so that both can move together."""
    source, config = pool.manifest, scheduler.config
    return new_manifest(
        out.resolve().name,
        kind,
        scheduler=scheduler.name,
        config=msgspec.to_builtins(config),
        seed=config.seed,
        batch_size=config.batch_size,
        source={"run_id": source.run_id, "digest": source.digest, "path": os.path.relpath(pool.path, out)},
        reward_ranges=config.reward_ranges,
        ranges_observed=source.ranges_observed,
        simulated=source.simulated,
        notes=source.notes,
    )


class _Tally:
    """Adds up a replay."""

    def __init__(self, pool: RecordedPool, config: Config) -> None:
        """`config` is as the user gave it; a baseline may change it for itself."""
        self.pool, self.config = pool, config
        self.steps: list[ReplayStep] = []
        self.mixed: list[bool] = []
        self.variances: list[float] = []
        self.tasks: set[str] = set()
        self.environments: set[str] = set()

    def replay(self, journal: Journal, steps: int, progress: Progress | None, clock: Clock) -> ReplayResult:
        """Drive the scheduler and add up."""
        for revealed in drive(self.pool, journal, steps=steps, clock=clock):
            self.add(revealed)
            if progress:
                progress(len(self.steps), steps)
        return self.result(journal.scheduler, asked=steps)

    def add(self, revealed: Revealed) -> None:
        """Take in one step."""
        config, results = self.config, revealed.results
        mixed = [is_mixed(group, config) for group in results]
        variances = [v for group in results if (v := mapped_variance(group, config)) is not None]
        self.mixed += mixed
        self.variances += variances
        self.tasks |= {group.key for group in results}
        self.environments |= {group.env for group in results}
        self.steps.append(
            ReplayStep(
                step=revealed.decision.step,
                picks=len(results),
                informative_share=evaluate.informative_share(mixed),
                mean_variance=evaluate.mean(variances) if variances else None,
                environments_covered=len(self.environments),
                tasks_covered=len(self.tasks),
                rollouts_generated=sum(len(group.rewards) + group.missing for group in results),
                seconds=revealed.seconds,
            )
        )

    def result(self, scheduler: Scheduler, *, asked: int) -> ReplayResult:
        """The whole, `asked` being the steps wanted."""
        config = self.config
        return ReplayResult(
            scheduler=scheduler.name,
            preset=preset_of(config),
            steps=len(self.steps),
            batch_size=config.batch_size,
            picks=len(self.mixed),
            informative_share=evaluate.informative_share(self.mixed) if self.mixed else None,
            mean_variance=evaluate.mean(self.variances) if self.variances else None,
            environments_covered=len(self.environments),
            environments=len({task.env for task in self.pool.tasks}),
            tasks_covered=len(self.tasks),
            tasks=len(self.pool.tasks),
            rollouts_generated=sum(step.rollouts_generated for step in self.steps),
            seconds=sum(step.seconds for step in self.steps),
            exhausted=len(self.steps) < asked or len(self.mixed) >= len(self.pool.groups),
            seed=config.seed,
            per_step=tuple(self.steps),
            notes=self.pool.manifest.notes,
        )
