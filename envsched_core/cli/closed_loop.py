"""Commands of the closed loop: train, bench learn. They need the extra `train` (numba), loaded when they run."""

from __future__ import annotations

import importlib
import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from envsched_core.baselines import NAMES, expand
from envsched_core.errors import ConfigError, EnvSchedError

from .learn_tables import print_worlds
from .output import ConfigFile, Json, SetOption, bar, number, print_json, say, settings_from, table

if TYPE_CHECKING:  # they import numba
    from envsched_core.bench.learn import WorldsReport
    from envsched_core.bench.training import TrainResult

__all__ = ["add_to", "loaded"]

WORLDS = "M, E, H, F, X0, X1, small or bfcl; variants after a hyphen (M-flaky)."
World = Annotated[str | None, typer.Option("--world", metavar="W", help=f"{WORLDS} M when not given.")]

bench = typer.Typer(name="bench", no_args_is_help=True, rich_markup_mode=None, help="Comparisons of schedulers.")


class MissingExtraError(EnvSchedError):
    """An optional dependency is not installed."""


def loaded(module: str) -> Any:
    """A module that imports numba, loaded now, so that every other command starts without it.

    Raises:
        MissingExtraError: numba is not installed.
    """
    if find_spec("numba") is None:
        raise MissingExtraError(
            "the closed loop needs numba: python -m pip install 'envsched[train]' "
            "(in a checkout: python -m pip install '.[train]')"
        )
    return importlib.import_module(module)


def train(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Run folder to write; must not hold anything.")],
    world: World = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"Who picks: {', '.join(NAMES)}. envsched when not given.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps; 120 when not given.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Tasks a step; 32 when not given.")] = None,
    group_size: Annotated[int | None, typer.Option(min=1, help="Rollouts a task; 8 when not given.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of scheduler and rollouts; 0 when not given.")] = None,
    world_seed: Annotated[int | None, typer.Option(min=0, help="Of world and base policy; 0 when not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in RUN, if there is one.")] = False,
    rollouts: Annotated[bool, typer.Option(help="Keep messages and calls, to be read on demand.")] = True,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """Train ToolWorld's small policy on what a scheduler picks, on record; a killed run goes on with --resume."""
    training = loaded("envsched_core.bench.training")
    given: dict[str, Any] = {"world": world, "scheduler": scheduler, "steps": steps, "batch_size": batch_size}
    given |= {"group_size": group_size, "seed": seed, "world_seed": world_seed}
    given["settings"] = settings_from(config, set) or None
    plan = training.plan_for(out, resume=resume, **given)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with bar("training") as progress:
            how: dict[str, Any] = {"resume": resume, "keep_rollouts": rollouts, "clock": time.perf_counter}
            result = cast("TrainResult", training.train_run(out, plan, progress=progress, **how))
    except KeyboardInterrupt:
        typer.echo(f"stopped; `envsched train --resume --out {out}` goes on", err=True)
        raise typer.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if json:
        return print_json({"run": str(out), **msgspec.to_builtins(result)})
    _print_result(result, out)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A polite end is an interrupt, so that the run folder is closed."""
    raise KeyboardInterrupt


def _print_result(r: TrainResult, out: Path) -> None:
    name = "BFCL-v3 multi-turn" if r.world == "bfcl" else f"ToolWorld {r.world}"
    say(f"{name} (world seed {r.world_seed}) with {r.scheduler}, seed {r.seed}: {r.steps} steps")
    say()
    curve = [[str(step), number(value)] for step, value in r.heldout_success.items()]
    table([["step", "held-out success"], *curve])
    say()
    flat = "n/a" if r.zero_variance_share is None else f"{r.zero_variance_share:.1%}"
    table(
        [
            ["groups with equal rewards", flat],
            ["tasks seen", number(r.tasks_seen)],
            ["rollouts", number(r.rollouts)],
            ["tool calls", number(int(r.tool_calls))],
        ]
    )
    say("note: a small policy that learns by GRPO, not the training of a language model")
    say(f"written to {out}; next: envsched verify {out}, or envsched dashboard --runs {out.resolve().parent}")


@bench.command("learn")
def learn(
    world: Annotated[
        str | None, typer.Option("--world", metavar="W,W", help=f"One or several: {WORLDS} M when not given.")
    ] = None,
    base: Annotated[
        str,
        typer.Option(metavar="N,N", help="Base strengths in pre-training steps: 0, 10, 20, 40; each world at each."),
    ] = "",
    world_seeds: Annotated[str, typer.Option(metavar="N,N", help="Worlds; 0 is for development only.")] = "1,2,3",
    schedulers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="`peers`, `all`, or names with commas; some peers and both oracles otherwise."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each scheduler in each world.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Training steps' worth of generated rollouts.")] = 120,
    batch_size: Annotated[int, typer.Option(min=1, help="Tasks a step.")] = 32,
    group_size: Annotated[int, typer.Option(min=1, help="Rollouts a task.")] = 8,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core when not given.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for chart, CSV and JSON.")] = None,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """Does a policy learn faster on what a scheduler picks? Paired runs of the closed loop, with intervals."""
    module = loaded("envsched_core.bench.learn")
    given: dict[str, Any] = {"seeds": seeds, "steps": steps, "batch_size": batch_size, "group_size": group_size}
    given |= {"world_seeds": _numbers("--world-seeds", world_seeds), "settings": settings_from(config, set)}
    if schedulers is not None:
        given["schedulers"] = expand(schedulers)
    names = tuple(name.strip() for name in (world or "M").split(",") if name.strip())
    worlds = module.based(names, _numbers("--base", base))
    folder = module.checked_folder(out) if out else None
    with bar("training") as progress:
        progress(0, 1)
        found = module.run_worlds(module.LearnPlan(**given), worlds, workers=workers, progress=progress)
    report = cast("WorldsReport", found[0])
    if folder is not None:
        module.write_report(*found, folder)
    if json:
        return print_json(report if len(report.worlds) > 1 else next(iter(report.worlds.values())))
    print_worlds(report)
    if folder is not None:
        say(f"written to {folder}{os.sep}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"{option} {text}: write numbers with commas, for instance 1,2,3") from None
    if any(seed < 0 for seed in found):
        raise ConfigError(f"{option} {text}: each number is 0 or more")
    return found


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("train")(train)
    app.add_typer(bench)
