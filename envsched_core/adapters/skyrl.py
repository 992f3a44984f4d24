"""SkyRL: the prompt data set as slots, and a wrapper around the generator that sees every group it returns.

    class Rows(SkyRows, PromptDataset):                  in `get_train_dataset()` of the experiment
        run = "runs/mine"
    generator = SkyGenerator(super().get_generator(...), self.train_dataset)        in `get_generator(...)`

SkyRL carries a row's `uid` to the generator as `trajectory_ids[].instance_id`: here it is the group's id. Needs
`data.dataloader.num_workers=0`. SkyRL shuffles its indices, so an index means nothing but "the next"; after a restart,
the next are those that had no answer. Both live in the driver's process.
"""

from __future__ import annotations

from typing import Any

from .desk import harmless
from .reading import as_rows, cost_of, field, number
from .scheduled import Scheduled
from .slots import Slot, Slots

__all__ = ["SkyGenerator", "SkyRows"]

Rollout = tuple[float | None, int | None]
"""Reward and tokens, None where they are not told."""


class SkyRows(Scheduled):
    """Goes before `PromptDataset`; `options` give its train_batch_size and n_samples_per_prompt as the two sizes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """SkyRL's own arguments."""
        super().__init__(*arguments, **named)
        count: int = super().__len__()  # type: ignore[misc]
        own = (super(SkyRows, self).__getitem__(row) for row in range(count))  # type: ignore[misc]
        rows = [{**(extras or {}), "env_class": env, "prompt": prompt} for prompt, env, extras, _ in own]
        self.slots: Slots = self.open_slots(rows)
        self._length = max(count // self.slots.size, 1) * self.slots.size

    def __len__(self) -> int:
        """SkyRL's own number of rows, in whole batches."""
        return self._length

    def __getitem__(self, item: int) -> tuple[Any, Any, Any, str]:
        """Messages, environment class, extras, and the group's id as uid."""
        slot = self.slots.next()
        messages, env_class, extras, _ = super().__getitem__(slot.row)  # type: ignore[misc]
        return messages, env_class, extras, slot.group_id


class SkyGenerator:
    """Around SkyRL's generator; everything but `generate` is the inner one's."""

    def __init__(self, inner: Any, rows: Any) -> None:
        """`rows`: the training data set, a `SkyRows`."""
        self.inner, self._slots = inner, rows.slots

    def __getattr__(self, name: str) -> Any:
        """Whatever else the trainer wants of a generator."""
        if name == "inner":  # not there yet, while it is being copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def generate(self, input_batch: Any, *arguments: Any, **named: Any) -> Any:
        """The inner generator's output, observed on the way."""
        output = await self.inner.generate(input_batch, *arguments, **named)
        self.look_at(input_batch, output)
        return output

    @harmless(lambda: None)
    def look_at(self, input_batch: Any, output: Any) -> None:
        """Groups by `instance_id`, rollouts by `repetition_id`; step-wise output has several rows a rollout."""
        if field(field(input_batch, "batch_metadata"), "training_phase") == "eval":
            return
        ids = field(output, "trajectory_ids") or field(input_batch, "trajectory_ids") or []
        responses = field(output, "response_ids") or [None] * len(ids)
        groups: dict[str, dict[int, Rollout]] = {}
        for which, reward, response in zip(ids, as_rows(field(output, "rewards")), responses, strict=True):
            group = groups.setdefault(str(field(which, "instance_id")), {})
            name = int(field(which, "repetition_id") or 0)
            tokens = None if response is None else len(response)
            before = group.get(name)
            sums = (_sum(before[0], number(reward)), _both(before[1], tokens)) if before else (number(reward), tokens)
            group[name] = sums
        found = [(self._slots.of(uid), group) for uid, group in groups.items()]
        self._slots.observe([_result(slot, group) for slot, group in found if slot is not None])


def _sum(before: float | None, more: float | None) -> float | None:
    return more if before is None else before if more is None else before + more


def _both(before: int | None, more: int | None) -> int | None:
    return None if before is None or more is None else before + more


def _result(slot: Slot, group: dict[int, Rollout]) -> dict[str, Any]:
    rollouts = [group[name] for name in sorted(group)]
    return slot.result([reward for reward, _ in rollouts], cost=cost_of(tokens=(n for _, n in rollouts)))
