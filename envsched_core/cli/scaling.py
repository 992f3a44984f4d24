"""The command bench scale: what a scheduler costs at a size."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .closed_loop import bench
from .output import ConfigFile, Json, SetOption, bar, number, print_json, say, settings_from, table

if TYPE_CHECKING:  # loaded when it runs, so that every other command starts without it
    from envsched_core.bench.scale import ScaleReport

__all__ = ["add_to"]


def scale(
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of the invented catalogue.")],
    environments: Annotated[int, typer.Option(min=1, help="Environments they are spread over.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Tasks a step.")] = 256,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed.")] = 10,
    schedulers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Names with commas; envsched and three peers otherwise.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of catalogue and rewards.")] = 0,
    config: ConfigFile = None,
    set: SetOption = None,
    json: Json = False,
) -> None:
    """What a scheduler costs at a size: seconds of a step, of the graph, memory; each in a process of its own."""
    module = importlib.import_module("envsched_core.bench.scale")
    given: dict[str, Any] = {"tasks": tasks, "environments": environments, "batch_size": batch_size, "steps": steps}
    given |= {"seed": seed, "settings": settings_from(config, set)}
    if schedulers:
        given["schedulers"] = (schedulers,)
    with bar("measuring") as progress:
        report = module.run_scale(module.ScalePlan(**given), progress)
    if json:
        return print_json(report)
    _print_report(cast("ScaleReport", report))


def _print_report(report: ScaleReport) -> None:
    say(f"{report.tasks:,} tasks in {report.environments:,} environments, {report.batch_size} picks a step, medians")
    say()
    head = ["", "ask", "choosing", "observe", "graph", "register 1,000", "peak", "resident", "edges"]
    rows = [
        [
            name,
            *(_time(value) for value in (c.ask_seconds_median, c.select_seconds_median, c.observe_seconds_median)),
            *(_time(value) for value in (c.graph_seconds, c.register_1000_seconds)),
            f"{c.peak_memory_gb:.2f} GB",
            "n/a" if c.resident_memory_gb is None else f"{c.resident_memory_gb:.2f} GB",
            number(c.edges_within + c.edges_cross),
        ]
        for name, c in report.schedulers.items()
    ]
    table([head, *rows])
    say()
    for note in report.notes:
        say(f"note: {note}")


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1.0 else f"{seconds * 1e3:.1f} ms"


def add_to(app: typer.Typer) -> None:
    """Register the command beside `bench learn`."""
    bench.command("scale")(scale)
