"""Journal: the same call to a scheduler and to the run folder that records it, in that order."""

from __future__ import annotations

from collections.abc import Sequence

from envsched_core.records import Decision, GroupResult, TaskSpec
from envsched_core.scheduler import Scheduler
from envsched_core.store import RunWriter

__all__ = ["Journal"]


class Journal:
    """A scheduler whose every call goes on record; without a writer it only passes the calls on."""

    def __init__(self, scheduler: Scheduler, writer: RunWriter | None = None) -> None:
        """`scheduler` is fresh; `writer` has just been created."""
        self.scheduler = scheduler
        self.writer = writer
        self._graph = 0

    def register(self, tasks: Sequence[TaskSpec]) -> None:
        """Make tasks known."""
        self.scheduler.register(tasks)
        if self.writer:
            self.writer.add_tasks(tasks)

    def ask(self, n: int, step: int, policy_version: str | None = None) -> Decision:
        """Ask; a new graph is written before the decision that used it, the scores of all tasks after it."""
        decision = self.scheduler.ask(n, step=step, policy_version=policy_version)
        if self.writer:
            graph, scores = self.scheduler.graph, self.scheduler.scores()
            if graph is not None and graph.version != self._graph:
                self.writer.add_graph(graph, step)
                self._graph = graph.version
            self.writer.asked(decision)
            if scores is not None:
                self.writer.add_scores(scores)
        return decision

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
