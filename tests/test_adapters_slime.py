"""slime's data source and hook, called as its rollout function calls them."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from adapter_checks import BATCH, CONFIG, GROUP, close, killed, observed, on_the_page, picks, reward, rows

from envsched_core.adapters.slime import SlimeSource, observe_all
from envsched_core.replay import verify


class Sample(SimpleNamespace):
    """slime's own has these fields and more."""


class OwnSource:
    """As slime's source with a buffer: prompts in order, groups handed back come first."""

    def __init__(self, args: Any) -> None:
        self.args, self.buffer, self.saved = args, [], {}
        self.sample_group_index = self.sample_index = 0
        samples = [
            Sample(prompt=row["prompt"], metadata={"env": row["data_source"], "task_id": f"t{k}"}, reward=None)
            for k, row in enumerate(rows())
        ]
        self.dataset = SimpleNamespace(samples=samples)

    def _get_samples_from_buffer(self, count: int) -> list[Any]:
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def add_samples(self, groups: list[Any]) -> None:
        self.buffer.extend(groups)

    def save(self, rollout_id: int) -> None:
        self.args.disk[rollout_id] = (self.sample_group_index, self.sample_index)

    def load(self, rollout_id: int | None = None) -> None:
        self.sample_group_index, self.sample_index = self.args.disk.get(rollout_id, (0, 0))


def source_at(run: Path, **more: Any) -> Any:
    class Source(SlimeSource, OwnSource):
        pass

    Source.run, Source.options = run, {k: v for k, v in CONFIG.items() if k not in ("batch_size", "group_size")}
    args = SimpleNamespace(rollout_batch_size=BATCH, n_samples_per_prompt=GROUP, reward_key=None, disk={})
    return Source(SimpleNamespace(**{**vars(args), **more}))


def roll_out(group: list[Any]) -> None:
    for k, sample in enumerate(group):
        sample.reward, sample.response_length = reward(sample.metadata["task_id"], k), 10
        sample.weight_versions = ["3"]


def iteration(source: Any, rollout_id: int, *, over: int = 2) -> list[Any]:
    """One iteration: over-sampling, groups done out of order, flat ones filtered, the rest handed back."""
    kept, everything, running = [], [], []
    while len(kept) < 2:
        running = running or source.get_samples(BATCH + over)
        group = running.pop(len(running) // 2)
        roll_out(group)
        everything.append(group)
        if len({sample.reward for sample in group}) > 1:
            kept.append(group)
    everything.sort(key=lambda group: group[0].index)
    observe_all(source.args, everything, source)
    source.add_samples(running)  # aborted
    return everything


def test_all_groups_are_observed_the_filtered_ones_too_and_aborted_ones_come_again(tmp_path):
    source = source_at(tmp_path / "run")
    done = [iteration(source, k) for k in range(5)]
    ids = [sample.index for groups in done for group in groups for sample in group]
    assert len(set(ids)) == len(ids)
    groups = observed(tmp_path / "run")
    assert len(groups) == sum(map(len, done))
    assert {len(set(group.rewards)) > 1 for group in groups.values()} == {True, False}
    assert all(group.cost.tokens == 40.0 and group.policy_version == "3" for group in groups.values())
    handed_back = source.buffer[0][0].metadata["envsched"]
    assert source.get_samples(1)[0][0].metadata["envsched"] == handed_back
    assert on_the_page(tmp_path / "run", max(picks(tmp_path / "run"))) > 0
    close(tmp_path / "run")


def test_the_rows_themselves_are_never_handed_out(tmp_path):
    source = source_at(tmp_path / "run")
    ((first, *_), *_) = source.get_samples(BATCH)
    first.metadata["task_id"] = "changed"
    assert "changed" not in {sample.metadata["task_id"] for sample in source.dataset.samples}
    assert all("envsched" not in sample.metadata for sample in source.dataset.samples)
    close(tmp_path / "run")


def test_it_goes_on_from_its_checkpoint_with_the_picks_it_had(tmp_path):
    source = source_at(tmp_path / "run")
    plain = [[s.metadata["task_id"] for s, *_ in iteration(source, k, over=0)] for k in range(3)]
    source.save(2)
    snapshot = copy.deepcopy(source.args.disk)
    plain += [[s.metadata["task_id"] for s, *_ in iteration(source, k, over=0)] for k in (3, 4)]
    again = source_at(killed(tmp_path / "run", tmp_path / "again"), disk=snapshot)
    again.load(2)
    picked = picks(tmp_path / "again")
    told = [sample.metadata["task_id"] for sample, *_ in again.get_samples(BATCH)]
    assert told == [key.partition("::")[2] for key in picked[3][:BATCH]]
    assert again.sample_index == snapshot[2][1] + BATCH * GROUP
    assert picks(tmp_path / "again") == picked  # nothing was decided anew
    close(tmp_path / "run"), close(tmp_path / "again")
    assert verify(tmp_path / "again").ok


@pytest.mark.parametrize(
    "bad", [[], [Sample()], [Sample(metadata=None, reward=object())], [[Sample(metadata={})]], None]
)
def test_nothing_a_group_holds_raises(tmp_path, bad):
    source = source_at(tmp_path / "run")
    (group,) = source.get_samples(1)
    group[0].reward, group[1].reward, group[2].reward = {"score": 1.0}, float("nan"), "odd"
    observe_all(source.args, [bad, group, *([bad] if bad else [])], source)
    (found,) = observed(tmp_path / "run").values()
    assert (found.rewards, found.missing) == ((1.0,), 3)
    observe_all(source.args, [group], object())  # another source: not ours
    close(tmp_path / "run")
