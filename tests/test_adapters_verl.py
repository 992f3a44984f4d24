"""verl's data set (V0 and V1), sampler and reward function, called as verl's trainers call them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from adapter_checks import BATCH, CONFIG, GROUP, close, observed, on_the_page, picks, reward, rows, same_after_a_kill

from envsched_core.adapters import desk as desks
from envsched_core.adapters.verl import TAG, VerlRows, VerlSampler, verl_reward

TRAIN, VALID = ["train.parquet"], ["test.parquet"]


class OwnRows:
    """As verl's RLHFDataset: rows of a table, the prompt as raw messages."""

    def __init__(self, data_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1):
        self.data_files, self.config, self.dataframe = data_files, config, rows()

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = dict(self.dataframe[item])
        return {**row, "raw_prompt": row.pop("prompt"), "index": row["extra_info"]["index"]}


def rows_at(run: Path, files: Any = TRAIN, **more: Any) -> Any:
    class Rows(VerlRows, OwnRows):
        pass

    Rows.run, Rows.options = run, {k: v for k, v in CONFIG.items() if k != "batch_size"}
    config = {"train_files": TRAIN, "val_files": VALID, "train_batch_size": BATCH, **more}
    return Rows(files, tokenizer=None, config=config, processor=None, max_samples=-1)


def collated(items: list[dict[str, Any]]) -> SimpleNamespace:
    """A batch after rollout: rows repeated, uid new, rewards one per token."""
    rollouts = [(item, k) for item in items for k in range(GROUP)]
    scores = np.zeros((len(rollouts), 3))
    scores[:, 2] = [reward(item["extra_info"]["task_id"], k) for item, k in rollouts]
    extra = np.empty(len(rollouts), dtype=object)
    extra[:] = [item["extra_info"] for item, _ in rollouts]
    order = np.argsort([hash((k, item["index"])) % 97 for item, k in rollouts], kind="stable")  # balanced over ranks
    tensors = {"token_level_scores": scores[order], "response_mask": np.ones((len(rollouts), 3))}
    return SimpleNamespace(batch=tensors, non_tensor_batch={"extra_info": extra[order]})


STEPS = 8


def train_v0(run: Path, first: int, last: int, *, drop: bool = False) -> Any:
    """Train steps `first` to `last` - 1; the loader has the next batch in hand before the update of each."""
    data = rows_at(run)
    batches = ([data[k % len(data)] for k in range(s * BATCH, (s + 1) * BATCH)] for s in range(first, STEPS))
    ahead = [next(batches)]
    for _ in range(first, last):
        ahead += [batch for batch in [next(batches, None)] if batch]
        data.on_batch_end(batch=collated(ahead.pop(0)[: BATCH - drop]))
    return data


def test_the_data_set_asks_and_the_trainer_lets_it_observe(tmp_path):
    data = train_v0(tmp_path / "run", 0, STEPS)
    assert len(data) == 24
    found = observed(tmp_path / "run")
    assert len(found) == STEPS * BATCH
    assert all(group.missing == 0 and group.cost.tokens == 3.0 * GROUP for group in found.values())
    assert all(sum(group.rewards) == sum(reward(group.task, k) for k in range(GROUP)) for group in found.values())
    assert on_the_page(tmp_path / "run", 7) == BATCH
    close(tmp_path / "run")


def test_it_resumes_to_the_same_picks(tmp_path):
    same_after_a_kill(train_v0, tmp_path, steps=STEPS, kill_after=4)


def test_groups_that_the_trainer_drops_expire(tmp_path):
    train_v0(tmp_path / "run", 0, STEPS, drop=True)
    metrics = desks.desk_here(tmp_path / "run").metrics()
    assert metrics["picks/observed"] == STEPS * (BATCH - 1)
    assert metrics["picks/expired"] == 5  # of steps 0 to 4; a pick is kept for two steps
    close(tmp_path / "run")


def test_validation_is_left_alone(tmp_path):
    data = rows_at(tmp_path / "run", VALID)
    assert (len(data), data[3]["index"], TAG in data[3]["extra_info"]) == (24, 3, False)
    data.on_batch_end(batch=None)
    assert not (tmp_path / "run").exists()


def test_rows_are_tagged_and_not_changed(tmp_path):
    data = rows_at(tmp_path / "run")
    item = data[0]
    assert item["extra_info"][TAG]["task"] == item["extra_info"]["task_id"]
    assert all(TAG not in row["extra_info"] for row in data.dataframe)
    data.on_batch_end(batch=SimpleNamespace(batch={}, non_tensor_batch={}))  # of another version: counted, not raised
    close(tmp_path / "run")


# ---------------------------------------------------------------- V1


class OwnBuffer:
    """As verl's replay buffer: keys of finished groups; the fields behind them lie in a queue."""

    def __init__(self, **named: Any) -> None:
        self.named = named

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, float]]:
        return SimpleNamespace(keys=list(self.named["queue"])), {"stale": 0.0}


def test_the_sampler_observes_the_last_output_of_every_session(tmp_path):
    class Buffer(VerlSampler, OwnBuffer):
        run = tmp_path / "run"

        def read(self, keys: list[str], partition_id: str) -> Any:
            return {name: [self.named["queue"][key][name] for key in keys] for name in self.fields}

    data, queue = rows_at(tmp_path / "run"), {}
    for k in range(BATCH):
        extra = data[k]["extra_info"]
        for session in range(GROUP):
            for output in range(1 + session % 2):  # some sessions have two outputs; both carry the final reward
                score = [0.0, reward(extra["task_id"], session)]
                queue[f"u{k}_{session}_{output}"] = {"rm_scores": np.array(score), "extra_info": extra}
    buffer = Buffer(trainer_mode="sync", trainer_config={}, refill_fn=None, queue=queue)
    batch, metrics = buffer.sample(0, "train", BATCH)
    assert (len(batch.keys), metrics) == (6 * BATCH, {"stale": 0.0})
    found = observed(tmp_path / "run")
    assert [len(group.rewards) for group in found.values()] == [GROUP] * BATCH
    buffer.sample(0, "val", BATCH)
    buffer.named["queue"] = {"odd": {}}
    assert buffer.sample(1, "train", BATCH)[0].keys == ["odd"]
    assert len(observed(tmp_path / "run")) == BATCH
    close(tmp_path / "run")


@pytest.mark.parametrize("later", [False, True])
def test_the_reward_function_reports_and_returns_what_it_returned(tmp_path, later):
    data = rows_at(tmp_path / "run")
    desk = desks.desk_here(tmp_path / "run")

    def score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> Any:
        return {"score": float(solution_str), "acc": 1.0}

    async def slow(*arguments: Any, **named: Any) -> Any:
        return score(*arguments, **named)

    reporting = verl_reward(slow if later else score, desk)

    def call(*arguments: Any, **named: Any) -> Any:
        return asyncio.run(reporting(*arguments, **named)) if later else reporting(*arguments, **named)

    extras = [data[k]["extra_info"] for k in range(2)]
    for rollout in range(GROUP):
        for extra in extras:
            found = call("shop", f"{reward(extra['task_id'], rollout)}", None, extra_info=extra)
            assert found["acc"] == 1.0
    assert call("shop", "1", None, {"index": 3}) == {"score": 1.0, "acc": 1.0}  # validation
    groups = observed(tmp_path / "run")
    assert {g.task: list(g.rewards) for g in groups.values()} == {
        e["task_id"]: [reward(e["task_id"], k) for k in range(GROUP)] for e in extras
    }
    assert picks(tmp_path / "run")[0][:2] == [g.key for g in groups.values()]
    close(tmp_path / "run")
