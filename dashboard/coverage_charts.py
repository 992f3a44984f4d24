"""Figures of the coverage page: visits by environment and step, evenness against uniform draws, kinds, quotas."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from . import charts
from .cells_view import Cells
from .charts import AMBER, BLUE, GREY, PURPLE, VERMILION
from .loading import Visits

__all__ = ["evenness", "kinds_over_time", "quotas_over_time", "raster"]

BAND = "rgba(138, 143, 152, 0.28)"
"""Where simulated uniform draws lie."""


def raster(found: Visits, chosen: int | None, *, unit: str) -> Cells:
    """Visits of every environment by step; blank = none. A click gives row * columns + column.

    `unit`: "picks" or "groups". The scale begins at 1 and ends at the most of any cell of the run, whatever is shown.
    """
    most = int(found.visits.max(initial=1))
    return Cells(
        rows=list(found.envs),
        columns=list(found.steps),
        span=found.span,
        values=[count or None for count in found.visits.ravel().tolist()],
        scale=(0.0 if most == 1 else 1.0, float(most)),
        ticks=sorted({1.0, float(max(most // 2, 1)), float(most)}),
        colours=charts.CIVIDIS,
        unit=unit,
        digits=0,
        blank="",
        dots=[],
        dotted="",
        chosen=chosen,
    )


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
