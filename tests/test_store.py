from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_runs import SEGMENT, decision, group, read, small_graph, write_run

from envsched_core.config import RULES_BEFORE
from envsched_core.errors import DamagedError, FormatVersionError, LockedError, StoreError
from envsched_core.records import Cost, GroupResult, Place, TaskSpec, Tool
from envsched_core.store import (
    ChainProblem,
    Manifest,
    RunReader,
    RunWriter,
    check_chain,
    list_runs,
    new_manifest,
    read_manifest,
)
from envsched_core.store.lines import Envelope, event_line
from envsched_core.store.manifest import write_manifest

finite = st.floats(allow_nan=False, allow_infinity=False)
name = st.text(max_size=5)
results = st.builds(
    GroupResult,
    name,
    name,
    name,
    st.lists(finite, max_size=3).map(tuple),
    step=st.none() | st.integers(0, 9),
    cost=st.none() | st.builds(Cost, tokens=finite),
    calls=st.lists(st.lists(name, max_size=2).map(tuple), max_size=2).map(tuple),
    places=st.lists(st.builds(Place, name, st.integers(1, 9)), max_size=2).map(tuple),
)
tools = st.lists(st.builds(Tool, st.sampled_from("ab"), st.sampled_from(["", "x", "y"])), max_size=3).map(tuple)
tasks = st.lists(st.builds(TaskSpec, st.sampled_from("ef"), name, text=name, tools=tools), max_size=5)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def folder() -> Iterator[Callable[[], Path]]:
    """Fresh folders for hypothesis examples."""
    with TemporaryDirectory() as root:
        yield lambda: Path(root) / str(time.monotonic_ns())


# ---------------------------------------------------------------- laws


@given(st.lists(st.lists(results, max_size=3), max_size=4), tasks, st.dictionaries(name, finite | name, max_size=2))
def test_what_is_appended_reads_back(
    folder: Callable[[], Path], calls: list[list[GroupResult]], catalogue: list[TaskSpec], data: dict[str, Any]
) -> None:
    path = folder()
    with RunWriter.create(path, new_manifest("r", "live")) as writer:
        writer.segment_bytes = 300
        writer.add_tasks(catalogue[:2])
        for call in calls:
            writer.observed(call, 3)
        writer.add_tasks(catalogue[2:])
        writer.note(None, data)
        writer.asked(decision())
    reader = RunReader(path)
    events = [located.event for located in reader.events()]
    told = [event.data for event in events if event.kind != "registered"]
    assert told == [result for call in calls for result in call] + [data, decision()]
    assert [event.seq for event in events] == list(range(len(events)))
    assert reader.tasks() == catalogue
    assert not reader.problems
    assert not check_chain(path)


@given(st.data())
def test_cutting_the_log_anywhere_loses_only_the_torn_line(folder: Callable[[], Path], data: st.DataObject) -> None:
    path = folder()
    write_run(path)
    whole = (path / SEGMENT).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    os.truncate(path / SEGMENT, at)
    kept = whole[:at].count(b"\n")
    reader = RunReader(path)
    assert len(list(reader.events())) == kept
    assert reader.torn_bytes == at - (whole[:at].rfind(b"\n") + 1)
    with RunWriter.resume(path) as writer:
        missing_newline = whole[at : at + 1] == b"\n" and at > 0
        assert (writer.dropped_bytes > 0) >= (reader.torn_bytes > 0 and not missing_newline)
        writer.note(9, {})
        if kept == 0 and not missing_newline:
            writer.add_tasks([TaskSpec("shop", "new")])
    seqs = [located.event.seq for located in RunReader(path).events()]
    assert seqs == list(range(len(seqs)))
    assert len(seqs) >= kept + 2
    assert check_chain(path) == []


@given(st.data())
def test_any_changed_digit_is_found(folder: Callable[[], Path], data: st.DataObject) -> None:
    path = folder()
    write_run(path)
    choices = [SEGMENT, "tasks.jsonl", "tools.jsonl", "run.json", "graph/1/within_weights.npy", "graph/1/pattern.npy"]
    file = path / data.draw(st.sampled_from(choices))
    raw = bytearray(file.read_bytes())
    binary = file.suffix == ".npy"
    at = data.draw(st.sampled_from([i for i, byte in enumerate(raw) if binary or 48 <= byte < 58]))
    raw[at] = data.draw(st.integers(0 if binary else 48, 255 if binary else 57).filter(lambda byte: byte != raw[at]))
    if file.name == "run.json" and b'"format": 1' not in raw:
        return  # another format number is another matter
    file.write_bytes(raw)
    problems = check_chain(path)
    assert problems
    if file.name.startswith("seg-"):
        assert problems[0].line == bytes(raw[:at]).count(b"\n") + 1


@given(st.data())
def test_no_changed_bytes_make_a_reader_fail(folder: Callable[[], Path], data: st.DataObject) -> None:
    path = folder()
    write_run(path)
    raw = bytearray((path / SEGMENT).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    (path / SEGMENT).write_bytes(raw)
    try:
        read(path)
    except FormatVersionError:
        return  # "v" itself was hit
    check_chain(path)
    RunWriter.resume(path).close()
    assert RunReader(path).tasks() != []


# ---------------------------------------------------------------- the chain


def test_a_changed_group_is_named(run: Path) -> None:
    raw = (run / SEGMENT).read_bytes()
    (run / SEGMENT).write_bytes(
        raw.replace(
            b'"g1-t1","env":"shop","task":"t1","rewards":[0.0,1.0,',
            b'"g1-t1","env":"shop","task":"t1","rewards":[0.0,0.0,',
        )
    )
    (problem,) = check_chain(run)
    assert problem[:5] == (SEGMENT, 8, 7, 1, "shop::t1")


def test_a_lost_line_and_changed_other_files_are_named(run: Path) -> None:
    lines = (run / SEGMENT).read_bytes().splitlines(keepends=True)
    (run / SEGMENT).write_bytes(b"".join(lines[:4] + lines[5:]))
    (run / "tasks.jsonl").write_bytes((run / "tasks.jsonl").read_bytes().replace(b"buy 2", b"buy 3"))
    (run / "graph/1/pattern.npy").unlink()
    problems = check_chain(run)
    assert [(p.segment, p.line) for p in problems] == [(SEGMENT, 5), ("tasks.jsonl", 1), ("graph/1", 0)]
    assert isinstance(problems[0], ChainProblem)


def test_same_calls_give_same_bytes(tmp_path: Path, run: Path) -> None:
    write_run(tmp_path / "again")
    for name in ("run.json", SEGMENT, "tasks.jsonl", "tools.jsonl", "graph/1/within_weights.npy"):
        assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes()


# ---------------------------------------------------------------- reading what is not right


def test_unreadable_lines_are_counted_with_their_offsets_and_passed_over(run: Path) -> None:
    lines = (run / SEGMENT).read_bytes().splitlines(keepends=True)
    bad = [b"\0" * 40 + b"\n", b'{"v":1,"seq":2,"ki\xff\n', lines[3][:30] + lines[4], b'{"a":' + b"[" * 9999 + b"\n"]
    (run / SEGMENT).write_bytes(b"".join(lines[:3] + bad + lines[3:]))
    reader = RunReader(run)
    for _ in range(2):  # counted once
        assert len(list(reader.events())) == len(lines)
    start = len(b"".join(lines[:3]))
    offsets = [start + sum(map(len, bad[:i])) for i in range(4)]
    assert [(p.line, p.offset) for p in reader.problems] == list(zip(range(4, 8), offsets, strict=True))
    assert [p.line for p in check_chain(run)] == [4, 5, 6, 7]


def test_unknown_kinds_and_fields_are_passed_over(run: Path) -> None:
    line, digest = event_line("0" * 32, Envelope(1, 99, "weather", 1, msgspec.Raw(b'{"sun":1}')))
    extra = b'{"v":1,"seq":100,"kind":"observed","step":1,"data":' + msgspec.json.encode(group("t1"))[:-1]
    with (run / SEGMENT).open("ab") as file:
        file.write(line + extra + b',"mood":3},"more":[1],"hash":"' + digest.encode() + b'"}\n')
    reader = RunReader(run)
    assert [located.event.data for located in reader.events()][-1] == group("t1")
    assert reader.unknown_kinds == {"weather": 1}


def test_newer_versions_are_refused_with_the_version_that_reads_them(run: Path) -> None:
    with (run / SEGMENT).open("ab") as file:
        file.write(event_line("0" * 32, Envelope(2, 99, "asked", 1, msgspec.Raw(b"{}")))[0])
    with pytest.raises(FormatVersionError, match=r"seg-000000.jsonl:11: event version 2.*or newer"):
        read(run)
    (run / "run.json").write_text('{"format": 2, "writer": "envsched 9.1", "shape": "new"}')
    with pytest.raises(FormatVersionError, match=r"use envsched 9\.1 or newer"):
        RunReader(run)


def test_a_folder_that_is_no_run_or_damaged_says_so(run: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run folder"):
        RunReader(tmp_path / "nothing")
    (run / "tasks.jsonl").write_text("{}\n")
    with pytest.raises(DamagedError, match=r"tasks.jsonl:1"):
        RunReader(run).tasks()
    (run / "graph/1/pattern.npy").write_bytes(b"x")
    with pytest.raises(DamagedError, match="graph/1"):
        RunReader(run).graph()
    with pytest.raises(StoreError, match=r"no graph 5; it has \[1\]"):
        RunReader(run).graph(5)


def test_reading_goes_on_from_an_offset_over_segments(tmp_path: Path) -> None:
    seen: list[tuple[int, str, int]] = []
    with RunWriter.create(tmp_path / "run", new_manifest("r", "live")) as writer:
        writer.segment_bytes = 400
        reader = RunReader(tmp_path / "run")
        for step in range(9):
            writer.observed([group("t0", step=step)], step)
            seen += [(e.seq, segment, line) for e, segment, line, _ in reader.events(reader.offset)]
            assert list(reader.events(reader.offset)) == []
    fresh = [(e.seq, segment, line) for e, segment, line, _ in RunReader(tmp_path / "run").events()]
    assert seen == fresh
    assert len({segment for _, segment, _ in seen}) > 2
    with pytest.raises(DamagedError, match="shrunk"):
        list(reader.events(reader.offset + 1))


# ---------------------------------------------------------------- writing


def test_create_refuses_what_is_not_empty(run: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="already holds a run; resume it, remove it or choose another"):
        RunWriter.create(run, new_manifest("r", "live"))
    with pytest.raises(StoreError, match="is not empty"):
        RunWriter.create(tmp_path, new_manifest("r", "live"))
    assert not (tmp_path / "writer.lock").exists()
    with pytest.raises(StoreError, match="is a file"):
        RunWriter.create(run / "run.json", new_manifest("r", "live"))


def test_a_second_writer_is_refused_and_the_folder_named(run: Path) -> None:
    script = (
        "import sys; from envsched_core.store import *; from pathlib import Path; RunWriter.resume(Path(sys.argv[1]))"
    )
    with RunWriter.resume(run), pytest.raises(LockedError, match=rf"{run} is being written by process {os.getpid()}"):
        RunWriter.resume(run)
    with RunWriter.resume(run):
        other = subprocess.run([sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=False)
    assert "LockedError" in other.stderr
    RunWriter.resume(run).close()


def test_a_value_that_would_not_read_back_is_not_written(run: Path) -> None:
    before = (run / SEGMENT).stat().st_size
    with RunWriter.resume(run) as writer:
        resumed = (run / SEGMENT).stat().st_size
        for bad in (float("nan"), "much"):
            with pytest.raises(StoreError, match="nothing was written"):
                writer.observed([group("t0"), GroupResult("g", "shop", "t1", (bad,))], 2)  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="JSON"):
            writer.note(None, {"text": "\ud800"})
        assert (run / SEGMENT).stat().st_size == resumed > before
        writer.note(None, {"loss": np.float32(0.5), "n": np.int64(3)})
    assert read(run)[-1] == {"loss": 0.5, "n": 3}
    with pytest.raises(StoreError, match="closed"):
        writer.note(None, {})
    assert not check_chain(run)


def test_a_full_disk_leaves_whole_lines(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) < 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:60])

    with RunWriter.resume(run) as writer:
        size = (run / SEGMENT).stat().st_size
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            writer.observed([group("t0")], 2)
        monkeypatch.undo()
        with pytest.raises(StoreError, match="resume the run"):
            writer.observed([group("t0")], 2)
    torn = (run / SEGMENT).stat().st_size - size
    with RunWriter.resume(run) as writer:
        assert writer.dropped_bytes == torn > 0
    assert not check_chain(run)


def test_resume_drops_what_has_no_event_and_tells_it(run: Path) -> None:
    for file in ("tasks.jsonl", SEGMENT):
        with (run / file).open("ab") as stream:
            stream.write(b'{"env":"shop"')
    (run / "graph/2").mkdir()
    with RunWriter.resume(run) as writer:
        assert writer.dropped_bytes == 26
        writer.add_graph(small_graph(2), 2)
    resumed = read(run)[-2]
    assert resumed == {"dropped_bytes": 26, "files": {SEGMENT: 13, "tasks.jsonl": 13}}
    assert not check_chain(run)
    with RunWriter.resume(run) as writer, pytest.raises(StoreError, match="graph/2 is already written"):
        writer.add_graph(small_graph(2), 2)


def test_the_manifest_may_be_completed(run: Path) -> None:
    with RunWriter.resume(run) as writer:
        writer.update_manifest(report={"groups": 4}, reward_ranges={"shop": (0.0, 2.0)})
    manifest = RunReader(run).manifest
    assert (manifest.report, manifest.reward_ranges, manifest.seed) == ({"groups": 4}, {"shop": (0.0, 2.0)}, 7)
    assert next(iter(json.loads((run / "run.json").read_bytes()))) == "format"
    assert not check_chain(run)


def test_a_manifest_of_before_a_knob_means_the_rule_of_then(run: Path) -> None:
    manifest = read_manifest(run)
    assert manifest.config == {}  # an import has none
    write_manifest(run, msgspec.structs.replace(manifest, config={"seed": 3}))
    assert read_manifest(run).config == {"seed": 3, **RULES_BEFORE}
    write_manifest(run, msgspec.structs.replace(manifest, config={"neighbours_unit": "concentration"}))
    assert read_manifest(run).config == {"neighbours_unit": "concentration"}


def test_runs_are_listed_with_what_is_wrong(run: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.json").write_text("{")
    (tmp_path / "other").mkdir()
    (broken, error), (good, manifest) = list_runs(tmp_path)
    assert (broken.name, good.name) == ("broken", "run")
    assert isinstance(error, DamagedError)
    assert isinstance(manifest, Manifest)
    assert list_runs(tmp_path / "nowhere") == []
