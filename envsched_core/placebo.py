"""Placebos of the graph: a relation with the same degrees and weights that ends at tasks drawn at random.

within: the tasks of each environment change places, so the relation keeps its whole shape (every degree,
weight and triangle) and stays inside environments; only which task stands where is random.
cross: pairs of edges a-b, c-d become a-d, c-b where both still join two environments and neither is there
already (degree-preserving rewiring, Maslov and Sneppen 2002). Every task keeps its degree and every edge its
weight; which environments are tied is random as well, which a change of places would keep.
Small or dense environments leave little to shuffle; then the placebo is close to the relation.
Keyed by seed and tasks: the same graph gives the same placebo.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import Config
from .graph import DualRelationGraph
from .keyed import Hashes, mix
from .problem import Indices

__all__ = ["shuffled"]

PLACE_KEY, PAIR_KEY = 60, 61
ROUNDS = 10
"""Times that every cross edge is offered a swap."""

Arrays = dict[str, NDArray[Any]]


def shuffled(graph: DualRelationGraph, env: Indices, hashes: Hashes, config: Config) -> DualRelationGraph:
    """The graph, with the relations falsified that `shuffle_within` and `shuffle_cross` name.

    Args:
        graph: of N tasks.
        env: environment of each task [N].
        hashes: 64 bits of each task [N].
        config: reads the two knobs and the seed.
    """
    if not (config.shuffle_within or config.shuffle_cross):
        return graph
    arrays = graph.arrays()
    if config.shuffle_within:
        place = _places(env, mix(hashes, config.seed, PLACE_KEY))
        first, second, edge = _edges(arrays, "within")
        arrays |= _relation(arrays, "within", place[first], place[second], edge)
    if config.shuffle_cross:
        first, second, edge = _edges(arrays, "cross")
        # An edge is named by its tasks, so that the numbers of other edges do not matter.
        names = mix(hashes[first] ^ mix(hashes[second], PAIR_KEY), config.seed)
        arrays |= _relation(arrays, "cross", *_rewired(first, second, env, names), edge)
    return DualRelationGraph.from_arrays(graph.version, arrays, graph.pattern_names)


def _places(env: Indices, hashes: Hashes) -> Indices:
    """Where each task [N] goes: a random order of the tasks of its environment."""
    place = np.empty(len(env), dtype=np.int64)
    place[np.argsort(env, kind="stable")] = np.lexsort((hashes, env))
    return place


def _edges(arrays: Arrays, relation: str) -> tuple[Indices, Indices, Indices]:
    """Each edge once: its ends [M], [M], and where it stands in the relation's arrays [M]."""
    rows = np.repeat(np.arange(len(arrays[f"{relation}_indptr"]) - 1), np.diff(arrays[f"{relation}_indptr"]))
    cols = arrays[f"{relation}_indices"].astype(np.int64)
    edge = np.flatnonzero(rows < cols)
    return rows[edge], cols[edge], edge


def _relation(arrays: Arrays, relation: str, first: Indices, second: Indices, edge: Indices) -> Arrays:
    """The arrays of a relation whose edges [M] have these ends and the weight and parts of `edge` [M]."""
    rows, cols = np.concatenate([first, second]), np.concatenate([second, first])
    order = np.lexsort((cols, rows))
    source = np.concatenate([edge, edge])[order]
    indptr, indices = arrays[f"{relation}_indptr"], arrays[f"{relation}_indices"]
    counts = np.bincount(rows, minlength=len(indptr) - 1)
    out = {
        f"{relation}_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(indptr.dtype),
        f"{relation}_indices": cols[order].astype(indices.dtype),
    }
    aligned = [key for key in arrays if key == f"{relation}_weights" or key.startswith(f"{relation}_part_")]
    return out | {key: arrays[key][source] for key in aligned}


def _rewired(first: Indices, second: Indices, env: Indices, names: Hashes) -> tuple[Indices, Indices]:
    """New ends [M], [M] of cross edges: in each round they are paired at random and swap an end where they may."""
    first, second, n, half = first.copy(), second.copy(), len(env), len(first) // 2
    for turn in range(ROUNDS if half else 0):
        order = np.argsort(mix(names, turn), kind="stable")
        one, other = order[:half], order[half : 2 * half]
        # Edges have no direction: turned round every second time, any end can meet any other.
        first[other], second[other] = (second[other], first[other]) if turn % 2 else (first[other], second[other])
        ends = _key(first[one], second[other], n), _key(first[other], second[one], n)
        apart = (env[first[one]] != env[second[other]]) & (env[first[other]] != env[second[one]])
        # A new edge must be new: not there already, and not made twice in this round.
        _, same, count = np.unique(
            np.concatenate([*ends, _key(first, second, n)]), return_inverse=True, return_counts=True
        )
        swap = apart & (count[same[: 2 * half]] == 1).reshape(2, half).all(axis=0)
        second[one[swap]], second[other[swap]] = second[other[swap]], second[one[swap]]
    return first, second


def _key(first: Indices, second: Indices, n: int) -> Indices:
    """One number per edge, whichever end comes first."""
    return np.minimum(first, second) * n + np.maximum(first, second)
