"""Faults around a session that records itself: what they lose (nothing that was committed) and what is said of them."""

from __future__ import annotations

import errno
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from fault_injection import forked
from live_checks import asked_lines, counted, session, step_through
from scheduler_checks import invented_tasks
from small_run import write_run

from envsched_core import views
from envsched_core.errors import EnvSchedError, FormatVersionError, LockedError, StoreError
from envsched_core.live import LiveSession
from envsched_core.replay import verify
from envsched_core.store import RunReader, RunWriter, check_chain, manifest
from envsched_core.store.lines import Envelope, event_line

pytestmark = pytest.mark.faults
Tally = Callable[..., None]
HARNESS = Path(__file__).with_name("fault_injection.py")
SEGMENT = "events/seg-000000.jsonl"
KILLS = 200
DISKS = 12
STEPS = 9
BROKEN_AT = 5


def injected(kind: str, folder: Path, rounds: int) -> Iterator[dict[str, object]]:
    """What two harnesses found, each with half of the rounds and a seed of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, HARNESS, kind, folder / str(seed), str(rounds // 2), str(seed)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for seed in (1, 2)
    ]  # fmt: skip
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err[-3000:]
        found = json.loads(out)
        assert not found["problems"], (found, err[-3000:])
        yield found


def test_writers_killed_at_random_moments_lose_nothing(tmp_path: Path, tally: Tally) -> None:
    found = list(injected("kills", tmp_path, KILLS))
    assert sum(f["kills"] for f in found) == KILLS  # type: ignore[misc]
    assert sum(f["torn"] for f in found) > 0  # type: ignore[misc]
    tally("writer killed with SIGKILL at a random moment, then resumed", KILLS)


def test_disks_full_at_random_byte_counts_lose_nothing(tmp_path: Path, tally: Tally) -> None:
    assert sum(f["disks"] for f in injected("disks", tmp_path, DISKS)) == DISKS  # type: ignore[misc]
    tally("disk full at a random byte count, then resumed or free again", DISKS)


# ---------------------------------------------------------------- in this process


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    run = tmp_path_factory.mktemp("faults") / "run"
    with session(run) as live:
        step_through(live, range(STEPS))
    return asked_lines(run)


def stopped(run: Path, **more: object) -> Path:
    """A run that stopped in the middle."""
    with session(run, **more) as live:
        step_through(live, range(BROKEN_AT))
    return run


def go_on(run: Path, unbroken: list[bytes]) -> LiveSession:
    """Resume and finish; the decisions are those of the unbroken run."""
    with LiveSession.resume(run) as live:
        live.register(invented_tasks())
        step_through(live, range(live.scheduler.step, STEPS))
    assert asked_lines(run) == unbroken
    assert verify(run).ok
    return live


def denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may be opened for writing, as on a folder mounted read-only (the superuser heeds no permissions)."""
    real = os.open

    def opened(path: object, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opened)


def test_a_read_only_folder_is_read_and_said_to_be_so(
    tmp_path: Path, unbroken: list[bytes], monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    run = stopped(tmp_path / "run")
    with monkeypatch.context() as patched:
        denied(patched)
        with pytest.raises(StoreError, match="cannot be written: Read-only file system; choose another folder"):
            LiveSession.resume(run)
        with pytest.raises(StoreError, match="cannot be written: Read-only file system; choose another folder"):
            LiveSession.create(tmp_path / "new")
        assert verify(run).ok
    go_on(run, unbroken)
    tally("read-only folder", 2)


def test_a_folder_that_becomes_read_only_is_caught_up_with(
    tmp_path: Path,
    unbroken: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tally: Tally,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refused(fd: int, data: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with session(tmp_path / "run") as live:
        step_through(live, range(3))
        with monkeypatch.context() as patched:
            denied(patched)
            patched.setattr(os, "write", refused)
            step_through(live, range(3, 6))
        step_through(live, range(6, STEPS))
        assert counted(live, "sink/waiting", "session/failed_call") == [0, 0]
    assert "Read-only file system" in caplog.text
    assert asked_lines(tmp_path / "run") == unbroken
    tally("read-only folder", 1)


def test_a_clock_that_goes_back_changes_nothing(
    tmp_path: Path, unbroken: list[bytes], monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    now = [2e9]

    class Back(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(back(), UTC)

    def back() -> float:
        now[0] -= 3600.0
        return now[0]

    monkeypatch.setattr(manifest, "datetime", Back)
    for name in ("time", "monotonic"):
        monkeypatch.setattr(time, name, back)
    run = stopped(tmp_path / "run")
    for file in run.rglob("*"):
        os.utime(file, (9e9, 9e9))  # written in the future
    view = views.RunView(run)
    view.poll()
    assert views.log_facts(view).age == 0
    go_on(run, unbroken)
    assert view.poll()
    assert view.health().last_step == STEPS - 1
    tally("clock set back an hour at every look", 1)


def test_of_many_writers_one_gets_the_run(tmp_path: Path, unbroken: list[bytes], tally: Tally) -> None:
    run = stopped(tmp_path / "run")
    go, told = os.pipe(), os.pipe()

    def work() -> None:
        os.read(go[0], 1)
        try:
            with RunWriter.resume(run):
                os.write(told[1], b"won\n")
                time.sleep(30)
        except LockedError as error:
            told_why = "is being written by" in str(error) and "wait for it or choose another folder" in str(error)
            os.write(told[1], b"locked\n" if told_why else b"silent\n")

    children = [forked(work) for _ in range(8)]
    os.write(go[1], b"x" * 8)
    said: list[bytes] = []
    while len(said) < 8:
        said += os.read(told[0], 100).split()
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert sorted(said) == [b"locked"] * 7 + [b"won"]
    go_on(run, unbroken)
    tally("second writer on one run", 7)


def test_a_writer_that_heeds_no_lock_is_noticed(tmp_path: Path, unbroken: list[bytes], tally: Tally) -> None:
    run = tmp_path / "run"
    with session(run) as live:
        for step in range(STEPS):
            if step in (2, 4, 6):  # a torn line, whole lines, NUL bytes
                with (run / SEGMENT).open("ab") as file:
                    file.write({2: b'{"v":1,"seq"', 4: b"not an event\n\n", 6: b"\0" * 512}[step])
            step_through(live, [step])
    assert counted(live, "sink/waiting", "sink/unwritable", "session/failed_call") == [0, 0, 0]
    assert asked_lines(run) == unbroken
    tally("writer without the lock in a running session", 3)


# ---------------------------------------------------------------- damage


def damage(data: bytes, how: str, randomly: random.Random) -> bytes:
    """The log with one fault near its end, where no snapshot stands behind it."""
    lines = data.splitlines(keepends=True)
    at = len(lines) - 1 - randomly.randrange(3)
    size = len(b"".join(lines[:at]))
    inside = size + randomly.randrange(1, len(lines[at]) - 1)
    if how == "torn":
        return data[:inside]
    if how == "torn, NUL bytes behind":
        return data[:inside] + b"\0" * randomly.randrange(1, 5000)
    if how == "NUL bytes at the end":
        return data + b"\0" * randomly.randrange(1, 5000)
    if how == "newline lost at the end":
        return data[:-1]
    raise AssertionError(how)


@pytest.mark.parametrize("how", ["torn", "torn, NUL bytes behind", "NUL bytes at the end", "newline lost at the end"])
def test_a_damaged_end_is_dropped_told_and_gone_on_from(
    tmp_path: Path, unbroken: list[bytes], tally: Tally, how: str
) -> None:
    randomly = random.Random(how)
    for k in range(4):
        run = stopped(tmp_path / f"run{k}")
        data = (run / SEGMENT).read_bytes()
        damaged = damage(data, how, randomly)
        (run / SEGMENT).write_bytes(damaged)
        kept = damaged[: damaged.rfind(b"\n") + 1]
        assert RunReader(run).problems == []
        go_on(run, unbroken)
        after = (run / SEGMENT).read_bytes()
        assert after.startswith(data if how == "newline lost at the end" else kept)
        dropped = next(e.event.data for e in RunReader(run).events() if e.event.kind == "resumed")["dropped_bytes"]
        assert dropped == (0 if how == "newline lost at the end" else len(damaged) - len(kept))
        assert check_chain(run) == []
    tally(f"log damaged at its end: {how}", 4)


def damaged_line(lines: list[bytes], at: int, how: str) -> list[bytes]:
    """The log with one line damaged, glued to the next, or NUL bytes in its place."""
    line = lines[at]
    new = {"glued": line[:-1], "NUL bytes": b"\0" * len(line), "NUL and newline": b"\0" * (len(line) - 1) + b"\n",
           "cut": line[: len(line) // 2] + b"\n"}[how]  # fmt: skip
    return [*lines[:at], new, *lines[at + 1 :]]


@pytest.mark.parametrize("how", ["glued", "NUL bytes", "NUL and newline", "cut"])
def test_a_damaged_line_is_named_and_a_snapshot_behind_it_still_goes_on(
    tmp_path: Path, unbroken: list[bytes], tally: Tally, how: str
) -> None:
    run = stopped(tmp_path / "run", snapshot_every=3)
    lines = (run / SEGMENT).read_bytes().splitlines(keepends=True)
    at = 8  # an observed group, before the snapshot
    (run / SEGMENT).write_bytes(b"".join(damaged_line(lines, at, how)))
    reader = RunReader(run)
    assert len(list(reader.events())) == len(lines) - (1 if "newline" in how or how == "cut" else 2)
    assert [problem.line for problem in reader.problems] == [at + 1]
    assert at + 1 in [problem.line for problem in check_chain(run)]
    state = run / "state" / "3.npz"
    copy = state.read_bytes()
    state.unlink()
    with pytest.raises(StoreError, match=rf"{SEGMENT}:{at + 1} cannot be read"):
        LiveSession.resume(run)
    state.write_bytes(copy)
    with LiveSession.resume(run) as live:
        live.register(invented_tasks())
        step_through(live, range(live.scheduler.step, STEPS))
    assert asked_lines(run)[-4:] == unbroken[-4:]
    tally(f"damaged line: {how}", 1)


def test_truncated_arrays_are_passed_over_or_named(tmp_path: Path, unbroken: list[bytes], tally: Tally) -> None:
    randomly, tried = random.Random(4), 0
    run = stopped(tmp_path / "run", snapshot_every=2)
    for file in sorted(run.rglob("*.np[yz]")):
        data = file.read_bytes()
        for share in (0.0, randomly.random(), 1 - 1 / len(data)):
            file.write_bytes(data[: int(share * len(data))])
            view = views.RunView(run)
            view.poll()
            for step in view.scored_steps():
                view.scores(step)
            for version in view.reader.graph_versions():
                view.graph(version)
            said = [problem.message for problem in view.health().problems]
            if file.parent.name != "state":
                assert any(str(file) in message or str(file.parent) in message for message in said), file
            else:  # the other snapshot, or the events
                LiveSession.resume(run).close()
            tried += 1
        file.write_bytes(data)
    go_on(run, unbroken)
    tally("array file truncated", tried)


def test_what_a_newer_version_wrote_is_refused_or_passed_over(
    tmp_path: Path, unbroken: list[bytes], tally: Tally
) -> None:
    run = stopped(tmp_path / "run")
    with RunWriter.resume(run) as writer:  # a kind of the future, in the chain
        writer._event("note", 4, {})
        line, digest = event_line(writer._hash, Envelope(1, writer._seq, "weather", 4, msgspec.Raw(b'{"sun":1}')))
        writer._file(SEGMENT).append(line)
    reader = RunReader(run)
    assert list(reader.events())
    assert reader.unknown_kinds == {"weather": 1}
    go_on(run, unbroken)
    with (run / SEGMENT).open("ab") as file:
        file.write(event_line(digest, Envelope(2, 999, "asked", 9, msgspec.Raw(b"{}")))[0])
    with pytest.raises(FormatVersionError, match=r"event version 2, this version reads up to 1; use the version that"):
        LiveSession.resume(run)
    state = (run / "run.json").read_bytes()
    (run / "run.json").write_bytes(state.replace(b'"format": 1', b'"format": 7'))
    with pytest.raises(FormatVersionError, match=r"format 7 was written by envsched .*: use envsched .* or newer"):
        LiveSession.resume(run)
    tally("newer format number, event version or kind", 3)


# ---------------------------------------------------------------- files removed while pages read


def read_models() -> dict[str, list[str]]:
    """The read models that ask for no more than a view, a step or a task, with what they ask for."""
    found = {}
    for name in views.__all__:
        model = getattr(views, name)
        if inspect.isfunction(model):
            needed = [p.name for p in inspect.signature(model).parameters.values() if p.default is p.empty]
            if needed[:1] == ["view"] and set(needed[1:]) <= {"step", "task", "key"}:
                found[name] = needed[1:]
    return found


def test_files_removed_while_views_read_give_a_sentence(tmp_path: Path, tally: Tally) -> None:
    whole = write_run(tmp_path / "whole", steps=3)
    key, models = RunReader(whole).tasks()[0].key, read_models()
    assert len(models) > 40
    values = {"step": 1, "task": key, "key": key}
    inside = [p.relative_to(whole) for p in sorted(whole.rglob("*")) if p.parent.name != "1"]  # not each array
    said: list[str] = []
    failed: list[str] = []
    for number, name in enumerate([Path(), Path("graph/1/within_weights.npy"), *inside]):
        run = Path(shutil.copytree(whole, tmp_path / f"run{number}"))
        view = views.RunView(run)
        view.poll()
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
        for model, needed in {"poll": [], **models}.items():
            try:
                view.poll() if model == "poll" else getattr(views, model)(view, *(values[n] for n in needed))
            except EnvSchedError as error:
                said.append(str(error))
            except Exception as error:
                failed.append(f"{model} without {name}: {error!r}")
    assert failed == []
    assert said
    assert min(map(len, said)) > 20
    tally("file removed from under a read model", (len(inside) + 2) * (len(models) + 1))
