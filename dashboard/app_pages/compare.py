"""Compare & what-if: would another scheduler, or another setting, have chosen better?

Two runs are read as they stand; a what-if is computed, and says so (app_pages/what_if.py).
"""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import compare_charts as figures
from .. import compare_words, loading, parts, words
from ..frame import Frame
from ..loading import Comparability, Comparison, Run
from . import second_run, what_if

__all__ = ["show"]

TWO_RUNS, WHAT_IF = "Two runs", "What if"
MOST_ENVS = 40
"""Environments drawn at once; the table has all."""


def show(frame: Frame) -> None:
    """Two runs side by side, or one step decided again."""
    st.title("Compare & what-if")
    if frame.run is None:
        return
    if st.session_state.get("compare") == WHAT_IF and "compare" not in st.query_params:
        st.query_params["compare"] = WHAT_IF  # chosen by another page: the widget itself tells only what is clicked
    chosen = st.segmented_control(
        "Show", [TWO_RUNS, WHAT_IF], default=TWO_RUNS, key="compare", bind="query-params", required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    parts.values_taken("compare")
    if chosen == WHAT_IF:
        what_if.show(frame, frame.run)
    else:
        _two_runs(frame, frame.run)


def _two_runs(frame: Frame, run: Run) -> None:
    second = second_run.choose(frame, "Second run (B)", "choose a run")
    if second is None:
        if st.session_state.get("with") is None:
            alone = len(frame.runs) < 2
            text = "This folder holds no other run to compare with." if alone else "Choose a second run above."
            st.info(text, icon=":material/compare_arrows:")
        return
    try:
        with st.spinner("Comparing the runs …"):
            found, fit = loading.compare(run, second.run), loading.comparability(run, second.run)
    except EnvSchedError as error:
        st.error("The two runs cannot be compared.", icon=":material/error:")
        parts.plain_text(str(error))
        return
    parts.plain_text(f"A: {frame.name}\nB: {second.name}")
    _fit(fit)
    _headline(found)
    _success(run, second.run, frame)
    _over_time(found, frame)
    _environments(found, frame)
    _only(found, second.name)


def _fit(fit: Comparability) -> None:
    """The word, then why."""
    if fit.word == "not comparable":
        st.error("Not comparable: a difference below is no verdict on the schedulers.", icon=":material/block:")
    elif fit.word == "comparable with care":
        st.warning("Comparable with care: same tasks, batch and source, but read on.", icon=":material/warning:")
    else:
        st.success("Comparable: same tasks, same batch, same source.", icon=":material/check:")
    parts.plain_text("\n".join(f"- {reason}" for reason in (*fit.against, *fit.care, *fit.limits)))


def _headline(found: Comparison) -> None:
    st.subheader("What each came to", anchor=False)
    shares = found.headline[found.headline["kind"] == "share"]
    for row in shares.to_dict("records"):
        st.write(compare_words.headline_sentence({str(key): value for key, value in row.items()}))
    if shares["difference"].notna().any():
        parts.chart(
            partial(figures.differences, shares), found.headline, key="compare_headline", rows=len(shares),
            alt="Difference A - B of each share with its 95 % interval",
        )  # fmt: skip
    else:
        parts.table(found.headline, key="compare_headline_table")
    st.caption(compare_words.INTERVALS)
    totals = found.headline[found.headline["kind"] == "total"]
    totals = totals[totals[["a_known", "b_known"]].max(axis=1) > 0]
    st.markdown("**What they spent**")
    parts.table(
        totals[["figure", "a", "b", "a_known", "b_known", "difference", "low", "high", "steps"]],
        key="compare_totals",
        columns={
            "a": st.column_config.NumberColumn("A", format="localized"),
            "b": st.column_config.NumberColumn("B", format="localized"),
            "a_known": st.column_config.NumberColumn("told by groups of A", format="percent"),
            "b_known": st.column_config.NumberColumn("told by groups of B", format="percent"),
            "difference": st.column_config.NumberColumn("A - B, steps of both", format="localized"),
        },
    )


def _success(run: Run, other: Run, frame: Frame) -> None:
    """The curves that trainers noted, if both did: what the picks led to, where all else here is what was picked."""
    tables = [loading.measures(one).assign(run=name) for one, name in ((run, "A"), (other, "B"))]
    table = pd.concat([table[table["metric"] == "heldout_success"] for table in tables], ignore_index=True)
    if table["run"].nunique() < 2:
        return
    last = int(table.groupby("run")["step"].max().min())
    ends = [table[(table["run"] == name) & (table["step"] <= last)].iloc[-1] for name in "AB"]
    said = ", ".join(f"{end['run']} {words.percent(end['value'])} at step {end['step']}" for end in ends)
    st.subheader("Held-out success", anchor=False)
    st.write(f"On tasks that are never trained on: {said}. One seed of each, so a small gap says nothing.")
    parts.chart(
        partial(figures.success, table, frame.step), table.drop(columns="metric"), key="compare_success",
        alt="Held-out success of both runs by step",
    )  # fmt: skip


def _over_time(found: Comparison, frame: Frame) -> None:
    st.subheader("Step by step", anchor=False)
    if found.steps.empty:
        st.caption("Neither run has steps.")
        return
    both = found.steps["shared"].notna()
    if both.any():
        shared, chance = (float(found.steps.loc[both, name].mean()) for name in ("shared", "shared_by_chance"))
        st.write(
            f"On the {words.several(int(both.sum()), 'step')} that both have, they share {shared:.1f} picks a step on "
            f"average; uniform draws of as many tasks would share {chance:.1f}."
        )
    parts.chart(
        partial(figures.over_time, found.steps, frame.step), found.steps, key="compare_steps",
        alt="Both runs over one axis of steps: mixed groups, variance seen and predicted, reach, and shared picks",
    )  # fmt: skip


def _environments(found: Comparison, frame: Frame) -> None:
    st.subheader("Where their picks went", anchor=False)
    table = found.environments
    if frame.filters.environments:
        table = table[table["env"].isin(frame.filters.environments)]
    table = table.sort_values("share_difference", key=lambda gap: -gap.abs(), kind="stable").reset_index(drop=True)
    shown = table.head(MOST_ENVS)
    if len(shown) < len(table):
        st.caption(words.size_note(len(shown), len(table), "environments, largest difference first"))
    envs = table["env"].tolist()
    parts.chart(
        partial(figures.environment_gaps, shown), table, key="compare_environments", rows=len(shown),
        alt="Share of all picks by environment, A minus B",
        on_click=lambda row: parts.go_to("coverage", env=[envs[int(row)]]),
    )  # fmt: skip


def _only(found: Comparison, name: str) -> None:
    st.subheader("Tasks that only one of them picked", anchor=False)
    for side, place, run in (("a", "A", None), ("b", "B", name)):
        table = found.only[found.only["run"] == side].reset_index(drop=True)
        other = "B" if side == "a" else "A"
        away = int((~table["known"].astype(bool)).sum())
        note = f", {words.count(away)} of them not in the tasks of {other}" if away else ""
        st.markdown(f"**Only {place}: {words.count(len(table))} tasks{note}**")
        if table.empty:
            st.caption(f"{other} picked every task that {place} picked.")
            continue
        _one_sided(table.sort_values(["picks", "first_step"], ascending=[False, True]), side, run)


def _one_sided(table: pd.DataFrame, side: str, run: str | None) -> None:
    rows = [(int(step), f"{env}::{task}") for step, env, task in zip(
        table["first_step"].fillna(0), table["env"], table["task"], strict=True)]  # fmt: skip

    def open_row(row: int) -> None:
        step, key = rows[row]
        parts.go_to("decision", **({} if run is None else {"run": run}), step=step, task=key)

    parts.pick_row(
        table[["env", "task", "picks", "first_step", "groups", "mixed", "known"]],
        key=f"compare_only_{side}",
        on_pick=open_row,
        columns={"known": st.column_config.CheckboxColumn("in the other's tasks")},
        rows=8,
    )
