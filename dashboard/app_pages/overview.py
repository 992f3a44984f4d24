"""Overview: is the run healthy, and what did scheduling buy?"""

from __future__ import annotations

from functools import partial

import streamlit as st

from .. import charts, loading, parts, words
from .. import overview_charts as figures
from ..frame import Frame
from ..loading import Run, Summary
from . import start, states

__all__ = ["alert_sentence", "show"]

ALERT_PAGES = {
    "stuck": "cold_start",
    "never_visited": "coverage",
    "concentrated": "coverage",
    "below_floor": "coverage",
    "fewer_mixed": "variance",
    "lower_reward": "cold_start",
    "nearly_flat": "variance",
    "unreadable": "log_health",
}
"""Where an alert can be looked into."""
KINDS = {
    "import": "an imported log",
    "replay": "a replay over recorded groups: it says nothing about how the choice would have changed the policy",
    "audit": "an audit: the log's own order, and what would have been picked",
    "live": "a live run",
    "shadow": "a shadow run: nothing in the trainer changed",
}


def show(frame: Frame) -> None:
    """Headline numbers, what came of each step, and the runs of the folder."""
    run = frame.run
    if run is None:
        return
    st.title("Overview")
    found = loading.summary(run)
    uniform = loading.comparator(run)
    _what(frame, found)
    _progress(found)
    st.subheader(
        words.overview_sentence(
            share=found.informative_share,
            uniform=uniform.share,
            wasted=found.wasted_rollouts,
            rollouts=found.rollouts,
            picks=found.picks,
            waiting=found.open,
        ),
        anchor=False,
    )
    _headline(found, uniform.share, uniform.how)
    _alerts(run)
    if not found.picks:
        states.no_decisions(frame)
    _success(frame, run)
    _steps(frame, run)
    _trend(frame, run)
    _runs(frame)
    start.offer()


def _what(frame: Frame, found: Summary) -> None:
    kind = KINDS.get(found.kind, found.kind)
    scheduler = f", scheduler {found.scheduler}" if found.scheduler else ""
    row = frame.runs[frame.runs["name"] == frame.name].iloc[0]
    simulated = "; its rewards are simulated" if row["simulated"] else ""
    parts.plain_text(f"{frame.name}: {kind}{scheduler}{simulated}.")


def _progress(found: Summary) -> None:
    """How far a run that was started for a number of steps has come."""
    if found.kind == "live" and found.planned_steps and found.steps < found.planned_steps:
        text = f"Step {words.count(found.steps)} of {words.count(found.planned_steps)}"
        st.progress(found.steps / found.planned_steps, text=text)


def _success(frame: Frame, run: Run) -> None:
    """The curve that a trainer noted, if it did."""
    table = loading.measures(run)
    table = table[table["metric"] == "heldout_success"]
    if table.empty:
        return
    st.subheader("Held-out success", anchor=False)
    first, last = table.iloc[0], table.iloc[-1]
    parts.plain_text(
        f"From {words.percent(first['value'])} at step {first['step']} to {words.percent(last['value'])} at step "
        f"{last['step']}, on tasks that are never trained on."
    )
    alt = f"Held-out success at {len(table)} steps"
    parts.chart(partial(charts.success, table, frame.step), table.drop(columns="metric"), key="success", alt=alt)


def _headline(found: Summary, uniform: float | None, how: str) -> None:
    share = found.informative_share
    gain = None if share is None or uniform is None else f"{100 * (share - uniform):+.0f} points against uniform"
    wasted = found.wasted_rollouts / found.rollouts if found.rollouts else None
    row = st.columns(4)
    row[0].metric(
        "Informative groups", words.percent(share), gain, delta_color="blue", border=True, height="stretch",
        help=f"Share of observed groups with mixed rewards. Uniform: {words.percent(uniform)} ({how}).",
    )  # fmt: skip
    row[1].metric(
        "Mean variance realised", words.variance(found.mean_variance), border=True, height="stretch",
        help="Mean variance of the rewards in a group, mapped to [0, 1]; at most 0.25.",
    )  # fmt: skip
    row[2].metric(
        "Wasted rollouts", words.percent(wasted), border=True, height="stretch",
        help=f"{words.count(found.wasted_rollouts)} of {words.count(found.rollouts)} rollouts were in groups whose "
        "rewards were all the same.",
    )  # fmt: skip
    row[3].metric(
        "Environments covered",
        f"{words.count(found.environments_covered)} of {words.count(found.environments)}",
        border=True, height="stretch", help=f"Tasks: {words.count(found.tasks_covered)} of {words.count(found.tasks)}.",
    )  # fmt: skip
    _scale(found)


def _scale(found: Summary) -> None:
    """How large the run is and, where there are decisions, what bounded them."""
    row = st.columns(4)
    if not found.picks:
        row[0].metric("Groups", words.count(found.groups), border=True)
        row[1].metric("Tasks", words.count(found.tasks), border=True)
        row[2].metric("Rollouts", words.count(found.rollouts), border=True)
        row[3].metric("Steps", words.count(found.steps), border=True)
        return
    row[0].metric("Steps", words.count(found.steps), border=True)
    row[1].metric(
        "Picks", words.count(found.picks), border=True,
        help=f"{words.count(found.draws)} of them uniform draws; {words.count(found.open)} wait for their result.",
    )  # fmt: skip
    row[2].metric(
        "Quota hits", words.count(found.quota_hits), border=True,
        help="Environment quotas that turned candidates away, summed over steps.",
    )  # fmt: skip
    row[3].metric(
        "Predicted variance of picks", words.variance(found.predicted_variance), border=True,
        help="Mean over the picks when they were chosen. Groups of their size show "
        f"{words.variance(found.predicted_shown)} of it on average, to be compared with the variance realised.",
    )  # fmt: skip


def _steps(frame: Frame, run: Run) -> None:
    st.subheader("What came of each step", anchor=False)
    table = loading.steps(run)
    if table.empty:
        st.caption("The groups of this log carry no step, so there is nothing to draw over time.")
        return
    st.caption("Click a step to see its batch.")
    parts.chart(
        partial(charts.steps, table, frame.step),
        table,
        key="steps",
        alt=f"Groups by outcome over {len(table)} steps",
        on_click=lambda step: parts.go_to("batch", step=int(step)),
    )


def _alerts(run: Run) -> None:
    """What deserves a look, each with its number and a way to the page that shows it."""
    table = loading.alerts(run)
    if table.empty:
        st.caption(
            "Nothing out of the ordinary: no task tried 3 times for nothing, no concentration, no environment left "
            "out, no fall of rewards, few mixed groups that hardly differ, no unreadable line."
        )
        return
    st.subheader("What deserves a look", anchor=False)
    for row in table.to_dict("records"):
        code = str(row["alert"])
        with st.container(horizontal=True, vertical_alignment="center"):
            parts.plain_text(f"⚠ {alert_sentence(code, row['count'], row['of'], row['step'])}")
            st.button(
                "Look", key=f"alert_{code}", icon=":material/arrow_forward:", type="tertiary",
                on_click=parts.go_to, args=(ALERT_PAGES[code],),
            )  # fmt: skip


def alert_sentence(code: str, found: float, of: float, step: int | None) -> str:
    """One row of `views.alerts` in words."""
    whole, n = words.count(of), words.count(found)
    sentences = {
        "stuck": f"{n} of {whole} visited tasks were tried at least 3 times and gave nothing.",
        "never_visited": f"{n} of {whole} environments were never visited; uniform draws of as many picks would be "
        "expected to have reached all of them.",
        "concentrated": f"Over the last 10 steps, picks were as diverse as {found:.1f} equal environments; uniform "
        f"draws give {of:.1f}.",
        "below_floor": f"{n} of {whole} environments with a smallest share fell short of it at some step.",
        "fewer_mixed": f"From step {step} on, {words.percent(found)} of the groups had mixed rewards; in as many steps "
        f"before it was {words.percent(of)}.",
        "lower_reward": f"From step {step} on, the mean reward of the groups was {words.percent(found)} of the range; "
        f"in as many steps before it was {words.percent(of)}. Harder picks can do that too.",
        "nearly_flat": f"{n} of {whole} mixed groups differ by less than {loading.NEARLY_FLAT} of the reward range "
        "(standard deviation), which may be noise.",
        "unreadable": f"{n} of {whole} lines or files could not be read.",
    }
    return sentences.get(code, code.replace("_", " "))


def _trend(frame: Frame, run: Run) -> None:
    """Rewards and variance over the steps; nothing where the log has no steps."""
    table = loading.reward_trend(run)
    if table.empty:
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Reward and mixed groups**")
        shown = table[["step", "groups", "mean_reward", "informative_share"]]
        alt = f"Mean reward and share of mixed groups at {len(table)} steps"
        parts.chart(partial(figures.rewards, table, frame.step), shown, key="reward_trend", alt=alt)
    with right:
        st.markdown("**Variance, observed and predicted**")
        shown = table[["step", "groups", "mean_variance", "predicted_variance"]]
        alt = f"Observed and predicted variance of the groups at {len(table)} steps"
        parts.chart(partial(figures.variances, table, frame.step), shown, key="variance_trend", alt=alt)


def _runs(frame: Frame) -> None:
    st.subheader("Runs in this folder", anchor=False)
    table = frame.runs.drop(columns=["path", "run_id"])
    readable = list(frame.runs["name"])
    parts.pick_row(
        table,
        key="runs",
        rows=8,
        on_pick=lambda row: parts.go_to("overview", run=readable[row]),
        columns={
            "name": "run",
            "batch_size": st.column_config.NumberColumn("picks a step", format="localized"),
            "source": "made from",
            "created": st.column_config.DatetimeColumn("created (UTC)", format="YYYY-MM-DD HH:mm"),
        },
    )
