"""The store's arrays and rollouts, and the store among several processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from store_runs import EVENTS, decision, group, small_graph, write_run

from envsched_core.errors import DamagedError, StoreError
from envsched_core.records import Rollout
from envsched_core.store import RunReader, RunWriter, StepScores, check_chain, load_state, new_manifest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


# ---------------------------------------------------------------- arrays and rollouts


def test_a_graph_comes_back_memory_mapped(run: Path) -> None:
    graph, made = RunReader(run).graph(), small_graph()
    assert graph is not None
    assert graph.digest() == made.digest()
    assert isinstance(graph.within_parts["text"], np.memmap)
    assert RunReader(run).graph(0) is None


def test_scores_and_states_come_back(run: Path) -> None:
    numbers = np.arange(3)
    scores = StepScores(4, *(numbers.astype(t) for t in ("f4", "f4", "f4", "i4", "i1", "i1")))
    state = {
        "format": 1,
        "a/b": {"rng": 2**100, "x": np.arange(4.0).reshape(2, 2)},
        "list": [1.5, None, "é", [numbers]],
    }
    with RunWriter.resume(run) as writer:
        assert writer.add_scores(scores)
        assert not writer.add_scores(scores._replace(step=5, score=np.zeros(20_001, np.float32)))
        writer.save_state(4, state)
        with pytest.raises(StoreError, match="Python objects"):
            writer.save_state(5, {"x": np.array([object()])})
    reader = RunReader(run)
    kept = reader.scores(4)
    assert kept is not None
    assert reader.scored_steps() == reader.state_steps() == [4]
    assert reader.scores(5) is None
    np.testing.assert_array_equal(kept.rank, scores.rank)
    np.testing.assert_equal(load_state(run, 4), state)
    with pytest.raises(StoreError, match=r"no state of step 7; it has \[4\]"):
        load_state(run, 7)


def test_rollouts_are_found_by_offset_and_shared_with_replays(run: Path, tmp_path: Path) -> None:
    told = [Rollout("g", "shop", f"t{i % 2}", i, 0.5, calls=(), status="ü") for i in range(4)]
    with RunWriter.resume(run) as writer:
        offsets = writer.add_rollouts(iter(told[:3])) + writer.add_rollouts(told[3:])
    with RunWriter.create(tmp_path / "replay", new_manifest("r2", "replay")) as replay:
        replay.link_rollouts(run)
        with pytest.raises(StoreError, match="shares the rollouts of its source"):
            replay.add_rollouts(told)
    with RunWriter.resume(run) as writer:  # the source may go on
        later = writer.add_rollouts(told[1:2])
    assert RunReader(tmp_path / "replay").rollouts(group("t1", offsets=tuple(later))) == [told[1]]
    for path in (run, tmp_path / "replay"):
        reader = RunReader(path)
        assert reader.rollouts(group("t1", offsets=(offsets[1], offsets[3]))) == [told[1], told[3]]
        assert reader.rollouts(group("t1")) == []
        for wrong in (offsets[0], offsets[1] + 1):
            with pytest.raises(DamagedError, match=f"byte {wrong}"):
                reader.rollouts(group("t1", offsets=(wrong,)))


# ---------------------------------------------------------------- other processes, time

WRITE = """
import sys
from pathlib import Path
from envsched_core.records import GroupResult
from envsched_core.store import RunWriter
with RunWriter.resume(Path(sys.argv[1])) as writer:
    writer.segment_bytes = 20_000
    for step in range(int(sys.argv[2])):
        writer.observed([GroupResult(f"{step}-{i}", "shop", "t0", (0.0, 1.0)) for i in range(20)], step)
"""


def test_a_reader_follows_a_writer_in_another_process(run: Path) -> None:
    reader, seqs = RunReader(run), []
    process = subprocess.Popen([sys.executable, "-c", WRITE, str(run), "200"])
    while running := process.poll() is None or reader.offset < reader.size():
        seqs += [located.event.seq for located in reader.events(reader.offset)]
        assert running
    assert process.returncode == 0
    assert seqs == list(range(EVENTS + 1 + 200 * 20))
    assert not reader.problems


@pytest.mark.faults
def test_a_killed_writer_leaves_whole_lines(run: Path) -> None:
    for wait in (0.0, 0.01, 0.03):
        size = RunReader(run).size()
        process = subprocess.Popen([sys.executable, "-c", WRITE, str(run), "100000"])
        while RunReader(run).size() < size + 5000:
            time.sleep(0.005)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
    RunWriter.resume(run).close()
    reader = RunReader(run)
    seqs = [located.event.seq for located in reader.events()]
    assert seqs == list(range(len(seqs)))
    assert not reader.problems
    assert not check_chain(run)


def test_a_step_is_written_in_a_few_milliseconds(tmp_path: Path) -> None:
    made, groups = decision(picks=150), [group(f"t{i}") for i in range(64)]
    assert len(msgspec.json.encode(made)) > 150_000
    taken = []
    with RunWriter.create(tmp_path / "run", new_manifest("r", "live")) as writer:
        for _ in range(10):
            start = time.perf_counter()
            writer.observed(groups, 0)
            writer.asked(made)
            taken.append(time.perf_counter() - start)
    assert min(taken) < 0.02
