"""prime-rl's train source, pulled one task at a time by a dispatcher; then with the episodes of verifiers."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from adapter_checks import BATCH, GROUP, at_desk, close, killed, observed, on_the_page, picks, reward

from envsched_core.adapters.prime_rl import PrimeSource, episode_reward


def task(env: str, k: int) -> SimpleNamespace:
    return SimpleNamespace(key=f"t{k}", data=SimpleNamespace(idx=k, prompt=f"Refund order {k} at the {env}."))


TASKS = {env: [task(env, k) for k in range(12)] for env in ("shop", "bank")}


def request(**named: Any) -> SimpleNamespace:
    return SimpleNamespace(**named)


def episode(env: str, task: Any, step: int, k: int, group: str) -> SimpleNamespace:
    scores = {"db": SimpleNamespace(score=reward(task.key, k), weight=1.0), "style": None}
    call = SimpleNamespace(message=SimpleNamespace(tool_calls=[SimpleNamespace(name="refund")]))
    judge = SimpleNamespace(agent=SimpleNamespace(trainable=False), rewards={"x": SimpleNamespace(score=9.0)}, nodes=[])
    actor = SimpleNamespace(agent=SimpleNamespace(trainable=True), rewards=scores, nodes=[call])
    work = SimpleNamespace(step=step, policy=SimpleNamespace(start=step, end=step))
    return SimpleNamespace(
        id=f"{group}-{k}",
        env=SimpleNamespace(id=f"{env}-v1", name=env),
        task=task,
        group=SimpleNamespace(id=group),
        run=SimpleNamespace(work=work),
        traces=[actor, judge],
        num_output_tokens=25,
    )


class Gate:
    """prime-rl's own source, whose gates admit mixed groups."""

    def on_result(self, group: list[Any]) -> bool:
        return len({episode_reward(e) for e in group}) > 1

    def metrics(self) -> dict[str, float]:
        return {"curriculum/admission_rate": 0.5}

    def state_dict(self) -> dict[str, Any]:
        return {"mix": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state


def source_at(run: Path) -> PrimeSource:
    return PrimeSource(TASKS, request, at_desk(run), inner=Gate())


names = itertools.count()


def dispatch(source: PrimeSource, steps: Any, *, stale: int = 0) -> list[Any]:
    """Single pulls, groups that end out of order, the first `stale` of each step never delivered."""
    pulled, running = [], []
    for step in steps:
        pulls = [source.next_task(step=step) for _ in range(BATCH)]
        pulled += pulls
        running += pulls[stale:]
        running.sort(key=lambda pull: (pull.step, pull.task.key))
        while len(running) > 1:
            pull = running.pop(0)
            group = f"g{next(names)}"
            source.on_result([episode(pull.env_name, pull.task, pull.step, k, group) for k in range(GROUP)])
    return pulled


def test_single_pulls_are_one_batch_and_groups_find_their_task(tmp_path):
    source = source_at(tmp_path / "run")
    pulled = dispatch(source, range(6))
    assert [f"{pull.env_name}::{pull.task.key}" for pull in pulled] == list(
        itertools.chain(*picks(tmp_path / "run").values())
    )
    groups = observed(tmp_path / "run")
    assert len(groups) == 6 * BATCH - 1
    assert all(list(g.rewards) == [reward(g.task, k) for k in range(GROUP)] for g in groups.values())
    assert all(g.trained == (len(set(g.rewards)) > 1) and g.cost.tokens == 100.0 for g in groups.values())
    assert all(g.calls == (("refund",),) * GROUP and g.policy_version == str(g.step) for g in groups.values())
    assert source.metrics()["curriculum/admission_rate"] == 0.5
    assert source.metrics()["envsched/picks/open"] == 1.0
    assert on_the_page(tmp_path / "run", 5) == BATCH
    close(tmp_path / "run")


def test_stale_groups_expire_and_their_tasks_come_again(tmp_path):
    source = source_at(tmp_path / "run")
    dispatch(source, range(12), stale=1)
    metrics = source.metrics()
    assert metrics["envsched/picks/expired"] == 9  # one a step, each kept for two more
    assert metrics["envsched/picks/observed"] >= 12 * (BATCH - 1) - 1
    close(tmp_path / "run")


def test_a_checkpoint_gives_the_same_pulls_again(tmp_path):
    source = source_at(tmp_path / "run")
    dispatch(source, range(3))
    saved = source.state_dict()
    pulled = dispatch(source, range(3, 5))
    again = source_at(killed(tmp_path / "run", tmp_path / "again"))
    again.load_state_dict(saved)
    assert again.inner.loaded == {"mix": 1}
    assert [(p.env_name, p.task.key) for p in dispatch(again, range(3, 5))] == [
        (p.env_name, p.task.key) for p in pulled
    ]
    fresh = [(p.env_name, p.task.key, p.step) for p in dispatch(again, [5])]
    assert [step for _, _, step in fresh] == [5] * BATCH
    assert len(picks(tmp_path / "again")[5]) == BATCH
    close(tmp_path / "run"), close(tmp_path / "again")


def test_endless_task_sets_are_cut_and_nothing_in_a_group_raises(tmp_path):
    endless = (task("shop", k) for k in itertools.count())
    source = PrimeSource({"shop": endless}, request, at_desk(tmp_path / "run"))
    assert len(source.slots.tasks) == 2000
    assert source.on_result([]) is source.on_result([None, object()]) is True
    assert source.on_result([SimpleNamespace(traces=7)]) is True
    assert source.next_task(step=0).task.key.startswith("t")
    close(tmp_path / "run")


def test_null_rewards_are_missing_and_agents_are_averaged():
    def trace(*rewards: Any, trainable: bool = True) -> dict[str, Any]:
        return {"agent": {"trainable": trainable}, "rewards": {str(k): r for k, r in enumerate(rewards)}}

    half = {"score": 1.0, "weight": 0.5}
    assert episode_reward({"traces": [trace(half, None, {"score": 2.0, "weight": 1.0})]}) == 2.5
    assert episode_reward({"traces": [trace(half), trace({"score": 1.5, "weight": 1.0})]}) == 1.0
    assert episode_reward({"traces": [trace(None)]}) is episode_reward({"traces": []}) is None


def test_episodes_of_verifiers_are_read_as_they_are(tmp_path):
    v1 = pytest.importorskip("verifiers.v1")
    data = v1.TaskData(idx=3, prompt="Refund order 3")
    seed = v1.TraceTask(type="Refund", data=data, key="t3", hash="x")

    def made(k: int) -> Any:
        return v1.Episode.model_validate(
            {
                "env": {"id": "shop-v1", "name": "shop"},
                "task": seed.model_dump(),
                "group": {"id": "g"},
                "ok": True,
                "traces": [
                    {
                        "task": seed.model_dump(),
                        "agent": {"name": "agent", "trainable": True, "config": {}},
                        "rewards": {"db": {"score": reward("t3", k), "weight": 1.0}, "late": None},
                    }
                ],
            }
        )

    source = PrimeSource({"shop": [seed]}, request, at_desk(tmp_path / "run"))
    assert source.next_task(step=0).task is seed
    assert source.on_result([made(k) for k in range(GROUP)])
    (group,) = observed(tmp_path / "run").values()
    assert (group.key, list(group.rewards)) == ("shop::t3", [reward("t3", k) for k in range(GROUP)])
    close(tmp_path / "run")
