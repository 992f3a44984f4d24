"""Cross-environment edges: tasks that look alike are one row, rows have neighbours, neighbours become tasks.

Across environments a task is its execution pattern and its reward topology, and many tasks share both: pairs are
looked at between distinct rows. A row that all lies in one environment is barred for that environment's tasks; of
any other row a task takes the next members round that are not of its own environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envsched_core.similarity import CROSS_WEIGHTS, Matrix, combine, cross_blocks

from .neighbours import EXACT_PAIRS, Bars, Nearest, nearest, nearest_in_lists, next_round, nobody_near
from .relations import Edges
from .traces import Topology

__all__ = ["Rows", "edges_of", "few_rows", "make_rows", "with_parts"]

Indices = NDArray[np.int64]

SEVERAL, NOBODY = -2, -3
"""A row whose tasks lie in several environments; a query that bars no row."""
FEW_ROWS = 1 << 13
TASKS_AT_ONCE = 1 << 15
EDGES_AT_ONCE = 1 << 18


class Rows(NamedTuple):
    """Distinct rows of features and the tasks that share each."""

    features: Matrix
    """[U, D], of length 1."""
    parts: dict[str, Matrix]
    """Each part's own columns of the features."""
    of: Indices
    """Row of each task [N]; -1 = nothing is known of it."""
    env: Indices
    """Environment of each task [N]."""
    lone: Indices
    """The one environment of each row [U], or SEVERAL."""


def make_rows(patterns: Mapping[str, Matrix], kind: Indices, topology: Topology, env: Indices) -> Rows:
    """Rows of all tasks: `patterns` [kinds + 1] are the execution patterns, the last blank; `kind` [N], -1 = the blank.

    `kind` says which each task has, `topology` where its rewards lie, `env` [N] its environment.
    """
    many = len(topology.rows)
    seen = np.flatnonzero(topology.rows.any(axis=1))
    known = (kind >= 0) | np.isin(topology.of, seen)
    pair, inverse = np.unique((kind[known] + 1) * many + topology.of[known], return_inverse=True)
    of = np.full(len(kind), -1, dtype=np.int64)
    of[known] = inverse
    blocks = cross_blocks(patterns, pair // many - 1, topology.rows[pair % many])
    features, parts = combine(blocks, CROSS_WEIGHTS)
    first = np.full(len(pair), -1, dtype=np.int64)
    first[inverse] = env[known]
    lone = first.copy()
    lone[inverse[first[inverse] != env[known]]] = SEVERAL
    return Rows(features, parts, of, env, lone)


def few_rows(rows: Rows) -> bool:
    """Whether to look at all pairs of rows takes no more than a second or two."""
    return len(rows.lone) <= FEW_ROWS


def edges_of(rows: Rows, tasks: Indices, k: int, seed: int) -> Edges:
    """Each of `tasks` [M] to its K most similar tasks of other environments."""
    tasks = tasks[rows.of[tasks] >= 0]
    if not len(tasks):
        return with_parts(tasks, tasks, rows.parts)
    combination, inverse = np.unique(rows.of[tasks] * (rows.env.max() + 1) + rows.env[tasks], return_inverse=True)
    row, env = np.divmod(combination, rows.env.max() + 1)
    found = _rows_near(rows, row, env, k, seed)
    members = _Members(rows)
    ends: tuple[list[Indices], list[Indices]] = ([], [])
    # Those that need few rows first, so that the one that needs many does not widen everybody's block.
    needed = members.needed(found, env, k)
    order = np.argsort(needed[inverse], kind="stable")
    for start in range(0, len(order), TASKS_AT_ONCE):
        some = order[start : start + TASKS_AT_ONCE]
        at, width = inverse[some], int(needed[inverse[some]].max())
        near = Nearest(found.rows[at, :width], found.distance[at, :width])
        others = members.nearest(tasks[some], near, k)
        given = others >= 0
        ends[0].append(np.repeat(tasks[some], given.sum(axis=1)))
        ends[1].append(others[given])
    one, other = np.concatenate(ends[0]), np.concatenate(ends[1])
    return Edges(one, other, with_parts(rows.of[one], rows.of[other], rows.parts).parts)


def with_parts(rows: Indices, cols: Indices, parts: Mapping[str, Matrix]) -> Edges:
    """Edges between rows with their parts: dot products, part by part; the small negatives of rounding are cut."""
    values = {part: np.zeros(len(rows), dtype=np.float32) for part in parts}
    for start in range(0, len(rows), EDGES_AT_ONCE):
        block = slice(start, start + EDGES_AT_ONCE)
        for part, features in parts.items():
            product = features[rows[block]].multiply(features[cols[block]]).sum(axis=1)
            values[part][block] = np.maximum(np.asarray(product).ravel(), 0.0)
    return Edges(rows, cols, values)


# ---------------------------------------------------------------------- rows near rows


def _rows_near(rows: Rows, row: Indices, env: Indices, k: int, seed: int) -> Nearest:
    """Rows nearest to each `row` [Q] that hold a task outside the environment `env` [Q]: `k`, and others as near.

    The environments that share a row are served by one look, unless too much of what it finds is their own.
    """
    shared = rows.lone[row] == SEVERAL
    alone = np.flatnonzero(~shared)
    once, inverse = np.unique(row[shared], return_inverse=True)
    barred = np.concatenate([env[alone], np.full(len(once), NOBODY)])
    found = _look(rows, np.concatenate([row[alone], once]), barred, k, seed)
    place = np.empty(len(row), dtype=np.int64)
    place[alone], place[shared] = np.arange(len(alone)), len(alone) + inverse
    out = Nearest(found.rows[place], found.distance[place])
    own = (rows.lone[out.rows] == env[:, None]) & (out.rows >= 0)
    again = np.flatnonzero(own.any(axis=1) & ((out.rows >= 0).sum(axis=1) - own.sum(axis=1) < k))
    if len(again):
        found = _look(rows, row[again], env[again], k, seed)
        out.rows[again], out.distance[again] = found
    return out


def _look(rows: Rows, queries: Indices, barred: Indices, k: int, seed: int) -> Nearest:
    """Four times `k` rows near each of `queries` [Q], without those that lie in the environment `barred` [Q] alone.

    More than `k`, since of rows that are equally near those count whose tasks come next.
    """
    bars = Bars(rows.lone, barred)
    if len(queries) * len(rows.lone) <= EXACT_PAIRS:
        return nearest(rows.features, 4 * k, queries, bars)
    found, out = nearest_in_lists(rows.features, 2 * k, queries, bars, seed=seed), nobody_near(len(queries), 4 * k)
    out.rows[:, : 2 * k], out.distance[:, : 2 * k] = found
    return out


# ---------------------------------------------------------------------- rows to tasks


class _Members:
    """The tasks of every row, in order, and which of them come next outside an environment."""

    def __init__(self, rows: Rows) -> None:
        self.n = len(rows.of)
        self.env = rows.env
        known = np.flatnonzero(rows.of >= 0)
        self.tasks = known[np.argsort(rows.of[known], kind="stable")]
        of = rows.of[self.tasks]
        self.key = of * self.n + self.tasks
        self.starts = np.searchsorted(of, np.arange(len(rows.lone) + 1))
        self.many_env = int(rows.env.max(initial=-1)) + 1
        self.pair, self.count = np.unique(of * self.many_env + rows.env[self.tasks], return_counts=True)
        self.jump = self._jumps(of, rows.env[self.tasks])

    def _jumps(self, of: Indices, env: Indices) -> Indices:
        """Of each place, the place at which the run of tasks of one environment is over; round within the row."""
        last = np.flatnonzero(np.append((of[1:] != of[:-1]) | (env[1:] != env[:-1]), True)[: len(of)])
        runs = np.diff(last, prepend=-1)
        after = last + 1
        wraps = after == self.starts[of[last] + 1]
        return np.repeat(np.where(wraps, self.starts[of[last]], after), runs)

    def needed(self, found: Nearest, env: Indices, k: int) -> Indices:
        """How many of the rows found near each combination [Q] can hold its `k` nearest tasks, equal ones included."""
        rows = found.rows.astype(np.int64)
        key = rows * self.many_env + env[:, None]
        at = np.minimum(np.searchsorted(self.pair, key), len(self.pair) - 1)
        own = np.where(self.pair[at] == key, self.count[at], 0)
        outside = np.where(rows >= 0, self.starts[rows + 1] - self.starts[rows] - own, 0)
        enough = np.cumsum(outside, axis=1) >= k
        last = np.where(enough.any(axis=1), np.argmax(enough, axis=1), rows.shape[1] - 1)
        limit = found.distance[np.arange(len(rows)), last]
        needed: Indices = np.count_nonzero((found.distance <= limit[:, None]) & (rows >= 0), axis=1)
        return np.maximum(needed, 1)

    def nearest(self, tasks: Indices, near: Nearest, k: int) -> Indices:
        """The `k` nearest tasks [M, k] of other environments to each of `tasks` [M], from rows [M, W]; -1 = none."""
        own = self.env[tasks][:, None]
        row = np.maximum(near.rows, 0).astype(np.int64)
        start, end = self.starts[row], self.starts[row + 1]
        place = np.searchsorted(self.key, row * self.n + tasks[:, None], side="right")
        place = np.where(place == end, start, place)
        before = np.zeros(row.shape, dtype=np.int64)
        keys, others = [], []
        for _ in range(k):
            for _ in range(2):  # the run may go on at the row's other end
                place = np.where(self.env[self.tasks[place]] == own, self.jump[place], place)
            task = self.tasks[place]
            after = next_round(tasks[:, None], task, self.n)
            fits = (near.rows >= 0) & (after > before) & (self.env[task] != own)
            before = np.where(fits, after, self.n)  # once round, nothing more comes of this row
            keys.append(np.where(fits, near.distance.astype(np.int64) * self.n + after, np.iinfo(np.int64).max))
            others.append(np.where(fits, task, -1))
            place = np.where(place + 1 == end, start, place + 1)
        key, other = np.concatenate(keys, axis=1), np.concatenate(others, axis=1)
        best = np.argpartition(key, k - 1, axis=1)[:, :k]
        return np.take_along_axis(other, best, axis=1)
