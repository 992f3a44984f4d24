"""Figures of the coverage page: visits by environment and step, evenness against uniform draws, kinds, quotas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from . import charts
from .charts import AMBER, BLUE, GREY, PURPLE, VERMILION, label
from .loading import Visits

__all__ = ["evenness", "kinds_over_time", "quotas_over_time", "raster"]

BAND = "rgba(138, 143, 152, 0.28)"
"""Where simulated uniform draws lie."""


def raster(found: Visits, chosen: int | None, *, unit: str) -> go.Figure:
    """Visits of every environment by step; blank = none. A click gives row * columns + column.

    `unit`: "picks" or "groups". The scale begins at 1 and ends at the most of any cell of the run, whatever is shown.
    """
    names = [label(env, 32) for env in found.envs]
    rows, columns = np.arange(len(names)), list(found.steps)
    figure = charts.empty_figure(max(260, min(100 + 15 * len(names), 1700)), clickmode="event+select")
    counts = found.visits.astype(np.float32)
    most = int(counts.max(initial=1.0))
    ends = {"tickvals": sorted({1, max(most // 2, 1), most}), "title": {"text": unit, "side": "right"}}
    figure.add_heatmap(
        z=np.where(counts > 0, counts, np.nan), x=columns, y=rows, zmin=0 if most == 1 else 1, zmax=most,
        colorscale="Cividis", hoverinfo="skip", xgap=1, ygap=1,
        colorbar={**ends, "thickness": 14, "lenmode": "pixels", "len": 160, "y": 1.0, "yanchor": "top"},
    )  # fmt: skip
    r, c = np.nonzero(counts)
    scatter = go.Scatter if len(r) <= charts.MOST_WEBGL_FREE else go.Scattergl
    invisible = {"marker": {"opacity": 0}}
    at = [_steps(int(columns[j]), found.span) for j in c]
    figure.add_trace(
        scatter(
            x=np.asarray(columns)[c] if columns else c, y=r, mode="markers", showlegend=False,
            selected=invisible, unselected=invisible, customdata=r * len(columns) + c,
            marker={"symbol": "square", "size": 14, "opacity": 0},
            text=[f"{names[i]}<br>{s}: {n:.0f} {unit}" for i, s, n in zip(r, at, counts[r, c], strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False)
    if columns:
        ends_at = [columns[0] - found.span / 2, columns[-1] + found.span / 2]
        figure.update_xaxes(range=ends_at, dtick=1 if len(columns) <= 12 and found.span == 1 else None)
    title = "step" if found.span == 1 else f"step (each column spans {found.span})"
    figure.update_xaxes(title=title, tickformat="d", showgrid=False, zeroline=False)
    return charts.mark_step(figure, chosen)


def _steps(step: int, span: int) -> str:
    return f"step {step}" if span == 1 else f"steps {step} to {step + span - 1}"


def evenness(table: pd.DataFrame, column: str, most: int | None, chosen: int | None) -> go.Figure:
    """Gini coefficient or effective number of environments over the steps, uniform draws as a band beside it."""
    figure = charts.empty_figure(280)
    if table[f"uniform_{column}"].notna().any():
        for side, fill in (("high", None), ("low", "tonexty")):
            figure.add_scatter(
                x=table["step"], y=table[f"uniform_{column}_{side}"], mode="lines", line={"width": 0}, fill=fill,
                fillcolor=BAND, name="uniform draws, 90 %", showlegend=side == "low",
                hoverinfo="skip",
            )  # fmt: skip
        figure.add_scatter(
            x=table["step"], y=table[f"uniform_{column}"], mode="lines", name="uniform draws, mean",
            line={"color": GREY, "dash": "dash", "width": 2},
            hovertemplate="step %{x}: %{y:.2f} under uniform draws<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=table["step"], y=table[column], mode="lines+markers", name="this run", line={"color": BLUE, "width": 3},
        marker={"size": 5}, hovertemplate="step %{x}: %{y:.2f}<extra></extra>",
    )  # fmt: skip
    if column == "gini":
        figure.update_yaxes(title="Gini, 0 = even", range=[0, 1.02])
    else:
        figure.update_yaxes(title="effective number", rangemode="tozero")
        if most is not None:
            figure.add_hline(y=most, line={"dash": "dot", "color": GREY}, annotation_text=f"all {most:,}")
    charts.step_axis(figure, table)
    return charts.mark_step(figure, chosen)


def kinds_over_time(table: pd.DataFrame, total: int, what: str, chosen: int | None) -> go.Figure:
    """Distinct kinds of tasks reached so far against uniform draws."""
    figure = charts.empty_figure(280)
    hover = "step %{x}: %{y:,.1f}<extra></extra>"
    for column, name, line in (
        ("kinds", "this run", {"color": BLUE, "width": 3}),
        ("uniform_kinds", "uniform draws (expected)", {"color": GREY, "width": 2, "dash": "dash"}),
    ):
        mode = "lines+markers" if column == "kinds" else "lines"
        figure.add_scatter(x=table["step"], y=table[column], name=name, mode=mode, line=line, hovertemplate=hover)
    figure.add_hline(y=total, line={"dash": "dot", "color": GREY}, annotation_text=f"all {total:,}")
    figure.update_yaxes(title=f"distinct {what} so far", rangemode="tozero")
    charts.step_axis(figure, table)
    return charts.mark_step(figure, chosen)


def quotas_over_time(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Environments at their limit, turning candidates away, or below their smallest share, at each step."""
    figure = charts.empty_figure(260)
    for column, name, colour, dash, symbol in (
        ("at_limit", "at their limit", AMBER, "solid", "circle"),
        ("hits", "turned candidates away", VERMILION, "dash", "square"),
        ("below_floor", "below their smallest share", PURPLE, "dot", "diamond"),
    ):
        figure.add_scatter(
            x=table["step"], y=table[column], name=name, mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2, "shape": "hv"}, marker={"size": 6, "symbol": symbol},
            hovertemplate=f"step %{{x}}: %{{y}} environments {name}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(title="environments", rangemode="tozero", tickformat="d")
    charts.step_axis(figure, table)
    return charts.mark_step(figure, chosen)
