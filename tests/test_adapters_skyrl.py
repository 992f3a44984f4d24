"""SkyRL's data set and generator, called as its trainer calls them: shuffled indices, groups interleaved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from adapter_checks import (
    BATCH,
    CONFIG,
    GROUP,
    close,
    observed,
    on_the_page,
    picks,
    reward,
    rows,
    same_after_a_kill,
)

from envsched_core.adapters.skyrl import SkyGenerator, SkyRows


class OwnRows:
    """As PromptDataset."""

    def __init__(self, datasets: Any, tokenizer: Any) -> None:
        self.rows = rows()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> tuple[Any, Any, Any, str]:
        row = self.rows[item]
        return row["prompt"], row["data_source"], {"extra_info": row["extra_info"]}, str(item)


class OwnGenerator:
    """As a generator: outputs in the order of its inputs; step-wise, a row for every turn."""

    def __init__(self, *, turns: int = 1, broken: bool = False) -> None:
        self.turns, self.broken, self.engine = turns, broken, "engine"

    async def generate(self, input_batch: dict[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:
        ids, scores = [], []
        for which, extra in zip(input_batch["trajectory_ids"], input_batch["env_extras"], strict=True):
            final = reward(extra["extra_info"]["task_id"], which.repetition_id)
            ids += [which] * self.turns
            scores += [[0.0, 0.0]] * (self.turns - 1) + [[0.0, final]]
        out = {"rewards": scores, "response_ids": [[1, 2]] * len(ids), "trajectory_ids": ids}
        return {"rewards": 3} if self.broken else out


def rows_at(run: Path) -> Any:
    class Rows(SkyRows, OwnRows):
        pass

    Rows.run, Rows.options = run, CONFIG
    return Rows("train.parquet", None)


def batch_of(items: list[Any], phase: str = "train") -> dict[str, Any]:
    rollouts = [(item, k) for k in range(GROUP) for item in items]
    return {
        "prompts": [item[0] for item, _ in rollouts],
        "env_extras": [item[2] for item, _ in rollouts],
        "trajectory_ids": [SimpleNamespace(instance_id=item[3], repetition_id=k) for item, k in rollouts],
        "batch_metadata": SimpleNamespace(global_step=1, training_phase=phase),
    }


def train(run: Path, first: int, last: int, generator: Any = None) -> tuple[Any, Any]:
    data = rows_at(run)
    generator = SkyGenerator(generator or OwnGenerator(), data)
    for step in range(first, last):
        shuffled = np.random.default_rng(step).permutation(len(data))[:BATCH]
        asyncio.run(generator.generate(batch_of([data[int(k)] for k in shuffled])))
    return data, generator


@pytest.mark.parametrize("turns", [1, 3])
def test_every_group_of_the_generator_is_observed(tmp_path, turns):
    data, generator = train(tmp_path / "run", 0, 6, OwnGenerator(turns=turns))
    found = observed(tmp_path / "run")
    assert (len(data), len(found), generator.engine) == (24, 6 * BATCH, "engine")
    assert all(list(g.rewards) == [reward(g.task, k) for k in range(GROUP)] for g in found.values())
    assert all(g.cost.tokens == 2.0 * GROUP * turns for g in found.values())
    assert on_the_page(tmp_path / "run", 5) == BATCH
    close(tmp_path / "run")


def test_it_resumes_to_the_same_picks(tmp_path):
    same_after_a_kill(train, tmp_path, steps=8, kill_after=4)


def test_what_was_fetched_and_not_generated_comes_first_after_a_kill(tmp_path):
    data, _ = train(tmp_path / "run", 0, 2)
    fetched = [data[k] for k in range(BATCH)]
    close(tmp_path / "run")
    again = rows_at(tmp_path / "run")
    assert [again[k] for k in (5, 3, 9, 1)] == fetched
    assert again[0][3] not in {uid for *_, uid in fetched}
    close(tmp_path / "run")
    assert len(picks(tmp_path / "run")) == 4


def test_evaluation_is_not_observed_and_odd_output_is_passed_on(tmp_path):
    data, generator = train(tmp_path / "run", 0, 1)
    asyncio.run(generator.generate(batch_of([data[0]], "eval")))
    asyncio.run(generator.generate(batch_of([("p", "shop", {"extra_info": {"task_id": "t1"}}, "17")])))
    generator.inner.broken = True
    assert asyncio.run(generator.generate(batch_of([data[1]]))) == {"rewards": 3}
    assert len(observed(tmp_path / "run")) == BATCH
    close(tmp_path / "run")
