"""bench pool: every scheduler picks from the same recorded runs, with the same seeds.

Exact on the log: a pick reveals a group that was really rolled out, and a group is informative when its rewards
differ. It says nothing about how the choice would have changed the policy. Every interval is 95 %: runs are drawn
anew, then seeds and tasks within each (evaluate.over_runs), so that a log replayed again and again says no more than
it holds; differences are taken within (run, seed, tasks drawn). A replay takes at most half of a run's groups:
beyond that every scheduler is driven to what the others left over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from envsched_core.baselines import REFERENCES, expand, make_scheduler
from envsched_core.config import Config
from envsched_core.errors import ConfigError
from envsched_core.evaluate import Interval
from envsched_core.explanation import several
from envsched_core.replay import RecordedPool, config_for

from .dots import dots_svg
from .parallel import Progress, run_all
from .pool_scores import BAYES, UNIFORM, PoolScore, RunDraws, score, step_rows
from .recorded import Job, pool_of, usable
from .reveal import Drawn, draw, scheduler_for
from .rows import rows_of, write_csv

__all__ = ["PoolPlan", "PoolReport", "PoolRun", "run_pool", "write_pool"]

CAVEAT = "exact on the log; it says nothing about how the choice would have changed the policy"
PLACEBOS = ("envsched-shuffled-", "envsched-no-")
FEW_RUNS = 5


class PoolPlan(msgspec.Struct, frozen=True):
    """What is compared, and on what."""

    runs: tuple[Path, ...]
    schedulers: tuple[str, ...]
    steps: int = 20
    batch_size: int = 64
    """Picks a step; a pool with fewer than eight times as many tasks takes an eighth of its tasks."""
    seeds: int = 5
    preset: str = "replay"
    settings: dict[str, Any] = {}
    """Further knobs, for all schedulers."""

    def checked(self) -> PoolPlan:
        """The plan with both baselines in it and nothing twice; the references are always run and no part of it.

        Raises:
            ConfigError: a scheduler is unknown, or there is nothing to run.
        """
        if not self.runs or min(self.steps, self.batch_size, self.seeds) < 1:
            raise ConfigError("nothing to run: give at least one run, one step, one pick a step and one seed")
        names = expand(",".join((*self.schedulers, UNIFORM, BAYES)))
        names = tuple(name for name in names if name not in REFERENCES)
        return msgspec.structs.replace(self, schedulers=names, runs=tuple(dict.fromkeys(self.runs)))


class PoolRun(msgspec.Struct, frozen=True):
    """One run, and every scheduler on it."""

    groups: int
    """Those with two or more rewards; nothing else is drawn."""
    tasks: int
    """Tasks with such a group."""
    environments: int
    batch_size: int
    steps: int
    schedulers: dict[str, PoolScore]
    """The references among them."""
    notes: tuple[str, ...]


class PoolReport(msgspec.Struct, frozen=True):
    """All schedulers, mean over runs; and each run by itself."""

    schedulers: dict[str, PoolScore]
    oracle: PoolScore
    """Draws in proportion to what the log knows."""
    oracle_top: PoolScore
    """Takes the most informative under the quota: the limit."""
    runs: int
    """Runs that were compared."""
    steps: int
    """Steps asked for; a small run has fewer."""
    batch_size: int
    seeds: int
    preset: str
    settings: dict[str, Any]
    per_run: dict[str, PoolRun]
    left_out: dict[str, str]
    """Runs that could not be compared, and why."""
    notes: tuple[str, ...]


def _config(plan: PoolPlan, pool: RecordedPool, seed: int = 0) -> Config:
    """What the log says and the plan wants; the batch is an eighth of a small pool's tasks."""
    batch = min(plan.batch_size, max(1, len({group.key for group in pool.groups}) // 8))
    return config_for(pool, {**plan.settings, "batch_size": batch, "seed": seed}, preset=plan.preset)


def _steps(plan: PoolPlan, pool: RecordedPool, config: Config) -> int:
    return max(1, min(plan.steps, len(pool.groups) // (2 * config.batch_size)))


def _replay(plan: PoolPlan, job: Job) -> Drawn:
    """One replay; what a process does."""
    pool = pool_of(job.run)
    config = _config(plan, pool, job.seed)
    return draw(pool, scheduler_for(job.scheduler, config, pool), steps=_steps(plan, pool, config))


def run_pool(
    plan: PoolPlan, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[PoolReport, dict[str, RunDraws]]:
    """Replay everything, `workers` processes at a time (None = one a core), and score it.

    Raises:
        ConfigError: a scheduler, preset or knob is unknown, or no run can be compared. StoreError: one holds no groups.
    """
    plan = plan.checked()
    runs, pools, left_out = usable(plan.runs)
    configs = {run: _config(plan, pools[run]) for run in runs.values()}  # what is wrong is told before any replay
    names = (*plan.schedulers, *REFERENCES)
    jobs = [Job(run, name, seed) for run in runs.values() for name in names for seed in range(plan.seeds)]
    drawn = dict(zip(jobs, run_all(partial(_replay, plan), jobs, workers=workers, progress=progress), strict=True))
    found = {}
    for name, run in runs.items():
        replays = {who: [drawn[Job(run, who, seed)] for seed in range(plan.seeds)] for who in names}
        found[name] = RunDraws(pools[run], configs[run], _steps(plan, pools[run], configs[run]), replays)
    return _report(plan, found, left_out), found


def _report(plan: PoolPlan, found: Mapping[str, RunDraws], left_out: dict[str, str]) -> PoolReport:
    scores = score(list(found.values()))
    per_run = {name: _run(plan, run) for name, run in found.items()}
    return PoolReport(
        schedulers={name: scores[name] for name in plan.schedulers},
        oracle=scores["oracle"],
        oracle_top=scores["oracle-top"],
        runs=len(found),
        steps=plan.steps,
        batch_size=plan.batch_size,
        seeds=plan.seeds,
        preset=plan.preset,
        settings=plan.settings,
        per_run=per_run,
        left_out=left_out,
        notes=tuple(_notes(plan, scores, per_run, left_out)),
    )


def _run(plan: PoolPlan, run: RunDraws) -> PoolRun:
    """One run's row."""
    pool, notes = run.pool, list(run.pool.manifest.notes)
    tasks = {group.key for group in pool.groups}
    if run.config.batch_size < plan.batch_size:
        notes.insert(0, f"{run.config.batch_size} picks a step: an eighth of its {len(tasks)} tasks")
    if run.steps < plan.steps:
        notes.insert(0, f"{run.steps} steps: they take half of its {len(pool.groups)} groups")
    if len(tasks) == len(pool.groups):
        notes.append("every task has one group: its own history could not help, only that of other tasks")
    return PoolRun(
        groups=len(pool.groups),
        tasks=len(tasks),
        environments=len({group.env for group in pool.groups}),
        batch_size=run.config.batch_size,
        steps=run.steps,
        schedulers=score([run]),
        notes=tuple(notes),
    )


def _notes(
    plan: PoolPlan, scores: Mapping[str, PoolScore], per_run: Mapping[str, PoolRun], left_out: Mapping[str, str]
) -> list[str]:
    """What the numbers do not say, and where EnvSched is not ahead."""
    notes = [CAVEAT]
    if len(per_run) == 1:
        notes.append("one run: the intervals are over its tasks and seeds, and say nothing of other logs")
    elif len(per_run) < FEW_RUNS:
        notes.append(f"{len(per_run)} runs: too few for an interval over runs to say much of other logs")
    if plan.seeds < FEW_RUNS:
        notes.append(f"{several(plan.seeds, 'seed')}: an interval over so few is too narrow")
    notes += [f"{name} is left out: {reason}" for name, reason in left_out.items()]
    if fills := [name for name in plan.schedulers if make_scheduler(name).fills_batch]:
        notes.append(f"{', '.join(fills)}: filled before it trains; all groups it generated count, as many as others'")
    notes += [text for name in plan.schedulers if name.startswith(PLACEBOS) and (text := _placebo(name, scores[name]))]
    for name in plan.schedulers:
        ahead = [run for run, row in per_run.items() if _behind(row.schedulers[name])]
        if ahead:
            notes.append(f"{name} is ahead of envsched on {', '.join(ahead)} (paired interval off 0)")
    return notes


def _placebo(name: str, found: PoolScore) -> str:
    """A placebo that does as well, told plainly; empty when EnvSched is surely better."""
    if found.envsched_minus is None or found.envsched_minus[1] > 0:
        return ""
    told = "envsched minus it {:+.3f} [{:+.3f}, {:+.3f}]".format(*found.envsched_minus)
    return f"{name} does as well as envsched ({told}): what it takes away or shuffles is not shown to help here"


def _behind(found: PoolScore) -> bool:
    return found.envsched_minus is not None and not math.isnan(found.envsched_minus[2]) and found.envsched_minus[2] < 0


def write_pool(report: PoolReport, found: Mapping[str, RunDraws], folder: Path) -> None:
    """pool.json, schedulers.csv (a row a scheduler), runs.csv (and run), steps.csv (and seed and step), shares.svg."""
    (folder / "pool.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    whole = {**report.schedulers, "oracle": report.oracle, "oracle-top": report.oracle_top}
    rows = [((run, name), one) for run, found_in in report.per_run.items() for name, one in found_in.schedulers.items()]
    write_csv(folder / "schedulers.csv", rows_of(["scheduler"], [([name], one) for name, one in whole.items()]))
    write_csv(folder / "runs.csv", rows_of(["run", "scheduler"], rows))
    write_csv(folder / "steps.csv", step_rows(found))
    dots = {name: Interval(one.informative_share, *one.ci) for name, one in whole.items()}
    title = f"Informative share of drawn groups, mean over {report.runs} runs x {report.seeds} seeds, 95 % intervals"
    svg = dots_svg(dots, title=title, x_label="informative share", marked=UNIFORM)
    (folder / "shares.svg").write_text(svg, encoding="utf-8")
