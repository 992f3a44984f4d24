"""Tasks, groups and rollouts: what goes into a scheduler."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Cost", "GroupResult", "Message", "Place", "Rollout", "TaskSpec", "Tool", "ToolCall", "task_key"]


def task_key(env: str, task: str) -> str:
    """The one spelling of an environment-task pair: ``ENV::TASK``."""
    return f"{env}::{task}"


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as the environment documents it."""

    name: str
    description: str = ""
    parameters: tuple[str, ...] = ()
    """Names of its parameters."""


class TaskSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment-task pair as it is known before any rollout: a node of the graph."""

    env: str
    task: str
    """Stable id inside the environment."""
    text: str = ""
    """The prompt or instruction; untrusted text."""
    tools: tuple[Tool, ...] = ()
    state: tuple[str, ...] = ()
    """Names of the state objects (tables, APIs) it works on."""
    verifier: str = ""
    """Name of what computes the reward; empty when unknown."""
    calls: tuple[str, ...] | None = None
    """Reference call path: tool names in order; None when the catalogue has none."""
    draws: int | None = None
    """How many groups can ever be drawn (a recorded task has so many groups); None = no limit."""

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a whole group cost, summed over its rollouts; None where the log does not say."""

    tokens: float | None = None
    """Generated tokens, >= 0."""
    seconds: float | None = None
    """Summed wall time of its rollouts in seconds, >= 0."""
    turns: float | None = None
    """Assistant turns, >= 0."""
    tool_calls: float | None = None
    """Tool calls, >= 0."""


class Place(msgspec.Struct, frozen=True):
    """Where a rollout stands in the log that was imported."""

    file: str
    line: int
    """1-based line, or 1-based position in an array."""


class GroupResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rollouts of one task at one step: the only way evidence enters a scheduler."""

    group_id: str
    """Unique in a run; the same id observed twice counts once."""
    env: str
    task: str
    rewards: tuple[float, ...]
    """One finite reward per scored rollout [G], on the environment's own scale."""
    step: int | None = None
    """The step whose batch it belongs to; None = the step at which it is observed."""
    missing: int = 0
    """Rollouts of the group without a usable reward (null, NaN, infinite, failed)."""
    status: Literal["ok", "partial", "error"] = "ok"
    """partial: some rollouts are missing; error: all are."""
    policy_version: str | None = None
    trained: bool | None = None
    """Whether the trainer used it; None when the log does not say."""
    pick_id: str | None = None
    """The pick it answers, when the trainer knows it; else the oldest open pick of its task is meant."""
    cost: Cost | None = None
    calls: tuple[tuple[str, ...], ...] = ()
    """Observed tool names in order, one tuple per rollout; empty when the log has none."""
    places: tuple[Place, ...] = ()
    """Where its rollouts stand in the imported log."""
    offsets: tuple[int, ...] = ()
    """Byte offsets of its rollouts in the run folder's rollouts file; empty when not kept."""

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call of a rollout."""

    name: str
    arguments: str = ""
    """As text (JSON where the log had JSON); untrusted."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a rollout; untrusted text."""

    role: str
    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class Rollout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the log said of one rollout; read only on demand."""

    group_id: str
    env: str
    task: str
    index: int
    """0-based position in its group."""
    reward: float | None
    """None when missing."""
    reward_parts: dict[str, float] = {}
    """Named parts of the reward where the log has them."""
    messages: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """All tool calls in order (those of `messages`, or the log's own list)."""
    tokens: float | None = None
    seconds: float | None = None
    status: str = ""
    """The log's own word: error text, stop reason, truncated; empty when it says nothing."""
    place: Place | None = None
