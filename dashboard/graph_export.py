"""The map as files: one HTML page that opens anywhere without a request (pyvis), and GraphML (networkx).

pyvis has tags in its template that fetch a style sheet and scripts; they are taken out, and a policy in the page
forbids any fetch. Texts of a log are JSON in a script, escaped so that they cannot end it, or escaped HTML.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from .loading import EnvironmentMap, GraphMap

__all__ = ["graphml", "standalone_page"]

FETCHED = re.compile(
    r"<link\b[^>]*\bhref\s*=\s*[\"']?https?:[^>]*>|<script\b[^>]*\bsrc\s*=\s*[\"']?https?:[^>]*>\s*</script>|<!--.*?-->",
    re.DOTALL | re.IGNORECASE,
)
"""Tags that ask another host, and comments, which hold more of them."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no place for."""
TIP_LINK = "hre\u200bf"
"""pyvis renders every tooltip as HTML as soon as one holds the word with which a link begins."""
NODE_COLUMNS = (
    *("env", "task", "x", "y", "pattern", "ties", "variance", "rank", "score", "state", "outcome", "groups"),
    *("last_step", "tasks", "seen", "picks", "within", "cross"),
)
EDGE_COLUMNS = ("relation", "weight", "parts", "edges")
WHOLE = ("ties", "rank", "groups", "last_step", "tasks", "seen", "picks", "within", "cross", "edges")
"""Columns of whole numbers."""


def standalone_page(data: Mapping[str, Any], legend: str, title: str, lines: list[str]) -> bytes:
    """What `graph_looks` laid out as a page of its own; `legend` is HTML of ours, the rest may hold text of a log."""
    # pyvis brings IPython along, which takes longer than the page itself: only who wants the file waits for it.
    from pyvis.network import Network

    text, back = "#1B2430", "#FFFFFF"
    network = Network(
        height="78vh", width="100%", directed=True, bgcolor=back, font_color=text, cdn_resources="in_line"
    )
    network.toggle_physics(False)
    for node in _page_nodes(data, text):
        network.add_node(**node)
    for edge in _page_edges(data):
        network.add_edge(**edge)
    network.set_options(_OPTIONS)
    page = FETCHED.sub("", network.generate_html(notebook=False))
    page = page.replace("<center>\n<h1></h1>\n</center>", "").replace("<h1></h1>", "")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{html.escape(title)}</title>'
        f"<style>body {{ font: 15px/1.45 sans-serif; color: {text}; background: {back}; margin: 1rem 1.4rem; }}"
        " h1 { font-size: 1.35rem; margin: 0 0 .3rem; overflow-wrap: anywhere; } p { margin: .15rem 0; }"
        " .card { border: 0; } div.vis-tooltip { white-space: pre-line !important; max-width: 460px;"
        " overflow-wrap: anywhere; }</style>"
    )
    said = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    top = f"<h1>{html.escape(title)}</h1>{said}<div style='margin:.5rem 0'>{legend}</div>"
    page = page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{head}', 1)
    page = re.sub(r"<body>", lambda found: f"{found.group()}{top}", page, count=1)
    return f"<!DOCTYPE html>\n{page}".encode("utf-8", "replace")


_OPTIONS = """{"physics": {"enabled": false}, "layout": {"improvedLayout": false},
 "edges": {"smooth": false, "arrows": {"to": {"enabled": false}}},
 "nodes": {"scaling": {"label": {"drawThreshold": 9}}},
 "interaction": {"hover": true, "hideEdgesOnDrag": true, "dragNodes": false, "tooltipDelay": 120}}"""


def _tip(text: str) -> str:
    return text.replace("href", TIP_LINK)


def _page_nodes(data: Mapping[str, Any], text: str) -> list[dict[str, Any]]:
    n = data["nodes"]
    nodes = [
        {
            "n_id": node, "label": n["label"][i] or " ", "title": _tip(n["title"][i]), "x": n["x"][i], "y": n["y"][i],
            "size": n["size"][i], "shape": n["shape"][i], "physics": False,
            "borderWidth": data["ring"] if n["ring"][i] else 1,
            "color": {"background": n["fill"][i], "border": n["ring"][i] or text},
            "opacity": 0.18 if n["faint"][i] else 1.0, "font": {"size": n["font"][i], "color": text},
        }
        for i, node in enumerate(n["id"])
    ]  # fmt: skip
    captions = [
        {"n_id": f"caption {i}", "label": c["text"], "x": c["x"], "y": c["y"], "shape": "text", "physics": False,
         "font": {"size": c["size"], "color": text}}
        for i, c in enumerate(data["captions"])
    ]  # fmt: skip
    return nodes + captions


def _page_edges(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    e, unit = data["edges"], data["unit"]
    dashes = [7 * unit, 5 * unit]
    edges = [
        {
            "source": source,
            "to": e["to"][i],
            "width": e["width"][i] * unit,
            "dashes": dashes if e["cross"][i] else False,
            "title": _tip(e["title"][i]),
            "color": {"color": e["colour"][i], "opacity": e["opacity"][i]},
        }
        for i, source in enumerate(e["from"])
    ]
    flow = [
        {
            "source": f["from"],
            "to": f["to"],
            "width": f["width"] * unit,
            "dashes": dashes if f["cross"] else False,
            "title": _tip(f["title"]),
            "color": {"color": f["colour"], "opacity": 1.0},
            "arrows": "to",
        }
        for f in data["flow"]
    ]
    return edges + flow


def graphml(found: GraphMap | EnvironmentMap) -> bytes:
    """Nodes and edges with all that the tables say of them; a fact that is not known is left out."""
    import networkx as nx  # slow to load, and only files need it

    graph: nx.Graph[int] = nx.Graph(version=found.version)
    for row in found.nodes.to_dict("records"):
        graph.add_node(int(row["node"]), **_facts({str(k): v for k, v in row.items()}, NODE_COLUMNS))
    for row in found.edges.to_dict("records"):
        graph.add_edge(
            int(row["source"]), int(row["target"]), **_facts({str(k): v for k, v in row.items()}, EDGE_COLUMNS)
        )
    out = io.BytesIO()
    nx.write_graphml(graph, out)
    return out.getvalue()


def _facts(row: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {}
    for name in columns:
        value = row.get(name)
        if value is None or pd.isna(value):
            continue
        if isinstance(value, str):
            facts[name] = NO_XML.sub("\ufffd", value)
        elif name in WHOLE:
            facts[name] = int(value)
        else:
            facts[name] = float(value)
    return facts
