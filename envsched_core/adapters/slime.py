"""slime: a data source, and the hook that sees every group of an iteration, filtered ones included.

    class Source(SlimeSource, RolloutDataSourceWithBuffer):
        run = "runs/mine"

    --data-source-path my_source.Source --rollout-all-samples-process-path envsched_core.adapters.slime.observe_all

A step is an iteration: it begins after the hook was called for the one before, so the hook is needed. Groups that
slime hands back (`add_samples`: aborted or left over) are served first, by slime's own buffer; their picks stay open.
slime's `save` and `load` keep their part; here the run folder keeps what was picked, and `load(rollout_id)` goes on
with what was picked after that iteration.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from envsched_core.live.intake import attempt, text_of

from .desk import harmless
from .reading import cost_of, field, number
from .scheduled import Scheduled
from .slots import Slots

__all__ = ["SlimeSource", "observe_all"]

TAG = "envsched"
"""Key in a sample's metadata."""


class SlimeSource(Scheduled):
    """Goes before one of slime's data sources that read `--prompt-data`."""

    args: Any
    dataset: Any
    sample_group_index: int
    sample_index: int

    def __init__(self, args: Any) -> None:
        """Slime's arguments."""
        super().__init__(args)  # type: ignore[call-arg]
        self._rows = list(self.dataset.samples)  # a shuffle of slime's later on moves its list, not this one
        sizes = {"batch_size": args.rollout_batch_size, "group_size": args.n_samples_per_prompt}
        self.slots: Slots = self.open_slots(self._rows, **sizes)
        self._iteration = self.slots.batches()

    def get_samples(self, num_samples: int) -> list[list[Any]]:
        """`num_samples` groups: what was handed back first, then what the scheduler picks."""
        groups: list[list[Any]] = []
        if hasattr(self, "_get_samples_from_buffer"):
            groups = list(self._get_samples_from_buffer(num_samples))
        slots = self.slots.pull(num_samples - len(groups), step=self._iteration)
        return groups + [self._group(slot.row, slot.group_id) for slot in slots]

    def save(self, rollout_id: Any) -> None:
        """Slime's own state, and a snapshot in the run folder."""
        super().save(rollout_id)  # type: ignore[misc]
        self.slots.desk.save(self._iteration)

    def load(self, rollout_id: Any = None) -> None:
        """Slime's own state; the next iteration gets the picks that it had before, if it had any."""
        super().load(rollout_id)  # type: ignore[misc]
        if isinstance(rollout_id, int) and rollout_id >= 0:
            self._iteration = rollout_id + 1
            self.slots.back_to(self._iteration)

    @harmless(lambda: None)
    def observe(self, groups: list[list[Any]]) -> None:
        """All groups of an iteration; the next one begins."""
        self._iteration += 1
        for group in groups:
            attempt(self._observe, group)

    def _group(self, row: int, group_id: str) -> list[Any]:
        group = []
        for _ in range(self.args.n_samples_per_prompt):
            sample = copy.deepcopy(self._rows[row])
            sample.group_index, sample.index = self.sample_group_index, self.sample_index
            sample.metadata = {**(sample.metadata or {}), TAG: group_id}
            self.sample_index += 1
            group.append(sample)
        self.sample_group_index += 1
        return group

    def _observe(self, group: list[Any]) -> None:
        ends = [item[-1] if isinstance(item, list) else item for item in group]  # a list: one rollout in several parts
        slot = self.slots.of(next((tag for s in ends if (tag := field(field(s, "metadata"), TAG))), None))
        if slot is None:
            self.slots.counts["unknown_group"] += 1
            return
        versions = [text_of(v) for s in ends for v in (field(s, "weight_versions") or ())]
        self.slots.observe(
            [
                slot.result(
                    [self._reward(sample) for sample in ends],
                    cost=cost_of(tokens=(field(s, "response_length") for s in ends)),
                    policy_version=max((v for v in versions if v), key=_version, default=None),
                )
            ]
        )

    def _reward(self, sample: Any) -> float | None:
        reward = field(sample, "reward")
        key = getattr(self.args, "reward_key", None)
        if isinstance(reward, Mapping):
            reward = reward.get(key) if key else field(reward, "score", "reward")
        return number(reward)


def observe_all(args: Any, samples: list[list[Any]], data_source: Any) -> None:
    """Slime's hook for all samples of an iteration, to be named by `--rollout-all-samples-process-path`."""
    if isinstance(data_source, SlimeSource):
        data_source.observe(samples)


def _version(text: str) -> tuple[int, str]:
    return (int(text) if text.isdecimal() else -1, text)
