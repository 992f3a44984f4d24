"""DualRelationGraph: environment-task pairs, tied within their environment and across environments.

Two sparse symmetric relations [N, N] with weights in [0, 1]. An edge is kept where one end is among the
other's K strongest; no task keeps more than 4 K. Every edge carries the parts that its weight is the sum
of. `within` never leaves an environment, `cross` never stays in one. The same weights are used for
propagation and for the similarity penalty. scikit-learn is loaded when a graph is built, not before.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .config import Config
from .records import TaskSpec
from .similarity import (
    CROSS_WEIGHTS,
    WITHIN_WEIGHTS,
    Matrix,
    call_roles,
    combine,
    cross_blocks,
    pattern_name,
    within_blocks,
)

__all__ = ["DualRelationGraph", "Edges", "GraphBuilder", "Traces"]

CHUNK_MB = 64
"""Working memory of one block of pairwise similarities."""


class Edges(NamedTuple):
    """A symmetric relation in coordinate form, before it becomes a matrix."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    parts: dict[str, NDArray[np.float32]]


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

    def digest(self) -> str:
        """16 hex digits over all arrays and names."""
        hasher = hashlib.blake2b(digest_size=8)
        for name, array in sorted(self.arrays().items()):
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(array).tobytes())
        hasher.update("\n".join(self.pattern_names).encode())
        return hasher.hexdigest()


class Traces:
    """What rollouts showed of each task beyond their mean: calls and where the rewards lie. Bounded memory."""

    MOST_SEQUENCES = 8
    BINS = 6
    """Mass at 0, in (0, 1/2), in [1/2, 1), at 1; then whether a reward was graded; then how the mean moved."""

    def __init__(self) -> None:
        """Starts empty; tasks join with `grow`."""
        self.calls: dict[int, list[tuple[str, ...]]] = {}
        self.mass = np.zeros((0, 4))
        self.drift = np.zeros(0)
        self.last_mean = np.zeros(0)

    def grow(self, n: int) -> None:
        """Make room for `n` tasks in all."""
        more = n - len(self.mass)
        self.mass = np.concatenate([self.mass, np.zeros((more, 4))])
        self.drift = np.concatenate([self.drift, np.zeros(more)])
        self.last_mean = np.concatenate([self.last_mean, np.full(more, np.nan)])

    def add(self, task: int, mapped: Sequence[float], calls: Sequence[tuple[str, ...]]) -> None:
        """Take in one group: mapped rewards [G] and the observed tool names of each rollout."""
        for reward in mapped:
            self.mass[task, 0 if reward <= 1e-9 else 1 if reward < 0.5 else 2 if reward < 1 - 1e-9 else 3] += 1.0
        mean = sum(mapped) / len(mapped)
        if not np.isnan(self.last_mean[task]):
            self.drift[task] = 0.5 * self.drift[task] + 0.5 * (mean - self.last_mean[task])
        self.last_mean[task] = mean
        if calls:
            kept = self.calls.setdefault(task, [])
            kept.extend(calls[: self.MOST_SEQUENCES])
            del kept[: -self.MOST_SEQUENCES]

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays."""
        calls = {str(task): [list(c) for c in kept] for task, kept in self.calls.items()}
        return {
            "calls": calls,
            "mass": self.mass.copy(),
            "drift": self.drift.copy(),
            "last_mean": self.last_mean.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any], tasks: NDArray[np.int64]) -> None:
        """Take over; `tasks` maps saved indices to those here (-1 = gone)."""
        for name in ("mass", "drift", "last_mean"):
            getattr(self, name)[tasks[tasks >= 0]] = np.asarray(state[name])[tasks >= 0]
        self.calls = {}
        for task, kept in state["calls"].items():
            if tasks[int(task)] >= 0:
                self.calls[int(tasks[int(task)])] = [tuple(c) for c in kept]

    def topology(self, env: NDArray[np.int64]) -> NDArray[np.float64]:
        """Reward topology [N, BINS] of every task: its own rewards, with four rollouts' worth of its environment's."""
        n_env = int(env.max(initial=-1)) + 1
        whole = np.zeros((n_env, 4))
        np.add.at(whole, env, self.mass)
        shape = whole / np.maximum(whole.sum(axis=1, keepdims=True), 1.0)
        mass = self.mass + 4.0 * shape[env]
        mass = mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-12)
        graded = (mass[:, 1:3].sum(axis=1) > 0).astype(float)
        return np.column_stack([mass, graded * 0.5, np.maximum(self.drift, 0.0)])


class GraphBuilder:
    """Builds numbered graphs of a growing catalogue; environments that did not change keep their edges."""

    def __init__(self, config: Config) -> None:
        """Reads `neighbours`, `min_weight`, `patterns` and `seed`."""
        self.config = config
        self.version = 0
        self._within: dict[str, tuple[int, Edges]] = {}

    def build(self, tasks: Sequence[TaskSpec], env: NDArray[np.int64], traces: Traces) -> DualRelationGraph:
        """The graph of `tasks` [N] with environment indices `env` [N], numbered one higher than the last."""
        roles = [self._roles(i, task, traces) for i, task in enumerate(tasks)]
        within = self._matrix(self._within_edges(tasks, env), len(tasks), WITHIN_WEIGHTS)
        cross = self._matrix(self._cross_edges(roles, env, traces), len(tasks), CROSS_WEIGHTS)
        pattern, names = self._patterns(roles)
        self.version += 1
        relations = {"within": within[0], "cross": cross[0]}
        return DualRelationGraph(self.version, relations, {"within": within[1], "cross": cross[1]}, pattern, names)

    @staticmethod
    def _roles(i: int, task: TaskSpec, traces: Traces) -> list[tuple[str, ...]]:
        """Role sequences of one task: its reference path, else what its rollouts did."""
        sequences = [task.calls] if task.calls else traces.calls.get(i, [])
        return [call_roles(calls, task.tools) for calls in sequences if calls]

    def _within_edges(self, tasks: Sequence[TaskSpec], env: NDArray[np.int64]) -> list[Edges]:
        order = np.argsort(env, kind="stable")
        starts = np.flatnonzero(np.diff(env[order], prepend=-1))
        edges = []
        for members in np.split(order, starts[1:]) if len(order) else []:
            if len(members) == 1:  # nothing to be similar to
                continue
            name = tasks[int(members[0])].env
            count, local = self._within.get(name, (0, None))
            if local is None or count != len(members):
                local = self._nearest(within_blocks([tasks[i] for i in members]), WITHIN_WEIGHTS)
                self._within[name] = (len(members), local)
            edges.append(Edges(members[local.rows], members[local.cols], local.parts))
        return edges

    def _cross_edges(
        self, roles: Sequence[list[tuple[str, ...]]], env: NDArray[np.int64], traces: Traces
    ) -> list[Edges]:
        topology = traces.topology(env)
        known = np.flatnonzero(np.array([bool(r) for r in roles], dtype=bool) | (topology.sum(axis=1) > 0))
        if len(known) < 2 or len(np.unique(env[known])) < 2:
            return []
        blocks = cross_blocks([roles[int(i)] for i in known], topology[known])
        local = self._nearest(blocks, CROSS_WEIGHTS, apart=env[known])
        return [Edges(known[local.rows], known[local.cols], local.parts)]

    def _nearest(
        self, blocks: dict[str, Matrix], weights: dict[str, float], apart: NDArray[np.int64] | None = None
    ) -> Edges:
        """Each row's K most similar others (of another environment when `apart` gives one per row)."""
        from sklearn.metrics import pairwise_distances_chunked

        features, parts = combine(blocks, weights)
        n, k = features.shape[0], min(self.config.neighbours, features.shape[0] - 1)
        if k < 1:
            return Edges(np.zeros(0, np.int64), np.zeros(0, np.int64), {p: np.zeros(0, np.float32) for p in parts})

        def strongest(distances: NDArray[np.float64], start: int) -> NDArray[np.int64]:
            rows = np.arange(start, start + len(distances))
            # Equal similarities are common (same pattern): prefer the next task round, so that no task
            # becomes everybody's neighbour merely by being first.
            offset = (np.arange(n)[None, :] - rows[:, None]) % n
            distances = np.round(distances, 6) + offset * (1e-7 / n)
            distances[offset == 0] = np.inf
            if apart is not None:
                distances[apart[rows][:, None] == apart[None, :]] = np.inf
            nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
            return np.where(np.isfinite(np.take_along_axis(distances, nearest, axis=1)), nearest, -1)

        chunks = pairwise_distances_chunked(
            features, metric="cosine", reduce_func=strongest, working_memory=CHUNK_MB, n_jobs=1
        )
        nearest = np.concatenate(list(chunks))
        rows, cols = np.repeat(np.arange(n), k), nearest.ravel()
        return _with_parts(rows[cols >= 0], cols[cols >= 0], parts)

    def _matrix(
        self, edges: list[Edges], n: int, part_names: Mapping[str, float]
    ) -> tuple[Matrix, dict[str, NDArray[np.float32]]]:
        """Symmetric matrix of the edges, light ones dropped, at most 4 K a task; parts aligned with its data."""
        rows = np.concatenate([e.rows for e in edges] or [np.zeros(0, np.int64)])
        cols = np.concatenate([e.cols for e in edges] or [np.zeros(0, np.int64)])
        values = {p: np.concatenate([e.parts[p] for e in edges] or [np.zeros(0, np.float32)]) for p in part_names}
        low, high = np.minimum(rows, cols), np.maximum(rows, cols)
        _, first = np.unique(low * n + high, return_index=True)
        low, high = low[first], high[first]
        values = {p: v[first] for p, v in values.items()}
        weight = np.minimum(np.sum(list(values.values()), axis=0, dtype=np.float32), np.float32(1.0))
        keep = (weight >= self.config.min_weight) & _within_degree(low, high, weight, n, 4 * self.config.neighbours)
        low, high, weight = low[keep], high[keep], weight[keep]
        rows, cols = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((cols, rows))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
        data = np.concatenate([weight, weight])[order].astype(np.float32)
        matrix = sparse.csr_array((data, cols[order].astype(np.int32), indptr), shape=(n, n))
        parts = {p: np.concatenate([v[keep], v[keep]])[order].astype(np.float32) for p, v in values.items()}
        return matrix, parts

    def _patterns(self, roles: Sequence[list[tuple[str, ...]]]) -> tuple[NDArray[np.int32], list[str]]:
        """Cluster the execution patterns: index [N] (-1 = no call known) and a name for each cluster."""
        pattern = np.full(len(roles), -1, dtype=np.int32)
        known = [i for i, sequences in enumerate(roles) if sequences]
        if not known:
            return pattern, []
        kinds = Counter(tuple(roles[i]) for i in known)
        label = self._cluster(list(kinds))
        pattern[known] = [label[tuple(roles[i])] for i in known]
        heads: list[Counter[str]] = [Counter() for _ in range(max(label.values()) + 1)]
        for kind, count in kinds.items():
            heads[label[kind]][pattern_name(kind[0])] += count
        return pattern, _distinct([head.most_common(1)[0][0] for head in heads])

    def _cluster(self, kinds: list[tuple[tuple[str, ...], ...]]) -> dict[tuple[tuple[str, ...], ...], int]:
        """Cluster of each distinct kind; k-means on role n-grams where there are more kinds than clusters."""
        if len(kinds) <= self.config.patterns:
            return {kind: i for i, kind in enumerate(kinds)}
        from sklearn.cluster import KMeans

        blocks = cross_blocks(kinds, np.zeros((len(kinds), 1)))
        features = blocks["roles"].toarray()
        # Different kinds may have the same n-gram profile; more clusters than profiles would be a warning.
        profiles = len(np.unique(features.round(6), axis=0))
        means = KMeans(min(self.config.patterns, profiles), n_init=1, random_state=self.config.seed)
        labels = means.fit_predict(features)
        renumber = {old: new for new, old in enumerate(dict.fromkeys(labels.tolist()))}
        return {kind: renumber[old] for kind, old in zip(kinds, labels.tolist(), strict=True)}


def _with_parts(rows: NDArray[np.int64], cols: NDArray[np.int64], parts: Mapping[str, Matrix]) -> Edges:
    """The parts of each edge: dot products of the two rows, part by part; the small negatives of rounding are cut."""
    values = {}
    for part, block in parts.items():
        product = block[rows].multiply(block[cols]).sum(axis=1) if len(rows) else np.zeros(0)
        values[part] = np.maximum(np.asarray(product).ravel(), 0.0).astype(np.float32)
    return Edges(rows, cols, values)


def _within_degree(
    low: NDArray[np.int64], high: NDArray[np.int64], weight: NDArray[np.float32], n: int, most: int
) -> NDArray[np.bool_]:
    """Edges that are among the `most` strongest at both of their ends."""
    ends, others = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.lexsort((others, -np.tile(weight, 2), ends))
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])
    place = np.arange(len(order)) - starts[ends[order]]
    keep = np.ones(len(low), dtype=bool)
    keep[order[place >= most] % max(len(low), 1)] = False
    return keep


def _distinct(names: list[str]) -> list[str]:
    """Number names that occur more than once."""
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
