"""Tables to Plotly figures; pure. Labels from logs are escaped, scales are fixed, numbers carry their unit.

Plotly draws a subset of HTML and LaTeX in labels: `label` neutralises both. Colours are Okabe-Ito ones that
pass 3:1 on the light and on the dark background; outcomes and relations differ in shape or pattern too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.colors
import plotly.graph_objects as go

from . import words

__all__ = [
    "VARIANCE_RANGE",
    "axis_room",
    "composition",
    "coverage",
    "empty_figure",
    "evidence_split",
    "label",
    "logit_parts",
    "mark_step",
    "quota_hits",
    "rival_outcomes",
    "rivals",
    "step_axis",
    "steps",
    "term_totals",
    "timeline",
    "waterfall",
]

BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A8F98"
AMBER = "#B37A00"
"""Okabe-Ito's orange, darkened until it passes on white."""
SLIVER = 2.5e-3
"""A smaller share is not a pixel of a bar of 400: it stands in the table alone, not in the legend."""
SOURCE_COLOURS = {
    "own": BLUE,
    "within": GREEN,
    "cross": VERMILION,
    "environment": PURPLE,
    "features": AMBER,
    "global": GREY,
}
GAP = "rgba(128, 128, 128, 0.16)"
"""What lies behind cells: a gap must not look like a value."""
CIVIDIS = list(plotly.colors.sequential.Cividis)
"""Low to high."""
VARIANCE_RANGE = (0.0, 0.25)
"""What every variance colour scale spans, so that colours mean the same at every step."""


def label(text: object, most: int = 48) -> str:
    """A text from a log as Plotly may show it: cut, without line breaks, HTML or LaTeX."""
    flat = "".join(c if c.isprintable() else " " for c in str(text))
    cut = flat if len(flat) <= most else flat[: most - 1] + "…"
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;"), ("%{", "% {")):
        cut = cut.replace(raw, safe)
    return cut


def empty_figure(height: int, **layout: Any) -> go.Figure:
    """An empty figure with our margins (Plotly's own squeeze small charts) and stable zoom."""
    usual: dict[str, Any] = {
        "height": height,
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "uirevision": "keep",
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        "bargap": 0.15,
        "xaxis": {"automargin": True},
        "yaxis": {"automargin": True},
    }
    for name, value in layout.items():
        usual[name] = {**usual.get(name, {}), **value} if isinstance(value, dict) else value
    return go.Figure(layout=usual)  # at once: each update of a figure takes it a millisecond or more


def steps(table: pd.DataFrame, chosen: int | None = None) -> go.Figure:
    """Groups of each step by how they came out; a click gives the step (customdata)."""
    figure = empty_figure(260, barmode="stack", clickmode="event+select")
    figure.update_layout(legend={"traceorder": "normal"})
    for column, name, colour, pattern in (
        ("mixed", "mixed rewards (they teach)", BLUE, ""),
        ("flat", "all rewards the same (wasted)", GREY, "/"),
        ("waiting", "no result yet", "rgba(138,143,152,0.35)", "."),
        ("ended", "released or expired", VERMILION, "x"),
    ):
        if table[column].sum():
            marker = {"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay", "size": 6}}
            hover = f"step %{{x}}<br>{name}: %{{y}} groups<extra></extra>"
            figure.add_bar(
                x=table["step"],
                y=table[column],
                name=name,
                marker=marker,
                customdata=table["step"],
                hovertemplate=hover,
            )
    step_axis(figure, table)
    figure.update_yaxes(title="groups")
    return mark_step(figure, chosen)


def success(table: pd.DataFrame, chosen: int | None = None) -> go.Figure:
    """Held-out success over the run: mean over environments, and over tasks."""
    figure = empty_figure(260)
    for column, name, colour, dash in (
        ("value", "mean over environments", BLUE, "solid"),
        ("micro", "mean over tasks", GREY, "dash"),
    ):
        known = table[table[column].notna()]
        figure.add_scatter(
            x=known["step"], y=known[column], name=name, mode="lines+markers", line={"color": colour, "dash": dash},
            hovertemplate="step %{x}: %{y:.1%}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(title="held-out success", tickformat=".0%", rangemode="tozero")
    step_axis(figure, table)
    figure.update_xaxes(dtick=None, nticks=10)  # it is measured now and then, not at every step
    return mark_step(figure, chosen)


def step_axis(figure: go.Figure, table: pd.DataFrame) -> None:
    """Whole steps, no room for steps that never were."""
    axis: dict[str, Any] = {"title": "step", "tickformat": "d", "dtick": 1 if len(table) <= 12 else None}
    if len(table):
        axis["range"] = [int(table["step"].min()) - 0.6, int(table["step"].max()) + 0.6]
    figure.update_xaxes(axis)


def mark_step(figure: go.Figure, step: int | None) -> go.Figure:
    """A dotted line at the chosen step."""
    if step is not None:
        line = {"dash": "dot", "width": 1.5, "color": GREY}  # as `add_vline` draws it, at a fifth of its cost
        figure.add_shape(type="line", x0=step, x1=step, xref="x", y0=0, y1=1, yref="y domain", line=line)
    return figure


def composition(table: pd.DataFrame) -> go.Figure:
    """Picks of each environment, its quota and what uniform draws would take."""
    figure = empty_figure(max(100 + 22 * len(table), 170))
    names = [label(env, 32) for env in table["env"]]
    rows = list(range(len(names)))
    figure.add_bar(
        x=table["picks"], y=rows, orientation="h", name="picks", marker={"color": BLUE},
        customdata=names, hovertemplate="%{customdata}: %{x} picks<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=table["limit_picks"], y=rows, mode="markers", name="quota (most allowed)", customdata=names,
        marker={"symbol": "line-ns-open", "size": 15, "color": VERMILION, "line": {"width": 3}},
        hovertemplate="%{customdata}: at most %{x} picks a step<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=table["expected"], y=rows, mode="markers", name="uniform draws (expected)", customdata=names,
        marker={"symbol": "diamond-open", "size": 8, "color": GREY},
        hovertemplate="%{customdata}: uniform draws would take %{x:.1f}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.4, -0.6])
    figure.update_xaxes(title="picks in this step", rangemode="tozero")
    return figure


def term_totals(table: pd.DataFrame) -> go.Figure:
    """Mean signed term per pick."""
    shown = table[table["mean"].abs() > 1e-6]
    figure = empty_figure(80 + 30 * len(shown), yaxis={"autorange": "reversed"}, showlegend=False)
    colours = [BLUE if value >= 0 else VERMILION for value in shown["mean"]]
    figure.add_bar(
        x=shown["mean"], y=[words.term(label(name)) for name in shown["name"]], orientation="h",
        marker={"color": colours}, text=[words.signed(v) for v in shown["mean"]], textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:+.4f} per pick<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="score units per pick", zeroline=True, range=axis_room(0.0, *shown["mean"]))
    return figure


def axis_room(*values: float) -> list[float]:
    """An axis that holds all `values` and a written number at either end."""
    low, high = min(values), max(values)
    room = 0.22 * max(high - low, 1e-9)
    return [low - 1.3 * room if low < 0 else low, high + room]


def waterfall(terms: Mapping[str, float], score: float, cutoff: float | None) -> go.Figure:
    """How signed terms add up to the score, with the cut-off it is held against."""
    shown = {name: value for name, value in terms.items() if abs(value) > 1e-6}
    names = [words.term(label(name)) for name in shown] + ["score"]
    values = [*shown.values(), score]
    figure = empty_figure(90 + 34 * len(names), yaxis={"autorange": "reversed"}, showlegend=False)
    figure.add_waterfall(
        orientation="h", y=names, x=values, measure=["relative"] * len(shown) + ["total"],
        text=[words.signed(v) for v in shown.values()] + [words.number(score)], textposition="outside",
        cliponaxis=False,
        increasing={"marker": {"color": BLUE}}, decreasing={"marker": {"color": VERMILION}},
        totals={"marker": {"color": GREY}}, connector={"line": {"color": GREY, "width": 1}},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    if cutoff is not None:
        figure.add_vline(
            x=cutoff, line={"dash": "dash", "width": 2, "color": PURPLE}, annotation_text=f"cut-off {cutoff:.3g}",
            annotation={"y": 1.0, "yanchor": "bottom", "xanchor": "center", "font": {"color": PURPLE}},
        )  # fmt: skip
        figure.update_layout(margin={"t": 26})
    reached = np.cumsum(values[:-1]) if len(values) > 1 else np.zeros(1)
    low, high = axis_room(0.0, score, cutoff or 0.0, *reached)
    falls = [end for end, value in zip(reached, shown.values(), strict=False) if value < 0]  # written left of its end
    low = min([low, *(end - 0.2 * (high - low) for end in falls)])
    return figure.update_xaxes(title="score units", range=[low, high])


def evidence_split(shares: Mapping[str, float]) -> go.Figure:
    """Where the predicted mean came from: one bar that sums to 1."""
    # The legend stands above the bar, a source a row where the page is narrow.
    above = 22 * sum(share >= SLIVER for share in shares.values())
    figure = empty_figure(130 + above, barmode="stack", yaxis={"visible": False}, bargap=0.0)
    figure.update_layout(legend={"traceorder": "normal", "y": 1.05}, margin={"b": 50, "t": 15 + above})
    for source in [*words.SOURCES, *(name for name in shares if name not in words.SOURCES)]:
        share = shares.get(source, 0.0)
        if share >= SLIVER:
            name = words.source(label(source))
            figure.add_bar(
                x=[share], y=[0], orientation="h", name=name, marker={"color": SOURCE_COLOURS.get(source, GREY)},
                text=[words.percent(share) if share >= 0.04 else ""], textposition="inside", insidetextanchor="middle",
                textangle=0, insidetextfont={"color": "white"},
                hovertemplate=f"{name}: %{{x:.1%}}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(range=[0, 1], tickformat=".0%", title="share of the predicted mean")
    return figure


def logit_parts(names: Sequence[str], values: Sequence[float]) -> go.Figure:
    """What makes a task easier (right) or harder (left) than others, by kind of feature."""
    figure = empty_figure(90 + 26 * len(names), yaxis={"autorange": "reversed"}, showlegend=False)
    figure.add_bar(
        x=list(values), y=list(names), orientation="h",
        marker={"color": [BLUE if value >= 0 else VERMILION for value in values]},
        text=[f"{value:+.2f}" for value in values], textposition="outside", cliponaxis=False,
        hovertemplate="%{y}: %{x:+.3f} logits<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="logits: harder < 0 < easier", zeroline=True, range=axis_room(0.0, *values))
    return figure


def rival_outcomes(table: pd.DataFrame, cutoff: float | None) -> list[str]:
    """How each task of a table of rivals ended, in words."""
    margins = [None if cutoff is None else score - cutoff for score in table["score"]]
    return [words.outcome(code, margin) for code, margin in zip(table["outcome"], margins, strict=True)]


def rivals(table: pd.DataFrame, cutoff: float | None) -> go.Figure:
    """Scores of the tasks just above and below one task; the task itself is outlined."""
    figure = empty_figure(70 + 26 * len(table), yaxis={"autorange": "reversed"}, showlegend=False)
    keys = [f"{env}::{task}" for env, task in zip(table["env"], table["task"], strict=True)]
    names = [f"#{rank} {label(key, 40)}" for rank, key in zip(table["rank"], keys, strict=True)]
    colours = [BLUE if code in ("selected", "uniform_draw") else GREY for code in table["outcome"]]
    widths = [2 if this else 0 for this in table["this"]]
    figure.add_bar(
        x=table["score"], y=names, orientation="h",
        marker={"color": colours, "line": {"width": widths, "color": VERMILION}},
        text=rival_outcomes(table, cutoff), textposition="auto",
        hovertemplate="%{y}<br>score %{x:.4f}<br>%{text}<extra></extra>",
    )  # fmt: skip
    if cutoff is not None:
        figure.add_vline(x=cutoff, line={"dash": "dash", "width": 2, "color": PURPLE})
    figure.update_xaxes(title="score")
    return figure


def timeline(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Predicted and observed variance of one task over the steps, and where it was picked."""
    figure = empty_figure(260)
    known = table[table["variance"].notna()]
    figure.add_scatter(
        x=known["step"], y=known["variance"], mode="lines+markers", name="predicted variance",
        line={"color": GREY, "width": 2}, marker={"size": 4},
        customdata=np.stack([known["rank"].astype(float), known["score"].astype(float)], axis=-1),
        hovertemplate="step %{x}<br>predicted %{y:.3f}<br>rank %{customdata[0]}, score %{customdata[1]:.3f}"
        "<extra></extra>",
    )  # fmt: skip
    picked = known[known["position"].notna()]
    figure.add_scatter(
        x=picked["step"], y=picked["variance"], mode="markers", name="picked",
        marker={"symbol": "triangle-up", "size": 13, "color": BLUE},
        hovertemplate="step %{x}: picked<extra></extra>",
    )  # fmt: skip
    seen = table[table["observed"].notna()]
    symbols = ["circle" if mixed else "circle-open" for mixed in seen["mixed"].eq(True)]
    figure.add_scatter(
        x=seen["step"], y=seen["observed"], mode="markers", name="observed variance (open: flat group)",
        marker={"symbol": symbols, "size": 11, "color": VERMILION, "line": {"width": 2}},
        hovertemplate="step %{x}<br>observed %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(range=[-0.012, 0.262], title="reward variance")
    step_axis(figure, table)
    return mark_step(figure, chosen)


def coverage(table: pd.DataFrame, column: str, total: int, chosen: int | None) -> go.Figure:
    """Distinct tasks or environments reached so far, uniform draws beside it, the whole as a line."""
    figure = empty_figure(280)
    hover = "step %{x}: %{y:,.1f}<extra></extra>"
    figure.add_scatter(
        x=table["step"], y=table[column], name="this run", mode="lines+markers", line={"color": BLUE, "width": 3},
        hovertemplate=hover,
    )  # fmt: skip
    figure.add_scatter(
        x=table["step"], y=table[f"uniform_{column}"], name="uniform draws (expected)", mode="lines",
        line={"color": GREY, "width": 2, "dash": "dash"}, hovertemplate=hover,
    )  # fmt: skip
    most = float(max(table[column].max(), table[f"uniform_{column}"].max())) if len(table) else 0.0
    if total <= 1.6 * most:
        figure.add_hline(y=total, line={"dash": "dot", "color": GREY}, annotation_text=f"all {total:,}")
    figure.update_yaxes(title=f"distinct {column} so far", rangemode="tozero")
    step_axis(figure, table)
    return mark_step(figure, chosen)


def quota_hits(table: pd.DataFrame) -> go.Figure:
    """Where and when an environment's quota turned candidates away; larger = higher shadow price."""
    envs = list(dict.fromkeys(table["env"]))
    names = [label(env, 32) for env in envs]
    figure = empty_figure(110 + 20 * len(envs), showlegend=False)
    place = {env: i for i, env in enumerate(envs)}
    price = table["price"].to_numpy(dtype=float)
    size = 8 + 14 * price / max(float(price.max(initial=0.0)), 1e-12)
    figure.add_scatter(
        x=table["step"], y=[place[env] for env in table["env"]], mode="markers",
        marker={"symbol": "square", "size": size, "color": VERMILION, "opacity": 0.85},
        text=[
            f"{label(hit.env)}<br>step {hit.step}: {hit.blocked} turned away at {hit.used} of {hit.limit_picks} picks"
            f"<br>shadow price {hit.price:.3f}"
            for hit in table.itertuples()
        ],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.4, -0.6])
    figure.update_xaxes(title="step", tickformat="d")
    return figure
