"""Verify: the hash chain first, then every decision re-derived from the events and compared byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from envsched_core.errors import EnvSchedError
from envsched_core.records import Decision, Event
from envsched_core.store import Located, RunReader, check_chain

from .pool import Progress
from .rederive import Calls

__all__ = ["Difference", "VerifyReport", "verify"]


class Difference(msgspec.Struct, frozen=True):
    """One place where a run is not what was written, or not what its events lead to."""

    segment: str
    """File inside the run folder."""
    line: int
    """1-based; 0 where lines do not apply."""
    step: int | None
    task: str | None
    """ENV::TASK where one task is concerned."""
    field: str
    """Which field of the payload; empty for a broken chain."""
    was: str
    """What the run says."""
    should_be: str
    """What the events lead to."""
    message: str


class VerifyReport(msgspec.Struct, frozen=True):
    """Whether a run is what it says."""

    ok: bool
    problems: tuple[Difference, ...]
    """Every break of the chain; else the first decision that differs."""
    steps: int
    decisions: int
    """Decisions re-derived and compared."""
    events: int
    checked: str
    """What was checked, in a sentence."""


def verify(run: Path, progress: Progress | None = None) -> VerifyReport:
    """Check a run folder.

    Raises:
        StoreError: it is no run folder. FormatVersionError: a newer version wrote it.
    """
    broken = tuple(Difference(p.segment, p.line, p.step, p.task, "", "", "", p.message) for p in check_chain(run))
    if broken:
        return VerifyReport(False, broken, 0, 0, 0, "the hash chain is broken; no decision was re-derived")
    reader = RunReader(run)
    if not reader.manifest.scheduler:
        events = sum(1 for _ in reader.events())
        return VerifyReport(True, (), 0, 0, events, "the hash chain holds; the run has no decisions to re-derive")
    return _rederive(reader, progress)


def _rederive(reader: RunReader, progress: Progress | None) -> VerifyReport:
    calls, total = Calls(reader), reader.size()
    steps: set[int] = set()
    decisions = events = 0
    for located in reader.events():
        events += 1
        difference = _compare(calls, located, reader)
        if difference is not None:
            found = f"decision {decisions + 1} is not what the events lead to"
            return VerifyReport(False, (difference,), len(steps), decisions, events, found)
        if located.event.kind == "asked":
            decisions += 1
            steps.add(located.event.data.step)
        if progress:
            progress(reader.offset, total)
    same = f"the hash chain holds and all {decisions} decisions were re-derived byte for byte"
    return VerifyReport(True, (), len(steps), decisions, events, same)


def _compare(calls: Calls, located: Located, reader: RunReader) -> Difference | None:
    """Repeat one call; the difference when it does not lead to what is recorded."""
    event = located.event
    try:
        derived = calls.apply(event)
    except EnvSchedError as error:
        return _difference(located, "", "recorded", "refused", f"the {event.kind} call is refused: {error}")
    if derived is None:
        return None
    if msgspec.json.encode(derived) == msgspec.json.encode(event.data):
        return _compare_graph(calls, located, reader)
    field, was, should_be = first_difference(msgspec.to_builtins(event.data), msgspec.to_builtins(derived))
    return _difference(located, field, was, should_be, f"{field} is {was}, the events lead to {should_be}")


def _compare_graph(calls: Calls, located: Located, reader: RunReader) -> Difference | None:
    """Whether the graph that the decision used is the one on disk."""
    graph, version = calls.scheduler.graph, located.event.data.graph_version
    if graph is None or version not in reader.graph_versions():
        return None
    stored = reader.graph(version)
    if stored is None or stored.digest() == graph.digest():
        return None
    return _difference(
        located, "graph", stored.digest(), graph.digest(), f"graph {version} is not the one that the events lead to"
    )


def _difference(located: Located, field: str, was: str, should_be: str, message: str) -> Difference:
    task = _task_of(located.event, field)
    return Difference(located.segment, located.line, located.event.step, task, field, was, should_be, message)


def _task_of(event: Event, field: str) -> str | None:
    """The candidate that a field like ``candidates[3].score`` belongs to."""
    if not isinstance(event.data, Decision):
        return getattr(event.data, "key", None)
    index = field.removeprefix("candidates[").split("]")[0]
    known = field.startswith("candidates[") and int(index) < len(event.data.candidates)
    return event.data.candidates[int(index)].key if known else None


def first_difference(was: Any, should_be: Any, path: str = "") -> tuple[str, str, str]:
    """The first place where two plain values differ: (path, text of one, text of the other).

    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]})
    ('a[1]', '2', '3')
    """
    if isinstance(was, dict) and isinstance(should_be, dict):
        for key in [*was, *(key for key in should_be if key not in was)]:
            if key not in was or key not in should_be or was[key] != should_be[key]:
                step = f"{path}.{key}" if path else str(key)
                return first_difference(was.get(key, "absent"), should_be.get(key, "absent"), step)
    if isinstance(was, list | tuple) and isinstance(should_be, list | tuple):
        for index, (one, other) in enumerate(zip(was, should_be, strict=False)):
            if one != other:
                return first_difference(one, other, f"{path}[{index}]")
        if len(was) != len(should_be):
            return path, f"{len(was)} entries", f"{len(should_be)} entries"
    return path, str(was), str(should_be)
