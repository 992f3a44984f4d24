"""The global frame: run, step, filters and task in the sidebar, once for all pages, all of it in the URL.

A value in the URL that this run does not have is told, not silently replaced. One fragment polls for news
while the run grows; it is the only one on a page, since nested ones misbehave.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError

from . import loading, parts, words
from .loading import Filters, Run

__all__ = ["Frame", "draw"]

LIVE_SECONDS = 60.0
"""A run whose events grew within so many seconds is being written."""
POLL_SECONDS = ((LIVE_SECONDS, 1.0), (7_200.0, 10.0))
"""(age of the newest event, seconds between looks): a training step can take long; later only on demand."""
REDRAW_SECONDS = 2.0
"""A page is drawn anew at most this often, however fast steps come; the status line is newer."""
STALE_SECONDS = 600.0
"""A live run without news for so long may have lost its writer."""
MOST_TASKS = 5_000
"""Tasks offered in the picker; any other key can be typed."""


class Frame(NamedTuple):
    """What the sidebar chose."""

    run: Run | None
    """None: there is no run, or it cannot be read."""
    name: str
    steps: list[int]
    step: int | None
    """None: the run has no steps."""
    filters: Filters
    task: str | None
    """Key ENV::TASK; None = no task chosen."""
    runs: pd.DataFrame
    problem: str
    """Why there is no run to show; empty otherwise."""


def draw() -> Frame:
    """Draw the sidebar and return what it says."""
    parts.take_values()
    frame = _draw()
    parts.values_taken()
    return frame


def _draw() -> Frame:
    runs = loading.list_runs()
    if runs.empty:
        return Frame(None, "", [], None, Filters(), None, runs, "")
    with st.sidebar:
        name = _run_picker(runs)
        row = runs[runs["name"] == name].iloc[0]
        try:
            run = loading.open_run(row["path"])
            steps = loading.step_list(run)
        except EnvSchedError as error:
            return Frame(None, name, [], None, Filters(), None, runs, str(error))
        step = _step_picker(steps)
        filters = _filters(run, bool(row["scheduler"]))
        task = _task_picker(run, filters)
        planned = loading.summary(run).planned_steps
        _status(run, steps, alive=row["kind"] in ("live", "shadow") and len(steps) != planned)
    return Frame(run, name, steps, step, filters, task, runs, "")


def notices() -> None:
    """Say what of the URL could not be followed, until the control in question is changed."""
    for text in st.session_state.get("notices", {}).values():
        st.warning(text, icon=":material/link_off:")


def _refuse(key: str, text: str) -> None:
    st.session_state.setdefault("notices", {})[key] = text


def _settled(key: str) -> None:
    st.session_state.get("notices", {}).pop(key, None)


def _harmless(raw: str) -> str:
    """A value of the URL with all that markdown could read taken out."""
    return "'" + "".join(c if c.isalnum() or c in " .,-" else " " for c in raw[:60]) + "'"


def _check_link(key: str, allowed: list[str], said: str) -> None:
    """Before its widget drops it in silence: tell a URL value that is not among `allowed`."""
    raw = st.query_params.get_all(key)
    bad = [value for value in raw if value not in allowed]
    if bad and key not in st.session_state:
        _refuse(key, f"The link asks for {said} {', '.join(map(_harmless, bad))}, which is not in this run.")


def _run_picker(runs: pd.DataFrame) -> str:
    names = list(runs["name"])
    raw = st.query_params.get("run")
    if raw is not None and raw not in names and "run" not in st.session_state:
        _refuse("run", f"The link asks for run {_harmless(raw)}, which is not in this folder; the newest run is shown.")
    if "run" not in st.session_state and raw not in names:
        # Not the widget's default: a bound default stays out of the URL, and a link always names its run.
        st.session_state["run"] = st.query_params["run"] = names[0]
    elif st.session_state.get("run", raw) not in names:
        st.session_state["run"] = names[0]
    st.caption("Run, newest first")
    chosen = st.selectbox(
        "Run", names, index=None, required=True, key="run", bind="query-params", on_change=parts.leave_run,
        label_visibility="collapsed",
    )  # fmt: skip
    return str(chosen or names[0])


def _step_picker(steps: list[int]) -> int | None:
    if not steps:
        st.caption("This run has no steps.")
        return None
    first, last = steps[0], steps[-1]
    raw = st.query_params.get("step")
    if raw is not None and "step" not in st.session_state and not _is_step(raw, steps):
        _refuse("step", f"Step {_harmless(raw)} is not in this run ({first} to {last}); step {last} is shown.")
    if first == last:
        st.caption(f"One step: {first}")
        return first
    _keep_step(first, last)
    chosen = st.slider("Step", first, last, last, key="step", bind="query-params", on_change=_settled, args=("step",))
    step = _nearest(int(chosen), steps)
    at = steps.index(step)
    left, right = st.columns(2, gap="small")
    left.button(
        "Previous", icon=":material/chevron_left:", key="previous_step", disabled=at == 0, width="stretch",
        on_click=_set_step, args=(steps[max(at - 1, 0)],),
    )  # fmt: skip
    right.button(
        "Next", icon=":material/chevron_right:", icon_position="right", key="next_step", disabled=at == len(steps) - 1,
        width="stretch", on_click=_set_step, args=(steps[min(at + 1, len(steps) - 1)],),
    )  # fmt: skip
    if step != chosen:
        _refuse("step_gap", f"There was no batch at step {chosen}; step {step} is shown.")
    else:
        _settled("step_gap")
    return step


def _keep_step(first: int, last: int) -> None:
    """A growing run changes the slider's ends: stay on the chosen step, or follow the last one if that was it."""
    chosen, before = st.session_state.get("step"), st.session_state.get("last_step")
    if chosen is not None and before is not None and last != before:
        if chosen == before or not first <= chosen <= last:
            del st.session_state["step"]
        else:
            st.session_state["step"] = chosen
    st.session_state["last_step"] = last


def _is_step(raw: str, steps: list[int]) -> bool:
    return raw.lstrip("-").isdecimal() and int(raw) in steps


def _nearest(chosen: int, steps: list[int]) -> int:
    """The step itself, or the last one before it."""
    return max((step for step in steps if step <= chosen), default=steps[0])


def _set_step(step: int) -> None:
    st.session_state["step"] = step
    _settled("step")


def _filters(run: Run, decided: bool) -> Filters:
    envs = sorted(loading.environments(run)["env"])
    with st.expander("Filters", icon=":material/filter_alt:", expanded=bool(st.session_state.get("env"))):
        chosen = {"env": _many("Environment", envs, "env")}
        if decided:
            chosen["outcome"] = _many("Outcome", list(loading.OUTCOME_CODES), "outcome")
            chosen["state"] = _many("Evidence", list(loading.STATES), "state")
    return Filters(chosen["env"], chosen.get("outcome", ()), chosen.get("state", ()))


def _many(title: str, options: list[str], key: str) -> tuple[str, ...]:
    _check_link(key, options, title.lower())
    if not set(st.session_state.get(key, ())) <= set(options):
        st.session_state[key] = [value for value in st.session_state[key] if value in options]
    chosen = st.multiselect(
        title, options, key=key, bind="query-params", on_change=_settled, args=(key,), placeholder="all"
    )
    return tuple(chosen)


def _task_picker(run: Run, filters: Filters) -> str | None:
    keys, total = loading.task_keys(run, filters.environments, MOST_TASKS)
    wanted = st.session_state.get("task") or st.query_params.get("task")
    if wanted and wanted not in keys and _exists(run, wanted):
        keys = [wanted, *keys]
    _check_link("task", keys, "task")
    if st.session_state.get("task") is not None and st.session_state["task"] not in keys:
        st.session_state["task"] = None
    note = (
        f"The first {MOST_TASKS:,} of {total:,} are listed; filter by environment for others."
        if total > len(keys)
        else None
    )
    chosen = st.selectbox(
        "Task", keys, index=None, key="task", bind="query-params", placeholder="none chosen", help=note,
        on_change=_settled, args=("task",),
    )  # fmt: skip
    return None if chosen is None else str(chosen)


def _exists(run: Run, key: str) -> bool:
    try:
        loading.task(run, key)
    except EnvSchedError:
        return False
    return True


def _status(run: Run, steps: list[int], *, alive: bool) -> None:
    """Events, age, unreadable lines; polls while the run is being written. `alive`: a trainer writes it."""
    age = loading.health(run).age
    every = next((seconds for most, seconds in POLL_SECONDS if age < most), None)
    if not st.toggle("Follow new events", value=True, key="live", bind="query-params"):
        every = None

    drawn = time.monotonic()

    def line() -> None:
        if every and loading.poll(run) and time.monotonic() - drawn >= REDRAW_SECONDS:
            st.rerun()
        health = loading.health(run)
        parts = [f"{words.count(health.events)} events", f"last {words.age(health.age)}"]
        if steps and health.last_step is not None:
            parts.append(f"last step {health.last_step}")
        st.caption(" · ".join(parts))
        if alive and health.age >= STALE_SECONDS:
            st.caption(":material/pause_circle: no new event for long; the writer may have stopped")
        if health.unread:
            st.caption(f":material/warning: unreadable lines or files: {words.count(health.unread)}")

    st.fragment(line, run_every=every)()
    if not every:
        st.button("Check for new events", key="check", icon=":material/refresh:", type="tertiary")
