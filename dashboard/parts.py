"""Pieces that every page uses: a chart with its table twin, a download, a clickable table, plain notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from .loading import csv_bytes

__all__ = [
    "chart",
    "go_to",
    "leave_run",
    "pick_row",
    "plain_text",
    "table",
    "take_values",
    "twin",
    "values_taken",
]

MISSING = "-"
ROW = 35
"""Pixels of a table row."""
MOST_ROWS = 500
"""Rows a table sends to the browser; the download has them all."""
OF_A_RUN = ("step", "last_step", "env", "outcome", "state", "task", "notices", "rederive")
"""What the session keeps for one run only."""

Click = Callable[[Any], None]
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


def take_values() -> None:
    """Set what `go_to` asked for; to be called before the widgets of the frame are drawn."""
    values = st.session_state.get("wanted", {})
    if "run" in values:
        leave_run()
    for key, value in values.items():
        st.session_state[key] = value


def values_taken() -> None:
    """To be called when they are drawn: a run of the page that was cut short before that is not the last word."""
    st.session_state.pop("wanted", None)


def leave_run() -> None:
    """From a callback: another run has other steps, environments and tasks."""
    for key in OF_A_RUN:
        st.session_state.pop(key, None)


def chart(figure: go.Figure, data: pd.DataFrame, *, key: str, alt: str, on_click: Click | None = None) -> None:
    """A figure with its table twin. `on_click` gets the customdata of the point that was clicked."""
    if on_click is None:
        st.plotly_chart(figure, key=key, alt=alt, config={"displaylogo": False})
    else:
        st.plotly_chart(
            figure, key=key, alt=alt, config={"displaylogo": False}, selection_mode="points",
            on_select=lambda: _clicked(key, on_click),
        )  # fmt: skip
    twin(data, key=key)


def _clicked(key: str, on_click: Click) -> None:
    """Hand the first selected point's customdata on. Bracket access: tests inject plain dicts."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[0].get("customdata") is not None:
        on_click(points[0]["customdata"])


def twin(data: pd.DataFrame, *, key: str) -> None:
    """The numbers of a chart as a table, closed until asked for."""
    with st.expander("Show as table", icon=":material/table_rows:"):
        table(data, key=f"{key}_table")


def table(data: pd.DataFrame, *, key: str, columns: Columns | None = None) -> None:
    """A table of plain cells with a download of all its rows."""
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
    st.dataframe(
        shown, key=key, hide_index=True, column_config=columns, height=height, selection_mode="single-row",
        placeholder=MISSING,
        on_select=lambda: _picked(key, on_pick),
    )  # fmt: skip
    _below(data, key)


def _picked(key: str, on_pick: Click) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        on_pick(rows[0])
