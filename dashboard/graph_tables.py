"""Below the map: the same as tables, and as files (a page that opens anywhere, GraphML)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from . import parts, words
from .graph_export import graphml
from .loading import EnvironmentMap, GraphMap

__all__ = ["environment_tables", "task_tables"]

VARIANCE = st.column_config.NumberColumn("predicted variance", format="%.3f")
WEIGHT = st.column_config.NumberColumn("weight", format="%.3f")


def task_tables(
    found: GraphMap, choose: Callable[[str], None], whole: Callable[[], GraphMap], page: Callable[[], bytes] | None
) -> None:
    """Tasks and edges of a map; a row chooses its task. `whole` is the map uncut, `page` the HTML file."""
    left, right = st.columns(2, gap="medium")
    nodes, keys = found.nodes, found.nodes["key"].tolist()
    with left, st.expander(f"Tasks as table ({words.count(len(nodes))})", icon=":material/table_rows:"):
        shown = nodes[["env", "task", "variance", "rank", "outcome", "state", "groups", "last_step", "ties", "pattern"]]
        parts.pick_row(
            shown.assign(outcome=[words.outcome(code) for code in nodes["outcome"]]),
            key="graph_nodes",
            on_pick=lambda row: choose(keys[row]),
            columns={
                "variance": VARIANCE,
                "state": "evidence",
                "groups": "groups observed",
                "last_step": st.column_config.NumberColumn("last observed at step", format="%d"),
                "ties": "edges",
            },
        )
    with right, st.expander(f"Edges as table ({words.count(len(found.edges))})", icon=":material/table_rows:"):
        parts.table(_edges(found), key="graph_edges", columns={"weight": WEIGHT})
    if page is not None:
        _files(page, lambda: graphml(whole()))


def _edges(found: GraphMap) -> pd.DataFrame:
    names = dict(zip(found.nodes["node"], found.nodes["key"], strict=True))
    edges = found.edges
    return pd.DataFrame(
        {
            "task": edges["source"].map(names),
            "other task": edges["target"].map(names),
            "relation": edges["relation"],
            "weight": edges["weight"].astype(float),
            "made of": edges["parts"],
        }
    )


def environment_tables(
    found: EnvironmentMap, opened: Callable[[str], None], whole: Callable[[], EnvironmentMap],
    page: Callable[[], bytes] | None,
) -> None:  # fmt: skip
    """Environments and pairs of a map; a row opens its environment."""
    left, right = st.columns(2, gap="medium")
    envs = found.nodes["env"].tolist()
    with left, st.expander(f"Environments as table ({words.count(len(envs))})", icon=":material/table_rows:"):
        parts.pick_row(
            found.nodes[
                ["env", "tasks", "seen", "groups", "picks", "variance", "state", "last_step", "within", "cross"]
            ],
            key="graph_environments",
            on_pick=lambda row: opened(envs[row]),
            columns={
                "variance": st.column_config.NumberColumn("mean predicted variance", format="%.3f"),
                "seen": "tasks observed",
                "groups": "groups observed",
                "picks": "picks at the step",
                "state": "commonest evidence",
                "last_step": "last observed at step",
                "within": "edges within",
                "cross": "edges across",
            },
        )
    with right, st.expander(f"Pairs as table ({words.count(len(found.edges))})", icon=":material/table_rows:"):
        names: dict[Any, str] = dict(zip(found.nodes["node"], found.nodes["env"], strict=True))
        pairs = pd.DataFrame(
            {
                "environment": found.edges["source"].map(names),
                "other environment": found.edges["target"].map(names),
                "edges": found.edges["edges"],
                "weight": found.edges["weight"].astype(float),
            }
        )
        mean = st.column_config.NumberColumn("mean weight", format="%.3f")
        parts.table(pairs, key="graph_pairs", columns={"weight": mean})
    if page is not None:
        _files(page, lambda: graphml(whole()))


def _files(page: Callable[[], bytes], whole: Callable[[], bytes]) -> None:
    place = st.container(horizontal=True, vertical_alignment="center")
    # Made on click: building them with the page would hold up every change of the step.
    place.download_button(
        "This map as a page (HTML)", page, "graph.html", "text/html", key="graph_html", on_click="ignore",
        icon=":material/download:",
    )  # fmt: skip
    place.download_button(
        "All of it as GraphML", whole, "graph.graphml", "application/xml", key="graph_graphml", on_click="ignore",
        icon=":material/download:",
    )  # fmt: skip
    place.caption("The page opens anywhere and asks no other host; GraphML holds what is not drawn here, too.")
