"""bench learn: does a policy learn faster on what a scheduler picks? The closed loop, measured.

Every scheduler trains the same base policy in the same worlds on the same random streams: a pair is (world seed,
run seed), and differences are taken within pairs (curves.py). All generate the same number of rollouts; tool
calls, the cost, are told beside. `oracle` knows p(1 - p) of the current policy by rollouts that nobody is charged
for: a strong reference, not a proven limit. Several worlds give a table each and their mean (overall.py). A claim from
here transfers in direction at most: a small live GRPO learner, not the training of a language model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from envsched_core.baselines import REFERENCES, expand, make_scheduler
from envsched_core.config import Config, config_from
from envsched_core.errors import ConfigError
from envsched_core.explanation import several
from envsched_core.scheduler import EnvSched
from envsched_core.testbed import EVALUATED, AnyLearner, Curve, Learner, World, make_learner, make_oracle, make_world
from envsched_core.testbed import train as train_once
from envsched_core.testbed.specs import world_spec

from .curves import BASELINE, DAPO, OURS, OURS_FILLED, Run, Runs, Score, chart, curve_rows, score, score_rows
from .overall import Overall, overall, overall_rows
from .parallel import Progress, checked_folder, run_all
from .rows import write_csv

__all__ = [
    "DEFAULT",
    "LearnPlan",
    "LearnReport",
    "WorldsReport",
    "based",
    "checked_folder",
    "run_learn",
    "run_one",
    "run_worlds",
    "write_report",
]

DEFAULT = ("uniform", "round-robin", "empirical-bayes", "mopps", "envsched", "oracle", "oracle-top")
CAVEAT = "a small live GRPO learner, not the training of a language model: transfers in direction at most"


class LearnPlan(msgspec.Struct, frozen=True):
    """What is compared, and on what."""

    world: str = "M"
    world_seeds: tuple[int, ...] = (1, 2, 3)
    """0 is for development only."""
    schedulers: tuple[str, ...] = DEFAULT
    """Names, or groups of them (baselines.GROUPS)."""
    seeds: int = 8
    """Runs of each scheduler in each world."""
    steps: int = 120
    """Steps of `batch_size` x `group_size` generated rollouts."""
    batch_size: int = 32
    group_size: int = 8
    settings: dict[str, Any] = {}
    """Further knobs, for all schedulers."""

    def checked(self) -> LearnPlan:
        """The plan with the baseline in it and nothing twice; groups of schedulers leave out what a world has not.

        Raises:
            ConfigError: a scheduler, world or knob is unknown, or there is nothing to run.
        """
        names = dict.fromkeys((BASELINE, *expand(",".join(self.schedulers))))
        if not self.world_seeds or min(self.seeds, self.steps) < 1:
            raise ConfigError("nothing to run: give at least one world seed, one seed and one step")
        config_from(self.settings)
        if self.world == "bfcl":
            if asked := [name for name in self.schedulers if name in REFERENCES and self.schedulers != DEFAULT]:
                raise ConfigError(f"world bfcl has no oracle; leave {asked[0]} out with --schedulers")
            names = {name: None for name in names if name not in REFERENCES}
        else:
            world_spec(self.world)
        worlds = dict.fromkeys(self.world_seeds)
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

    def config(self, seed: int) -> Config:
        """The config of one run's scheduler."""
        own = {"batch_size": self.batch_size, "group_size": self.group_size, "seed": seed}
        return config_from({**self.settings, **own})


class LearnReport(msgspec.Struct, frozen=True):
    """All schedulers on the same pairs of one world."""

    world: str
    world_seeds: tuple[int, ...]
    seeds: int
    steps: int
    batch_size: int
    group_size: int
    settings: dict[str, Any]
    schedulers: dict[str, Score]
    notes: tuple[str, ...]


class WorldsReport(msgspec.Struct, frozen=True):
    """Several worlds, and the mean over them."""

    worlds: dict[str, LearnReport]
    overall: dict[str, Overall]
    notes: tuple[str, ...]


class _Job(msgspec.Struct, frozen=True):
    """One run of one plan, to be sent to a process."""

    plan: LearnPlan
    run: Run


Curves = dict[Run, Curve]


def based(worlds: Sequence[str], base_steps: Sequence[int]) -> tuple[str, ...]:
    """Each world at each base strength, as a variant (M-base10); the worlds as they are where none is given."""
    return tuple(f"{world}-base{n}" for world in worlds for n in base_steps) if base_steps else tuple(worlds)


@lru_cache(maxsize=2)
def _world(name: str, seed: int) -> World:
    return make_world(name, seed)


def run_one(plan: LearnPlan, run: Run) -> Curve:
    """Train once."""
    learner = _learner(plan, run)
    scheduler = _scheduler(plan, run, learner)
    return train_once(learner, scheduler, steps=plan.steps, batch_size=plan.batch_size, evaluated=plan.evaluated())


def _run_job(job: _Job) -> Curve:
    return run_one(job.plan, job.run)


def _learner(plan: LearnPlan, run: Run) -> AnyLearner:
    """A fresh learner; a ToolWorld is drawn once a process."""
    if plan.world == "bfcl":
        seeds = {"world_seed": run.world_seed, "run_seed": run.seed}
        return make_learner(plan.world, group_size=plan.group_size, **seeds)
    return Learner(_world(plan.world, run.world_seed), run_seed=run.seed, group_size=plan.group_size)


def _scheduler(plan: LearnPlan, run: Run, learner: AnyLearner) -> EnvSched:
    if run.scheduler in REFERENCES and isinstance(learner, Learner):
        return make_oracle(run.scheduler, plan.config(run.seed), learner)
    return make_scheduler(run.scheduler, plan.config(run.seed))


def run_learn(
    plan: LearnPlan, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[LearnReport, Curves]:
    """Run one world, `workers` processes at a time (None = one a core), and score it.

    Raises:
        ConfigError: a scheduler, world or knob is unknown, or there is nothing to run.
    """
    report, curves = run_worlds(plan, (plan.world,), workers=workers, progress=progress)
    return report.worlds[plan.world], curves[plan.world]


def run_worlds(
    plan: LearnPlan, worlds: Sequence[str], *, workers: int | None = None, progress: Progress | None = None
) -> tuple[WorldsReport, dict[str, Curves]]:
    """The plan in each of several worlds.

    Raises:
        ConfigError: a scheduler, world or knob is unknown, or there is nothing to run.
    """
    plans = {world: msgspec.structs.replace(plan, world=world).checked() for world in worlds}
    if not plans:
        raise ConfigError("nothing to run: give at least one world")
    jobs = [_Job(one, run) for one in plans.values() for run in one.runs()]
    first = jobs[0]
    learner = _learner(first.plan, first.run)  # compiles before there are processes that would each do so
    for name in first.plan.schedulers:  # what is wrong is told before any run
        _scheduler(first.plan, first.run._replace(scheduler=name), learner)
    curves: dict[str, Curves] = {world: {} for world in plans}
    for job, curve in zip(jobs, run_all(_run_job, jobs, workers=workers, progress=progress), strict=True):
        curves[job.plan.world][job.run] = curve
    reports = {world: _report(one, curves[world]) for world, one in plans.items()}
    rows = overall([Runs(one) for one in curves.values()]) if len(curves) > 1 else {}
    notes = tuple(dict.fromkeys(note for report in reports.values() for note in report.notes))
    return WorldsReport(reports, rows, notes), curves


def _report(plan: LearnPlan, curves: Mapping[Run, Curve]) -> LearnReport:
    scores = score(curves)
    names = ("world", "world_seeds", "seeds", "steps", "batch_size", "group_size", "settings")
    facts = {name: getattr(plan, name) for name in names}
    return LearnReport(**facts, schedulers=scores, notes=tuple(_notes(plan, scores)))


def _notes(plan: LearnPlan, scores: Mapping[str, Score]) -> list[str]:
    """What the numbers do not say, and where EnvSched is not ahead."""
    notes = [CAVEAT]
    if len(plan.world_seeds) == 1:
        notes.append("one world: the intervals are over its seeds and say nothing of other worlds")
    if plan.seeds < 5:
        notes.append(f"{several(plan.seeds, 'seed')} a world: too few to claim a difference (5 are the least)")
    if 0 in plan.world_seeds:
        notes.append("world seed 0 is for development; report on others")
    fills = [name for name in plan.schedulers if name not in REFERENCES and make_scheduler(name).fills_batch]
    if fills:
        notes.append(f"{', '.join(fills)}: discards flat groups and fills its batch; all it generated is billed")
    added = scores[DAPO].dapo_envsched_minus if DAPO in scores else None
    if added:
        told = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*added)
        notes.append(f"{plan.world}: what scheduling adds to {DAPO}: {OURS_FILLED} minus it, by area {told}")
    if plan.world == "bfcl":
        notes.append("bfcl tells no true success rates, so it has no oracle and no head-room")
    ahead = [n for n, s in scores.items() if n not in REFERENCES and s.envsched_minus and s.envsched_minus[2] < 0]
    if ahead:
        notes.append(f"{plan.world}: ahead of {OURS} by area (paired interval off 0): {', '.join(ahead)}")
    return notes


def write_report(report: WorldsReport, curves: Mapping[str, Curves], folder: Path) -> None:
    """learn.json, schedulers.csv (a row a scheduler), curves.csv (a row a measurement), a chart a world.

    With several worlds also overall.csv, a row a scheduler.
    """
    single = len(report.worlds) == 1
    whole = next(iter(report.worlds.values())) if single else report
    (folder / "learn.json").write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
    scored, measured = [], []
    for k, (world, one) in enumerate(report.worlds.items()):
        title = (
            f"ToolWorld {world}: held-out success by step, mean over {len(one.world_seeds)} worlds x "
            f"{one.seeds} seeds, 95 % intervals"
        )
        name = "curves.svg" if single else f"curves-{world}.svg"
        (folder / name).write_text(chart(one.schedulers, title), encoding="utf-8")
        scored += [row for i, row in enumerate(score_rows(world, one.schedulers)) if i or not k]  # one head
        measured += [row for i, row in enumerate(curve_rows(world, curves[world])) if i or not k]
    write_csv(folder / "schedulers.csv", scored)
    write_csv(folder / "curves.csv", measured)
    if not single:
        write_csv(folder / "overall.csv", overall_rows(report.overall))
