"""Soak: a session of many steps over a large catalogue; step time, memory and disk by quarter.

    python tests/soak.py --steps 20000 --tasks 10000 [--batch 8] [--folder DIR]
    python tests/soak.py --join 1000000

The second form lets so many tasks join in mid-run instead. Step times are processor time, so that they compare on a
machine that does other things too. Prints one line a quarter, then whether the log can be read to its end. Seeded;
only the figures differ from run to run. The folder is removed at the end unless one was named.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from envsched_core.config import Config, config_from
from envsched_core.keyed import unit
from envsched_core.live import LiveSession
from envsched_core.records import Pick, TaskSpec, Tool
from envsched_core.store import RunReader, check_chain

ENVIRONMENTS = 20
PAGE = os.sysconf("SC_PAGE_SIZE")


class Quarter(NamedTuple):
    """What a quarter of the steps cost."""

    steps: int
    median: float
    """Processor seconds a step."""
    mean: float
    longest: float
    resident: int
    """Bytes of memory at its end."""
    objects: int
    """Python objects that the collector follows at its end."""
    written: int
    """Bytes of the run folder at its end."""


def catalogue(tasks: int) -> list[TaskSpec]:
    """Invented tasks, in equal parts over the environments."""
    tools = [tuple(Tool(f"tool_{env}_{k}") for k in range(4)) for env in range(ENVIRONMENTS)]
    return [
        TaskSpec(
            f"env{i % ENVIRONMENTS}", f"t{i}", text=f"task {i % 97} of kind {i % 13}", tools=tools[i % ENVIRONMENTS]
        )
        for i in range(tasks)
    ]


def rewards(pick: Pick, step: int, size: int) -> list[float]:
    """Rewards of a pick: each task has a chance of its own, each rollout a keyed draw."""
    key = np.array([int(pick.task[1:])], dtype=np.uint64)
    chance = float(unit(key, 1)[0])
    return [float(unit(key, 2, step, k)[0] < chance) for k in range(size)]


def settings(batch: int) -> Config:
    """A trainer's usual ones, but for a small batch."""
    return config_from({"batch_size": batch, "group_size": 4, "expire_after": 20})


def one_step(live: LiveSession, step: int, batch: int) -> None:
    """Ask and observe; one pick in sixteen is released, one is never answered."""
    for n, pick in enumerate(live.ask(batch, step=step)):
        fate = (step * batch + n) % 16
        if fate == 3:
            live.release(pick, "stale")
        elif fate != 7:
            live.observe({"pick_id": pick.pick_id, "rewards": rewards(pick, step, 4)})


def resident() -> int:
    """Bytes of memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def soak(folder: Path, steps: int, tasks: int, batch: int) -> Iterator[Quarter]:
    """Drive a new run to its end, one quarter at a time."""
    with LiveSession.create(folder, "envsched", settings(batch), snapshot_every=max(steps // 40, 1)) as live:
        live.register(catalogue(tasks))
        for quarter in range(4):
            taken = []
            for step in range(quarter * steps // 4, (quarter + 1) * steps // 4):
                start = time.process_time()
                one_step(live, step, batch)
                taken.append(time.process_time() - start)
            gc.collect()
            written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            times = float(np.median(taken)), float(np.mean(taken)), max(taken)
            yield Quarter(len(taken), *times, resident(), len(gc.get_objects()), written)


def join(folder: Path, many: int, batch: int) -> Iterator[tuple[str, float]]:
    """What each call of a run costs in which `many` tasks join after its first ask: (call, processor seconds)."""
    with LiveSession.create(folder, "envsched", settings(batch)) as live:
        tasks = catalogue(many)
        calls = {
            "register the first 100": lambda: live.register(tasks[:100]),
            "step 0": lambda: one_step(live, 0, batch // 2),
            f"register {many:,} more in mid-step": lambda: live.register(tasks),
            "the rest of step 0": lambda: one_step(live, 0, batch // 2),
            "step 1": lambda: one_step(live, 1, batch),
            "step 2": lambda: one_step(live, 2, batch),
        }
        for name, call in calls.items():
            start = time.process_time()
            call()
            yield name, time.process_time() - start
        odd = {name: n for name, n in live.metrics().items() if n and name.startswith(("session/", "sink/"))}
        yield f"{live.metrics()['tasks/registered']:,.0f} tasks, counted as odd: {odd or 'nothing'}; closing", 0.0


def main() -> None:
    """Run the soak and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 20_000), ("tasks", 10_000), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--join", type=int, default=0)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp()) / "run"
    if given.join:
        for name, seconds in join(folder, given.join, given.batch):
            print(f"{name}: {seconds:.2f} s, {resident() / 2**20:,.0f} MiB", flush=True)
        return
    for number, q in enumerate(soak(folder, given.steps, given.tasks, given.batch), start=1):
        print(
            f"quarter {number}: {q.steps:,} steps, median {1e3 * q.median:.1f} ms, mean {1e3 * q.mean:.1f} ms, "
            f"longest {1e3 * q.longest:.0f} ms, {q.resident / 2**20:.0f} MiB, {q.objects:,} objects, "
            f"{q.written / 2**20:,.0f} MiB on disk",
            flush=True,
        )
    reader = RunReader(folder)
    events = sum(1 for _ in reader.events())
    print(f"log: {events:,} events read, {len(reader.problems)} unreadable, {len(check_chain(folder))} chain problems")
    if given.folder is None:
        shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
