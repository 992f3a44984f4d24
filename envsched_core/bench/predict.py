"""bench predict: what was predicted of each group before it was seen, against what came.

Every predictor meets the groups of a run in the same order: the log's own steps where it has them, else several
seeded orders. Tasks never seen before and tasks with a history are scored apart, and so are groups that were drawn
uniformly (an unbiased sample) where a run has such. On runs of the testbed predictions are held against the true
success rates too, every ten steps (truth.py). Intervals are 95 %: runs are drawn anew, then tasks within each, with
the same weights for every predictor.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from envsched_core.baselines import NAMES, make_scheduler
from envsched_core.config import Config
from envsched_core.errors import ConfigError
from envsched_core.evaluate import Interval
from envsched_core.replay import RecordedPool, config_for
from envsched_core.store import RunReader

from .dots import dots_svg
from .parallel import Progress, run_all
from .predict_scores import (
    BAYES,
    EnvironmentScore,
    Halves,
    PredictScore,
    Scored,
    TruthScore,
    combined,
    score_walk,
    true_combined,
)
from .prequential import Indices, batches_of, groups_of, own_order, walk
from .recorded import Job, pool_of, usable
from .rows import rows_of, write_csv

__all__ = ["PredictPlan", "PredictReport", "PredictRun", "predictors_of", "run_predict", "write_predict"]

Score = TypeVar("Score")
ENVSCHED = "envsched"
PREDICTING = (
    ENVSCHED,
    BAYES,
    "envsched-no-cross",
    "envsched-no-within",
    "envsched-no-features",
    "envsched-shuffled-cross",
    "envsched-shuffled-within",
    "envsched-fixed-trust",
)
"""Those that differ in what they predict; other ablations differ only in what they pick."""
PROBED_EVERY = 10
PROBED_TASKS = 512
MANY_TASKS = 100
"""From so many tasks on a run is large enough to say whether never-seen tasks are ranked better."""


class PredictPlan(msgspec.Struct, frozen=True):
    """What is predicted, and by whom."""

    runs: tuple[Path, ...]
    schedulers: tuple[str, ...]
    batch_size: int = 64
    """Groups a step where the log has no steps; a run with fewer than eight times as many takes an eighth of them."""
    seeds: int = 3
    """Orders of a run whose log has none."""
    settings: dict[str, Any] = {}
    """Further knobs, for all schedulers."""

    def checked(self) -> PredictPlan:
        """The plan with empirical Bayes in it and nothing twice.

        Raises:
            ConfigError: a scheduler is unknown or predicts nothing of its own, or there is nothing to do.
        """
        if not self.runs or min(self.batch_size, self.seeds) < 1:
            raise ConfigError("nothing to predict: give at least one run, one group a step and one order")
        names = tuple(dict.fromkeys((*self.schedulers, BAYES)))
        for name in names:
            if name not in NAMES:
                raise ConfigError(f"unknown scheduler '{name}'; known: {', '.join(NAMES)}")
            if name != BAYES and not name.startswith(ENVSCHED):
                raise ConfigError(f"{name} predicts no variance of its own; {', '.join(predictors_of('all'))} do")
        return msgspec.structs.replace(self, schedulers=names, runs=tuple(dict.fromkeys(self.runs)))


class PredictRun(msgspec.Struct, frozen=True):
    """One run, and every predictor on it."""

    groups: int
    """Those with two or more rewards; nothing else is scored."""
    tasks: int
    environments: int
    order: str
    """Where the order comes from."""
    schedulers: dict[str, dict[str, PredictScore]]
    """Predictor -> part of the groups (all, unseen, seen, uniform) -> scores."""
    truth: dict[str, dict[str, TruthScore]]
    """The same against true success rates; empty but for runs of the testbed."""
    per_environment: dict[str, dict[str, EnvironmentScore]]
    """Environment -> predictor -> scores."""
    notes: tuple[str, ...]


class PredictReport(msgspec.Struct, frozen=True):
    """All predictors, mean over runs; and each run by itself."""

    schedulers: dict[str, dict[str, PredictScore]]
    truth: dict[str, dict[str, TruthScore]]
    runs: int
    seeds: int
    settings: dict[str, Any]
    per_run: dict[str, PredictRun]
    left_out: dict[str, str]
    """Runs that could not be scored, and why."""
    notes: tuple[str, ...]


def predictors_of(wanted: str | None) -> tuple[str, ...]:
    """Names: `all` (the default: EnvSched, empirical Bayes and what differs in its predictions), `peers`, or a list."""
    if wanted in (None, "", "all"):
        return PREDICTING
    if wanted == "peers":
        return PREDICTING[:2]
    return tuple(name for part in (wanted or "").split(",") if (name := part.strip()))


def _config(plan: PredictPlan, pool: RecordedPool) -> Config:
    batch = min(plan.batch_size, max(1, len(pool.groups) // 8))
    return config_for(pool, {**plan.settings, "batch_size": batch})


def _probes(pool: RecordedPool) -> dict[int, Indices]:
    """Tasks whose true rate is looked up, by step: a seeded sample every ten steps of a run of the testbed."""
    if "plan" not in pool.manifest.source:
        return {}
    steps = sorted({group.step or 0 for group in pool.groups})
    shuffled = {step: np.random.default_rng(step).permutation(len(pool.tasks)) for step in steps[::PROBED_EVERY]}
    return {step: np.sort(tasks[:PROBED_TASKS]) for step, tasks in shuffled.items()}


def _truth(run: Path) -> tuple[Halves, str]:
    """True rates of the probed tasks, by rolling out; and why there are none, where there should be."""
    pool = pool_of(run)
    probes = _probes(pool)
    if not probes:
        return {}, ""
    if find_spec("numba") is None:
        return {}, "its true success rates need the extra `train` (numba)"
    keys = {step: tuple(pool.tasks[i].key for i in tasks) for step, tasks in probes.items()}
    found = importlib.import_module("envsched_core.bench.truth").true_rates(run, keys)
    return found.halves, found.problem


def _uniform(run: Path, pool: RecordedPool) -> Sequence[bool]:
    """Which groups answer a pick that was drawn uniformly, in the order of the pool."""
    asked = [event.data for event, *_ in RunReader(run).events() if event.kind == "asked"]
    drawn = {c.pick_id for decision in asked for c in decision.candidates if c.outcome == "uniform_draw" and c.pick_id}
    return [group.pick_id in drawn for group in pool.groups]


def _walk(plan: PredictPlan, truths: Mapping[Path, Halves], job: Job) -> Scored:
    """One walk, scored; what a process does."""
    pool = pool_of(job.run)
    config = _config(plan, pool)
    batches = batches_of(pool, config.batch_size, seed=job.seed)
    told = walk(pool, make_scheduler(job.scheduler, config), batches, _probes(pool))
    uniform = np.array(_uniform(job.run, pool), dtype=bool)
    return score_walk(groups_of(pool, config), told, uniform, truths.get(job.run, {}), len(pool.tasks))


def run_predict(plan: PredictPlan, *, workers: int | None = None, progress: Progress | None = None) -> PredictReport:
    """Walk every run with every predictor, `workers` processes at a time (None = one a core), and score it.

    Raises:
        ConfigError: a scheduler or knob is unknown, or no run can be compared. StoreError: one holds no groups.
    """
    plan = plan.checked()
    runs, pools, left_out = usable(plan.runs)
    orders = {run: 1 if own_order(pools[run]) else plan.seeds for run in runs.values()}
    sizes = {run: _config(plan, pools[run]).batch_size for run in orders}  # what is wrong is told before any walk
    told = dict(zip(orders, run_all(_truth, list(orders), workers=workers), strict=True))
    jobs = [Job(run, name, seed) for run in orders for name in plan.schedulers for seed in range(orders[run])]
    work = partial(_walk, plan, {run: halves for run, (halves, _) in told.items()})
    found = dict(zip(jobs, run_all(work, jobs, workers=workers, progress=progress), strict=True))
    walks = {
        run: {name: [found[Job(run, name, seed)] for seed in range(orders[run])] for name in plan.schedulers}
        for run in orders
    }
    per_run = {
        name: _run(pools[run], walks[run], told[run][1], f"{orders[run]} seeded orders, {sizes[run]} groups at a time")
        for name, run in runs.items()
    }
    return PredictReport(
        schedulers=combined(list(walks.values())),
        truth=true_combined(list(walks.values())),
        runs=len(runs),
        seeds=plan.seeds,
        settings=plan.settings,
        per_run=per_run,
        left_out=left_out,
        notes=tuple(_notes(per_run, left_out)),
    )


def _run(pool: RecordedPool, walks: Mapping[str, Sequence[Scored]], problem: str, drawn: str) -> PredictRun:
    """One run by itself; `drawn` tells its orders if it has none of its own."""
    environments = {env: {name: ws[0].environments[env] for name, ws in walks.items()} for env in _named_in(walks)}
    return PredictRun(
        groups=len(pool.groups),
        tasks=len({group.key for group in pool.groups}),
        environments=len({group.env for group in pool.groups}),
        order="the log's own steps" if own_order(pool) else drawn,
        schedulers=combined([walks]),
        truth=true_combined([walks]),
        per_environment=environments,
        notes=(*pool.manifest.notes, *([problem] if problem else [])),
    )


def _named_in(walks: Mapping[str, Sequence[Scored]]) -> list[str]:
    """Environments with scores of their own, in the first order."""
    return list(next(iter(walks.values()))[0].environments)


def _notes(per_run: Mapping[str, PredictRun], left_out: Mapping[str, str]) -> Iterator[str]:
    """What the numbers do not say, and where EnvSched is not ahead."""
    yield "prequential: every group was predicted before it was seen; which groups came is the log's affair"
    if len(per_run) == 1:
        yield "one run: the intervals are over its tasks, and say nothing of other logs"
    for name, reason in left_out.items():
        yield f"{name} is left out: {reason}"
    for name, run in per_run.items():
        mine = run.schedulers.get(ENVSCHED, {}).get("unseen")
        if mine is not None and run.tasks >= MANY_TASKS and not mine.spearman_minus_empirical_bayes[1] > 0:
            told = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*mine.spearman_minus_empirical_bayes)
            yield f"{name}: variances of never-seen tasks are not surely ranked better than by empirical Bayes ({told})"


def write_predict(report: PredictReport, folder: Path) -> None:
    """predict.json, scores.csv, truth.csv (runs of the testbed), environments.csv, spearman.svg."""
    (folder / "predict.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    runs: dict[str, PredictReport | PredictRun] = {"all runs": report, **report.per_run}
    labels = ["run", "scheduler", "part"]
    scores = [((run, *at), one) for run, found in runs.items() for at, one in _flat(found.schedulers)]
    truth = [((run, *at), one) for run, found in runs.items() for at, one in _flat(found.truth)]
    single = [((run, *at), one) for run, found in report.per_run.items() for at, one in _flat(found.per_environment)]
    write_csv(folder / "scores.csv", rows_of(labels, scores))
    write_csv(folder / "truth.csv", rows_of(labels, truth))
    write_csv(folder / "environments.csv", rows_of(["run", "environment", "scheduler"], single))
    dots = {
        f"{name} {part}": Interval(*found[part].spearman_minus_empirical_bayes)
        for name, found in report.schedulers.items()
        for part in ("unseen", "seen")
        if part in found and name != BAYES
    }
    label = "Spearman of predicted and realised variance, minus empirical Bayes'"
    title = f"Predicted before seen: mean over {report.runs} runs, 95 % intervals"
    (folder / "spearman.svg").write_text(dots_svg(dots, title=title, x_label=label, marked=""), encoding="utf-8")


def _flat(nested: Mapping[str, Mapping[str, Score]]) -> Iterator[tuple[tuple[str, str], Score]]:
    """Two levels of names as one."""
    yield from (((outer, inner), one) for outer, found in nested.items() for inner, one in found.items())
