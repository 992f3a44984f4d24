"""Executable tools over a small database: what a call does and the result code it gives.

A database is an array [OBJECTS, FIELDS]; a row is an object: its entity slot (-1 = none), three attribute
values, and the object it is assigned to (-1 = none). The five hidden flags of an environment change what
calls answer; an agent can learn them from result codes alone. Reads never change the database.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .draws import compiled

__all__ = ["CODE_NAMES", "OPS", "Database", "apply_write", "end_turn", "execute", "new_database", "start_turn"]

Ints = NDArray[np.int64]

OPS = ("find", "get", "create", "update", "delete", "assign", "help", "login", "unlock", "confirm", "done")
FIND, GET, CREATE, UPDATE, DELETE, ASSIGN, HELP, LOGIN, UNLOCK, CONFIRM, DONE = range(len(OPS))

CODE_NAMES = (
    *("START", "FOUND", "RECORD", "CREATED", "UPDATED", "DELETED", "ASSIGNED", "HELP_TEXT", "WELCOME", "UNLOCKED"),
    *("COMMITTED", "NOTHING_PENDING", "PENDING_CONFIRMATION", "AUTHENTICATION_REQUIRED", "READ_FIRST", "LOCKED"),
    *("UNKNOWN_ID", "NO_SUCH_OBJECT", "SERVER_ERROR"),
)
(START, FOUND, RECORD, CREATED, UPDATED, DELETED, ASSIGNED, HELP_TEXT, WELCOME, UNLOCKED) = range(10)
(COMMITTED, NOTHING_PENDING, PENDING, NO_LOGIN, NOT_READ, LOCKED, UNKNOWN_ID, NO_OBJECT, SERVER_ERROR) = range(10, 19)

# columns of a tool, and of what a turn asks for
OP, VERB, ENTITY, ENTITY_WORD, ATTRIBUTE, ATTRIBUTE_WORD, OTHER, OTHER_WORD = range(8)
TOOL_COLUMNS = 8
OBJECT, OTHER_OBJECT, VALUE, VALUE_WORD = range(8, 12)
ASK_COLUMNS = 12

# the flags in the order of specs.FLAGS
AUTHENTICATION, READ_FIRST, LOCKS, CONFIRMATION, HIDDEN_IDS = 1, 2, 4, 8, 16

MAX_TURNS = 4
OBJECTS, FIELDS, LINK = 16, 5, 4
STARTING_OBJECTS = 6

# what a database remembers besides its objects
COUNT, LOGGED_IN, PENDING_OP, HELD = 0, 1, 2, 3
WAS_FOUND, WAS_READ, WAS_UNLOCKED = 1, 2, 4


class Database(NamedTuple):
    """A database in use."""

    rows: Ints
    """[OBJECTS, FIELDS]"""
    marks: Ints
    """Bits per object [OBJECTS]: found, read, unlocked."""
    status: Ints
    """[8]: rows used, logged in, pending operation (-1 = none), then what it would write."""


@compiled
def new_database(start: Ints) -> Database:
    """A fresh database with the starting objects [STARTING_OBJECTS, FIELDS]."""
    rows = np.full((OBJECTS, FIELDS), -1)
    marks = np.zeros(OBJECTS, dtype=np.int64)
    status = np.zeros(8, dtype=np.int64)
    rows[:STARTING_OBJECTS] = start
    status[COUNT], status[PENDING_OP] = STARTING_OBJECTS, -1
    return Database(rows, marks, status)


@compiled
def apply_write(base: Database, tool: Ints, item: int, other: int, value: int) -> int:
    """Carry out a write; the one meaning of create, update, delete and assign. Returns its result code."""
    rows, status = base.rows, base.status
    op = tool[OP]
    if op == CREATE:
        if status[COUNT] == OBJECTS:
            return SERVER_ERROR
        item = status[COUNT]
        status[COUNT] += 1
        rows[item] = 0
        rows[item, 0], rows[item, 1 + tool[ATTRIBUTE]], rows[item, LINK] = tool[ENTITY], value, -1
        return CREATED
    if op == UPDATE:
        rows[item, 1 + tool[ATTRIBUTE]] = value
        return UPDATED
    if op == DELETE:
        rows[item] = -1
        return DELETED
    rows[item, LINK] = other
    return ASSIGNED


@compiled
def _write(base: Database, flags: int, tool: Ints, item: int, other: int, value: int) -> int:
    """Carry out a write, or hold it back until it is confirmed; a later one replaces it."""
    if not flags & CONFIRMATION:
        return apply_write(base, tool, item, other, value)
    status = base.status
    status[PENDING_OP] = tool[OP]
    status[HELD], status[HELD + 1], status[HELD + 2] = item, other, value
    status[HELD + 3], status[HELD + 4] = tool[ENTITY], tool[ATTRIBUTE]
    return PENDING


@compiled
def _confirm(base: Database) -> int:
    """Carry out the write that is pending, if there is one."""
    status = base.status
    if status[PENDING_OP] < 0:
        return NOTHING_PENDING
    tool = np.zeros(TOOL_COLUMNS, dtype=np.int64)
    tool[OP], tool[ENTITY], tool[ATTRIBUTE] = status[PENDING_OP], status[HELD + 3], status[HELD + 4]
    status[PENDING_OP] = -1
    item, other, value = status[HELD], status[HELD + 1], status[HELD + 2]
    if tool[OP] != CREATE and base.rows[item, 0] < 0:
        return NO_OBJECT
    apply_write(base, tool, item, other, value)
    return COMMITTED


@compiled
def execute(base: Database, flags: int, tool: Ints, item: int, other: int, value: int) -> int:
    """Carry out one call and return its result code; each obstacle is told one at a time."""
    op, marks = tool[OP], base.marks
    if op == HELP:
        return HELP_TEXT
    if op == LOGIN:
        base.status[LOGGED_IN] = 1
        return WELCOME
    if flags & AUTHENTICATION and not base.status[LOGGED_IN]:
        return NO_LOGIN
    if op == CONFIRM:
        return _confirm(base)
    if op == CREATE:
        return _write(base, flags, tool, -1, -1, value)
    if item < 0 or (op == ASSIGN and other < 0):
        return NO_OBJECT
    if op == FIND:
        marks[item] |= WAS_FOUND
        return FOUND
    if flags & HIDDEN_IDS and not (marks[item] & WAS_FOUND and (op != ASSIGN or marks[other] & WAS_FOUND)):
        return UNKNOWN_ID
    if op == GET:
        marks[item] |= WAS_READ
        return RECORD
    if op == UNLOCK:
        marks[item] |= WAS_UNLOCKED
        return UNLOCKED
    if flags & READ_FIRST and not marks[item] & WAS_READ:
        return NOT_READ
    if flags & LOCKS and not marks[item] & WAS_UNLOCKED:
        return LOCKED
    return _write(base, flags, tool, item, other, value)


@compiled
def start_turn(base: Database, expected: Database, ask: Ints) -> None:
    """A new turn: what was read is stale, what was unlocked is locked again, and the expected database moves on."""
    base.marks[:] &= WAS_FOUND
    apply_write(expected, ask, ask[OBJECT], ask[OTHER_OBJECT], ask[VALUE])


@compiled
def end_turn(base: Database, expected: Database) -> bool:
    """The verifier: the database is the expected one and no write is pending."""
    return bool(base.status[PENDING_OP] < 0 and np.all(base.rows == expected.rows))
