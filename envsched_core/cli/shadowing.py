"""The command follow: shadow mode beside a trainer that knows nothing of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Annotated

import msgspec
import typer

from envsched_core.baselines import NAMES
from envsched_core.importers import ImportOptions
from envsched_core.outgoing import printable_lines
from envsched_core.shadow import Shadow, ShadowPlan, ShadowStep
from envsched_core.shadow import follow as steps_of

from .logs import Env, EnvRule, Format, JoinFile, Map, Reward, Tasks, Tools, options_from
from .output import ConfigFile, Json, SetOption, number, say, settings_from

__all__ = ["add_to"]


class AtEnd(StrEnum):
    """What to do at the end of the log."""

    wait = "wait"
    stop = "stop"


def follow(
    log: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Files or folders that another process writes.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Run folder; one of an earlier follow goes on.")],
    format: Format = None,
    env: Env = None,
    tasks: Tasks = None,
    tools: Tools = None,
    map: Map = None,
    reward: Reward = None,
    env_rule: EnvRule = None,
    join: JoinFile = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"Who is asked: {', '.join(NAMES)}; else envsched.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Picks that quotas are shares of; else the groups of the first step.")
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(min=1, help="Rollouts of a group; without steps it says when one is complete."),
    ] = None,
    settle: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Without new rows, after which the newest step is over.")
    ] = 30.0,
    until_idle: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after so long without new rows.")
    ] = None,
    at_end: Annotated[AtEnd, typer.Option(help="At the end of the log: wait for more, or stop.")] = AtEnd.wait,
    interval: Annotated[float, typer.Option(min=0.01, metavar="SECONDS", help="Between two looks at the log.")] = 0.5,
    rollouts: Annotated[bool, typer.Option(help="Keep messages and calls, to be read on demand.")] = True,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """Follow a log that grows: what EnvSched would have picked at each step, beside what was trained on."""
    options = options_from(format, env, tasks, tools, map, reward, env_rule, join)
    plan = ShadowPlan(scheduler, batch_size, group_size, rollouts, settings_from(config, set))
    _run(log, out, options, plan, json, _Times(interval, settle, until_idle, at_end is AtEnd.stop))


class _Times(msgspec.Struct, frozen=True):
    """When to look, decide and stop."""

    interval: float
    settle: float
    until_idle: float | None
    at_end: bool


def _tell(said: str) -> None:
    typer.echo(printable_lines(said), err=True)


def _run(log: list[Path], out: Path, options: ImportOptions, plan: ShadowPlan, json: bool, times: _Times) -> None:
    shadow = Shadow(log, out, options, plan)
    try:
        with _stopped_by_signals(shadow.stopping):
            for step in steps_of(shadow, **msgspec.structs.asdict(times), tell=_tell):
                typer.echo(msgspec.json.encode(step).decode()) if json else say(_line(step))
                sys.stdout.flush()
    finally:
        shadow.close()
    counts = shadow.counts
    if counts["implausible"]:
        typer.echo(f"{counts['implausible']:,} rollouts left out: implausible step", err=True)
    typer.echo(
        f"{counts['rows']:,} rows, {counts['dropped']:,} dropped, {counts['late']:,} late; {counts['groups']:,} groups "
        f"on record in {out}, {counts['late_groups']:,} of them late",
        err=True,
    )


def _line(step: ShadowStep) -> str:
    """A step in one line."""
    picked = "nothing could be picked"
    if step.overlap is not None:
        picked = (
            f"{step.overlap:.0%} of what would have been picked was trained on ({step.overlap_by_chance:.0%} by chance)"
        )
    line = f"step {step.step}: {step.groups} groups, {step.informative_share:.0%} mixed; {picked}"
    if step.predicted_variance_picked is not None:
        picks, trained = number(step.predicted_variance_picked, 4), number(step.predicted_variance_trained, 4)
        line += f"; predicted variance {picks} picked, {trained} trained"
    return line


@contextmanager
def _stopped_by_signals(stopping: Event) -> Iterator[None]:
    """SIGINT and SIGTERM end the loop after what it is doing."""

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    before = {name: signal.signal(name, stop) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("follow")(follow)
