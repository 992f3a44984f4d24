"""Who may see the pages: asked under this machine's own name, and logged in where Streamlit's `[auth]` is set up.

A page of another host whose name is made to lead to 127.0.0.1 would else be taken for the dashboard's own: its
browser sends that name, which is looked at here. `browser.serverAddress` names the host of a proxy in front.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from . import parts
from .launch import LOOPBACK

__all__ = ["admitted"]


def admitted() -> bool:
    """Whether pages may be drawn; says why not, or offers to log in, when they may not."""
    asked = st.context.headers.get("Host")
    if asked and st.get_option("server.address") in LOOPBACK and not _is_ours(asked):
        st.title("EnvSched")
        st.error("Closed: the dashboard was asked for under a name that is not its own.", icon=":material/block:")
        parts.plain_text(f"Asked for: {asked}. Open it as 127.0.0.1 or localhost.")
        st.caption("Behind a proxy, start it with the proxy's name in STREAMLIT_BROWSER_SERVER_ADDRESS.")
        return False
    logged_in = st.user.get("is_logged_in")  # there only where secrets.toml has [auth]
    if logged_in is None:
        return True
    if logged_in:
        st.sidebar.button("Log out", icon=":material/logout:", key="log_out", on_click=st.logout, type="tertiary")
        return True
    st.title("EnvSched")
    st.button("Log in", icon=":material/login:", key="log_in", on_click=st.login, type="primary")
    return False


def _is_ours(asked: str) -> bool:
    """Whether a Host header names this machine, or the proxy in front of it."""
    try:
        name = urlsplit(f"//{asked}").hostname
    except ValueError:
        return False
    return name in (*LOOPBACK, st.get_option("browser.serverAddress"))
