"""verl: a data set of slots, and three ways to observe.

    V0 (0.7.1 to 0.8, and 0.9 with trainer.use_v1=false)   the trainer calls `on_batch_end` of its data set
    V1 (0.9)                                               `VerlSampler` around its ReplayBuffer, or `verl_reward`

The data set puts a tag into `extra_info`, which verl carries from the prompt to the reward; whoever sees a reward
beside its tag can report it. The data set is verl's own with this class before it, so its files, templates and
length filter stay as they are.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from .desk import AnyDesk, harmless, open_desk
from .groups import Open, of_tag
from .ray import RayScheduler
from .reading import as_rows, cost_of, number
from .scheduled import Passes, Scheduled

__all__ = ["TAG", "VerlRows", "VerlSampler", "verl_reward"]

TAG = "envsched"
"""Key in `extra_info`."""


class VerlRows(Scheduled):
    """Goes before verl's data set class: `class Rows(VerlRows, RLHFDataset)`.

    verl makes the validation data set of the same class; that one is left as it is.
    """

    dataframe: Any
    config: Any
    _passes: Passes | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Verl's own arguments: data_files, tokenizer, config, processor, max_samples."""
        super().__init__(*arguments, **named)
        files = named.get("data_files", arguments[0] if arguments else None)
        if _is_validation(files, self.config):
            return
        size = self.config.get("gen_batch_size") or self.config.get("train_batch_size")
        slots = self.open_slots(self.dataframe, batch_size=size)
        self._passes = Passes(slots, super().__len__())  # type: ignore[misc]

    def __len__(self) -> int:
        """Slots of one pass."""
        own: int = super().__len__()  # type: ignore[misc]
        return self._passes.length if self._passes else own

    def __getitem__(self, item: int) -> Any:
        """The row that the slot of `item` stands for, tagged."""
        if self._passes is None:
            return super().__getitem__(item)  # type: ignore[misc]
        slot = self._passes.slot(item)
        row: dict[str, Any] = super().__getitem__(slot.row)  # type: ignore[misc]
        return {**row, "extra_info": {**(row.get("extra_info") or {}), TAG: slot.open.tag()}}

    @harmless(lambda: None)
    def on_batch_end(self, batch: Any) -> None:
        """V0 calls this after each update with the batch that was trained on."""
        if self._passes is None:
            return
        tags = as_rows(batch.non_tensor_batch["extra_info"])
        scores = batch.batch["token_level_scores"]
        tokens = batch.batch.get("response_mask", None)
        observe_rows(self._passes.slots.desk, tags, as_rows(scores), as_rows(tokens) if tokens is not None else None)


class VerlSampler(Scheduled):
    """Goes before V1's replay buffer: `class Buffer(VerlSampler, ReplayBuffer)`; observes what it hands out.

    The run is the data set's: the same `run` (and `actor`, if any).
    """

    fields: ClassVar[tuple[str, ...]] = ("rm_scores", "extra_info")

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """Verl's own batch, observed on the way."""
        found = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if partition_id != "val":
            self.look_at(found, partition_id)
        return found

    @harmless(lambda: None)
    def look_at(self, found: Any, partition_id: str) -> None:
        """Read the rewards and tags behind a batch's keys and observe them."""
        keys = as_rows(found[0].keys)
        data = self.read(keys, partition_id)
        last = _last_outputs(keys)
        tags, scores = list(data["extra_info"]), list(data["rm_scores"])
        kept = [k for k, key in enumerate(keys) if key in last]
        observe_rows(self.desk(), [tags[k] for k in kept], [scores[k] for k in kept], None)

    def read(self, keys: list[str], partition_id: str) -> Any:
        """The fields of these keys, from TransferQueue."""
        queue = importlib.import_module("transfer_queue")
        return queue.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=list(self.fields))

    @classmethod
    def desk(cls) -> AnyDesk:
        """The data set's desk."""
        if cls.actor is not None:
            return RayScheduler(cls.run, cls.options, name=cls.actor, scheduler=cls.scheduler)
        return open_desk(cls.run or "", cls.options, scheduler=cls.scheduler)


def verl_reward(compute_score: Callable[..., Any], desk: AnyDesk) -> Callable[..., Any]:
    """A reward function that reports what it returns; for workers in other processes, `desk` is a `RayScheduler`.

    Works on every version, and sees groups that are filtered or dropped later. A score may be a number or a mapping
    with `score`. Validation prompts have no tag and are not reported.
    """

    @harmless(lambda: None)
    def report(extra_info: Any, found: Any) -> None:
        of = of_tag((extra_info or {}).get(TAG)) if isinstance(extra_info, Mapping) else None
        if of is not None:
            desk.report(of, number(found.get("score") if isinstance(found, Mapping) else found))

    if inspect.iscoroutinefunction(compute_score):

        @functools.wraps(compute_score)
        async def later(*arguments: Any, **named: Any) -> Any:
            found = await compute_score(*arguments, **named)
            report(named.get("extra_info", arguments[3] if len(arguments) > 3 else None), found)
            return found

        return later

    @functools.wraps(compute_score)
    def now(*arguments: Any, **named: Any) -> Any:
        found = compute_score(*arguments, **named)
        report(named.get("extra_info", arguments[3] if len(arguments) > 3 else None), found)
        return found

    return now


def observe_rows(desk: AnyDesk, extras: list[Any], scores: list[Any], masks: list[Any] | None) -> None:
    """One row a rollout -> one result a group, in the order of their first rows."""
    rows: dict[str, list[int]] = {}
    opened: dict[str, Open] = {}
    for k, extra in enumerate(extras):
        of = of_tag(extra.get(TAG)) if isinstance(extra, Mapping) else None
        if of is not None:
            opened[of.group_id] = of
            rows.setdefault(of.group_id, []).append(k)
    results = []
    for group_id, places in rows.items():
        result = {**opened[group_id].tag(), "rewards": [number(scores[k]) for k in places]}
        if masks is not None:
            result["cost"] = cost_of(tokens=(masks[k] for k in places))
        results.append(result)
    if results:
        desk.observe(results)


def _last_outputs(keys: list[str]) -> set[str]:
    """Keys `{uid}_{session}_{output}`: the last output of each session, the others repeat its reward."""
    last: dict[str, tuple[int, str]] = {}
    for key in keys:
        session, _, output = key.rpartition("_")
        place = int(output) if output.isdigit() else 0
        last[session] = max(last.get(session, (-1, "")), (place, key))
    return {key for _, key in last.values()}


def _is_validation(files: Any, config: Any) -> bool:
    """Whether a data set is made of the validation files, and these are not the training files too."""
    told, trained, validated = (_names(value) for value in (files, config.get("train_files"), config.get("val_files")))
    return told == validated and told != trained


def _names(files: Any) -> list[str]:
    return [] if files is None else [str(files)] if isinstance(files, str) else [str(file) for file in files]
