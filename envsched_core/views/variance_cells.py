"""Variance by step: environments as rows, or the tasks of one environment; predicted, observed or their difference.

A cell without a value is NaN: nothing predicted, or nothing observed, is never 0. Where there are more rows or steps
than a page can draw, rows are the most visited ones and neighbouring steps share a column; `total` and `span` say so.
"""

from __future__ import annotations

from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.recording import StepScores
from envsched_core.store import RunReader

from .batch import NO_FILTERS, Filters
from .run_view import OUTCOME_CODES, STATES, RunView

__all__ = ["Grid", "TaskGrid", "task_grid", "variance_grid"]

Floats = NDArray[np.float64]
GridKind = Literal["predicted", "observed", "difference"]
Together = Literal["mean", "largest"]


class Grid(msgspec.Struct, frozen=True):
    """Environments by steps."""

    envs: tuple[str, ...]
    """Rows [E]."""
    steps: tuple[int, ...]
    """Columns [S]; with `span` > 1 the first step of each column."""
    span: int
    """Steps in a column."""
    values: NDArray[np.float32]
    """Variance [E, S] in [0, 0.25] (a difference: in [-0.25, 0.25]); NaN where there is none."""
    groups: NDArray[np.int32]
    """Observed groups [E, S] that pass the filters."""
    total: int
    """Environments in the run; more than E when the grid shows some only."""


class TaskGrid(msgspec.Struct, frozen=True):
    """Tasks of one environment by steps."""

    env: str
    tasks: tuple[str, ...]
    """Rows [T], most visited first, then as the catalogue has them."""
    steps: tuple[int, ...]
    """Columns [S]; with `span` > 1 the first step of each column."""
    span: int
    values: NDArray[np.float32]
    """Variance [T, S] as in `Grid`."""
    groups: NDArray[np.int32]
    """Observed groups [T, S]."""
    picks: NDArray[np.int32]
    """Times the task was picked [T, S]; the last pick of a column stands in `picked_at`."""
    picked_at: NDArray[np.int64]
    """Last step of the column at which the task was picked [T, S]; -1 = at none."""
    total: int
    """Tasks of the environment; more than T when the grid shows the most visited only."""


def variance_grid(
    view: RunView,
    kind: GridKind = "predicted",
    envs: tuple[str, ...] = (),
    most_envs: int = 250,
    most_steps: int = 500,
    *,
    filters: Filters = NO_FILTERS,
    span: int = 0,
    together: Together = "mean",
) -> Grid:
    """Variance of each environment at each step, most visited environments first; NaN = not known.

    predicted: over all tasks of the environment as the step's scores file has them (over the candidates on record
    where there is no file). observed: population variance of the mapped rewards of the groups observed for the step.
    difference: observed minus predicted, over the observed tasks' own predictions, each times (G - 1) / G: what a
    group of G rollouts shows of the task's variance on average.

    `filters` narrows rows to environments (as `envs` does) and what is put together to tasks in these evidence states
    and with these outcomes at that step. `together` is how tasks and steps of a cell are put together: their mean, or
    the largest (of a difference: the farthest from 0). `span` steps share a column; 0 = as few as `most_steps` allows.
    """
    rows = _most_visited(view, envs or filters.environments, most_envs)
    steps, span = view.steps(), _span(len(view.steps()), most_steps, span)
    columns = steps[::span]
    place = {env: i for i, env in enumerate(rows)}
    found = _outcomes(view, kind, filters, "env", together)
    found = found[found["step"].isin(steps)]
    values, groups = _pivot(found.assign(row=found["env"].map(place)), len(rows), columns, together)
    if kind == "predicted":
        values = _joined(_predicted(view, rows, steps, filters, together), span, together)
    total = int(view.row("SELECT count(DISTINCT env) n FROM tasks")["n"])
    return Grid(tuple(rows), tuple(columns), span, values.astype(np.float32), groups.astype(np.int32), total)


def task_grid(
    view: RunView,
    env: str,
    kind: GridKind = "predicted",
    *,
    filters: Filters = NO_FILTERS,
    span: int = 0,
    together: Together = "mean",
    most_tasks: int = 120,
    most_steps: int = 500,
) -> TaskGrid:
    """Variance of each task of one environment at each step, as in `variance_grid`, and where it was picked."""
    keys = view.query(
        """
        SELECT node, task, coalesce(n, 0) + coalesce(m, 0) visits FROM tasks
        LEFT JOIN (SELECT task, count(*) n FROM outcomes WHERE env = $env GROUP BY task) USING (task)
        LEFT JOIN (SELECT task, count(*) m FROM groups WHERE env = $env AND candidate IS NULL GROUP BY task)
            USING (task)
        WHERE env = $env ORDER BY visits DESC, node""",
        {"env": env},
    )
    shown = keys.head(most_tasks)
    steps, span = view.steps(), _span(len(view.steps()), most_steps, span)
    columns = steps[::span]
    place = {str(task): i for i, task in enumerate(shown["task"])}
    narrowed = Filters((env,), filters.outcomes, filters.states)
    found = _outcomes(view, kind, narrowed, "task", together)
    found = found[found["step"].isin(steps)]
    values, groups = _pivot(found.assign(row=found["task"].map(place)), len(place), columns, together)
    if kind == "predicted":
        values = _joined(_predicted_tasks(view, env, shown, steps, narrowed), span, together)
    picks, picked_at = _picks(view, env, place, columns)
    arrays = (values.astype(np.float32), groups.astype(np.int32), picks, picked_at)
    return TaskGrid(env, tuple(place), tuple(columns), span, *arrays, len(keys))


def _span(steps: int, most: int, wanted: int) -> int:
    return max(-(-steps // most), wanted, 1)


def _most_visited(view: RunView, envs: tuple[str, ...], most: int) -> list[str]:
    frame = view.query(
        """
        SELECT env FROM (SELECT env, count(*) n FROM tasks GROUP BY env)
        LEFT JOIN (SELECT env, count(*) visits FROM groups GROUP BY env) USING (env)
        ORDER BY coalesce(visits, 0) DESC, env"""
    )
    return [str(env) for env in frame["env"] if not envs or env in envs][:most]


# ---------------------------------------------------------------------- observed


def _passing(filters: Filters) -> tuple[str, dict[str, Any]]:
    """A condition on the columns env, outcome, state and its values; only what is filtered is named."""
    wanted = {"env": filters.environments, "outcome": filters.outcomes, "state": filters.states}
    named = {column: list(values) for column, values in wanted.items() if values}
    return " AND ".join(["TRUE", *(f"list_contains(${column}, {column})" for column in named)]), named


def _outcomes(view: RunView, kind: GridKind, filters: Filters, by: str, together: Together) -> pd.DataFrame:
    """Observed variance, or its difference to the prediction, by step and `by` (env or task): value, n groups."""
    passing, named = _passing(filters)
    if kind == "difference":
        value = "observed - predicted * (scored - 1) / scored"
        source = f"(SELECT env, task, step, {value} AS v FROM outcomes WHERE scored > 1 AND {passing})"
    else:
        source = """(SELECT g.env, g.task, g.step, g.variance AS v, c.outcome, c.state
            FROM groups g LEFT JOIN candidates c USING (candidate))"""
        source = f"(SELECT env, task, step, v FROM {source} WHERE step IS NOT NULL AND {passing})"
    how = "avg(v)" if together == "mean" else "max_by(v, abs(v))"
    return view.query(f"SELECT {by}, step, {how} AS value, count(v) n FROM {source} GROUP BY {by}, step", named)


def _pivot(frame: pd.DataFrame, rows: int, columns: list[int], together: Together) -> tuple[Floats, Floats]:
    """A long frame (row, step, value, n) on the grid [rows, S], and the sums of `n`; means are weighted by `n`."""
    shape = (rows, len(columns))
    weight, sums, most = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    kept = frame[frame["row"].notna() & frame["value"].notna()]
    if len(kept) and columns:
        r = kept["row"].to_numpy(dtype=np.int64)
        c = np.searchsorted(columns, kept["step"].to_numpy(dtype=np.int64), side="right") - 1
        n, value = kept["n"].to_numpy(dtype=float), kept["value"].to_numpy(dtype=float)
        np.add.at(weight, (r, c), n)
        np.add.at(sums, (r, c), n * value)
        order = np.argsort(np.abs(value), kind="stable")  # the last one written stays
        most[r[order], c[order]] = value[order]
    values = most if together == "largest" else sums / np.maximum(weight, 1e-300)
    return np.where(weight > 0, values, np.nan), weight


def _picks(
    view: RunView, env: str, place: dict[str, int], columns: list[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    picks = np.zeros((len(place), len(columns)), dtype=np.int32)
    last = np.full((len(place), len(columns)), -1, dtype=np.int64)
    frame = view.query("SELECT task, step FROM outcomes WHERE env = ? ORDER BY step", [env])
    frame = frame[frame["task"].isin(place.keys())]
    if len(frame) and columns:
        r = frame["task"].map(place).to_numpy(dtype=np.int64)
        step = frame["step"].to_numpy(dtype=np.int64)
        c = np.searchsorted(columns, step, side="right") - 1
        np.add.at(picks, (r, c), 1)
        last[r, c] = step
    return picks, last


# ---------------------------------------------------------------------- predicted

_largest: WeakKeyDictionary[RunReader, dict[int, Floats]] = WeakKeyDictionary()
"""Largest predicted variance of each environment by step: scores of past steps never change."""


def _predicted(view: RunView, rows: list[str], steps: list[int], filters: Filters, together: Together) -> Floats:
    """Per environment and step [E, S]; steps without a scores file come from the candidates on record."""
    order = {env: i for i, env in enumerate(view.env_names())}
    index = np.array([order[env] for env in rows], dtype=np.int64)
    found: dict[int, Floats] = {}
    for step in steps:
        values = _of_environments(view, step, filters, together)
        if values is not None:
            found[step] = np.append(values, np.full(max(len(order) - len(values), 0), np.nan))[index]
    missing = [step for step in steps if step not in found]
    if missing:
        passing, named = _passing(filters)
        how = "avg" if together == "mean" else "max"
        frame = view.query(
            f"SELECT env, step, {how}(variance) AS value, count(*) n FROM candidates WHERE {passing} "
            "GROUP BY env, step",
            named,
        )
        place = {env: i for i, env in enumerate(rows)}
        frame = frame[frame["step"].isin(missing)]
        values, _ = _pivot(frame.assign(row=frame["env"].map(place)), len(rows), missing, together)
        found |= {step: values[:, i] for i, step in enumerate(missing)}
    return np.array([found[step] for step in steps]).T.reshape(len(rows), len(steps))


def _of_environments(view: RunView, step: int, filters: Filters, together: Together) -> Floats | None:
    """One number an environment [E] from the scores file of a step; None without one."""
    plain = not filters.outcomes and not filters.states
    if plain and together == "mean":
        return view.predicted_means(step)
    known = _largest.setdefault(view.reader, {}) if plain else {}
    if step in known:
        return known[step]
    scores = view.scores(step)
    if scores is None or not len(scores.variance):
        return None
    env, size = view.env_index()[: len(scores.variance)], len(view.env_names())
    passes = _passes(scores, filters)[: len(env)]
    variance = np.where(passes, scores.variance[: len(env)].astype(float), np.nan)
    counts = np.bincount(env[passes], minlength=size)
    if together == "mean":
        sums = np.bincount(env[passes], weights=variance[passes], minlength=size)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    most = np.full(size, -np.inf)
    np.maximum.at(most, env[passes], variance[passes])
    most = np.where(counts > 0, most, np.nan)
    if step != view.health().last_step:  # a further ask of the newest step replaces its file
        known[step] = most
    return most


def _passes(scores: StepScores, filters: Filters) -> NDArray[np.bool_]:
    """Which tasks [N] are in the wanted evidence states and have the wanted outcomes."""
    out = np.ones(len(scores.variance), dtype=bool)
    for codes, names, wanted in (
        (scores.state, STATES, filters.states),
        (scores.outcome, OUTCOME_CODES, filters.outcomes),
    ):
        if wanted:
            out &= np.isin(codes, [names.index(name) for name in wanted if name in names])
    return out


def _predicted_tasks(view: RunView, env: str, shown: pd.DataFrame, steps: list[int], filters: Filters) -> Floats:
    """Per task and step [T, S], from the scores files, else from the candidates on record."""
    nodes = shown["node"].to_numpy(dtype=np.int64)
    out, missing = np.full((len(nodes), len(steps)), np.nan), []
    for i, step in enumerate(steps):
        scores = view.scores(step)
        if scores is None or not len(scores.variance):
            missing.append(step)
            continue
        inside = nodes < len(scores.variance)
        at = nodes[inside]
        out[inside, i] = np.where(_passes(scores, filters)[at], scores.variance[at], np.nan)
    if missing:
        passing, named = _passing(filters)
        frame = view.query(
            f"SELECT task, step, avg(variance) AS value, count(*) n FROM candidates WHERE {passing} "
            "GROUP BY task, step",
            named,
        )
        frame = frame[frame["step"].isin(missing)]
        place = {task: i for i, task in enumerate(shown["task"])}
        values, _ = _pivot(frame.assign(row=frame["task"].map(place)), len(nodes), missing, "mean")
        out[:, [steps.index(step) for step in missing]] = values
    return out


def _joined(whole: Floats, span: int, together: Together) -> Floats:
    """Columns [R, S] put together by `span`: their mean or largest; NaN where none of them is known."""
    if span == 1 or not whole.size:
        return whole
    starts = np.arange(0, whole.shape[1], span)
    known = np.add.reduceat(np.isfinite(whole), starts, axis=1)
    if together == "largest":
        joined = np.maximum.reduceat(np.where(np.isfinite(whole), whole, -np.inf), starts, axis=1)
    else:
        joined = np.add.reduceat(np.nan_to_num(whole), starts, axis=1) / np.maximum(known, 1)
    return np.where(known > 0, joined, np.nan)
