"""Commands on decisions: replay, explain, verify, next, config."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from envsched_core.baselines import NAMES
from envsched_core.config import PRESETS, knobs
from envsched_core.explanation import PART_WORDS, SOURCE_WORDS, features_sentence, logit_parts, trust_sentence
from envsched_core.records import Decision, Explanation
from envsched_core.replay import (
    AuditResult,
    ReplayResult,
    VerifyReport,
    batch_for,
    config_for,
    config_of,
    explain_run,
    load_pool,
    next_batch,
    replay_audit,
    replay_pool,
    sampling_weights,
    verify,
)

from .output import ConfigFile, Json, SetOption, bar, number, print_json, say, settings_from, table

__all__ = ["add_to"]

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
POOL_STEPS = 20


class Mode(StrEnum):
    """How a log is replayed."""

    pool = "pool"
    audit = "audit"


class BatchFormat(StrEnum):
    """How a batch is printed."""

    json = "json"
    ids = "ids"
    weights = "weights"


SCHEDULERS = f"Who picks: {', '.join(NAMES)}."


def replay(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN2", help="Run folder to write; without it, only the result.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="pool: each pick reveals a recorded group; audit: the log's own order.")
    ] = Mode.pool,
    scheduler: Annotated[str, typer.Option(metavar="NAME", help=SCHEDULERS)] = "envsched",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Picks a step; in pool mode an eighth of the tasks, at most 64.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help=f"Steps; {POOL_STEPS} in pool mode, all in audit mode.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; 0 unless a config says otherwise.")] = None,
    preset: Annotated[
        str, typer.Option(metavar="NAME", help=f"What the knobs start from: {', '.join(PRESETS)}.")
    ] = "replay",
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """Replay a run's recorded groups under a scheduler."""
    pool = load_pool(run)
    settings = settings_from(config, set, batch_size=batch_size, seed=seed)
    notes: list[str] = []
    if mode is Mode.pool and "batch_size" not in settings:
        settings["batch_size"] = batch_for(pool)
        notes.append(f"{settings['batch_size']} picks a step: an eighth of the tasks, at most 64 (see --batch-size)")
    chosen: dict[str, Any] = {
        "scheduler": scheduler,
        "config": config_for(pool, settings, preset=preset),
        "clock": time.perf_counter,
    }
    with bar("replaying") as progress:
        result = (
            replay_pool(pool, out, steps=steps or POOL_STEPS, progress=progress, **chosen)
            if mode is Mode.pool
            else replay_audit(pool, out, steps=steps, progress=progress, **chosen)
        )
    notes += _notes_on(result)
    if json:
        found = msgspec.to_builtins(result) | {"notes": notes}
        return print_json({"mode": mode.value, "out": str(out) if out else None, **found})
    _print_audit(result) if isinstance(result, AuditResult) else _print_replay(result)
    for note in notes:
        say(f"note: {note}")
    if out:
        say(f"written to {out}; next: envsched explain {out} --step 0, or envsched dashboard --runs {out.parent}")


def _print_replay(r: ReplayResult) -> None:
    say(f"pool replay with {r.scheduler}, preset {r.preset}, seed {r.seed}: {r.steps} steps of {r.batch_size}")
    rows = [
        ["picks", number(r.picks)],
        ["informative share (mixed rewards)", number(r.informative_share)],
        ["mean reward variance, rewards in [0, 1]", number(r.mean_variance, 4)],
        ["environments covered", f"{r.environments_covered} of {r.environments}"],
        ["tasks covered", f"{number(r.tasks_covered)} of {number(r.tasks)}"],
        ["rollouts generated", number(r.rollouts_generated)],
        ["seconds in the scheduler", number(r.seconds, 2)],
    ]
    table(rows)


def _notes_on(result: ReplayResult | AuditResult) -> list[str]:
    """What a reader of the result should know."""
    if isinstance(result, AuditResult):
        return ["no reward is invented for picks that the log did not roll out", *result.notes]
    ended = ["it ended when no recorded group was left to draw"] if result.exhausted else []
    return [*ended, "exact on the log; silent on how the choice would have changed the policy", *result.notes]


def _print_audit(r: AuditResult) -> None:
    say(f"audit with {r.scheduler}, preset {r.preset}, seed {r.seed}: {r.steps} steps, {r.steps_from}")
    rows = [
        ["groups that the log rolled out", number(r.groups)],
        ["their informative share (mixed rewards)", number(r.informative_share)],
        ["picks that the log rolled out too", number(r.overlap)],
        ["the same by chance", number(r.overlap_by_chance)],
        ["predicted variance of the picks", number(r.predicted_variance_picked, 4)],
        ["predicted variance of what was rolled out", number(r.predicted_variance_trained, 4)],
        ["seconds in all", number(r.seconds, 2)],
    ]
    table(rows)


def explain(
    run: Run,
    step: Annotated[int, typer.Option(help="Step of the run.")],
    task: Annotated[
        str | None, typer.Option(metavar="ENV::TASK", help="One task; all picks of the step when not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Why, or why not, at one step: the sentence, the terms, the evidence."""
    found = explain_run(run, step, task)
    if json:
        return print_json({"run": str(run), "step": step, "explanations": found})
    for explanation in found:
        say(explanation.verdict)
        if task is not None:
            _print_explanation(explanation)


def _print_explanation(e: Explanation) -> None:
    c = e.candidate
    say()
    rows = [[name, f"{value:+.6f}"] for name, value in c.terms.items() if abs(value) >= 5e-7]
    table([["terms", "score"], *rows, ["sum", f"{c.score:+.6f}"], ["cut-off", number(e.cutoff, 6)]])
    say(f"rank {number(c.rank)} before quotas and penalties; best task not picked: {e.runner_up or 'none on record'}")
    if e.quota is not None:
        say(f"quota of {e.env}: {e.quota.used} of {e.quota.limit} used, shadow price {e.quota.price:.4f}")
    say()
    shares = ", ".join(f"{share:.0%} {SOURCE_WORDS.get(name, name)}" for name, share in c.shares.items() if share > 0)
    say(f"evidence ({c.state}, {c.rollouts:.1f} equivalent rollouts): {shares}")
    if parts := logit_parts(c):
        say(features_sentence(parts))
        rows = [[PART_WORDS[name], f"{value:+.3f}"] for name, value in parts.items()]
        table([["features", "logit"], *rows, ["sum", f"{sum(parts.values()):+.3f}"]])
    if c.evidence:
        rows = [
            [f"{v.env}::{v.task}", v.relation, f"{v.weight:.2f}", f"{v.share:.0%}", f"{v.mean:.2f}", str(v.last_step)]
            for v in c.evidence
        ]
        table([["strongest", "relation", "weight", "share", "mean", "last step"], *rows])
    say()
    if e.trust is not None:
        say(trust_sentence(e.trust))
    say(f"numbers: {e.source}")


def verify_(run: Run, json: Json = False) -> None:
    """Check the hash chain, then re-derive every decision from the events; exit status 1 if anything differs."""
    with bar("verifying") as progress:
        report = verify(run, progress)
    print_json({"run": str(run), **msgspec.to_builtins(report)}) if json else _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: VerifyReport) -> None:
    say(("ok: " if report.ok else "FAILED: ") + report.checked)
    for problem in report.problems:
        where = [f"{problem.segment}:{problem.line}" if problem.line else problem.segment]
        where += [f"step {problem.step}"] if problem.step is not None else []
        where += [problem.task] if problem.task else []
        say(f"{', '.join(where)}: {problem.message}")


def next_(
    run: Run,
    n: Annotated[int, typer.Option("--n", min=1, help="Tasks wanted.")] = 64,
    format: Annotated[
        BatchFormat, typer.Option(help="json: the decision; ids: ENV::TASK a line; weights: JSON lines of all tasks.")
    ] = BatchFormat.json,
    scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help=SCHEDULERS + " The run's own when not given.")
    ] = None,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """The next batch, given all that a run observed, for a trainer that reads a file."""
    pool = load_pool(run)
    chosen = config_of(pool, settings_from(config, set))
    decision, picked_by = next_batch(pool, n, chosen, scheduler=scheduler)
    if json or format is BatchFormat.json:
        print_json(decision)
    elif format is BatchFormat.ids:
        _print_ids(decision)
    else:
        for weight in sampling_weights(picked_by, pool.tasks):
            typer.echo(msgspec.json.encode(weight).decode())


def _print_ids(decision: Decision) -> None:
    for pick in decision.picks:
        say(pick.key)


def config_(json: Json = False) -> None:
    """Every knob with its default, range and meaning (unit)."""
    found = knobs()
    if json:
        return print_json({"knobs": [knob._asdict() for knob in found], "presets": PRESETS})
    width = max(len(knob.name) for knob in found)
    for knob in found:
        default = msgspec.json.encode(knob.default).decode()
        say(f"{knob.name.ljust(width)}  {default}  ({knob.range})")
        say(f"{' ' * width}    {knob.doc}")
    for name, changes in PRESETS.items():
        say(f"preset {name}: {msgspec.json.encode(changes).decode() if changes else 'the defaults'}")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("replay")(replay)
    app.command("explain")(explain)
    app.command("verify")(verify_)
    app.command("next")(next_)
    app.command("config")(config_)
