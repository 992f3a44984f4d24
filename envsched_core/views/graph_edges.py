"""Edges of the graph as a page shows them: strongest first, what each is made of, and who a task's neighbours are."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.errors import UnknownTaskError
from envsched_core.graph import DualRelationGraph
from envsched_core.passes import runs

from .run_view import RunView

__all__ = ["RELATIONS", "EdgeFacts", "Wanted", "edge_facts", "edge_table", "graph_at", "neighbour_nodes", "strongest"]

Indices = NDArray[np.int64]
RELATIONS = ("within", "cross")
COLUMNS = ("source", "target", "relation", "weight", "parts")
LITTLE = 0.005
"""Parts below this are not told in a line of text."""


class Wanted(NamedTuple):
    """Which edges of both relations count, and how many of each are drawn."""

    relations: tuple[str, ...] = RELATIONS
    weight: float = 0.0
    """Smallest weight, in [0, 1]."""
    within: int = 600
    """Most edges within environments."""
    cross: int = 60
    """Most edges across."""
    fair: Indices | None = None
    """Environment of every task [N]: the strongest of each environment, and of each pair, come first."""


class EdgeFacts(msgspec.Struct, frozen=True):
    """One edge: its weight, the parts it is the sum of, and what both tasks share."""

    source: str
    """Key (ENV::TASK) of one end."""
    target: str
    relation: str
    weight: float
    """In [0, 1]; evidence along the edge is multiplied by it, by trust and by the environment's concentration."""
    parts: pd.DataFrame
    """Columns: part (kind of similarity), value (its part of the weight), share (value / sum of the parts)."""
    version: int
    """Number of the graph."""
    tools: tuple[str, ...]
    """Names of tools that both tasks have."""
    calls: tuple[tuple[str, ...], tuple[str, ...]]
    """Reference calls of each end; empty where the catalogue has none."""


def graph_at(view: RunView, step: int | None) -> tuple[DualRelationGraph | None, int | None]:
    """The graph that the decisions of a step used, and its number; the newest when the step has no decision."""
    decisions = view.decisions(step) if step is not None else ()
    version = decisions[-1].graph_version if decisions else None
    return view.graph(version), version


class _Half(NamedTuple):
    """Entries of a relation's matrix, each edge once."""

    source: Indices
    target: Indices
    weight: NDArray[np.float64]
    at: Indices
    """Place among the matrix's data, and so among the parts."""


def _entries(matrix: Any, rows: Indices, cols: Indices | None) -> _Half:
    """Edges from `rows` to `cols` (None: to anywhere), each once."""
    start = matrix.indptr[rows].astype(np.int64)
    reach = matrix.indptr[rows + 1].astype(np.int64) - start
    at = np.repeat(start, reach) + runs(reach)
    source = np.repeat(rows, reach)
    target = np.asarray(matrix.indices[at], dtype=np.int64)
    known = np.zeros(matrix.shape[0], dtype=bool)
    known[rows] = True
    keep = (source < target) | ~known[target]
    if cols is not None:
        wanted = np.zeros(matrix.shape[0], dtype=bool)
        wanted[cols] = True
        keep &= wanted[target]
    at = at[keep]
    return _Half(source[keep], target[keep], np.asarray(matrix.data[at], dtype=float), at)


def edge_table(
    graph: DualRelationGraph, relation: str, rows: Indices, cols: Indices | None, wanted: Wanted
) -> tuple[pd.DataFrame, int, int]:
    """Edges of one relation from `rows` to `cols` (None: to anywhere), strongest first, each once.

    Columns: source, target (nodes), relation, weight [0, 1], parts (text). Then how many edges there are, and how
    many of them are at or over the smallest weight, however few are listed.
    """
    matrix = graph.within if relation == "within" else graph.cross
    found = _entries(matrix, rows, cols)
    total = len(found.at)
    passing = found.weight >= wanted.weight
    if relation not in wanted.relations:
        return pd.DataFrame({name: [] for name in COLUMNS}), total, int(passing.sum())
    order = np.lexsort((found.target, found.source, -found.weight))
    order = order[passing[order]]
    if wanted.fair is not None:
        order = order[np.argsort(_turns(wanted.fair, found, order), kind="stable")]
    order = order[: getattr(wanted, relation)]
    frame = pd.DataFrame(
        {
            "source": found.source[order],
            "target": found.target[order],
            "relation": relation,
            "weight": found.weight[order],
            "parts": _part_texts(graph, relation, found.at[order]),
        }
    )
    return frame, total, int(passing.sum())


def _turns(env: Indices, found: _Half, order: Indices) -> Indices:
    """How many edges of the same pair of environments come before each edge of `order`."""
    ends = env[found.source[order]], env[found.target[order]]
    pair = np.minimum(*ends) * (int(env.max(initial=0)) + 1) + np.maximum(*ends)
    _, group, counts = np.unique(pair, return_inverse=True, return_counts=True)
    place = np.empty(len(order), dtype=np.int64)
    place[np.argsort(group, kind="stable")] = runs(counts)
    return place


def strongest(graph: DualRelationGraph, relation: str, rows: Indices, most: int) -> Indices:
    """Far ends of the `most` strongest edges of a relation that begin at `rows`; sorted, each once."""
    found = _entries(graph.within if relation == "within" else graph.cross, rows, None)
    order = np.lexsort((found.target, found.source, -found.weight))[:most]
    return np.unique(found.target[order])


def _parts_at(graph: DualRelationGraph, relation: str, at: Indices) -> dict[str, NDArray[np.float64]]:
    parts = graph.within_parts if relation == "within" else graph.cross_parts
    return {name: np.asarray(values[at], dtype=float) for name, values in parts.items()}


def _part_texts(graph: DualRelationGraph, relation: str, at: Indices) -> list[str]:
    """'text 0.21 + tools 0.15' for each edge."""
    parts = _parts_at(graph, relation, at)
    texts = []
    for i in range(len(at)):
        found = sorted(((float(values[i]), name) for name, values in parts.items()), reverse=True)
        texts.append(" + ".join(f"{name} {value:.2f}" for value, name in found if value >= LITTLE))
    return texts


def edge_facts(view: RunView, source: str, target: str, step: int | None) -> EdgeFacts:
    """The edge between two tasks in the graph that a step used.

    Raises:
        UnknownTaskError: the run has no such task, or the graph of that step no such edge.
    """
    ends = view.node(source), view.node(target)
    graph, _ = graph_at(view, step)
    for relation in RELATIONS:
        if graph is None or max(ends) >= graph.within.shape[0]:
            break
        found = _entries(graph.within if relation == "within" else graph.cross, np.array(ends[:1]), np.array(ends[1:]))
        if len(found.at):
            return _facts(view, graph, ends, relation, found)
    raise UnknownTaskError(f"the graph of this step has no edge between {source} and {target}")


def _facts(view: RunView, graph: DualRelationGraph, ends: tuple[int, int], relation: str, found: _Half) -> EdgeFacts:
    parts = {name: float(value[0]) for name, value in _parts_at(graph, relation, found.at).items()}
    whole = sum(parts.values()) or 1.0
    rows = sorted(((name, value, value / whole) for name, value in parts.items()), key=lambda row: (-row[1], row[0]))
    one, other = view.spec(ends[0]), view.spec(ends[1])
    shared = sorted({tool.name for tool in one.tools} & {tool.name for tool in other.tools})
    return EdgeFacts(
        one.key, other.key, relation, float(found.weight[0]), pd.DataFrame(rows, columns=["part", "value", "share"]),
        graph.version, tuple(shared), (tuple(one.calls or ()), tuple(other.calls or ())),
    )  # fmt: skip


def neighbour_nodes(graph: DualRelationGraph, node: int) -> pd.DataFrame:
    """Every edge of one task, strongest first: source (the task), target, relation, weight, parts."""
    everything = Wanted(within=graph.within.shape[0], cross=graph.cross.shape[0])
    tables = [edge_table(graph, relation, np.array([node]), None, everything)[0] for relation in RELATIONS]
    return pd.concat(tables, ignore_index=True).sort_values("weight", ascending=False, kind="stable", ignore_index=True)
