"""The catalogue as a table, narrowed by the page's filters, and one task whole."""

from __future__ import annotations

import pandas as pd

from envsched_core.records import TaskSpec

from .batch import NO_FILTERS, Filters
from .run_view import OUTCOME_CODES, STATES, RunView

__all__ = ["standing", "task", "task_keys", "tasks"]


def task(view: RunView, key: str) -> TaskSpec:
    """One catalogue entry whole (its text is untrusted).

    Raises:
        UnknownTaskError: the run has no such task.
    """
    return view.spec(view.node(key))


def tasks(view: RunView, step: int | None, filters: Filters = NO_FILTERS, most: int = 500) -> tuple[pd.DataFrame, int]:
    """Catalogue entries with their standing at a step, best rank first; at most `most` rows, and how many there are.

    Columns: node, env, task, text (its beginning), draws; groups (observed so far), mixed (of these), last_step
    (observed); rank (NULL = could not be picked), score, variance (predicted), state and outcome at `step`, NULL
    where not on record.
    """
    frame = view.query(
        """
        SELECT node, env, task, text, draws, coalesce(g.n, 0) AS groups, coalesce(g.mixed, 0) mixed, g.last_step
        FROM tasks LEFT JOIN (SELECT env, task, count(*) n, count(*) FILTER (mixed) mixed, max(step) last_step
            FROM groups GROUP BY env, task) g USING (env, task) ORDER BY node"""
    )
    ranks = standing(view, step)
    frame = filters.keep(frame.merge(ranks, on="node", how="left"))
    frame = frame.sort_values(["rank", "node"], na_position="last")
    return frame.head(most).reset_index(drop=True), len(frame)


def standing(view: RunView, step: int | None) -> pd.DataFrame:
    """Node, rank, score, variance, state and outcome of every task on record at a step."""
    scores = None if step is None else view.scores(step)
    if scores is not None:
        return pd.DataFrame(
            {
                "node": range(len(scores.score)),
                "rank": pd.Series(scores.rank, dtype="Int64").replace(0, pd.NA),
                "score": scores.score.astype(float),
                "variance": scores.variance.astype(float),
                "state": [STATES[i] for i in scores.state],
                "outcome": [OUTCOME_CODES[i] for i in scores.outcome],
            }
        )
    return view.query(
        """
        SELECT node, nullif(rank, 0) rank, score, variance, state, outcome FROM candidates JOIN tasks USING (env, task)
        WHERE step = ?
        QUALIFY row_number() OVER (PARTITION BY node ORDER BY kept_as = 'pick' DESC, decision DESC) = 1""",
        [-1 if step is None else step],
    )


def task_keys(view: RunView, env: tuple[str, ...] = (), most: int = 5000) -> tuple[list[str], int]:
    """Keys (ENV::TASK) of the catalogue in its order, at most `most`, and how many there are."""
    where = "WHERE list_contains($envs, env)" if env else "WHERE $envs IS NOT NULL"
    total = int(view.row(f"SELECT count(*) n FROM tasks {where}", {"envs": list(env)})["n"])
    frame = view.query(f"SELECT env, task FROM tasks {where} ORDER BY node LIMIT {int(most)}", {"envs": list(env)})
    return [f"{e}::{t}" for e, t in zip(frame["env"], frame["task"], strict=True)], total
