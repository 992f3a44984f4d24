"""verl's own data set and loader, where they are installed; they run on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from adapter_checks import BATCH, GROUP, at_desk, close, killed, observed, on_the_page, picks, reward, rows

from envsched_core.adapters import desk as desks
from envsched_core.adapters.verl import VerlRows

pytest.importorskip("verl", reason="verl is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


def loader_at(run: Path, table: Path) -> tuple[Any, Any]:
    """As verl's trainer makes them."""
    from omegaconf import OmegaConf
    from torch.utils.data import Dataset, SequentialSampler
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    class Rows(VerlRows, RLHFDataset):
        pass

    Rows.run, Rows.options = run, {"group_size": GROUP, "refresh_groups": 20}
    own = {"cache_dir": str(table.parent / "cache"), "filter_overlong_prompts": False}
    config = OmegaConf.create(
        {"train_files": str(table), "val_files": str(table) + ".val", "train_batch_size": BATCH, **own}
    )
    data = Rows(data_files=str(table), tokenizer=None, config=config, processor=None, max_samples=-1)
    assert isinstance(data, Dataset)
    loader = StatefulDataLoader(
        data, batch_size=BATCH, num_workers=0, drop_last=True, collate_fn=collate_fn, sampler=SequentialSampler(data)
    )
    return data, loader


def trained(batch: dict[str, Any]) -> SimpleNamespace:
    """A `DataProto` after rollouts and rewards, as far as it is read."""
    import torch

    extra = np.repeat(batch["extra_info"], GROUP)
    scores = torch.zeros(len(extra), 5, dtype=torch.bfloat16)
    scores[:, 4] = torch.tensor([reward(e["task_id"], k % GROUP) for k, e in enumerate(extra)])
    tensors = {"token_level_scores": scores, "response_mask": torch.ones(len(extra), 5)}
    return SimpleNamespace(batch=tensors, non_tensor_batch={"extra_info": extra})


def test_it_trains_over_epochs_and_resumes_in_the_middle_of_one(tmp_path):
    table = tmp_path / "train.parquet"
    pd.DataFrame(rows()).to_parquet(table)
    data, loader = loader_at(tmp_path / "run", table)
    seen: list[list[str]] = []
    for step, batch in enumerate(batch for _ in range(2) for batch in loader):
        seen.append([extra["task_id"] for extra in batch["extra_info"]])
        data.on_batch_end(batch=trained(batch))
        if step == 7:  # in the second epoch
            state = loader.state_dict()
            again = killed(tmp_path / "run", tmp_path / "again")
    assert len(seen) == 12
    close(tmp_path / "run")
    assert on_the_page(tmp_path / "run", 11) == BATCH
    data, loader = loader_at(again, table)
    loader.load_state_dict(state)
    rest = []
    for batch in loader:
        rest.append([extra["task_id"] for extra in batch["extra_info"]])
        data.on_batch_end(batch=trained(batch))
    close(again)
    assert rest == seen[8:]
    assert picks(again) == picks(tmp_path / "run")
    assert set(observed(again)) == set(observed(tmp_path / "run"))
    assert not desks.failures["VerlRows.on_batch_end"]
    assert at_desk(again).metrics()["groups/observed"] == 12 * BATCH
    close(again)
