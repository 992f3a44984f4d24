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
from .cells_view import Cells
from .charts import BLUE, GREY, VERMILION, label
from .cold_start_charts import STATE_COLOURS

__all__ = ["calibration", "cells", "dots"]

DIFFERENCE = ["#2166AC", "#F7F7F7", "#B35806"]
"""Below, at and above 0."""
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
) -> Cells:
    """Rows by steps, coloured by variance; a click gives row * columns + column.

    `picks` [R, S] puts a dot on cells whose task was picked, where results are shown only if there is none yet. The
    legend names what is not known.
    """
    known = np.isfinite(values)
    waiting = kind != "predicted"
    dotted = np.zeros_like(known) if picks is None else (picks > 0) & ~known if waiting else picks > 0
    difference = kind == "difference"
    return Cells(
        rows=list(rows),
        columns=list(columns),
        span=span,
        values=[round(value, 4) if ok else None for value, ok in zip(values.ravel().tolist(), known.flat, strict=True)],
        scale=(-0.25, 0.25) if difference else charts.VARIANCE_RANGE,
        ticks=[-0.25, -0.1, 0.0, 0.1, 0.25] if difference else [0.0, 0.05, 0.1, 0.15, 0.2, 0.25],
        colours=DIFFERENCE if difference else charts.CIVIDIS,
        unit="observed - predicted" if difference else f"{kind} variance",
        digits=3,
        blank="no prediction on record" if kind == "predicted" else "not observed",
        dots=np.flatnonzero(dotted).tolist(),
        dotted="picked, no result" if waiting else "picked",
        chosen=chosen,
    )


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
