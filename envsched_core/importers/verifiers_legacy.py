"""verifiers evaluations, legacy layout: `results.jsonl` with `metadata.json` beside it.

A run folder is one policy (`metadata.model`); rows with the same id in it are a group. Older writers put 0
where there was no id: then a hash of the prompt is the id. Some older writers numbered the rows wrongly, so
that one id covers several prompts: the report says so, and `--map task_id=prompt` groups by the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from envsched_core.limits import RECORD_BYTES
from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .fields import Columns, checked_mapping
from .files import Head, Source, decode, records
from .identity import Identity
from .messages import assistant_turns, calls_of, messages_from, tools_from
from .values import floats, name, number, prompt, reward, structured, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "metadata_beside", "read", "told"]

ABOUT = "verifiers evaluations: results.jsonl with metadata.json beside it (a folder may hold many runs)"
CARRIES = Carries(
    env="some",
    task="yes",
    group="some",
    step="no",
    parts="yes",
    tools="some",
    calls="yes",
    messages="yes",
    cost="some",
    policy="yes",
    every_group="yes",
    limits="the environment stands in metadata.json; one run is one policy; groups are the rows of an example",
)
COMPANIONS = ("metadata.json",)
NEEDS = ("prompt", "completion", "reward")

OWN = {
    *("id", "example_id", "prompt", "completion", "answer", "task", "info", "reward", "timing", "metrics", "error"),
    *("is_completed", "is_truncated", "stop_condition", "tool_defs", "token_usage", "generation_ms", "scoring_ms"),
    *("total_ms", "success"),
}
"""Columns of the layout itself; a number under any other name is a part of the reward or a metric."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows hold prompt, completion and reward, and the environment stands outside them."""
    if head.kind != "jsonl" or not set(NEEDS) <= set(head.keys):
        return False
    if _env_of(metadata_beside(head.path)) is not None:
        return True
    has_env = "env" in Columns(head.keys, checked_mapping(options.mapping))
    return not has_env and bool({"id", "example_id"} & set(head.keys))


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every row of one run."""
    run = _Run(source, context)
    yield from as_rows(records(source, "jsonl"), source, run.row, Identity(source, context))
    run.remark()


class Told(NamedTuple):
    """What a row of this layout says whoever wrote it."""

    fields: dict[str, Any]
    """Fields of a `Row`."""
    parts: dict[str, float]
    failed: bool
    """Whether it ended in an error, so that its reward means nothing."""


def told(record: Mapping[str, Any], own: Set[str] = frozenset()) -> Told:
    """Read a row; `own` are further columns of its writer that are no part of the reward."""
    asked, answer = messages_from(record.get("prompt")), messages_from(record.get("completion"))
    usage = record.get("token_usage")
    numbers = {key: value for key, value in record.items() if key not in OWN and key not in own}
    parts = floats(record.get("metrics")) | floats(numbers)
    fields = {
        "text": prompt(record.get("prompt")),
        "answer": text(record.get("answer")),
        "tools": tools_from(_info(record).get("oai_tools") or record.get("tool_defs")),
        "verifier": " + ".join(part for part in sorted(parts) if "reward" in part),
        "parts": parts,
        "messages": asked + answer,
        "calls": calls_of(answer) if isinstance(structured(record.get("completion")), list) else None,
        "tokens": _first(*(_amount(usage, key) for key in ("output_tokens", "completion_tokens"))),
        "seconds": _seconds(record) or _seconds(record.get("timing")),
        "turns": float(assistant_turns(answer)) if answer else None,
        "status": _status(record),
    }
    return Told(fields, parts, bool(record.get("error")))


def _info(record: Mapping[str, Any]) -> Mapping[str, Any]:
    info = structured(record.get("info"))
    return info if isinstance(info, Mapping) else {}


def _status(record: Mapping[str, Any]) -> str:
    """The log's own word on how it ended."""
    if record.get("error"):
        return f"error: {text(structured(record['error'])) or record['error']}"
    return "truncated" if record.get("is_truncated") is True else text(record.get("stop_condition"))


class _Ids(msgspec.Struct):
    """The only fields that the first pass looks at."""

    id: Any = None
    example_id: Any = None


def metadata_beside(results: Path) -> Mapping[str, Any]:
    """What stands beside the rows; empty when there is none or it cannot be read."""
    file = results.with_name("metadata.json")
    if not file.is_file() or file.stat().st_size > RECORD_BYTES.now():
        return {}
    try:
        value = decode(file.read_bytes())
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}


def _env_of(metadata: Mapping[str, Any]) -> str | None:
    """The environment that the metadata names."""
    return name(metadata.get("env_id") or metadata.get("env"))


class _Run:
    """Turns the rows of one run into `Row`s."""

    def __init__(self, source: Source, context: Context) -> None:
        self.label, self.growing = source.label, source.growing
        self.options, self.notes = context.options, context.notes
        self.mapping = checked_mapping(context.options.mapping)
        self.metadata = metadata_beside(source.path)
        if not self.metadata:
            self.notes.add(f"{self.label}: no readable metadata.json beside it")
        folder = PurePosixPath(self.label).parent
        self.group = str(folder) if folder.name else self.label
        self.env = _env_of(self.metadata) or context.options.env or _folder_env(source.path)
        self.model = name(self.metadata.get("model"))
        self.tools = tools_from(self.metadata.get("tools"))
        self.ids = "task" in self.mapping or self._has_ids(source)
        self.rows = self.scored = 0
        self.total = 0.0

    def _has_ids(self, source: Source) -> bool:
        """False when most ids are 0 though the run is not of one example; a run that still grows cannot tell."""
        if source.growing:
            return True
        decoder = msgspec.json.Decoder(_Ids)
        rows = zeros = 0
        for _, line in source.lines():
            try:
                found = decoder.decode(line or b"{}")
            except (msgspec.DecodeError, RecursionError):
                continue  # reading drops this row and says so
            rows += 1
            zeros += _first(found.example_id, found.id) == 0
        source.done = 0
        if 2 * zeros <= rows or self.metadata.get("num_examples") == 1:
            return True
        self.notes.add(
            f"{self.label}: nearly all ids are 0, which means none; hashes of prompt and answer replace them"
        )
        return False

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One rollout."""
        found = told(record)
        score = self._reward(record, found.parts)
        row = Row(
            place,
            self._env(record),
            self._task(record),
            (None if found.failed else score,),
            group=self.group,
            policy_version=self.model,
            **found.fields,
        )
        row.tools = row.tools or self.tools
        return row

    def _reward(self, record: Mapping[str, Any], parts: Mapping[str, float]) -> float | None:
        """The reward, or the part of it that the user chose."""
        column = self.mapping.get("reward", "reward")
        value = reward(record.get(column))
        if value is not None and column == "reward":
            self.total, self.scored = self.total + value, self.scored + 1
        self.rows += 1
        return value if self.options.reward is None else reward(parts.get(self.options.reward))

    def _env(self, record: Mapping[str, Any]) -> str:
        """Of a mixture, the environment that the row names; else the run's."""
        inner = _info(record).get("env_id")
        own = name("/".join(map(str, inner)) if isinstance(inner, list) else inner)
        task = name(record.get("task"))
        env = own or self.env or (task if task != "default" else None)
        if env is None:
            self.notes.add(f"{self.label}: nothing names the environment; it is called verifiers (--env NAME)")
        return env or "verifiers"

    def _task(self, record: Mapping[str, Any]) -> str:
        """The example's id, or a hash of its prompt and answer (some tasks share the prompt)."""
        if "task" in self.mapping:
            found = name(record.get(self.mapping["task"]))
        else:
            found = name(_first(record.get("example_id"), record.get("id"))) if self.ids else None
        if found is None:
            found = name([record.get("prompt"), record.get("answer")])
        if found is None:
            raise RowError("no example id and no prompt")
        return found

    def remark(self) -> None:
        """Compare the rows with what the metadata says of them."""
        if self.growing:
            return
        told = self.metadata.get("avg_reward")
        mean = self.total / self.scored if self.scored else None
        if isinstance(told, int | float) and mean is not None and not math.isclose(told, mean, abs_tol=1e-6):
            self.notes.add(f"{self.label}: metadata says avg_reward {told:.4g}, the rows' mean is {mean:.4g}")
        examples, each = self.metadata.get("num_examples"), self.metadata.get("rollouts_per_example")
        planned = examples * each if isinstance(examples, int) and isinstance(each, int) else 0
        if planned > self.rows:
            self.notes.add(f"{self.label}: {self.rows} rows, the run was to have {examples} x {each}")


def _folder_env(results: Path) -> str | None:
    """The environment in `{env}--{model}/{hex}/results.jsonl`, the layout's own naming."""
    for folder in (results.parent.name, results.parent.parent.name):
        if "--" in folder:
            return name(folder.partition("--")[0])
    return None


def _first(*values: Any) -> Any:
    """The first value that is there."""
    return next((value for value in values if value is not None), None)


def _amount(holder: Any, key: str) -> float | None:
    return number(holder.get(key)) if isinstance(holder, Mapping) else None


def _seconds(holder: Any) -> float | None:
    """Wall time in seconds; these writers put 0 where they did not measure."""
    found = _amount(holder, "total_ms") or _amount(holder, "generation_ms")
    return found / 1000.0 if found else None
