"""Reading of single objects, packed files and archives, and what is said of files that are no logs."""

import io
import json
import mmap
import shutil
import sys
import zipfile
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import import_log
from envsched_core.importers.files import Source, head_of, items_of, members_of, records, typed_lines
from envsched_core.importers.json_cut import items, members

FORMATS = Path(__file__).parent / "formats"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def mapped(text):
    data = mmap.mmap(-1, len(text))
    data.write(text)
    return data


@given(st.dictionaries(texts, values, max_size=5), st.sampled_from([None, 1]))
def test_members_are_those_of_the_decoded_object(whole, indent):
    data = mapped(json.dumps(whole, indent=indent, ensure_ascii=False).encode())
    found = {member.key: json.loads(data[member.start : member.end]) for member in members(data, len(data))}
    assert found == whole


@given(st.lists(values, max_size=5), st.sampled_from([None, 1]))
def test_items_are_those_of_the_decoded_array(whole, indent):
    data = mapped(json.dumps(whole, indent=indent).encode())
    assert [json.loads(data[start:end]) for start, end in items(data)] == whole


@given(st.integers(1, 60))
def test_a_torn_object_yields_what_is_whole(tmp_path_factory, cut):
    whole = json.dumps({"a": 1, "list": [{"x": 1}, {"x": 2}, {"x": 3}], "z": "end"}, indent=1).encode()
    path = tmp_path_factory.mktemp("torn") / "log.json"
    path.write_bytes(whole[: len(whole) - cut])
    found = list(items_of(Source(path), "list"))
    good = [record.value["x"] for record in found if not record.problem]
    assert good == [1, 2, 3][: len(good)]
    assert sum(bool(record.problem) for record in found) <= 1


def test_a_large_object_is_known_by_its_members_and_read_by_item(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"info": {"a": [1]}, "rows": [{"x": k} for k in range(30_000)], "end": 2}, indent=1))
    head = head_of(path)
    assert (head.kind, head.keys, head.first) == ("object", ("info", "rows", "end"), {"info": {"a": [1]}, "end": 2})
    assert members_of(Source(path), frozenset({"end"})) == {"end": 2}
    assert [record.line for record in items_of(Source(path), "rows")][-1] == 30_000
    assert len(next(records(Source(path), "object")).value["rows"]) == 30_000


class Typed(msgspec.Struct):
    """A record of which one field is read."""

    x: float | None = None


def test_typed_lines_read_only_what_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"x": 1, "y": [1, 2]}\n{"x": NaN}\n{"x": "a"}\n[1]\n\n{"y": 1}\n{"x"')
    found = list(typed_lines(Source(path), Typed))
    assert [record.value.x for record in found if not record.problem][::2] == [1.0, None]
    problems = {record.line: record.problem for record in found if record.problem}
    assert problems[3].startswith("not of this format")
    assert (problems[4], problems[7]) == ("not a JSON object", "torn last line")


def test_zstd_without_its_library_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "log.zst"
    path.write_bytes(pa.compress(b'{"env": "e", "task_id": 1, "reward": 1}\n', codec="zstd", asbytes=True))
    assert import_log([path]).report.rollouts == 1
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LogFormatError, match=r"envsched\[dashboard\]"):
        import_log([path])


def test_a_zip_is_told_by_the_names_in_it(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("notes.txt", "{}")
    path = tmp_path / "log.bin"
    path.write_bytes(packed.getvalue())
    assert head_of(path)[1:3] == ("zip", ("notes.txt",))
    with pytest.raises(LogFormatError, match=r"a ZIP archive with 'notes\.txt'"):
        import_log([path])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"name": "find", "description": "", "parameters": {}}], "--tools FILE adds them"),
        ([{"type": "function", "function": {"name": "find"}}], "--tools FILE adds them"),
        ([{"env": "e", "model": "m", "avg_reward": 0.5, "num_examples": 3}], "summaries of evaluations"),
        ([{"train/loss": 0.1, "train/reward": 0.2, "step": 1}], "metrics of a training run"),
        ([{"step": 1, "data": {"critic/score/mean": 0.1}}], "metrics of a training run"),
        ([{"mean/reward": 0.1, "max/reward": 0.2}], "summed up by task"),
        ([{"env": "e", "config": {}}], "a list of environments"),
        ([{"env": "e", "num_examples": 5, "rollouts_per_example": 3}], "settings of an evaluation"),
    ],
)
def test_a_file_that_is_no_log_is_told_for_what_it_is(tmp_path, rows, said):
    path = tmp_path / "side.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for place in (path, tmp_path):
        with pytest.raises(LogFormatError, match=said):
            import_log([place])
    shutil.copy(FORMATS / "table.jsonl", tmp_path)
    assert any(said in note for note in import_log([tmp_path]).report.notes)


def test_a_file_of_a_folder_that_cannot_be_read_does_not_lose_the_others(tmp_path):
    shutil.copy(FORMATS / "table.jsonl", tmp_path)
    (tmp_path / "other.jsonl").write_text('{"task_id": 1, "reward": 1}\n')
    report = import_log([tmp_path]).report
    assert report.groups == 3
    assert any(note.startswith("passed over") and "no column for env" in note for note in report.notes)
    (tmp_path / "table.jsonl").unlink()
    with pytest.raises(LogFormatError, match="no column for env"):
        import_log([tmp_path])


def test_reasoning_gym_object(tmp_path):
    log = import_log([FORMATS / "reasoning_gym.json"])
    first, second = log.groups()
    assert (first.key, first.rewards, second.rewards, second.missing) == ("sums::0", (1.0, 0.0), (0.5,), 1)
    assert log.tasks[0].text == "1+1?"
    assert whole_way(FORMATS / "reasoning_gym.json", tmp_path).rollouts[0].messages[1].role == "assistant"


def test_public_reasoning_gym_object(shared_inputs):
    path = shared_inputs / "04-reasoning-gym-eval" / "raw-example" / "openai_o3-mini_rush_hour.json"
    report = import_log([path]).report
    assert (report.rollouts, report.group_sizes) == (150, ((3, 50),))
    assert report.mean_reward == pytest.approx(0.0733333333)
