"""Injects faults into sessions that record themselves: processes killed at random moments, disks that fill up.

    python tests/fault_injection.py kills FOLDER ROUNDS SEED
    python tests/fault_injection.py disks FOLDER ROUNDS SEED

A process of its own, which imports everything once and forks a child for each round, so that a kill costs a fork and
not a start of Python. It does nothing itself that starts threads: a forked child would wait for them for ever. What it
found goes to stdout as one JSON object. A round compares with an unbroken run: the bytes of its decisions, and whether
all that a call had returned for is on disk.
"""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from live_checks import CONFIG, asked_lines, reward
from scheduler_checks import invented_tasks

from envsched_core.live import LiveSession
from envsched_core.replay import verify
from envsched_core.store import RunReader, RunWriter, check_chain
from envsched_core.store.files import AppendFile
from envsched_core.store.lines import segments

STEPS = 24
"""Of every run."""
KILLS_OF_A_RUN = 16
SEGMENT_BYTES = 120_000
"""Small, so that kills also fall between two segments."""
PATIENCE = 60.0
"""Seconds until a child that does nothing is given up."""
UNLIMITED = resource.RLIM_INFINITY
SLOW_IMPORTS = ("sklearn.cluster", "sklearn.decomposition", "sklearn.feature_extraction.text")
"""What a session imports on first use; imported before a fork, it costs no child a second."""


# ---------------------------------------------------------------- the trainer


def opened(run: Path) -> LiveSession:
    """The session of a run, begun or gone on with."""
    if (run / "run.json").exists():
        live = LiveSession.resume(run, snapshot_every=3)
    else:
        live = LiveSession.create(run, "envsched", CONFIG, snapshot_every=3)
    live.register(invented_tasks())
    return live


def train(run: Path, after_call: Callable[[LiveSession, int], None] = lambda live, step: None) -> None:
    """Go on with a run to its last step; `after_call` is called when a call has returned."""
    with opened(run) as live:
        after_call(live, live.scheduler.step)
        for step in range(live.scheduler.step, STEPS):
            picks = live.ask(CONFIG.batch_size, step=step)
            after_call(live, step)
            for pick in picks:
                live.observe({"pick_id": pick.pick_id, "rewards": reward(pick)})
                after_call(live, step)


def forked(work: Callable[[], None]) -> int:
    """The id of a child that does the work and ends with 0, or with 1 when it raises."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(child: int) -> int:
    """Wait for a child; how it ended (minus the signal)."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---------------------------------------------------------------- what is on disk


def finish(run: Path) -> None:
    """Go on to the last step, then derive every decision again."""
    train(run)
    report = verify(run)
    if not report.ok:
        raise SystemExit(f"{report.checked} {report.problems[:1]}")


def log_bytes(run: Path) -> bytes:
    """All segments."""
    return b"".join(file.read_bytes() for file in segments(run))


def whole(data: bytes) -> bytes:
    """Up to the last newline."""
    return data[: data.rfind(b"\n") + 1]


def log_size(run: Path) -> int:
    """Bytes of all segments now."""
    return sum(file.stat().st_size for file in segments(run))


def compare(run: Path, unbroken: list[bytes], problems: list[str], what: str) -> None:
    """Note down where a run, gone on with to its end, is not the unbroken one."""
    if ended(forked(lambda: finish(run))):
        problems.append(f"{what}: it cannot be finished, or does not verify")
    if asked_lines(run) != unbroken:
        problems.append(f"{what}: other decisions than the unbroken run")
    if found := check_chain(run):
        problems.append(f"{what}: {found[0]}")
    results = [e.event.data.group_id for e in RunReader(run).events() if e.event.kind == "observed"]
    if len(results) != len(set(results)) or len(results) != CONFIG.batch_size * STEPS:
        problems.append(f"{what}: {len(results)} results on record, {len(set(results))} of them different")


# ---------------------------------------------------------------- kills


def write_in_pieces(seed: int) -> None:
    """Every append goes out in many small writes, so that a kill falls inside a line."""
    sizes = random.Random(seed)

    def pieces(self: AppendFile, block: bytes) -> None:
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(self._fd, rest[: sizes.randrange(1, 9000)]) :]
            time.sleep(0.002)

    AppendFile._write = pieces  # type: ignore[method-assign]


def kill_once(run: Path, randomly: random.Random, problems: list[str], what: str) -> bool:
    """Go on with a run and kill it at a random moment; False when it came to its end before."""
    before = whole(log_bytes(run)) if run.exists() else b""
    early, in_pieces, seed = randomly.random() < 0.3, randomly.random() < 0.5, randomly.randrange(2**32)
    grown, pause = 0 if early else randomly.randrange(90_000), randomly.random() * (0.15 if early else 0.01)
    ears, mouth = os.pipe()

    def work() -> None:
        os.close(ears)
        if in_pieces:
            write_in_pieces(seed)
        train(run, lambda live, step: os.write(mouth, b"%d\n" % log_size(run)))

    child = forked(work)
    os.close(mouth)
    limit = time.monotonic() + PATIENCE
    while grown and log_size(run) < len(before) + grown and time.monotonic() < limit:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.0005)
    time.sleep(pause)
    os.kill(child, signal.SIGKILL)
    status = ended(child)
    with os.fdopen(ears, "rb") as heard:
        told = [int(line) for line in heard.read().split()]
    after = log_bytes(run)
    if not after.startswith(before):
        problems.append(f"{what}: lines of before the resume are gone")
    if told and len(whole(after)) < told[-1]:
        problems.append(f"{what}: a call had returned at {told[-1]:,} bytes, {len(whole(after)):,} are on disk")
    if status not in (0, -signal.SIGKILL):
        problems.append(f"{what}: the child ended with {status}")
    return status == -signal.SIGKILL


def kills(folder: Path, rounds: int, seed: int) -> dict[str, object]:
    """Kill a session `rounds` times, some times each run, and finish every run."""
    randomly, problems = random.Random(seed), list[str]()
    RunWriter.segment_bytes = SEGMENT_BYTES
    ended(forked(lambda: train(folder / "unbroken")))
    unbroken = asked_lines(folder / "unbroken")
    done = runs = torn = 0
    while done < rounds and not problems:
        run = folder / f"run{runs}"
        runs += 1
        for k in range(KILLS_OF_A_RUN):
            if done == rounds or not kill_once(run, randomly, problems, f"run {runs}, kill {k}"):
                break
            done += 1
            torn += log_size(run) > len(whole(log_bytes(run)))
        compare(run, unbroken, problems, f"run {runs}")
        left = [path.name for path in run.rglob(".*.tmp")]
        problems += [f"run {runs}: {name} is left behind" for name in left]
    return {"kills": done, "torn": torn, "runs": runs, "problems": problems}


# ---------------------------------------------------------------- disks


def fill_disk(run: Path, limit: int, lifted: int | None) -> None:
    """Train with files that cannot grow beyond `limit` bytes until step `lifted` (None: to the end)."""
    logging.disable()
    RunWriter.segment_bytes = 1 << 30

    def after_call(live: LiveSession, step: int) -> None:
        if step == lifted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        elif live.scheduler.step == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, UNLIMITED))

    train(run, after_call)


def disks(folder: Path, rounds: int, seed: int) -> dict[str, object]:
    """Fill the disk at random byte counts: every second time there is room again later, else the run is resumed."""
    randomly, problems = random.Random(seed), list[str]()
    RunWriter.segment_bytes = 1 << 30
    ended(forked(lambda: train(folder / "unbroken")))
    unbroken, size = asked_lines(folder / "unbroken"), log_size(folder / "unbroken")
    for k in range(rounds):
        run, limit = folder / f"run{k}", randomly.randrange(3000, size)
        lifted = randomly.randrange(8, STEPS - 8) if k % 2 else None
        status = ended(forked(lambda: fill_disk(run, limit, lifted)))  # noqa: B023  # called at once
        what = f"disk {k}, full at {limit:,} bytes" + (f", free at step {lifted}" if lifted else "")
        if status:
            problems.append(f"{what}: an exception reached the trainer")
        before = whole(log_bytes(run))
        compare(run, unbroken, problems, what)
        if not log_bytes(run).startswith(before):
            problems.append(f"{what}: lines of before the resume are gone")
    return {"disks": rounds, "problems": problems}


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name in SLOW_IMPORTS:
        import_module(name)
    found = {"kills": kills, "disks": disks}[sys.argv[1]](folder, int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(found))
