"""Desk: one run as all parts of a trainer share it; they ask here and report here.

    desk = open_desk("runs/mine", {"batch_size": 32, "group_size": 8})     resumed where there is one already
    desk.register(tasks)                  what joined or vanished since the run was left is told and put right
    picks = desk.ask(32, step=0)
    desk.observe(results)                 whole groups, or
    desk.report(of, reward)               one rollout's reward at a time, from anywhere
    desk.served()                         every pick on record by step: what an index was given stays what it is

Trainers make their parts (a data set, a sampler, a reward function) by class path, far from each other; within a
process, the same folder gives the same desk. `RayScheduler` (ray.py) is a desk of another process.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from envsched_core.config import Config, config_from
from envsched_core.errors import ContractError
from envsched_core.live import LiveSession
from envsched_core.live.intake import attempt
from envsched_core.records import Pick, TaskSpec
from envsched_core.store import RunReader

from .groups import Groups, Open

__all__ = ["AnyDesk", "Desk", "TasksChanged", "desk_here", "harmless", "open_desk"]

NAMED = 20
"""Tasks that are named in the note on what changed; the others are counted."""

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("envsched")
failures: Counter[str] = Counter()
"""Calls of hooks that failed, by name; part of every desk's metrics."""


class TasksChanged(NamedTuple):
    """How the tasks of a trainer differ from those of the run that it goes on with."""

    appeared: tuple[str, ...] = ()
    """Keys ``ENV::TASK`` that the run did not know."""
    vanished: tuple[str, ...] = ()
    """Keys that the trainer no longer has: they are not picked any more, their evidence stays."""


class AnyDesk(Protocol):
    """What the adapters rely on; `Desk` and `RayScheduler` keep to it."""

    @property
    def batch_size(self) -> int:
        """Tasks in a batch."""

    @property
    def group_size(self) -> int:
        """Rollouts in a group."""

    def register(self, tasks: Sequence[TaskSpec]) -> TasksChanged:
        """Make the trainer's tasks known."""

    def ask(self, n: int, *, step: int, policy_version: str | None = None) -> tuple[Pick, ...]:
        """Up to `n` tasks for `step`."""

    def observe(self, results: Any, rollouts: Any = ()) -> None:
        """Take in whole groups."""

    def report(self, of: Open, reward: float | None, *, rollout: int | None = None) -> None:
        """Take in one rollout's reward."""

    def release(self, picks: Any, reason: str) -> None:
        """End picks that will give no result."""

    def save(self, step: int) -> bool:
        """Keep a snapshot named by the step that comes next."""

    def served(self) -> dict[int, tuple[Pick, ...]]:
        """Picks by step that were on record when the run was opened."""

    def unanswered(self) -> frozenset[str]:
        """Ids of those of them that had no result."""

    def metrics(self) -> dict[str, float]:
        """Counters and gauges."""

    def flush(self) -> None:
        """Wait until everything reported from here has arrived."""


def harmless(otherwise: Callable[[], T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A hook that a trainer calls: whatever goes wrong in it is told once and counted, and never raised."""

    def around(call: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(call)
        def guard(*arguments: P.args, **named: P.kwargs) -> T:
            found, error = attempt(lambda: (call(*arguments, **named),))
            if found is not None:
                return found[0]
            name = call.__qualname__
            failures[name] += 1
            if failures[name] == 1:
                log.warning("%s failed; training goes on without it", name, exc_info=error)
            return otherwise()

        return guard

    return around


class Desk:
    """A `LiveSession` with groups assembled from single rewards, and its picks of before a restart."""

    def __init__(self, session: LiveSession) -> None:
        """Takes over the session; picks without an answer are known from then on as served, not asked again."""
        config = session.scheduler.config
        self.session = session
        self.closed = False
        self.batch_size, self.group_size = config.batch_size, config.group_size
        self._groups = Groups(self.group_size, session.observe, patience=config.expire_after)
        self._lock = threading.RLock()
        self._known = {task.key: task for task in session.scheduler.catalogue.tasks}
        still_open = session.open_picks()
        self._unanswered = frozenset(still_open)
        self._served = _on_record(session)
        if session.resumed is not None and still_open:
            session.ask(len(still_open), step=session.scheduler.step)  # given back here, so that no later ask does

    def register(self, tasks: Sequence[TaskSpec]) -> TasksChanged:
        """Make the trainer's tasks known; the first time after a resume, put right what changed."""
        with self._lock:
            known, self._known = self._known, {}
        given = {task.key for task in tasks}
        vanished = [task for key, task in known.items() if key not in given and task.draws != 0]
        gone = {key for key, task in known.items() if task.draws == 0}  # vanished at an earlier restart
        appeared = [task.key for task in tasks if task.key not in known or task.key in gone] if known else []
        self.session.register([*tasks, *(msgspec.structs.replace(task, draws=0) for task in vanished)])
        changed = TasksChanged(tuple(appeared), tuple(task.key for task in vanished))
        if appeared or vanished:
            self._tell(changed)
        return changed

    def ask(self, n: int, *, step: int, policy_version: str | None = None) -> tuple[Pick, ...]:
        """Up to `n` tasks for `step`; groups whose picks would expire now are observed as far as they are."""
        with self._lock:
            self._groups.turn(step)
        return self.session.ask(n, step=step, policy_version=policy_version)

    def observe(self, results: Any, rollouts: Any = ()) -> None:
        """Take in whole groups, as `LiveSession.observe` does."""
        self.session.observe(results, rollouts)

    def report(self, of: Open, reward: float | None, *, rollout: int | None = None) -> None:
        """Take in one rollout's reward; its group is observed when it is complete."""
        with self._lock:
            self._groups.add(of, reward, rollout=rollout)

    def release(self, picks: Any, reason: str) -> None:
        """End picks that will give no result."""
        self.session.release(picks, reason)

    def save(self, step: int) -> bool:
        """Keep a snapshot named by the step that comes next; False when it was not kept."""
        return self.session.save(step)

    @property
    def path(self) -> Path | None:
        """Its run folder; None when nothing is recorded."""
        return self.session.sink.path if self.session.sink is not None else None

    def served(self) -> dict[int, tuple[Pick, ...]]:
        """Picks by step that were on record when the run was opened; none for a new run."""
        return dict(self._served)

    def unanswered(self) -> frozenset[str]:
        """Ids of those of them that had no result."""
        return self._unanswered

    def metrics(self) -> dict[str, float]:
        """What the session counts, and what the adapters do."""
        own = {f"adapter/{name}": float(count) for name, count in self._groups.counts.items()}
        own |= {f"adapter/failed/{name}": float(count) for name, count in failures.items()}
        return {**self.session.metrics(), "adapter/waiting_groups": float(self._groups.waiting), **own}

    def flush(self) -> None:
        """Nothing to wait for: a desk takes in what it is told before the call returns."""

    def close(self) -> None:
        """Observe what there is of every group begun, and give the run folder free."""
        with self._lock:
            self._groups.flush()
        self.session.close()
        self.closed = True

    def _tell(self, changed: TasksChanged) -> None:
        appeared, vanished = changed
        log.warning("the tasks changed: %d appeared, %d vanished (not picked any more)", len(appeared), len(vanished))
        gone = set(vanished)
        self.session.release([p for p in self.session.open_picks().values() if p.key in gone], "vanished")
        counted = {"tasks_appeared": len(appeared), "tasks_vanished": len(vanished)}
        self.session.note(None, {**counted, "appeared": appeared[:NAMED], "vanished": vanished[:NAMED]})


def _on_record(session: LiveSession) -> dict[int, tuple[Pick, ...]]:
    served: dict[int, tuple[Pick, ...]] = {}
    if session.resumed is None or session.sink is None:
        return served
    for located in RunReader(session.sink.path).events():
        if located.event.kind == "asked":
            decision = located.event.data
            served[decision.step] = served.get(decision.step, ()) + tuple(decision.picks)
    return served


def desk_here(run: str | Path) -> Desk:
    """The desk that this process has open.

    Raises:
        ContractError: there is none.
    """
    desk = _desks.get(Path(run).resolve())
    if desk is None:
        raise ContractError(f"{run} is not open in this process; give the parts of the trainer a RayScheduler")
    return desk


_desks: dict[Path, Desk] = {}
_opening = threading.Lock()


def open_desk(
    run: str | Path,
    config: Mapping[str, Any] | Config | None = None,
    *,
    scheduler: str = "envsched",
    snapshot_every: int = 10,
) -> Desk:
    """The desk of a run folder: the one open in this process, else resumed, else new.

    A resumed run keeps the config and scheduler it was made with.

    Raises:
        ConfigError: a knob has no such name or value. StoreError: the folder holds something else, or a run that
            comes out differently here. LockedError: another process has it open.
    """
    path = Path(run).resolve()
    with _opening:
        desk = _desks.get(path)
        if desk is None or desk.closed:
            if (path / "run.json").is_file():
                session = LiveSession.resume(path, snapshot_every=snapshot_every)
            else:
                chosen = config if isinstance(config, Config) else config_from(config or {})
                session = LiveSession.create(path, scheduler, chosen, snapshot_every=snapshot_every)
            desk = _desks[path] = Desk(session)
        return desk
