"""Variance: where does the scheduler expect signal, and is it right?"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import streamlit as st

from .. import charts, loading, parts, words
from ..frame import Frame
from ..loading import Grid, Run
from . import states

__all__ = ["show"]

VIEWS: dict[str, Literal["predicted", "observed", "difference"]] = {
    "Predicted": "predicted",
    "Observed": "observed",
    "Observed - predicted": "difference",
}
SAID = {
    "predicted": "Mean predicted variance over all tasks of the environment, as each batch was chosen.",
    "observed": "Mean variance of the groups observed for each step. Grey: nothing was observed, which is not 0.",
    "difference": "Observed minus predicted variance of the same tasks, the prediction as a group of that size shows "
    "it. Grey: nothing was observed.",
}


def show(frame: Frame) -> None:
    """Environments by steps, predicted or observed; a click opens the environment's graph at that step."""
    run = frame.run
    st.title("Variance")
    if run is None:
        return
    if not frame.steps:
        st.info("The groups of this log carry no step: one row per environment instead.", icon=":material/info:")
        _environments(run)
        return
    if loading.composition(run, frame.steps[-1]).empty:
        states.no_decisions(frame)
        kind = VIEWS["Observed"]
    else:
        kind = VIEWS[_view()]
    grid = loading.variance_grid(run, kind, frame.filters.environments)
    st.subheader(_sentence(run, kind), anchor=False)
    scale = "-0.25 to 0.25" if kind == "difference" else "0 to 0.25"
    st.caption(
        f"{SAID[kind]} Rewards mapped to [0, 1]; colours span {scale} at every step. Click a cell for its graph."
    )
    if len(grid.envs) < grid.total:
        st.caption(words.size_note(len(grid.envs), grid.total, "environments, most visited first"))
    parts.chart(
        charts.variance_grid(grid.envs, grid.steps, grid.values, span=grid.span, kind=kind),
        _long(grid),
        key=f"grid_{kind}",
        alt=f"{kind} variance of {len(grid.envs)} environments over {len(grid.steps)} steps",
        on_click=lambda cell: _open(grid, int(cell)),
    )


def _view() -> str:
    chosen = st.segmented_control(
        "Show", list(VIEWS), default="Predicted", key="view", bind="query-params", required=True
    )
    return str(chosen or "Predicted")


def _open(grid: Grid, cell: int) -> None:
    """A clicked cell: its environment at its step, on the graph page."""
    row, column = divmod(cell, len(grid.steps))
    parts.go_to("graph", step=grid.steps[column], env=[grid.envs[row]], task=None)


def _sentence(run: Run, kind: str) -> str:
    found = loading.summary(run)
    seen, said = words.variance(found.mean_variance), words.variance(found.predicted_variance)
    if found.predicted_variance is None:
        return f"Observed groups had a mean variance of {seen} (of at most 0.25)."
    shown = words.variance(found.predicted_shown)
    return (
        f"Picks were predicted a mean variance of {said}, of which groups of their size show {shown} on average; "
        f"they showed {seen}."
    )


def _long(grid: Grid) -> pd.DataFrame:
    """The grid as rows, cells without a value left out."""
    r, c = np.nonzero(np.isfinite(grid.values))
    return pd.DataFrame(
        {
            "environment": [grid.envs[i] for i in r],
            "step": [grid.steps[i] for i in c],
            "variance": grid.values[r, c].astype(float),
            "groups": grid.groups[r, c],
        }
    )


def _environments(run: Run) -> None:
    table = loading.environments(run)[["env", "tasks", "groups", "mixed", "mean_variance"]]
    parts.table(
        table.sort_values("mean_variance", ascending=False),
        key="environment_variance",
        columns={"mean_variance": st.column_config.ProgressColumn(format="%.3f", min_value=0.0, max_value=0.25)},
    )
