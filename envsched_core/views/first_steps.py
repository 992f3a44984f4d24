"""The first steps as a player shows them: every task as a cell, its evidence state at each step, and the picks."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .run_view import STATES, RunView

__all__ = ["FirstSteps", "first_steps"]

ABSENT, UNKNOWN = -2, -1
"""No such task; a task that nothing on record speaks for at that step."""


class FirstSteps(msgspec.Struct, frozen=True):
    """Environments by tasks, once per step."""

    steps: tuple[int, ...]
    """[S]."""
    envs: tuple[str, ...]
    """Rows [E], earliest picked first, then as the catalogue has them."""
    tasks: tuple[tuple[str, ...], ...]
    """Tasks of each row, earliest picked first; at most T."""
    states: NDArray[np.int8]
    """[S, E, T] index into the evidence states; -1: not on record; -2: no such task."""
    picks: pd.DataFrame
    """Picks of these steps in order. Columns: step, position, env, task, state, drawn, predicted_mean, predicted and
    observed variance, ended, mixed, row and column (its cell; NULL when it is not among those shown)."""
    environments_total: int
    tasks_total: int


def first_steps(view: RunView, most_steps: int = 12, most_envs: int = 40, most_tasks: int = 60) -> FirstSteps:
    """The first steps that have a decision.

    States come from the scores files; where none was kept, from the candidates on record.
    """
    found = view.query("SELECT DISTINCT step FROM decisions ORDER BY step")["step"]
    steps = tuple(int(step) for step in found[:most_steps])
    picks = _picks(view, steps)
    rows = _rows(view, picks, most_envs, most_tasks)
    names = [[view.names(node) for node in nodes] for nodes in rows]
    cells = {key: (r, c) for r, row in enumerate(names) for c, key in enumerate(row)}
    places = [cells.get((env, task), (None, None)) for env, task in zip(picks["env"], picks["task"], strict=True)]
    picks["row"] = pd.array([row for row, _ in places], dtype="Int64")
    picks["column"] = pd.array([column for _, column in places], dtype="Int64")
    return FirstSteps(
        steps=steps,
        envs=tuple(row[0][0] for row in names),
        tasks=tuple(tuple(task for _, task in row) for row in names),
        states=_states(view, steps, rows),
        picks=picks,
        environments_total=len(view.env_names()),
        tasks_total=len(view.env_index()),
    )


def _picks(view: RunView, steps: tuple[int, ...]) -> pd.DataFrame:
    return view.query(
        """
        SELECT step, position, env, task, state, outcome = 'uniform_draw' drawn, predicted_mean, predicted, observed,
            ended, mixed
        FROM outcomes WHERE list_contains($steps, step) ORDER BY step, decision, position""",
        {"steps": list(steps)},
    )


def _rows(view: RunView, picks: pd.DataFrame, most_envs: int, most_tasks: int) -> list[list[int]]:
    """Nodes of each row: whatever was picked comes first, so that a cut leaves out what nothing happened to."""
    keys = [f"{env}::{task}" for env, task in zip(picks["env"], picks["task"], strict=True)]
    picked = list(dict.fromkeys(view.node(key) for key in keys if view.knows(key)))
    env_of = view.env_index()
    first = np.full(len(env_of), len(picked), dtype=np.int64)
    first[picked] = np.arange(len(picked))
    earliest = np.full(len(view.env_names()), len(picked), dtype=np.int64)
    np.minimum.at(earliest, env_of, first)
    shown = np.argsort(earliest, kind="stable")[:most_envs]
    rows = []
    for env in shown.tolist():
        nodes = np.flatnonzero(env_of == env)
        rows.append(nodes[np.argsort(first[nodes], kind="stable")][:most_tasks].tolist())
    return rows


def _states(view: RunView, steps: tuple[int, ...], rows: list[list[int]]) -> NDArray[np.int8]:
    out = np.full((len(steps), len(rows), max(map(len, rows), default=0)), ABSENT, dtype=np.int8)
    for s, step in enumerate(steps):
        known = _known(view, step)
        for r, nodes in enumerate(rows):
            out[s, r, : len(nodes)] = known[nodes]
    return out


def _known(view: RunView, step: int) -> NDArray[np.int8]:
    """State of every task [N] at a step."""
    known = np.full(len(view.env_index()), UNKNOWN, dtype=np.int8)
    scores = view.scores(step)
    if scores is not None:
        known[: len(scores.state)] = scores.state
        return known
    on_record = view.query("SELECT env, task, state FROM candidates WHERE step = ? ORDER BY candidate", [step])
    for env, task, state in on_record.itertuples(index=False):
        key = f"{env}::{task}"
        if view.knows(key) and state in STATES:
            known[view.node(key)] = STATES.index(state)
    return known
