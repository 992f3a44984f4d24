"""Whether what a run folder holds can be what was written: numbers that would break a table or an index are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envsched_core.graph import DualRelationGraph
from envsched_core.records import EVIDENCE_STATES, OUTCOME_CODES, Decision, Event, GroupResult
from envsched_core.store import StepScores

__all__ = ["graph_fault", "out_of_range", "scores_fault"]

STEPS = 2**53
"""Steps lie below; from here on whole numbers do not fit a float."""
COUNTS = 2**31
"""Ranks and counts lie below; the tables hold 32 bits."""
LARGEST = 1e100
"""Rewards and costs do not go beyond: the square of what does would leave the floats."""


def out_of_range(event: Event) -> str:
    """Which number of an event no run can have come to; empty when all can be."""
    if any(step is not None and abs(step) >= STEPS for step in _steps(event)):
        return f"{event.kind}: a step is out of range"
    if isinstance(event.data, GroupResult) and any(abs(number) > LARGEST for number in _amounts(event.data)):
        return f"{event.kind}: a reward or cost is out of range"
    wrong = any(count is not None and abs(count) >= COUNTS for count in _counts(event.data))
    return f"{event.kind}: a rank or count is out of range" if wrong else ""


def _steps(event: Event) -> Iterator[int | None]:
    yield event.step
    data = event.data
    if isinstance(data, GroupResult | Decision):
        yield data.step
    if isinstance(data, Decision):
        for candidate in data.candidates:
            yield candidate.last_step
            yield from (evidence.last_step for evidence in candidate.evidence)


def _amounts(group: GroupResult) -> Iterator[float]:
    yield from group.rewards
    if group.cost is not None:
        yield from (x for x in (group.cost.tokens, group.cost.seconds, group.cost.turns, group.cost.tool_calls) if x)


def _counts(data: Any) -> Iterator[int | None]:
    if isinstance(data, GroupResult):
        yield data.missing
    if not isinstance(data, Decision):
        return
    yield from (data.asked, data.pool, data.eligible, data.graph_version, *data.counts.values())
    for c in data.candidates:
        yield from (c.position, c.rank, c.groups)
    for q in data.quotas:
        yield from (q.limit, q.floor, q.used, q.blocked)
    for r in data.relaxed:
        yield from (r.limit, r.used)


def scores_fault(scores: StepScores, tasks: int) -> str:
    """Why the scores of a step cannot be those of `tasks` tasks; empty when they can."""
    arrays = {name: np.asarray(value) for name, value in scores._asdict().items() if name != "step"}
    if any(array.ndim != 1 or array.dtype.kind not in "iuf" for array in arrays.values()):
        return "an array is not a list of numbers"
    if len({len(array) for array in arrays.values()}) != 1 or len(arrays["score"]) > tasks:
        return "its arrays do not fit the catalogue"
    for name, codes in (("outcome", OUTCOME_CODES), ("state", EVIDENCE_STATES)):
        if arrays[name].dtype.kind not in "iu" or not _within(arrays[name], len(codes)):
            return f"{name} holds numbers that stand for nothing"
    return "" if arrays["rank"].dtype.kind in "iu" else "rank holds fractions"


def graph_fault(graph: DualRelationGraph, tasks: int) -> str:
    """Why a graph cannot be one over `tasks` tasks; empty when it can."""
    relations = (("within", graph.within, graph.within_parts), ("cross", graph.cross, graph.cross_parts))
    for name, matrix, parts in relations:
        n = matrix.shape[0]
        if n > tasks:
            return "it has more tasks than the catalogue"
        if matrix.indptr[0] != 0 or bool((np.diff(matrix.indptr) < 0).any()) or not _within(matrix.indices, n):
            return f"the {name} edges lead to tasks that there are not"
        if any(values.shape != matrix.data.shape for values in parts.values()):
            return f"the parts of the {name} edges do not fit them"
    return ""


def _within(numbers: NDArray[Any], end: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < end)
