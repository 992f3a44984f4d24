"""Maps of environments, for catalogues too large to draw task by task; and finding a task by its words."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from envsched_core.graph import DualRelationGraph

from .graph_edges import graph_at
from .graph_map import absence, observed
from .layout import layout
from .run_view import RunView
from .tasks import standing

__all__ = ["EnvironmentMap", "environment_map", "find_tasks"]

Indices = NDArray[np.int64]


class EnvironmentMap(msgspec.Struct, frozen=True):
    """Environments with positions, the cross edges between them put together, and how much of the whole is shown."""

    nodes: pd.DataFrame
    """Columns: node (index of the environment), env, x, y (pixels), tasks, seen (tasks observed before the step),
    groups (of them), last_step (of them; NULL: none), picks (at the step), variance (mean predicted at the step over
    its tasks on record, [0, 0.25]; NULL: none on record), state (the commonest among these; NULL: none), within and
    cross (edges of its tasks)."""
    edges: pd.DataFrame
    """Columns: source, target (nodes), edges (between tasks of the two), weight (their mean, [0, 1])."""
    version: int
    """Number of the graph; 0 when there is none to show."""
    envs_total: int
    pairs_total: int
    """Pairs of environments with an edge between them at or over the smallest weight."""
    cross_total: int
    """Edges between tasks of different environments, whatever their weight."""
    cross_heavy: int
    """Of them, those at or over the smallest weight; these are put together."""
    absent: str = ""
    """Why there is no graph: log, scheduler, damaged; empty where there is one."""


def environment_map(
    view: RunView, step: int | None, weight: float = 0.0, most_envs: int = 500, most_pairs: int = 600
) -> EnvironmentMap:
    """All environments (those with most tasks, if more than `most_envs`), tied by their tasks' cross edges."""
    graph, version = graph_at(view, step)
    env = view.env_index()
    names = view.env_names()
    tasks = np.bincount(env, minlength=len(names))
    shown = np.sort(np.argsort(-tasks, kind="stable")[:most_envs])
    newest = view.graph() if graph is not None else None
    of_all = newest if newest is not None else graph
    made_for = (view.version, most_envs, of_all.version if of_all is not None else 0)
    places = view.kept.of(
        "environment places", made_for, lambda: _positions(_between(of_all, env, len(names), 0.0)[1], shown, tasks)
    )
    count, total = _between(graph, env, len(names), weight)
    pairs = sparse.triu(count, k=1).tocoo()
    kept = np.isin(pairs.row, shown) & np.isin(pairs.col, shown)
    sums = np.asarray(total[pairs.row, pairs.col]).ravel()
    frame = pd.DataFrame(
        {"source": pairs.row[kept], "target": pairs.col[kept], "edges": pairs.data[kept].astype(int),
         "weight": sums[kept] / np.maximum(pairs.data[kept], 1)}
    )  # fmt: skip
    frame = frame.sort_values(["edges", "weight", "source", "target"], ascending=[False, False, True, True])
    everything = graph.cross.nnz // 2 if graph is not None else 0
    return EnvironmentMap(
        _environments(view, graph, shown, places, step), frame.head(most_pairs).reset_index(drop=True),
        graph.version if graph is not None else 0, len(names), len(pairs.data), everything, int(pairs.data.sum()),
        "" if graph is not None else absence(view, version),
    )  # fmt: skip


def _between(
    graph: DualRelationGraph | None, env: Indices, many: int, weight: float
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Number and summed weight of the cross edges at or over `weight` between environments [E, E]."""
    if graph is None:
        return sparse.csr_array((many, many)), sparse.csr_array((many, many))
    cross = graph.cross
    heavy = np.flatnonzero(np.asarray(cross.data) >= weight)
    rows = np.searchsorted(cross.indptr, heavy, side="right") - 1
    pair = env[rows] * many + env[np.asarray(cross.indices)[heavy]]
    found, place = np.unique(pair, return_inverse=True)
    sums = np.bincount(place, weights=np.asarray(cross.data, dtype=float)[heavy], minlength=len(found))
    at = (found // many, found % many)
    counts = np.bincount(place, minlength=len(found)).astype(float)
    return tuple(sparse.csr_array((values, at), shape=(many, many)) for values in (counts, sums))  # type: ignore[return-value]


def _positions(between: sparse.csr_array, shown: Indices, tasks: Indices) -> NDArray[np.float64]:
    """Environments on a spiral, alike ones adjacent, the one with most tasks in the middle."""
    if not len(shown):
        return np.zeros((0, 2))
    middle = int(np.argmax(tasks[shown]))
    alone = sparse.csr_array((len(shown), len(shown)))
    return layout(np.arange(len(shown)), alone, sparse.csr_array(between[shown][:, shown]), middle)


def _environments(
    view: RunView, graph: DualRelationGraph | None, shown: Indices, places: NDArray[np.float64], step: int | None
) -> pd.DataFrame:
    names, env = view.env_names(), view.env_index()
    frame = pd.DataFrame(
        {
            "node": shown,
            "env": [names[i] for i in shown],
            "x": places[:, 0],
            "y": places[:, 1],
            "tasks": np.bincount(env, minlength=len(names))[shown],
            "within": _ends(graph, "within", env, len(names))[shown] // 2,
            "cross": _ends(graph, "cross", env, len(names))[shown],
        }
    )
    seen = observed(view, step).groupby("env", as_index=False).agg(
        seen=("task", "size"), groups=("groups", "sum"), last_step=("last_step", "max")
    )  # fmt: skip
    on_record = standing(view, step)
    on_record["env"] = [names[env[node]] for node in on_record["node"]]
    predicted = on_record.groupby("env", as_index=False).agg(
        variance=("variance", "mean"), state=("state", _commonest), picks=("outcome", _picked)
    )  # fmt: skip
    # Of a run without rows, pandas takes the names for numbers.
    texts = [part.astype({"env": object}) for part in (frame, seen, predicted)]
    frame = texts[0].merge(texts[1], on="env", how="left").merge(texts[2], on="env", how="left")
    for column in ("seen", "groups", "picks"):
        frame[column] = pd.to_numeric(frame[column]).fillna(0).astype(int)
    return frame


def _commonest(states: pd.Series[str]) -> str:
    return str(states.value_counts(sort=True).index[0])


def _picked(outcomes: pd.Series[str]) -> int:
    return int(outcomes.isin(["selected", "uniform_draw"]).sum())


def _ends(graph: DualRelationGraph | None, relation: str, env: Indices, many: int) -> Indices:
    """Ends of edges of a relation in each environment [E]."""
    if graph is None:
        return np.zeros(many, dtype=np.int64)
    degree = np.diff((graph.within if relation == "within" else graph.cross).indptr)
    return np.bincount(env[: len(degree)], weights=degree, minlength=many).astype(np.int64)


def find_tasks(view: RunView, text: str, envs: tuple[str, ...] = (), most: int = 200) -> tuple[pd.DataFrame, int]:
    """Tasks whose name, or the first 200 characters of whose text, hold `text`; and how many there are.

    Columns: node, env, task, key, text, in the order of the catalogue, at most `most` rows. Upper and lower case are
    one; nothing of `text` is a pattern.
    """
    where = """FROM tasks WHERE (len($envs) = 0 OR list_contains($envs, env))
        AND contains(lower(env || '::' || task || ' ' || coalesce(text, '')), lower($text))"""
    given = {"envs": list(envs), "text": text.strip()}
    total = int(view.row(f"SELECT count(*) n {where}", given)["n"])
    frame = view.query(
        f"SELECT node, env, task, env || '::' || task AS key, text {where} ORDER BY node LIMIT {int(most)}", given
    )
    return frame, total
