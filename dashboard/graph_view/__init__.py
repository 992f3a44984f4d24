"""The graph component: vis-network (the copy inside pyvis, nothing is fetched) on positions of ours.

Physics is off: past a few hundred nodes it never settles, and positions must stay put while the step changes.
All text reaches the page through textContent or a canvas, never as HTML. A click on a node sends its number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

__all__ = ["colours", "graph_view"]

HERE = Path(__file__).parent
VIS = Path("templates/lib/vis-9.1.2/vis-network.min.js")
NOT_KNOWN = "#9AA1AB"

CIVIDIS = [
    "#00224e",
    "#083370",
    "#35456c",
    "#4f576c",
    "#666970",
    "#7d7c78",
    "#948e77",
    "#aea371",
    "#c8b866",
    "#e5cf52",
    "#fee838",
]
"""Eleven even steps of the cividis scale, dark = 0, bright = 0.25."""


def colours(variance: NDArray[np.float64], most: float = 0.25) -> list[str]:
    """A cividis colour per value in [0, `most`]; grey where it is not known."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in CIVIDIS], dtype=float)
    place = np.clip(np.nan_to_num(variance) / most, 0.0, 1.0) * (len(stops) - 1)
    low = np.minimum(place.astype(int), len(stops) - 2)
    mixed = stops[low] + (stops[low + 1] - stops[low]) * (place - low)[:, None]
    texts = [f"#{int(r):02x}{int(g):02x}{int(b):02x}" for r, g, b in mixed.round()]
    return [NOT_KNOWN if np.isnan(v) else text for v, text in zip(variance, texts, strict=True)]


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
    html='<div class="graph"></div><div class="key"></div>',
    css=(HERE / "graph.css").read_text(encoding="utf-8"),
    js=_script(),
)


def graph_view(data: dict[str, Any], *, key: str, height: int, on_click: Callable[[int], None]) -> None:
    """Draw nodes (id, x, y, label, title, colour, ring, size) and edges (from, to, cross, width, title).

    `on_click` gets the id of the clicked node.
    """

    def clicked() -> None:
        node = st.session_state[key]["clicked"]
        if node is not None:
            on_click(int(node))

    _COMPONENT(key=key, data={**data, "height": height}, on_clicked_change=clicked)
