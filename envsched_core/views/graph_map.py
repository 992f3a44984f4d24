"""A piece of the dual-relation graph that a person can look at: one environment, or around one task."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from envsched_core.graph import DualRelationGraph

from .layout import layout
from .run_view import RunView
from .tasks import standing

__all__ = ["GraphMap", "ego_graph", "environment_graph"]

Indices = NDArray[np.int64]


class GraphMap(msgspec.Struct, frozen=True):
    """Nodes with positions, edges with their parts, and how much of the whole is shown."""

    nodes: pd.DataFrame
    """Columns: node, env, task, key, x, y (pixels), centre (what was asked for), pattern (interaction pattern),
    variance (predicted at the step, [0, 0.25]; NULL when not on record), rank, state, outcome, groups (observed
    so far), ties (edges of the whole graph)."""
    edges: pd.DataFrame
    """Columns: source, target (nodes), relation (within, cross), weight [0, 1], parts (what it is the sum of)."""
    version: int
    """Number of the graph; 0 when the run has none."""
    nodes_total: int
    """Tasks of the environment, or tasks within reach of the task."""
    within_total: int
    """Within-environment edges of the environment (around a task: of all tasks within reach)."""
    cross_total: int
    """Cross-environment edges of the same."""


NO_EDGES = pd.DataFrame({name: [] for name in ("source", "target", "relation", "weight", "parts")})


def environment_graph(
    view: RunView, env: str, step: int | None, most_nodes: int = 200, most_edges: int = 600, most_cross: int = 60
) -> GraphMap:
    """The tasks of one environment, their within edges and their strongest cross edges with the tasks at their ends.

    Above `most_nodes` the tasks with most ties are shown.
    """
    graph = view.graph(_version(view, step))
    names = view.env_names()
    members = np.flatnonzero(view.env_index() == names.index(env)) if env in names else np.zeros(0, dtype=np.int64)
    if graph is None:
        return _map(view, None, members[:most_nodes], members, step, NO_EDGES, (len(members), 0, 0))
    members = members[members < graph.within.shape[0]]
    degree = np.diff(graph.within.indptr)[members] + np.diff(graph.cross.indptr)[members]
    shown = np.sort(members[np.argsort(-degree, kind="stable")[:most_nodes]])
    within = _edges(graph, "within", shown, shown).head(most_edges)
    cross = _edges(graph, "cross", shown, None).head(most_cross)
    nodes = np.union1d(shown, cross["target"].to_numpy(dtype=np.int64))
    totals = (len(members), graph.within[members].nnz // 2, graph.cross[members].nnz)
    return _map(view, graph, nodes, members, step, pd.concat([within, cross], ignore_index=True), totals)


def ego_graph(
    view: RunView, key: str, step: int | None, hops: int = 2, most_nodes: int = 60, most_edges: int = 150
) -> GraphMap:
    """The tasks tied to one task, up to `hops` edges away, strongest first.

    Raises:
        UnknownTaskError: the run has no such task.
    """
    node = view.node(key)
    start = np.array([node], dtype=np.int64)
    graph = view.graph(_version(view, step))
    if graph is None or node >= graph.within.shape[0]:
        return _map(view, graph, start, start, step, NO_EDGES, (1, 0, 0))
    reached, near = _reach(graph, node, hops, most_nodes)
    edges = pd.concat([_edges(graph, relation, near, near) for relation in ("within", "cross")], ignore_index=True)
    edges["own"] = (edges["source"] == node) | (edges["target"] == node)
    edges = edges.sort_values(["own", "weight"], ascending=False, kind="stable").head(most_edges).drop(columns="own")
    totals = (len(reached), _inner(graph.within, reached), _inner(graph.cross, reached))
    return _map(view, graph, near, start, step, edges.reset_index(drop=True), totals)


def _version(view: RunView, step: int | None) -> int | None:
    """Number of the graph that the decisions of a step used; None = the newest."""
    decisions = view.decisions(step) if step is not None else ()
    return decisions[-1].graph_version if decisions else None


def _reach(graph: DualRelationGraph, node: int, hops: int, most: int) -> tuple[Indices, Indices]:
    """All nodes up to `hops` edges away, and the `most` of them that the strongest paths lead to."""
    strength = {node: 1.0}
    frontier = [node]
    for _ in range(hops):
        found: dict[int, float] = {}
        for at in frontier:
            for relation in ("within", "cross"):
                others, weights = graph.row(relation, at)
                for other, weight in zip(others.tolist(), weights.tolist(), strict=True):
                    if other not in strength:
                        found[other] = max(found.get(other, 0.0), strength[at] * weight)
        # A path of two edges never outranks a direct edge: rings come one after the other.
        strength |= {other: value * 0.5 for other, value in found.items()}
        frontier = sorted(found, key=lambda other: (-found[other], other))[:most]
    order = sorted(strength, key=lambda other: (-strength[other], other))
    return np.array(sorted(strength), dtype=np.int64), np.array(sorted(order[:most]), dtype=np.int64)


def _inner(matrix: Any, nodes: Indices) -> int:
    return int(matrix[nodes][:, nodes].nnz) // 2


def _edges(graph: DualRelationGraph, relation: str, rows: Indices, cols: Indices | None) -> pd.DataFrame:
    """Edges from `rows` to `cols` (None: to anywhere), strongest first, each once."""
    matrix: Any = graph.within if relation == "within" else graph.cross
    parts = graph.within_parts if relation == "within" else graph.cross_parts
    at = np.concatenate([np.arange(matrix.indptr[row], matrix.indptr[row + 1]) for row in rows] or [np.zeros(0, int)])
    source = np.repeat(rows, np.diff(matrix.indptr)[rows])
    target = np.asarray(matrix.indices[at], dtype=np.int64)
    keep = np.ones(len(at), dtype=bool) if cols is None else np.isin(target, cols)
    keep &= (source < target) | ~np.isin(target, rows)
    at, source, target = at[keep], source[keep], target[keep]
    weight = np.asarray(matrix.data[at], dtype=float)
    order = np.lexsort((target, source, -weight))
    texts = _part_texts({name: np.asarray(values[at], dtype=float) for name, values in parts.items()}, order)
    columns = {"source": source[order], "target": target[order], "relation": relation, "weight": weight[order]}
    return pd.DataFrame({**columns, "parts": texts})


def _part_texts(parts: dict[str, NDArray[np.float64]], order: Indices) -> list[str]:
    """'text 0.21 + tools 0.15' for each edge."""
    texts = []
    for i in order:
        found = sorted(((float(values[i]), name) for name, values in parts.items()), reverse=True)
        texts.append(" + ".join(f"{name} {value:.2f}" for value, name in found if value >= 0.005))
    return texts


def _map(
    view: RunView,
    graph: DualRelationGraph | None,
    nodes: Indices,
    centre: Indices,
    step: int | None,
    edges: pd.DataFrame,
    totals: tuple[int, int, int],
) -> GraphMap:
    """Put positions and the standing at the step on the chosen nodes."""
    env = view.env_index()[nodes]
    empty = sparse.csr_array((len(nodes), len(nodes)))
    within = sparse.csr_array(graph.within[nodes][:, nodes]) if graph else empty
    cross = sparse.csr_array(graph.cross[nodes][:, nodes]) if graph else empty
    middle = int(view.env_index()[centre[0]]) if len(centre) else -1
    places = layout(env, within, cross, middle) if len(nodes) else np.zeros((0, 2))
    names = [view.names(int(node)) for node in nodes]
    frame = pd.DataFrame(
        {
            "node": nodes,
            "env": [e for e, _ in names],
            "task": [t for _, t in names],
            "key": [f"{e}::{t}" for e, t in names],
            "x": places[:, 0],
            "y": places[:, 1],
            "centre": np.isin(nodes, centre),
            "pattern": _patterns(graph, nodes),
            "ties": _ties(graph, nodes),
        }
    )
    frame = frame.merge(standing(view, step), on="node", how="left")
    frame = frame.merge(_observed(view, step), on=["env", "task"], how="left")
    frame["groups"] = frame["groups"].fillna(0).astype(int)
    return GraphMap(frame, edges.reset_index(drop=True), graph.version if graph else 0, *totals)


def _patterns(graph: DualRelationGraph | None, nodes: Indices) -> list[str]:
    if graph is None:
        return ["unknown"] * len(nodes)
    names = graph.pattern_names
    return [names[p] if 0 <= p < len(names) else "unknown" for p in graph.pattern[nodes]]


def _ties(graph: DualRelationGraph | None, nodes: Indices) -> NDArray[np.int64]:
    if graph is None:
        return np.zeros(len(nodes), dtype=np.int64)
    return (np.diff(graph.within.indptr)[nodes] + np.diff(graph.cross.indptr)[nodes]).astype(np.int64)


def _observed(view: RunView, step: int | None) -> pd.DataFrame:
    """Groups observed before a step (at any time when None), by task."""
    return view.query(
        """
        SELECT env, task, count(*) AS "groups" FROM groups_raw
        WHERE $s IS NULL OR step IS NULL OR step < $s GROUP BY ALL""",
        {"s": step},
    )
