"""A place that tells when it comes into the reader's view: what costs a browser much is drawn only then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

__all__ = ["in_view"]

_COMPONENT = st.components.v2.component(
    "envsched_in_view",
    html='<div class="waiting"></div>',
    css=Path(__file__).with_suffix(".css").read_text(encoding="utf-8"),
    js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
)


def in_view(*, key: str, height: int, alt: str, on_seen: Callable[[], None]) -> None:
    """An empty place of `height` pixels; `on_seen` is called once, when it is, or nearly is, in view."""
    with st.container(key=key):  # a component has no class of its key in the page
        _COMPONENT(key=f"{key}_watch", data={"height": height, "alt": alt}, on_seen_change=on_seen)
