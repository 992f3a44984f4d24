"""Start a run: the closed loop on this machine, watched as it grows."""

from __future__ import annotations

import streamlit as st

from .. import launch, loading, parts, words
from ..launch import Launch

__all__ = ["offer"]

WORLDS = {
    "small": "small: seconds",
    "M": "M: 256 environments, the reference",
    "E": "E: easier, larger",
    "H": "H: hard and sparse",
    "F": "F: little transfers",
    "X0": "X0: cross-environment transfer is planted",
    "X1": "X1: there is none",
}
SCHEDULERS = ("envsched", "uniform", "round-robin", "empirical-bayes")


@st.cache_resource
def _started() -> dict[str, Launch]:
    """Processes that this server started, by run name."""
    return {}


def offer() -> None:
    """A form that starts `envsched train`; only while the dashboard is bound to loopback."""
    _tell()
    if st.get_option("server.address") not in launch.LOOPBACK:
        return
    with st.expander("Start a run", icon=":material/play_arrow:"):
        st.write("Train a small policy in ToolWorld and watch it here. It runs as a process of its own.")
        if not launch.can_train():
            st.caption("This needs numba:")
            st.code("python -m pip install 'envsched[train]'", "bash")
            return
        _form()


def _form() -> None:
    folder = loading.folder()
    with st.form("start_run", border=False):
        left, right = st.columns(2)
        world = left.selectbox("World", list(WORLDS), format_func=lambda name: WORLDS[name], key="start_world")
        scheduler = right.selectbox("Scheduler", SCHEDULERS, key="start_scheduler")
        steps = left.number_input("Steps", 1, 1000, 40, key="start_steps")
        seed = right.number_input("Seed", 0, 10_000, 0, key="start_seed")
        name = st.text_input("Name of the run", launch.free_name(folder, "train"), key="start_name")
        pressed = st.form_submit_button("Start", icon=":material/play_arrow:")
    if not pressed:
        return
    problem = launch.problem_of(folder, name)
    if problem is None:
        try:
            given = {"world": str(world), "scheduler": str(scheduler)}
            _started()[name] = launch.start(folder, name, steps=int(steps), seed=int(seed), **given)
        except OSError as error:
            problem = f"It could not be started: {error}"
    if problem is not None:
        st.error(problem, icon=":material/error:")
    else:
        st.rerun()


def _tell() -> None:
    """What became of the processes started here: starting, running, ended badly."""
    for name, started in list(_started().items()):
        code = started.process.poll()
        there = (loading.folder() / name / "run.json").is_file()
        if code not in (None, 0):
            st.error(f"The process of this run ended with {code}:", icon=":material/error:")
            parts.plain_text(f"{name}: {started.said.read_text(errors='replace')[-600:]}")
        if code is not None:
            del _started()[name]
        elif there:
            st.button(
                f"Watch {name}", icon=":material/visibility:", key=f"watch_{name}",
                on_click=lambda name=name: parts.go_to("overview", run=name),
            )  # fmt: skip
        else:
            _wait(name)


@st.fragment(run_every=1.0)
def _wait(name: str) -> None:
    """Until the new run's folder is there."""
    if (loading.folder() / name / "run.json").is_file():
        st.rerun()
    st.caption(f"{words.count(1)} run is starting: {name}")
