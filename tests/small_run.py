"""A small run for the tests of views and dashboard: simulated rewards, the real scheduler, the real store."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envsched_core.config import Config
from envsched_core.records import Cost, GroupResult, Message, Place, Rollout, TaskSpec, Tool, ToolCall
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunWriter, new_manifest
from envsched_core.views import RunView

HOSTILE = "<script>alert(1)</script> **bold** $x^2$ :material/bug_report: =1+1"
"""Text of the first task: nothing of it may ever be rendered."""
TOOLS = (Tool("search_flights", "Search flights", ("origin",)), Tool("book_flight", "Book a flight", ("flight",)))


def catalogue(envs: int = 4, tasks: int = 12) -> list[TaskSpec]:
    out = []
    for e in range(envs):
        for t in range(tasks):
            text = HOSTILE if e == t == 0 else f"Book flight {t} in market {e} for a family of {t % 3}"
            calls = ("search_flights",) * (1 + t % 3) + ("book_flight",)
            out.append(TaskSpec(f"env{e}", f"task-{t}", text, TOOLS, ("flights",), "checks", calls, draws=2))
    return out


def opened(path: Path) -> RunView:
    """A run with all its events read."""
    view = RunView(path)
    view.poll()
    return view


def simulated(env: str, task: str, step: int, number: int, offsets: tuple[int, ...] = ()) -> GroupResult:
    e, t = int(env[3:]), int(task[5:])
    rng = np.random.default_rng([e, t, step])
    rewards = tuple(float(r) for r in (rng.random(4) < (t / 12 + e / 8) % 1.0))
    places = tuple(Place("log.jsonl", 4 * number + i + 1) for i in range(4))
    calls = (("search_flights", "book_flight"),) * 4
    cost = Cost(tokens=400.0, seconds=12.0, turns=4.0, tool_calls=8.0)
    return GroupResult(
        f"g{number}", env, task, rewards, step=step, cost=cost, calls=calls, places=places, offsets=offsets
    )


def rollouts(group: GroupResult) -> list[Rollout]:
    calls = (ToolCall("search_flights", '{"origin": "<b>ZRH</b>"}'), ToolCall("book_flight", "{}"))
    messages = (Message("user", HOSTILE), Message("assistant", "Booked.", calls))
    return [
        Rollout(group.group_id, group.env, group.task, i, r, {}, messages, calls, 100.0, 3.0, "", group.places[i])
        for i, r in enumerate(group.rewards)
    ]


def write_run(path: Path, *, steps: int = 4, batch: int = 8, release: bool = True, last_open: bool = False) -> Path:
    """A live run of `steps` steps; the first pick of step 1 is released, the last step may still be open."""
    config = Config(batch_size=batch, max_share=0.3, seed=3)
    facts = {"scheduler": "envsched", "config": _plain(config), "batch_size": batch, "simulated": True}
    manifest = new_manifest(path.name, "live", **facts)
    scheduler, tasks, number = EnvSched(config), catalogue(), 0
    scheduler.register(tasks)
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks(tasks)
        assert scheduler.graph is not None
        writer.add_graph(scheduler.graph, None)
        for step in range(steps):
            decision = scheduler.ask(batch, step=step)
            writer.asked(decision)
            scores = scheduler.scores()
            assert scores is not None
            writer.add_scores(scores)
            picks = list(decision.picks)
            if release and step == 1:
                scheduler.release([picks[0].pick_id], "truncated")
                writer.released([picks[0].pick_id], "truncated", step)
                picks = picks[1:]
            if last_open and step == steps - 1:
                break
            results = []
            for pick in picks:
                bare = simulated(pick.env, pick.task, step, number)
                offsets = writer.add_rollouts(rollouts(bare))
                results.append(simulated(pick.env, pick.task, step, number, tuple(offsets)))
                number += 1
            scheduler.observe(results)
            writer.observed(results, step)
    return path


def write_log(path: Path, *, steps: bool = True) -> Path:
    """An imported log: groups nobody asked for, with or without steps, and a reward range of its own."""
    tasks = catalogue(envs=2)
    manifest = new_manifest(path.name, "import", reward_ranges={"env0": (0.0, 2.0)}, ranges_observed=True)
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks(tasks)
        for i, task in enumerate(tasks):
            group = simulated(task.env, task.task, i // 6, i)
            writer.observed([group if steps else _stepless(group)], i // 6 if steps else None)
    return path


def _stepless(group: GroupResult) -> GroupResult:
    return GroupResult(group.group_id, group.env, group.task, group.rewards)


def _plain(config: Config) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__struct_fields__}
