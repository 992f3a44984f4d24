"""What trainers hand over, read without knowing their types: rewards of any shape, prompts, rows of a data set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from envsched_core.live.intake import attempt, text_of
from envsched_core.records import TaskSpec, Tool

__all__ = ["as_rows", "cost_of", "field", "number", "task_of", "tasks_of", "text_in", "weighted"]

ENVIRONMENTS = ("env", "env_name", "environment", "env_id", "env_class", "data_source")
TASKS = ("task_id", "task", "problem_id", "instance_id", "uid", "id", "index")
TEXTS = ("prompt", "question", "instruction", "problem", "text", "messages", "raw_prompt")
DEEPER = ("extra_info", "env_extras", "metadata", "info", "data")
"""Where trainers put what their own columns have no room for."""


def number(value: Any) -> float | None:
    """A reward as a plain number; of a list or tensor with one entry per token, the sum; None when it is none."""
    if value is None or isinstance(value, str | bytes | Mapping):
        return None
    if hasattr(value, "tolist"):  # a tensor, wherever it lies and whatever its precision
        value = value.tolist()
    found, _ = attempt(np.asarray, value, np.float64)
    if found is None or found.size == 0:
        return None
    total = float(found.sum())
    return total if math.isfinite(total) else None


def weighted(values: Sequence[Any], weights: Sequence[float] | None = None) -> float | None:
    """Sum of the rewards of several functions, each with its weight (1 when None); None when none of them applies."""
    numbers = [number(value) for value in values]
    kept = [x * (weights[k] if weights else 1.0) for k, x in enumerate(numbers) if x is not None]
    return math.fsum(kept) if kept else None


def cost_of(**amounts: Iterable[Any]) -> dict[str, float]:
    """Cost of a group from the amounts of its rollouts; one that is not known of all of them is left out, not 0."""
    numbers = {name: [number(value) for value in values] for name, values in amounts.items()}
    return {
        name: math.fsum(x for x in found if x is not None)
        for name, found in numbers.items()
        if found and None not in found
    }


def field(item: Any, *names: str) -> Any:
    """The first of the fields (of a mapping or an object) that is there and is not None."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None:
            return value
    return None


def as_rows(value: Any) -> list[Any]:
    """A column of a batch as a list, one entry a rollout."""
    if hasattr(value, "tolist") and not isinstance(value, list):
        value = value.tolist()
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]


def text_in(prompt: Any) -> str:
    """The text of a prompt: a string, or messages of which each has a content."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Mapping):
        return text_in(prompt.get("content", ""))
    if isinstance(prompt, Sequence | np.ndarray):
        return "\n".join(part for part in map(text_in, prompt) if part)
    content = getattr(prompt, "content", None)
    return text_in(content) if content is not None else ""


def task_of(row: Any, place: int) -> TaskSpec:
    """A row of a trainer's data set as a task: environment, id and text under the names in use, else its place.

    Looked for in the row itself, then in its `extra_info`, `metadata` and the like.
    """
    layers = [row, *(deeper for name in DEEPER if (deeper := field(row, name)) is not None)]
    env = next((name for layer in layers if (name := _name(layer, ENVIRONMENTS))), "default")
    task = next((name for layer in layers if (name := _name(layer, TASKS))), str(place))
    text = next((text for layer in layers if (text := text_in(field(layer, *TEXTS)))), "")
    tools = next((tools for layer in layers if (tools := _tools(field(layer, "tools", "tool_defs")))), ())
    return TaskSpec(env.replace("::", ":"), task, text=text_of(text) or "", tools=tools)


def tasks_of(rows: Iterable[Any], describe: Callable[[Any, int], Any] | None = None) -> list[TaskSpec]:
    """All rows as tasks, in order; rows that share a name get their place behind it, so that each is its own task.

    `describe(row, place)` tells what `task_of` would not find: a `TaskSpec`.
    """
    found = [_described(row, place, describe) for place, row in enumerate(rows)]
    often = Counter(task.key for task in found)
    return [
        task if often[task.key] == 1 else msgspec.structs.replace(task, task=f"{task.task}#{place}")
        for place, task in enumerate(found)
    ]


def _described(row: Any, place: int, describe: Callable[[Any, int], Any] | None) -> TaskSpec:
    told = describe(row, place) if describe else None
    return told if isinstance(told, TaskSpec) else task_of(row, place)


def _name(layer: Any, names: Sequence[str]) -> str | None:
    for name in names:
        value = field(layer, name)
        if isinstance(value, str | int | np.integer) and not isinstance(value, bool) and str(value):
            return text_of(value)
    return None


def _tools(value: Any) -> tuple[Tool, ...]:
    """Tools by name, from plain names or from JSON schemas as chat interfaces take them."""
    found = []
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else ():
        inner = item.get("function", item) if isinstance(item, Mapping) else item
        name = inner if isinstance(inner, str) else field(inner, "name")
        if isinstance(name, str):
            about = "" if isinstance(inner, str) else field(inner, "description")
            found.append(Tool(text_of(name) or "", text_of(about) or ""))
    return tuple(found)
