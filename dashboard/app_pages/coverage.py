"""Coverage: how much of the catalogue was reached, how evenly, and who has been left behind?"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st

from .. import charts, loading, parts, words
from .. import coverage_charts as figures
from ..frame import Frame
from ..loading import Balance, Coverage, Kinds, Run, Visits
from . import states

__all__ = ["balance_sentence", "quota_sentence", "reached_sentence", "show"]

WINDOWS = {"All steps so far": 0, "Last 10": 10, "Last 50": 50}
KINDS: dict[str, tuple[Literal["pattern", "tools"], str]] = {
    "Execution patterns": ("pattern", "execution patterns"),
    "Tool sets": ("tools", "tool sets"),
}
UNKNOWN = {"pattern": "no call of theirs is known", "tools": "the catalogue names no tool for them"}


def show(frame: Frame) -> None:
    """Who is visited when, tasks and environments against uniform draws, evenness, kinds of tasks, quotas."""
    run = frame.run
    st.title("Coverage")
    if run is None:
        return
    envs = frame.filters.environments
    found = loading.coverage(run, envs)
    decided = bool(loading.summary(run).picks)
    if not found.tasks:
        return states.no_step(frame)
    st.subheader(_sentence(found, frame, run), anchor=False)
    if envs:
        st.caption(f"Only the {words.several(found.environments, 'environment')} of the filter count, of all picks.")
    if found.table.empty:
        st.info(
            "The groups of this log carry no step, so there is nothing to draw over time."
            if loading.summary(run).groups
            else "Nothing has been picked yet; this page fills by itself.",
            icon=":material/info:",
        )
    else:
        _raster(run, frame, decided=decided)
        _lines(found, frame)
        _evenness(run, frame)
    _kinds(run, frame)
    _left_behind(run, frame)
    if decided:
        _quotas(run, frame)
    return None


def _sentence(found: Coverage, frame: Frame, run: Run) -> str:
    row = _row(found.table, frame.step)
    if row is None:
        whole = loading.environments(run)
        whole = whole[whole["env"].isin(frame.filters.environments)] if frame.filters.environments else whole
        return words.coverage_sentence(
            seen=int(whole["tasks_seen"].sum()), tasks=found.tasks, envs_seen=int((whole["tasks_seen"] > 0).sum()),
            envs=found.environments, uniform_tasks=None, uniform_envs=None,
        )  # fmt: skip
    return reached_sentence(row, found.tasks, found.environments)


def _row(table: pd.DataFrame, step: int | None) -> pd.Series[Any] | None:
    """The last row up to the chosen step; None where there is none."""
    before = table if step is None else table[table["step"] <= step]
    return None if before.empty else before.iloc[-1]


def reached_sentence(row: pd.Series[Any], tasks: int, envs: int) -> str:
    """How much was reached by a step, against uniform draws of as many picks."""
    said = words.coverage_sentence(
        seen=int(row["tasks"]), tasks=tasks, envs_seen=int(row["environments"]), envs=envs,
        uniform_tasks=float(row["uniform_tasks"]), uniform_envs=float(row["uniform_environments"]),
    )  # fmt: skip
    return f"By step {int(row['step'])}, {said}"


# ---------------------------------------------------------------------- over time


def _raster(run: Run, frame: Frame, *, decided: bool) -> None:
    st.markdown("**Who is visited when**")
    grid = loading.visit_grid(run, frame.filters.environments)
    unit = "picks" if decided else "groups"
    opens = "its picks of that step" if decided else "what was observed of its tasks"
    st.caption(
        f"{unit.capitalize()} of each environment at each step; blank: none, which is a true 0. Those without a visit "
        f"for longest stand on top. Click a cell for {opens}."
    )
    if len(grid.envs) < grid.total:
        st.caption(words.size_note(len(grid.envs), grid.total, "environments, longest unvisited first"))
    parts.cells(
        figures.raster(grid, frame.step, unit=unit),
        lambda: _visits_table(grid),
        key="visits",
        alt=f"{unit} of {len(grid.envs)} environments over {len(grid.steps)} columns of steps",
        on_click=lambda cell: _open(grid, int(cell), decided=decided),
    )


def _visits_table(grid: Visits) -> pd.DataFrame:
    r, c = np.nonzero(grid.visits)
    return pd.DataFrame(
        {
            "environment": [grid.envs[i] for i in r.tolist()],
            "step": [grid.steps[j] for j in c.tolist()],
            "visits": grid.visits[r, c],
        }
    )


def _open(grid: Visits, cell: int, *, decided: bool) -> None:
    """A clicked cell: the environment's picks in the batch of the last visit, or its observed tasks."""
    row, column = divmod(cell, len(grid.steps))
    step = int(grid.last_at[row, column])
    parts.go_to("batch" if decided else "variance", step=step, env=[grid.envs[row]])


def _lines(found: Coverage, frame: Frame) -> None:
    left, right = st.columns(2, gap="medium")
    for column, place, total in (("environments", left, found.environments), ("tasks", right, found.tasks)):
        with place:
            st.markdown(f"**Distinct {column}**")
            parts.chart(
                partial(charts.coverage, found.table, column, total, frame.step),
                found.table[["step", "picks", column, f"uniform_{column}"]],
                key=f"coverage_{column}",
                alt=f"Distinct {column} reached by step against uniform draws",
            )
    st.caption(f"What uniform draws of as many picks a step are expected to reach, {found.how}.")


def _evenness(run: Run, frame: Frame) -> None:
    st.subheader("How evenly environments are visited", anchor=False)
    said = st.segmented_control(
        "Over", list(WINDOWS), default="All steps so far", key="window", bind="query-params", required=True
    )
    window = WINDOWS[str(said or "All steps so far")]
    found = loading.visit_balance(run, window, frame.filters.environments)
    row = _row(found.table, frame.step)
    if row is None:
        st.caption("No environment was visited up to this step.")
        return
    st.caption(balance_sentence(row, found, window))
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Effective number of environments**")
        _balance_chart(found, "effective", frame.step)
    with right:
        st.markdown("**Gini coefficient of visits**")
        _balance_chart(found, "gini", frame.step)
    st.caption(
        "Effective number: exp of the entropy of the environments' shares, as many equally visited ones would be as "
        "diverse. Few picks are uneven whoever makes them, hence the band: "
        + (
            f"{words.count(found.simulated)} simulated runs of uniform draws of as many picks."
            if found.simulated
            else "at this size it would cost too much to simulate, so it is left out."
        )
    )


def balance_sentence(row: pd.Series[Any], found: Balance, window: int) -> str:
    """How even visits are at a step, beside uniform draws."""
    over = f"Over the last {window} steps to step" if window else "Up to step"
    text = (
        f"{over} {int(row['step'])}, {words.several(row['visits'], 'visit')} went to "
        f"{words.count(row['environments'])} of {words.several(found.environments, 'environment')}, as evenly as to "
        f"{row['effective']:.1f} equal ones"
    )
    if found.simulated:
        text += (
            f"; uniform draws give {row['uniform_effective']:.1f} ({row['uniform_effective_low']:.1f} to "
            f"{row['uniform_effective_high']:.1f})"
        )
    return f"{text}. Gini coefficient {row['gini']:.2f}."


def _balance_chart(found: Balance, column: str, step: int | None) -> None:
    names = ["step", "visits", "environments", column, *(f"uniform_{column}{end}" for end in ("", "_low", "_high"))]
    what = "Gini coefficient" if column == "gini" else "Effective number of environments"
    parts.chart(
        partial(figures.evenness, found.table, column, found.environments, step),
        found.table[names],
        key=f"balance_{column}",
        alt=f"{what} at {len(found.table)} steps, uniform draws beside it",
    )


# ---------------------------------------------------------------------- kinds of tasks


def _kinds(run: Run, frame: Frame) -> None:
    st.subheader("Which kinds of tasks", anchor=False)
    chosen = st.segmented_control(
        "Kinds", list(KINDS), default="Execution patterns", key="kinds", bind="query-params", required=True,
        help="Execution patterns are the cells of the scheduler's pattern coverage: clusters of the roles that a "
        "task's calls play. A tool set is the set of tools that a task offers.",
    )  # fmt: skip
    by, what = KINDS[str(chosen or "Execution patterns")]
    found = loading.kinds_reached(run, by, frame.filters.environments)
    if found.table.empty:
        st.info(
            "No execution pattern is known: the run holds no graph, or its tasks have no calls on record."
            if by == "pattern"
            else "The catalogue names no tools.",
            icon=":material/info:",
        )
        return
    st.caption(_kinds_sentence(found, what))
    if not found.reach.empty:
        parts.chart(
            partial(figures.kinds_over_time, found.reach, len(found.table), what, frame.step),
            found.reach, key=f"kinds_{by}", alt=f"Distinct {what} reached by step against uniform draws",
        )  # fmt: skip
    parts.table(
        found.table, key=f"kinds_table_{by}",
        columns={
            "kind": what[:-1],
            "tasks_seen": st.column_config.NumberColumn("tasks reached"),
            "expected": st.column_config.NumberColumn("visits uniform draws would give", format="%.1f"),
            "ratio": st.column_config.NumberColumn("visits / that", format="%.2f"),
            "first_step": "first visited at step", "last_step": "last visited at step",
            "groups": "groups observed", "mixed": "mixed groups",
        },
    )  # fmt: skip


def _kinds_sentence(found: Kinds, what: str) -> str:
    reached = int((found.table["visits"] > 0).sum())
    text = f"{words.count(reached)} of {words.count(len(found.table))} {what} were visited; the least come first."
    if found.unknown:
        text += f" {words.count(found.unknown)} of {words.count(found.tasks)} tasks have none: {UNKNOWN[found.by]}."
    return text


# ---------------------------------------------------------------------- left behind


def _left_behind(run: Run, frame: Frame) -> None:
    st.subheader("Environments, fewest visits against uniform draws first", anchor=False)
    against = loading.visits_by_environment(run)[["env", "visits", "expected", "ratio"]]
    table = against.merge(loading.environments(run), on="env")
    if frame.filters.environments:
        table = table[table["env"].isin(frame.filters.environments)].reset_index(drop=True)
    shown = table.assign(reached=table["tasks_seen"] / table["tasks"])
    names = list(shown["env"])
    visits = ["env", "ratio", "visits", "expected", "reached"]
    counts = ["tasks", "tasks_seen", "groups", "mixed", "mean_variance", "since", "quota_hits"]
    parts.pick_row(
        shown[[*visits, *counts]],
        key="left_behind",
        on_pick=lambda row: parts.go_to("coverage", env=[names[row]]),
        columns={
            "env": "environment",
            "ratio": st.column_config.NumberColumn("visits / uniform draws", format="%.2f"),
            "expected": st.column_config.NumberColumn("visits uniform draws would give", format="%.1f"),
            "reached": st.column_config.ProgressColumn("tasks reached", format="percent", min_value=0.0, max_value=1.0),
            "tasks_seen": st.column_config.NumberColumn("of these reached"),
            "mixed": st.column_config.NumberColumn("mixed groups"),
            "mean_variance": st.column_config.NumberColumn("mean observed variance", format="%.3f"),
            "since": st.column_config.NumberColumn(
                "steps since last visit", help="At the run's last step; empty: never visited, or no steps on record."
            ),
            "quota_hits": st.column_config.NumberColumn("quota hits"),
        },
    )
    _ways_on(frame, len(table))


def _ways_on(frame: Frame, shown: int) -> None:
    """From the environments shown to all of them, or to their tasks."""
    row = st.container(horizontal=True, vertical_alignment="center")
    with row:
        st.caption(f"{words.several(shown, 'environment')}; select one, and the whole page is about it alone.")
        if frame.filters.environments:
            st.button(
                "All environments", icon=":material/arrow_back:", key="all_environments",
                on_click=lambda: parts.go_to("coverage", env=[]),
            )  # fmt: skip
            st.button(
                "Their tasks over the steps", icon=":material/grid_on:", key="their_tasks",
                on_click=lambda: parts.go_to("variance"),
            )  # fmt: skip


# ---------------------------------------------------------------------- quotas


def _quotas(run: Run, frame: Frame) -> None:
    st.subheader("Quotas", anchor=False)
    envs = frame.filters.environments
    use, over_time = loading.quota_use(run), loading.quota_steps(run, envs)
    if envs:
        use = use[use["env"].isin(envs)].reset_index(drop=True)
    if use.empty:
        st.caption("No quota is on record: this scheduler keeps none, or nothing was picked here.")
        return
    st.caption(quota_sentence(use))
    if over_time[["at_limit", "hits", "below_floor"]].to_numpy().any():
        parts.chart(
            partial(figures.quotas_over_time, over_time, frame.step), over_time, key="quota_steps",
            alt=f"Environments at their limit, turning candidates away, below their share, at {len(over_time)} steps",
        )  # fmt: skip
    hits = loading.quota_hits(run)
    hits = hits[hits["env"].isin(envs)] if envs else hits
    if len(hits):
        st.markdown("**Where candidates were turned away**")
        st.caption("Each square is a step in which a quota turned candidates away; larger = higher shadow price.")
        alt = f"{len(hits)} quota hits by environment and step"
        parts.chart(partial(charts.quota_hits, hits), hits, key="quota_hits", alt=alt, rows=hits["env"].nunique())
    parts.table(
        use, key="quota_use",
        columns={
            "env": "environment", "steps": "steps on record",
            "limit_picks": st.column_config.NumberColumn("most allowed a step"),
            "at_limit": st.column_config.NumberColumn("steps at the limit"),
            "hits": st.column_config.NumberColumn("steps it turned candidates away"),
            "blocked": st.column_config.NumberColumn("candidates turned away"),
            "price": st.column_config.NumberColumn("highest shadow price, score units", format="%.3f"),
            "floor_picks": st.column_config.NumberColumn("fewest wanted a step"),
            "below_floor": st.column_config.NumberColumn("steps below that"),
            "over_limit": st.column_config.NumberColumn("steps above the limit"),
        },
    )  # fmt: skip
    given_up = loading.relaxations(run)
    given_up = given_up[given_up["env"].isin([*envs, ""])] if envs else given_up
    if len(given_up):
        st.markdown("**Limits that could not be kept**")
        shown = given_up.rename(columns={"limit_picks": "wanted", "used": "done", "env": "environment"})
        parts.table(shown, key="relaxations")


def quota_sentence(use: pd.DataFrame) -> str:
    """What quotas amounted to."""
    blocked, hits = int(use["blocked"].sum()), int((use["hits"] > 0).sum())
    reached = int((use["at_limit"] > 0).sum())
    text = f"{words.count(reached)} of {words.several(len(use), 'environment')} reached their limit at some step"
    if blocked:
        text += f"; {words.count(hits)} of them turned {words.several(blocked, 'candidate')} away"
    else:
        text += "; no quota turned a candidate away"
    floors, short = int((use["floor_picks"] > 0).sum()), int((use["below_floor"] > 0).sum())
    if floors:
        text += f". {words.several(floors, 'has', 'have')} a smallest share; "
        text += f"{words.count(short)} fell short of it at some step"
    return f"{text}."
