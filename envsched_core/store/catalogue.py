"""tasks.jsonl and tools.jsonl: each task a line, each tool of an environment documented once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from envsched_core.errors import DamagedError
from envsched_core.records import TaskSpec, Tool

from .files import TASKS, TOOLS, encode, kept_inside, read_line

_BLOCK = 1 << 20

Known = dict[tuple[str, str], Tool]
"""(environment, tool name) -> how tools.jsonl documents it."""


class TaskLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A TaskSpec as it is written: a tool is a name, or in full where it differs from what tools.jsonl says."""

    env: str
    task: str
    text: str = ""
    tools: tuple[str | Tool, ...] = ()
    state: tuple[str, ...] = ()
    verifier: str = ""
    calls: tuple[str, ...] | None = None
    draws: int | None = None


class ToolLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool of one environment."""

    env: str
    name: str
    description: str = ""
    parameters: tuple[str, ...] = ()


Line = TypeVar("Line", TaskLine, ToolLine)


def catalogue_lines(tasks: Sequence[TaskSpec], known: Known) -> tuple[list[bytes], list[bytes]]:
    """Task lines and the lines of tools not documented yet; adds those to `known`."""
    task_lines, tool_lines = [], []
    for task in tasks:
        for tool in task.tools:
            if (task.env, tool.name) not in known:
                known[task.env, tool.name] = tool
                tool_lines.append(encode(ToolLine(task.env, tool.name, tool.description, tool.parameters)) + b"\n")
        tools = tuple(tool.name if known[task.env, tool.name] == tool else tool for tool in task.tools)
        task_lines.append(encode(TaskLine(**{**_fields(task), "tools": tools})) + b"\n")
    return task_lines, tool_lines


def _fields(task: TaskSpec) -> dict[str, Any]:
    return {name: getattr(task, name) for name in TaskSpec.__struct_fields__}


def read_tools(run: Path) -> Known:
    """Every documented tool."""
    lines = _read(run, TOOLS, ToolLine)
    return {(line.env, line.name): Tool(line.name, line.description, line.parameters) for line in lines}


def count_tasks(run: Path) -> int:
    """Whole lines of tasks.jsonl."""
    path = kept_inside(run, TASKS)
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))


def read_tasks(run: Path) -> Iterator[TaskSpec]:
    """Every task in order of registration.

    Raises:
        DamagedError: a line cannot be read; positions of tasks matter, so none is passed over.
    """
    known = read_tools(run)
    for line in _read(run, TASKS, TaskLine):
        tools = tuple(_tool(run, line, tool, known) for tool in line.tools)
        yield TaskSpec(line.env, line.task, line.text, tools, line.state, line.verifier, line.calls, line.draws)


def _tool(run: Path, line: TaskLine, tool: str | Tool, known: Known) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if (line.env, tool) not in known:  # a writer documents a tool before it writes the first task that names it
        known.update(read_tools(run))
    if (line.env, tool) not in known:
        raise DamagedError(f"{run / TOOLS} does not document tool {tool!r} of {line.env}, which {line.task} names")
    return known[line.env, tool]


def _read(run: Path, name: str, kind: type[Line]) -> Iterable[Line]:
    """Whole lines of a file; a torn tail is left."""
    path = kept_inside(run, name)
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for number in count(1):
            line = read_line(file, path, f":{number}")
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise DamagedError(f"{path}:{number}: {error}; make the run again from its source") from error
