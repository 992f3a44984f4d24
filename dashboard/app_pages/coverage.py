"""Coverage: how much of the catalogue was reached, and who has been left behind?"""

from __future__ import annotations

import streamlit as st

from .. import charts, loading, parts, words
from ..frame import Frame
from ..loading import Coverage, Run

__all__ = ["show"]


def show(frame: Frame) -> None:
    """Environments and tasks seen over time against uniform draws, quota hits, and the least covered."""
    run = frame.run
    st.title("Coverage")
    if run is None:
        return
    found = loading.coverage(run)
    st.subheader(_sentence(found, run), anchor=False)
    if found.table.empty:
        st.caption("The groups of this log carry no step, so there is nothing to draw over time.")
    else:
        _lines(found, frame)
        _quotas(run)
    _left_behind(run, frame)


def _sentence(found: Coverage, run: Run) -> str:
    whole = loading.summary(run)
    last = None if found.table.empty else found.table.iloc[-1]
    return words.coverage_sentence(
        seen=whole.tasks_covered,
        tasks=whole.tasks,
        envs_seen=whole.environments_covered,
        envs=whole.environments,
        uniform_tasks=None if last is None else float(last["uniform_tasks"]),
        uniform_envs=None if last is None else float(last["uniform_environments"]),
    )


def _lines(found: Coverage, frame: Frame) -> None:
    left, right = st.columns(2, gap="medium")
    for column, place, total in (("environments", left, found.environments), ("tasks", right, found.tasks)):
        with place:
            st.markdown(f"**Distinct {column}**")
            parts.chart(
                charts.coverage(found.table, column, total, frame.step),
                found.table[["step", "picks", column, f"uniform_{column}"]],
                key=f"coverage_{column}",
                alt=f"Distinct {column} reached by step against uniform draws",
            )
    st.caption(f"Uniform expectation, {found.how}.")


def _quotas(run: Run) -> None:
    st.subheader("Quota hits", anchor=False)
    hits = loading.quota_hits(run)
    if hits.empty:
        st.caption("No environment quota turned a candidate away.")
        return
    st.caption(
        "Each square is a step in which an environment's quota turned candidates away; larger = higher shadow price."
    )
    parts.chart(charts.quota_hits(hits), hits, key="quota_hits", alt=f"{len(hits)} quota hits by environment and step")


def _left_behind(run: Run, frame: Frame) -> None:
    st.subheader("Environments, least covered first", anchor=False)
    table = loading.environments(run)
    if frame.filters.environments:
        table = table[table["env"].isin(frame.filters.environments)].reset_index(drop=True)
    shown = table.assign(reached=table["tasks_seen"] / table["tasks"])
    names = list(shown["env"])
    parts.pick_row(
        shown[["env", "reached", "tasks", "tasks_seen", "groups", "mixed", "mean_variance", "since", "quota_hits"]],
        key="left_behind",
        on_pick=lambda row: parts.go_to("graph", env=[names[row]], task=None),
        columns={
            "env": "environment",
            "reached": st.column_config.ProgressColumn("tasks reached", format="percent", min_value=0.0, max_value=1.0),
            "tasks_seen": st.column_config.NumberColumn("of these reached"),
            "mixed": st.column_config.NumberColumn("mixed groups"),
            "mean_variance": st.column_config.NumberColumn("mean observed variance", format="%.3f"),
            "since": st.column_config.NumberColumn("steps since last visit"),
            "quota_hits": st.column_config.NumberColumn("quota hits"),
        },
    )
    st.caption(f"{words.count(len(table))} environments; select one to see its graph.")
