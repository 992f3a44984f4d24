"""Environments: typed APIs over a small database, each with its own words and hidden flags.

An environment is 2 or 3 entity types of one business domain, each with 3 attributes; its tools are FIND,
GET, CREATE, UPDATE of an attribute and DELETE for each entity, ASSIGN between two, HELP, and LOGIN, UNLOCK
and CONFIRM where its flags need them (or as decoys, so that the tool list does not give the flags away).
Each API has one verb of its own for each operation and may use jargon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from envsched_core.records import Tool

from . import words as w
from .draws import pick, weighted
from .policy import DONE_WORD
from .specs import FLAGS, WorldSpec
from .tools import (
    ASSIGN,
    CONFIRM,
    CREATE,
    DELETE,
    DONE,
    FIND,
    GET,
    HELP,
    LOGIN,
    OPS,
    TOOL_COLUMNS,
    UNLOCK,
    UPDATE,
    Ints,
)

__all__ = ["Entity", "Environment", "make_environment"]

NEEDED = {LOGIN: 0, UNLOCK: 2, CONFIRM: 3}
"""Tools that exist for the sake of a flag."""


class Entity(NamedTuple):
    """One entity type of an environment."""

    names: w.Words
    """What users call it."""
    word: str
    """What the API calls it."""
    attributes: tuple[str, ...]
    """Keys of words.ATTRIBUTES [3]."""
    attribute_words: tuple[str, ...]
    """What the API calls them [3]."""


class Environment(NamedTuple):
    """An environment as it was drawn."""

    name: str
    domain: str
    flags: int
    """Hidden flags, a bit each; known to no scheduler and no policy."""
    flaky: float
    """Chance that a call fails."""
    entities: tuple[Entity, ...]
    tools: tuple[Tool, ...]
    """As documented; the last tool of `table`, DONE, is the end of a turn and not among them."""
    table: Ints
    """The tools and DONE as numbers [tools + 1, TOOL_COLUMNS]."""
    hard: bool
    """In a bimodal world, whether it is one of the hard half."""


class _Row(NamedTuple):
    """One tool while an API is put together."""

    op: int
    entity: int = -1
    attribute: int = -1
    other: int = -1


def make_environment(spec: WorldSpec, name: str, *, domain: str, seed: Sequence[int]) -> Environment:
    """Draw an environment; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    hard = bool(rng.random() < 0.5)
    flags = _draw_flags(spec, rng, hard)
    entities = _draw_entities(spec, rng, domain)
    rows = _draw_rows(spec, rng, entities, flags)
    verbs = _draw_verbs(spec, rng)
    table = np.array([_numbers(row, entities, verbs) for row in [*rows, _Row(DONE)]], dtype=np.int64)
    tools = tuple(_document(row, entities, verbs) for row in rows)
    flaky = spec.flaky_rate if rng.random() < spec.flaky_share else 0.0
    return Environment(name, domain, flags, flaky, entities, tools, table, hard)


def _draw_flags(spec: WorldSpec, rng: np.random.Generator, hard: bool) -> int:
    chances = ((0.0, 0.0, 0.0, 0.3, 0.7) if hard else (0.7, 0.3, 0.0, 0.0, 0.0)) if spec.bimodal else spec.flags
    count = weighted(rng, chances)
    drawn = sum(1 << int(bit) for bit in rng.choice(len(FLAGS), size=count, replace=False))
    return drawn if spec.shared_flags < 0 else spec.shared_flags


def _word(rng: np.random.Generator, choices: w.Words, chance: float) -> str:
    """One of `choices`, or jargon with the given chance."""
    common, own = (w.say(rng, choices) if len(choices) == 2 else pick(rng, choices)), w.jargon(rng)
    return own if rng.random() < chance else common


def _draw_entities(spec: WorldSpec, rng: np.random.Generator, domain: str) -> tuple[Entity, ...]:
    kinds = list(w.DOMAINS[domain].items())
    entities = []
    for k in rng.permutation(len(kinds))[: rng.integers(2, 4)]:
        names, known = kinds[k]
        attributes = tuple(known[a] for a in rng.permutation(len(known))[:3])
        attribute_words = tuple(_word(rng, w.ATTRIBUTES[a][0], spec.jargon[2]) for a in attributes)
        entities.append(Entity(names, _word(rng, names, spec.jargon[1]), attributes, attribute_words))
    return tuple(entities)


def _draw_rows(spec: WorldSpec, rng: np.random.Generator, entities: Sequence[Entity], flags: int) -> list[_Row]:
    """Which tools the API has: a few writes are missing, FIND and GET never are."""
    rows = []
    for e in range(len(entities)):
        rows += [_Row(FIND, e), _Row(GET, e)]
        rows += [_Row(op, e) for op in (CREATE, DELETE) if rng.random() < 0.85]
        rows += [_Row(UPDATE, e, a) for a in range(3) if a == 0 or rng.random() < 0.75]
    first, second = (int(e) for e in rng.permutation(len(entities))[:2])
    rows += [_Row(ASSIGN, first, other=second), _Row(HELP)]
    rows += [_Row(op) for op, bit in NEEDED.items() if flags >> bit & 1 or rng.random() < spec.decoys]
    return rows


def _draw_verbs(spec: WorldSpec, rng: np.random.Generator) -> list[str]:
    """The API's verb for each operation."""
    if not spec.own_verbs:
        return [w.API_VERBS[op][0] for op in OPS[:DONE]]
    return [_word(rng, w.API_VERBS[op], spec.jargon[0]) for op in OPS[:DONE]]


def _numbers(row: _Row, entities: Sequence[Entity], verbs: Sequence[str]) -> Ints:
    """A tool as its columns; 0 stands for no word."""
    out = np.zeros(TOOL_COLUMNS, dtype=np.int64)
    attribute = 0 if row.op == CREATE else row.attribute  # CREATE sets the first attribute
    out[:] = row.op, DONE_WORD, row.entity, 0, attribute, 0, row.other, 0
    if row.op != DONE:
        out[1] = w.word_id(verbs[row.op])
    if row.entity >= 0:
        out[3] = w.word_id(entities[row.entity].word)
    if attribute >= 0:  # of the name, or of a documented parameter
        out[5] = w.word_id(entities[row.entity].attribute_words[attribute])
    if row.other >= 0:
        out[7] = w.word_id(entities[row.other].word)
    return out


def _document(row: _Row, entities: Sequence[Entity], verbs: Sequence[str]) -> Tool:
    """What the API's documentation says of a tool, in the API's own words."""
    verb = verbs[row.op]
    if row.op in (HELP, LOGIN):
        return Tool(verb, f"{verb}: no parameters.")
    if row.op == CONFIRM:
        return Tool(f"{verb}_changes", f"{verb} what is pending.")
    if row.op == UNLOCK:
        return Tool(f"{verb}_object", f"{verb} one object.", ("id",))
    entity = entities[row.entity].word
    if row.op == UPDATE:
        attribute = entities[row.entity].attribute_words[row.attribute]
        return Tool(f"{verb}_{entity}_{attribute}", f"{verb} the {attribute} of one {entity}.", ("id", "value"))
    if row.op == ASSIGN:
        other = entities[row.other].word
        return Tool(f"{verb}_{entity}_to_{other}", f"{verb} one {entity} to one {other}.", ("id", f"{other}_id"))
    if row.op == CREATE:
        attribute = entities[row.entity].attribute_words[0]
        return Tool(f"{verb}_{entity}", f"{verb} one {entity}.", ("name", attribute))
    return Tool(f"{verb}_{entity}", f"{verb} one {entity}.", ("name",) if row.op == FIND else ("id",))
