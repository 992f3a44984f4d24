"""TRL: the order of the prompts and the rewards of GRPOTrainer (and of its subclasses).

    class Trainer(GRPOMixin, GRPOTrainer):
        run = "runs/mine"

A step is a generation batch. The main process decides and the others are told, so that the order is the same on every
rank; each prompt is repeated `num_generations` times and the batch as often as TRL trains on it. Rewards are taken
where the reward functions return them, gathered over ranks and summed with the trainer's weights. accelerate reads one
batch ahead, so a step is decided before the rewards of the one before are known.

A trainer that resumes runs through the batches it has trained on already; they are the same ones, from the record.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .desk import harmless
from .reading import number, weighted
from .scheduled import Scheduled
from .slots import Slot, Slots

__all__ = ["GRPOMixin", "RepeatIndexSampler", "RewardTap"]

Rows = list[int]


class RepeatIndexSampler:
    """Rows of the training set in the order that TRL needs; one object for all epochs."""

    def __init__(
        self,
        slots: Slots | None,
        *,
        size: int,
        generations: int,
        repeats: int,
        batches: int,
        share: Callable[[Rows | None], Rows],
    ) -> None:
        """`slots` on the main process, None on the others. `size`: prompts in a generation batch.

        `repeats`: how often TRL goes through a batch. `batches`: in an epoch. `share`: the main process's rows, on all.
        """
        self.slots, self.size, self.generations, self.repeats, self.batches = slots, size, generations, repeats, batches
        self.share = share
        self.epoch = 0

    def __len__(self) -> int:
        """Indices of an epoch."""
        return self.batches * self.size * self.generations * self.repeats

    def set_epoch(self, epoch: int) -> None:
        """Accelerate tells the epoch before it iterates."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        """Rows, each `generations` times in a row, each batch `repeats` times."""
        first = self.epoch * self.batches
        self.epoch += 1
        for batch in range(first, first + self.batches):
            rows = self.share([slot.row for slot in batch_of(self.slots, batch)] if self.slots else None)
            for _ in range(self.repeats):
                for row in rows:
                    yield from [row] * self.generations


class RewardTap:
    """The rewards of every function for a generation batch, until the last of them has returned."""

    def __init__(self, slots: Slots | None, *, functions: int, gather: Callable[[list[Any]], list[Any]]) -> None:
        """`functions`: how many report. `gather`: the entries of all ranks, in rank order; None slots: not main."""
        self.slots, self.functions, self.gather = slots, functions, gather
        self.weights: list[float] | None = None
        self._rewards: dict[int, list[Any]] = {}
        self._batch = 0

    def take(self, function: int, rewards: Sequence[Any], rows: Sequence[int]) -> None:
        """What one function returned, one entry a completion [n], and the rows they belong to [n]."""
        self._rewards[function] = list(rewards)
        if len(self._rewards) < self.functions:
            return
        columns, self._rewards = self._rewards, {}
        totals = [weighted([columns[f][k] for f in sorted(columns)], self.weights) for k in range(len(rows))]
        entries = self.gather([(int(row), total) for row, total in zip(rows, totals, strict=True)])
        if self.slots is not None:
            self._observe(self.slots, entries)

    def _observe(self, slots: Slots, entries: list[tuple[int, float | None]]) -> None:
        """Give every slot of the batch its rewards; a batch is known by its rows, and comes in the order decided."""
        found: dict[int, list[float | None]] = {}
        for row, total in entries:
            found.setdefault(row, []).append(total)
        batch = next((k for k in range(self._batch, slots.batches()) if self._rows(slots, k) == set(found)), None)
        if batch is None:
            slots.counts["unknown_batch"] += 1
            return
        self._batch = batch + 1
        members = batch_of(slots, batch)
        often = {row: sum(slot.row == row for slot in members) for row in found}
        results = []
        for slot in members:  # a row that stands twice in a batch has its rewards in the order of its places
            share = len(found[slot.row]) // often[slot.row]
            results.append(slot.result(found[slot.row][:share]))
            found[slot.row] = found[slot.row][share:]
            often[slot.row] -= 1
        slots.observe(results)

    def _rows(self, slots: Slots, batch: int) -> set[int]:
        return {slot.row for slot in batch_of(slots, batch)}


def batch_of(slots: Slots, batch: int) -> list[Slot]:
    """The slots of a generation batch."""
    return [slots.at(batch * slots.size + place) for place in range(slots.size)]


class GRPOMixin(Scheduled):
    """Goes before the trainer's class. Reward functions may be plain or async; reward models are not seen."""

    args: Any
    accelerator: Any
    model: Any
    train_dataset: Any
    reward_funcs: list[Any]
    num_generations: int
    num_iterations: int
    slots: Slots | None = None
    tap: RewardTap | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """The trainer's own arguments."""
        super().__init__(*arguments, **named)
        size = self.args.generation_batch_size // self.num_generations
        numbered = self.train_dataset.add_column(ROW, list(range(len(self.train_dataset))))
        if self.accelerator.is_main_process:
            sizes = {"batch_size": size, "group_size": self.num_generations}
            self.slots = self.open_slots(self.train_dataset, **sizes)
        self.train_dataset = numbered
        functions = [k for k, function in enumerate(self.reward_funcs) if _plain(function)]
        tap = self.tap = RewardTap(self.slots, functions=len(functions), gather=self._gather)
        weights = [number(weight) or 0.0 for weight in self.reward_weights]
        tap.weights = [weights[k] for k in functions]
        for place, k in enumerate(functions):
            self.reward_funcs[k] = self._watched(self.reward_funcs[k], place, tap)

    reward_weights: Any

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """TRL's hook for the order of the training set."""
        rows = dataset if dataset is not None else self.train_dataset
        size = self.args.generation_batch_size // self.num_generations
        return RepeatIndexSampler(
            self.slots,
            size=size,
            generations=self.num_generations,
            repeats=self.num_iterations * self.args.steps_per_generation,
            batches=max(len(rows) // size, 1),
            share=self._share,
        )

    def _watched(self, function: Callable[..., Any], place: int, tap: RewardTap) -> Callable[..., Any]:
        @harmless(lambda: None)
        def look(rewards: Any, named: dict[str, Any]) -> None:
            if self.model.training and ROW in named:  # evaluation scores with the same functions
                tap.take(place, list(rewards), named[ROW])

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*arguments: Any, **named: Any) -> Any:
                rewards = await function(*arguments, **named)
                look(rewards, named)
                return rewards

            return later

        @functools.wraps(function)
        def now(*arguments: Any, **named: Any) -> Any:
            rewards = function(*arguments, **named)
            look(rewards, named)
            return rewards

        return now

    def _share(self, rows: Rows | None) -> Rows:
        if self.accelerator.num_processes == 1:
            return rows or []
        told: list[Rows | None] = [rows]
        importlib.import_module("accelerate.utils").broadcast_object_list(told)
        return told[0] or []

    def _gather(self, entries: list[Any]) -> list[Any]:
        if self.accelerator.num_processes == 1:
            return entries
        gathered: list[Any] = importlib.import_module("accelerate.utils").gather_object(entries)
        return gathered


ROW = "envsched_row"
"""Column with each row's number, for the reward functions' way back to it."""


def _plain(function: Any) -> bool:
    """Whether it is a function; a reward model has parameters."""
    return callable(function) and not hasattr(function, "parameters")
