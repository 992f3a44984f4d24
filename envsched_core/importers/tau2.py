"""tau2-bench: results (one object, or a folder with one file a simulation), and task files as a catalogue.

All trials of a task in a run are a group. A simulation that never came to be judged (`reward_info` null, an error
of the infrastructure, a context window that was full) has a missing reward. Only the agent's calls count as calls:
in some domains the simulated user has tools too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from envsched_core.errors import LogFormatError
from envsched_core.limits import RECORD_BYTES
from envsched_core.records import Place, TaskSpec, Tool

from .base import Carries, Context, Drop, ImportOptions, Listed, Row, RowError, as_listed, as_rows
from .files import Head, Record, Source, decode, head_of, items_of, members_of, records
from .identity import Identity
from .messages import assistant_turns, calls_of, messages_from, tools_from
from .values import floats, name, names, number, reward, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "tau2-bench: results.json with simulations (or a folder of them), or tasks.json alone as a catalogue"
CARRIES = Carries(
    env="yes",
    task="yes",
    group="yes",
    step="no",
    parts="yes",
    tools="some",
    calls="yes",
    messages="yes",
    cost="yes",
    policy="yes",
    every_group="yes",
    limits="tool documents are in newer results only: --tools FILE, or tools-data.json beside a task file, adds them",
)
COMPANIONS = ("tools-data.json",)
NEEDS: tuple[str, ...] = ()

RESULTS = {"info", "tasks"}
SIMULATION = {"task_id", "termination_reason", "reward_info"}
TASK = {"user_scenario", "evaluation_criteria"}
NEVER_JUDGED = {"infrastructure_error", "context_window_exceeded", "unexpected_error"}
"""Reasons of an end before there was anything to judge."""
SAID = ("task_instructions", "reason_for_call", "known_info", "unknown_info")
"""Parts of a user's instructions, in the order they are read."""
DOCUMENTS = "tools-data.json"


class _Run(NamedTuple):
    """What is said of all simulations of a run."""

    env: str
    model: str | None
    tools: tuple[Tool, ...]
    tasks: dict[str, TaskSpec]


NO_RUN = _Run("", None, (), {})


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether this is a run's results, one simulation of it, a list of tasks or tool documents by domain."""
    keys = set(head.keys)
    if head.kind in ("object", "jsonl") and keys >= RESULTS:
        return bool({"simulations", "simulation_index"} & keys)
    if keys >= SIMULATION and head.kind != "csv":
        return True
    return (head.kind in ("array", "jsonl") and keys >= TASK) or _is_documents(head)


def _is_documents(head: Head) -> bool:
    """Whether every member is a domain with a description and tools."""
    domains = head.first.values() if head.path.name == DOCUMENTS else ()
    return head.kind in ("object", "jsonl") and any(isinstance(item, dict) and "tools" in item for item in domains)


def read(source: Source, context: Context) -> Iterator[Row | Drop | Listed]:
    """Every simulation, and every task that is listed."""
    head = head_of(source.path)
    keys = set(head.keys)
    if keys >= RESULTS:
        run = _run_at(source.path)
        yield from (Listed(Place(source.label, number), task) for number, task in enumerate(run.tasks.values(), 1))
        yield from _simulations(items_of(source, "simulations"), source, context, run, source.label)
    elif keys >= SIMULATION:
        yield from _simulations(records(source, head.kind), source, context, _run_around(source.path), _folder(source))
    elif keys >= TASK:
        yield from _catalogue(source, head, context)
    elif not _is_documents(head):
        raise LogFormatError("is no file of tau2-bench: neither simulations nor tasks", file=source.label)
    else:
        context.notes.add("files of tool documents are read with the task files beside them")


def _folder(source: Source) -> str:
    """The run of a file that holds one simulation: the folder above its own."""
    above = PurePosixPath(source.label).parent.parent
    return str(above) if above.name else source.label


def _simulations(
    found: Iterator[Record], source: Source, context: Context, run: _Run, group: str
) -> Iterator[Row | Drop]:
    """Simulations of a run as rows."""
    part = context.options.reward

    def parse(item: Mapping[str, Any], place: Place, mark: int) -> Row:
        return _simulation(item, place, mark if item.get("trial") is not None else 0, (run, group, part))

    yield from as_rows(found, source, parse, Identity(source, context, "tau2"))


def _simulation(item: Mapping[str, Any], place: Place, mark: int, of: tuple[_Run, str, str | None]) -> Row:
    """One simulation."""
    run, group, part = of
    task = name(item.get("task_id"))
    if task is None:
        raise RowError("no task_id")
    judged = item.get("reward_info")
    judged = judged if isinstance(judged, Mapping) else {}
    reason = text(item.get("termination_reason"))
    parts = floats(judged.get("reward_breakdown"))
    score = reward(judged.get("reward") if part in (None, "reward") else parts.get(part or ""))
    messages = messages_from(list(_flat(item.get("messages"))))
    spec = run.tasks.get(task)
    calls = calls_of(tuple(message for message in messages if message.role == "assistant"))
    return Row(
        place,
        run.env,
        task,
        (None if reason in NEVER_JUDGED else score,),
        group=group,
        policy_version=run.model,
        mark=mark,
        text=spec.text if spec else "",
        tools=run.tools,
        state=spec.state if spec else (),
        verifier=" + ".join(names(judged.get("reward_basis"))) or (spec.verifier if spec else ""),
        reference=spec.calls if spec else None,
        parts=parts,
        messages=messages,
        calls=calls,
        tokens=_tokens(item.get("messages")),
        seconds=number(item.get("duration")),
        turns=float(assistant_turns(messages)),
        tool_calls=float(len(calls)),
        status=reason,
    )


def _flat(messages: Any) -> Iterator[Any]:
    """Messages in order; one that holds the answers of several tools gives each of them."""
    for message in messages if isinstance(messages, list) else ():
        inner = message.get("tool_messages") if isinstance(message, dict) else None
        yield from inner if isinstance(inner, list) else [message]


def _tokens(messages: Any) -> float | None:
    """Tokens that the agent wrote; None when the log counts none."""
    usages = [m.get("usage") for m in _flat(messages) if isinstance(m, dict) and m.get("role") == "assistant"]
    amounts = [number(usage.get("completion_tokens")) for usage in usages if isinstance(usage, dict)]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _run_around(simulation: Path) -> _Run:
    """The run of a file that holds one simulation: results.json in the folder above."""
    results = simulation.parent.parent / "results.json"
    return _run_at(results) if results.is_file() else NO_RUN


def _run_at(results: Path) -> _Run:
    found = results.stat()
    return _run_of(results, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=2)
def _run_of(results: Path, size: int, changed: int) -> _Run:
    """What a results file says of its simulations, read again only when it has changed."""
    members = members_of(Source(results), frozenset(RESULTS))
    info = members.get("info")
    info = info if isinstance(info, Mapping) else {}
    around, agent = info.get("environment_info"), info.get("agent_info")
    around = around if isinstance(around, Mapping) else {}
    env = name(around.get("domain_name")) or ""
    tools = tools_from(around.get("tool_defs"))
    listed = members.get("tasks")
    tasks = [_task(item, env, tools) for item in (listed if isinstance(listed, list) else ()) if isinstance(item, dict)]
    model = name(agent.get("llm") or agent.get("implementation")) if isinstance(agent, Mapping) else None
    return _Run(env, model, tools, {task.task: task for task in tasks if task.task})


def _task(item: Mapping[str, Any], env: str, tools: tuple[Tool, ...]) -> TaskSpec:
    """One task."""
    criteria = item.get("evaluation_criteria")
    criteria = criteria if isinstance(criteria, Mapping) else {}
    actions = criteria.get("actions")
    basis = criteria.get("reward_basis") or (["DB", "COMMUNICATE"] if criteria else [])
    return TaskSpec(
        env or _domain_of(item) or "",
        str(name(item.get("id")) or ""),
        _asked(item),
        tools,
        _state(item.get("initial_state")),
        " + ".join(names(basis)),
        names(_of_agent(actions)) if isinstance(actions, list) else None,
    )


def _of_agent(actions: list[Any]) -> list[Any]:
    """The reference actions that the agent takes, not the user."""
    return [action for action in actions if not (isinstance(action, dict) and action.get("requestor") == "user")]


def _instructions(item: Mapping[str, Any]) -> Any:
    scenario = item.get("user_scenario")
    return scenario.get("instructions") if isinstance(scenario, Mapping) else None


def _domain_of(item: Mapping[str, Any]) -> str | None:
    """The domain that a task names."""
    instructions = _instructions(item)
    return name(instructions.get("domain")) if isinstance(instructions, Mapping) else None


def _asked(item: Mapping[str, Any]) -> str:
    """What the simulated user is told."""
    instructions = _instructions(item)
    if not isinstance(instructions, Mapping):
        return text(instructions) or text(item.get("ticket"))
    return "\n".join(text(instructions[part]) for part in SAID if instructions.get(part))


def _state(initial: Any) -> tuple[str, ...]:
    """Tables that a task sets up before it begins."""
    data = initial.get("initialization_data") if isinstance(initial, Mapping) else None
    agent = data.get("agent_data") if isinstance(data, Mapping) else None
    return tuple(map(str, agent)) if isinstance(agent, Mapping) else ()


def _catalogue(source: Source, head: Head, context: Context) -> Iterator[Drop | Listed]:
    """Every task of a task file."""
    documents = _documents(source.path.parent / DOCUMENTS)
    default = context.options.env or _named(source.path, documents)

    undocumented: dict[str, None] = {}

    def listed(item: Mapping[str, Any]) -> Iterator[TaskSpec]:
        env = _domain_of(item) or default
        spec = _task(item, env, documents.get(env, ()))
        if not spec.task:
            raise RowError("no id")
        documented = {tool.name for tool in spec.tools}
        undocumented.update(dict.fromkeys(call for call in spec.calls or () if call not in documented))
        yield spec

    yield from as_listed(records(source, head.kind), source, listed)
    if documents and undocumented:
        shown = ", ".join(list(undocumented)[:4]) + (", ..." if len(undocumented) > 4 else "")
        context.notes.add(
            f"{source.label}: {len(undocumented):,} tools of the reference calls are not in {DOCUMENTS} ({shown})"
        )
    if not documents and context.options.tools is None:
        context.notes.add(f"{source.label}: no {DOCUMENTS} beside it: tools are unknown (--tools FILE adds them)")


def _named(path: Path, documents: Mapping[str, Any]) -> str:
    """The domain that a task file's name, or its folder's, tells; the benchmark's name when neither does."""
    words = (path.stem.removesuffix("_tasks").removesuffix("tasks"), path.parent.name)
    known = next((word for word in words if word in documents), "")
    return known or words[0].strip("_") or (words[1] if path.stem == "tasks" else "") or "tau2"


def _documents(path: Path) -> dict[str, tuple[Tool, ...]]:
    """Tools by domain, of a file of tool documents; empty when there is none."""
    if not path.is_file() or path.stat().st_size > RECORD_BYTES.now():
        return {}
    try:
        value = decode(path.read_bytes())
    except ValueError:
        return {}
    domains = value.items() if isinstance(value, dict) else ()
    return {str(domain): tools_from(item.get("tools")) for domain, item in domains if isinstance(item, dict)}
