"""bench learn: does a policy learn faster on what a scheduler picks? The closed loop, measured.

Every scheduler trains the same base policy in the same worlds on the same random streams: a pair is (world seed,
run seed), and differences are taken within pairs (curves.py). All generate the same number of rollouts; tool
calls, the cost, are told beside. `oracle` knows p(1 - p) of the current policy by rollouts that nobody is charged
for: a strong reference, not a proven limit. A claim from here transfers in direction at most: a small live GRPO
learner, not the training of a language model.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from envsched_core.baselines import NAMES, make_scheduler
from envsched_core.config import config_from
from envsched_core.errors import ConfigError, StoreError
from envsched_core.scheduler import EnvSched
from envsched_core.testbed import (
    EVALUATED,
    ORACLES,
    AnyLearner,
    Curve,
    Learner,
    World,
    make_learner,
    make_oracle,
    make_world,
    train,
)

from .curves import BASELINE, Run, Score, chart, curve_rows, score, score_rows

__all__ = ["DEFAULT", "LearnPlan", "LearnReport", "checked_folder", "run_learn", "run_one", "write_report"]

DEFAULT = ("uniform", "round-robin", "empirical-bayes", "mopps", "envsched", "oracle", "oracle-top")

Progress = Callable[[int, int], None]


class LearnPlan(msgspec.Struct, frozen=True):
    """What is compared, and on what."""

    world: str = "M"
    world_seeds: tuple[int, ...] = (1, 2, 3)
    """0 is for development only."""
    schedulers: tuple[str, ...] = DEFAULT
    seeds: int = 8
    """Runs of each scheduler in each world."""
    steps: int = 120
    batch_size: int = 32
    group_size: int = 8
    settings: dict[str, Any] = {}
    """Further knobs, for all schedulers."""

    def checked(self) -> LearnPlan:
        """The plan with the baseline in it and nothing twice.

        Raises:
            ConfigError: a scheduler or knob is unknown, or there is nothing to run.
        """
        known = [*NAMES, *ORACLES]
        unknown = [name for name in self.schedulers if name not in known]
        if unknown:
            raise ConfigError(f"unknown scheduler '{unknown[0]}'; known: {', '.join(known)}")
        if not self.world_seeds or min(self.seeds, self.steps) < 1:
            raise ConfigError("nothing to run: give at least one world seed, one seed and one step")
        config_from(self.settings)
        names, worlds = dict.fromkeys((BASELINE, *self.schedulers)), dict.fromkeys(self.world_seeds)
        return msgspec.structs.replace(self, schedulers=tuple(names), world_seeds=tuple(worlds))

    def runs(self) -> list[Run]:
        """Every run, those of a world together, so that a process draws each world once."""
        return [
            Run(world_seed, seed, name)
            for world_seed in self.world_seeds
            for seed in range(self.seeds)
            for name in self.schedulers
        ]

    def evaluated(self) -> list[int]:
        """Steps after which held-out success is measured."""
        return sorted({step for step in EVALUATED if step <= self.steps} | {self.steps})


class LearnReport(msgspec.Struct, frozen=True):
    """All schedulers on the same pairs."""

    world: str
    world_seeds: tuple[int, ...]
    seeds: int
    steps: int
    batch_size: int
    group_size: int
    settings: dict[str, Any]
    schedulers: dict[str, Score]
    notes: tuple[str, ...]


@lru_cache(maxsize=2)
def _world(name: str, seed: int) -> World:
    return make_world(name, seed)


def run_one(plan: LearnPlan, run: Run) -> Curve:
    """Train once."""
    learner = _learner(plan, run)
    scheduler = _scheduler(plan, run, learner)
    return train(learner, scheduler, steps=plan.steps, batch_size=plan.batch_size, evaluated=plan.evaluated())


def _learner(plan: LearnPlan, run: Run) -> AnyLearner:
    """A fresh learner; a ToolWorld is drawn once a process."""
    if plan.world == "bfcl":
        seeds = {"world_seed": run.world_seed, "run_seed": run.seed}
        return make_learner(plan.world, group_size=plan.group_size, **seeds)
    return Learner(_world(plan.world, run.world_seed), run_seed=run.seed, group_size=plan.group_size)


def _scheduler(plan: LearnPlan, run: Run, learner: AnyLearner) -> EnvSched:
    own = {"batch_size": plan.batch_size, "group_size": plan.group_size, "seed": run.seed}
    config = config_from({**plan.settings, **own})
    if run.scheduler not in ORACLES:
        return make_scheduler(run.scheduler, config)
    if not isinstance(learner, Learner):
        raise ConfigError(f"world {plan.world} has no oracle; leave {run.scheduler} out with --schedulers")
    return make_oracle(run.scheduler, config, learner)


def run_learn(
    plan: LearnPlan, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[LearnReport, dict[Run, Curve]]:
    """Run everything, `workers` processes at a time (None = one a core), and score it.

    Raises:
        ConfigError: a scheduler, world or knob is unknown, or there is nothing to run.
    """
    plan = plan.checked()
    runs = plan.runs()
    for name in plan.schedulers:  # what is wrong is told before any run
        _scheduler(plan, Run(plan.world_seeds[0], 0, name), _learner(plan, runs[0]))
    many = min(workers or os.cpu_count() or 1, len(runs))
    curves: dict[Run, Curve] = {}
    done = _parallel(plan, runs, many) if many > 1 else ((run, run_one(plan, run)) for run in runs)
    for run, curve in done:
        curves[run] = curve
        if progress:
            progress(len(curves), len(runs))
    curves = {run: curves[run] for run in runs}  # they came in the order in which they ended
    return _report(plan, curves), curves


def _report(plan: LearnPlan, curves: Mapping[Run, Curve]) -> LearnReport:
    notes = ["a small live GRPO learner, not the training of a language model: transfers in direction at most"]
    if len(plan.world_seeds) == 1:
        notes.append("one world: the intervals are over its seeds and say nothing of other worlds")
    if plan.seeds < 5:
        notes.append(f"{plan.seeds} seeds a world: too few to claim a difference (5 are the least)")
    if 0 in plan.world_seeds:
        notes.append("world seed 0 is for development; report on others")
    names = ("world", "world_seeds", "seeds", "steps", "batch_size", "group_size", "settings")
    facts = {name: getattr(plan, name) for name in names}
    return LearnReport(**facts, schedulers=score(curves), notes=tuple(notes))


def _parallel(plan: LearnPlan, runs: Sequence[Run], workers: int) -> Iterator[tuple[Run, Curve]]:
    """Results as they come. Workers are started afresh, since a fork would carry locks and caches of this process."""
    with _one_thread_each(), ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Curve], Run] = {pool.submit(run_one, plan, run): run for run in runs}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes share the cores already; each keeps to one thread of linear algebra."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before


def checked_folder(folder: Path) -> Path:
    """A folder for the report, empty or new; told before the runs, not after.

    Raises:
        StoreError: it holds something, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = next(folder.iterdir(), None)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}; choose another folder") from error
    if used is not None:
        raise StoreError(f"{folder} is not empty; remove it or choose another folder")
    return folder


def write_report(report: LearnReport, curves: Mapping[Run, Curve], folder: Path) -> None:
    """learn.json, schedulers.csv (a row a scheduler), curves.csv (a row a measurement), curves.svg."""
    (folder / "learn.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    title = (
        f"ToolWorld {report.world}: held-out success by step, mean over {len(report.world_seeds)} worlds x "
        f"{report.seeds} seeds, 95 % intervals"
    )
    (folder / "curves.svg").write_text(chart(report.schedulers, title), encoding="utf-8")
    for name, rows in (("schedulers.csv", score_rows(report.schedulers)), ("curves.csv", curve_rows(curves))):
        (folder / name).write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
