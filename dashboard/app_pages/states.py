"""What a page says when there is nothing, or not everything, to show.

Every state has a name that stands first: Empty, Loading, Live, Stale, Partial, Broken. Loading, Live and Stale are
said by the frame, which knows them.
"""

from __future__ import annotations

import shlex

import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import loading, parts, words
from ..frame import Frame
from ..loading import Run

__all__ = ["broken_page", "no_decisions", "no_step", "nothing_to_show", "warnings"]


def nothing_to_show(frame: Frame) -> None:
    """No run in the folder, or one that cannot be read."""
    st.title("EnvSched")
    if frame.runs.empty:
        st.info("Empty: there are no runs here yet.", icon=":material/folder_open:")
        parts.plain_text(f"Folder: {loading.folder().resolve()}")
        st.write("Make one from a log, or open the recorded one:")
        st.code("envsched import LOG --out runs/log\nenvsched replay runs/log --out runs/replay\nenvsched demo", "bash")
        return
    st.error("Broken: this run cannot be read; the others can still be chosen on the left.", icon=":material/error:")
    parts.plain_text(frame.problem)


def broken_page(error: EnvSchedError) -> None:
    """A page that cannot be drawn from what is on disk."""
    st.error(
        "Broken: the rest of this page cannot be drawn from what is on disk; the other pages may still be. Log health "
        "says what could be read.",
        icon=":material/error:",
    )
    parts.plain_text(str(error))


def warnings(run: Run) -> None:
    """Lines that could not be read: told on every page, since every number may be short of them."""
    health = loading.health(run)
    if not health.unread:
        return
    said = f"Partial: {words.several(health.unread, 'line or file', 'lines or files')} of the run could not be read."
    st.warning(f"{said} Every number here is without them; Log health says more.", icon=":material/warning:")
    with st.expander("Which ones"):
        if health.unknown:
            st.caption(f"Lines of kinds that only a newer version knows: {words.count(health.unknown)}")
        for problem in health.problems[:20]:
            parts.plain_text(f"{problem.segment}:{problem.line} (byte {problem.offset:,}): {problem.message}")


def no_decisions(frame: Frame) -> None:
    """An imported log holds groups but no decisions: its replays answer instead, or a new one would."""
    st.info("This run is a log: it holds results, but no decision was recorded.", icon=":material/info:")
    row = frame.runs[frame.runs["name"] == frame.name].iloc[0]
    made = frame.runs[(frame.runs["source"] == row["run_id"]) & (frame.runs["source"] != "")]
    if len(made):
        names = list(made["name"])
        parts.plain_text(f"Made from it and in this folder: {', '.join(names)}")
        st.button(
            "Open the newest of them", icon=":material/arrow_forward:", key="open_replay",
            on_click=lambda: parts.go_to("overview", run=names[0]),
        )  # fmt: skip
        return
    st.write("Replay it, and every page answers for the replay:")
    folder = loading.folder()
    source, target = (shlex.quote(str(folder / name)) for name in (frame.name, f"{frame.name}-replay"))
    st.code(f"envsched replay {source} --out {target}", "bash")


def no_step(frame: Frame) -> None:
    """Nothing was asked or observed with a step."""
    st.info("Empty: no events with a step yet; waiting for the first batch.", icon=":material/hourglass_empty:")
    st.caption("This page fills by itself while the run is being written.")
