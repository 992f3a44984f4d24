"""Variance: where does the scheduler expect signal, and is it right?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from .. import loading, parts, words
from .. import variance_charts as figures
from ..frame import Frame
from ..loading import Filters, Grid, Run, TaskGrid
from . import states

__all__ = ["grid_caption", "rank_sentence", "show", "within_sentence"]

Kind = Literal["predicted", "observed", "difference"]
VIEWS: dict[str, Kind] = {
    "Predicted": "predicted",
    "Observed": "observed",
    "Observed - predicted": "difference",
}
TOGETHER: dict[str, Literal["mean", "largest"]] = {"Mean": "mean", "Largest": "largest"}
SPANS = {"as few as fit": 0, "1 step": 1, "2 steps": 2, "5 steps": 5, "10 steps": 10, "20 steps": 20, "50 steps": 50}
SAID = {
    "predicted": "{how} predicted variance over all tasks of the environment, as each batch was chosen.",
    "observed": "{how} variance of the groups observed for each step.",
    "difference": "Observed minus predicted variance of the same tasks, the prediction as a group of that size shows "
    "it; {how_of_it}.",
}


def show(frame: Frame) -> None:
    """Environments by steps, or the tasks of one; then whether predictions were right."""
    run = frame.run
    st.title("Variance")
    if run is None:
        return
    if not frame.steps:
        if not loading.summary(run).groups:
            return states.no_step(frame)
        st.info("The groups of this log carry no step: one row per environment instead.", icon=":material/info:")
        return _environments(run, frame.filters)
    decided = not loading.composition(run, frame.steps[-1]).empty
    if not decided:
        states.no_decisions(frame)
    st.subheader(_sentence(run, frame.filters), anchor=False)
    kind, together, span = _controls(decided=decided)
    if len(frame.filters.environments) == 1:
        _tasks(run, frame, kind, together, span)
    else:
        _grid(run, frame, kind, together, span)
    if decided:
        _truth(run, frame.filters)
    return None


def _controls(*, decided: bool) -> tuple[Kind, Literal["mean", "largest"], int]:
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
    kind: Kind = "observed"
    if decided:
        with row:
            chosen = st.segmented_control(
                "Show", list(VIEWS), default="Predicted", key="view", bind="query-params", required=True
            )
        kind = VIEWS[str(chosen or "Predicted")]
    with row:
        how = st.segmented_control(
            "What a cell holds", list(TOGETHER), default="Mean", key="together", bind="query-params", required=True,
            help="A mean hides the one task that is still worth its rollouts; the largest shows it.",
        )  # fmt: skip
        span = st.selectbox("Steps a column", list(SPANS), key="span", bind="query-params", width=160)
    return kind, TOGETHER[str(how or "Mean")], SPANS[str(span)]


def grid_caption(kind: str, together: str, span: int, *, filtered: bool) -> str:
    """What the cells hold, in which unit, and what the colours span."""
    how = "Largest" if together == "largest" else "Mean"
    of_it = "the one farthest from 0" if together == "largest" else "their mean"
    scale = "-0.25 to 0.25" if kind == "difference" else "0 to 0.25"
    text = SAID[kind].format(how=how, how_of_it=of_it)
    if span > 1:
        text += f" Each column puts {span} steps together."
    if filtered:
        text += " Only tasks that pass the filters for outcome and evidence at that step count."
    return f"{text} Rewards mapped to [0, 1]; colours span {scale} at every step."


def _filtered(filters: Filters) -> bool:
    return bool(filters.outcomes or filters.states)


# ---------------------------------------------------------------------- environments


def _grid(run: Run, frame: Frame, kind: Kind, together: Literal["mean", "largest"], span: int) -> None:
    grid = loading.variance_grid(run, kind, filters=frame.filters, span=span, together=together)
    st.caption(
        f"{grid_caption(kind, together, grid.span, filtered=_filtered(frame.filters))} Click a cell for the tasks of "
        "its environment at that step."
    )
    matching = len(frame.filters.environments) or grid.total
    if len(grid.envs) < matching:
        st.caption(words.size_note(len(grid.envs), matching, "environments, most visited first"))
    if not np.isfinite(grid.values).any():
        st.info("No cell has a value: nothing passes the filters, or nothing has come yet.", icon=":material/info:")
    parts.cells(
        figures.cells(grid.envs, grid.steps, grid.values, span=grid.span, kind=kind, chosen=frame.step),
        lambda: _long(grid.envs, grid.steps, grid.values, grid.groups, "environment"),
        key=f"grid_{kind}",
        alt=f"{together} {kind} variance of {len(grid.envs)} environments over {len(grid.steps)} columns of steps",
        on_click=lambda cell: _open_environment(grid, int(cell)),
    )


def _open_environment(grid: Grid, cell: int) -> None:
    """A clicked cell: the tasks of its environment, at its step."""
    row, column = divmod(cell, len(grid.steps))
    parts.go_to("variance", step=grid.steps[column], env=[grid.envs[row]])


def _long(
    rows: Sequence[str], steps: Sequence[int], values: NDArray[Any], groups: NDArray[Any], name: str
) -> pd.DataFrame:
    """The grid as rows, cells without a value left out."""
    r, c = np.nonzero(np.isfinite(values))
    return pd.DataFrame(
        {
            name: [rows[i] for i in r.tolist()],
            "step": [steps[i] for i in c.tolist()],
            "variance": values[r, c].astype(float),
            "groups": groups[r, c],
        }
    )


def _sentence(run: Run, filters: Filters) -> str:
    found = loading.variance_means(run, filters)
    seen, said, shown = (words.variance(found[name]) for name in ("observed", "predicted", "shown"))
    narrowed = " that pass the filters" if filters.environments or _filtered(filters) else ""
    if found["observed"] is None:
        return f"No pick{narrowed} has been answered yet." if narrowed else "No group has been observed yet."
    if found["predicted"] is None:
        narrowed = " of the chosen environments" if filters.environments else ""
        return f"Observed groups{narrowed} had a mean variance of {seen} (of at most 0.25)."
    return (
        f"Picks{narrowed} were predicted a mean variance of {said}, of which groups of their size show {shown} on "
        f"average; they showed {seen}."
    )


# ---------------------------------------------------------------------- the tasks of one environment


def _tasks(run: Run, frame: Frame, kind: Kind, together: Literal["mean", "largest"], span: int) -> None:
    env = frame.filters.environments[0]
    grid = loading.task_grid(run, env, kind, filters=frame.filters, span=span, together=together)
    row = st.container(horizontal=True, vertical_alignment="center")
    with row:
        parts.plain_text(f"Tasks of {env}, step {frame.step} marked.")
        st.button(
            "All environments", icon=":material/arrow_back:", key="all_environments",
            on_click=lambda: parts.go_to("variance", env=[]),
        )  # fmt: skip
        st.button(
            "Graph of this environment", icon=":material/hub:", key="its_graph",
            on_click=lambda: parts.go_to("graph", env=[env], task=None),
        )  # fmt: skip
    what = grid_caption(kind, together, grid.span, filtered=_filtered(frame.filters))
    what = what.replace(" over all tasks of the environment", " of the task")
    dots = "Dots: the task was picked." if kind == "predicted" else "Dots: picked, but no result."
    st.caption(f"{what} {dots} Click a cell for the decision on that task.")
    if len(grid.tasks) < grid.total:
        st.caption(words.size_note(len(grid.tasks), grid.total, "tasks of the environment, most visited first"))
    if not np.isfinite(grid.values).any():
        st.info("No cell has a value: nothing passes the filters, or nothing has come yet.", icon=":material/info:")
    parts.cells(
        figures.cells(
            grid.tasks, grid.steps, grid.values, span=grid.span, kind=kind, chosen=frame.step, picks=grid.picks
        ),
        lambda: _long(grid.tasks, grid.steps, grid.values, grid.groups, "task"),
        key=f"tasks_{kind}",
        alt=f"{kind} variance of {len(grid.tasks)} tasks over {len(grid.steps)} columns of steps",
        on_click=lambda cell: _open_task(grid, int(cell)),
    )


def _open_task(grid: TaskGrid, cell: int) -> None:
    """A clicked cell: the decision on its task, at the last pick of the column or its first step."""
    row, column = divmod(cell, len(grid.steps))
    picked = int(grid.picked_at[row, column])
    step = picked if picked >= 0 else grid.steps[column]
    parts.go_to("decision", step=step, task=f"{grid.env}::{grid.tasks[row]}")


# ---------------------------------------------------------------------- was it right?


def _truth(run: Run, filters: Filters) -> None:
    st.subheader("Was the prediction right?", anchor=False)
    curve = loading.calibration_curve(run, filters)
    if curve.empty:
        st.info(
            "Fewer than 16 observed picks pass the filters: too few to tell a curve, a correlation or a share.",
            icon=":material/info:",
        )
        return
    narrowed = " that pass the filters" if filters.environments or _filtered(filters) else ""
    picked = "" if filters.outcomes == ("uniform_draw",) else (
        " Picks were chosen because much was predicted of them, so that what they show tends to lie below it; filter "
        "Outcome to uniform_draw for those chosen at random."
    )  # fmt: skip
    st.caption(
        f"Observed picks{narrowed}, by what their prediction rested on; predicted variance as groups of that size show "
        f"it.{picked}"
    )
    left, right = st.columns(2, gap="medium")
    for place, by_state, title in ((left, False, "Calibration, all picks"), (right, True, "By evidence state")):
        with place:
            st.markdown(f"**{title}**")
            parts.chart(
                partial(figures.calibration, curve, by_state=by_state),
                curve[(curve["state"] != figures.ALL_PICKS) == by_state],
                key="calibration_by_state" if by_state else "calibration",
                alt=f"Predicted against observed variance in bins, {'by evidence state' if by_state else 'all picks'}",
            )
    left, right = st.columns(2, gap="medium")
    with left:
        _ranks(run, filters)
    with right:
        _within(run, filters)


def _ranks(run: Run, filters: Filters) -> None:
    st.markdown("**Order: rank correlation of predicted and observed variance**")
    table = loading.rank_correlations(run, filters)
    st.caption(rank_sentence(table))
    parts.chart(
        partial(figures.dots, table, "correlation", title="rank correlation", ends=_ends(table), line=None),
        table, key="rank_correlations", rows=len(table),
        alt=f"Rank correlation with 95 % interval for {len(table)} evidence states",
    )  # fmt: skip


def _ends(table: pd.DataFrame) -> tuple[float, float]:
    lowest = float(table["low"].min()) if table["low"].notna().any() else 0.0
    return min(lowest - 0.05, -0.05), 1.0


def rank_sentence(table: pd.DataFrame) -> str:
    """How well picks were ordered, beside what right predictions would show."""
    row = table.iloc[0]
    if pd.isna(row["correlation"]):
        return "All predictions, or all observations, are the same: there is no order to judge."
    return (
        f"Spearman's {words.number(row['correlation'], 2)} over {words.count(row['groups'])} groups, where 1 is the "
        "same order; had every prediction been exactly right, groups this small would show "
        f"{words.number(row['right'], 2)}. States whose predictions do not differ have none."
    )


def _within(run: Run, filters: Filters) -> None:
    st.markdown("**Honesty: group means inside their 90 % interval**")
    table = loading.interval_coverage(run, filters)
    group = table[table["interval"] == "group"].reset_index(drop=True)
    st.caption(within_sentence(table))
    parts.chart(
        partial(figures.dots, group, "inside", title="share inside", ends=(0.0, 1.03), line=0.9),
        table, key="interval_coverage", rows=len(group),
        alt=f"Share of observed group means inside the 90 % interval for {len(group)} evidence states",
    )  # fmt: skip


def within_sentence(table: pd.DataFrame) -> str:
    """How many group means lay inside, and what the other interval is."""
    group, task = (table[(table["interval"] == name)].iloc[0] for name in ("group", "task"))
    text = (
        f"{words.percent(group['inside'])} against 90 % nominal; since group means come in whole steps, right "
        f"predictions would show {words.percent(group['right'])}. Of the narrower interval of the task's own mean: "
        f"{words.percent(task['inside'])} (right predictions: {words.percent(task['right'])}; in the table)."
    )
    if group["binary"] < 1.0:
        text += (
            f" What right predictions would show supposes rewards of 0 and 1, as {words.percent(group['binary'])} of "
            "these groups have."
        )
    return text


def _environments(run: Run, filters: Filters) -> None:
    """A log without steps: one row an environment, or the tasks of the one that was chosen."""
    if len(filters.environments) == 1:
        return _stepless_tasks(run, filters)
    table = loading.environments(run)[["env", "tasks", "groups", "mixed", "mean_variance"]]
    if filters.environments:
        table = table[table["env"].isin(filters.environments)]
    table = table.sort_values("mean_variance", ascending=False).reset_index(drop=True)
    names = list(table["env"])
    st.caption("Select an environment for its tasks.")
    parts.pick_row(
        table,
        key="environment_variance",
        on_pick=lambda row: parts.go_to("variance", env=[names[row]]),
        columns={
            "env": "environment",
            "mixed": st.column_config.NumberColumn("mixed groups"),
            "mean_variance": st.column_config.ProgressColumn(
                "mean observed variance, of 0.25", format="%.3f", min_value=0.0, max_value=0.25
            ),
        },
    )
    return None


def _stepless_tasks(run: Run, filters: Filters) -> None:
    table, total = loading.tasks(run, None, filters)
    keys = [f"{env}::{task}" for env, task in zip(table["env"], table["task"], strict=True)]
    row = st.container(horizontal=True, vertical_alignment="center")
    with row:
        parts.plain_text(f"Tasks of {filters.environments[0]}.")
        st.button(
            "All environments", icon=":material/arrow_back:", key="all_environments",
            on_click=lambda: parts.go_to("variance", env=[]),
        )  # fmt: skip
    st.caption(f"{words.size_note(len(table), total, 'tasks')} Select one for what is known of it.")
    parts.pick_row(
        table[["task", "groups", "mixed"]], key="stepless_tasks",
        on_pick=lambda row: parts.go_to("decision", task=keys[row]),
        columns={"groups": "groups observed", "mixed": "mixed groups"},
    )  # fmt: skip
