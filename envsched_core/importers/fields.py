"""Which column holds what: the usual names of every field, and `--map FIELD=COLUMN` over them.

The first usual name that a table has wins; a dot goes into an object (`extra_info.index`). Names that mean
different things in different trainers (`uid`, `epoch`, `sample_id`) are left out on purpose: they need a `--map`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from envsched_core.errors import ConfigError

from .values import printable

__all__ = ["FIELDS", "TASK_FIELDS", "Columns", "Getter", "absent_column", "checked_mapping"]

FIELDS: dict[str, tuple[str, ...]] = {
    "env": (
        *("env", "env_id", "environment", "env_name", "domain", "data_source"),
        *("env_class", "domain_name", "agent_ref.name"),
    ),
    "task": (
        *("task_id", "task_index", "task_key", "example_id", "problem_id", "instance_id", "task"),
        *("id", "index", "extra_info.index", "task_hash"),
    ),
    "reward": ("reward", "rewards", "score", "scores", "total_reward"),
    "group": ("group_id", "group", "group_index", "group_idx", "group_key"),
    "rollout": ("rollout_id", "trial", "rollout_index"),
    "step": ("step", "global_step", "global_steps", "training_step", "train_step", "iteration"),
    "policy_version": ("policy_version", "model", "checkpoint", "model_name", "policy"),
    "trained": ("trained", "kept", "is_kept", "admitted"),
    "text": ("question", "prompt", "instruction", "input", "text", "input_prompt", "problem", "query"),
    "same_text": ("same_question",),
    "tools": ("tools", "tool_defs", "oai_tools", "available_tools", "info.oai_tools"),
    "state": ("state_tables", "state", "tables"),
    "verifier": ("verifier", "verifier_name", "reward_fn", "scorer"),
    "reference": ("reference_calls", "reference_actions", "expected_calls"),
    "calls": ("calls", "tool_calls", "tool_trace", "tools_used"),
    "messages": ("messages", "completion", "traj", "trajectory", "response", "output", "output_response"),
    "parts": ("reward_parts", "reward_components", "reward_breakdown", "metrics"),
    "tokens": (
        *("tokens", "completion_tokens", "output_tokens", "generated_tokens", "num_tokens", "response_length"),
        *("usage.completion_tokens", "token_usage.output_tokens"),
    ),
    "seconds": ("seconds", "duration", "latency", "elapsed", "wall_time", "total_time"),
    "milliseconds": ("total_ms", "duration_ms", "latency_ms", "generation_ms"),
    "turns": ("turns", "num_turns", "n_turns"),
    "tool_calls": ("num_tool_calls", "n_tool_calls", "total_tool_calls", "tool_call_count"),
    "status": ("status", "termination_reason", "stop_condition", "stop_reason", "finish_reason"),
    "error": ("error", "exception"),
}
"""Field -> its usual names, best first."""

TASK_FIELDS: dict[str, tuple[str, ...]] = {
    **{field: FIELDS[field] for field in ("env", "task", "text", "tools", "state", "verifier")},
    "reference": ("reference_calls", "reference_actions", "expected_calls", "calls", "actions", "path"),
}
"""The fields of a task list; calls there are reference calls."""

OTHER_SPELLINGS = {"task_id": "task", "env_id": "env", "environment": "env", "group_id": "group", "rewards": "reward"}
OTHER_SPELLINGS |= {
    "prompt": "text",
    "question": "text",
    "rollout_id": "rollout",
    "kept": "trained",
    "policy": "policy_version",
    "model": "policy_version",
}

Getter = Callable[[Mapping[str, Any]], Any]

IDENTITY = ("env", "task", "reward", "group", "rollout", "step")


def checked_mapping(mapping: Mapping[str, str]) -> dict[str, str]:
    """`--map` with our own name of each field.

    Raises:
        ConfigError: for a field that does not exist.
    """
    checked: dict[str, str] = {}
    for key, column in mapping.items():
        field = OTHER_SPELLINGS.get(key, key)
        if field not in FIELDS:
            near = difflib.get_close_matches(key, FIELDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"fields are {', '.join(FIELDS)}"
            raise ConfigError(f"--map {key}={column}: there is no field '{key}'; {hint}")
        if checked.setdefault(field, column) != column:
            raise ConfigError(f"--map names two columns for {field}: {checked[field]} and {column}")
    return checked


class Columns:
    """Where each field stands in records with the same keys."""

    def __init__(
        self, keys: Iterable[str], mapping: Mapping[str, str], fields: Mapping[str, tuple[str, ...]] = FIELDS
    ) -> None:
        """`mapping` (checked) goes before the usual names."""
        self.keys = tuple(keys)
        self.paths: dict[str, tuple[str, ...]] = {}
        taken = {mapping[field].partition(".")[0] for field in IDENTITY if field in mapping}
        for field, usual in fields.items():
            mapped = mapping.get(field)
            # a column that the user called the environment is not the task by its usual name
            free = (column for column in usual if field not in IDENTITY or column not in taken)
            candidates = (mapped,) if mapped else tuple(free)
            path = next(filter(None, map(self._path, candidates)), None)
            if path is not None:
                self.paths[field] = path

    def _path(self, column: str) -> tuple[str, ...] | None:
        """A column, or the way to it through objects; None when its first part is not there."""
        if column in self.keys:
            return (column,)
        path = tuple(column.split("."))
        return path if len(path) > 1 and path[0] in self.keys else None

    def __contains__(self, field: str) -> bool:
        return field in self.paths

    def get(self, record: Mapping[str, Any], field: str) -> Any:
        """The value of a field in a record; None when it is not there."""
        path = self.paths.get(field)
        if path is None:
            return None
        value = record.get(path[0])
        for part in path[1:]:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def getter(self, field: str) -> Getter:
        """A fast `get` for records that have all of `keys`; gives None where there is no such column."""
        path = self.paths.get(field)
        if path is None:
            return _nothing
        return itemgetter(path[0]) if len(path) == 1 else lambda record: self.get(record, field)

    def first(self, field: str) -> str | None:
        """The top-level column that a field is read from."""
        return self.paths[field][0] if field in self.paths else None


def absent_column(keys: Sequence[str], mapping: Mapping[str, str]) -> str:
    """Which column that --map (checked) names is not among `keys`, and what is; empty when none is missing."""
    columns = Columns(keys, mapping)
    absent = [(field, column) for field, column in mapping.items() if field not in columns]
    if not absent or not keys:
        return ""
    field, column = absent[0]
    found = printable(", ".join(keys[:60]))
    return f"there is no column '{column}' (--map {field}={column}); the columns are: {found}"


def _nothing(record: Mapping[str, Any]) -> None:
    """The value of a column that is not there."""
