"""Commands that compare schedulers on recorded runs: bench pool, bench predict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from envsched_core.baselines import expand
from envsched_core.bench.parallel import checked_folder
from envsched_core.bench.pool import PoolPlan, PoolReport, run_pool, write_pool
from envsched_core.bench.pool_scores import PoolScore
from envsched_core.bench.predict import (
    PredictPlan,
    PredictReport,
    PredictRun,
    predictors_of,
    run_predict,
    write_predict,
)
from envsched_core.bench.predict_scores import PredictScore, TruthScore
from envsched_core.explanation import several

from .closed_loop import bench
from .output import ConfigFile, Json, SetOption, bar, number, print_json, say, settings_from, table

__all__ = ["add_to"]

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, for instance imported logs.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; one a core when not given.")]


def pool(
    runs: Runs,
    schedulers: Annotated[
        str, typer.Option(metavar="A,B", help="`peers`, `all` (ablations and placebos too), or names with commas.")
    ] = "peers",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a replay; at most half of a run's groups.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Picks a step; an eighth of a smaller pool.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Replays of each scheduler on each run.")] = 5,
    preset: Annotated[str, typer.Option(metavar="NAME", help="replay or training.")] = "replay",
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for chart, CSV and JSON.")] = None,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """Which scheduler picks the most informative groups of recorded runs? Paired seeds, intervals, an oracle."""
    folder = checked_folder(out) if out else None
    plan = PoolPlan(
        runs=tuple(runs),
        schedulers=expand(schedulers),
        steps=steps,
        batch_size=batch_size,
        seeds=seeds,
        preset=preset,
        settings=settings_from(config, set),
    )
    with bar("replaying") as progress:
        progress(0, 1)
        report, found = run_pool(plan, workers=workers, progress=progress)
    if folder is not None:
        write_pool(report, found, folder)
    if json:
        return print_json(report)
    _print_pool(report)
    if folder is not None:
        say(f"written to {folder}{os.sep}: shares.svg, schedulers.csv, runs.csv, steps.csv, pool.json")


def _print_pool(report: PoolReport) -> None:
    say(f"pool replay: {report.runs} runs x {report.seeds} seeds, preset {report.preset}")
    say()
    best_first = sorted(report.schedulers.items(), key=lambda item: -item[1].informative_share)
    whole = {**dict(best_first), "oracle": report.oracle, "oracle-top": report.oracle_top}
    table(_pool_rows(whole))
    say()
    names = list(report.per_run)
    say("informative share by run (* EnvSched surely ahead of it, ! surely behind):")
    shares = [[name, *(_mark(report.per_run[run].schedulers[name]) for run in names)] for name in whole]
    table([["", *names], *shares])
    for name, run in report.per_run.items():
        size = _size(run.groups, run.tasks, run.environments)
        say(f"{name}: {size}; {run.steps} steps of {run.batch_size}")
        for note in run.notes:
            say(f"  {note}")
    say()
    for note in report.notes:
        say(f"note: {note}")


def _pool_rows(scores: Mapping[str, PoolScore]) -> list[list[str]]:
    """A row a scheduler, with a head; costs only where the logs know them."""
    first = next(iter(scores.values()))
    costs = {
        "/1k rollouts": "informative_per_1k_rollouts",
        "/Mtoken": "informative_per_mtoken",
        "/hour": "informative_per_hour",
        "/1k calls": "informative_per_1k_tool_calls",
    }
    known = {head: field for head, field in costs.items() if getattr(first, field) is not None}
    head = ["", "informative", "vs uniform", "vs empirical-bayes", "variance", "steps 1-3", "x uniform"]
    rows = [[*head, "envs", "gini", "tasks", *known]]
    for name, one in scores.items():
        cells = [
            f"{one.informative_share:.3f} [{one.ci[0]:.3f}, {one.ci[1]:.3f}]",
            _span(one.minus_uniform),
            _span(one.minus_empirical_bayes),
            number(one.mean_variance, 4),
            number(one.cold_start_share),
            number(one.cold_start_ratio, 2),
            number(one.environments_covered, 1),
            number(one.environments_gini, 2),
            number(round(one.tasks_covered)),
            *(number(getattr(one, field), 1) for field in known.values()),
        ]
        rows.append([name, *cells])
    return rows


def _size(groups: int, tasks: int, environments: int) -> str:
    return f"{several(groups, 'group')} of {several(tasks, 'task')} in {several(environments, 'environment')}"


def _span(three: tuple[float, float, float], digits: int = 3) -> str:
    mean, low, high = (f"{value:+.{digits}f}" for value in three)
    return f"{mean} [{low}, {high}]" if three[0] == three[0] else "n/a"  # NaN differs from itself


def _mark(found: PoolScore) -> str:
    """Its share, and whether EnvSched is ahead or behind with an interval off 0."""
    low, high = found.envsched_minus[1:] if found.envsched_minus else (0.0, 0.0)
    return f"{found.informative_share:.3f}{'*' if low > 0 else '!' if high < 0 else ' '}"


def predict(
    runs: Runs,
    schedulers: Annotated[
        str, typer.Option(metavar="A,B", help="`all` that predict, `peers` (envsched, empirical-bayes), or names.")
    ] = "all",
    batch_size: Annotated[int, typer.Option(min=1, help="Groups a step, where the log has no steps.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Orders of a run whose log has none.")] = 3,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for chart, CSV and JSON.")] = None,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """How good are predictions of what was not seen yet? Each group is predicted first and scored after."""
    folder = checked_folder(out) if out else None
    plan = PredictPlan(
        runs=tuple(runs),
        schedulers=predictors_of(schedulers),
        batch_size=batch_size,
        seeds=seeds,
        settings=settings_from(config, set),
    )
    with bar("predicting") as progress:
        progress(0, 1)
        report = run_predict(plan, workers=workers, progress=progress)
    if folder is not None:
        write_predict(report, folder)
    if json:
        return print_json(report)
    _print_predict(report)
    if folder is not None:
        say(f"written to {folder}{os.sep}: spearman.svg, scores.csv, truth.csv, environments.csv, predict.json")


PARTS = {
    "unseen": "groups of tasks never seen before",
    "seen": "groups of tasks with a history",
    "uniform": "groups that were drawn uniformly (an unbiased sample)",
    "all": "all groups",
}


def _print_predict(report: PredictReport) -> None:
    say(f"prequential scores: {report.runs} runs")
    for part, told in PARTS.items():
        rows = [[name, *_predict_cells(found[part])] for name, found in report.schedulers.items() if part in found]
        if rows:
            head = ["", "groups", "Spearman", "ceiling", "vs empirical-bayes", "by value", "vs empirical-bayes"]
            say()
            say(f"{told}:")
            table([[*head, "AUC flat", "Brier", "in 90 %", "expected", "nats/rollout", "vs empirical-bayes"], *rows])
    if report.truth:
        say()
        say("against the true success rate p of the policy of the moment (rank correlations):")
        head = ["", "part", "tasks", "mean, p", "ceiling", "vs empirical-bayes", "variance, p(1-p)", "ceiling"]
        rows = [[name, part, *_true_cells(one)] for name, found in report.truth.items() for part, one in found.items()]
        table([[*head, "vs empirical-bayes"], *rows])
    say()
    for name, run in report.per_run.items():
        size = _size(run.groups, run.tasks, run.environments)
        say(f"{name}: {size}; {run.order}")
        parts = [part for part in ("unseen", "seen") if any(part in found for found in run.schedulers.values())]
        table([["  Spearman", *parts, *(f"{part}, by value" for part in parts)], *_ranked(run, parts)])
        for note in run.notes:
            say(f"  {note}")
    say()
    for note in report.notes:
        say(f"note: {note}")


def _ranked(run: PredictRun, parts: Sequence[str]) -> list[list[str]]:
    """Rank correlations of every predictor on one run: of its variances, then of its values."""
    found = ((who, [scores[part] for part in parts]) for who, scores in run.schedulers.items())
    return [
        [f"  {who}", *(number(one.spearman) for one in of), *(number(one.value_spearman) for one in of)]
        for who, of in found
    ]


def _predict_cells(one: PredictScore) -> list[str]:
    return [
        number(round(one.groups)),
        number(one.spearman),
        number(one.spearman_ceiling),
        _span(one.spearman_minus_empirical_bayes),
        number(one.value_spearman),
        _span(one.value_spearman_minus_empirical_bayes),
        number(one.auc),
        number(one.brier, 4),
        number(one.coverage),
        number(one.coverage_expected),
        number(one.log_score, 4),
        _span(one.log_score_minus_empirical_bayes, 4),
    ]


def _true_cells(one: TruthScore) -> list[str]:
    return [
        number(round(one.tasks)),
        number(one.rate),
        number(one.rate_ceiling),
        _span(one.rate_minus_empirical_bayes),
        number(one.variance),
        number(one.variance_ceiling),
        _span(one.variance_minus_empirical_bayes),
    ]


def add_to(app: typer.Typer) -> None:
    """Register the commands in the group `bench`, which is part of `app` already."""
    bench.command("pool")(pool)
    bench.command("predict")(predict)
