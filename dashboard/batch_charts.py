"""Figures of the batch page: what changed since the step before, the pick order played, and how alike the picks are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from . import charts, words
from .charts import BLUE, GAP, GREY, VERMILION, label

__all__ = ["alike", "changes", "played"]

FRAME_MS = 350
"""How long the player stays on a pick."""
MOST_FRAMES = 64
"""Frames of the player; of more picks, several come at once."""


def changes(table: pd.DataFrame) -> go.Figure:
    """Picks an environment gained (right) or lost (left) against the step before."""
    figure = charts.empty_figure(80 + 20 * len(table), showlegend=False)
    rows = list(range(len(table)))
    figure.add_bar(
        x=table["change"], y=rows, orientation="h",
        marker={"color": [BLUE if change > 0 else VERMILION for change in table["change"]]},
        text=[f"{change:+d}" for change in table["change"]], textposition="outside", cliponaxis=False,
        customdata=np.stack([table["before"], table["picks"]], axis=-1),
        hovertemplate="%{customdata[0]} picks before, %{customdata[1]} now<extra></extra>",
    )  # fmt: skip
    names = [label(env, 32) for env in table["env"]]
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.4, -0.6])
    room = charts.axis_room(0.0, *table["change"].astype(float))
    figure.update_xaxes(title="picks more (right) or fewer (left)", range=room, zeroline=True)
    return figure


def played(picks: pd.DataFrame) -> go.Figure:
    """The batch as it was filled, pick by pick: picks of each environment so far, and what the last one was.

    `picks`: columns env, task, score and outcome, in pick order.
    """
    counts = picks["env"].value_counts()
    envs = list(counts.index)
    rows = {env: i for i, env in enumerate(envs)}
    ends = np.unique(np.linspace(1, len(picks), min(len(picks), MOST_FRAMES)).round().astype(int)).tolist()
    so_far = {end: np.bincount(picks["env"].iloc[:end].map(rows), minlength=len(envs)).tolist() for end in ends}
    figure = charts.empty_figure(230 + 18 * len(envs), showlegend=False, margin={"t": 34})
    figure.add_bar(x=so_far[ends[-1]], y=list(rows.values()), orientation="h", marker={"color": BLUE},
                   hovertemplate="%{x} picks so far<extra></extra>")  # fmt: skip
    figure.frames = [
        go.Frame(
            name=str(end),
            data=[{"type": "bar", "x": so_far[end]}],
            layout={"annotations": [_said(picks.iloc[end - 1], end)]},
            traces=[0],
        )
        for end in ends
    ]
    figure.update_layout(annotations=[_said(picks.iloc[-1], len(picks))])
    figure.update_yaxes(
        tickvals=list(rows.values()), ticktext=[label(env, 32) for env in envs], range=[len(envs) - 0.4, -0.6]
    )
    figure.update_xaxes(title="picks so far", range=[0, max(int(counts.max()), 1) * 1.05])
    figure.update_xaxes(tickformat="d", dtick=1 if counts.max() <= 12 else None)
    figure.update_layout(updatemenus=[_buttons()], sliders=[_slider(ends)])
    return figure


def _said(pick: pd.Series[Any], number: int) -> dict[str, Any]:
    text = (
        f"pick {number}: {label(pick['env'], 24)}::{label(pick['task'], 32)}, {words.outcome(pick['outcome'])}, "
        f"score {pick['score']:.3f}"
    )
    place = {"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return {**place, "text": text, "showarrow": False, "font": {"color": GREY}, "align": "left"}


def _buttons() -> dict[str, Any]:
    play = {"frame": {"duration": FRAME_MS, "redraw": True}, "fromcurrent": False, "transition": {"duration": 0}}
    stop = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate"}
    buttons = [
        {"label": "▶ Play", "method": "animate", "args": [None, play]},
        {"label": "⏸ Pause", "method": "animate", "args": [[None], stop]},
    ]
    place = {"x": 0, "y": 0, "xanchor": "left", "yanchor": "top", "pad": {"t": 62, "r": 10}}
    look = {"bgcolor": GAP, "bordercolor": GREY, "font": {"color": GREY}}
    return {"type": "buttons", "direction": "left", "buttons": buttons, "showactive": False, **place, **look}


def _slider(ends: Sequence[int]) -> dict[str, Any]:
    at_once = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate", "transition": {"duration": 0}}
    return {
        "steps": [{"label": str(end), "method": "animate", "args": [[str(end)], at_once]} for end in ends],
        "active": len(ends) - 1, "x": 0.22, "len": 0.78, "y": 0, "yanchor": "top", "pad": {"t": 40},
        "currentvalue": {"prefix": "pick ", "font": {"color": GREY}}, "font": {"color": GREY},
    }  # fmt: skip


def alike(weights: NDArray[np.float32], keys: Sequence[str]) -> go.Figure:
    """Edge weights between the picks in pick order; blank = no edge. A click gives row * picks + column."""
    size = len(keys)
    side = max(240, min(90 + 9 * size, 440))
    figure = charts.empty_figure(side, clickmode="event+select")
    figure.add_heatmap(
        z=np.where(weights > 0, weights, np.nan), x=np.arange(1, size + 1), y=np.arange(1, size + 1), zmin=0.0,
        zmax=1.0, colorscale="Cividis", hoverinfo="skip", xgap=1, ygap=1,
        colorbar={"title": {"text": "edge weight", "side": "right"}, "thickness": 14},
    )  # fmt: skip
    r, c = np.nonzero(weights)
    invisible = {"marker": {"opacity": 0}}
    figure.add_scatter(
        x=c + 1, y=r + 1, mode="markers", showlegend=False, selected=invisible, unselected=invisible,
        marker={"symbol": "square", "size": 12, "opacity": 0}, customdata=r * size + c,
        text=[
            f"pick {i + 1}: {label(keys[i])}<br>pick {j + 1}: {label(keys[j])}<br>weight {weights[i, j]:.2f}"
            for i, j in zip(r.tolist(), c.tolist(), strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    # Gaps of an axis below 10 picks would fall on halves.
    step = 1 if size <= 20 else None
    figure.update_xaxes(title="pick", range=[0.5, size + 0.5], showgrid=False, zeroline=False, dtick=step)
    figure.update_yaxes(title="pick", range=[size + 0.5, 0.5], showgrid=False, zeroline=False, dtick=step)
    return figure
