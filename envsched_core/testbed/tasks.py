"""Tasks: an instruction of 1 to 4 turns on a starting database, and the one way to carry it out by the book.

A turn asks for one write (create, update, delete or assign) in a user's words: synonyms and fillers, never
the API's jargon. Only `TaskSpec` reaches a scheduler: the instruction, the tool list, entity names, the verifier's
name, and in some worlds which writes are asked for. `reference_calls` needs the hidden flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from envsched_core.errors import ContractError
from envsched_core.records import TaskSpec

from . import words as w
from .draws import pick, weighted
from .environments import Environment
from .specs import WorldSpec
from .tools import (
    ASK_COLUMNS,
    ASSIGN,
    AUTHENTICATION,
    CONFIRM,
    CONFIRMATION,
    CREATE,
    DELETE,
    FIELDS,
    FIND,
    GET,
    HIDDEN_IDS,
    LINK,
    LOCKS,
    LOGIN,
    MAX_TURNS,
    OBJECT,
    OBJECTS,
    OP,
    OPS,
    OTHER_OBJECT,
    READ_FIRST,
    STARTING_OBJECTS,
    UNLOCK,
    UPDATE,
    VALUE,
    VALUE_WORD,
    Database,
    Ints,
    apply_write,
    new_database,
)

__all__ = ["Task", "make_task", "reference_calls"]

WRITES = (CREATE, UPDATE, DELETE, ASSIGN)


class Task(NamedTuple):
    """A task as it was drawn."""

    spec: TaskSpec
    start: Ints
    """Starting objects [STARTING_OBJECTS, FIELDS]."""
    asks: Ints
    """What each turn asks for [MAX_TURNS, ASK_COLUMNS]."""
    turns: int
    texts: tuple[str, ...]
    """What the user says in each turn."""
    names: tuple[str, ...]
    """Names of the objects, created ones included [OBJECTS]."""
    solvable: bool


def make_task(spec: WorldSpec, env: Environment, name: str, *, seed: Sequence[int], broken: float = 0.0) -> Task:
    """Draw a task of an environment; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    start = _draw_start(env, rng)
    names = tuple(w.NAMES[i] for i in rng.permutation(len(w.NAMES))[:OBJECTS])
    turns = _draw_turns(spec, env, rng)
    expected = new_database(start)
    asks, texts = np.zeros((MAX_TURNS, ASK_COLUMNS), dtype=np.int64), []
    operations = [OPS.index(op) for op in spec.writes]
    for turn in range(turns):
        asks[turn], text = _draw_ask(env, rng, expected, names, operations)
        apply_write(expected, asks[turn], asks[turn, OBJECT], asks[turn, OTHER_OBJECT], asks[turn, VALUE])
        texts.append(text)
    verifier = f"{env.domain}_turns_right" if spec.graded else f"{env.domain}_state"
    state = tuple(entity.word for entity in env.entities)
    calls = tuple(_write_tool(env, ask) for ask in asks[:turns]) if spec.paths else None
    told = TaskSpec(env.name, name, "\n".join(texts), env.tools, state, verifier, calls)
    return Task(told, start, asks, turns, tuple(texts), names, bool(rng.random() >= broken))


def _write_tool(env: Environment, ask: Ints) -> str:
    """Name of the tool that carries out a turn; without flags there is nothing to call beside it."""
    ((tool, *_),) = reference_calls(env._replace(flags=0), ask, first=False)
    return env.tools[tool].name


def _draw_start(env: Environment, rng: np.random.Generator) -> Ints:
    """Six objects, at least one of every entity, none assigned."""
    start = np.full((STARTING_OBJECTS, FIELDS), -1, dtype=np.int64)
    start[:, 0] = rng.permutation(np.arange(STARTING_OBJECTS) % len(env.entities))
    start[:, 1:4] = rng.integers(w.VALUES_EACH, size=(STARTING_OBJECTS, 3))
    return start


def _draw_turns(spec: WorldSpec, env: Environment, rng: np.random.Generator) -> int:
    chances = ((0.0, 0.0, 0.5, 0.5) if env.hard else (0.9, 0.1, 0.0, 0.0)) if spec.bimodal else spec.turns
    return weighted(rng, chances) + 1


def _draw_ask(
    env: Environment, rng: np.random.Generator, base: Database, names: Sequence[str], ops: Sequence[int]
) -> tuple[Ints, str]:
    """One turn that the database as it stands allows: its numbers and its words."""
    op, tool, objects = _draw_tool(env, rng, base, ops)
    entity = env.entities[tool[2]]
    item = base.status[0] if op == CREATE else int(pick(rng, objects.tolist()))
    other, value, value_word, attribute_word, other_word = -1, 0, "", "", ""
    if op == ASSIGN:
        others = np.flatnonzero(base.rows[:, 0] == tool[6])
        other = int(pick(rng, others[others != base.rows[item, LINK]].tolist()))
        other_word = w.say(rng, env.entities[tool[6]].names)
    if op in (CREATE, UPDATE):
        attribute = entity.attributes[tool[4]]
        attribute_word = w.say(rng, w.ATTRIBUTES[attribute][0])
        now = base.rows[item, 1 + tool[4]] if op == UPDATE else -1
        value = pick(rng, [v for v in range(w.VALUES_EACH) if v != now])
        value_word = w.say(rng, w.ATTRIBUTES[attribute][1][value])
    verb, noun = pick(rng, w.ASK_VERBS[OPS[op]]), w.say(rng, entity.names)
    ask = np.zeros(ASK_COLUMNS, dtype=np.int64)
    ids = [w.word_id(x) if x else 0 for x in (verb, noun, attribute_word, other_word, value_word)]
    ask[:8] = op, ids[0], tool[2], ids[1], tool[4], ids[2], tool[6], ids[3]
    ask[OBJECT], ask[OTHER_OBJECT], ask[VALUE], ask[VALUE_WORD] = item, other, value, ids[4]
    filler = pick(rng, w.FILLERS)
    if op == CREATE:
        body = f"{verb} a new {noun} {names[item]} with {attribute_word} {value_word}"
    elif op == UPDATE:
        body = f"{verb} the {attribute_word} of {noun} {names[item]} to {value_word}"
    elif op == DELETE:
        body = f"{verb} the {noun} {names[item]}"
    else:
        body = f"{verb} the {noun} {names[item]} to {other_word} {names[other]}"
    return ask, f"{filler} {body}.".strip()


def _draw_tool(
    env: Environment, rng: np.random.Generator, base: Database, ops: Sequence[int]
) -> tuple[int, Ints, Ints]:
    """A write tool for which there are objects: the operation first, so that UPDATE's many tools don't crowd it."""
    for attempt in range(1000):
        op = pick(rng, ops if attempt < 100 else WRITES)  # where the last object is gone, another operation must do
        choices = np.flatnonzero(env.table[:, OP] == op)
        if not len(choices):
            continue
        tool = env.table[pick(rng, choices.tolist())]
        objects = np.flatnonzero(base.rows[:, 0] == tool[2])
        if op == ASSIGN:  # only what is not yet where it should go
            others = np.flatnonzero(base.rows[:, 0] == tool[6])
            objects = objects[[bool((others != base.rows[o, LINK]).any()) for o in objects]] if len(others) else others
        if op == CREATE or len(objects):
            return op, tool, objects
    raise ContractError(f"environment {env.name} has no tool for a turn")  # every API can UPDATE what it can CREATE


def reference_calls(env: Environment, ask: Ints, *, first: bool) -> list[tuple[int, int, int, int]]:
    """The calls (tool, object, other, value) that carry out a turn under the environment's flags."""
    op, item, other = int(ask[OP]), int(ask[OBJECT]), int(ask[OTHER_OBJECT])
    tools = {tuple(row[[0, 2, 4, 6]]): i for i, row in enumerate(env.table)}
    by_op = {int(row[0]): i for i, row in enumerate(env.table)}
    calls = [(by_op[LOGIN], -1, -1, 0)] if first and env.flags & AUTHENTICATION else []
    if op != CREATE:
        if env.flags & HIDDEN_IDS:
            calls.append((tools[FIND, ask[2], -1, -1], item, -1, 0))
        if env.flags & HIDDEN_IDS and op == ASSIGN:
            calls.append((tools[FIND, ask[6], -1, -1], other, -1, 0))
        if env.flags & READ_FIRST:
            calls.append((tools[GET, ask[2], -1, -1], item, -1, 0))
        if env.flags & LOCKS:
            calls.append((by_op[UNLOCK], item, -1, 0))
    calls.append((tools[tuple(ask[[0, 2, 4, 6]])], item, other, int(ask[VALUE])))
    if env.flags & CONFIRMATION:
        calls.append((by_op[CONFIRM], -1, -1, 0))
    return calls
