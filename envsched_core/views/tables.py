"""The tables behind the read models, and how one event becomes rows of them.

Every column has an explicit SQL type: types inferred from a sample round later values silently. Rows are
gathered as tuples and go in as DataFrames, one insert per table and block of events.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import msgspec
import numpy as np
import pandas as pd

from envsched_core.moments import is_flat, population_variance
from envsched_core.records import Candidate, Decision, GroupResult, TaskSpec

__all__ = ["TABLES", "VIEWS", "Rows", "create", "decision_rows", "group_row", "insert", "pack", "task_row", "unpack"]

TEXT_SHOWN = 200
"""Characters of a task's text kept in its row; the whole text is read from the catalogue on demand."""

Rows = dict[str, list[tuple[Any, ...]]]
"""Tuples of a table's columns; of a table in `FOLDED`, (number, name -> value)."""
FOLDED = ("terms", "shares")

TRUSTED = (
    *("kappa_env", "tau_within", "tau_cross", "half_life", "features_share"),
    *("loglik", "loglik_no_within", "loglik_no_cross", "loglik_no_features", "groups"),
)
"""Fields of a trust in the order of their columns."""

TABLES: dict[str, dict[str, str]] = {
    "tasks": {
        "node": "INTEGER",  # position in the catalogue, 0-based
        "env": "VARCHAR",
        "task": "VARCHAR",
        "text": "VARCHAR",
        "tools": "INTEGER",
        "verifier": "VARCHAR",
        "calls": "INTEGER",  # length of the reference call path; NULL = none
        "draws": "INTEGER",  # NULL = no limit
    },
    "ranges": {"env": "VARCHAR", "low": "DOUBLE", "high": "DOUBLE", "declared": "BOOLEAN"},
    "measures": {"step": "BIGINT", "metric": "VARCHAR", "value": "DOUBLE", "micro": "DOUBLE"},  # what a trainer noted
    "decisions": {
        "decision": "INTEGER",  # 0-based number of the ask in the run
        "step": "BIGINT",
        "ask": "INTEGER",  # 0-based number of the ask in its step
        "scheduler": "VARCHAR",
        "policy_version": "VARCHAR",
        "asked": "INTEGER",
        "picks": "INTEGER",
        "draws": "INTEGER",  # picks that were uniform draws
        "pool": "INTEGER",
        "eligible": "INTEGER",
        "cutoff": "DOUBLE",
        "graph_version": "INTEGER",
        "sample_rate": "DOUBLE",
        "certificate": "DOUBLE",
        "kappa_env": "DOUBLE",
        "tau_within": "DOUBLE",
        "tau_cross": "DOUBLE",
        "half_life": "DOUBLE",
        "features_share": "DOUBLE",
        "loglik": "DOUBLE",
        "loglik_no_within": "DOUBLE",
        "loglik_no_cross": "DOUBLE",
        "loglik_no_features": "DOUBLE",
        "scored": "BIGINT",  # groups that trust was learned from
        "payload": "BLOB",  # the whole Decision, see `pack`
    },
    "candidates": {
        "candidate": "INTEGER",  # 0-based number in the run; what terms and shares point to
        "decision": "INTEGER",
        "step": "BIGINT",
        "env": "VARCHAR",
        "task": "VARCHAR",
        "kept_as": "VARCHAR",
        "outcome": "VARCHAR",
        "position": "INTEGER",
        "pick_id": "VARCHAR",
        "score": "DOUBLE",
        "rank": "INTEGER",
        "mean": "DOUBLE",
        "variance": "DOUBLE",
        "sd": "DOUBLE",
        "low": "DOUBLE",
        "high": "DOUBLE",
        "usable": "DOUBLE",
        "rollouts": "DOUBLE",
        "state": "VARCHAR",
        "groups": "INTEGER",
        "last_step": "BIGINT",
    },
    "terms": {"candidate": "INTEGER", "name": "VARCHAR", "value": "DOUBLE"},
    "shares": {"candidate": "INTEGER", "source": "VARCHAR", "share": "DOUBLE"},
    "quotas": {
        "decision": "INTEGER",
        "step": "BIGINT",
        "env": "VARCHAR",
        "limit_picks": "INTEGER",
        "floor_picks": "INTEGER",
        "used": "INTEGER",
        "price": "DOUBLE",
        "blocked": "INTEGER",
    },
    "relaxed": {
        "step": "BIGINT",
        "kind": "VARCHAR",
        "env": "VARCHAR",
        "limit_picks": "INTEGER",
        "used": "INTEGER",
    },
    "counts": {"decision": "INTEGER", "step": "BIGINT", "outcome": "VARCHAR", "tasks": "INTEGER"},
    "groups_raw": {
        "number": "INTEGER",  # 0-based order of arrival
        "step": "BIGINT",  # the step whose batch it belongs to; NULL when nothing says
        "candidate": "INTEGER",  # the pick it answers; NULL when nobody asked for it
        "env": "VARCHAR",
        "task": "VARCHAR",
        "group_id": "VARCHAR",
        "scored": "INTEGER",
        "missing": "INTEGER",
        "status": "VARCHAR",
        "raw_mean": "DOUBLE",
        "raw_variance": "DOUBLE",
        "flat": "BOOLEAN",
        "policy_version": "VARCHAR",
        "trained": "BOOLEAN",
        "tokens": "DOUBLE",
        "seconds": "DOUBLE",
        "turns": "DOUBLE",
        "tool_calls": "DOUBLE",
        "payload": "VARCHAR",  # the whole GroupResult as JSON
    },
    "ends": {"candidate": "INTEGER", "ended": "VARCHAR", "reason": "VARCHAR", "step": "BIGINT"},
}

VIEWS: dict[str, str] = {
    # Rewards mapped to [0, 1] by the environment's range, as moments.py does it.
    "groups": """
        SELECT g.* EXCLUDE (payload), NOT flat AS mixed, r.low, r.high,
            (raw_mean - r.low) / greatest(r.high - r.low, 1e-300) AS mean,
            CASE WHEN scored >= 2 THEN raw_variance / greatest((r.high - r.low) ** 2, 1e-300) END AS variance
        FROM groups_raw g JOIN ranges r USING (env)""",
    # One row a pick: how it ended.
    "outcomes": """
        SELECT c.candidate, c.decision, c.step, c.env, c.task, c.position, c.outcome, c.variance AS predicted,
            c.mean AS predicted_mean, c.score, c.rank, c.state,
            CASE WHEN g.number IS NOT NULL THEN 'observed' ELSE coalesce(e.ended, 'open') END AS ended,
            coalesce(e.reason, '') AS reason, g.number, g.mixed, g.variance AS observed, g.mean AS observed_mean,
            g.scored, g.missing
        FROM candidates c
        LEFT JOIN groups g USING (candidate)
        LEFT JOIN ends e USING (candidate)
        WHERE c.kept_as = 'pick'""",
}

DTYPES: dict[str, Any] = {
    "INTEGER": np.dtype("int64"),
    "BIGINT": np.dtype("int64"),
    "DOUBLE": np.dtype("float64"),
    "BOOLEAN": np.dtype("bool"),
}
"""Of a column without a gap; all others are text or bytes."""
WITH_GAPS: dict[str, Any] = {"INTEGER": "Int64", "BIGINT": "Int64", "BOOLEAN": "boolean"}
REPEATED = ("env", "task", "kept_as", "outcome", "state", "name", "source", "scheduler", "status", "ended", "kind")
"""Text columns of few different values, which go in as numbers of these: DuckDB reads one Python text after another."""


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every table and view in an empty database."""
    for table, columns in TABLES.items():
        body = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        connection.execute(f"CREATE TABLE {table} ({body})")
    for name, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {query}")


def insert(cursor: duckdb.DuckDBPyConnection, rows: Mapping[str, list[tuple[Any, ...]]]) -> None:
    """Append gathered rows to their tables."""
    for table, lines in rows.items():
        if not lines:
            continue
        columns = TABLES[table]
        data = zip(columns.items(), _unfolded(lines) if table in FOLDED else zip(*lines, strict=True), strict=True)
        frame = pd.DataFrame({name: _column(name, kind, values) for (name, kind), values in data}, copy=False)
        cursor.register("incoming", frame)
        cursor.execute(f"INSERT INTO {table} SELECT {', '.join(columns)} FROM incoming")
        cursor.unregister("incoming")


def _unfolded(lines: Sequence[tuple[int, Mapping[str, float]]]) -> tuple[list[Any], ...]:
    """The columns of (number, name -> value): a row for each name."""
    numbers = [number for number, found in lines for _ in found]
    names = [name for _, found in lines for name in found]
    return numbers, names, [value for _, found in lines for value in found.values()]


def _column(name: str, kind: str, values: Sequence[Any]) -> Any:
    """The values as DuckDB takes them in fastest; None becomes NULL."""
    if kind == "DOUBLE":
        return np.array(values, dtype=DTYPES[kind])  # None becomes NaN, which goes in as NULL
    if kind in DTYPES:
        gaps = None in values
        return pd.array(values, dtype=WITH_GAPS[kind]) if gaps else np.array(values, dtype=DTYPES[kind])
    if name in REPEATED:
        codes = {text: i for i, text in enumerate(text for text in dict.fromkeys(values) if text is not None)}
        found = np.array([codes.get(text, -1) for text in values], dtype=np.int32)
        return pd.Categorical.from_codes(found, categories=pd.Index(list(codes), dtype=object))
    return pd.Series(values, dtype=object)


def pack(decision: Decision) -> bytes:
    """A decision as compressed JSON, to be read back whole when its step is looked at."""
    return zlib.compress(msgspec.json.encode(decision), 1)


def unpack(payload: bytes) -> Decision:
    """The inverse of `pack`."""
    return msgspec.json.decode(zlib.decompress(payload), type=Decision)


def task_row(node: int, task: TaskSpec) -> tuple[Any, ...]:
    """The `tasks` row of one catalogue entry."""
    calls = None if task.calls is None else len(task.calls)
    return (node, task.env, task.task, task.text[:TEXT_SHOWN], len(task.tools), task.verifier, calls, task.draws)


def decision_rows(decision: Decision, number: int, ask: int, first: int) -> Rows:
    """All rows of one ask: the `number`-th of the run, `ask`-th of its step, candidates numbered from `first`."""
    d, trust = decision, decision.trust
    picks = [c for c in d.candidates if c.kept_as == "pick"]
    head = (number, d.step, ask, d.scheduler, d.policy_version, d.asked, len(picks))
    draws = sum(c.outcome == "uniform_draw" for c in picks)
    pool = (draws, d.pool, d.eligible, d.cutoff, d.graph_version, d.sample_rate, d.certificate)
    learned = tuple(getattr(trust, name, None) for name in TRUSTED)  # None without a trust
    rows: Rows = {
        "decisions": [(*head, *pool, *learned, pack(d))],
        "quotas": [(number, d.step, q.env, q.limit, q.floor, q.used, q.price, q.blocked) for q in d.quotas],
        "relaxed": [(d.step, r.kind, r.env, r.limit, r.used) for r in d.relaxed],
        "counts": [(number, d.step, outcome, tasks) for outcome, tasks in d.counts.items()],
    }
    return rows | _candidate_rows(enumerate(d.candidates, first), number, d.step)


def _candidate_rows(numbered: Iterable[tuple[int, Candidate]], decision: int, step: int) -> Rows:
    rows: Rows = {"candidates": [], "terms": [], "shares": []}
    for i, c in numbered:
        place = (i, decision, step, c.env, c.task, c.kept_as, c.outcome, c.position, c.pick_id)
        belief = (c.score, c.rank, c.mean, c.variance, c.sd, c.low, c.high, c.usable, c.rollouts)
        rows["candidates"].append((*place, *belief, c.state, c.groups, c.last_step))
        rows["terms"].append((i, c.terms))
        rows["shares"].append((i, c.shares))
    return rows


def group_row(
    result: GroupResult,
    number: int,
    step: int | None,
    candidate: int | None,
    *,
    declared: tuple[float, float] | None,
    thresholds: tuple[float, float],
) -> tuple[Any, ...]:
    """The `groups_raw` row of one result; rewards outside a `declared` range are clipped, as the scheduler does.

    `thresholds` are the run's `min_std` and `min_range`, in reward units.
    """
    r = result
    rewards = [min(max(x, declared[0]), declared[1]) for x in r.rewards] if declared else list(r.rewards)
    mean = sum(rewards) / len(rewards) if rewards else None
    spread = population_variance(rewards) if rewards else None
    cost = (r.cost.tokens, r.cost.seconds, r.cost.turns, r.cost.tool_calls) if r.cost else (None,) * 4
    place = (number, step, candidate, r.env, r.task, r.group_id, len(r.rewards), r.missing, r.status)
    flat = is_flat(r.rewards, *thresholds)
    payload = msgspec.json.encode(r).decode()
    return (*place, mean, spread, flat, r.policy_version, r.trained, *cost, payload)
