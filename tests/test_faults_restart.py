"""What goes wrong around a restart: releases of before it, empty snapshots, forked workers, texts too long."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_checks import CONFIG, counted
from scheduler_checks import invented_tasks

from envsched_core.errors import StoreError
from envsched_core.live import LiveSession, intake, sink
from envsched_core.records import Rollout, TaskSpec
from envsched_core.replay import verify
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunReader, RunWriter, load_state, new_manifest
from envsched_core.store.arrays import write_state

pytestmark = pytest.mark.faults
Tally = Callable[..., None]


def opened(run: Path) -> LiveSession:
    live = LiveSession.create(run, "envsched", CONFIG, snapshot_every=1)
    live.register(invented_tasks())
    return live


def test_a_pick_of_before_a_restart_can_be_released_in_its_step(tmp_path: Path, tally: Tally) -> None:
    with opened(tmp_path / "run") as live:
        picks = live.ask(3, step=0)
        assert live.save(0)
    with LiveSession.resume(tmp_path / "run") as live:
        live.release([picks[1]], "stale")
        assert counted(live, "session/failed_call", "picks/released") == [0, 1]
        live.ask(4, step=1)
    assert verify(tmp_path / "run").ok
    tally("picks of before a restart given back after it", 1)


def test_a_pick_of_a_saved_state_keeps_its_terms() -> None:
    before, after = EnvSched(CONFIG), EnvSched(CONFIG)
    for scheduler in (before, after):
        scheduler.register(invented_tasks())
    picks = before.ask(3, step=0).picks
    after.load_state_dict(before.state_dict())
    for scheduler in (before, after):
        scheduler.ask(1, step=0)
    for pick in picks:
        told, again = (scheduler.explain(0, pick.key).candidate for scheduler in (before, after))
        assert again.terms == told.terms
        assert sum(again.terms.values()) == pytest.approx(again.score, abs=1e-9)


def test_a_batch_without_picks_has_a_snapshot(tmp_path: Path, tally: Tally) -> None:
    with LiveSession.create(tmp_path / "run", "envsched", CONFIG) as live:
        assert live.ask(2, step=0) == ()
        assert live.save(1)
        live.register(invented_tasks())
        picks = live.ask(2, step=1)
        live.release(picks, "stale")
        assert live.save(2)
        assert counted(live, "session/failed_call") == [0]
    with LiveSession.resume(tmp_path / "run") as live:
        assert live.resumed is not None
        assert live.resumed.snapshot == 2
    tally("snapshots of a batch without picks", 2)


def test_a_snapshot_that_was_tampered_with_is_passed_over(tmp_path: Path, tally: Tally) -> None:
    run = tmp_path / "run"
    with opened(run) as live:
        for step in range(3):
            live.ask(2, step=step)
    newest = RunReader(run).state_steps()[-1]
    state = load_state(run, newest)
    scheduler = state["scheduler"]
    tampered: list[dict[str, Any]] = [
        state | {"asked_here": []},
        state | {"scheduler": scheduler | {"counts": 1}},
        state | {"scheduler": scheduler | {"ledger": scheduler["ledger"] | {"seen": [0]}}},
        state | {"scheduler": scheduler | {"predictor": scheduler["predictor"] | {"loglik": None}}},
    ]
    for other in tampered:
        write_state(run, newest, other)
        LiveSession.resume(run).close()
    assert verify(run).ok
    tally("snapshots that were tampered with", len(tampered))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12 on, where threads run
def test_a_forked_worker_neither_keeps_a_run_locked_nor_writes_it(tmp_path: Path, tally: Tally) -> None:
    run, (told, tell) = tmp_path / "run", os.pipe()
    writer = RunWriter.create(run, new_manifest("run", "live"))
    worker = os.fork()
    if not worker:  # it lives on when its trainer has ended
        try:
            writer.note(0, {})
        except StoreError:
            os.write(tell, b"refused")
        finally:
            os.write(tell, b".")
            time.sleep(60)
            os._exit(0)
    try:
        assert os.read(told, 32).startswith(b"refused")
        writer.note(0, {"writer": "goes on"})
        writer.close()  # as its end would
        RunWriter.resume(run).close()
        assert [located.event.kind for located in RunReader(run).events()] == ["note", "resumed"]
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    tally("forked workers that outlive their writer", 1)


def test_texts_that_no_line_holds_are_refused_and_counted(
    tmp_path: Path, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (intake, sink):
        monkeypatch.setattr(module, "MOST_BYTES", 2**16)
    long, name = "x" * (2**16 + 1), "n" * 10_001
    with opened(tmp_path / "run") as live:
        (pick,) = live.ask(1, step=0, policy_version=name)
        live.register([TaskSpec("e", "t", text=long), TaskSpec("e", name), TaskSpec(name, "t")])
        for result in ({"group_id": name}, {"pick_id": name}, {"rewards": [0.123456789] * 10_000}):
            live.observe({"pick_id": pick.pick_id, "rewards": (0.0, 1.0)} | result)
        group = {"env": "e", "task": "t", "group_id": "g", "rewards": [0]}
        live.observe(group, [Rollout("g", "e", "t", 0, 1.0, status=long)])
        live.release([name, pick], name)
        live.note(0, {"text": long})
        found = counted(live, "session/bad_task", "session/bad_result", "session/bad_release", "session/bad_rollout")
        assert found == [3, 3, 1, 1]
        assert counted(live, "sink/lost", "sink/failures", "sink/unwritable") == [1, 0, 0]
        live.ask(1, step=1)
    assert verify(tmp_path / "run").ok
    LiveSession.resume(tmp_path / "run").close()
    tally("texts and names beyond what a line holds", 10)
