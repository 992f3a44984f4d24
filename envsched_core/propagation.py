"""Propagation: counts and totals of a task's neighbours, times edge weight, over each relation.

    wn, xn   sum_j W_ij n_j, sum_j X_ij n_j    counts of the neighbours within the environment, and across
    ws, xs   the same of their totals (what was counted: rewards, costs)

All at H half-lives [H, N], as stored (moments.Discount). `carried` is a pass over all edges; `carry` follows the
edges of the tasks just observed, O(B K).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .graph import DualRelationGraph
from .passes import runs
from .similarity import Matrix

__all__ = ["Reached", "Spread", "carried", "carry", "reached"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Spread = dict[str, Floats]


class Reached(NamedTuple):
    """The edges of tasks [M] in one relation, laid end to end."""

    reach: Indices
    """How many each task has [M]."""
    others: NDArray[np.integer]
    """Where they lead [sum of reach]."""
    weight: NDArray[np.float32]
    """Their weight, in [0, 1]."""


def reached(matrix: Matrix, tasks: Indices) -> Reached:
    """All edges of `tasks` [M]; much cheaper than one task after the other."""
    start = matrix.indptr[tasks]
    reach = matrix.indptr[tasks + 1] - start
    edges = np.repeat(start, reach) + runs(reach)
    return Reached(reach, matrix.indices[edges], matrix.data[edges])


def carried(graph: DualRelationGraph | None, counts: Floats, totals: Floats) -> Spread:
    """Everything in `counts` and `totals` [H, N], carried; zeros while the graph is not of N tasks."""
    out: Spread = {}
    for name, source in (("wn", counts), ("ws", totals), ("xn", counts), ("xs", totals)):
        out[name] = np.zeros_like(source)
        if graph is not None and len(graph.pattern) == source.shape[1]:
            out[name] += ((graph.within if name[0] == "w" else graph.cross) @ source.T).T
    return out


def carry(spread: Spread, graph: DualRelationGraph | None, tasks: Indices, counts: Floats, totals: Floats) -> None:
    """Add what `tasks` [B] have just shown, `counts` and `totals` [H, B], to `spread` at their neighbours."""
    if graph is None:
        return
    for matrix, count, total in ((graph.within, "wn", "ws"), (graph.cross, "xn", "xs")):
        reach, targets, strength = reached(matrix, tasks)
        for h in range(len(counts)):
            np.add.at(spread[count][h], targets, strength * np.repeat(counts[h], reach))
            np.add.at(spread[total][h], targets, strength * np.repeat(totals[h], reach))
