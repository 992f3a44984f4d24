"""The command that makes a report of a run to hand on: report."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envsched_core.errors import StoreError

from .closed_loop import MissingExtraError
from .output import Json, print_json, say

if TYPE_CHECKING:  # read models load pandas and duckdb, which no other command needs
    from envsched_core.views import Report

__all__ = ["add_to"]

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="HTML page to write; opens from disk.")]
Tables = Annotated[Path | None, typer.Option("--tables", metavar="ZIP", help="All tables as CSV.")]
Charts = Annotated[Path | None, typer.Option("--charts", metavar="ZIP", help="All charts as SVG.")]
Pictures = Annotated[Path | None, typer.Option("--png", metavar="ZIP", help="All charts as PNG; needs a browser.")]
Pdf = Annotated[Path | None, typer.Option("--pdf", metavar="FILE", help="The page as PDF; needs a browser.")]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Out = None,
    step: Annotated[int | None, typer.Option(help="Step of the decision that is taken apart.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ENV::TASK", help="Task of that decision.")] = None,
    against: Annotated[Path | None, typer.Option(metavar="RUN2", help="A second run to hold against it.")] = None,
    tables: Tables = None,
    charts: Charts = None,
    png: Pictures = None,
    pdf: Pdf = None,
    json: Json = False,
) -> None:
    """A report for people who were not there: figures, answers, charts, caveats. Without a file to write, its text."""
    views = importlib.import_module("envsched_core.views")
    found: Report = views.report(
        _opened(views, run), step=step, task=task, other=None if against is None else _opened(views, against)
    )
    asked = {"html": out, "tables": tables, "charts": charts, "png": png, "pdf": pdf}
    wanted = {kind: path for kind, path in asked.items() if path is not None}
    for kind, path in wanted.items():
        _write(path, _made(found, kind))
    if json:
        return print_json(_plain(found) | {"written": {kind: str(path) for kind, path in wanted.items()}})
    if not wanted:
        return _print_text(found)
    for path in wanted.values():
        say(f"written to {path}")


def _opened(views: Any, run: Path) -> Any:
    """A run folder, read up to now."""
    view = views.RunView(run)
    view.poll()
    return view


def _made(found: Report, kind: str) -> bytes:
    """One file of a report."""
    module = _page_module()
    makers = {"tables": "tables_zip", "charts": "charts_zip", "png": "pictures_zip", "pdf": "pdf"}
    if kind == "html":
        return str(module.page(found)).encode("utf-8")
    return bytes(getattr(module, makers[kind])(found))


def _page_module() -> Any:
    """What makes files of a report, loaded now, so that every other command starts without it.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    if find_spec("jinja2") is None:
        raise MissingExtraError(
            "the report's page needs jinja2: python -m pip install 'envsched[dashboard]' "
            "(in a checkout: python -m pip install '.[dashboard]')"
        )
    return importlib.import_module("envsched_core.views.report_page")


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; name another file") from error


def _plain(found: Report) -> dict[str, Any]:
    """What is said: without charts, tables and the taken-apart decision, which are files, and without the glossary."""
    names = ("name", "subtitle", "figures", "answers", "caveats", "facts")
    return {name: getattr(found, name) for name in names}


def _print_text(found: Report) -> None:
    say(found.name)
    say(found.subtitle)
    for figure in found.figures:
        say(f"{figure.label:28} {figure.value:>12}  {figure.note}".rstrip())
    for answer in found.answers:
        say()
        say(answer.question)
        say(f"  {answer.sentence}")
    say()
    for caveat in found.caveats:
        say(f"note: {caveat}")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("report")(report)
