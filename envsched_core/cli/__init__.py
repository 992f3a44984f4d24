"""The command `envsched`: thin commands over the core, one function each.

Results go to stdout, and with --json stdout is JSON alone; progress and errors go to stderr. Exit status:
0 done, 1 a check failed, 2 wrong use or input, with one line that says what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from envsched_core.errors import EnvSchedError
from envsched_core.outgoing import printable_lines

from . import benches, closed_loop, decisions, logs, reporting, scaling, shadowing, show

__all__ = ["app", "main"]

app = typer.Typer(
    name="envsched",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Decides which environment-task pairs of agent RL deserve the next rollouts, and shows why.",
)
for _module in (logs, decisions, closed_loop, benches, scaling, shadowing, show, reporting):
    _module.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"envsched {version('envsched')}")
        except PackageNotFoundError:  # run from a checkout that is not installed
            typer.echo("envsched (not installed)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (`sys.argv` when None); always leaves by SystemExit."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="envsched")
    except EnvSchedError as error:
        typer.echo(printable_lines(f"envsched: {error}"), err=True)
        sys.exit(2)
