"""GraphBuilder: numbered graphs of a growing catalogue; each build touches what changed since the last.

Within environments, the edges of an environment are made anew when a task of it joined or was described anew.
Across, everything is compared with everything while there are few distinct rows, so the relation is what the tasks
and traces of the day say. Above that (`few_rows`), only tasks that joined, were described anew or showed something are
compared, with all others: their edges are added, edges they had are weighed anew, and all other edges stay. Where
more than a quarter of the tasks changed, the relation is made anew too.

A graph depends on the tasks, the traces and the graph before it, all of which a saved state holds: a resumed run
builds what the unbroken one would have. scikit-learn is loaded when a graph is built, not before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from envsched_core.config import Config
from envsched_core.records import TaskSpec
from envsched_core.similarity import (
    CROSS_WEIGHTS,
    WITHIN_WEIGHTS,
    Calls,
    Matrix,
    call_roles,
    combine,
    pattern_blocks,
    within_blocks,
)

from .across import edges_of, few_rows, make_rows, with_parts
from .neighbours import Bars, nearest
from .patterns import Clusters
from .relations import DualRelationGraph, Edges, Relation, joined, spliced, symmetric, upper
from .traces import Traces

__all__ = ["GraphBuilder"]

Indices = NDArray[np.int64]


class GraphBuilder:
    """Builds graphs; remembers the last one and the tasks it was of."""

    def __init__(self, config: Config) -> None:
        """Reads `neighbours`, `min_weight`, `patterns`, `refresh_groups` and `seed`."""
        self.config = config
        self.version = 0
        self._last: dict[str, Relation] = {}
        self._tasks: list[TaskSpec] = []
        self._roles: list[tuple[Calls, ...]] = []
        self._all_traces = False
        self._clusters = Clusters(config.patterns, config.seed)

    def resume(self, version: int, graph: DualRelationGraph | None) -> None:
        """Go on from a saved graph of the tasks of the last build, with other traces; None = it was of other tasks."""
        self.version = version
        self._all_traces = True
        self._last.pop("cross", None)  # built from no traces, when the tasks were registered
        if graph is not None:  # the relation within environments is what the tasks say, and they are here
            self._last["cross"] = Relation(graph.cross, graph.cross_parts)

    def due(self, groups: int, tasks: int) -> bool:
        """Whether `groups` observed since the last build are news enough for a catalogue of `tasks`.

        Of a large one a few groups say little: they must be as many as a sixteenth of its tasks.
        """
        refresh = self.config.refresh_groups
        return 0 < refresh <= groups >= tasks // 16

    def build(self, tasks: Sequence[TaskSpec], env: Indices, traces: Traces) -> DualRelationGraph:
        """The graph of `tasks` [N] with environment indices `env` [N], numbered one higher than the last.

        Indices of tasks never change; what `traces` says has changed is taken in and struck off there.
        """
        described = self._described_anew(tasks)
        self._update_roles(tasks, traces, described)
        within = self._within(tasks, env, described)
        kinds, kind = self._kinds()
        blocks = pattern_blocks([*kinds, ()])
        changed = np.union1d(described, np.array(sorted(traces.changed), dtype=np.int64))
        cross = self._cross(blocks, kind, env, traces, changed)
        pattern, names = self._clusters.patterns(kinds, kind, blocks["roles"])
        traces.changed.clear()
        self.version += 1
        self._last = {"within": within, "cross": cross}
        relations = {name: relation.matrix for name, relation in self._last.items()}
        parts = {name: relation.parts for name, relation in self._last.items()}
        return DualRelationGraph(self.version, relations, parts, pattern, names)

    # ------------------------------------------------------------------ what changed

    def _described_anew(self, tasks: Sequence[TaskSpec]) -> Indices:
        """Tasks that are new, or no longer what they were at the last build."""
        before = self._tasks
        pairs = enumerate(zip(before, tasks, strict=False))
        found = [i for i, (old, new) in pairs if old is not new and old != new]
        self._tasks = list(tasks)
        return np.array([*found, *range(len(before), len(tasks))], dtype=np.int64)

    def _update_roles(self, tasks: Sequence[TaskSpec], traces: Traces, described: Indices) -> None:
        """Role sequences of tasks: of their reference path, else of what their rollouts did."""
        self._roles += [()] * (len(tasks) - len(self._roles))
        same: dict[tuple[Calls, ...], tuple[Calls, ...]] = {}  # equal ones are kept once
        for i in {*described.tolist(), *(traces.calls if self._all_traces else traces.changed)}:
            sequences = [calls] if (calls := tasks[i].calls) else traces.calls.get(i, [])
            roles = tuple(call_roles(calls, tasks[i].tools) for calls in sequences if calls)
            self._roles[i] = same.setdefault(roles, roles)
        self._all_traces = False

    def _kinds(self) -> tuple[list[tuple[Calls, ...]], Indices]:
        """The distinct role sequences in order of first appearance, and which each task has (-1 = none known)."""
        index: dict[tuple[Calls, ...], int] = {}
        kind = [index.setdefault(roles, len(index)) if roles else -1 for roles in self._roles]
        return list(index), np.array(kind, dtype=np.int64)

    # ------------------------------------------------------------------ within environments

    def _within(self, tasks: Sequence[TaskSpec], env: Indices, described: Indices) -> Relation:
        touched = np.zeros(int(env.max(initial=-1)) + 1, dtype=bool)
        touched[env[described]] = True
        renewed = touched[env]
        members = np.flatnonzero(renewed)
        members = members[np.argsort(env[members], kind="stable")]
        edges = []
        for some in np.split(members, np.flatnonzero(np.diff(env[members])) + 1):
            if len(some) > 1:  # else there is nothing to be similar to
                edges.append(self._inside([tasks[i] for i in some], some))
        fresh = self._symmetric(joined(edges, list(WITHIN_WEIGHTS)), len(tasks))
        return spliced(self._last["within"], fresh, renewed) if self._last else fresh

    def _inside(self, tasks: Sequence[TaskSpec], members: Indices) -> Edges:
        """Each task of one environment to its K most similar ones."""
        features, parts = combine(within_blocks(tasks), WITHIN_WEIGHTS)
        everyone = np.arange(len(members))
        found = nearest(features, min(self.config.neighbours, len(members) - 1), everyone, Bars(everyone, everyone))
        given = found.rows >= 0
        rows, cols = np.repeat(everyone, given.sum(axis=1)), found.rows[given].astype(np.int64)
        edges = with_parts(rows, cols, parts)
        return Edges(members[rows], members[cols], edges.parts)

    def _symmetric(self, edges: Edges, n: int) -> Relation:
        return symmetric(edges, n, most=4 * self.config.neighbours, min_weight=self.config.min_weight)

    # ------------------------------------------------------------------ across environments

    def _cross(
        self, patterns: Mapping[str, Matrix], kind: Indices, env: Indices, traces: Traces, changed: Indices
    ) -> Relation:
        n, k, seed = len(env), self.config.neighbours, self.config.seed
        rows = make_rows(patterns, kind, traces.topology(env), env)
        if few_rows(rows) or "cross" not in self._last or 4 * len(changed) > n:
            return self._symmetric(edges_of(rows, np.arange(n), k, seed), n)
        kept = upper(self._last["cross"])
        moved = np.zeros(n, dtype=bool)
        moved[changed] = True
        gone = (rows.of[kept.rows] < 0) | (rows.of[kept.cols] < 0)  # nothing is known of an end any more
        kept = Edges(kept.rows[~gone], kept.cols[~gone], {part: values[~gone] for part, values in kept.parts.items()})
        weighed = moved[kept.rows] | moved[kept.cols]
        anew = with_parts(rows.of[kept.rows[weighed]], rows.of[kept.cols[weighed]], rows.parts)
        for part, values in anew.parts.items():
            kept.parts[part][weighed] = values
        return self._symmetric(joined([edges_of(rows, changed, k, seed), kept], list(CROSS_WEIGHTS)), n)
