"""Rollouts, compiled: one policy, one task, one key, from the first instruction to the verifier.

A rollout is a function of the weights, the task and its key alone. The gradient runs the same rollout
again with a weight on its log chance, so nothing has to be kept of it. A turn ends with DONE or after
`CALLS_A_TURN` calls; a turn that ends wrong ends the rollout, since no later turn can put the database right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .draws import compiled, mixed, unit_draw
from .policy import (
    Arrays,
    Floats,
    Moment,
    Player,
    add_gradient,
    choose,
    forget,
    object_chances,
    tool_chances,
    value_chances,
)
from .tools import (
    ASSIGN,
    CONFIRM,
    CREATE,
    DONE,
    ENTITY,
    HELP,
    LOGGED_IN,
    LOGIN,
    OP,
    OTHER,
    SERVER_ERROR,
    UPDATE,
    VERB,
    Database,
    Ints,
    end_turn,
    execute,
    new_database,
    start_turn,
)

__all__ = ["CALLS_A_TURN", "TRACE_COLUMNS", "Episode", "add_gradients", "episode", "roll_out"]

CALLS_A_TURN = 16
TRACE_COLUMNS = 6
"""Turn, tool, object, other, value, result code of every call."""
FLAKY_DRAW = 4

NOTHING = -1
SO_FAR = np.array([0, 1, 2, 4, 4, 4, 4, 0, 8, 16, 32, 0, 64, 0, 0, 0, 0, 0, 0])
"""Bit by which each result code is remembered for the rest of the turn."""
LOGGED_IN_BIT = 8


class Episode(NamedTuple):
    """How a rollout ended."""

    right: int
    """Turns that ended right, in order from the first."""
    calls: int
    turns: int
    """Turns begun."""
    log_chance: float
    """Log chance of every choice made."""


@compiled
def _argument(player: Player, weight: float, count: int, draw: float) -> tuple[int, float]:
    """Choose one of the candidates laid out in the scratch; with its log chance."""
    scratch = player.scratch
    picked = choose(scratch.argument_chance, count, draw)
    if weight != 0.0:
        add_gradient(player.grad, scratch.argument_columns, scratch.argument_chance, count, picked, weight)
    return scratch.candidates[picked], np.log(scratch.argument_chance[picked])


@compiled
def _arguments(
    player: Player, env: int, tool: Ints, ask: Ints, rows: Ints, weight: float, key: np.uint64
) -> tuple[int, int, int, float]:
    """Choose the arguments a tool needs: an object, a second one, a value; with their log chance."""
    op, item, other, value, total = tool[OP], NOTHING, NOTHING, 0, 0.0
    if op not in (HELP, LOGIN, CONFIRM, CREATE):
        count = object_chances(player, env, tool[VERB], ask, rows, tool[ENTITY], 0)
        if count:
            item, log = _argument(player, weight, count, unit_draw(key, 1))
            total += log
    if op == ASSIGN:
        count = object_chances(player, env, tool[VERB], ask, rows, tool[OTHER], 1)
        if count:
            other, log = _argument(player, weight, count, unit_draw(key, 2))
            total += log
    if op in (CREATE, UPDATE):
        count = value_chances(player, env, tool, ask)
        value, log = _argument(player, weight, count, unit_draw(key, 3))
        total += log
    return item, other, value, total


@compiled
def _turn(
    player: Player, place: tuple[int, int], ask: Ints, base: Database, weight: float, key: np.uint64, trace: Ints
) -> tuple[int, float]:
    """Act until DONE or the limit in a turn (`place`: environment, turn); calls made and the choices' log chance."""
    arrays, (env, turn) = player.arrays, place
    count, total = arrays.n_tools[env], 0.0
    code, last, called = 0, NOTHING, 0
    so_far = LOGGED_IN_BIT if base.status[LOGGED_IN] else 0
    for call in range(CALLS_A_TURN):
        own = mixed(key, call)
        chance = tool_chances(player, env, ask, Moment(turn, code, last, so_far, called), weight != 0.0)
        picked = choose(chance, count, unit_draw(own, 0))
        total += np.log(chance[picked])
        if weight != 0.0:
            add_gradient(player.grad, player.scratch.columns[turn], chance, count, picked, weight)
        tool = arrays.tools[env, picked]
        if tool[OP] == DONE:
            return call, total
        item, other, value, log = _arguments(player, env, tool, ask, base.rows, weight, own)
        total += log
        if unit_draw(own, FLAKY_DRAW) < arrays.flaky[env]:
            code = SERVER_ERROR
        else:
            code = execute(base, arrays.flags[env], tool, item, other, value)
        last, called, so_far = picked, called | 1 << picked, so_far | SO_FAR[code]
        row = trace[call]
        row[1], row[2], row[3], row[4], row[5] = picked, item, other, value, code
    return CALLS_A_TURN, total


@compiled
def episode(player: Player, task: int, key: np.uint64, weight: float, trace: Ints) -> Episode:
    """One rollout; adds `weight` times the gradient of its log chance, and writes its calls to `trace`.

    `forget` is due between rollouts of different tasks or under different weights.
    """
    arrays = player.arrays
    env, turns = arrays.env[task], arrays.turns[task]
    base, expected = new_database(arrays.start[task]), new_database(arrays.start[task])
    right, calls, total = 0, 0, 0.0
    for turn in range(turns):
        ask = arrays.asks[task, turn]
        start_turn(base, expected, ask)
        made, log = _turn(player, (env, turn), ask, base, weight, mixed(key, turn), trace[calls:])
        trace[calls : calls + made, 0] = turn
        calls += made
        total += log
        if not (end_turn(base, expected) and arrays.solvable[task]):
            return Episode(right, calls, turn + 1, total)
        right += 1
    return Episode(right, calls, turns, total)


@compiled
def rollout_key(seed: np.uint64, step: int, task: int, rollout: int) -> np.uint64:
    """The key of one rollout of one task at one step."""
    return mixed(mixed(mixed(seed, step), task), rollout)


@compiled
def new_trace(arrays: Arrays) -> Ints:
    """Room for the calls of one rollout [longest, TRACE_COLUMNS]."""
    return np.zeros((CALLS_A_TURN * arrays.asks.shape[1], TRACE_COLUMNS), dtype=np.int64)


@compiled
def roll_out(player: Player, tasks: Ints, seed: np.uint64, step: int, right: Ints, counts: Ints, traces: Ints) -> None:
    """Roll out each of `tasks` [B] G times.

    Fills `right` [B, G] (turns that ended right), `counts` [B, G, 2] (calls, turns begun) and, unless it
    is empty, `traces` [B, G, longest, TRACE_COLUMNS].
    """
    spare = new_trace(player.arrays)
    for b in range(len(tasks)):
        forget(player.scratch)
        for g in range(right.shape[1]):
            key = rollout_key(seed, step, tasks[b], g)
            trace = traces[b, g] if len(traces) else spare
            end = episode(player, tasks[b], key, 0.0, trace)
            right[b, g], counts[b, g, 0], counts[b, g, 1] = end.right, end.calls, end.turns


@compiled
def add_gradients(player: Player, tasks: Ints, advantages: Floats, seed: np.uint64, step: int) -> None:
    """Add every rollout's advantage [B, G] times the gradient of its log chance to the player's gradient."""
    spare = new_trace(player.arrays)
    for b in range(len(tasks)):
        forget(player.scratch)
        for g in range(advantages.shape[1]):
            if advantages[b, g] != 0.0:
                episode(player, tasks[b], rollout_key(seed, step, tasks[b], g), advantages[b, g], spare)
