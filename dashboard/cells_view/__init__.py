"""The cells component: rows by columns of coloured cells on one canvas.

Plotly needs a heatmap for the colours and an invisible mark over every cell for the clicks, which takes a browser
seconds at some thousand cells; a canvas takes milliseconds. Text reaches it through the canvas or textContent only.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TypedDict

import streamlit as st

__all__ = ["Cells", "cells_view"]

HERE = Path(__file__).parent
TOP, BELOW, LEAST_ROW, MOST_ROW, LEAST_HEIGHT = 30, 46, 15, 34, 250
"""Pixels, as cells.js has them."""


class Cells(TypedDict):
    """What is drawn; R rows, C columns, cell = row * C + column."""

    rows: list[str]
    """Names, top to bottom [R]."""
    columns: list[int]
    """First step of each column, left to right [C]."""
    span: int
    """Steps a column stands for."""
    values: list[float | None]
    """Of every cell [R * C]; None = no value, drawn as `blank` says."""
    scale: tuple[float, float]
    """Values at the two ends of `colours`."""
    ticks: list[float]
    """Values written beside the scale."""
    colours: list[str]
    """The scale, low to high, as #rrggbb; between them it is linear."""
    unit: str
    """What a value is."""
    digits: int
    """Behind the point."""
    blank: str
    """What a cell without a value means; drawn grey and named in the legend. Empty: it is a true nothing, not drawn."""
    dots: list[int]
    """Cells that carry a dot."""
    dotted: str
    """What a dot means."""
    chosen: int | None
    """The step that a line marks."""


_COMPONENT = st.components.v2.component(
    "envsched_cells",
    html='<div class="frame"><canvas class="cells"></canvas><button class="save" type="button">PNG</button>'
    '<div class="tip"></div></div>',
    css=(HERE / "cells.css").read_text(encoding="utf-8"),
    js=(HERE / "cells.js").read_text(encoding="utf-8"),
)


def cells_view(cells: Cells, *, key: str, alt: str, on_click: Callable[[int], None]) -> None:
    """Draw the cells; `on_click` gets the number of the cell that was clicked, with or without a value."""

    def clicked() -> None:
        hit = st.session_state[key]["clicked"]
        if hit is not None:
            on_click(int(hit))

    _COMPONENT(
        key=key, data={**cells, "name": key, "alt": alt}, height=_height(len(cells["rows"])), on_clicked_change=clicked
    )


def _height(rows: int) -> int:
    """What the canvas will take: told before, so that what stands below is not taken to be in view until then."""
    row = max(LEAST_ROW, min(MOST_ROW, (LEAST_HEIGHT - TOP - BELOW) / max(rows, 1)))
    return ceil(max(LEAST_HEIGHT, TOP + max(rows, 1) * row + BELOW))
