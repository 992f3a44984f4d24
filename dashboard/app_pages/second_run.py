"""The second run of a page: one picker, in the URL as `with`, so that a link carries both runs."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import loading, parts
from ..frame import Frame
from ..loading import Run

__all__ = ["Second", "choose"]


class Second(NamedTuple):
    """A run that is held against the one of the frame."""

    run: Run
    name: str


def choose(frame: Frame, title: str, placeholder: str) -> Second | None:
    """The picker and what it chose; None when nothing is chosen, or it cannot be read (which is said)."""
    names = [name for name in frame.runs["name"] if name != frame.name]
    raw = st.query_params.get("with")
    if raw is not None and raw not in names and "with" not in st.session_state:
        same = raw == frame.name
        st.warning(
            "The link holds the run against itself." if same else "The link's second run is not in this folder.",
            icon=":material/link_off:",
        )
    if st.session_state.get("with") not in (None, *names):
        st.session_state["with"] = None
    chosen = st.selectbox(
        title, names, index=None, key="with", bind="query-params", placeholder=placeholder, disabled=not names
    )
    if chosen is None:
        return None
    try:
        return Second(loading.open_run(frame.runs[frame.runs["name"] == chosen].iloc[0]["path"]), str(chosen))
    except EnvSchedError as error:
        st.error("The second run cannot be read.", icon=":material/error:")
        parts.plain_text(str(error))
        return None
