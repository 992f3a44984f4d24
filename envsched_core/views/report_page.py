"""A report as files to hand on: one HTML page, the tables as CSV in a zip, the charts as SVG in a zip.

The page asks for nothing: style and charts stand in it, it has no script, and a content policy forbids every request
and every script even if one got in. Texts are escaped by the template engine, control and direction marks are replaced.
The same report gives the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup

from .csv_table import csv_bytes
from .report import Example, Report
from .report_charts import printable, svg
from .report_print import page_png, png
from .report_print import pdf as print_pdf

__all__ = ["charts", "page", "pdf", "picture", "pictures", "tables", "zipped"]

FOLDER = Path(__file__).parent
MOST_ROWS = 40
"""Rows of a table on the page; its CSV has all."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a zip: no clock is read."""


class _Table(NamedTuple):
    """What the template needs of a table."""

    columns: list[tuple[str, bool]]
    """Name, and whether it holds numbers."""
    rows: list[list[str]]
    left_out: int
    file: str


def page(report: Report) -> str:
    """The report as one HTML document."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        keep_trailing_newline=True,
    )
    example = report.example
    return environment.get_template("report.html").render(
        report=report,
        css=Markup((FOLDER / "report.css").read_text(encoding="utf-8")),  # ours
        charts=[_chart(report, chart.key) for chart in report.charts],
        example=example and _taken_apart(example),
        facts=_table(pd.DataFrame(report.facts, columns=["what", "as the run has it"]), ""),
    )


SMALL = 1e-6
"""Terms and shares below it (a tie-break, a source that says nothing) are left out of the page; the files have them."""


def _taken_apart(example: Example) -> dict[str, _Table]:
    """The tables of the example: only what counts in it, and what its terms add up to."""
    terms = example.terms[example.terms["value"].abs() >= SMALL][["term", "value"]]
    total = pd.DataFrame([("the score", example.score)], columns=["term", "value"])
    shares = example.shares[example.shares["share"] >= SMALL]
    return {
        "terms": _table(pd.concat([terms, total], ignore_index=True) if len(terms) else terms, "example_terms.csv"),
        "shares": _table(shares, "example_shares.csv"),
        "evidence": _table(example.evidence, "example_evidence.csv"),
    }


def _printable(value: Any) -> Any:
    """A text of the report as the page may hold it."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _chart(report: Report, key: str) -> dict[str, Any]:
    chart = next(one for one in report.charts if one.key == key)
    table = _table(report.tables[chart.table], f"{chart.table}.csv")
    drawn = Markup(svg(chart))  # what draws it escapes every text
    return {"key": chart.key, "reading": chart.reading, "svg": drawn, "table": table}


def _table(data: pd.DataFrame, file: str) -> _Table:
    numeric = [bool(pd.api.types.is_numeric_dtype(dtype)) for dtype in data.dtypes]
    columns = [(str(name).replace("_", " "), is_number) for name, is_number in zip(data.columns, numeric, strict=True)]
    rows = [[_cell(value) for value in row] for row in data.head(MOST_ROWS).itertuples(index=False)]
    return _Table(columns, rows, max(len(data) - MOST_ROWS, 0), file)


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "n/a"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"
    return str(value)


# ---------------------------------------------------------------------- tables and charts as files


def pdf(report: Report) -> bytes:
    """The page as PDF.

    Raises:
        PrintError: there is no browser, or it did not print.
    """
    return print_pdf(page(report))


def picture(report: Report) -> bytes:
    """The whole page as one PNG.

    Raises:
        PrintError: there is no browser, or it did not draw.
    """
    return page_png(page(report))


def tables(report: Report) -> dict[str, bytes]:
    """Every table of the report as CSV by file name, the sentences as text beside them."""
    files = {f"{name}.csv": csv_bytes(table) for name, table in report.tables.items()}
    return {"report.txt": _text(report).encode("utf-8", "replace"), **files}


def charts(report: Report) -> dict[str, bytes]:
    """Every chart of the report as SVG by file name."""
    return {f"{chart.key}.svg": svg(chart).encode("utf-8", "replace") for chart in report.charts}


def pictures(report: Report) -> dict[str, bytes]:
    """Every chart of the report as PNG by file name.

    Raises:
        PrintError: there is no browser, or it did not draw.
    """
    return {f"{chart.key}.png": png(svg(chart)) for chart in report.charts}


def _text(report: Report) -> str:
    """The sentences of the report, one block each."""
    said = [report.name, report.subtitle, *(f"{f.label}: {f.value} ({f.note})" for f in report.figures)]
    said += [f"{answer.question}\n{answer.sentence}" for answer in report.answers]
    return "\n\n".join([*said, *report.caveats, ""])


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Files as one ZIP; the same files give the same bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return target.getvalue()
