"""tinker-cookbook's data set and builders, called as its training loop calls them."""

from __future__ import annotations

import asyncio
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from adapter_checks import BATCH, GROUP, at_desk, close, observed, on_the_page, picks, reward, same_after_a_kill

from envsched_core.adapters import desk as desks
from envsched_core.adapters.tinker import ReportingBuilder, TinkerDataset
from envsched_core.records import TaskSpec


class Builder:
    """As an EnvGroupBuilder whose reward comes half with the last step, half for the group."""

    def __init__(self, env: str, task_id: str) -> None:
        self.env, self.task_id, self.cleaned = env, task_id, 0

    async def make_envs(self) -> list[str]:
        return [f"{self.task_id}/{k}" for k in range(GROUP)]

    async def compute_group_rewards(self, trajectory_group: list[Any], env_group: Any) -> list[tuple[Any, dict]]:
        return [(reward(self.task_id, k) / 2, {}) for k in range(len(trajectory_group))]

    async def cleanup(self) -> None:
        self.cleaned += 1

    def logging_tags(self) -> list[str]:
        return [self.env]


BUILDERS = [Builder(("shop", "bank")[k % 2], f"t{k}") for k in range(24)]


def trajectory(task: str, k: int) -> SimpleNamespace:
    steps = [SimpleNamespace(reward=0.0), SimpleNamespace(reward=reward(task, k) / 2)]
    return SimpleNamespace(transitions=steps, final_ob=None)


async def group_rollout(builder: Any, *, timed_out: bool = False) -> None:
    envs = await builder.make_envs()
    trajectories = [trajectory(builder.task_id, k) for k in range(len(envs))]
    if not timed_out:
        await builder.compute_group_rewards(trajectories, envs)
    await builder.cleanup()


def dataset_at(run: Path) -> TinkerDataset:
    return TinkerDataset(BUILDERS, at_desk(run), batches=8)


def train(run: Path, first: int, last: int) -> TinkerDataset:
    data = dataset_at(run)
    for index in range(first, last):
        for builder in reversed(data.get_batch(index)):
            asyncio.run(group_rollout(builder))
    return data


def test_total_rewards_of_every_group_are_observed(tmp_path):
    data = train(tmp_path / "run", 0, 6)
    found = observed(tmp_path / "run")
    assert (len(data), len(found)) == (8, 6 * BATCH)
    assert all(list(g.rewards) == [reward(g.task, k) for k in range(GROUP)] for g in found.values())
    assert data.get_batch(0)[0].logging_tags() == [data.get_batch(0)[0].env, f"task:{data.get_batch(0)[0].of.task}"]
    assert on_the_page(tmp_path / "run", 5) == BATCH
    close(tmp_path / "run")


def test_a_batch_is_the_same_whenever_it_is_asked_for(tmp_path):
    data = dataset_at(tmp_path / "run")
    first, ahead = data.get_batch(0), data.get_batch(1)
    assert [b.of for b in data.get_batch(0)] == [b.of for b in first] != [b.of for b in ahead]
    close(tmp_path / "run")
    assert [b.of for b in dataset_at(tmp_path / "run").get_batch(1)] == [b.of for b in ahead]
    close(tmp_path / "run")


def test_it_resumes_to_the_same_picks(tmp_path):
    same_after_a_kill(train, tmp_path, steps=8, kill_after=4)


def test_a_group_that_ends_without_rewards_is_given_back(tmp_path):
    data = dataset_at(tmp_path / "run")
    one, two, *_ = data.get_batch(0)
    asyncio.run(group_rollout(one, timed_out=True))
    asyncio.run(group_rollout(two))
    one.look_at([None], [])  # whatever it is handed
    metrics = data.slots.metrics()
    assert (metrics["picks/released"], metrics["picks/observed"], one.inner.cleaned >= 1) == (1, 1, True)
    assert any(name.endswith("ReportingBuilder.look_at") for name in metrics)
    close(tmp_path / "run")


def test_builders_travel_and_report_only_where_there_is_a_desk(tmp_path):
    data = dataset_at(tmp_path / "run")
    sent = ForkingPickler.loads(ForkingPickler.dumps(data.get_batch(0)[0]))
    assert (sent.task_id, sent.of) == (data.get_batch(0)[0].task_id, data.get_batch(0)[0].of)
    asyncio.run(group_rollout(sent))
    assert len(observed(tmp_path / "run")) == 1
    close(tmp_path / "run")
    desks._desks.clear()  # another process
    before = desks.failures["ReportingBuilder.look_at"]
    asyncio.run(group_rollout(sent))
    assert desks.failures["ReportingBuilder.look_at"] == before + 1


def test_the_cookbooks_own_types_fit(tmp_path):
    types = pytest.importorskip("tinker_cookbook.rl.types", exc_type=ImportError)

    class Own(types.EnvGroupBuilder):
        async def make_envs(self) -> list[Any]:
            return []

    data = TinkerDataset([Own()], at_desk(tmp_path / "run"), batches=1, describe=lambda *_: TaskSpec("gsm", "41"))
    builder = data.get_batch(0)[0]
    step = types.Transition(ob=None, ac=None, reward=0.5, episode_done=True)
    group = [types.Trajectory(transitions=[step], final_ob=None) for _ in range(GROUP)]
    finals = asyncio.run(builder.compute_group_rewards(group, []))
    assert types.TrajectoryGroup(group, [f for f, _ in finals], []).get_total_rewards() == [0.5] * GROUP
    asyncio.run(builder.cleanup())
    (found,) = observed(tmp_path / "run").values()
    assert list(found.rewards) == [0.5] * GROUP
    abstract = {name for kind in (types.EnvGroupBuilder, types.RLDataset) for name in kind.__abstractmethods__}
    assert abstract <= set(dir(ReportingBuilder)) | set(dir(TinkerDataset))
    close(tmp_path / "run")
    assert picks(tmp_path / "run") == {0: ["gsm::41"]}
