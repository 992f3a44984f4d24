"""Verify: the hash chain first, then every decision re-derived from the events and compared byte for byte.

exp and log differ in the last place between processors and versions. A decision that differs in nothing but
numbers closer than 1e-9 is therefore no failure; such decisions are counted and told.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

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
    rounded: int
    """Decisions that agree to 1e-9 but not byte for byte: written by another processor or version."""
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
        named = (_pinpoint(run, broken[0]), *broken[1:])
        return VerifyReport(
            False, named, 0, 0, 0, 0, "the hash chain is broken; it holds up to the first line named here"
        )
    reader = RunReader(run)
    if not reader.manifest.scheduler:
        events = sum(1 for _ in reader.events())
        return VerifyReport(True, (), 0, 0, 0, events, "the hash chain holds; the run has no decisions to re-derive")
    return _rederive(reader, progress)


def _pinpoint(run: Path, broken: Difference) -> Difference:
    """The task and field of a changed decision: the chain knows lines only, but all events before it are sound."""
    if broken.task is not None or not broken.segment.startswith("events"):
        return broken
    try:
        reader = RunReader(run)
        calls = Calls(reader)
        for located in reader.events():
            if (located.segment, located.line) == (broken.segment, broken.line):
                return _changed(calls, located) or broken
            calls.apply(located.event)
    except EnvSchedError:  # so damaged that it cannot be repeated: the line is named, no more can be said
        return broken
    return broken


def _changed(calls: Calls, located: Located) -> Difference | None:
    event = located.event
    if event.kind != "asked":
        return None
    derived = calls.apply(event)
    found = first_difference(msgspec.to_builtins(event.data), msgspec.to_builtins(derived), tolerance=0.0)
    if found is None:
        return None
    field, was, should_be = found
    message = f"changed after it was written (hash differs): {field} is {was}, the events lead to {should_be}"
    return _difference(located, field, was, should_be, message)


def _rederive(reader: RunReader, progress: Progress | None) -> VerifyReport:
    calls, total = Calls(reader), reader.size()
    steps: set[int] = set()
    decisions = rounded = events = 0
    for located in reader.events():
        events += 1
        derived, difference = _repeat(calls, located, reader)
        if difference is not None:
            found = f"decision {decisions + 1} is not what the events lead to"
            return VerifyReport(False, (difference,), len(steps), decisions, rounded, events, found)
        if derived is not None:
            decisions += 1
            rounded += msgspec.json.encode(derived) != msgspec.json.encode(located.event.data)
            steps.add(derived.step)
        if progress:
            progress(reader.offset, total)
    same = f"the hash chain holds and all {decisions} decisions were re-derived" + (
        f", {rounded} of them equal to 1e-9 but not byte for byte (another processor or version)"
        if rounded
        else " byte for byte"
    )
    return VerifyReport(True, (), len(steps), decisions, rounded, events, same)


def _repeat(calls: Calls, located: Located, reader: RunReader) -> tuple[Decision | None, Difference | None]:
    """Repeat one call: the decision it leads to, and the difference when that is not what is recorded."""
    event = located.event
    try:
        derived = calls.apply(event)
    except EnvSchedError as error:
        return None, _difference(located, "", "recorded", "refused", f"the {event.kind} call is refused: {error}")
    if derived is None:
        return None, None
    found = first_difference(msgspec.to_builtins(event.data), msgspec.to_builtins(derived))
    if found is None:
        return derived, _compare_graph(calls, located, reader)
    field, was, should_be = found
    message = f"{field} is {was}, the events lead to {should_be}"
    if field == "config_digest":
        message = f"{message}: {reader.manifest.writer} had other knobs; verify with it, or replay the source again"
    return derived, _difference(located, field, was, should_be, message)


def _compare_graph(calls: Calls, located: Located, reader: RunReader) -> Difference | None:
    """Whether the graph that the decision used is the one on disk, edge for edge."""
    graph, version = calls.scheduler.graph, located.event.data.graph_version
    if graph is None or version not in reader.graph_versions():
        return None
    stored = reader.graph(version)
    if stored is None or all(_same_array(a, graph.arrays()[name]) for name, a in stored.arrays().items()):
        return None
    return _difference(located, "graph", "", "", f"graph {version} is not the one that the events lead to")


def _same_array(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=0, atol=1e-6))


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


def first_difference(
    was: Any, should_be: Any, path: str = "", *, tolerance: float = 1e-9
) -> tuple[str, str, str] | None:
    """The first place where two plain values differ: (path, text of one, text of the other); None when nowhere.

    Numbers closer than `tolerance` (or that part of them) are the same.

    >>> first_difference({"a": [1, 2.0]}, {"a": [1, 3.0]})
    ('a[1]', '2.0', '3.0')
    """
    if isinstance(was, float) and isinstance(should_be, float):
        same = math.isclose(was, should_be, rel_tol=tolerance, abs_tol=tolerance)
        return None if same else (path, str(was), str(should_be))
    if isinstance(was, dict) and isinstance(should_be, dict):
        for key in [*was, *(key for key in should_be if key not in was)]:
            inner = f"{path}.{key}" if path else str(key)
            found = first_difference(was.get(key, "absent"), should_be.get(key, "absent"), inner, tolerance=tolerance)
            if found is not None:
                return found
        return None
    if isinstance(was, list | tuple) and isinstance(should_be, list | tuple) and len(was) == len(should_be):
        pairs = enumerate(zip(was, should_be, strict=True))
        return next(
            (d for i, (a, b) in pairs if (d := first_difference(a, b, f"{path}[{i}]", tolerance=tolerance))), None
        )
    return None if was == should_be else (path, _short(was), _short(should_be))


def _short(value: Any) -> str:
    return f"{len(value)} entries" if isinstance(value, list | tuple) else str(value)
