"""Pieces that every page uses: a chart with its table twin, a download, a clickable table, plain notices.

A chart costs a browser a tenth of a second or more, a table not much less. So both are drawn when they come into view,
and twins when they are opened; each in a fragment of its own, so that the rest of the page is not computed again for
it. `whole_page` draws all of it at once, as for printing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from .cells_view import Cells, cells_view
from .in_view import in_view
from .loading import csv_bytes

__all__ = [
    "acted",
    "ask",
    "begin_page",
    "cells",
    "chart",
    "go_to",
    "leave_run",
    "pick_row",
    "plain_text",
    "short_table",
    "table",
    "take_values",
    "twin",
    "values_taken",
    "whole_page",
]

MISSING = "-"
ROW = 35
"""Pixels of a table row."""
USUAL_ROWS = 10
"""Rows that stand open."""
MOST_ROWS = 500
"""Rows a table sends to the browser; the download has them all."""
OF_A_RUN = ("step", "last_step", "env", "outcome", "state", "task", "notices", "rederive")
"""What the session keeps for one run only."""
OF_A_PAGE = ("compare", "scope", "set")
"""Widgets of a page that an act may set: they are drawn after the frame's."""

USUAL = 260
"""Pixels that a chart takes."""
BESIDE, CHART_ROW = 100, 28
"""Pixels that a chart of rows takes, about: beside them, and each."""

Click = Callable[[Any], None]
Table = pd.DataFrame | Callable[[], pd.DataFrame]
Columns = Mapping[str, Any]


def plain_text(text: str) -> None:
    """A sentence that may hold text from a log: shown as it is, never as markdown."""
    st.text(text)


def go_to(page: str, **values: Any) -> None:
    """From a callback: open another page with values of the frame set (run, step, task, env, ...).

    `app.main` switches the page and `frame.draw` sets the values just before it draws its widgets: set here
    already, they could be overruled by the browser's older state when a tick of the live fragment comes between.
    """
    st.session_state["go_to"] = (page, values)


def ask(**values: Any) -> None:
    """From a callback: set widgets of the frame, or those of `OF_A_PAGE` that the page draws, as `go_to` does."""
    st.session_state.setdefault("wanted", {}).update(values)


def take_values() -> None:
    """Set what `go_to` and `ask` asked for; to be called before the widgets of the frame are drawn."""
    acted()  # the whole page is about to be drawn
    values = st.session_state.get("wanted", {})
    if "run" in values:
        leave_run()
    for key, value in values.items():
        st.session_state[key] = value


def values_taken(*drawn: str) -> None:
    """To be called when they are drawn: a run of the page that was cut short before that is not the last word.

    `drawn`: a page's own; without, all but those.
    """
    values = st.session_state.get("wanted", {})
    for key in drawn or values.keys() - set(OF_A_PAGE):
        values.pop(key, None)


def leave_run() -> None:
    """From a callback: another run has other steps, environments and tasks."""
    for key in OF_A_RUN:
        st.session_state.pop(key, None)


def begin_page(name: str) -> None:
    """Before a page is drawn: of one that was just opened, nothing has been in view yet."""
    if st.session_state.get("page") != name:
        st.session_state["page"], st.session_state["seen"] = name, set()


def whole_page() -> bool:
    """Whether the reader wants everything drawn and every twin open at once."""
    return bool(st.session_state.get("whole"))


def _when_seen(draw: Callable[[], None], *, key: str, height: int, alt: str) -> None:
    """Draw when the place of it, so many pixels high, comes into view; alone, without the rest of the page."""

    def drawn() -> None:
        if acted():  # a click in here is a matter of the whole page
            st.rerun()
        seen = st.session_state.setdefault("seen", set())
        if key in seen or whole_page():
            draw()
        else:
            in_view(key=f"{key}_place", height=height, alt=alt, on_seen=lambda: seen.add(key))

    st.fragment(drawn, key=f"{key}_part")()


def _here(told: Callable[[], None]) -> Callable[[], None]:
    """A click of the page that is drawn. Another page, opened by it, does not act on it again.

    The browser tells a selection on the page just left until it has forgotten that page; the server, which has
    forgotten the value and not the callback, would take it for a new click.
    """
    page = st.session_state.get("page")

    def act() -> None:
        if st.session_state.get("page") == page:
            told()

    return act


def _act(act: Click, what: Any) -> None:
    """Do what a click asks for; the whole page is drawn anew then, see `_when_seen`."""
    st.session_state["acted"] = True
    act(what)


def acted() -> bool:
    """Whether there was a click, in a part, that the page has not been drawn for; asked once."""
    return bool(st.session_state.pop("acted", False))


def chart(
    make: Callable[[], go.Figure], data: Table, *, key: str, alt: str, rows: int = 0, on_click: Click | None = None
) -> None:
    """A figure with its table twin; `make` is called when the figure comes into view: it takes 10 ms and more.

    `rows`: of a chart that grows with them, how many it has. `on_click` gets the customdata of the point clicked.
    """

    def draw() -> None:
        if on_click is None:
            st.plotly_chart(make(), key=key, alt=alt, config={"displaylogo": False})
        else:
            st.plotly_chart(
                make(), key=key, alt=alt, config={"displaylogo": False}, selection_mode="points",
                on_select=_here(lambda: _clicked(key, on_click)),
            )  # fmt: skip

    _when_seen(draw, key=key, height=BESIDE + CHART_ROW * rows if rows else USUAL, alt=alt)
    twin(data, key=key)


def cells(found: Cells, data: Table, *, key: str, alt: str, on_click: Click) -> None:
    """Rows by columns of cells with their table twin; `on_click` gets the number of the cell that was clicked."""
    cells_view(found, key=key, alt=alt, on_click=on_click)
    twin(data, key=key)


def _clicked(key: str, on_click: Click) -> None:
    """Hand the first selected point's customdata on. Bracket access: tests inject plain dicts."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[0].get("customdata") is not None:
        _act(on_click, points[0]["customdata"])


def twin(data: Table, *, key: str) -> None:
    """The numbers of a chart as a table, closed until asked for; what takes long to make may come as what makes it."""

    def draw() -> None:
        whole = whole_page()
        box = st.expander(
            "Show as table", icon=":material/table_rows:", key=f"{key}_twin", expanded=whole, on_change="rerun"
        )
        if box.open or whole:
            with box:
                _table(data if isinstance(data, pd.DataFrame) else data(), f"{key}_table")

    st.fragment(draw, key=f"{key}_numbers")()


def table(data: pd.DataFrame, *, key: str, columns: Columns | None = None) -> None:
    """A table of plain cells with a download of all its rows."""
    height = ROW * (min(len(data), USUAL_ROWS) + 2)
    _when_seen(lambda: _table(data, key, columns), key=key, height=height, alt="Table")


def short_table(shown: pd.DataFrame, data: pd.DataFrame, *, key: str) -> None:
    """A few rows in words of ours, as plain HTML, with a download of the `data` behind them.

    It is there at once: charts, and tables that scroll, wait for a megabyte of code that the browser reads first.
    Streamlit renders Markdown in it: nothing that a log says may be among the words.
    """
    st.table(shown, border="horizontal", hide_index=True)
    _below(data, key)


def _table(data: pd.DataFrame, key: str, columns: Columns | None = None) -> None:
    st.dataframe(data.head(MOST_ROWS), key=key, hide_index=True, column_config=columns, placeholder=MISSING)
    _below(data, key)


def _below(data: pd.DataFrame, key: str) -> None:
    place = st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center")
    if len(data) > MOST_ROWS:
        place.caption(f"First {MOST_ROWS:,} of {len(data):,} rows; the download has all.")
    # Made on click: a file made with the page would be gone, and a console error, when the page changes soon.
    place.download_button(
        "CSV", partial(csv_bytes, data), f"{key}.csv", "text/csv", key=f"{key}_csv", icon=":material/download:",
        on_click="ignore", type="tertiary",
    )  # fmt: skip


def pick_row(data: pd.DataFrame, *, key: str, on_pick: Click, columns: Columns | None = None, rows: int = 12) -> None:
    """A table whose rows can be picked; `on_pick` gets the row's position in `data`. At most `rows` stand open."""
    shown = data.head(MOST_ROWS)
    height = ROW * (min(len(shown), rows) + 1) + 3

    def draw() -> None:
        st.dataframe(
            shown, key=key, hide_index=True, column_config=columns, height=height, selection_mode="single-row",
            placeholder=MISSING,
            on_select=_here(lambda: _picked(key, on_pick)),
        )  # fmt: skip
        _below(data, key)

    _when_seen(draw, key=key, height=height + ROW, alt="Table")


def _picked(key: str, on_pick: Click) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        _act(on_pick, rows[0])
