"""The global frame: run, step, filters and task in the sidebar, once for all pages, all of it in the URL.

A value in the URL that this run does not have is told, and the URL then names what is shown. Previous and next go
to steps that pass the filters. One fragment polls for news while the run grows; it is the only one on a page, since
nested ones misbehave. At the newest step the page follows the run, or stays, as the reader chooses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from envsched_core.errors import EnvSchedError

from . import loading, parts, words
from .loading import Filters, Health, Run

__all__ = ["Frame", "draw"]

LIVE_SECONDS = 60.0
"""A run whose events grew within so many seconds is being written."""
POLL_SECONDS = ((LIVE_SECONDS, 1.0), (7_200.0, 10.0))
"""(age of the newest event, seconds between looks): a training step can take long; later only on demand."""
REDRAW_SECONDS = 2.0
"""A page is drawn anew at most this often, however fast steps come; the status line is newer."""
GROWING = ("live", "shadow")
"""Kinds of run that a trainer writes."""
STALE_SECONDS = 600.0
"""A live run without news for so long may have lost its writer."""
PATIENCE_SECONDS = 0.3
"""Between two messages of a long reading."""
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
    reading = st.empty()
    with st.sidebar:
        name = _run_picker(runs)
        row = runs[runs["name"] == name].iloc[0]
        try:
            run = loading.open_run(row["path"], _tell(reading))
            steps = loading.step_list(run)
        except EnvSchedError as error:
            return Frame(None, name, [], None, Filters(), None, runs, str(error))
        reading.empty()
        grows = row["kind"] in GROWING and len(steps) != loading.summary(run).planned_steps
        above = st.container()
        filters = _filters(run, bool(row["scheduler"]))
        with above:
            step = _step_picker(steps, loading.filtered_steps(run, filters), grows=grows)
        task = _task_picker(run, filters)
        _status(run, steps, grows=grows)
    return Frame(run, name, steps, step, filters, task, runs, "")


def _tell(place: DeltaGenerator) -> loading.Progress:
    """Says how far a long reading is, now and then."""
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PATIENCE_SECONDS:
            last = time.monotonic()
            text = f"Loading: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB of the run read"
            place.progress(min(done / total, 1.0), text=text)

    return told


def notices() -> None:
    """Say what of the URL could not be followed, until the control in question is changed."""
    for text in st.session_state.get("notices", {}).values():
        st.warning(text, icon=":material/link_off:")


def _refuse(key: str, text: str) -> None:
    st.session_state.setdefault("notices", {})[key] = text


def _name(key: str, value: str) -> None:
    """Put into the URL what is shown instead, before its widget clears the value it cannot take; starts anew."""
    st.query_params[key] = value
    st.rerun()


def _keep_in_url(key: str, *, absent: object = None) -> None:
    """Before its widget is drawn: a value that the URL has lost is set anew, which writes it back.

    A tick of the live fragment between a click and the page it opens can make Streamlit forget to. Setting it always
    would overrule a reader who is just moving the control. `absent`: the value that stands in no URL.
    """
    value = st.session_state.get(key)
    wanted = [] if value in (None, absent) else [str(x) for x in value] if isinstance(value, list) else [str(value)]
    if wanted and st.query_params.get_all(key) != wanted:
        st.session_state[key] = value


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
        _name("run", names[0])
    if "run" not in st.session_state and raw not in names:
        # Not the widget's default: a bound default stays out of the URL, and a link always names its run.
        st.session_state["run"] = st.query_params["run"] = names[0]
    elif st.session_state.get("run", raw) not in names:
        st.session_state["run"] = names[0]
    _keep_in_url("run")
    st.caption("Run, newest first")
    chosen = st.selectbox(
        "Run", names, index=None, required=True, key="run", bind="query-params", on_change=_other_run,
        label_visibility="collapsed",
    )  # fmt: skip
    return str(chosen or names[0])


def _other_run() -> None:
    """What is asked for still is of the run that is left."""
    st.session_state.pop("wanted", None)
    parts.leave_run()


def _step_picker(steps: list[int], passing: list[int], *, grows: bool) -> int | None:
    """The scrubber; `passing`: the steps that previous and next may go to."""
    if not steps:
        st.caption("This run has no steps.")
        return None
    first, last = steps[0], steps[-1]
    raw = st.query_params.get("step")
    if raw is not None and "step" not in st.session_state and not _is_step(raw, steps):
        step = _nearest(int(raw), steps) if _is_whole(raw) else last
        _refuse("step", f"Step {_harmless(raw)} is not in this run ({first} to {last}); step {step} is shown.")
        _name("step", str(step))
    if first == last:
        st.caption(f"One step: {first}")
        return first
    _keep_step(first, last)
    _keep_in_url("step", absent=last)
    chosen = int(st.slider("Step", first, last, last, key="step", bind="query-params", on_change=_moved, args=(last,)))
    step = _nearest(chosen, steps)
    _step_buttons(step, last, passing)
    if step != chosen:
        _refuse("step_gap", f"There was no batch at step {chosen}; step {step} is shown.")
    else:
        _settled("step_gap")
    if grows:
        _follow(step, last)
    return step


def _step_buttons(step: int, last: int, passing: list[int]) -> None:
    before = max((other for other in passing if other < step), default=None)
    after = min((other for other in passing if other > step), default=None)
    left, right = st.columns(2, gap="small")
    left.button(
        "Previous", icon=":material/chevron_left:", key="previous_step", disabled=before is None, width="stretch",
        on_click=_set_step, args=(before, last),
    )  # fmt: skip
    right.button(
        "Next", icon=":material/chevron_right:", icon_position="right", key="next_step", disabled=after is None,
        width="stretch", on_click=_set_step, args=(after, last),
    )  # fmt: skip
    if st.session_state.get("env") or st.session_state.get("outcome") or st.session_state.get("state"):
        st.caption(f"Steps that pass the filters: {words.count(len(passing))}")


def _follow(step: int, last: int) -> None:
    """At the newest step: go on to newer ones as they come, or stay. At another one it stays anyway."""
    if step != last:
        st.session_state["follow"] = False
    st.toggle(
        "Follow the newest step", value=True, key="follow", on_change=_to_newest, args=(last,),
        help="On: the page moves on with every new step. Off: it stays where it is, and the scrubber grows.",
    )  # fmt: skip


def _to_newest(last: int) -> None:
    if st.session_state["follow"]:
        parts.ask(step=last)


def _keep_step(first: int, last: int) -> None:
    """A growing run changes the slider's ends: stay on the chosen step, or follow the last one if that was it."""
    chosen, before = st.session_state.get("step"), st.session_state.get("last_step")
    if chosen is not None and before is not None and last != before:
        if (chosen == before and st.session_state.get("follow", True)) or not first <= chosen <= last:
            del st.session_state["step"]
        else:
            st.session_state["step"] = chosen
    st.session_state["last_step"] = last


def _is_whole(raw: str) -> bool:
    return raw.removeprefix("-").isdecimal() and len(raw) < 19


def _is_step(raw: str, steps: list[int]) -> bool:
    return _is_whole(raw) and int(raw) in steps


def _nearest(chosen: int, steps: list[int]) -> int:
    """The step itself, or the last one before it."""
    return max((step for step in steps if step <= chosen), default=steps[0])


def _set_step(step: int, last: int) -> None:
    parts.ask(step=step)
    _chose(step, last)


def _moved(last: int) -> None:
    _chose(st.session_state["step"], last)


def _chose(step: int, last: int) -> None:
    """The reader chose a step: who goes back stays there, who goes to the newest follows it."""
    parts.ask(follow=step == last)
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
    _keep_in_url(key)
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
    _keep_in_url("task")
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


State = Literal["Empty", "Live", "Stale", "Recorded", "Partial"]
COLOURS: dict[State, Literal["blue", "orange", "gray"]] = {
    "Empty": "gray", "Live": "blue", "Stale": "orange", "Recorded": "gray", "Partial": "orange",
}  # fmt: skip
MEANING: dict[State, str] = {
    "Empty": "no step yet",
    "Stale": "no new event for long; the writer may have stopped",
    "Partial": "not all of it could be read",
}


def run_states(health: Health, steps: list[int], *, grows: bool) -> list[State]:
    """The names of what a run is in: one for how it comes, one when it has no step, one when parts are missing."""
    named: list[State] = ["Recorded" if not grows else "Live" if health.age < STALE_SECONDS else "Stale"]
    return named + (["Empty"] if not steps else []) + (["Partial"] if health.unread else [])


def _status(run: Run, steps: list[int], *, grows: bool) -> None:
    """State, events, age, unreadable lines; polls while the run is being written. `grows`: a trainer writes it."""
    age = loading.health(run).age
    every = next((seconds for most, seconds in POLL_SECONDS if age < most), None)
    if not st.toggle("Follow new events", value=True, key="live", bind="query-params"):
        every = None
    st.fragment(_line(run, steps, polls=bool(every), grows=grows), run_every=every)()
    if not every:
        st.button("Check for new events", key="check", icon=":material/refresh:", type="tertiary")
    st.toggle(
        "Whole page at once", key="whole", bind="query-params",
        help="Draws every chart and opens every table, as for printing; else each comes when you get to it.",
    )  # fmt: skip


def _line(run: Run, steps: list[int], *, polls: bool, grows: bool) -> Callable[[], None]:
    drawn = time.monotonic()

    def line() -> None:
        news = polls and _news(run) and time.monotonic() - drawn >= REDRAW_SECONDS
        if parts.acted() or news:  # a click in a part that was drawn anew meanwhile, and is gone, comes with the tick
            # Asked to rerun, Streamlit forgets the page of a click that came while the news was read; asked to draw, it
            # follows the click.
            st.empty()
            st.rerun()
        health = loading.health(run)
        named = run_states(health, steps, grows=grows)
        with st.container(horizontal=True, gap="small"):
            for state in named:
                st.badge(state, color=COLOURS[state])
        said = [words.several(health.events, "event"), f"last {words.age(health.age)}"]
        if steps and health.last_step is not None:
            said.append(f"last step {health.last_step}")
        st.caption(" · ".join(said))
        for state in named:
            if state in MEANING:
                st.caption(f"{state}: {MEANING[state]}.")

    return line


def _news(run: Run) -> bool:
    """Whether the run holds more than is shown; also when it can no longer be read, which the next drawing says."""
    try:
        return loading.poll(run)
    except EnvSchedError:
        return True
