"""bench scale: what a scheduler costs at a size, in seconds and memory.

Every scheduler runs in a process of its own, so that memory is its own, one after the other. `seconds` are of the wall
clock, and other work on the machine is in them; `cpu_seconds` are what the process itself computed. The catalogue is
invented (invented.py) and lies in the same process: its share is in the memory figures, which are those of a whole
trainer-side process.

    graph       register of the whole catalogue: indices, statistics, both relations
    ask         a step's decision with its record; what came in before is taken in apart, under observe
    select      choosing alone, the ask without its record: a step is begun, every task scored, the batch chosen
    observe     a batch of groups handed in and carried along the graph; what the scheduler puts off is done here
    register    1,000 more tasks on top
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from envsched_core.baselines import REFERENCES, expand, make_scheduler
from envsched_core.config import config_from
from envsched_core.errors import ConfigError
from envsched_core.fused import LONG, compiles
from envsched_core.recording import Recorder
from envsched_core.records import Decision, GroupResult, TaskSpec
from envsched_core.scheduler import EnvSched
from envsched_core.settled import Settled

from .invented import invented_environment, invented_results, invented_tasks, role_patterns

__all__ = ["DEFAULT", "Cost", "ScalePlan", "ScaleReport", "measure", "run_scale"]

DEFAULT = ("envsched", "uniform", "empirical-bayes", "mopps")
Result = TypeVar("Result")
MORE = 1000
"""Tasks that join at the end."""
WARM = 2
"""First steps that are left out of the medians."""


class ScalePlan(msgspec.Struct, frozen=True):
    """What is measured."""

    tasks: int
    environments: int
    batch_size: int = 256
    steps: int = 10
    """Steps that are timed, after WARM others."""
    schedulers: tuple[str, ...] = DEFAULT
    seed: int = 0
    settings: dict[str, Any] = {}

    def checked(self) -> ScalePlan:
        """The plan with nothing twice.

        Raises:
            ConfigError: a scheduler or knob is unknown, or there are fewer tasks than environments.
        """
        names = tuple(name for name in expand(",".join(self.schedulers)) if name not in REFERENCES)
        if not self.tasks >= self.environments >= 1:
            raise ConfigError(f"{self.tasks} tasks in {self.environments} environments: each needs at least one task")
        config_from(self.settings)
        return msgspec.structs.replace(self, schedulers=names)


class Cost(msgspec.Struct, frozen=True):
    """What one scheduler costs."""

    ask_seconds_median: float
    select_seconds_median: float
    observe_seconds_median: float
    ask_cpu_seconds_median: float
    select_cpu_seconds_median: float
    observe_cpu_seconds_median: float
    graph_seconds: float
    register_1000_seconds: float
    peak_memory_gb: float
    """The most the process ever held, in 10^9 bytes; the tasks are part of it."""
    resident_memory_gb: float | None
    """What it holds at the end; None where the system does not tell."""
    edges_within: int
    edges_cross: int
    groups: int
    """Groups observed."""


class ScaleReport(msgspec.Struct, frozen=True):
    """All schedulers at one size."""

    tasks: int
    environments: int
    batch_size: int
    steps: int
    seed: int
    schedulers: dict[str, Cost]
    notes: tuple[str, ...]


def run_scale(plan: ScalePlan, progress: Callable[[int, int], None] | None = None) -> ScaleReport:
    """Measure each scheduler in a fresh process.

    Raises:
        ConfigError: a scheduler or knob is unknown, or the sizes fit no catalogue.
    """
    plan = plan.checked()
    found = {}
    for done, name in enumerate(plan.schedulers):
        if progress:
            progress(done, len(plan.schedulers))
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found[name] = pool.submit(measure, plan, name).result()
    how = "NumPy alone"
    if plan.tasks >= LONG:
        how = "loops compiled by numba" if compiles() else f"{how}; with the extra `scale` (numba) they take less time"
    notes = ("an invented catalogue: costs only, nothing on how well tasks are chosen", f"passes over all tasks: {how}")
    facts = {name: getattr(plan, name) for name in ("tasks", "environments", "batch_size", "steps", "seed")}
    return ScaleReport(**facts, schedulers=found, notes=notes)


def measure(plan: ScalePlan, name: str) -> Cost:
    """Run one scheduler in this process."""
    own = {"batch_size": plan.batch_size, "seed": plan.seed}
    scheduler = make_scheduler(name, config_from({**plan.settings, **own}))
    tasks = invented_tasks(plan.tasks, plan.environments, plan.seed)
    _, graph_seconds = _timed(lambda: scheduler.register(tasks))
    record = scheduler.recorder = _TimedRecorder(
        scheduler.catalogue, scheduler.ledger, scheduler.predictor, scheduler.config
    )
    times = [_step(scheduler, record, plan, step) for step in range(WARM + plan.steps)][WARM:]
    ask, select, observe = (np.median(column, axis=0).tolist() for column in zip(*times, strict=True))
    more = _more(plan)
    _, register_seconds = _timed(lambda: scheduler.register(more))
    graph = scheduler.graph
    return Cost(
        ask_seconds_median=ask[0],
        select_seconds_median=select[0],
        observe_seconds_median=observe[0],
        ask_cpu_seconds_median=ask[1],
        select_cpu_seconds_median=select[1],
        observe_cpu_seconds_median=observe[1],
        graph_seconds=graph_seconds.wall,
        register_1000_seconds=register_seconds.wall,
        peak_memory_gb=_peak_bytes() / 1e9,
        resident_memory_gb=_resident_gb(),
        edges_within=graph.within.nnz // 2 if graph else 0,
        edges_cross=graph.cross.nnz // 2 if graph else 0,
        groups=int(scheduler.counts["groups/observed"]),
    )


class Spent(NamedTuple):
    """Time of one piece of work, in seconds."""

    wall: float
    cpu: float


class _TimedRecorder(Recorder):
    """Knows how long it took. To choose again after an ask would tell less: what that ask worked out is still known."""

    spent = Spent(0.0, 0.0)

    def settle(self, *args: Any) -> Settled:
        found, self.spent = _timed(lambda: super(_TimedRecorder, self).settle(*args))
        return found

    def decision(self, *args: Any, **facts: Any) -> Decision:
        found, more = _timed(lambda: super(_TimedRecorder, self).decision(*args, **facts))
        self.spent = Spent(self.spent.wall + more.wall, self.spent.cpu + more.cpu)
        return found


def _step(scheduler: EnvSched, record: _TimedRecorder, plan: ScalePlan, step: int) -> tuple[Spent, Spent, Spent]:
    """Time of ask, of ask without its record, and of taking in the results."""
    decision, ask = _timed(lambda: scheduler.ask(plan.batch_size, step=step))
    select = Spent(ask.wall - record.spent.wall, ask.cpu - record.spent.cpu)
    picks, catalogue = decision.picks, scheduler.catalogue
    specs = [catalogue.tasks[catalogue.index[pick.key]] for pick in picks]
    results = invented_results(picks, specs, step, scheduler.config.group_size)
    return ask, select, _timed(lambda: _observe(scheduler, results))[1]


def _observe(scheduler: EnvSched, results: list[GroupResult]) -> None:
    """Hand in and take in at once; else the next step's ask would pay for the second half."""
    scheduler.observe(results)
    scheduler._take_in()


def _more(plan: ScalePlan) -> list[TaskSpec]:
    """MORE tasks: half of them in environments that are there, half in new ones."""
    pool, each = role_patterns(plan.environments, plan.seed), MORE // 20
    out: list[TaskSpec] = []
    for i in range(20):
        env, first = (f"env{i % plan.environments}", plan.tasks) if i % 2 else (f"new{i}", 0)
        out += invented_environment(env, each, pool, np.random.default_rng([plan.seed, i]), first + i * each)
    return out


def _timed(work: Callable[[], Result]) -> tuple[Result, Spent]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, Spent(time.perf_counter() - wall, time.process_time() - cpu)


def _peak_bytes() -> int:
    """The most this process ever held; kilobytes on Linux, bytes on macOS."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _resident_gb() -> float | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * resource.getpagesize() / 1e9
