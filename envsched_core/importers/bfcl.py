"""BFCL (v3 and v4): results joined with scores, and its data files as a catalogue.

`BFCL_v4_{category}_result.json` holds one line a task; its reward is 1 unless the score file of the same name lists
the task as a failure. Tasks are found in the data files when these stand in a folder above or are imported too
(bfcl_tasks.py). A run holds one sample a task: several runs of one model make a group of a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from envsched_core.errors import LogFormatError
from envsched_core.records import Message, Place, TaskSpec, ToolCall

from .base import Carries, Context, Drop, ImportOptions, Listed, Row, RowError, as_listed, as_rows
from .bfcl_tasks import DOCUMENTS_FOLDER, answers_of, category_of, checker_of, data_file_of, tasks_of
from .failures import Scores, is_score, score_file_of, written_calls
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import messages_from
from .values import name, number, reward, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "BFCL: *_result.json joined with *_score.json; its data files alone are a catalogue (tasks, classes, tools)"
CARRIES = Carries(
    env="some",
    task="yes",
    group="no",
    step="no",
    parts="no",
    tools="some",
    calls="yes",
    messages="some",
    cost="yes",
    policy="yes",
    every_group="yes",
    limits=(
        "one sample a task: groups are several runs of one model; API classes and tools need the data files, else the "
        "environment is the category; results of tools are not shown unless the log has inference_log"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

COSTS = {"input_token_count", "output_token_count", "latency", "inference_log", "traceback"}
"""Fields of a result line that no other log of ids and results has."""
ACEBENCH = ("agent_", "normal_", "special_")
"""How the ids of another benchmark with the same files begin."""
GROUPS = {"multi_turn", "live", "non_live", "agentic", "memory", "web_search", "format_sensitivity", "kv", "vector"}
GROUPS |= {"rec_sum", "snippet", "no_snippet"}
"""Folders between a model's and its files."""
SCORES = "files of scores are read with the results that they are of"
TOOLS = "files of tool documents are read with the tasks that use them"
"""What is said of files that have no rows of their own."""
SPEAKERS = {"user", "assistant", "tool"}


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether this is a file of BFCL: results, scores, tasks, answers or tool documents."""
    return _kind(head) is not None


def _kind(head: Head) -> Literal["results", "scores", "tasks", "answers", "tools"] | None:
    """Which of the benchmark's files this is; None = none of them."""
    keys = set(head.keys)
    if head.kind not in ("jsonl", "object"):
        return None
    if is_score(head):
        return None if "process_accuracy" in keys or head.path.name.startswith("data_") else "scores"
    if {"name", "parameters"} <= keys and head.path.parent.name == DOCUMENTS_FOLDER:
        return "tools"
    if "id" not in keys or str(head.first.get("id")).startswith(ACEBENCH):
        return None
    if "result" in keys and keys & COSTS:
        return "results"
    if "question" in keys and keys & {"involved_classes", "function"}:
        return "tasks"
    answers = {"id", "ground_truth"} <= keys and not keys & {"question", "result"}
    return "answers" if answers and (len(keys) == 2 or head.path.name.startswith("BFCL_")) else None


def read(source: Source, context: Context) -> Iterator[Row | Drop | Listed]:
    """Every result, or every task of a data file; the other files are read with the files that they belong to."""
    kind = _kind(head_of(source.path))
    if kind == "results":
        yield from _results(source, context)
    elif kind == "tasks":
        yield from _tasks(source, context)
    elif kind == "answers":
        yield from _answers(source)
    elif kind is None:
        raise LogFormatError("is no file of BFCL: neither results nor scores, tasks or answers", file=source.label)
    else:
        context.notes.add(TOOLS if kind == "tools" else SCORES)


def _tasks(source: Source, context: Context) -> Iterator[Drop | Listed]:
    """Every task of a data file."""
    found = tasks_of(source.path)

    def listed(record: Mapping[str, Any]) -> Iterator[TaskSpec]:
        yield found[_id_of(record)].spec

    yield from as_listed(records(source, "jsonl"), source, listed)
    bare = sum(bool(task.spec.state) and not task.spec.tools for task in found.values())
    if bare:
        context.notes.add(
            f"{source.label}: {bare:,} tasks have no tool documents: {DOCUMENTS_FOLDER}/ is not beside the file"
        )


def _answers(source: Source) -> Iterator[Drop | Listed]:
    """The tasks of an answer file: as the data file above it has them, or by id and reference calls alone."""
    data = source.path.parent.parent / source.path.name
    known = tasks_of(data) if data.is_file() else {}
    answers = answers_of(source.path)

    def listed(record: Mapping[str, Any]) -> Iterator[TaskSpec]:
        task = _id_of(record)
        category = category_of(task)
        bare = TaskSpec(category, task, verifier=checker_of(category), calls=answers.get(task))
        yield known[task].spec if task in known else bare

    yield from as_listed(records(source, "jsonl"), source, listed)


def _id_of(record: Mapping[str, Any]) -> str:
    """The task of a line.

    Raises:
        RowError: it names none.
    """
    task = name(record.get("id"))
    if task is None:
        raise RowError("no id")
    return task


def _results(source: Source, context: Context) -> Iterator[Row | Drop | Listed]:
    """Every result of one file."""
    run = _Run(source, context)
    yield from as_rows(records(source, "jsonl"), source, run.row, Identity(source, context))
    yield from run.listed()
    run.remark()


class _Run:
    """One result file with its scores and tasks."""

    def __init__(self, source: Source, context: Context) -> None:
        self.label, self.notes, self.part = source.label, context.notes, context.options.reward
        self.model = _model_of(source.path)
        scores = score_file_of(source.path)
        self.scores = Scores(scores) if scores is not None else None
        data = data_file_of(source.path)
        self.tasks = tasks_of(data, _category_in(source.path)) if data is not None else {}
        self.data = data
        self.rows = 0
        if scores is None:
            self.notes.add(f"{source.label}: no score file beside it or in a score folder: its rewards are missing")

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One result."""
        task = _id_of(record)
        self.rows += 1
        known = self.tasks.get(task)
        spec = known.spec if known else None
        category = category_of(task)
        wrong = self.scores.reason(task, place.line) if self.scores is not None else None
        value = None if self.scores is None else float(wrong is None)
        messages, calls = _transcript(record, known.turns if known else [])
        return Row(
            place,
            spec.env if spec else category,
            task,
            (reward({"valid": value}.get(self.part or "valid")),),
            policy_version=self.model,
            text=spec.text if spec else "",
            tools=spec.tools if spec else (),
            state=spec.state if spec else (),
            verifier=checker_of(category),
            reference=spec.calls if spec else None,
            messages=messages,
            calls=calls,
            tokens=_total(record.get("output_token_count")),
            seconds=_total(record.get("latency")),
            status=wrong or "",
        )

    def listed(self) -> Iterator[Listed]:
        """The tasks of the data file, those without a result too."""
        for task in self.tasks.values():
            yield Listed(Place(str(self.data), task.line), task.spec)

    def remark(self) -> None:
        """Say how well results, scores and tasks go together."""
        for sentence in self.scores.remarks(self.label, self.rows) if self.scores is not None else ():
            self.notes.add(sentence)
        if not self.tasks:
            self.notes.add(
                f"{self.label}: no data file above it: the environment is the category, texts and tools are unknown "
                "(import a folder that holds the results, the scores and BFCL's data)"
            )


def _category_in(results: Path) -> str:
    """The category in a result file's name."""
    return re.sub(r"^BFCL_v\d+_", "", results.name).removesuffix("_result.json")


def _model_of(path: Path) -> str | None:
    """The model's folder: the nearest that is no group of categories."""
    folders = [part for part in path.parent.parts if part not in GROUPS]
    return name(folders[-1]) if folders else None


def _total(value: Any) -> float | None:
    """The sum of a number or of nested lists of numbers; None when there is none."""
    if isinstance(value, list):
        amounts = [amount for amount in map(_total, value) if amount is not None]
        return sum(amounts) if amounts else None
    return number(value)


def _transcript(record: Mapping[str, Any], turns: list[Any]) -> tuple[tuple[Message, ...], tuple[ToolCall, ...]]:
    """What was said and called: turns of steps, or one answer."""
    result = record.get("result")
    several = isinstance(result, list) and any(isinstance(turn, list) for turn in result)
    steps = result if several and isinstance(result, list) else [[result]]
    said: list[Message] = []
    calls: list[ToolCall] = []
    for number_of_turn, turn in enumerate(steps):
        said += messages_from(turns[number_of_turn]) if number_of_turn < len(turns) else ()
        for step in turn if isinstance(turn, list) else [turn]:
            made = _calls(step)
            said.append(Message("assistant", "" if made and not isinstance(step, str) else text(step), made))
            calls += made
    logged = tuple(_spoken(record.get("inference_log")))
    return (logged if any(message.role == "assistant" for message in logged) else tuple(said)), tuple(calls)


def _calls(step: Any) -> tuple[ToolCall, ...]:
    """Calls of one step: ``{function: arguments}`` objects, call texts, or none in plain words."""
    if isinstance(step, str):
        return written_calls(step) if step.strip().startswith("[") else ()
    found: list[ToolCall] = []
    for item in step if isinstance(step, list) else [step]:
        if isinstance(item, dict):
            found += [ToolCall(str(key), text(arguments)) for key, arguments in item.items()]
        elif isinstance(item, str):
            found += written_calls(item)
    return tuple(found)


def _spoken(log: Any) -> Iterator[Message]:
    """Messages of a user, an assistant or a tool anywhere in an inference log, in order."""
    if isinstance(log, dict):
        if log.get("role") in SPEAKERS:
            yield from messages_from([log])
            return
        log = list(log.values())
    for item in log if isinstance(log, list) else ():
        yield from _spoken(item)
