"""Figures of the cold start page: evidence states over the steps, learned trust, errors, and the player.

An evidence state has one colour everywhere, and its place in the stack (least known at the bottom) tells it too.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from . import charts, words
from .charts import AMBER, BLUE, GAP, GREEN, GREY, PURPLE, VERMILION, label
from .loading import FirstSteps

__all__ = ["STATE_WORDS", "by_state", "errors", "gains", "player", "sources", "trust"]

STATE_WORDS = {
    "prior_only": "prior only",
    "environment_only": "environment only",
    "neighbours": "neighbours",
    "own_history": "own history",
    "not_known": "not on record",
}
"""Column of a table -> words, least known first."""
STATE_COLOURS = {
    "prior_only": GREY,
    "environment_only": PURPLE,
    "neighbours": GREEN,
    "own_history": BLUE,
    "not_known": GAP,
}
STATE_PATTERNS = {"prior_only": "/", "environment_only": ".", "neighbours": "-", "own_history": "", "not_known": "x"}
TRUSTED = {
    # column -> words, colour, dash
    "tau_within": ("neighbours, same environment", GREEN, "solid"),
    "tau_cross": ("neighbours, other environments", VERMILION, "dash"),
    "features_share": ("features (share of the environment's weight)", AMBER, "dot"),
}
GAINED = {
    "gain_within": ("neighbours, same environment", GREEN, "solid"),
    "gain_cross": ("neighbours, other environments", VERMILION, "dash"),
    "gain_features": ("features", AMBER, "dot"),
}
FRAME_MS = 900
"""How long the player stays on a step."""
MOST_BARS = 500
"""Bars drawn side by side; of more steps, neighbouring ones are put together."""


def by_state(table: pd.DataFrame, what: str, chosen: int | None) -> go.Figure:
    """Tasks or picks (`what`) of each step by evidence state, stacked; a click gives the step (customdata)."""
    table, span = _together(table, "sum")
    figure = charts.empty_figure(280, barmode="stack", clickmode="event+select", bargap=0.0 if len(table) > 40 else 0.1)
    figure.update_layout(legend={"traceorder": "normal"})
    for column, name in STATE_WORDS.items():
        if column in table and table[column].sum() > 0:
            pattern = {"shape": STATE_PATTERNS[column], "fillmode": "overlay", "size": 6, "fgopacity": 0.35}
            figure.add_bar(
                x=table["step"], y=table[column], name=name, customdata=table["step"],
                marker={"color": STATE_COLOURS[column], "pattern": pattern, "line": {"width": 0}},
                hovertemplate=f"step %{{x}}<br>{name}: %{{y:,.0f}} {what}<extra></extra>",
            )  # fmt: skip
    charts.step_axis(figure, table)
    _say_span(figure, span)
    figure.update_yaxes(title=what, rangemode="tozero")
    return charts.mark_step(figure, chosen)


def _together(table: pd.DataFrame, how: str) -> tuple[pd.DataFrame, int]:
    """Rows of so many neighbouring steps as one, under the first of them, that at most `MOST_BARS` remain."""
    span = -(-len(table) // MOST_BARS)
    if span <= 1:
        return table, 1
    numbers = table.select_dtypes("number").drop(columns="step")
    bins = pd.Series(range(len(table)), index=table.index) // span
    return numbers.groupby(bins).agg(how).assign(step=table.groupby(bins)["step"].first()), span


def _say_span(figure: go.Figure, span: int) -> None:
    if span > 1:
        figure.update_xaxes(title=f"step (each bar puts {span} together)")


def trust(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """The learned weight of each relation, and the share of the environment's weight that features have."""
    figure = _lines(table, TRUSTED, "%{y:.3g}")
    figure.update_yaxes(title="weight, 0 = off", rangemode="tozero")
    return charts.mark_step(figure, chosen)


def gains(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """How much better the trust in use predicted than the best one without a source, in nats."""
    figure = _lines(table, GAINED, "%{y:+.2f} nats")
    figure.update_yaxes(title="nats ahead", zeroline=True)
    return charts.mark_step(figure, chosen)


def _lines(table: pd.DataFrame, shown: dict[str, tuple[str, str, str]], value: str) -> go.Figure:
    figure = charts.empty_figure(260)
    for column, (name, colour, dash) in shown.items():
        known = table[table[column].notna()]
        if len(known):
            figure.add_scatter(
                x=known["step"], y=known[column], name=name, mode="lines" if len(known) > 1 else "markers",
                line={"color": colour, "dash": dash, "width": 2.5, "shape": "hv"},
                hovertemplate=f"step %{{x}}: {value}<extra>{name}</extra>",
            )  # fmt: skip
    charts.step_axis(figure, table)
    return figure


def sources(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Where the predicted means of the picks came from at each step; a step's shares sum to 1."""
    wide, span = _together(table.pivot(index="step", columns="source", values="share").reset_index(), "mean")
    figure = charts.empty_figure(280, barmode="stack", bargap=0.0 if len(wide) > 40 else 0.1)
    figure.update_layout(legend={"traceorder": "normal"})
    for source in [*reversed(words.SOURCES), *sorted(set(table["source"]) - set(words.SOURCES))]:
        if source in wide and wide[source].max() >= charts.SLIVER:
            name = words.source(label(source))
            figure.add_bar(
                x=wide["step"], y=wide[source], name=name,
                marker={"color": charts.SOURCE_COLOURS.get(source, GREY), "line": {"width": 0}},
                hovertemplate=f"step %{{x}}: %{{y:.1%}}<extra>{name}</extra>",
            )  # fmt: skip
    charts.step_axis(figure, wide)
    _say_span(figure, span)
    figure.update_yaxes(title="share of the predicted mean", tickformat=".0%", range=[0, 1])
    return charts.mark_step(figure, chosen)


def errors(table: pd.DataFrame) -> go.Figure:
    """Error of the predicted mean by what it rested on, beside what a perfect prediction would still show.

    The first column says what it rested on: an evidence state, or a source in words.
    """
    figure = charts.empty_figure(260, barmode="group")
    kinds = ["<br>".join(wrap(label(str(kind)), 18)) for kind in table.iloc[:, 0]]
    names = [f"{kind}<br>{groups:,} groups" for kind, groups in zip(kinds, table["groups"], strict=True)]
    for column, name, colour, pattern in (
        ("mean_error", "error of the predicted mean", BLUE, ""),
        ("noise", "of a perfect prediction (noise of the group)", GREY, "/"),
    ):
        figure.add_bar(
            x=names, y=table[column], name=name, text=[words.number(value, 2) for value in table[column]],
            textposition="outside", cliponaxis=False, marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate=f"%{{x}}<br>{name}: %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    highest = table[["mean_error", "noise"]].max().max()
    figure.update_yaxes(title="reward, root mean square", range=[0, 1.2 * highest if highest > 0 else 1.0])
    return figure


def player(found: FirstSteps) -> go.Figure:
    """Every task as a cell coloured by its evidence state, the picks on it, one frame a step; starts at the first."""
    rows = list(range(len(found.envs)))
    figure = charts.empty_figure(300 + 15 * len(rows), plot_bgcolor=GAP)
    figure.add_traces([_cells(found), _picked(found, found.steps[0])])
    figure.frames = [
        # A frame says only what changes: the rest stays as the first traces have it.
        go.Frame(name=str(step), data=[{"type": "heatmap", "z": _codes(found, i)}, _picked(found, step)], traces=[0, 1])
        for i, step in enumerate(found.steps)
    ]
    names = [label(env, 32) for env in found.envs]
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False)
    widest = max(map(len, found.tasks), default=1)
    figure.update_xaxes(range=[-0.5, widest - 0.5], showgrid=False, zeroline=False, showticklabels=False, ticks="")
    figure.update_layout(updatemenus=[_buttons()], sliders=[_slider(found.steps)], showlegend=False)
    return figure


def _cells(found: FirstSteps) -> go.Heatmap:
    colours = [STATE_COLOURS[column] for column in list(STATE_WORDS)[:4]]
    scale = [[edge / 4, colour] for i, colour in enumerate(colours) for edge in (i, i + 1)]
    return go.Heatmap(
        z=_codes(found, 0), text=[[label(task, 40) for task in row] for row in found.tasks],
        zmin=-0.5, zmax=3.5, colorscale=scale, xgap=1, ygap=1, hovertemplate="%{text}<extra></extra>",
        colorbar={"tickvals": [0, 1, 2, 3], "ticktext": list(STATE_WORDS.values())[:4],
                  "orientation": "h", "thickness": 12, "len": 1.0, "y": 1.0, "yanchor": "bottom", "ypad": 4},
    )  # fmt: skip


def _codes(found: FirstSteps, at: int) -> list[list[int | None]]:
    """States of one step in plain lists: an animation hands them on as they are, and a gap must stay one."""
    return [[state if state >= 0 else None for state in row] for row in found.states[at].tolist()]


def _picked(found: FirstSteps, step: int) -> go.Scatter:
    """Black on white rings: seen on every state's colour in both themes."""
    picks = found.picks[(found.picks["step"] == step) & found.picks["row"].notna()]
    return go.Scatter(
        x=picks["column"].astype(int).tolist(), y=picks["row"].astype(int).tolist(), mode="markers",
        marker={
            "symbol": ["diamond" if drawn else "circle" for drawn in picks["drawn"]], "size": 8, "color": "#000000",
            "line": {"width": 1.5, "color": "#FFFFFF"},
        },
        text=[
            f"{label(pick.env)}::{label(pick.task)}<br>pick {pick.position} on {pick.state}"
            + (", a uniform draw" if pick.drawn else "")
            for pick in picks.itertuples()
        ],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _buttons() -> dict[str, Any]:
    play = {"frame": {"duration": FRAME_MS, "redraw": True}, "fromcurrent": True, "transition": {"duration": 0}}
    stop = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate"}
    buttons = [
        {"label": "Play", "method": "animate", "args": [None, play]},
        {"label": "Pause", "method": "animate", "args": [[None], stop]},
    ]
    place = {"x": 0, "y": 0, "xanchor": "left", "yanchor": "top", "pad": {"t": 128}}  # below the slider
    look = {"bgcolor": GAP, "bordercolor": GREY, "font": {"color": GREY}}
    return {"type": "buttons", "direction": "left", "buttons": buttons, "showactive": False, **place, **look}


def _slider(steps: tuple[int, ...]) -> dict[str, Any]:
    at_once = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate", "transition": {"duration": 0}}
    return {
        "steps": [{"label": str(s), "method": "animate", "args": [[str(s)], at_once]} for s in steps],
        "x": 0, "len": 1, "y": 0, "yanchor": "top", "pad": {"t": 40},
        "currentvalue": {"prefix": "step ", "font": {"color": GREY}}, "font": {"color": GREY},
    }  # fmt: skip
