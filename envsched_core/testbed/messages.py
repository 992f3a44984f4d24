"""Rollouts as the field writes them: user, assistant with tool calls and JSON arguments, tool results."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from envsched_core.records import Message, Rollout, ToolCall

from . import words as w
from .environments import Environment
from .tasks import Task
from .tools import (
    ASSIGN,
    ATTRIBUTE,
    CODE_NAMES,
    CONFIRM,
    CREATE,
    CREATED,
    ENTITY,
    FIND,
    HELP,
    LOGIN,
    OBJECTS,
    OP,
    PENDING,
    STARTING_OBJECTS,
    UPDATE,
    Ints,
)
from .world import World

__all__ = ["transcript"]


def transcript(
    world: World, task: int, group_id: str, rewards: NDArray[np.float64], counts: Ints, traces: Ints
) -> list[Rollout]:
    """The rollouts of one group: rewards [G], counts [G, 2] and traces [G, longest, 6] as messages."""
    drawn = world.tasks[task]
    env = world.environments[int(world.arrays.env[task])]
    out = []
    for g, reward in enumerate(rewards.tolist()):
        made, turns = (int(n) for n in counts[g])
        messages = _messages(env, drawn, traces[g, :made], turns)
        calls = tuple(call for message in messages for call in message.calls)
        spec = drawn.spec
        out.append(Rollout(group_id, spec.env, spec.task, g, reward, messages=tuple(messages), calls=calls))
    return out


def _messages(env: Environment, task: Task, trace: Ints, turns: int) -> list[Message]:
    messages = []
    for turn in range(turns):
        messages.append(Message("user", task.texts[turn]))
        calls = trace[trace[:, 0] == turn]
        for row in calls:
            call = ToolCall(env.tools[row[1]].name, json.dumps(_arguments(env, task, row)))
            messages += [Message("assistant", calls=(call,)), Message("tool", _answer(env, task, row))]
        messages.append(Message("assistant", "That is done." if len(calls) else "There is nothing to do."))
    return messages


def _arguments(env: Environment, task: Task, row: Ints) -> dict[str, str]:
    """The arguments of a call by parameter."""
    tool = env.table[row[1]]
    op, documented = tool[OP], env.tools[row[1]].parameters
    item = task.names[row[2]] if row[2] >= 0 else ""
    if op in (HELP, LOGIN, CONFIRM):
        return {}
    if op in (CREATE, UPDATE):
        entity = env.entities[tool[ENTITY]]
        value = w.ATTRIBUTES[entity.attributes[tool[ATTRIBUTE]]][1][row[4]][0]
        # a created object takes the name that the turn gives it
        return {documented[0]: item or _new_name(task, int(row[0])), documented[1]: value}
    if op == ASSIGN:
        return {documented[0]: item, documented[1]: task.names[row[3]] if row[3] >= 0 else ""}
    return {documented[0]: item}


def _new_name(task: Task, turn: int) -> str:
    """The name in a turn's instruction of the object to be created; any free one where there is none."""
    item = int(task.asks[turn, 8])
    return task.names[item] if STARTING_OBJECTS <= item < OBJECTS else task.names[-1]


def _answer(env: Environment, task: Task, row: Ints) -> str:
    """What the tool says: its result code, and the object where there is one."""
    answer = {"result": CODE_NAMES[row[5]]}
    if row[2] >= 0 and row[5] < PENDING and row[5] != CREATED and env.table[row[1], OP] == FIND:
        answer["id"] = task.names[row[2]]
    return json.dumps(answer)
