"""Runs of any size for the pages: an invented catalogue, the real scheduler, keyed rewards, the real store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from envsched_core.bench.invented import invented_results, invented_tasks
from envsched_core.config import config_from
from envsched_core.records import GroupResult, Pick, TaskSpec
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunWriter, new_manifest

__all__ = ["write_invented"]

CHUNK = 10_000
"""Groups written at once."""


def write_invented(
    path: Path, *, tasks: int, environments: int, steps: int, batch: int = 256, group: int = 8, rows: int = 0
) -> Path:
    """A finished live run; groups nobody asked for follow until groups and kept candidates are `rows` or more."""
    catalogue, config = invented_tasks(tasks, environments, seed=1), {"batch_size": batch}
    known, scheduler = {task.key: task for task in catalogue}, EnvSched(config_from(config))
    facts = {"scheduler": "envsched", "config": config, "batch_size": batch, "simulated": True}
    manifest = new_manifest(path.name, "live", source={"plan": {"steps": steps}}, **facts)
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks(catalogue)
        scheduler.register(catalogue)
        assert scheduler.graph is not None
        writer.add_graph(scheduler.graph, None)
        for step in range(steps):
            decision = scheduler.ask(batch, step=step)
            writer.asked(decision)
            scores = scheduler.scores()
            assert scores is not None
            writer.add_scores(scores)
            results = invented_results(decision.picks, [known[pick.key] for pick in decision.picks], step, group)
            scheduler.observe(results)
            writer.observed(results, step)
            rows -= len(decision.candidates) + len(results)
        for step, results in _unasked(catalogue, rows, steps, group):
            writer.observed(results, step)
    return path


def _unasked(tasks: Sequence[TaskSpec], rows: int, steps: int, group: int) -> Iterator[tuple[int, list[GroupResult]]]:
    """Groups of a trainer that also draws tasks of its own accord, spread evenly over tasks and steps."""
    for first in range(0, rows, CHUNK):
        numbers, step = np.arange(first, min(first + CHUNK, rows)), first * steps // rows
        specs = [tasks[i] for i in (numbers * 7919 % len(tasks)).tolist()]
        picks = [Pick(f"own-{number}", spec.env, spec.task, 0) for number, spec in zip(numbers, specs, strict=True)]
        yield step, invented_results(picks, specs, step, group)
