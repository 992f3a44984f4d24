"""One step's batch: what was picked, in which order, from where, and how alike the picks are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.explanation import ties
from envsched_core.records import Candidate, Decision

from .run_view import RunView

__all__ = [
    "BatchChange",
    "Filters",
    "alike_matrix",
    "batch",
    "batch_change",
    "composition",
    "outcome_counts",
    "redundancy",
    "term_totals",
]


class Filters(msgspec.Struct, frozen=True):
    """What a page narrows its tables to; an empty tuple lets everything through."""

    environments: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    def keep(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of `frame` (columns env, outcome, state where it has them) that pass."""
        for column, wanted in (("env", self.environments), ("outcome", self.outcomes), ("state", self.states)):
            if wanted and column in frame:
                frame = frame[frame[column].isin(wanted)]
        return frame.reset_index(drop=True)


NO_FILTERS = Filters()
PLAIN = ("env", "task", "kept_as", "outcome", "position", "score", "rank", "mean", "variance", "sd", "usable")


def batch(view: RunView, step: int, filters: Filters = NO_FILTERS) -> pd.DataFrame:
    """Every candidate on record at a step: picks in order, then near misses by score, then the random sample.

    Columns: ask, env, task, kept_as, outcome, position (0-based in the step), score, rank, mean [0, 1],
    variance and sd [0, 0.25], usable [0, 1], state, groups, last_step, margin (score minus the cut-off of its
    ask; 0 = tied), details (JSON text of the numbers behind the outcome), one `term:NAME` column per signed term; for
    picks also ended (open, observed, released, expired), mixed, observed (variance [0, 0.25]).
    """
    rows = [
        _row(candidate, decision, ask)
        for ask, decision in enumerate(view.decisions(step))
        for candidate in decision.candidates
    ]
    frame = pd.DataFrame(rows, columns=None if rows else [*PLAIN, "ask", "state", "margin", "details"])
    ended = view.query("SELECT env, task, position, ended, mixed, observed FROM outcomes WHERE step = ?", [step])
    if rows:
        frame["position"] = frame["position"].astype("Int64")
        ended["position"] = ended["position"].astype("Int64")
        frame = frame.merge(ended, on=["env", "task", "position"], how="left")
    return filters.keep(frame)


def _row(candidate: Candidate, decision: Decision, ask: int) -> dict[str, Any]:
    c = candidate
    row = {name: getattr(c, name) for name in PLAIN} | {"ask": ask, "state": c.state, "groups": c.groups}
    margin = np.nan if decision.cutoff is None else c.score - decision.cutoff
    margin = 0.0 if ties(margin) else margin
    row |= {"last_step": c.last_step, "margin": margin, "details": json.dumps(c.details, sort_keys=True)}
    return row | {f"term:{name}": value for name, value in c.terms.items()}


def composition(view: RunView, step: int) -> pd.DataFrame:
    """One row per environment that was picked from or whose quota is on record at a step, most picks first.

    Columns: env, picks, limit_picks and floor_picks (most allowed and fewest wanted this step; NULL when not
    on record), price (shadow price in score units), blocked (candidates its quota blocked), tasks (in the
    catalogue), expected (picks that uniform draws over the catalogue would take), mixed, answered.
    """
    return view.query(
        """
        WITH picked AS (SELECT env, count(*) picks, count(*) FILTER (mixed) mixed, count(number) answered
                FROM outcomes WHERE step = $step GROUP BY env),
            quota AS (SELECT env, max(limit_picks) limit_picks, max(floor_picks) floor_picks, max(price) price,
                max(blocked) blocked FROM quotas WHERE step = $step GROUP BY env),
            pool AS (SELECT env, count(*) tasks FROM tasks GROUP BY env)
        SELECT env, coalesce(picks, 0) picks, limit_picks, floor_picks, coalesce(price, 0) price,
            coalesce(blocked, 0) blocked, coalesce(tasks, 0) tasks,
            coalesce(tasks, 0) * (SELECT sum(picks) FROM picked) / (SELECT sum(tasks) FROM pool) expected,
            coalesce(mixed, 0) mixed, coalesce(answered, 0) answered
        FROM picked FULL JOIN quota USING (env) LEFT JOIN pool USING (env)
        ORDER BY picks DESC, env""",
        {"step": step},
    )


def outcome_counts(view: RunView, step: int) -> pd.DataFrame:
    """How many tasks of the whole pool ended a step with each outcome, over all its asks' last word.

    Columns: outcome, tasks.
    """
    return view.query(
        """
        SELECT outcome, CASE WHEN outcome IN ('selected', 'uniform_draw') THEN sum(tasks)
            ELSE arg_max(tasks, decision) END::INTEGER tasks
        FROM counts WHERE step = ? GROUP BY outcome ORDER BY tasks DESC, outcome""",
        [step],
    )


def term_totals(view: RunView, step: int) -> pd.DataFrame:
    """What the picks of a step were scored for: each term summed over them, in score units.

    Columns: name, total, mean (total / all picks of the step, whether or not they have the term).
    """
    return view.query(
        """
        WITH picked AS (SELECT candidate FROM candidates WHERE step = ? AND kept_as = 'pick')
        SELECT name, sum(value) total, sum(value) / (SELECT count(*) FROM picked) mean
        FROM terms JOIN picked USING (candidate) GROUP BY name ORDER BY abs(sum(value)) DESC, name""",
        [step],
    )


class BatchChange(msgspec.Struct, frozen=True):
    """What a step picked that the step before did not, and the other way round."""

    before: int | None
    """The step compared with: the last one before that has a batch; None = there is none."""
    kept: int
    """Tasks picked at both steps."""
    entered: int
    """Tasks picked now and not before."""
    left: int
    """Tasks picked before and not now."""
    first_time: int
    """Tasks picked now for the first time in the run."""
    environments: pd.DataFrame
    """One row per environment picked from at either step, largest change first. Columns: env, before, picks (at this
    step), change."""


def batch_change(view: RunView, step: int) -> BatchChange:
    """How the batch of a step differs from the one before it."""
    before = view.row("SELECT max(step) step FROM decisions WHERE step < ?", [step])["step"]
    steps = {"step": step, "before": before}
    tasks = view.row(
        """
        WITH picked AS (
            SELECT bool_or(step = $step) AS now, coalesce(bool_or(step = $before), false) AS past, min(step) AS first
            FROM candidates WHERE kept_as = 'pick' AND step <= $step GROUP BY env, task)
        SELECT count(*) FILTER (now AND past) kept, count(*) FILTER (now AND NOT past) entered,
            count(*) FILTER (past AND NOT now) "left", count(*) FILTER (now AND first = $step) first_time
        FROM picked""",
        steps,
    )
    environments = view.query(
        """
        SELECT env, count(*) FILTER (step = $before) AS before, count(*) FILTER (step = $step) picks,
            picks - before AS change
        FROM candidates WHERE kept_as = 'pick' AND (step = $step OR step = $before)
        GROUP BY env ORDER BY abs(change) DESC, env""",
        steps,
    )
    return BatchChange(before=None if before is None else int(before), environments=environments, **tasks)


def alike_matrix(view: RunView, step: int, most: int = 128) -> tuple[NDArray[np.float32], list[str]]:
    """Weights [B, B] of the graph between the picks of a step in pick order, and their keys; at most `most` picks.

    The stronger of both relations, in [0, 1]; 0 = no edge. Without a graph the matrix is empty.
    """
    decisions = view.decisions(step)
    graph = view.graph(decisions[0].graph_version) if decisions else None
    if graph is None:
        return np.zeros((0, 0), dtype=np.float32), []
    keys = [pick.key for decision in decisions for pick in decision.picks][:most]
    nodes = np.array([view.node(key) for key in keys], dtype=np.int64)
    blocks = [matrix[nodes][:, nodes].toarray() for matrix in (graph.within, graph.cross)]
    weights = np.maximum(blocks[0], blocks[1])
    return np.maximum(weights, weights.T).astype(np.float32), keys


def redundancy(view: RunView, step: int, most: int = 50) -> pd.DataFrame:
    """Pairs of picks of one step that the graph ties, strongest first, at most `most`.

    Columns: a, b (keys), a_position, b_position, relation, weight [0, 1]. No rows where there is no graph.
    """
    columns = ["a", "b", "a_position", "b_position", "relation", "weight"]
    decisions = view.decisions(step)
    graph = view.graph(decisions[0].graph_version) if decisions else None
    if graph is None:
        return pd.DataFrame({name: [] for name in columns})
    picks = [pick for decision in decisions for pick in decision.picks]
    nodes = np.array([view.node(pick.key) for pick in picks], dtype=np.int64)
    rows = []
    for relation, matrix in (("within", graph.within), ("cross", graph.cross)):
        block = matrix[nodes][:, nodes].tocoo()
        for i, j, weight in zip(*block.coords, block.data, strict=True):
            if i < j:
                a, b = picks[i], picks[j]
                rows.append((a.key, b.key, a.position, b.position, relation, float(weight)))
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values(["weight", "a", "b"], ascending=[False, True, True]).head(most).reset_index(drop=True)
