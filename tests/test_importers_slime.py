"""slime: samples as the converter writes them, and pickles that are told and never loaded."""

import json
import runpy
import sys
import types
import zipfile
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, sniff
from envsched_core.importers.pickles import CONVERTER

RUN = Path(__file__).parent / "formats" / "slime"
FIRST = RUN / "rollout_0.jsonl"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def changed(path, **changes):
    rows = [json.loads(line) | changes for line in FIRST.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_samples_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("slime",), 16, 2)
    assert (way.report.steps, way.report.missing) == ((0, 1), 2)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])
    assert first.reward_parts.keys() == {"score"}


def test_aborted_samples_have_no_reward():
    group = next(read(RUN).groups())
    assert (group.rewards, group.missing, group.step, group.policy_version) == ((1.0, 0.0, 0.0), 1, 0, "0")
    assert group.cost.tokens == 106.0


def test_an_object_of_several_rewards_asks_which(tmp_path):
    path = changed(tmp_path / "log.jsonl", status="completed", reward={"right": 1.0, "short": 0.5})
    with pytest.raises(LogFormatError, match=r"several numbers \(right, short\): choose one with --reward"):
        read(path)
    assert next(read(path, reward="short").groups()).rewards == (0.5,) * 4
    assert next(read(changed(path, status="completed", reward=2.0)).groups()).rewards == (2.0,) * 4


def test_samples_of_one_execution_count_once(tmp_path):
    path = changed(tmp_path / "log.jsonl", rollout_id=7, status="completed")
    assert [len(group.rewards) for group in read(path).groups()] == [1] * 8


def test_evaluations_and_removed_samples_were_not_trained_on(tmp_path):
    assert next(read(changed(tmp_path / "a.jsonl", slime_eval=True)).groups()).trained is False
    assert next(read(changed(tmp_path / "b.jsonl", remove_sample=True)).groups()).trained is False
    assert next(read(FIRST).groups()).trained is None


def test_the_converter_writes_what_is_read(tmp_path, monkeypatch):
    """The script that the refusal shows, run with a stand-in for torch."""
    rows = [json.loads(line) for line in FIRST.read_text().splitlines()]
    samples = [
        {k: v for k, v in row.items() if not k.startswith("slime_")} | {"tokens": [1], "loss_mask": [1]} for row in rows
    ]
    loaded = {"rollout_id": 0, "samples": samples}
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=lambda *_, **__: loaded))
    monkeypatch.setattr(sys, "argv", ["convert.py", str(tmp_path / "rollout_0.pt")])
    (tmp_path / "convert.py").write_text(CONVERTER)
    runpy.run_path(str(tmp_path / "convert.py"))
    written = tmp_path / "rollout_0.jsonl"
    assert sniff(written) == "slime"
    assert [group.rewards for group in read(written).groups()] == [group.rewards for group in read(FIRST).groups()]
    assert "tokens" not in written.read_text()


RUNS = b"raise SystemExit('loaded')"
TRAP = b"\x80\x02cbuiltins\nexec\nX" + len(RUNS).to_bytes(4, "little") + RUNS + b"\x85R."
"""A pickle that would end the process if it were loaded."""


@pytest.mark.security
@pytest.mark.parametrize("kind", ["torch", "plain"])
@pytest.mark.parametrize("format", [None, "slime"])
def test_a_pickle_is_refused_with_the_way_out(tmp_path, kind, format):
    path = tmp_path / "rollout_3.pt"
    if kind == "torch":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("rollout_3/data.pkl", TRAP)
    else:
        path.write_bytes(TRAP)
    with pytest.raises(LogFormatError) as raised:
        read(path, format=format)
    assert "never loaded" in str(raised.value)
    assert CONVERTER in str(raised.value)


def test_pickles_in_a_folder_are_passed_over_and_told_once(tmp_path):
    (tmp_path / "log.jsonl").write_text(FIRST.read_text())
    for number in range(3):
        (tmp_path / f"rollout_{number}.pt").write_bytes(TRAP)
    notes = [note for note in read(tmp_path).report.notes if "never loaded" in note]
    assert len(notes) == 1
    assert "3 files (rollout_0.pt" in notes[0]


def test_what_is_no_sample_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"reward": 1}\n')
    with pytest.raises(LogFormatError, match="is no log of slime"):
        read(tmp_path / "log.jsonl", format="slime")
