"""Figures of the overview page: what each step brought."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from . import charts
from .charts import BLUE, GREEN, GREY, VERMILION

__all__ = ["rewards", "variances"]


def rewards(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Mean reward and share of mixed groups of each step."""
    figure = _lines(
        table,
        {
            "mean_reward": ("mean reward, mapped to [0, 1]", GREEN, "solid"),
            "informative_share": ("groups with mixed rewards", BLUE, "dash"),
        },
        "%{y:.1%}",
        chosen,
    )
    return figure.update_yaxes(range=[0, 1.02], tickformat=".0%", title="share")


def variances(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Observed variance of each step's groups, beside what was predicted of them."""
    figure = _lines(
        table,
        {
            "mean_variance": ("observed", VERMILION, "solid"),
            "predicted_variance": ("predicted, as groups of that size show it", GREY, "dash"),
        },
        "%{y:.3f}",
        chosen,
    )
    return figure.update_yaxes(rangemode="tozero", title="variance, at most 0.25")


def _lines(table: pd.DataFrame, shown: dict[str, tuple[str, str, str]], value: str, chosen: int | None) -> go.Figure:
    figure = charts.empty_figure(260)
    for column, (name, colour, dash) in shown.items():
        known = table[table[column].notna()]
        if len(known):
            figure.add_scatter(
                x=known["step"], y=known[column], name=name, mode="lines+markers", marker={"size": 4},
                line={"color": colour, "dash": dash, "width": 2},
                hovertemplate=f"step %{{x}}: {value}<extra>{name}</extra>",
            )  # fmt: skip
    charts.step_axis(figure, table)
    return charts.mark_step(figure, chosen)
