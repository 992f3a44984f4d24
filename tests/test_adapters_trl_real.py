"""GRPOTrainer itself, on the CPU: a tiny model with random weights, everything built here, nothing fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from adapter_checks import close, observed, on_the_page, picks

from envsched_core import views
from envsched_core.adapters import desk as desks
from envsched_core.adapters.trl import GRPOMixin
from envsched_core.views.run_view import RunView

pytest.importorskip("trl")
pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]  # the trainer's own warnings are not ours

GENERATIONS, PROMPTS, STEPS = 4, 4, 5
LETTERS = "abcdefghijklmnop"


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<unk>", *LETTERS]
    made = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def model() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    special = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=3 + len(LETTERS), max_position_embeddings=64, **sizes, **special))


def tasks() -> Any:
    from datasets import Dataset

    rows = [(env, k) for k in range(8) for env in ("first", "often")]
    return Dataset.from_dict(
        {
            "prompt": [f"{LETTERS[k]} {LETTERS[k + 1]}" for _, k in rows],
            "environment": [env for env, _ in rows],
            "task_id": [f"t{k}" for _, k in rows],
        }
    )


def solved(completions: list[str], environment: list[str], task_id: list[str], **_: Any) -> list[float]:
    """`first`: the first letter lies before the task's; `often`: at least half of the letters do."""
    found: list[float] = []
    for text, env, task in zip(completions, environment, task_id, strict=True):
        before = [letter in LETTERS[: 4 + int(task[1:])] for letter in text.split()] or [False]
        found.append(float(before[0] if env == "first" else sum(before) * 2 >= len(before)))
    said.extend((f"{env}::{task}", value) for env, task, value in zip(environment, task_id, found, strict=True))
    return found


said: list[tuple[str, float]] = []
"""What `solved` returned, in order, and for which task."""


def short(completions: list[str], **_: Any) -> list[float | None]:
    return [None if not text else 0.5 for text in completions]


def trainer_at(folder: Path, run: Path, steps: int) -> Any:
    from trl import GRPOConfig, GRPOTrainer

    class Trainer(GRPOMixin, GRPOTrainer):
        pass

    Trainer.run, Trainer.options = run, {"refresh_groups": 8}
    settings = {"report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True, "logging_strategy": "no"}
    sizes = {"per_device_train_batch_size": PROMPTS * GENERATIONS, "num_generations": GENERATIONS}
    args = GRPOConfig(
        str(folder), max_steps=steps, max_completion_length=6, learning_rate=1e-3, save_steps=3, seed=3,
        reward_weights=[1.0, 0.1], **sizes, **settings,
    )  # fmt: skip
    return Trainer(model(), [solved, short], args=args, train_dataset=tasks(), processing_class=tokenizer())


def rewards_fit(run: Path) -> int:
    """Every observed group has a full set of rewards that its two functions can give; returns how many are mixed."""
    groups = observed(run).values()
    possible = {round(a + b, 6) for a in (0.0, 1.0) for b in (0.0, 0.05)}
    assert all(len(g.rewards) == GENERATIONS and {round(x, 6) for x in g.rewards} <= possible for g in groups)
    told = Counter((g.key, tuple(float(int(x)) for x in g.rewards)) for g in groups)
    groups_said = [said[k : k + GENERATIONS] for k in range(0, len(said), GENERATIONS)]
    assert told == Counter((group[0][0], tuple(value for _, value in group)) for group in groups_said)
    return sum(len(set(g.rewards)) > 1 for g in groups)


def test_ask_train_observe_and_the_decision_page_shows_it(tmp_path):
    said.clear()
    trainer = trainer_at(tmp_path / "model", tmp_path / "run", STEPS)
    trainer.train()
    close(tmp_path / "run")
    assert not desks.failures
    found, asked = observed(tmp_path / "run"), picks(tmp_path / "run")
    trained = [g for g in found.values() if g.step is not None and g.step < STEPS]
    assert len(trained) == len(found) == STEPS * PROMPTS
    assert all(len(keys) == PROMPTS for keys in asked.values())
    assert {key.partition("::")[0] for keys in asked.values() for key in keys} == {"first", "often"}
    assert rewards_fit(tmp_path / "run") > 0
    assert on_the_page(tmp_path / "run", STEPS - 1) == PROMPTS
    view = RunView(tmp_path / "run")
    view.poll()
    ended = views.batch(view, STEPS - 1)
    assert list(ended[ended["kept_as"] == "pick"]["ended"]) == ["observed"] * PROMPTS


def test_a_trainer_that_resumes_goes_through_the_same_prompts(tmp_path):
    whole = trainer_at(tmp_path / "one", tmp_path / "whole", 6)
    whole.train()
    close(tmp_path / "whole")
    said.clear()
    trainer_at(tmp_path / "two", tmp_path / "run", 3).train()
    close(tmp_path / "run")
    again = trainer_at(tmp_path / "two", tmp_path / "run", 6)
    again.train(resume_from_checkpoint=True)
    close(tmp_path / "run")
    assert not desks.failures
    assert picks(tmp_path / "run") == picks(tmp_path / "whole")
    assert len(observed(tmp_path / "run")) == 6 * PROMPTS
    assert rewards_fit(tmp_path / "run") > 0


def test_two_ranks_see_one_order_and_all_rewards_are_gathered(tmp_path):
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", __file__, str(tmp_path)]
    here = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *ranks], env=here, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert one["order"] == two["order"]
    assert len(one["order"]) == 4
    assert {len(each["said"]) for each in (one, two)} == {4 * PROMPTS * GENERATIONS}
    groups = observed(tmp_path / "run").values()
    assert len(groups) == 4 * 2 * PROMPTS  # each rank has half of a batch twice as large
    said.clear()
    said.extend((key, value) for each in (one, two) for key, value in each["said"])
    assert rewards_fit(tmp_path / "run") > 0
    assert on_the_page(tmp_path / "run", 3) == 2 * PROMPTS


def one_rank(folder: Path) -> None:
    """What each of the two processes runs."""
    trainer = trainer_at(folder / "model", folder / "run", 4)
    share, order = trainer._share, []
    trainer._share = lambda rows: order.append(share(rows)) or order[-1]
    trainer.train()
    told = {"order": order[:4], "said": said, "failures": desks.failures}
    (folder / f"{trainer.accelerator.process_index}.json").write_text(json.dumps(told))
    if trainer.slots is not None:
        close(folder / "run")
    assert trainer.accelerator.num_processes == 2
    assert not desks.failures


if __name__ == "__main__":
    one_rank(Path(sys.argv[1]))
