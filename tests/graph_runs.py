"""A run for the tests of the Graph page whose environments and tasks have the worst of names."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envsched_core.config import Config
from envsched_core.records import GroupResult, TaskSpec, Tool
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunWriter, new_manifest

__all__ = ["HOSTILE_ENVS", "hostile_tasks", "write_hostile_run"]

HOSTILE_ENVS = (
    '</script><script>document.title="owned"</script>',
    '<img src="http://elsewhere.invalid/x" onerror="alert(1)">',
    'a" b=\'c\' &amp; <a href="http://elsewhere.invalid/">go</a> {{7*7}}',
    "bell\x07 and \u2028 line **bold** $x$",
)
TOOLS = (Tool("search_flights", "Search", ("origin",)), Tool("book_flight", "Book", ("flight",)))


def hostile_tasks(each: int = 6) -> list[TaskSpec]:
    return [
        TaskSpec(
            env, f'{t}<b onmouseover="alert(2)">href</b>', f"<script>alert(3)</script> flight {t}", TOOLS, ("flights",),
            "checks", ("search_flights",) * (1 + t % 3) + ("book_flight",),
        )
        for env in HOSTILE_ENVS
        for t in range(each)
    ]  # fmt: skip


def write_hostile_run(path: Path, steps: int = 3) -> Path:
    """Steps of six picks with trust in both relations, so that evidence flows along edges; the last step is open."""
    config = Config(batch_size=6, seed=5, tau_within_grid=(1.0,), tau_cross_grid=(0.5,), learn_trust=False)
    scheduler, tasks = EnvSched(config), hostile_tasks()
    scheduler.register(tasks)
    facts = {name: getattr(config, name) for name in config.__struct_fields__}
    manifest = new_manifest(path.name, "live", scheduler="envsched", config=facts, batch_size=6, simulated=True)
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks(tasks)
        writer.add_graph(scheduler.graph, None)
        for step in range(steps):
            decision = scheduler.ask(6, step=step)
            writer.asked(decision)
            scores = scheduler.scores()
            writer.add_scores(scores)
            if step == steps - 1:
                break
            rng = np.random.default_rng(step)
            results = [
                GroupResult(f"g{step}-{i}", p.env, p.task, tuple(float(x) for x in rng.random(4) < 0.5), step=step)
                for i, p in enumerate(decision.picks)
            ]
            scheduler.observe(results)
            writer.observed(results, step)
    return path
