"""The dual-relation graph as maps that a person can look at: around one task, one environment, or all tasks.

Where a node stands depends on the run's graphs, never on the step: maps of one environment or around one task give
a place to every task that any graph of the run would bring onto them, and show those that the step's graph does.
What is left out is counted. Maps of environments, for catalogues too large to draw, are in graph_envs.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from envsched_core.graph import DualRelationGraph

from .graph_edges import RELATIONS, Wanted, edge_table, graph_at, neighbour_nodes, strongest
from .graph_rings import rings
from .layout import layout
from .run_view import RunView
from .tasks import standing

__all__ = ["MOST_TASKS", "GraphMap", "absence", "ego_graph", "environment_graph", "neighbours", "task_graph"]

Indices = NDArray[np.int64]
MOST_TASKS = 5_000
"""Tasks drawn one by one; a larger catalogue is a map of environments."""
MOST_GRAPHS = 16
"""Graphs of a run that places are kept for; of more, as many spread over the run."""
ROOMY = 60
"""Tasks whose disc needs no widening."""
NO_EDGES = pd.DataFrame({name: [] for name in ("source", "target", "relation", "weight", "parts")})


class GraphMap(msgspec.Struct, frozen=True):
    """Nodes with positions, edges with their parts, and how much of the whole is shown."""

    nodes: pd.DataFrame
    """Columns: node, env, task, key, x, y (pixels), centre (what was asked for), pattern (interaction pattern),
    ties (edges of the whole graph), rank, score, variance (predicted at the step, [0, 0.25]; NULL when not on
    record), state, outcome, groups (observed before the step), last_step (at which the last of them was observed;
    NULL when none was, or it carries no step)."""
    edges: pd.DataFrame
    """Columns: source, target (nodes), relation (within, cross), weight [0, 1], parts (what it is the sum of)."""
    version: int
    """Number of the graph; 0 when there is none to show."""
    nodes_total: int
    """Tasks of the environment, within reach of the task, or of the chosen environments."""
    within_total: int
    """Within-environment edges of the same, whatever their weight."""
    cross_total: int
    """Cross-environment edges of the same."""
    within_heavy: int = 0
    """Within-environment edges at or over the smallest weight asked for."""
    cross_heavy: int = 0
    """Cross-environment edges at or over it."""
    heaviest: float = 0.0
    """Weight of the strongest edge of the same tasks."""
    absent: str = ""
    """Why there is no graph: log, scheduler, damaged; empty where there is one."""


class _Totals(msgspec.Struct, frozen=True):
    """Counts that go into a map as they are."""

    nodes: int
    total: tuple[int, int] = (0, 0)
    heavy: tuple[int, int] = (0, 0)
    heaviest: float = 0.0


def environment_graph(
    view: RunView, env: str, step: int | None, most_nodes: int = 200, most_edges: int = 600, most_cross: int = 60,
    relations: tuple[str, ...] = RELATIONS, weight: float = 0.0,
) -> GraphMap:  # fmt: skip
    """The tasks of one environment, their within edges and their strongest cross edges with the tasks at their ends.

    Above `most_nodes` the tasks with most ties in the newest graph are shown.
    """
    graph, version = graph_at(view, step)
    names = view.env_names()
    members = np.flatnonzero(view.env_index() == names.index(env)) if env in names else np.zeros(0, dtype=np.int64)
    if graph is None:
        return _bare(view, members[:most_nodes], members, step, version)
    everyone, graphs = members, _graphs(view, graph)
    members = members[members < graph.within.shape[0]]
    shown = _most_tied(graphs[-1], members, most_nodes)
    wanted = Wanted(relations, weight, most_edges, most_cross)
    within, *within_counts = edge_table(graph, "within", shown, shown, wanted)
    cross, *cross_counts = edge_table(graph, "cross", shown, None, wanted)
    if len(shown) < len(members):
        within_counts = list(edge_table(graph, "within", members, members, wanted._replace(within=0))[1:])
        cross_counts = list(edge_table(graph, "cross", members, None, wanted._replace(cross=0))[1:])
    ends = [strongest(one, "cross", shown[shown < one.cross.shape[0]], most_cross) for one in graphs]
    placed = np.unique(np.concatenate([shown, *ends, cross["target"].to_numpy(dtype=np.int64)]))
    nodes = np.union1d(shown, cross["target"].to_numpy(dtype=np.int64))
    heaviest = _heaviest(graph, members, None)
    totals = _Totals(
        len(everyone), (within_counts[0], cross_counts[0]), (within_counts[1], cross_counts[1]), heaviest
    )  # fmt: skip
    edges = pd.concat([within, cross], ignore_index=True)
    return _map(view, graph, nodes, everyone, step, edges, totals, _places(view, graphs, placed, members, nodes))


def ego_graph(
    view: RunView, key: str, step: int | None, hops: int = 2, most_nodes: int = 60, most_edges: int = 150,
    relations: tuple[str, ...] = RELATIONS, weight: float = 0.0,
) -> GraphMap:  # fmt: skip
    """The tasks tied to one task, up to `hops` edges away, strongest first.

    Raises:
        UnknownTaskError: the run has no such task.
    """
    node = view.node(key)
    start = np.array([node], dtype=np.int64)
    graph, version = graph_at(view, step)
    if graph is None or node >= graph.within.shape[0]:
        return _bare(view, start, start, step, version)
    graphs = _graphs(view, graph)
    reached, near = _reach(graph, node, hops, most_nodes)
    everything = Wanted(relations, weight, len(near) ** 2, len(near) ** 2)
    edges = pd.concat([edge_table(graph, name, near, near, everything)[0] for name in RELATIONS], ignore_index=True)
    edges = _leading_out(edges, node).head(most_edges)
    none = Wanted(relations, weight, 0, 0)
    counts = [edge_table(graph, name, reached, reached, none)[1:] for name in RELATIONS]
    totals = _Totals(
        len(reached), (counts[0][0], counts[1][0]), (counts[0][1], counts[1][1]), _heaviest(graph, reached, reached)
    )  # fmt: skip
    others = [_reach(one, node, hops, most_nodes)[1] for one in graphs if node < one.within.shape[0]]
    placed = np.unique(np.concatenate([near, *others]))
    within, cross = _ties_among(graphs, placed)
    whole = rings(within + cross, view.env_index()[placed], int(np.searchsorted(placed, node)))
    places = whole[np.searchsorted(placed, near)]
    return _map(view, graph, near, start, step, edges.reset_index(drop=True), totals, places)


def task_graph(
    view: RunView, step: int | None, envs: tuple[str, ...] = (), most_within: int = 1_000, most_cross: int = 500,
    relations: tuple[str, ...] = RELATIONS, weight: float = 0.0,
) -> GraphMap:  # fmt: skip
    """All tasks of `envs` (of the run when empty), at most `MOST_TASKS`, with edges among them.

    The strongest edges of every environment, and of every pair of them, come first.
    """
    graph, version = graph_at(view, step)
    names, env = view.env_names(), view.env_index()
    chosen = [names.index(name) for name in envs if name in names]
    members = np.flatnonzero(np.isin(env, chosen)) if envs else np.arange(len(env))
    if graph is None:
        return _bare(view, members[:MOST_TASKS], members, step, version)
    everyone = members
    newest = view.graph()
    base = graph if newest is None else newest
    shown = members[:MOST_TASKS]
    inside = shown[shown < graph.within.shape[0]]
    wanted = Wanted(relations, weight, most_within, most_cross, fair=env)
    tables = [edge_table(graph, name, inside, inside, wanted) for name in RELATIONS]
    totals = _Totals(
        len(everyone), (tables[0][1], tables[1][1]), (tables[0][2], tables[1][2]), _heaviest(graph, inside, inside)
    )
    placed = shown[shown < base.within.shape[0]]
    edges = pd.concat([table for table, *_ in tables], ignore_index=True)
    return _map(view, graph, placed, everyone, step, edges, totals, _all_places(view, base, placed))


def neighbours(view: RunView, key: str, step: int | None) -> pd.DataFrame:
    """Every direct neighbour of a task in the graph that a step used, strongest first.

    Columns: key, env, task, relation, weight [0, 1], parts, groups (observed before the step), variance (predicted),
    state, outcome.

    Raises:
        UnknownTaskError: the run has no such task.
    """
    node = view.node(key)
    graph, _ = graph_at(view, step)
    inside = graph is not None and node < graph.within.shape[0]
    edges = neighbour_nodes(graph, node) if graph is not None and inside else NO_EDGES
    names = [view.names(int(other)) for other in edges["target"]]
    frame = pd.DataFrame(
        {
            "key": [f"{env}::{task}" for env, task in names],
            "env": [env for env, _ in names],
            "task": [task for _, task in names],
            "relation": edges["relation"],
            "weight": edges["weight"].astype(float),
            "parts": edges["parts"],
            "node": edges["target"].astype(np.int64),
        }
    )
    frame = frame.merge(standing(view, step)[["node", "variance", "state", "outcome"]], on="node", how="left")
    frame = frame.astype({"env": object, "task": object})  # of no rows, pandas takes the names for numbers
    frame = frame.merge(observed(view, step), on=["env", "task"], how="left")
    frame["groups"] = pd.to_numeric(frame["groups"]).fillna(0).astype(int)
    return frame[["key", "env", "task", "relation", "weight", "parts", "groups", "variance", "state", "outcome"]]


def absence(view: RunView, version: int | None) -> str:
    """Why the graph of a number (None: the newest) cannot be shown: log, scheduler or damaged."""
    if view.manifest.kind == "import":
        return "log"
    there = view.reader.graph_versions()
    return "damaged" if there and version != 0 else "scheduler"


def observed(view: RunView, step: int | None) -> pd.DataFrame:
    """Groups observed before a step (at any time when None), and the step of the last, by env and task."""
    return view.query(
        """
        SELECT env, task, count(*) AS "groups", max(step) AS last_step FROM groups_raw
        WHERE $s IS NULL OR step IS NULL OR step < $s GROUP BY ALL""",
        {"s": step},
    )


# ---------------------------------------------------------------------- which nodes


def _graphs(view: RunView, current: DualRelationGraph) -> list[DualRelationGraph]:
    """The graphs that places are kept for, the newest last."""
    versions = view.reader.graph_versions()
    if len(versions) > MOST_GRAPHS:
        versions = [versions[i] for i in np.linspace(0, len(versions) - 1, MOST_GRAPHS).round().astype(int)]
    found = [current if version == current.version else view.graph(version) for version in versions]
    return [graph for graph in found if graph is not None] or [current]


def _most_tied(graph: DualRelationGraph, members: Indices, most: int) -> Indices:
    if len(members) <= most:
        return members
    inside = np.minimum(members, graph.within.shape[0] - 1)
    degree = np.diff(graph.within.indptr)[inside] + np.diff(graph.cross.indptr)[inside]
    return np.sort(members[np.argsort(-degree, kind="stable")[:most]])


def _reach(graph: DualRelationGraph, node: int, hops: int, most: int) -> tuple[Indices, Indices]:
    """All nodes up to `hops` edges away, and the `most` of them that the strongest paths lead to."""
    strength = {node: 1.0}
    frontier = [node]
    for _ in range(hops):
        found: dict[int, float] = {}
        for at in frontier:
            for relation in RELATIONS:
                others, weights = graph.row(relation, at)
                for other, weight in zip(others.tolist(), weights.tolist(), strict=True):
                    if other not in strength:
                        found[other] = max(found.get(other, 0.0), strength[at] * weight)
        # A path of two edges never outranks a direct edge: rings come one after the other.
        strength |= {other: value * 0.5 for other, value in found.items()}
        frontier = sorted(found, key=lambda other: (-found[other], other))[:most]
    order = sorted(strength, key=lambda other: (-strength[other], other))
    return np.array(sorted(strength), dtype=np.int64), np.array(sorted(order[:most]), dtype=np.int64)


def _leading_out(edges: pd.DataFrame, node: int) -> pd.DataFrame:
    """Edges of the node first, then the strongest that leads on to each other task, then the rest; strongest first."""
    own = (edges["source"] == node) | (edges["target"] == node)
    direct = {*edges.loc[own, "source"], *edges.loc[own, "target"]}
    first, last = edges["source"].isin(direct), edges["target"].isin(direct)
    far = edges["target"].where(first, edges["source"])
    strongest_first = edges.assign(own=own, leads=~own & (first ^ last), far=far).sort_values(
        "weight", ascending=False, kind="stable"
    )
    leads = strongest_first["leads"] & (strongest_first.groupby(["leads", "far"]).cumcount() == 0)
    order = strongest_first.assign(leads=leads).sort_values(
        ["own", "leads", "weight"], ascending=False, kind="stable"
    )  # fmt: skip
    return order[list(edges)]


def _heaviest(graph: DualRelationGraph, rows: Indices, cols: Indices | None) -> float:
    one = Wanted(within=1, cross=1)
    tables = [edge_table(graph, relation, rows, cols, one)[0] for relation in RELATIONS]
    return max((float(table["weight"].iloc[0]) for table in tables if len(table)), default=0.0)


# ---------------------------------------------------------------------- where they stand


def _among(matrix: Any, nodes: Indices) -> sparse.csr_array:
    return sparse.csr_array(matrix[nodes][:, nodes])


def _places(
    view: RunView, graphs: list[DualRelationGraph], placed: Indices, centre: Indices, nodes: Indices
) -> NDArray[np.float64]:
    """Positions of `nodes`, all of them among `placed`, which every graph of the run has a say in."""
    env = view.env_index()[placed]
    within, cross = _ties_among(graphs, placed)
    middle = int(view.env_index()[centre[0]]) if len(centre) else -1
    return _opened(layout(env, within, cross, middle), env == middle)[np.searchsorted(placed, nodes)]


def _opened(places: NDArray[np.float64], home: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Widen a small disc in the middle, so that its edges can be told apart, and move the rest out as far."""
    few = int(home.sum())
    if not few or few == len(home):
        return places
    widened = max(min(2.6, (ROOMY / few) ** 0.5), 1.0)
    reach = float(np.linalg.norm(places[home], axis=1).max())
    out = places.copy()
    out[home] *= widened
    far = np.linalg.norm(places[~home], axis=1, keepdims=True)
    out[~home] *= 1.0 + reach * (widened - 1.0) / far
    return out


def _all_places(view: RunView, graph: DualRelationGraph, placed: Indices) -> NDArray[np.float64]:
    """Positions of `placed` by one graph, kept until other tasks or another graph are asked for."""

    def make() -> NDArray[np.float64]:
        env = view.env_index()[placed]
        middle = int(np.bincount(env).argmax()) if len(placed) else -1
        within, cross = _among(graph.within, placed), _among(graph.cross, placed)
        return layout(env, within, cross, middle) if len(placed) else np.zeros((0, 2))

    # Every step asks for the same places again.
    return view.kept.of("places", (graph.version, placed.tobytes()), make)


def _ties_among(graphs: list[DualRelationGraph], placed: Indices) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Both relations among a few nodes [n, n], each edge with the largest weight that any graph gives it."""
    within = cross = sparse.csr_array((len(placed), len(placed)))
    for graph in graphs:
        known = np.minimum(placed, graph.within.shape[0] - 1)
        there = sparse.diags_array((placed < graph.within.shape[0]).astype(float))
        within = sparse.csr_array(within.maximum(there @ _among(graph.within, known) @ there))
        cross = sparse.csr_array(cross.maximum(there @ _among(graph.cross, known) @ there))
    return within, cross


def _bare(view: RunView, nodes: Indices, centre: Indices, step: int | None, version: int | None) -> GraphMap:
    """A map without edges: there is no graph, or a task came after it."""
    empty, env = sparse.csr_array((len(nodes), len(nodes))), view.env_index()[nodes]
    places = (
        view.kept.of("bare places", env.tobytes(), lambda: layout(env, empty, empty, int(env[0])))
        if len(nodes)
        else np.zeros((0, 2))
    )
    graph = view.graph(version)
    found = _map(view, graph, nodes, centre, step, NO_EDGES, _Totals(len(centre)), places)
    return msgspec.structs.replace(found, absent="" if graph is not None else absence(view, version))


def _map(
    view: RunView,
    graph: DualRelationGraph | None,
    nodes: Indices,
    centre: Indices,
    step: int | None,
    edges: pd.DataFrame,
    totals: _Totals,
    places: NDArray[np.float64],
) -> GraphMap:
    """Put the standing at the step on the chosen nodes."""
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
    frame = frame.merge(standing(view, step), on="node", how="left").astype({"env": object, "task": object})
    frame = frame.merge(observed(view, step), on=["env", "task"], how="left")
    frame["groups"] = pd.to_numeric(frame["groups"]).fillna(0).astype(int)
    return GraphMap(
        frame, edges.reset_index(drop=True), graph.version if graph else 0, totals.nodes, *totals.total, *totals.heavy,
        totals.heaviest,
    )  # fmt: skip


def _patterns(graph: DualRelationGraph | None, nodes: Indices) -> list[str]:
    if graph is None:
        return ["unknown"] * len(nodes)
    names, inside = graph.pattern_names, len(graph.pattern)
    found = [int(graph.pattern[node]) if node < inside else -1 for node in nodes]
    return [names[p] if 0 <= p < len(names) else "unknown" for p in found]


def _ties(graph: DualRelationGraph | None, nodes: Indices) -> NDArray[np.int64]:
    if graph is None:
        return np.zeros(len(nodes), dtype=np.int64)
    degree = np.diff(graph.within.indptr) + np.diff(graph.cross.indptr)
    ties: NDArray[np.int64] = np.concatenate([degree, [0]])[np.minimum(nodes, len(degree))].astype(np.int64)
    return ties
