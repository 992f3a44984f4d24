"""Graph: which tasks are related, and where does evidence flow?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from .. import loading, parts, words
from ..charts import BLUE, GREY, VERMILION
from ..frame import Frame
from ..graph_view import colours, graph_view
from ..loading import GraphMap

__all__ = ["show"]

LABELLED = 60
"""Nodes up to which every one carries its name; beyond it only what was asked for."""
SCALE = "linear-gradient(90deg, #00224e, #35456c, #666970, #948e77, #c8b866, #fee838)"


def show(frame: Frame) -> None:
    """The graph of one environment, or around the chosen task, coloured by predicted variance."""
    run = frame.run
    st.title("Graph")
    if run is None:
        return
    envs = sorted(loading.environments(run)["env"])
    if not envs:
        st.info("No tasks are registered yet.", icon=":material/hourglass_empty:")
        return
    around = frame.task is not None and _around()
    if around and frame.task is not None:
        found = loading.ego_graph(run, frame.task, frame.step)
        parts.plain_text(f"Around {frame.task}")
    else:
        env = _environment(frame, envs)
        found = loading.environment_graph(run, env, frame.step)
        parts.plain_text(f"Environment {env}")
    if found.version == 0:
        st.info(
            "There is no graph here: the scheduler uses none, or this is a log, which gets one when it is replayed.",
            icon=":material/info:",
        )
    else:
        _sizes(found, around=around)
        _key()
        keys = dict(zip(found.nodes["node"], found.nodes["key"], strict=True))
        graph_view(
            _data(found, frame.task, around=around),
            key="graph",
            height=620,
            on_click=lambda node: parts.go_to("decision", task=keys[node]),
        )
    _twins(found, list(found.nodes["key"]))


def _around() -> bool:
    chosen = st.segmented_control(
        "Show", ["Around the task", "Whole environment"], default="Around the task", key="scope", bind="query-params",
        required=True,
    )  # fmt: skip
    return chosen == "Around the task"


def _environment(frame: Frame, envs: list[str]) -> str:
    """The filtered environment, else that of the task, else the first; several are told."""
    wanted = frame.filters.environments
    if len(wanted) > 1:
        st.caption("Several environments are chosen on the left; the graph shows the first of them.")
    if wanted:
        return wanted[0]
    if frame.task is not None:
        return frame.task.split("::", 1)[0]
    st.caption("Choose an environment in the filters on the left; the first one is shown.")
    return envs[0]


def _sizes(found: GraphMap, *, around: bool) -> None:
    what = "tasks within two edges" if around else "tasks of the environment"
    own = len(found.nodes) if around else int(found.nodes["centre"].sum())
    within, cross = ((found.edges["relation"] == name).sum() for name in ("within", "cross"))
    beyond = "" if around else f" and {words.count(len(found.nodes) - own)} tasks of other environments at their ends"
    st.caption(
        f"{words.size_note(own, found.nodes_total, what)} Edges: {words.count(within)} of "
        f"{words.count(found.within_total)} within, {words.count(cross)} of {words.count(found.cross_total)} across"
        f"{beyond}, strongest first. Graph version {found.version}. Click a task for its decision."
    )


def _key() -> None:
    """The legend; a fixed text of ours."""
    st.html(
        f"""<div style="display:flex;gap:.4rem 1.3rem;align-items:center;font-size:.82rem;flex-wrap:wrap">
        <span><b style="display:inline-block;width:34px;border-top:3px solid {GREY};vertical-align:middle"></b>
          within the environment</span>
        <span><b style="display:inline-block;width:34px;border-top:3px dashed {VERMILION};vertical-align:middle"></b>
          across environments</span>
        <span>predicted variance 0 <b style="display:inline-block;width:120px;height:12px;background:{SCALE};
          vertical-align:middle;border-radius:3px"></b> 0.25</span>
        <span><b style="display:inline-block;width:12px;height:12px;border-radius:50%;border:3px solid {BLUE};
          vertical-align:middle"></b> picked at this step</span>
        <span><b style="display:inline-block;width:12px;height:12px;border-radius:50%;border:3px solid {VERMILION};
          vertical-align:middle"></b> the chosen task</span>
        <span>square: another environment</span></div>"""
    )


def _data(found: GraphMap, task: str | None, *, around: bool) -> dict[str, Any]:
    """What the component draws; around a task, edges that do not touch it are faint."""
    nodes, edges = found.nodes, found.edges
    fills = colours(nodes["variance"].to_numpy(dtype=float, na_value=np.nan))
    middle = nodes[nodes["centre"]]["env"].iloc[0] if nodes["centre"].any() else ""
    labelled = int((nodes["env"] == middle).sum()) <= LABELLED
    own = set(nodes[nodes["key"] == task]["node"] if around else nodes["node"])
    shape = f"{found.version}:{','.join(map(str, nodes['node'].head(50)))}:{len(nodes)}"
    return {
        "shape": shape,
        "nodes": [
            _node(row, fill, task, middle, named=labelled) for row, fill in zip(nodes.itertuples(), fills, strict=True)
        ],
        "edges": [_edge(row, faint=not {row.source, row.target} & own) for row in edges.itertuples()],
        "captions": [_caption(str(env), group) for env, group in nodes.groupby("env", sort=False)],
    }


def _caption(env: str, group: pd.DataFrame) -> dict[str, Any]:
    """The name of an environment above its disc."""
    return {"text": _short(env, 32), "x": float(group["x"].mean()), "y": float(group["y"].min()) - 42.0}


def _node(row: Any, fill: str, task: str | None, middle: str, *, named: bool) -> dict[str, Any]:
    chosen = row.key == task
    picked = row.outcome in ("selected", "uniform_draw")
    title = (
        f"{row.key}\npredicted variance {words.variance(row.variance)}, rank {words.count(row.rank)}\n"
        f"{words.outcome(row.outcome)}; evidence: {row.state if isinstance(row.state, str) else 'not on record'}\n"
        f"{row.groups} groups observed, {row.ties} edges, pattern: {row.pattern}"
    )
    name = row.task if row.env == middle else row.key
    return {
        "id": int(row.node),
        "x": float(row.x),
        "y": float(row.y),
        "label": _short(name) if chosen or (named and row.env == middle) else "",
        "title": title,
        "colour": fill,
        "ring": VERMILION if chosen else BLUE if picked else "",
        "size": 14 if chosen else 10,
        "shape": "dot" if row.env == middle else "square",
    }


def _short(text: str, most: int = 24) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _edge(row: Any, *, faint: bool) -> dict[str, Any]:
    cross = row.relation == "cross"
    return {
        "from": int(row.source),
        "to": int(row.target),
        "cross": cross,
        "opacity": 0.2 if faint else 0.75,
        "width": 0.5 + 2.5 * float(row.weight),
        "colour": VERMILION if cross else GREY,
        "title": f"{'across' if cross else 'within'}, weight {row.weight:.2f}\n{row.parts}",
    }


def _twins(found: GraphMap, keys: list[str]) -> None:
    left, right = st.columns(2, gap="medium")
    with left, st.expander("Tasks as table", icon=":material/table_rows:"):
        nodes = found.nodes[["env", "task", "variance", "rank", "outcome", "state", "groups", "ties", "pattern"]]
        parts.pick_row(
            nodes.assign(outcome=[words.outcome(code) for code in nodes["outcome"]]),
            key="graph_nodes",
            on_pick=lambda row: parts.go_to("decision", task=keys[row]),
            columns={"variance": st.column_config.NumberColumn("predicted variance", format="%.3f")},
        )
    with right, st.expander("Edges as table", icon=":material/table_rows:"):
        parts.table(_edge_table(found), key="graph_edges")


def _edge_table(found: GraphMap) -> pd.DataFrame:
    names = dict(zip(found.nodes["node"], found.nodes["key"], strict=True))
    edges = found.edges
    return pd.DataFrame(
        {
            "task": edges["source"].map(names),
            "other task": edges["target"].map(names),
            "relation": edges["relation"],
            "weight": edges["weight"],
            "made of": edges["parts"],
        }
    )
