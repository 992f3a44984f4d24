"""OpenEnv collections: `results.jsonl` of episodes with `metadata.json` beside it.

The environment is the one that the metadata names, the task is the record's own (`task.id`, else its content), and
all episodes of a task in a folder are a group. Episodes that failed are not written, and `should_keep` drops more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from envsched_core.records import Place, ToolCall

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .files import Head, Source, records
from .identity import Identity
from .messages import calls_of, messages_from, tools_from
from .values import floats, name, number, prompt, reward, text
from .verifiers_legacy import metadata_beside

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "OpenEnv collections: results.jsonl of episode_id, reward, messages, tool_trace with metadata.json beside it"
CARRIES = Carries(
    env="some",
    task="some",
    group="some",
    step="no",
    parts="yes",
    tools="no",
    calls="yes",
    messages="yes",
    cost="some",
    policy="some",
    every_group="some",
    limits="failed episodes are not written, nor, unless losses are kept, those with a reward below 0",
)
COMPANIONS = ("metadata.json",)
NEEDS = ("episode_id", "reward")

ENV_KEYS = ("env_id", "env", "environment", "env_name", "env_url", "base_url")
TASK_KEYS = ("id", "task_id", "name", "key")


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are collected episodes."""
    keys = set(head.keys)
    return head.kind == "jsonl" and set(NEEDS) <= keys and bool({"tool_trace", "verify_metrics"} & keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every episode of one file."""
    metadata = metadata_beside(source.path)
    env = next((found for key in ENV_KEYS if (found := name(metadata.get(key)))), "")
    model = name(metadata.get("model"))
    folder = PurePosixPath(source.label).parent
    group = str(folder) if folder.name else source.label
    part = context.options.reward
    if metadata.get("keep_losses") is False:
        context.notes.add(f"{source.label}: episodes with a reward below 0 were not kept (keep_losses false)")

    def row(record: Mapping[str, Any], place: Place, mark: int) -> Row:
        found = _row(record, place, part)
        found.env, found.group, found.policy_version = env, group, model
        return found

    yield from as_rows(records(source, "jsonl"), source, row, Identity(source, context, "openenv"))


def _row(record: Mapping[str, Any], place: Place, part: str | None) -> Row:
    """One episode as a row."""
    parts = floats(record.get("metrics")) | floats(record.get("verify_metrics"))
    messages = messages_from(record.get("messages"))
    trace = record.get("tool_trace")
    calls = tuple(map(_call, trace)) if isinstance(trace, list) and trace else calls_of(messages)
    task, extra = record.get("task"), record.get("extra")
    extra = extra if isinstance(extra, Mapping) else {}
    episode = name(record.get("episode_id"))
    verified = record.get("verify_metrics")
    return Row(
        place,
        "",
        _task_id(task),
        (reward(parts.get(part) if part is not None else record.get("reward")),),
        mark=(hash(episode) or 1) if episode else 0,
        text=_text(task) or _first_asked(record.get("messages")),
        tools=tools_from(extra.get("tools")),
        verifier=" + ".join(sorted(map(str, verified))) if isinstance(verified, Mapping) else "",
        parts=parts,
        messages=messages,
        calls=calls,
        seconds=number(parts.get("seconds", parts.get("duration_s"))),
        status="" if record.get("done") is not False else "not done",
    )


def _task_id(task: Any) -> str:
    """The task's own id, or what it is."""
    if isinstance(task, Mapping):
        own = next((found for key in TASK_KEYS if (found := name(task.get(key)))), None)
        return own or (name(dict(task)) if task else "") or ""
    return name(task) or ""


def _text(task: Any) -> str:
    if isinstance(task, Mapping):
        return prompt(next((task[key] for key in ("prompt", "instruction", "question") if task.get(key)), ""))
    return task if isinstance(task, str) else ""


def _first_asked(messages: Any) -> str:
    """What the first user message says."""
    found = messages if isinstance(messages, list) else []
    asked = (one for one in found if isinstance(one, Mapping) and one.get("role") == "user")
    return text(next(asked, {}).get("content"))


def _call(entry: Any) -> ToolCall:
    """One call of a tool trace."""
    (call,) = calls_of(messages_from([{"tool_calls": [{"name": entry["tool_name"], "arguments": entry["arguments"]}]}]))
    return call
