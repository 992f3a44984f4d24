"""Which kinds of tasks were reached: interaction patterns of the graph, or sets of tools.

Interaction patterns are the cells of the scheduler's pattern coverage (`weight_pattern`): clusters of execution
patterns, the roles that the calls of a task play. They are those of the run's newest graph, which a run without a
graph does not have. A tool set is the set of tools that a task offers, as the catalogue has it.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .run_view import RunView
from .trends import uniform_coverage, uniform_rule

__all__ = ["KindBy", "Kinds", "kinds_reached"]

KindBy = Literal["pattern", "tools"]
MOST_TOOLS = 6
"""Tools named of a set; the number of the others stands behind."""


class Kinds(msgspec.Struct, frozen=True):
    """How much of every kind of task was reached."""

    by: KindBy
    table: pd.DataFrame
    """One row a kind, those with fewest visits against uniform draws first. Columns: kind (its name; untrusted text),
    tasks, environments (that hold such tasks), tasks_seen, visits, expected (visits that uniform draws of as many
    picks would give it on average), ratio (visits / expected; missing without visits in the run), first_step,
    last_step (visited; NULL = never), groups (observed), mixed (of these)."""
    reach: pd.DataFrame
    """Over the steps, of visits that have one. Columns: step, picks, kinds (distinct so far), uniform_kinds (expected
    of uniform draws of as many picks)."""
    unknown: int
    """Tasks that belong to no kind: no call of theirs, or no tool, is known."""
    tasks: int
    """Tasks in the catalogue, or of the chosen environments."""


def kinds_reached(view: RunView, by: KindBy = "pattern", envs: tuple[str, ...] = ()) -> Kinds:
    """Patterns or tool sets reached so far against uniform draws; with `envs` only tasks of these environments."""
    # The same whatever the filter is.
    kind, names = view.kept.of(f"kinds by {by}", view.version, lambda: KINDS[by](view))
    visited = view.kept.of("visits of nodes", view.version, lambda: view.query(
        f"SELECT v.step, node FROM {_visits(view)} v JOIN tasks USING (env, task) ORDER BY v.step, node"
    ))  # fmt: skip
    order = {env: i for i, env in enumerate(view.env_names())}
    if envs:
        inside = np.isin(view.env_index(), [order[env] for env in envs if env in order])
        kind = np.where(inside, kind, -1)
        tasks = int(inside.sum())
    else:
        tasks = len(kind)
    node = visited["node"].to_numpy(dtype=np.int64)
    seen = visited.assign(kind=kind[node] if len(node) else np.zeros(0, dtype=np.int64))
    sizes = np.bincount(kind[kind >= 0], minlength=len(names)).astype(np.int64)
    return Kinds(
        by=by,
        table=_table(view, kind, names, sizes, seen),
        reach=_reach(view, seen, sizes[sizes > 0], len(view.env_index())),
        unknown=tasks - int(sizes.sum()),
        tasks=tasks,
    )


def _visits(view: RunView) -> str:
    """A relation (step, env, task) of every pick; in a log without decisions, of every group, also without a step."""
    if view.row("SELECT count(*) n FROM decisions")["n"]:
        return "(SELECT step, env, task FROM outcomes)"
    return "(SELECT step, env, task FROM groups)"


def _patterns(view: RunView) -> tuple[NDArray[np.int64], list[str]]:
    """Pattern of every task [N], -1 = unknown, and the names of the patterns."""
    kind = np.full(len(view.env_index()), -1, dtype=np.int64)
    graph = view.graph()
    if graph is None:
        return kind, []
    kind[: len(graph.pattern)] = graph.pattern
    return kind, list(graph.pattern_names)


def _tool_sets(view: RunView) -> tuple[NDArray[np.int64], list[str]]:
    """Tool set of every task [N], -1 = it names no tool, and the names of the sets."""
    place: dict[tuple[str, ...], int] = {}
    kind = np.full(len(view.env_index()), -1, dtype=np.int64)
    for node in range(len(kind)):
        tools = tuple(sorted({tool.name for tool in view.spec(node).tools}))
        if tools:
            kind[node] = place.setdefault(tools, len(place))
    return kind, [_tools_text(tools) for tools in place]


KINDS = {"pattern": _patterns, "tools": _tool_sets}


def _tools_text(tools: tuple[str, ...]) -> str:
    rest = f" and {len(tools) - MOST_TOOLS} more" if len(tools) > MOST_TOOLS else ""
    return ", ".join(tools[:MOST_TOOLS]) + rest


def _table(
    view: RunView, kind: NDArray[np.int64], names: list[str], sizes: NDArray[np.int64], seen: pd.DataFrame
) -> pd.DataFrame:
    pool = pd.DataFrame({"kind": kind, "env": view.env_index()})
    pool = pool[pool["kind"] >= 0]
    inside = seen[seen["kind"] >= 0].groupby("kind")
    out = pd.DataFrame({"at": np.flatnonzero(sizes)}).set_index("at", drop=False)
    out["kind"] = [names[i] for i in out["at"]]
    out["tasks"] = sizes[out["at"]]
    out["environments"] = pool.groupby("kind")["env"].nunique()
    for column, found in (("tasks_seen", inside["node"].nunique()), ("visits", inside.size())):
        out[column] = found.reindex(out["at"]).fillna(0).astype("int64")
    out["expected"] = len(seen) * out["tasks"] / max(len(view.env_index()), 1)
    out["ratio"] = (out["visits"] / out["expected"]).where(out["expected"] > 0)
    for column, found in (("first_step", inside["step"].min()), ("last_step", inside["step"].max())):
        out[column] = found.reindex(out["at"]).astype("Int64")
    got = view.kept.of("groups of nodes", view.version, lambda: view.query(
        "SELECT node, count(*) n, count(*) FILTER (mixed) mixed FROM groups JOIN tasks USING (env, task) GROUP BY node"
    ))  # fmt: skip
    of = kind[got["node"].to_numpy(dtype=np.int64)]
    for column, weights in (("groups", got["n"]), ("mixed", got["mixed"])):
        sums = np.bincount(of[of >= 0], weights.to_numpy(dtype=float)[of >= 0], minlength=len(names))
        out[column] = sums[out["at"]].astype(np.int64)
    out = out.drop(columns="at").sort_values(["ratio", "kind"], kind="stable")
    return out.reset_index(drop=True)


def _reach(view: RunView, seen: pd.DataFrame, sizes: NDArray[np.int64], total: int) -> pd.DataFrame:
    seen = seen[seen["step"].notna()]
    picks = seen.groupby("step").size()
    first = seen[seen["kind"] >= 0].groupby("kind")["step"].min()
    new = first.value_counts().reindex(picks.index).fillna(0)
    out = pd.DataFrame(
        {"step": picks.index.astype("int64"), "picks": picks.to_numpy(), "kinds": new.cumsum().astype("int64")}
    ).reset_index(drop=True)
    once, _ = uniform_rule(view)
    draws = out["picks"].to_numpy(dtype=float)
    _, out["uniform_kinds"] = uniform_coverage(draws, sizes.astype(float), once=once, total=float(total))
    return out
