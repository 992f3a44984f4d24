"""DualRelationGraph: two sparse symmetric relations [N, N] with weights in [0, 1].

An edge is kept where one end is among the other's K strongest; no task keeps more than 4 K. Every edge carries
the parts that its weight is the sum of. `within` never leaves an environment, `cross` never stays in one. The
same weights are used for propagation and for the similarity penalty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from envsched_core.similarity import Matrix

__all__ = ["DualRelationGraph", "Edges", "Relation", "joined", "spliced", "symmetric", "upper"]

Indices = NDArray[np.int64]


class Edges(NamedTuple):
    """A relation in coordinate form, before it becomes a symmetric matrix."""

    rows: Indices
    cols: Indices
    parts: dict[str, NDArray[np.float32]]


class Relation(NamedTuple):
    """A symmetric relation."""

    matrix: Matrix
    parts: dict[str, NDArray[np.float32]]
    """Aligned with `matrix.data`."""


class DualRelationGraph:
    """Both relations, their parts and the interaction pattern of every task; immutable, numbered."""

    def __init__(
        self,
        version: int,
        relations: Mapping[str, Matrix],
        parts: Mapping[str, Mapping[str, NDArray[np.float32]]],
        pattern: NDArray[np.int32],
        pattern_names: Sequence[str],
    ) -> None:
        """`parts[relation][name]` is aligned with `relations[relation].data`; `pattern` [N], -1 = unknown."""
        self.version = version
        self.within, self.cross = relations["within"], relations["cross"]
        self.within_parts, self.cross_parts = dict(parts["within"]), dict(parts["cross"])
        self.pattern = pattern
        self.pattern_names = tuple(pattern_names)

    def row(self, relation: str, task: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Neighbours of one task and the edge weights, as views."""
        matrix: Matrix = self.within if relation == "within" else self.cross
        start, end = matrix.indptr[task], matrix.indptr[task + 1]
        return matrix.indices[start:end], matrix.data[start:end]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the names, as flat arrays for the run folder."""
        out: dict[str, NDArray[Any]] = {"pattern": self.pattern}
        for name, matrix, parts in (
            ("within", self.within, self.within_parts),
            ("cross", self.cross, self.cross_parts),
        ):
            out[f"{name}_indptr"], out[f"{name}_indices"] = matrix.indptr, matrix.indices
            out[f"{name}_weights"] = matrix.data
            out.update({f"{name}_part_{part}": values for part, values in parts.items()})
        return out

    @classmethod
    def from_arrays(
        cls, version: int, arrays: Mapping[str, NDArray[Any]], pattern_names: Sequence[str]
    ) -> DualRelationGraph:
        """The inverse of `arrays`; the arrays may be memory-mapped."""
        n = len(arrays["pattern"])
        relations, parts = {}, {}
        for name in ("within", "cross"):
            triple = (arrays[f"{name}_weights"], arrays[f"{name}_indices"], arrays[f"{name}_indptr"])
            relations[name] = sparse.csr_array(triple, shape=(n, n))
            prefix = f"{name}_part_"
            parts[name] = {key.removeprefix(prefix): arrays[key] for key in arrays if key.startswith(prefix)}
        return cls(version, relations, parts, np.asarray(arrays["pattern"]), pattern_names)

    def check(self) -> None:
        """Refuse arrays that do not fit together: SciPy follows an index beyond its matrix without looking.

        Raises:
            ValueError: with what does not fit.
        """
        kinds = self.pattern
        if kinds.ndim != 1 or not np.issubdtype(kinds.dtype, np.integer):
            raise ValueError("pattern is no list of whole numbers")
        if len(kinds) and not -1 <= kinds.min() <= kinds.max() < len(self.pattern_names):
            raise ValueError("a pattern without a name")
        if not all(isinstance(name, str) for name in self.pattern_names):
            raise ValueError("a name of a pattern is no text")
        for matrix, parts in ((self.within, self.within_parts), (self.cross, self.cross_parts)):
            matrix.check_format(full_check=True)
            if not np.issubdtype(matrix.dtype, np.floating):
                raise ValueError("a weight is no number")
            if any(values.shape != matrix.data.shape for values in parts.values()):
                raise ValueError("not one part for each edge")

    def digest(self) -> str:
        """16 hex digits over all arrays and names."""
        hasher = hashlib.blake2b(digest_size=8)
        for name, array in sorted(self.arrays().items()):
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(array).tobytes())
        hasher.update("\n".join(self.pattern_names).encode())
        return hasher.hexdigest()


def joined(edges: Sequence[Edges], part_names: Sequence[str]) -> Edges:
    """All edges of several lists, in order."""
    rows = np.concatenate([e.rows for e in edges] or [np.zeros(0, np.int64)])
    cols = np.concatenate([e.cols for e in edges] or [np.zeros(0, np.int64)])
    parts = {p: np.concatenate([e.parts[p] for e in edges] or [np.zeros(0, np.float32)]) for p in part_names}
    return Edges(rows, cols, parts)


def symmetric(edges: Edges, n: int, *, most: int, min_weight: float) -> Relation:
    """Symmetric relation [n, n] of the edges: light ones dropped, at most the `most` strongest of a task kept.

    An edge that is given more than once keeps the parts it was first given.
    """
    low, high = np.minimum(edges.rows, edges.cols), np.maximum(edges.rows, edges.cols)
    _, first = np.unique(low * n + high, return_index=True)
    weight = np.zeros(len(first), dtype=np.float32)
    for values in edges.parts.values():
        weight += values[first]
    np.minimum(weight, np.float32(1.0), out=weight)
    first, weight = first[weight >= min_weight], weight[weight >= min_weight]
    keep = _among_strongest(low[first], high[first], weight, n, most)
    first, weight = first[keep], weight[keep]
    ends = (low[first].astype(np.int32), high[first].astype(np.int32))
    place = np.arange(len(first), dtype=np.int32)  # of each entry's edge; sorted along with the matrix
    pairs = (np.concatenate(ends), np.concatenate(ends[::-1]))
    matrix = sparse.csr_array((np.concatenate([place, place]), pairs), shape=(n, n))
    matrix.sort_indices()
    place = matrix.data
    triple = (weight[place], matrix.indices.astype(np.int32, copy=False), matrix.indptr.astype(np.int64))
    parts = {name: values[first][place] for name, values in edges.parts.items()}
    return Relation(sparse.csr_array(triple, shape=(n, n)), parts)


def _among_strongest(low: Indices, high: Indices, weight: NDArray[np.float32], n: int, most: int) -> NDArray[np.bool_]:
    """Edges that are among the `most` strongest at both of their ends."""
    keep = np.ones(len(low), dtype=bool)
    crowded = np.bincount(low, minlength=n) + np.bincount(high, minlength=n) > most
    halves = np.flatnonzero(crowded[low]), np.flatnonzero(crowded[high])
    edge = np.concatenate(halves)
    ends = np.concatenate([low[halves[0]], high[halves[1]]])
    others = np.concatenate([high[halves[0]], low[halves[1]]])
    order = np.lexsort((others, -weight[edge], ends))
    _, starts, counts = np.unique(ends[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    keep[edge[order[place >= most]]] = False
    return keep


def spliced(old: Relation, fresh: Relation, renewed: NDArray[np.bool_]) -> Relation:
    """Rows of `old`, but those of `fresh` where `renewed` [N]; no edge may lead from one kind to the other."""
    n, old_n = len(renewed), old.matrix.shape[0]
    reach, before = np.diff(fresh.matrix.indptr), np.diff(old.matrix.indptr)
    reach[:old_n] = np.where(renewed[:old_n], reach[:old_n], before)
    is_fresh, keep = np.repeat(renewed, reach), np.repeat(~renewed[:old_n], before)

    def merged(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
        out = np.empty(len(is_fresh), dtype=theirs.dtype)
        out[~is_fresh], out[is_fresh] = ours[keep], theirs
        return out

    indptr = np.concatenate([[0], np.cumsum(reach)]).astype(np.int64)
    weights, indices = (merged(getattr(old.matrix, x), getattr(fresh.matrix, x)) for x in ("data", "indices"))
    parts = {name: merged(old.parts[name], values) for name, values in fresh.parts.items()}
    return Relation(sparse.csr_array((weights, indices, indptr), shape=(n, n)), parts)


def upper(relation: Relation) -> Edges:
    """Every edge of a symmetric relation once, the lower index first."""
    rows = np.repeat(np.arange(relation.matrix.shape[0]), np.diff(relation.matrix.indptr))
    once = rows < relation.matrix.indices
    parts = {name: np.asarray(values)[once] for name, values in relation.parts.items()}
    return Edges(rows[once], relation.matrix.indices[once].astype(np.int64), parts)
