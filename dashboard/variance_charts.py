"""Figures of the variance page: cells by step with what is not known told apart, calibration, dots with intervals.

A cell without a value is grey, crossed where there is room, and named in the legend: never a colour of the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from . import charts
from .charts import BLUE, GREY, VERMILION, label
from .cold_start_charts import STATE_COLOURS

__all__ = ["NO_DATA", "calibration", "cells", "dots"]

NO_DATA = "rgba(150, 150, 150, 0.38)"
"""A cell without a value: light on a light page, dark on a dark one, and in neither theme a colour of the scales."""
MOST_CROSSES, MOST_CROSSED_COLUMNS = 1_500, 60
"""Cells without a value, and columns, up to which each such cell is crossed too: there is room for it."""
SYMBOLS = {"prior only": "x", "environment only": "diamond", "neighbours": "square", "own history": "circle"}
ALL_PICKS = "all picks"


def cells(
    rows: Sequence[str],
    columns: Sequence[int],
    values: NDArray[np.float32],
    *,
    span: int,
    kind: str,
    chosen: int | None = None,
    picks: NDArray[np.int32] | None = None,
) -> go.Figure:
    """Rows by steps, coloured by variance; a click gives row * columns + column.

    `picks` [R, S] puts a dot on cells whose task was picked, where results are shown only if there is none yet. The
    legend names what is not known.
    """
    figure = charts.variance_grid(rows, columns, values, span=span, kind=kind)
    _without(figure, columns, values, kind)
    if picks is not None:
        waiting = kind != "predicted"
        _dotted(figure, columns, (picks > 0) & ~np.isfinite(values) if waiting else picks > 0, waiting=waiting)
    figure.update_layout(plot_bgcolor="rgba(0,0,0,0)", showlegend=True, margin={"t": 34})
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    return charts.mark_step(figure, chosen if chosen in range_of(columns, span) else None)


def range_of(columns: Sequence[int], span: int) -> range:
    """Steps that the columns stretch over."""
    return range(columns[0], columns[-1] + span) if len(columns) else range(0)


def _without(figure: go.Figure, columns: Sequence[int], values: NDArray[np.float32], kind: str) -> None:
    """Cells without a value: grey, told on hovering, crossed while they are few."""
    said = "no prediction on record" if kind == "predicted" else "not observed"
    blank = ~np.isfinite(values)
    if not blank.any():
        return
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name=f"{said} (no data)", hoverinfo="skip",
        marker={"symbol": "square-x", "size": 12, "color": NO_DATA, "line": {"width": 1, "color": GREY}},
    )  # fmt: skip
    few = int(blank.sum()) <= MOST_CROSSES and len(columns) <= MOST_CROSSED_COLUMNS
    figure.add_heatmap(
        z=np.where(blank, np.float32(1.0), np.float32(np.nan)), x=list(columns), y=np.arange(len(values)),
        colorscale=[[0, NO_DATA], [1, NO_DATA]], showscale=False, xgap=1, ygap=1,
        texttemplate="x" if few else None, textfont={"color": GREY, "size": 9},
        hovertemplate=f"step %{{x}}: {said}<extra></extra>",
    )  # fmt: skip


def _dotted(figure: go.Figure, columns: Sequence[int], picked: NDArray[np.bool_], *, waiting: bool) -> None:
    """Dots on picked cells; a click on one is a click on its cell."""
    r, c = np.nonzero(picked)
    if not len(r):
        return
    name = "picked, no result" if waiting else "picked"
    figure.add_scatter(
        x=np.asarray(columns)[c] if len(columns) else c, y=r, mode="markers", name=name,
        marker={"symbol": "circle", "size": 5, "color": "#FFFFFF", "line": {"width": 1, "color": "#000000"}},
        customdata=r * len(columns) + c, hoverinfo="skip", selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
    )  # fmt: skip


def calibration(table: pd.DataFrame, *, by_state: bool) -> go.Figure:
    """Predicted against observed variance in bins, with 95 % intervals; on the line predictions are right on average.

    One curve of all picks, or one per evidence state.
    """
    figure = charts.empty_figure(380)
    most = float(np.nanmax([0.05, *table["predicted"], *table["high"]])) * 1.06
    figure.add_scatter(
        x=[0, most], y=[0, most], mode="lines", name="right on average", hoverinfo="skip",
        line={"color": GREY, "dash": "dash", "width": 1.5},
    )  # fmt: skip
    for state, part in table.groupby("state", sort=False):
        if (state == ALL_PICKS) == by_state:
            continue
        colour = STATE_COLOURS.get(str(state).replace(" ", "_"), BLUE)
        figure.add_scatter(
            x=part["predicted"], y=part["observed"], name=str(state), mode="lines+markers+text",
            line={"color": colour, "width": 2},
            marker={"size": 9, "symbol": SYMBOLS.get(str(state), "circle"), "color": colour},
            error_y=_bars(part, "observed", colour),
            text=[f"{n:,}" for n in part["groups"]] if not by_state else None, textposition="bottom right",
            cliponaxis=False,
            customdata=part[["groups", "low", "high", "from_predicted", "to_predicted"]].to_numpy(),
            hovertemplate=f"{state}: %{{customdata[0]:,}} groups<br>predicted %{{x:.3f}} "
            "(%{customdata[3]:.3f} to %{customdata[4]:.3f})"
            "<br>observed %{y:.3f} (95 %: %{customdata[1]:.3f} to %{customdata[2]:.3f})<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="predicted variance", range=[0, most])
    figure.update_yaxes(title="observed variance", range=[-0.05 * most, most], zeroline=False)
    return figure


def _bars(part: pd.DataFrame, value: str, colour: str) -> dict[str, Any]:
    above, below = part["high"] - part[value], part[value] - part["low"]
    look = {"color": colour, "thickness": 1.5, "width": 4}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def dots(table: pd.DataFrame, value: str, *, title: str, ends: tuple[float, float], line: float | None) -> go.Figure:
    """One row an evidence state: a dot with its 95 % interval, and a diamond for what right predictions would show.

    `ends`: of the axis; `line`: a value that is drawn across, for instance the nominal level.
    """
    figure = charts.empty_figure(130 + 42 * len(table))
    rows = list(range(len(table)))
    figure.add_scatter(
        x=table["right"], y=rows, mode="markers", name="right predictions",
        marker={"symbol": "diamond-open", "size": 13, "color": VERMILION, "line": {"width": 2}},
        hovertemplate="right predictions would show %{x:.3f}<extra></extra>",
    )  # fmt: skip
    bars = _bars(table, value, BLUE)
    figure.add_scatter(
        x=table[value], y=rows, mode="markers", name="this run (95 %)", error_x=bars,
        marker={"size": 10, "color": BLUE},
        customdata=table[["groups", "low", "high"]].to_numpy(),
        hovertemplate="%{x:.3f}, 95 % interval %{customdata[1]:.3f} to %{customdata[2]:.3f}"
        "<br>%{customdata[0]:,} groups<extra></extra>",
    )  # fmt: skip
    names = [f"{label(s)}<br>{n:,} groups" for s, n in zip(table["state"], table["groups"], strict=True)]
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.5, -0.5], zeroline=False)
    figure.update_xaxes(title=title, range=list(ends), zeroline=line is None)
    if line is not None:
        figure.add_vline(
            x=line, line={"dash": "dot", "width": 1.5, "color": GREY}, annotation_text=f"nominal {line:.0%}",
            annotation={"y": 0.0, "yanchor": "bottom", "xanchor": "right", "font": {"color": GREY}},
        )  # fmt: skip
    return figure
