"""The named actor on a real local Ray: workers that report, one that is killed, and how long an ask takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_checks import BATCH, CONFIG, GROUP, observed, on_the_page, reward, rewards, rows

from envsched_core.adapters.ray import RayScheduler
from envsched_core.adapters.reading import tasks_of
from envsched_core.adapters.slots import Slots
from envsched_core.adapters.tinker import TinkerDataset
from envsched_core.adapters.verl import verl_reward

ray: Any = pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings are not ours

REPORTERS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}  # all of it stays on this machine
    here = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="trainer",
        runtime_env={"env_vars": {"PYTHONPATH": ":".join(here), "OPENBLAS_NUM_THREADS": "1"}},
    )  # fmt: skip
    yield
    ray.shutdown()


class Reporter:
    """A reward worker: finds the actor by its name, scores one rollout after another."""

    def __init__(self, name: str) -> None:
        self.desk = RayScheduler(name=name)
        self.score = verl_reward(lambda source, text, truth, extra_info=None: float(text), self.desk)

    def work(self, jobs: list[tuple[dict[str, Any], int]], pause: float = 0.0) -> int:
        for tag, rollout in jobs:
            self.score("", f"{reward(tag['task'], rollout)}", None, extra_info={"envsched": tag})
            time.sleep(pause)
        return len(jobs)

    def done(self) -> None:
        self.desk.flush()


def reporters(name: str, count: int) -> list[Any]:
    return [ray.remote(Reporter).options(num_cpus=0).remote(name) for _ in range(count)]


def jobs_of(slots: list[Any]) -> list[tuple[dict[str, Any], int]]:
    return [(slot.open.tag(), k) for slot in slots for k in range(GROUP)]


def test_single_rewards_of_several_workers_are_groups_and_everybody_finds_the_one_actor(cluster, tmp_path):
    desk = RayScheduler(tmp_path / "run", CONFIG, name="one")
    again = RayScheduler(tmp_path / "other", {}, name="one")
    assert (desk.batch_size, again.batch_size, again.group_size) == (BATCH, BATCH, GROUP)
    slots = Slots(desk, tasks_of(rows()))
    workers = reporters("one", 3)
    for step in range(4):
        batch = [slots.at(step * BATCH + k) for k in range(BATCH)]
        jobs = jobs_of(batch)
        ray.get([w.work.remote(jobs[k :: len(workers)]) for k, w in enumerate(workers)])
    ray.get([w.done.remote() for w in workers])
    assert desk.metrics()["groups/observed"] == 4 * BATCH
    desk.close()
    found = observed(tmp_path / "run")
    assert all(sorted(g.rewards) == sorted(rewards(g.task)) for g in found.values())
    assert on_the_page(tmp_path / "run", 3) == BATCH
    assert not (tmp_path / "other").exists()
    back = RayScheduler(tmp_path / "run", name="one")
    known = Slots(back, tasks_of(rows()))
    assert [known.at(k) for k in range(4 * BATCH)] == [slots.at(k) for k in range(4 * BATCH)]
    back.close()


def test_a_worker_that_is_killed_takes_no_group_with_it(cluster, tmp_path):
    desk = RayScheduler(tmp_path / "run", CONFIG, name="two")
    slots = Slots(desk, tasks_of(rows()))
    workers = reporters("two", 4)
    batch = [slots.at(k) for k in range(2 * BATCH)]
    jobs = jobs_of(batch)  # every worker scores one rollout of each group
    pauses = [0.05, 0.05, 0.05, 60.0]  # however late it is killed, the last has not done all of its own
    running = [w.work.remote(jobs[k::4], pauses[k]) for k, w in enumerate(workers)]
    while desk.metrics()["adapter/waiting_groups"] < 2:
        time.sleep(0.02)
    ray.kill(workers[3])
    ray.get([*running[:3], *(w.done.remote() for w in workers[:3])])
    for step in range(2, 5):  # later steps begin, the picks would expire
        slots.at(step * BATCH)
    metrics = desk.metrics()
    desk.close()
    found = observed(tmp_path / "run")
    assert {slot.pick_id for slot in batch} <= set(found)
    assert metrics["adapter/waiting_groups"] == 0
    groups = [found[slot.group_id] for slot in batch]
    assert all(len(g.rewards) >= 3 and len(g.rewards) + g.missing == GROUP for g in groups)
    assert any(g.missing for g in groups)


def test_builders_in_other_processes_report_to_the_actor(cluster, tmp_path):
    from test_adapters_tinker import BUILDERS, group_rollout

    @ray.remote(num_cpus=0)
    def roll_out(builder: Any) -> None:
        import asyncio

        asyncio.run(group_rollout(builder))

    data = TinkerDataset(BUILDERS, RayScheduler(tmp_path / "run", CONFIG, name="three"), batches=4)
    ray.get([roll_out.remote(builder) for builder in data.get_batch(0)])
    data.slots.desk.close()
    assert len(observed(tmp_path / "run")) == BATCH


def on_record(desk: RayScheduler) -> dict[int, Any] | None:
    """Picks that the actor found when it opened the run; None while there is no actor."""
    try:
        return desk.served()
    except ray.exceptions.RayActorError:
        return None


def test_the_actor_comes_back_after_a_crash_with_the_run_and_what_was_sent_meanwhile(cluster, tmp_path):
    desk = RayScheduler(tmp_path / "run", CONFIG, name="four")
    slots = Slots(desk, tasks_of(rows()))
    first, second = ([slots.at(step * BATCH + k) for k in range(BATCH)] for step in range(2))
    slots.observe([slot.result(rewards(slot.task)) for slot in first])
    assert desk.metrics()["picks/observed"] == BATCH
    ray.kill(desk._actor(), no_restart=False)
    end = time.monotonic() + 300
    while (found := on_record(desk)) is not None:  # the old one answers for a while
        assert not found
        time.sleep(0.01)
    slots.observe([slot.result(rewards(slot.task)) for slot in second])
    while (served := on_record(desk)) is None:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert [[pick.pick_id for pick in served[k]] for k in range(2)] == [[s.pick_id for s in b] for b in (first, second)]
    desk.flush()
    assert desk.metrics()["picks/observed"] == 2 * BATCH
    (after,) = desk.ask(1, step=2)
    assert after.pick_id not in {slot.pick_id for slot in [*first, *second]}
    desk.close()
    assert {slot.pick_id for slot in [*first, *second]} <= set(observed(tmp_path / "run"))


def test_ask_does_not_wait_long_behind_reports(cluster, tmp_path, capsys):
    desk = RayScheduler(tmp_path / "run", {**CONFIG, "batch_size": 32}, name="five")
    slots = Slots(desk, tasks_of([{"env": f"e{k % 8}", "task_id": f"t{k}"} for k in range(400)]))
    workers, times = reporters("five", REPORTERS), []
    for step in range(40):
        begun = time.perf_counter()
        slots.at(step * 32)
        times.append(time.perf_counter() - begun)
        jobs = jobs_of([slots.at(step * 32 + k) for k in range(32)])
        running = [w.work.remote(jobs[k::REPORTERS]) for k, w in enumerate(workers)]
        if step % 4 == 3:
            ray.get(running)
    ray.get([w.done.remote() for w in workers])
    half, most = np.percentile(times, [50, 99])
    with capsys.disabled():
        print(f"\nask of 32 under {REPORTERS} reporters: median {half * 1e3:.0f} ms, p99 {most * 1e3:.0f} ms")
    assert desk.metrics()["groups/observed"] == 40 * 32
    desk.close()
