"""The policy: a log-linear softmax over tools, then over arguments, on sparse hashed features.

    P(tool | state)     = softmax over the API's tools of  sum_f w[f(tool, state)]
    P(object | tool)    = softmax over the objects of the tool's entity of the same
    P(value | tool)     = softmax over the attribute's values of the same
    d log P(chosen) / d w[f] = sum over candidates (1[chosen] - P(candidate)) * 1[f active in candidate]

Features are pairs of words (the API's x the user's), result codes and what was already done, shared by all
environments, plus a few of a single environment where the world allows them. An untrained policy can
do one thing: it is drawn to words and objects that the instruction names (`initial_weights`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import words as w
from .draws import compiled, inlined, mixed
from .tools import (
    ASSIGNED,
    ATTRIBUTE,
    ATTRIBUTE_WORD,
    CODE_NAMES,
    COMMITTED,
    CREATED,
    DELETED,
    ENTITY,
    ENTITY_WORD,
    MAX_TURNS,
    OBJECT,
    OTHER_OBJECT,
    OTHER_WORD,
    START,
    UPDATED,
    VALUE_WORD,
    VERB,
    Ints,
)

__all__ = ["FEATURES", "NONE", "Arrays", "Floats", "Moment", "Player", "Scratch", "initial_weights", "new_scratch"]

Floats = NDArray[np.float64]

BITS = 18
FEATURES = 1 << BITS
"""Weights; features are hashed into them. One more, always 0, stands for no feature."""
NONE = FEATURES
MASK = np.uint64(FEATURES - 1)

STATIC, DYNAMIC, COLUMNS = 10, 8, 18
"""Feature columns of a tool: those of the turn, and those that change with every call."""
ARGUMENT_COLUMNS = 3
MOST_TOOLS, MOST_CANDIDATES = 32, 16
SLOTS, TRIES = 256, 4
"""Moments that are remembered of a task, and places looked at for one."""

# kinds of features: of the turn, of the moment, of arguments
(
    VERB_ASKED,
    ENTITY_ASKED,
    ENTITY_SECOND,
    ATTRIBUTE_ASKED,
    VERB_ALONE,
    OTHER_ASKED,
    MATCH,
    TOOL,
    TOOL_ASKED,
    VERB_MATCH,
) = range(1, 11)
(CODE, CODE_AFTER, SO_FAR, REPEAT, TOOL_CODE, MATCH_CODE, ASKED_CODE, VERB_MATCH_CODE) = range(11, 19)
(PLACE, PLACE_VERB, PLACE_ENVIRONMENT, VALUE_SAID, VALUE_MATCH, VALUE_VERB) = range(19, 25)

COPYING, STOPPING, REPEATING = 4.0, 4.0, 4.0
"""Inclinations of an untrained policy, in nats: to what is named, to stop after a write, against repeating a call."""

DONE_WORD = w.word_id("<done>")
"""The word that stands for the end of a turn."""


class Arrays(NamedTuple):
    """A world as the compiled code sees it: E environments, N tasks (training, then held-out)."""

    tools: Ints
    """[E, MOST_TOOLS, TOOL_COLUMNS], DONE last."""
    n_tools: Ints
    """Tools and DONE of each environment [E]."""
    env_id: Ints
    """Stable numbers of the environments [E], for their own features."""
    flags: Ints
    """[E]"""
    flaky: Floats
    """[E]"""
    value_words: Ints
    """The API's word of every value [E, 3, 3, VALUES_EACH]."""
    local: int
    """1 if the policy has features of single environments."""
    env: Ints
    """[N]"""
    turns: Ints
    """[N]"""
    asks: Ints
    """[N, MAX_TURNS, ASK_COLUMNS]"""
    start: Ints
    """[N, STARTING_OBJECTS, FIELDS]"""
    solvable: NDArray[np.bool_]
    """[N]"""


class Moment(NamedTuple):
    """What a choice of a tool depends on besides task, turn and weights."""

    turn: int
    code: int
    """The last result code."""
    last: int
    """The tool called last in this turn; -1 at its start."""
    so_far: int
    """What this turn's result codes have said so far, a bit each."""
    called: int
    """Tools called in this turn, a bit each."""


class Scratch(NamedTuple):
    """Room to work in, and what rollouts of one task under one policy share (`forget` makes it empty)."""

    columns: Ints
    """Active features of every tool in each turn [MAX_TURNS, MOST_TOOLS, COLUMNS]."""
    matched: Ints
    """Which words of the instruction each tool repeats [MAX_TURNS, MOST_TOOLS]."""
    fixed: Floats
    """Part of the tools' scores that holds for the turn [MAX_TURNS, MOST_TOOLS]."""
    ready: Ints
    """1 where a turn's part of the three above is filled in [MAX_TURNS]."""
    moments: Ints
    """The moments that were met, as numbers, -1 where there is none [SLOTS]."""
    chances: Floats
    """The tools' chances in each of them, and room for one more [SLOTS + 1, MOST_TOOLS]."""
    candidates: Ints
    """[MOST_CANDIDATES]"""
    argument_columns: Ints
    """[MOST_CANDIDATES, ARGUMENT_COLUMNS]"""
    argument_chance: Floats
    """[MOST_CANDIDATES]"""


class Player(NamedTuple):
    """A policy at work in a world."""

    arrays: Arrays
    weights: Floats
    """[FEATURES + 1]"""
    grad: Floats
    """Where the gradient is added up [FEATURES + 1]."""
    scratch: Scratch


@compiled
def new_scratch() -> Scratch:
    """Fresh room to work in."""
    columns = np.full((MAX_TURNS, MOST_TOOLS, COLUMNS), NONE)
    matched = np.zeros((MAX_TURNS, MOST_TOOLS), dtype=np.int64)
    fixed, ready = np.zeros((MAX_TURNS, MOST_TOOLS)), np.zeros(MAX_TURNS, dtype=np.int64)
    moments, chances = np.full(SLOTS, -1), np.zeros((SLOTS + 1, MOST_TOOLS))
    candidates = np.zeros(MOST_CANDIDATES, dtype=np.int64)
    argument_columns = np.full((MOST_CANDIDATES, ARGUMENT_COLUMNS), NONE)
    argument_chance = np.zeros(MOST_CANDIDATES)
    return Scratch(columns, matched, fixed, ready, moments, chances, candidates, argument_columns, argument_chance)


@compiled
def forget(scratch: Scratch) -> None:
    """Forget what rollouts share: due before those of another task, or under other weights."""
    scratch.ready[:] = 0
    scratch.moments[:] = -1


@inlined
def feature(kind: int, first: int, second: int, third: int) -> int:
    """Where a feature's weight lies."""
    out = np.uint64(kind) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(first) * np.uint64(0xC2B2AE3D27D4EB4F)
    out = (out ^ (out >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(second)
    out = (out ^ (out >> np.uint64(32))) * np.uint64(0x94D049BB133111EB) + np.uint64(third)
    out = (out ^ (out >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return int((out ^ (out >> np.uint64(33))) & MASK)


@compiled
def matches(tool: Ints, ask: Ints) -> int:
    """Which words of the instruction a tool repeats: entity, attribute, second entity, verb; a bit each."""
    entity = tool[ENTITY_WORD] > 0 and tool[ENTITY_WORD] == ask[ENTITY_WORD]
    attribute = tool[ATTRIBUTE_WORD] > 0 and tool[ATTRIBUTE_WORD] == ask[ATTRIBUTE_WORD]
    other = tool[OTHER_WORD] > 0 and tool[OTHER_WORD] == ask[OTHER_WORD]
    return int(entity) + 2 * int(attribute) + 4 * int(other) + 8 * int(tool[VERB] == ask[VERB])


@compiled
def weight_of(weights: Floats, columns: Ints) -> float:
    """Summed weight of some features."""
    total = 0.0
    for column in columns:
        total += weights[column]
    return total


@compiled
def turn_features(player: Player, env: int, ask: Ints, turn: int) -> None:
    """Fill the columns that hold for a whole turn, and their part of the scores."""
    arrays, scratch = player.arrays, player.scratch
    own = arrays.env_id[env]
    for t in range(arrays.n_tools[env]):
        tool, out = arrays.tools[env, t], scratch.columns[turn, t]
        verb, asked, match = tool[VERB], ask[VERB], matches(tool, ask)
        out[0] = feature(VERB_ASKED, verb, asked, 0)
        out[1] = feature(ENTITY_ASKED, tool[ENTITY_WORD], ask[ENTITY_WORD], 0)
        out[2] = feature(ENTITY_SECOND, tool[ENTITY_WORD], ask[OTHER_WORD], 0)
        out[3] = feature(ATTRIBUTE_ASKED, tool[ATTRIBUTE_WORD], ask[ATTRIBUTE_WORD], 0)
        out[4] = feature(VERB_ALONE, verb, 0, 0)
        out[5] = feature(OTHER_ASKED, tool[OTHER_WORD], ask[OTHER_WORD], 0)
        out[6] = feature(MATCH, match, 0, 0)
        out[7] = feature(TOOL, own, t, 0) if arrays.local else NONE
        out[8] = feature(TOOL_ASKED, own, t, asked) if arrays.local else NONE
        out[9] = feature(VERB_MATCH, verb, match, 0)
        scratch.matched[turn, t] = match
        scratch.fixed[turn, t] = weight_of(player.weights, out[:STATIC])
    scratch.ready[turn] = 1


@compiled
def moment_features(player: Player, env: int, ask: Ints, now: Moment) -> None:
    """Fill the columns that change with every call."""
    arrays, scratch = player.arrays, player.scratch
    own, code = arrays.env_id[env], now.code
    last_verb = arrays.tools[env, now.last, VERB] if now.last >= 0 else 0
    for t in range(arrays.n_tools[env]):
        verb, match, out = arrays.tools[env, t, VERB], scratch.matched[now.turn, t], scratch.columns[now.turn, t]
        repeated = 2 if t == now.last else now.called >> t & 1
        out[10] = feature(CODE, verb, code, 0)
        out[11] = feature(CODE_AFTER, verb, code, last_verb)
        out[12] = feature(SO_FAR, verb, now.so_far, 0)
        out[13] = feature(REPEAT, repeated, code, 0)
        out[14] = feature(TOOL_CODE, own, t, code) if arrays.local else NONE
        out[15] = feature(MATCH_CODE, match, code, 0)
        out[16] = feature(ASKED_CODE, verb, ask[VERB], code)
        out[17] = feature(VERB_MATCH_CODE, verb, match, code)


@compiled
def tool_chances(player: Player, env: int, ask: Ints, now: Moment, columns: bool) -> Floats:
    """The chance of each tool [MOST_TOOLS]; with `columns`, all columns are those of the moment afterwards.

    Rollouts of a task meet the same moments again and again; what was worked out for one of them is kept.
    """
    scratch, weights = player.scratch, player.weights
    if not scratch.ready[now.turn]:
        turn_features(player, env, ask, now.turn)
    slot, known = recall(scratch.moments, now)
    if columns or not known:
        moment_features(player, env, ask, now)
    chance: Floats = scratch.chances[slot]
    if not known:
        count = player.arrays.n_tools[env]
        for t in range(count):
            chance[t] = scratch.fixed[now.turn, t] + weight_of(weights, scratch.columns[now.turn, t, STATIC:])
        softmax(chance, count)
    return chance


@compiled
def recall(moments: Ints, now: Moment) -> tuple[int, bool]:
    """Where a moment's chances are or may be kept, and whether they are there already; the last slot keeps nothing."""
    number = (((now.turn << 5 | now.code) << 7 | now.so_far) << 6 | (now.last + 1)) << MOST_TOOLS | now.called
    first = mixed(np.uint64(number), 0)
    for k in range(TRIES):
        slot = int(np.int64((first + np.uint64(k)) & np.uint64(SLOTS - 1)))
        if moments[slot] == number:
            return slot, True
        if moments[slot] < 0:
            moments[slot] = number
            return slot, False
    return SLOTS, False


@compiled
def softmax(scores: Floats, count: int) -> None:
    """Turn the first `count` scores into chances, in place."""
    top, total = scores[:count].max(), 0.0
    for i in range(count):
        scores[i] = np.exp(scores[i] - top)
        total += scores[i]
    scores[:count] /= total


@compiled
def choose(chance: Floats, count: int, draw: float) -> int:
    """The candidate on which a uniform draw falls."""
    total = 0.0
    for i in range(count - 1):
        total += chance[i]
        if draw < total:
            return i
    return count - 1


@compiled
def add_gradient(grad: Floats, columns: Ints, chance: Floats, count: int, chosen: int, weight: float) -> None:
    """Add `weight` times the gradient of the chosen candidate's log chance."""
    for i in range(count):
        share = weight * ((1.0 if i == chosen else 0.0) - chance[i])
        for column in columns[i]:
            grad[column] += share


@compiled
def object_chances(player: Player, env: int, verb: int, ask: Ints, rows: Ints, kind: int, place: int) -> int:
    """Chances of the objects of an entity (-1 = any) as an argument; returns how many there are."""
    arrays, scratch = player.arrays, player.scratch
    count, own = 0, arrays.env_id[env]
    for item in range(len(rows)):
        if rows[item, 0] < 0 or (kind >= 0 and rows[item, 0] != kind):
            continue
        role = place * 3 + (1 if item == ask[OBJECT] else 2 if item == ask[OTHER_OBJECT] else 0)
        out = scratch.argument_columns[count]
        out[0] = feature(PLACE, role, 0, 0)
        out[1] = feature(PLACE_VERB, verb, role, 0)
        out[2] = feature(PLACE_ENVIRONMENT, own, role, 0) if arrays.local else NONE
        scratch.candidates[count] = item
        scratch.argument_chance[count] = weight_of(player.weights, out)
        count += 1
    if count:
        softmax(scratch.argument_chance, count)
    return count


@compiled
def value_chances(player: Player, env: int, tool: Ints, ask: Ints) -> int:
    """Chances of the values of a tool's attribute; returns how many there are."""
    scratch, words = player.scratch, player.arrays.value_words[env, tool[ENTITY], tool[ATTRIBUTE]]
    for value in range(len(words)):
        out = scratch.argument_columns[value]
        out[0] = feature(VALUE_SAID, words[value], ask[VALUE_WORD], 0)
        out[1] = feature(VALUE_MATCH, int(words[value] == ask[VALUE_WORD]), 0, 0)
        out[2] = feature(VALUE_VERB, tool[VERB], words[value], ask[VALUE_WORD])
        scratch.candidates[value] = value
        scratch.argument_chance[value] = weight_of(player.weights, out)
    softmax(scratch.argument_chance, len(words))
    return len(words)


def initial_weights() -> Floats:
    """Weights of an untrained policy [FEATURES + 1].

    It knows no word, no API and no obstacle. It is drawn to what the instruction names, does not
    repeat itself, does not say that it is done before anything was, and is inclined to when a write went through.
    """
    weights = np.zeros(FEATURES + 1)
    for bits in range(1, 16):
        weights[feature(MATCH, bits, 0, 0)] = COPYING * bits.bit_count()
    for code in range(len(CODE_NAMES)):
        weights[feature(REPEAT, 2, code, 0)] = -REPEATING
    weights[feature(PLACE, 1, 0, 0)] = weights[feature(PLACE, 5, 0, 0)] = COPYING
    weights[feature(VALUE_MATCH, 1, 0, 0)] = COPYING
    weights[feature(CODE, DONE_WORD, START, 0)] = -STOPPING
    for code in (CREATED, UPDATED, DELETED, ASSIGNED, COMMITTED):
        weights[feature(CODE, DONE_WORD, code, 0)] = STOPPING
    return weights
