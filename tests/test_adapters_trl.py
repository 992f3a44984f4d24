"""TRL's sampler and reward functions, with a trainer that calls them as GRPOTrainer does; then GRPOTrainer itself."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from adapter_checks import CONFIG, close, observed, on_the_page, picks, reward, rows, same_after_a_kill

from envsched_core.adapters import desk as desks
from envsched_core.adapters.trl import GRPOMixin, RepeatIndexSampler

GENERATIONS, PROMPTS, STEPS_PER_GENERATION = 4, 4, 2


class Table(list):
    """As much of a data set as the trainer uses."""

    def add_column(self, name: str, values: list[Any]) -> Table:
        return Table([{**row, name: value} for row, value in zip(self, values, strict=True)])


class OwnTrainer:
    """As GRPOTrainer: generates once a generation batch, scores with every function, reads one batch ahead."""

    def __init__(self, reward_funcs: Any, train_dataset: Table, rank: int = 0, world: Any = None) -> None:
        self.reward_funcs, self.train_dataset = list(reward_funcs), train_dataset
        self.reward_weights = [1.0, 0.5, 0.25][: len(self.reward_funcs)]
        self.args = SimpleNamespace(generation_batch_size=PROMPTS * GENERATIONS, steps_per_generation=2)
        self.num_generations, self.num_iterations, self.model = GENERATIONS, 1, SimpleNamespace(training=True)
        self.rank, self.world = rank, world or SimpleNamespace(size=1)
        self.accelerator = SimpleNamespace(is_main_process=rank == 0, num_processes=self.world.size)
        self.step, self.order = 0, []

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        raise NotImplementedError

    def batches(self) -> Any:
        """Generation batches of row numbers, over epochs; the batch behind the one in hand is read already."""
        sampler = self._get_train_sampler()
        for epoch in itertools.count():
            sampler.set_epoch(epoch)
            indices = iter(sampler)
            while batch := list(itertools.islice(indices, PROMPTS * GENERATIONS)):
                again = list(itertools.islice(indices, (STEPS_PER_GENERATION - 1) * len(batch)))
                assert again == batch * (STEPS_PER_GENERATION - 1)
                self.order.append(batch)
                yield batch

    def train(self, last: int) -> None:
        """Up to `last` generation batches; a trainer that resumes runs through those it has done."""
        source = self.batches()
        for _ in range(self.step):
            next(source)
        ahead = next(source)
        while self.step < last:
            batch, ahead = ahead, next(source)
            self.score(batch, self.train_dataset)
            self.step += 1

    def score(self, batch: list[int], table: Table) -> None:
        part = len(batch) // self.world.size
        mine = range(self.rank * part, (self.rank + 1) * part)
        inputs = [{**table[batch[k]], "rollout": k % GENERATIONS} for k in mine]
        named = {name: [row[name] for row in inputs] for name in inputs[0] if name != "prompt"}
        call = {"prompts": [row["prompt"] for row in inputs], "completions": [""] * part, "trainer_state": None}
        for function in self.reward_funcs:
            found = function(**call, **named)
            assert len(asyncio.run(found) if inspect.iscoroutine(found) else found) == part


def solved(prompts: list[Any], extra_info: list[Any], rollout: list[int], **_: Any) -> list[float | None]:
    return [reward(extra["task_id"], k) for extra, k in zip(extra_info, rollout, strict=True)]


def never(prompts: list[Any], **_: Any) -> list[float | None]:
    return [None] * len(prompts)


async def tidy(prompts: list[Any], **_: Any) -> list[float | None]:
    return [4.0] * len(prompts)


def trainer_at(run: Path, functions: Any = (solved,), **more: Any) -> Any:
    class Trainer(GRPOMixin, OwnTrainer):
        pass

    Trainer.run, Trainer.options = run, {k: CONFIG[k] for k in ("refresh_groups", "expire_after")}
    return Trainer(functions, Table(rows()), **more)


def drive(run: Path, first: int, last: int) -> None:
    trainer = trainer_at(run)
    trainer.step = first
    trainer.train(last)


def test_prompts_come_as_trl_needs_them_and_rewards_find_back(tmp_path):
    trainer = trainer_at(tmp_path / "run", (solved, never, tidy))
    trainer.train(9)
    assert len(trainer._get_train_sampler()) == 6 * PROMPTS * GENERATIONS * STEPS_PER_GENERATION
    for batch in trainer.order:
        assert [batch[k : k + GENERATIONS] for k in range(0, 16, GENERATIONS)] == [[row] * 4 for row in batch[::4]]
    found = observed(tmp_path / "run")
    assert len(found) == 9 * PROMPTS
    assert all(list(g.rewards) == [reward(g.task, k) + 1.0 for k in range(4)] for g in found.values())
    assert on_the_page(tmp_path / "run", 8) == PROMPTS
    close(tmp_path / "run")


def test_it_resumes_to_the_same_picks(tmp_path):
    same_after_a_kill(drive, tmp_path, steps=8, kill_after=4)


def test_evaluation_is_not_observed_and_a_batch_of_no_known_rows_is_counted(tmp_path):
    trainer = trainer_at(tmp_path / "run")
    trainer.train(1)
    before = len(observed(tmp_path / "run"))
    trainer.model.training = False
    trainer.score([0] * 16, trainer.train_dataset)
    trainer.model.training = True
    trainer.score([0] * 8 + [1] * 8, trainer.train_dataset)
    assert (len(observed(tmp_path / "run")), trainer.slots.counts["unknown_batch"]) == (before, 1)
    trainer.tap.slots = object()  # whatever breaks inside
    trainer.score([0] * 16, trainer.train_dataset)
    assert any(name.startswith("adapter/failed") for name in trainer.slots.metrics())
    close(tmp_path / "run")


class World:
    """Ranks as threads, with the two collectives that are used."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.cells = size, threading.Barrier(size), [None] * size

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.barrier.wait(20)
        self.cells[rank] = value
        self.barrier.wait(20)
        found = list(self.cells)
        self.barrier.wait(20)
        return found


def test_all_ranks_see_one_order_and_the_rewards_of_all_are_gathered(tmp_path):
    world = World(2)

    class Trainer(GRPOMixin, OwnTrainer):
        run = tmp_path / "run"

        def _share(self, told: Any) -> list[int]:
            return world.exchange(self.rank, told)[0]

        def _gather(self, entries: list[Any]) -> list[Any]:
            return list(itertools.chain(*world.exchange(self.rank, entries)))

    trainers = [Trainer((solved,), Table(rows()), rank=rank, world=world) for rank in range(2)]
    threads = [threading.Thread(target=trainer.train, args=(4,)) for trainer in trainers]
    [thread.start() for thread in threads], [thread.join(60) for thread in threads]
    assert trainers[0].order == trainers[1].order
    assert len(trainers[0].order) == 5
    assert trainers[1].slots is None
    found = observed(tmp_path / "run")
    assert len(found) == 4 * PROMPTS
    assert all(list(g.rewards) == [reward(g.task, k) for k in range(4)] for g in found.values())
    close(tmp_path / "run")


def test_the_sampler_holds_the_same_order_in_every_epoch_that_is_read_again(tmp_path):
    trainer = trainer_at(tmp_path / "run")
    sampler: RepeatIndexSampler = trainer._get_train_sampler()
    one, two = list(sampler), list(sampler)
    sampler.set_epoch(0)
    assert (list(sampler) == one, one == two) == (True, False)
    assert len(picks(tmp_path / "run")) == 12
    close(tmp_path / "run")
    assert not desks.failures["RewardTap.take"]
