"""BFCL's own data: tasks, documents of the API classes and reference answers, joined by file and task id.

`BFCL_v4_{category}.json` holds the tasks (v3: `BFCL_v3_...`), `multi_turn_func_doc/` beside it one file of tools for
each API class, `possible_answer/` the answers under the same file name. The environment of a task is the set of
its API classes; where there are none (single turn, with the functions in the task), its category. The reference
path is that of the answer: a task's own `path` names functions that no document has, and stands in only without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from envsched_core.records import TaskSpec, Tool

from .failures import path_of
from .files import Source, records
from .messages import tools_from
from .values import name, names, prompt

__all__ = [
    "DOCUMENTS",
    "DOCUMENTS_FOLDER",
    "Task",
    "answers_of",
    "category_of",
    "checker_of",
    "data_file_of",
    "tasks_of",
]

DOCUMENTS_FOLDER = "multi_turn_func_doc"
DOCUMENTS = {
    "GorillaFileSystem": ("gorilla_file_system",),
    "MathAPI": ("math_api",),
    "MemoryAPI": ("memory_kv", "memory_vector", "memory_rec_sum"),
    "MessageAPI": ("message_api",),
    "TicketAPI": ("ticket_api",),
    "TradingBot": ("trading_bot",),
    "TravelAPI": ("travel_booking",),
    "TwitterAPI": ("posting_api",),
    "VehicleControlAPI": ("vehicle_control",),
    "WebSearchAPI": ("web_search",),
}
"""API class -> its files in that folder; the memory has three back ends, one class name for all."""

BACK_ENDS = ("kv", "vector", "rec_sum")
"""Of the memory: results name one, the data stands for all."""
ONE_OF = re.compile(r"(memory|web_search)_(?:kv|vector|rec_sum|base|no_snippet)\b")
CATEGORY = re.compile(r"([A-Za-z][A-Za-z_]*?)_\d")
IN_WORDS = "answer in the last message"
CHECKERS = (
    ("multi_turn", "state and response"),
    ("memory", IN_WORDS),
    ("web_search", IN_WORDS),
    ("irrelevance", "no call"),
    ("live_irrelevance", "no call"),
    ("live_relevance", "any call"),
)
"""Category's beginning -> what its rewards check; calls against the possible answers otherwise."""
PLACES = ("", "data", "bfcl_eval/data")
"""Where the data stands, seen from the folder of a run or one above it."""
LEVELS = 6


class Task(NamedTuple):
    """A task of a data file."""

    line: int
    spec: TaskSpec
    turns: list[list[Any]]
    """Messages put to the model, turn by turn."""


def category_of(task: str) -> str:
    """The category in a task's id: all before its number."""
    found = CATEGORY.match(task)
    return found.group(1) if found else "BFCL"


def checker_of(category: str) -> str:
    """What the reward of a category checks."""
    return next((checker for start, checker in CHECKERS if category.startswith(start)), "calls")


def data_file_of(results: Path) -> Path | None:
    """The tasks of a result file, in its folder or one above it."""
    wanted = results.name.replace("_result.json", ".json")
    names_of_it = dict.fromkeys((wanted, ONE_OF.sub(r"\1", wanted)))
    near = (
        folder / place / file for folder in list(results.parents)[:LEVELS] for place in PLACES for file in names_of_it
    )
    return next((path for path in near if path != results and path.is_file()), None)


def tasks_of(path: Path, category: str = "") -> dict[str, Task]:
    """Task id -> task, of a data file; `category` is that of a result file on one back end, which is in its ids."""
    answers = answers_of(path.parent / "possible_answer" / path.name)
    found: dict[str, Task] = {}
    for record in records(Source(path), "jsonl"):
        task = None if record.problem else name(record.value.get("id"))
        if task is not None:
            own = category_of(task)
            one_of = category != own and ONE_OF.sub(r"\1", category) == own
            run = category + task[len(own) :] if one_of else str(task)
            spec = _spec(record.value, run, path.parent, answers.get(str(task)))
            found.setdefault(run, Task(record.line, spec, list(_turns(record.value.get("question")))))
    return found


def answers_of(path: Path) -> dict[str, tuple[str, ...]]:
    """Task id -> names of the calls of its reference answer, where that has calls; empty without such a file."""
    if not path.is_file():
        return {}
    rows = (record.value for record in records(Source(path), "jsonl") if not record.problem)
    found = {str(row.get("id")): row.get("ground_truth") for row in rows}
    return {task: _called(answer) for task, answer in found.items() if checker_of(category_of(task)) != IN_WORDS}


def _spec(record: Mapping[str, Any], task: str, folder: Path, answer: tuple[str, ...] | None) -> TaskSpec:
    """One task."""
    category = category_of(task)
    ends = {end for end in BACK_ENDS if category == f"memory_{end}"}
    involved = set(names(record.get("involved_classes")))
    classes = tuple(sorted(f"{api}_{end}" for api in involved for end in ends) if ends else sorted(involved))
    left_out = set(names(record.get("excluded_function")))
    own = tools_from(record.get("function"))
    tools = own or tuple(tool for tool in _documents(classes, category, folder) if tool.name not in left_out)
    path = record.get("path")
    return TaskSpec(
        env="+".join(classes) or category,
        task=task,
        text=prompt([message for turn in _turns(record.get("question")) for message in turn]),
        tools=tools,
        state=classes,
        verifier=checker_of(category),
        calls=answer if answer is not None or not path else tuple(step.rpartition(".")[2] for step in names(path)),
    )


def _turns(question: Any) -> Iterator[list[Any]]:
    """The turns of a task; one that has a single turn may give its messages without the outer list."""
    for turn in question if isinstance(question, list) else [question]:
        yield turn if isinstance(turn, list) else [turn]


def _documents(classes: tuple[str, ...], category: str, folder: Path) -> tuple[Tool, ...]:
    """Tools of API classes; of the memory's back ends the one that the category names, or all."""
    files = [file for api in classes for file in DOCUMENTS.get(api.partition("_")[0], ())]
    chosen = [file for file in files if not file.startswith("memory") or category.endswith(file)] or files
    above = (folder, *list(folder.parents)[:2])
    documents = next((place for place in above if (place / DOCUMENTS_FOLDER).is_dir()), folder) / DOCUMENTS_FOLDER
    tools = [tool for file in chosen for tool in _tools(documents / f"{file}.json")]
    return tuple({tool.name: tool for tool in tools}.values())


def _tools(path: Path) -> tuple[Tool, ...]:
    """The tools of one file, read again only when it has changed."""
    if not path.is_file():
        return ()
    found = path.stat()
    return _read_tools(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _read_tools(path: Path, size: int, changed: int) -> tuple[Tool, ...]:
    return tools_from([record.value for record in records(Source(path), "jsonl") if not record.problem])


def _called(answer: Any) -> tuple[str, ...]:
    """Names of the calls of an answer: call texts by turn, or objects by function."""
    if isinstance(answer, list) and any(isinstance(item, dict) for item in answer):
        return tuple(str(key) for item in answer if isinstance(item, dict) for key in item)
    return path_of(answer)
