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

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="The page: .html opens from disk; .pdf and .png need a browser."),
]
Tables = Annotated[
    Path | None, typer.Option("--tables", metavar="DIR", help="All tables as CSV; NAME.zip for one ZIP.")
]
Charts = Annotated[Path | None, typer.Option("--charts", metavar="DIR", help="All charts as SVG; or NAME.zip.")]
Pictures = Annotated[
    Path | None, typer.Option("--png", metavar="DIR", help="All charts as PNG; or NAME.zip. Needs a browser.")
]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Out = None,
    step: Annotated[int | None, typer.Option(help="Step of the decision that is taken apart.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ENV::TASK", help="Task of that decision.")] = None,
    against: Annotated[Path | None, typer.Option(metavar="RUN2", help="A second run to hold against it.")] = None,
    tables: Tables = None,
    charts: Charts = None,
    png: Pictures = None,
    json: Json = False,
) -> None:
    """A report for people who were not there: figures, answers, charts, caveats. Without a file to write, its text."""
    views = importlib.import_module("envsched_core.views")
    found: Report = views.report(
        _opened(views, run), step=step, task=task, other=None if against is None else _opened(views, against)
    )
    asked = {"page": out, "tables": tables, "charts": charts, "pictures": png}
    wanted = {kind: path for kind, path in asked.items() if path is not None}
    for kind, path in wanted.items():
        _make(found, kind, path)
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


def _make(found: Report, kind: str, path: Path) -> None:
    """Write one file, or one folder, of a report."""
    module, ending = _page_module(), path.suffix.lower()
    if kind == "page":
        how = {".pdf": module.pdf, ".png": module.picture}.get(ending)
        return _write(path, how(found) if how else str(module.page(found)).encode("utf-8"))
    files: dict[str, bytes] = getattr(module, kind)(found)
    if ending == ".zip":
        return _write(path, module.zipped(files))
    for name, data in files.items():
        _write(path / name, data, within=path)
    return None


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


def _write(path: Path, data: bytes, within: Path | None = None) -> None:
    """`within`: a folder that is made where there is none."""
    try:
        if within is not None:
            within.mkdir(exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; name another place") from error


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
