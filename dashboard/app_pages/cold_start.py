"""Cold start: what did the scheduler know before there was data, and when did it stop guessing?"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from .. import cold_start_charts as figures
from .. import loading, parts, words
from ..frame import Frame
from ..loading import Run
from . import states

__all__ = ["guessing_sentence", "off_sentence", "show"]

LEVELS = {
    "environment_only": "any result of its environment, or nearer",
    "neighbours": "results of tasks like it, or nearer",
    "own_history": "results of its own",
}
REACHED = {"half": "half of the tasks by step", "nine_tenths": "nine tenths by step", "all_tasks": "all by step"}

BY_STATE, BY_SOURCE = "by evidence state", "by the source that told most"


def show(frame: Frame) -> None:
    """Evidence over the steps, guesses, the player, first results, errors, trust, and tasks that gave nothing."""
    run = frame.run
    st.title("Cold start")
    if run is None:
        return
    picks = loading.picks_by_state(run)
    if picks.empty:
        states.no_decisions(frame)
    else:
        st.subheader(guessing_sentence(picks), anchor=False)
        _told_by_features(run)
        _states(run, frame, picks)
        _player(run)
        _guesses(run, frame)
    _first_evidence(run, frame)
    if not picks.empty:
        _errors(run)
        _trust(run, frame)
    _stuck(run, frame)


def guessing_sentence(picks: pd.DataFrame) -> str:
    """How many picks rested on the prior alone, and since when none was chosen so."""
    whole, blind, chosen = (int(picks[column].sum()) for column in ("picks", "prior_only", "guesses"))
    if not blind:
        return "No pick rested on the prior alone."
    drawn = f", {words.count(blind - chosen)} of them uniform draws" if blind > chosen else ""
    text = f"{words.count(blind)} of {words.count(whole)} picks ({words.percent(blind / whole)}) rested on the prior "
    text += f"alone{drawn}"
    guessed = picks[picks["guesses"] > 0]
    if guessed.empty:
        return f"{text}; none of them was chosen by its score."
    last, newest = guessed["step"].iloc[-1], picks["step"].iloc[-1]
    if last == newest:
        return f"{text}; the newest step still chose {words.several(guessed['guesses'].iloc[-1], 'task')} so."
    return f"{text}; the last choice on the prior alone was at step {last} of {newest}."


def _told_by_features(run: Run) -> None:
    """Guesses that were none: nothing of the environment was known, but what the task looks like said something."""
    found = loading.guesses(run)
    most = int((found["from_features"] > 0.5).sum())
    if most:
        st.caption(
            f"For {words.count(most)} of them most of the prediction came from features all the same: what the task's "
            "text and tools say, as learned on other environments."
        )


def _states(run: Run, frame: Frame, picks: pd.DataFrame) -> None:
    tasks = loading.evidence_states(run)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**What was known of all tasks**")
        parts.chart(
            partial(figures.by_state, tasks, "tasks", frame.step), tasks, key="evidence_states",
            alt=f"Tasks of the pool by evidence state at {len(tasks)} steps", on_click=_open,
        )  # fmt: skip
    with right:
        st.markdown("**What the picks rested on**")
        parts.chart(
            partial(figures.by_state, picks, "picks", frame.step), picks, key="picks_by_state",
            alt=f"Picks by evidence state at {len(picks)} steps", on_click=_open,
        )  # fmt: skip
    estimated = int((tasks["basis"] == "estimated").sum())
    if estimated:
        st.caption(
            f"Scores of every task were not kept at {words.several(estimated, 'step')}: there the numbers are "
            "estimated from the candidates on record and the random sample of the rest."
        )
    if len(tasks) < len(picks):
        st.caption(words.size_note(len(tasks), len(picks), "steps on the left; the early ones are all there"))
    st.caption(
        "Prior only: nothing was observed in its environment yet. Environment only: other tasks of it were, none that "
        "a trusted edge ties to this one. Click a step to see its batch."
    )
    table = loading.evidence_reached(run)
    shown = pd.DataFrame({"evidence": [LEVELS[name] for name in table["evidence"]]})
    for column, title in REACHED.items():
        shown[title] = ["never" if pd.isna(step) else str(step) for step in table[column]]
    shown["tasks at the last step"] = table["tasks"].map(words.count)
    shown["of the pool"] = table["share"].map(words.percent)
    parts.short_table(shown, table, key="evidence_reached")


def _open(step: int) -> None:
    parts.go_to("batch", step=int(step))


def _player(run: Run) -> None:
    st.subheader("The first steps", anchor=False)
    found = loading.first_steps(run)
    if not len(found.envs) or not found.steps:
        st.caption("The catalogue is empty.")
        return
    st.caption(
        f"Press Play: steps {found.steps[0]} to {found.steps[-1]}, one row an environment, one cell a task (earliest "
        "picked first), coloured by what was known of it when the batch was chosen; dots are its picks, diamonds "
        "uniform draws. A blank cell is not on record."
    )
    shown = sum(map(len, found.tasks))
    if shown < found.tasks_total:
        note = f"tasks, {words.count(len(found.envs))} of {words.count(found.environments_total)} environments"
        st.caption(words.size_note(shown, found.tasks_total, f"{note}; those picked first come first"))
    table = found.picks.drop(columns=["row", "column"])
    alt = f"Player over {len(found.steps)} steps: evidence state of {shown} tasks and the picks of each step"
    parts.chart(partial(_player_figure, run), table, key="first_steps", alt=alt, rows=len(found.envs))


@st.cache_resource(max_entries=4, show_spinner=False)
def _player_figure(run: Run) -> go.Figure:
    """It takes a fifth of a second to make, and no step changes it."""
    return figures.player(loading.first_steps(run))


def _guesses(run: Run, frame: Frame) -> None:
    st.subheader("Decisions taken on the prior alone", anchor=False)
    table = _narrowed(loading.guesses(run), frame)
    if table.empty:
        st.caption("There are none.")
        return
    rows = list(zip(table["step"], table["env"], table["task"], strict=True))

    def explain(row: int) -> None:
        step, env, task = rows[row]
        parts.go_to("decision", step=int(step), task=f"{env}::{task}")

    parts.pick_row(
        table, key="guesses", on_pick=explain, rows=8,
        columns={
            "position": st.column_config.NumberColumn("order in its step"), "env": "environment",
            "drawn": "uniform draw",
            "from_features": st.column_config.NumberColumn("told by features", format="percent"),
            "predicted_mean": st.column_config.NumberColumn("predicted mean", format="%.3f"),
            "predicted": st.column_config.NumberColumn("predicted variance", format="%.3f"),
            "observed": st.column_config.NumberColumn("observed variance", format="%.3f"), "mixed": "mixed rewards",
        },
    )  # fmt: skip
    st.caption(f"{words.count(len(table))} picks; select one to see its decision.")


def _narrowed(table: pd.DataFrame, frame: Frame) -> pd.DataFrame:
    """Only the environments of the filter."""
    chosen = frame.filters.environments
    return table[table["env"].isin(chosen)].reset_index(drop=True) if chosen else table


def _first_evidence(run: Run, frame: Frame) -> None:
    st.subheader("How long each environment waited for a first result", anchor=False)
    table = _narrowed(loading.first_evidence(run), frame)
    never = int(table["tasks_seen"].eq(0).sum())
    said = f"{words.count(len(table))} environments, longest wait first"
    said += (
        f"; {words.count(never)} of them have no usable reward yet." if never else "; all have given a usable reward."
    )
    if len(table) and table["first_result"].isna().all() and never < len(table):
        said += " The groups of this log carry no step, so when is not known."
    st.caption(f"{said} Steps are those of the batch that a result answers.")
    names = list(table["env"])
    parts.pick_row(
        table, key="first_evidence", on_pick=lambda row: parts.go_to("graph", env=[names[row]], task=None), rows=8,
        columns={
            "env": "environment",
            "first_pick": st.column_config.NumberColumn("first pick at step"),
            "first_result": st.column_config.NumberColumn("first result at step"),
            "first_mixed": st.column_config.NumberColumn("first mixed group at step"),
            "wait": st.column_config.NumberColumn("steps waited"),
            "blind_picks": st.column_config.NumberColumn("picks on the prior alone"),
            "tasks_seen": st.column_config.NumberColumn("tasks with a result"),
            "share_seen": st.column_config.ProgressColumn("part of it", format="percent", min_value=0.0, max_value=1.0),
        },
    )  # fmt: skip


def _errors(run: Run) -> None:
    st.subheader("How wrong predictions were, by what they rested on", anchor=False)
    row = st.container(horizontal=True, vertical_alignment="center")
    by = row.segmented_control(
        "By", [BY_STATE, BY_SOURCE], default=BY_STATE, key="errors_by", bind="query-params", required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    draws = row.toggle("Uniform draws only", key="draws_only", bind="query-params")
    table = (loading.errors_by_source if by == BY_SOURCE else loading.errors_by_state)(run, draws_only=draws)
    if by == BY_SOURCE:
        table = table.assign(source=[words.source(source) for source in table["source"]])
    if table.empty:
        st.caption("No pick of this kind has been answered yet.")
        return
    st.caption(
        "Uniform draws are an unbiased sample, though a small one."
        if draws
        else "Picks were chosen for what was predicted of them, which biases this; uniform draws alone do not."
    )
    alt = f"Error of the predicted mean reward {by}, {len(table)} bars beside the noise of a group"
    parts.chart(partial(figures.errors, table), table, key="errors_by_state", alt=alt)
    st.caption(
        "Rewards mapped to [0, 1]. The table adds predicted and observed variance, and how good the predicted chance "
        "of a mixed group was (Brier score: 0 is perfect, 0.25 is what always saying one half gives)."
    )


def _trust(run: Run, frame: Frame) -> None:
    st.subheader("Trust in each source over time", anchor=False)
    table = loading.trust(run)
    if table.empty:
        st.caption("This scheduler learns no trust.")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**The weights in use**")
        alt = f"Learned weight of both relations and of features at {len(table)} steps"
        parts.chart(partial(figures.trust, table, frame.step), table, key="trust", alt=alt)
    with right:
        st.markdown("**What each source was worth**")
        alt = f"Nats by which the trust in use predicted better than without each source, at {len(table)} steps"
        parts.chart(partial(figures.gains, table, frame.step), table, key="trust_gains", alt=alt)
    for row in loading.transfer_off(run).to_dict("records"):
        st.caption(off_sentence(row))
    shares = loading.source_shares(run)
    if len(shares):
        st.markdown("**Where the predictions of the picks came from**")
        alt = "Share of each source in the predicted means of the picks, step by step"
        parts.chart(partial(figures.sources, shares, frame.step), shares, key="source_shares", alt=alt)


def off_sentence(row: Mapping[Hashable, Any]) -> str:
    """Why nothing is transferred along one relation: a row of `views.transfer_off`."""
    edges = f"Transfer along {row['relation']}-environment edges is"
    if not row["learned"]:
        return f"{edges} switched off by the run's settings."
    return (
        f"{edges} off at step {row['step']}: after {words.several(row['scored'], 'group')}, no weight above 0 "
        "predicted better."
    )


def _stuck(run: Run, frame: Frame) -> None:
    st.subheader("Tasks that cost budget and gave nothing", anchor=False)
    least = st.number_input("Tried at least so many times", 1, 1000, 2, key="least", bind="query-params")
    table = _narrowed(loading.stuck_tasks(run, int(least)), frame)
    if table.empty:
        st.caption("No task was tried so often without a usable or a non-lowest reward.")
        return
    spent, whole = int(table["rollouts"].sum()), loading.rollouts_seen(run)
    erroring = int((table["why"] == "erroring").sum())
    st.caption(
        f"{words.several(len(table), 'task')} took {words.count(spent)} of {words.count(whole)} rollouts: "
        f"{words.count(erroring)} never gave a usable reward and are unseen still, the others failed every time."
    )
    keys = [f"{env}::{task}" for env, task in zip(table["env"], table["task"], strict=True)]
    parts.pick_row(
        table, key="stuck_tasks", on_pick=lambda row: parts.go_to("decision", task=keys[row]), rows=8,
        columns={
            "env": "environment", "visits": st.column_config.NumberColumn("times tried"),
            "groups": st.column_config.NumberColumn("groups observed"),
            "missing": st.column_config.NumberColumn("rewards missing"),
            "ended": st.column_config.NumberColumn("released or expired"), "first_step": "first step",
            "last_step": "last step", "reasons": "why released",
        },
    )  # fmt: skip
