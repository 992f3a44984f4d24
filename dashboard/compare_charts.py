"""Figures of the compare page. Run A is blue, solid and round, run B vermilion, dashed and square, everywhere."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from . import charts, words
from .charts import AMBER, BLUE, GREY, VERMILION, label

__all__ = ["SHARES", "differences", "environment_gaps", "moved_environments", "over_time", "success", "term_pairs"]

SIDES = (("a", "A", BLUE, "solid", "circle"), ("b", "B", VERMILION, "dash", "square"))
PAIRED = (("before", "settings of the run", GREY, ""), ("after", "changed settings", AMBER, "/"))
SHARES = {
    "informative_share": "groups with mixed rewards (share)",
    "flat_share": "rollouts in flat groups (share)",
    "mean_variance": "mean variance of groups (of 0.25)",
    "mean_reward": "mean reward (of 1)",
}
"""Figure of `Comparison.headline` -> words with the unit."""
ROWS = (
    # column without its side, title of the axis, whether it is a share
    ("informative_share", "mixed groups", True),
    ("realised_variance", "variance seen", False),
    ("predicted_variance", "variance predicted", False),
    ("tasks", "distinct tasks so far", False),
    ("environments", "environments so far", False),
)


def differences(table: pd.DataFrame) -> go.Figure:
    """A minus B of each share with its 95 % interval, and the line of no difference."""
    known = table[table["difference"].notna()]
    names = [SHARES[name] for name in known["figure"]]
    figure = charts.empty_figure(110 + 44 * len(known), yaxis={"autorange": "reversed"}, showlegend=False)
    figure.add_scatter(
        x=known["difference"], y=names, mode="markers", marker={"size": 11, "color": BLUE, "symbol": "diamond"},
        error_x={"type": "data", "symmetric": False, "array": known["high"] - known["difference"],
                 "arrayminus": known["difference"] - known["low"], "color": BLUE, "thickness": 2},
        customdata=known[["low", "high", "steps"]].to_numpy(),
        hovertemplate="%{y}<br>A - B %{x:+.4f}, 95 % %{customdata[0]:+.4f} to %{customdata[1]:+.4f}"
        "<br>%{customdata[2]} steps of both<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=0.0, line={"dash": "dot", "width": 1.5, "color": GREY})
    return figure.update_xaxes(title="A - B, mean over steps of both (95 % interval)", zeroline=False)


def over_time(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Both runs over one axis of steps: what came of them, what they reached, and how many picks they share."""
    titles = [*(title for _, title, _ in ROWS), "picks of both"]
    figure = make_subplots(rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.025)
    for row, (column, _, _) in enumerate(ROWS, start=1):
        for side, name, colour, dash, symbol in SIDES:
            figure.add_scatter(
                x=table["step"], y=table[f"{column}_{side}"], name=f"run {name}", legendgroup=name, row=row, col=1,
                showlegend=row == 1, mode="lines+markers", line={"color": colour, "dash": dash, "width": 2},
                marker={"symbol": symbol, "size": 5}, hovertemplate=f"{name}: %{{y:.3g}}<extra></extra>",
            )  # fmt: skip
    last = len(titles)
    figure.add_bar(
        x=table["step"], y=table["shared"], name="picked by both", marker={"color": AMBER}, row=last, col=1,
        hovertemplate="picked by both: %{y:.0f}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=table["step"], y=table["shared_by_chance"], name="by chance", mode="lines", row=last, col=1,
        line={"color": GREY, "dash": "dot", "width": 2}, hovertemplate="expected by chance: %{y:.1f}<extra></extra>",
    )  # fmt: skip
    return _stacked(figure, titles, table, chosen)


def success(table: pd.DataFrame, chosen: int | None) -> go.Figure:
    """Held-out success of both runs; columns run (A or B), step, value."""
    figure = charts.empty_figure(260)
    for _, name, colour, dash, symbol in SIDES:
        own = table[table["run"] == name]
        figure.add_scatter(
            x=own["step"], y=own["value"], name=f"run {name}", mode="lines+markers",
            line={"color": colour, "dash": dash}, marker={"symbol": symbol, "size": 7},
            hovertemplate=f"{name}, step %{{x}}: %{{y:.1%}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="step", tickformat="d")
    figure.update_yaxes(title="held-out success, mean over environments", tickformat=".0%", rangemode="tozero")
    return charts.mark_step(figure, chosen)


def _stacked(figure: go.Figure, titles: list[str], table: pd.DataFrame, chosen: int | None) -> go.Figure:
    figure.update_layout(
        height=150 * len(titles), margin={"l": 10, "r": 10, "t": 10, "b": 10}, uirevision="keep", hovermode="x unified",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0}, bargap=0.15,
    )  # fmt: skip
    for row, title in enumerate(titles, start=1):
        share = row <= len(ROWS) and ROWS[row - 1][2]
        figure.update_yaxes(title=title, rangemode="tozero", automargin=True, row=row, col=1)
        if share:
            figure.update_yaxes(range=[0, 1.02], tickformat=".0%", row=row, col=1)
    for row in (2, 3):  # the same scale for what was predicted and what was seen
        figure.update_yaxes(range=[0, 0.255], row=row, col=1)
    if len(table):
        figure.update_xaxes(range=[int(table["step"].min()) - 0.6, int(table["step"].max()) + 0.6], tickformat="d")
    figure.update_xaxes(title="step", row=len(titles), col=1)
    return charts.mark_step(figure, chosen)


def environment_gaps(table: pd.DataFrame) -> go.Figure:
    """Share of all picks that each environment got, A minus B; a click gives the environment's row (customdata)."""
    figure = charts.empty_figure(110 + 22 * len(table), showlegend=False, clickmode="event+select")
    names = [label(env, 32) for env in table["env"]]
    rows = list(range(len(names)))
    figure.add_bar(
        x=table["share_difference"], y=rows, orientation="h", customdata=rows,
        marker={"color": [BLUE if gap >= 0 else VERMILION for gap in table["share_difference"]]},
        text=[f"{a:,.0f} : {b:,.0f} picks" for a, b in zip(table["picks_a"], table["picks_b"], strict=True)],
        textposition="outside", cliponaxis=False,
        hovertemplate="A - B %{x:+.1%} of all picks<br>%{text}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.4, -0.6])
    gaps = table["share_difference"].tolist()
    return figure.update_xaxes(
        title="< more to B    share of all picks, A - B    more to A >", tickformat="+.0%",
        range=charts.axis_room(0.0, *gaps) if gaps else None,
    )  # fmt: skip


def moved_environments(table: pd.DataFrame) -> go.Figure:
    """Picks of each environment in the step under both settings, with the quota under the changed ones."""
    figure = charts.empty_figure(110 + 34 * len(table), barmode="group")
    names = [label(env, 32) for env in table["env"]]
    rows = list(range(len(names)))
    for side, name, colour, pattern in PAIRED:
        figure.add_bar(
            x=table[side], y=rows, orientation="h", name=name, customdata=names,
            marker={"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay", "size": 6}},
            hovertemplate="%{customdata}: %{x} picks<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=table["limit_after"], y=rows, mode="markers", name="quota under the changed settings", customdata=names,
        marker={"symbol": "line-ns-open", "size": 15, "color": VERMILION, "line": {"width": 3}},
        hovertemplate="%{customdata}: at most %{x} picks<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[len(rows) - 0.4, -0.6])
    return figure.update_xaxes(title="picks in this step", rangemode="tozero")


def term_pairs(table: pd.DataFrame) -> go.Figure:
    """The signed terms of one task's score under both settings, side by side."""
    shown = table[(table["before"].abs() > 1e-6) | (table["after"].abs() > 1e-6)]
    figure = charts.empty_figure(110 + 46 * len(shown), barmode="group", yaxis={"autorange": "reversed"})
    for side, name, colour, pattern in PAIRED:
        figure.add_bar(
            x=shown[side], y=[words.term(label(term)) for term in shown["term"]], orientation="h", name=name,
            marker={"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay", "size": 6}},
            text=[words.signed(value) for value in shown[side]], textposition="outside", cliponaxis=False,
            hovertemplate="%{y}: %{x:+.4f}<extra></extra>",
        )  # fmt: skip
    values = [*shown["before"], *shown["after"]]
    return figure.update_xaxes(title="score units", zeroline=True, range=charts.axis_room(0.0, *values))
