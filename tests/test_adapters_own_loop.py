"""Loops of one's own, and ART's pipeline, which pulls scenarios one at a time and skips when it resumes."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

from adapter_checks import BATCH, at_desk, close, killed, observed, on_the_page, picks, rewards, same_after_a_kill

from envsched_core.adapters.own_loop import Scenarios

SCENARIOS = [{"env": ("shop", "bank")[k % 2], "task_id": f"t{k}", "question": f"Order {k}?"} for k in range(24)]


def scenarios_at(run: Path, **more: Any) -> Scenarios[dict[str, str]]:
    return Scenarios(SCENARIOS, at_desk(run), **more)


def loop(run: Path, first: int, last: int) -> None:
    scenarios = scenarios_at(run, most=(last - first) * BATCH)
    batch: list[dict[str, str]] = []
    for scenario in scenarios:
        batch.append(scenario)
        if len(batch) == BATCH:
            for done in reversed(batch):
                scenarios.report(done, rewards(done["task_id"]), cost={"tokens": 40.0})
            batch = []


async def pipeline(scenarios: Any, count: int, offset: int = 0) -> list[str]:
    """As ART's pipeline: two workers; what it had before is pulled and dropped; groups end out of order."""
    pulled = []
    for _ in range(offset):
        await anext(scenarios)
    running = []
    async for scenario in scenarios:
        pulled.append(scenario["task_id"])
        running.append(scenario)
        if len(running) == 2:
            await asyncio.sleep(0)
            done = running.pop()
            scenarios.report(copy.deepcopy(done), rewards(done["task_id"]))
        if len(pulled) == count:
            break
    return pulled


def test_a_plain_loop_resumes_to_the_same_picks(tmp_path):
    same_after_a_kill(loop, tmp_path, steps=8, kill_after=4)


def test_a_plain_loop_is_on_record(tmp_path):
    loop(tmp_path / "run", 0, 6)
    found = observed(tmp_path / "run")
    assert len(found) == 6 * BATCH
    assert all(list(g.rewards) == rewards(g.task) and g.cost.tokens == 40.0 for g in found.values())
    assert on_the_page(tmp_path / "run", 5) == BATCH
    close(tmp_path / "run")


def test_a_pipeline_that_pulls_and_skips_gets_the_same_scenarios(tmp_path):
    scenarios = scenarios_at(tmp_path / "run", replay=True)
    first = asyncio.run(pipeline(scenarios, 10))
    again = scenarios_at(killed(tmp_path / "run", tmp_path / "again"), replay=True)
    assert asyncio.run(pipeline(again, 10, offset=6))[:4] == first[6:]
    reported = observed(tmp_path / "again")
    assert all(list(g.rewards) == rewards(g.task) for g in reported.values())
    assert len(reported) == 16 - 1  # 6 to 9 came twice and count once, the last is under way
    assert picks(tmp_path / "again")[0] == picks(tmp_path / "run")[0]
    close(tmp_path / "run"), close(tmp_path / "again")


def test_dropped_and_unknown_scenarios_do_no_harm(tmp_path):
    scenarios = scenarios_at(tmp_path / "run", most=3)
    one, two, three = scenarios
    scenarios.drop(one, "error")
    scenarios.report(two, None)
    scenarios.report(three, ["x", None, float("nan"), 1])
    scenarios.report({"not": "one"}, [1.0])
    scenarios.report(three, [1.0])  # it has ended already
    scenarios.drop(object(), "error")
    metrics = scenarios.slots.metrics()
    assert [metrics[f"picks/{name}"] for name in ("released", "observed", "open")] == [1, 2, 1]
    assert metrics["adapter/unknown_group"] == 3
    close(tmp_path / "run")
