"""The graph component: vis-network (the copy inside pyvis, nothing is fetched) on positions of ours.

Physics is off: past a few hundred nodes it never settles, and positions must stay put while the step changes.
All text reaches the page through textContent or a canvas, never as HTML. A click tells what was hit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st

__all__ = ["graph_view"]

HERE = Path(__file__).parent
VIS = Path("templates/lib/vis-9.1.2/vis-network.min.js")


@cache
def _script() -> str:
    """Vis-network and our few lines on top of it, as one module."""
    found = find_spec("pyvis")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("pyvis is not installed; `pip install envsched[dashboard]` brings it")
    text = (Path(next(iter(found.submodule_search_locations))) / VIS).read_text(encoding="utf-8")
    body = text.rsplit("//# sourceMappingURL", 1)[0]
    return body + "\n" + (HERE / "graph.js").read_text(encoding="utf-8")


_COMPONENT = st.components.v2.component(
    "envsched_graph",
    html='<div class="frame"><div class="graph"></div><div class="zoom"></div><div class="tip"></div></div>',
    css=(HERE / "graph.css").read_text(encoding="utf-8"),
    js=_script(),
)


def graph_view(data: dict[str, Any], *, key: str, height: int, on_click: Callable[[dict[str, Any]], None]) -> None:
    """Draw what `graph_looks` laid out; `data["shape"]` names the map: while it stays, only differences are drawn.

    `on_click` gets {"node": id}, {"edge": [id, id]}, or {"nothing": True} for a click beside everything.
    """

    def clicked() -> None:
        hit = st.session_state[key]["clicked"]
        if hit is not None:
            on_click(dict(hit))

    _COMPONENT(key=key, data={**data, "height": height}, on_clicked_change=clicked)
