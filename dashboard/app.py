"""Page set-up and navigation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from envsched_core.errors import EnvSchedError

from . import frame, gate, parts
from .app_pages import (
    batch,
    cold_start,
    compare,
    coverage,
    decision,
    graph,
    log_health,
    overview,
    report,
    states,
    variance,
)
from .frame import Frame

__all__ = ["main"]

ICON = Path(__file__).with_name("favicon.png")
"""A file of ours: a Material icon here would be fetched from another host."""

STYLE = """<style>
.stMainBlockContainer { padding-top: 3.2rem; padding-bottom: 3rem; }
.st-key-verdict .stText, .st-key-verdict .stText > div { font-size: 1.12rem; }
@media (max-width: 1150px) {
  .stMainBlockContainer { padding-left: 1.5rem; padding-right: 1.5rem; }
  .stMain .stHorizontalBlock { flex-wrap: wrap; }
  .stMain .stColumn { min-width: min(10rem, 100%); }
  .stMain .stColumn:has(.stMetric, .stNumberInput, .stSelectbox) { min-width: min(13rem, 100%); }
  .stMain .stColumn:has(.stPlotlyChart, .stDataFrame, .stText) { min-width: min(22rem, 100%); }
}
</style>"""
"""Ours alone: no text of a log is ever part of it."""

HISTORY = f"<script>{Path(__file__).with_name('history.js').read_text(encoding='utf-8')}</script>"
"""Ours alone, as is the style."""

Show = Callable[[Frame], None]

PAGES: dict[str, list[tuple[str, str, str, Show]]] = {
    "Watch": [
        ("overview", "Overview", ":material/monitoring:", overview.show),
        ("batch", "Batch", ":material/checklist:", batch.show),
    ],
    "Explain": [
        ("decision", "Decision", ":material/help_center:", decision.show),
        ("graph", "Graph", ":material/hub:", graph.show),
        ("compare", "Compare & what-if", ":material/compare_arrows:", compare.show),
    ],
    "Over time": [
        ("variance", "Variance", ":material/grid_on:", variance.show),
        ("coverage", "Coverage", ":material/explore:", coverage.show),
        ("cold_start", "Cold start", ":material/ac_unit:", cold_start.show),
    ],
    "Trust": [
        ("log_health", "Log health", ":material/health_and_safety:", log_health.show),
    ],
    "Present": [
        ("report", "Report", ":material/description:", report.show),
    ],
}


def main() -> None:
    """Draw the page that the URL asks for."""
    st.set_page_config(page_title="EnvSched", page_icon=str(ICON), layout="wide")
    st.html(STYLE)
    st.html(HISTORY, unsafe_allow_javascript=True)
    if not gate.admitted():
        return
    holder: list[Frame] = []
    pages = {
        name: st.Page(
            partial(_show, name, show, holder), title=title, icon=icon, url_path=name, default=name == "overview"
        )
        for section in PAGES.values()
        for name, title, icon, show in section
    }
    menu = {section: [pages[name] for name, *_ in entries] for section, entries in PAGES.items()}
    chosen = st.navigation(menu)
    target, values = st.session_state.pop("go_to", ("", {}))
    if target:
        if "run" in values:  # what is asked for still is of the run that is left
            st.session_state.pop("wanted", None)
        parts.ask(**values)
        if chosen.url_path != pages[target].url_path:  # on the same page the frame keeps what the URL says of the run
            # With no parameters at all it would refuse, since the frame's are bound; the frame writes them anew.
            st.switch_page(pages[target], query_params={})
    holder.append(frame.draw())
    chosen.run()


def _show(name: str, show: Show, holder: list[Frame]) -> None:
    """One page in its frame: what of the link could not be followed, then the page or why there is none."""
    current = holder[0]
    parts.begin_page(name)
    frame.notices()
    if current.run is None:
        states.nothing_to_show(current)
        return
    states.warnings(current.run)
    try:
        show(current)
    except EnvSchedError as error:
        states.broken_page(error)
