"""Journal: the same call to a scheduler and to the run folder that records it, in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from envsched_core.graph import DualRelationGraph
from envsched_core.records import Decision, GroupResult, TaskSpec
from envsched_core.scheduler import Scheduler
from envsched_core.store import StepScores

__all__ = ["Journal", "Writer"]


class Writer(Protocol):
    """What a journal needs of a `RunWriter`; live.py has one that never raises."""

    def add_tasks(self, tasks: Sequence[TaskSpec]) -> None:
        """Tasks that joined."""

    def add_graph(self, graph: DualRelationGraph, step: int | None) -> None:
        """A new version of the graph."""

    def asked(self, decision: Decision) -> None:
        """One decision."""

    def add_scores(self, scores: StepScores) -> bool:
        """The scores of every task at a step."""

    def observed(self, results: Sequence[GroupResult], step: int | None) -> None:
        """Groups that were observed together."""

    def released(self, pick_ids: Sequence[str], reason: str, step: int | None) -> None:
        """Picks that ended without evidence."""

    def note(self, step: int | None, data: Mapping[str, Any]) -> None:
        """Anything that no replay depends on."""


class Journal:
    """A scheduler whose every call goes on record; without a writer it only passes the calls on."""

    def __init__(self, scheduler: Scheduler, writer: Writer | None = None, *, graph_version: int = 0) -> None:
        """`graph_version`: the newest graph already on record; 0 for a run that has just been created."""
        self.scheduler = scheduler
        self.writer = writer
        self._graph = graph_version

    def register(self, tasks: Sequence[TaskSpec]) -> None:
        """Make tasks known."""
        self.scheduler.register(tasks)
        if self.writer:
            self.writer.add_tasks(tasks)

    def ask(
        self, n: int, step: int, policy_version: str | None = None, *, scores: bool = True, empty: bool = True
    ) -> Decision:
        """Ask; a new graph is written before the decision that used it, the scores of all tasks after it.

        `scores`: whether they are written now; a step that is asked for pick by pick writes them once, at its end.
        `empty`: whether a decision without picks goes on record; only a last ask, which nothing follows, need not.
        """
        decision = self.scheduler.ask(n, step=step, policy_version=policy_version)
        if self.writer and (empty or decision.picks):
            graph = self.scheduler.graph
            if graph is not None and graph.version != self._graph:
                self.writer.add_graph(graph, step)
                self._graph = graph.version
            self.writer.asked(decision)
            if scores:
                self.keep_scores()
        return decision

    def keep_scores(self) -> None:
        """Write the scores that every task has now."""
        scores = self.scheduler.scores() if self.writer else None
        if self.writer and scores is not None:
            self.writer.add_scores(scores)

    def observe(self, results: Sequence[GroupResult], step: int) -> None:
        """Take in groups."""
        self.scheduler.observe(results)
        if self.writer:
            self.writer.observed(results, step)

    def release(self, pick_ids: Sequence[str], reason: str, step: int) -> None:
        """End picks without evidence."""
        self.scheduler.release(pick_ids, reason)
        if self.writer and pick_ids:
            self.writer.released(pick_ids, reason, step)
