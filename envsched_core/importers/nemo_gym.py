"""NeMo-Gym rollouts: JSON lines of a Responses request, what came of it, a reward and the verifier's own fields.

The environment is the agent that the row names, else the file's name (Gym's own files lie in `ENV/data/`). The task is
the first of `task_id`, `problem_id`, `instance_id` and the task index, else a hash of the request and of what it is
graded by; a file's rows of it are a group. The sidecar `*_failures.jsonl` belongs to the file beside it: its rollouts
have no reward. A rollout that failed and was run again counts once. Rows that are inputs only (no response and no
reward, as in `*_materialized_inputs.jsonl`) are tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from envsched_core.errors import LogFormatError
from envsched_core.records import Message, Place, TaskSpec, ToolCall

from .base import Carries, Context, Drop, ImportOptions, Listed, Row, RowError, as_listed, as_rows
from .extras import Documents
from .fields import FIELDS
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import assistant_turns, calls_from, calls_of, tools_from
from .values import flag, floats, is_missing, name, number, reward, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "NeMo-Gym rollouts: JSON lines of responses_create_params, response and reward, with their failures sidecar"
CARRIES = Carries(
    env="yes",
    task="some",
    group="some",
    step="no",
    parts="some",
    tools="yes",
    calls="yes",
    messages="yes",
    cost="some",
    policy="yes",
    every_group="some",
    limits=(
        "rollouts that were killed leave no row, failed ones stand in a sidecar that must lie beside the file; a file "
        "is one policy; older files name neither agent nor task"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("responses_create_params",)

OUTCOMES = {"response", "reward", "_ng_failure_class"}
TASK_KEYS = ("task_id", "problem_id", "instance_id", "_ng_task_index")
GRADED_BY = (
    *("expected_answer", "answer", "ground_truth", "target", "verifier_metadata", "difficulty", "level", "category"),
    *("setting", "domain", "law_version", "noise_level"),
)
"""Fields that tell tasks apart which ask the same."""
SYSTEM = {"system", "developer"}
FAILURES, INPUTS = "_failures", "_materialized_inputs"
PLAIN_NAMES = {"rollouts", "example_rollouts", "example", "data", ""}
"""Names of files that say nothing of the environment."""
OWN = {"_ng_task_index", "_ng_rollout_index", "_ng_attempt_index", "task_idx", "reward", "mask_sample"} | {
    column
    for field in ("env", "task", "group", "rollout", "step", "policy_version", "tokens", "seconds", "turns")
    for column in FIELDS[field]
}
"""Columns that are no part of the reward, even when they hold numbers."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows are requests as Gym hands them to a model."""
    return head.kind in ("jsonl", "array") and set(NEEDS) <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop | Listed]:
    """Every rollout of one file, or every task of a file of inputs."""
    head = head_of(source.path)
    if not set(NEEDS) <= set(head.keys):
        raise LogFormatError("holds no rollouts of NeMo-Gym: no row has responses_create_params", file=source.label)
    env = context.options.env or _named(source.path)
    if not OUTCOMES & set(head.keys):
        context.notes.add(f"{source.label}: rows hold neither response nor reward: they are read as tasks")
        yield from as_listed(records(source, head.kind), source, lambda record: [_task(record, env)])
        return
    rollouts = _Rollouts(source, context, env)
    yield from as_rows(records(source, head.kind), source, rollouts.row, Identity(source, context))
    rollouts.remark()


def _named(path: Path) -> str:
    """What the place of a file tells of its environment."""
    stem = path.stem.removesuffix(FAILURES).removesuffix(INPUTS)
    if stem not in PLAIN_NAMES:
        return name(stem) or "nemo-gym"
    folders = [folder for folder in (path.parent.name, path.parent.parent.name) if folder not in PLAIN_NAMES]
    return name(next(iter(folders), None)) or "nemo-gym"


class _Rollouts:
    """Turns the rows of one file into `Row`s."""

    def __init__(self, source: Source, context: Context, env: str) -> None:
        self.notes, self.label, self.env = context.notes, source.label, env
        self.chosen, self.given = context.options.reward, context.options.env is not None
        of = PurePosixPath(source.label)
        self.folder = str(of.parent) if of.parent.name else source.label
        self.group = str(of.with_name(of.stem.removesuffix(FAILURES) + of.suffix))
        self.unnamed = self.hashed = self.masked = self.failed = 0
        self.documents = Documents()

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One rollout."""
        asked, answered = _object(record, "responses_create_params"), _object(record, "response")
        before, after = messages_of(asked.get("input")), messages_of(answered.get("output"))
        parts = _parts(record)
        calls = calls_of(after)
        usage = _object(answered, "usage")
        agent = _agent(record)
        self.unnamed += agent is None
        return Row(
            place,
            agent or self.env,
            _key(record) or self._unnamed_task(record, asked),
            (self._reward(record, parts),),
            group=self.group,
            policy_version=name(answered.get("model")),
            mark=hash(repr(record["_ng_rollout_index"])) or 1 if _numbered(record) else 0,
            text=_asked(record, asked),
            answer=text(record.get("expected_answer")),
            tools=self.documents(asked.get("tools") or answered.get("tools")),
            verifier=" + ".join(parts),
            parts=parts,
            messages=before + after,
            calls=calls if "output" in answered else None,
            tokens=number(usage.get("output_tokens")),
            turns=float(assistant_turns(after)) if "output" in answered else number(record.get("num_turns")),
            status=_status(record, answered),
        )

    def _unnamed_task(self, record: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
        """A name for the task of a row that names none; empty when it asks nothing either."""
        if not _asked(record, asked):
            return ""
        self.hashed += 1
        return _hash_of(record, asked)

    def _reward(self, record: Mapping[str, Any], parts: Mapping[str, float]) -> float | None:
        """The reward, or the part of it that the user chose; none for a failed or masked rollout."""
        if record.get("_ng_failure_class") is not None or not is_missing(record.get("error")):
            self.failed += 1
            return None
        if flag(record.get("mask_sample")):
            self.masked += 1
            return None
        if self.chosen in (None, "reward"):
            return reward(record.get("reward"))
        return parts.get(self.chosen or "")

    def remark(self) -> None:
        """Say which rewards were not taken, and where the environment's name is from."""
        if self.unnamed and not self.given:
            self.notes.add(
                f"{self.folder}: rows that name no agent have their file's name for an environment "
                "(--env NAME, --env-rule NAME=PATTERN or --join COLUMN=FILE names it)"
            )
        if self.hashed:
            self.notes.add(
                f"{self.folder}: rows name no task; a hash of the request and of what it is graded by stands for it"
            )
        for count, why in ((self.failed, "failed"), (self.masked, "are masked by the verifier (mask_sample)")):
            if count:
                self.notes.add(f"{self.label}: {count:,} rollouts {why}; their rewards are missing")


def _object(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A member that is an object; empty when it is none."""
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}


def _agent(record: Mapping[str, Any]) -> str | None:
    return name(_object(record, "agent_ref").get("name"))


def _key(record: Mapping[str, Any]) -> str | None:
    """The task's id by Gym's own rule."""
    return next((found for key in TASK_KEYS if (found := name(record.get(key)))), None)


def _hash_of(record: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """A stable name for a task: its request and what it is graded by."""
    return str(name([asked.get("input"), *(record.get(key) for key in GRADED_BY)]))


def _numbered(record: Mapping[str, Any]) -> bool:
    """Whether a row tells which rollout of its task it is."""
    return whole(record.get("_ng_rollout_index"), "_ng_rollout_index") is not None


def _asked(record: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """What a request asks, without what it says to every task alike."""
    given = asked.get("input")
    items = [item for item in given if not _is_system(item)] if isinstance(given, list) else given
    return text(items) or text(record.get("question"))


def _is_system(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("role") in SYSTEM


def _parts(record: Mapping[str, Any]) -> dict[str, float]:
    """Numbers and flags that the verifier added."""
    own = {key: value for key, value in record.items() if key not in OWN and isinstance(value, int | float)}
    return floats(own) | floats(record.get("reward_components"))


def _status(record: Mapping[str, Any], answered: Mapping[str, Any]) -> str:
    """The log's own word on how a rollout ended."""
    for key in ("_ng_failure_class", "error", "failure_kind", "exception_type"):
        if not is_missing(record.get(key)):
            return f"error: {text(record[key])}"
    if error := _object(answered, "error"):
        return f"error: {text(error.get('message') or error.get('code'))}"
    return text(_object(answered, "incomplete_details").get("reason"))


def _task(record: Mapping[str, Any], env: str) -> TaskSpec:
    """The task of a row without an outcome."""
    asked = _object(record, "responses_create_params")
    said, key = _asked(record, asked), _key(record)
    if not (said or key):
        raise RowError("no task")
    return TaskSpec(_agent(record) or env, key or _hash_of(record, asked), said, tools_from(asked.get("tools")))


def messages_of(items: Any) -> tuple[Message, ...]:
    """Messages of the items of a Responses request or answer.

    What the model thought, said and called up to the next item of somebody else is one message of the assistant.
    """
    if isinstance(items, str):
        return (Message("user", items),) if items else ()
    found: list[Message] = []
    said: list[str] = []
    calls: list[ToolCall] = []
    for item in items if isinstance(items, Iterable) and not isinstance(items, Mapping) else ():
        role, content, called = _read_item(item)
        if role != "assistant" and (said or calls):
            found.append(Message("assistant", "\n".join(said), tuple(calls)))
            said, calls = [], []
        if role == "assistant":
            said += [content] if content else []
            calls += called
        else:
            found.append(Message(role, content))
    if said or calls:
        found.append(Message("assistant", "\n".join(said), tuple(calls)))
    return tuple(found)


def _read_item(item: Any) -> tuple[str, str, tuple[ToolCall, ...]]:
    """Who made an item, what it says, and the calls in it."""
    if not isinstance(item, Mapping):
        return "unknown", text(item), ()
    kind = item.get("type")
    if isinstance(kind, str) and kind.endswith("_output"):
        return "tool", text(item.get("output")), ()
    if kind == "reasoning":
        return "assistant", text(item.get("summary") or item.get("content")), ()
    if kind not in (None, "message"):
        return "assistant", "", calls_from([item])
    content = item.get("content")
    refusals = [part["refusal"] for part in content if "refusal" in part] if isinstance(content, list) else []
    return str(item.get("role") or "unknown"), text(content) or text(refusals), calls_from(item.get("tool_calls"))
