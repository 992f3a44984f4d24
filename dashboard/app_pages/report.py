"""Report: what do I show people who were not there? A preview of the page, and everything of it to take along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape

import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import loading, parts
from ..frame import Frame
from ..loading import Report, Run
from . import second_run

__all__ = ["show"]

HEIGHT = 900
"""Pixels of the preview."""
SANDBOXED = (
    '<iframe title="Preview of the report" sandbox="" srcdoc="{}" '
    'style="border:0;position:fixed;inset:0;width:100%;height:100%"></iframe>'
)
"""The page has no script and forbids itself any; here it may do nothing at all, whatever a log brought into it."""

Make = Callable[[], bytes]


def show(frame: Frame) -> None:
    """The report of the run: downloads, then the page as its readers will see it, then every table."""
    run = frame.run
    st.title("Report")
    if run is None:
        return
    second = second_run.choose(frame, "Hold against", "no second run")
    found = _report(frame, run, second.run if second else None)
    if found is None:
        return
    html = loading.report_page.page(found)
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in frame.name)[:80]
    _downloads(found, html, name)
    st.iframe(SANDBOXED.format(escape(html)), height=HEIGHT, alt="Preview of the report")
    _tables(found)


def _report(frame: Frame, run: Run, second: Run | None) -> Report | None:
    """About the task and step chosen on the left, if there is a task; else the report picks its example."""
    chosen = frame.task is not None and loading.summary(run).picks > 0
    try:
        with st.spinner("Writing the report …"):
            example = (frame.step, frame.task) if chosen else (None, None)
            found = loading.report(run, second, *example)
    except EnvSchedError as error:
        st.error("The report cannot be written.", icon=":material/error:")
        parts.plain_text(str(error))
        return None
    if found.example is not None and not chosen:
        st.caption(
            f"It takes one decision of step {found.example.step} apart; choose a task and a step on the left for "
            "another."
        )
    return found


def _downloads(found: Report, html: str, name: str) -> None:
    """Files that need nothing but this machine; PDF and PNG where a browser can print them."""
    row = st.container(horizontal=True)
    files: list[tuple[str, str, str, Make]] = [
        ("Page (HTML)", f"{name}-report.html", "text/html", partial(str.encode, html, "utf-8")),
        ("Tables (CSV)", f"{name}-tables.zip", "application/zip", _zip(loading.report_page.tables, found)),
        ("Charts (SVG)", f"{name}-charts.zip", "application/zip", _zip(loading.report_page.charts, found)),
    ]
    for label, file, kind, make in files:
        row.download_button(
            label, make, file, kind, key=f"report_{file.rsplit('-', 1)[1]}", icon=":material/download:",
            on_click="ignore",
        )  # fmt: skip
    if loading.report_print.browser() is None:
        st.caption(
            "PDF and PNG need a Chromium-like browser on this machine, and none was found. The page prints well from "
            "any browser, and the charts are there as SVG."
        )
        return
    _print(row, "PDF", f"{name}-report.pdf", "application/pdf", partial(loading.report_page.pdf, found))
    _print(row, "PNG", f"{name}-report.png", "image/png", partial(loading.report_page.picture, found))
    pictures = _zip(loading.report_page.pictures, found)
    _print(row, "charts (PNG)", f"{name}-pictures.zip", "application/zip", pictures)


def _zip(make: Callable[[Report], dict[str, bytes]], found: Report) -> Make:
    """What makes the files of a report as one ZIP."""
    return lambda: loading.report_page.zipped(make(found))


def _print(row: st.delta_generator.DeltaGenerator, kind: str, file: str, mime: str, make: Make) -> None:
    """A browser takes seconds, so it is started only when it is asked to."""
    if not row.button(f"Make {kind}", key=f"report_make_{kind}", icon=":material/print:"):
        return
    try:
        with st.spinner(f"Printing the {kind} …"):
            data = make()
    except EnvSchedError as error:
        st.error(f"The {kind} could not be made.", icon=":material/error:")
        parts.plain_text(str(error))
        return
    st.download_button(f"Save {kind}", data, file, mime, key=f"report_{kind}", on_click="ignore", type="primary")


def _tables(found: Report) -> None:
    with st.expander("All tables of the report", icon=":material/table_rows:"):
        for name, table in found.tables.items():
            if len(table):
                st.markdown(f"**{name.replace('_', ' ').capitalize()}**")
                parts.table(table, key=f"report_table_{name}")
