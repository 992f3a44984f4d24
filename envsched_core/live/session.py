"""LiveSession: the calls of a trainer's loop."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.records import Decision, GroupResult, Pick, Rollout, TaskSpec
from envsched_core.replay.journal import Journal
from envsched_core.scheduler import EnvSched
from envsched_core.store import Manifest, RunReader, RunWriter, new_manifest

from .intake import as_list, group_from, whole
from .restore import SNAPSHOT_FORMAT, Restored, Resumed, restore
from .sink import Sink

__all__ = ["LiveSession"]

SNAPSHOTS_KEPT = 2
ENDED_KEPT = 10_000
"""Ids of released and expired picks that are remembered, to tell a late answer from an unknown one."""

Extra = Callable[[], Mapping[str, Any]]
"""What a trainer wants kept with a snapshot: plain data and arrays."""


class LiveSession:
    """A scheduler in a trainer's loop; every call may come from any thread."""

    def __init__(
        self,
        scheduler: EnvSched,
        sink: Sink | None = None,
        *,
        snapshot_every: int = 10,
        extra: Extra | None = None,
        restored: Restored | None = None,
        graph_version: int = 0,
    ) -> None:
        """Without a sink nothing is recorded; `create` and `resume` make one.

        `snapshot_every`: steps between snapshots (0 = none). `extra`: called at each, before a step's first ask.
        """
        self.scheduler = scheduler
        self.sink = sink
        self.extra = extra
        self.resumed: Resumed | None = restored.resumed if restored else None
        """What was found on disk; None for a new run."""
        self.decision: Decision | None = self.resumed.decision if self.resumed else None
        """The latest decision."""
        self.counts: Counter[str] = Counter()
        self._journal = Journal(scheduler, sink, graph_version=graph_version)
        self._every = snapshot_every
        self._tasks = restored.tasks if restored else 0
        self._asked_here = restored.asked_here if restored else 0
        self._snapshot_at = restored.resumed.snapshot if restored else None
        self._interrupted = scheduler.step if restored and scheduler.started else None
        self._back: deque[str] = deque(self._in_order()) if restored else deque()
        self._scored = True
        self._ended: dict[str, None] = {}
        self._lock = threading.RLock()

    @classmethod
    def create(
        cls,
        path: Path,
        scheduler: str | EnvSched = "envsched",
        config: Config | None = None,
        *,
        snapshot_every: int = 10,
        extra: Extra | None = None,
        **facts: Any,
    ) -> Self:
        """A session on a new run folder; `facts` are fields of its manifest (notes, source, kind).

        Raises:
            StoreError: the folder holds something. LockedError: another process is writing it.
            ConfigError: no scheduler has that name.
        """
        chosen = make_scheduler(scheduler, config) if isinstance(scheduler, str) else scheduler
        writer = RunWriter.create(path, manifest_of(path, chosen, **facts))
        return cls(chosen, Sink(writer), snapshot_every=snapshot_every, extra=extra)

    @classmethod
    def resume(cls, path: Path, *, snapshot_every: int = 10, extra: Extra | None = None) -> Self:
        """Go on with a run after a kill or a stop.

        Raises:
            StoreError: it is no run folder, or its decisions come out differently here.
            LockedError: another process is writing it.
        """
        writer = RunWriter.resume(path)
        try:
            reader = RunReader(path)
            restored = restore(reader)
            graph = max(reader.graph_versions(), default=0)
        except BaseException:  # whatever happened, the folder must not stay locked
            writer.close()
            raise
        settings: dict[str, Any] = {"snapshot_every": snapshot_every, "extra": extra, "graph_version": graph}
        return cls(restored.scheduler, Sink(writer), restored=restored, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left and give the run folder free."""
        with self._lock:
            self._keep_scores()
            if self.sink is not None:
                self.sink.close()

    # ------------------------------------------------------------------ the calls

    def register(self, tasks: Iterable[TaskSpec]) -> None:
        """Make tasks known; those known already, as they are, are passed over, so a resumed trainer may repeat it."""
        with self._lock:
            catalogue = self.scheduler.catalogue
            given = [task for task in tasks if isinstance(task, TaskSpec) and task.env and task.task]
            fresh = [t for t in given if (i := catalogue.index.get(t.key)) is None or catalogue.tasks[i] != t]
            if fresh:
                self._journal.register(fresh)
                self._tasks += len(fresh)

    def ask(self, n: Any = 1, *, step: Any, policy_version: Any = None) -> tuple[Pick, ...]:
        """Up to `n` tasks to roll out at `step`; after a resume, those without an answer first."""
        with self._lock:
            wanted, at = self._count(n), self._step(step)
            if not self.scheduler.started or at > self.scheduler.step:
                self._turn(at)
            back = self._given_back(wanted, at)
            new = self._still_to_ask(wanted - len(back), at)
            if new == 0 and (back or wanted):
                return back
            version = None if policy_version is None else str(policy_version)
            decision = self.decision = self._journal.ask(new, at, version, scores=False)
            self._asked_here += len(decision.picks)
            self._scored = False
            self._end(decision.expired)
            if self._asked_here >= self.scheduler.config.batch_size:
                self._keep_scores()
            return back + decision.picks

    def observe(self, results: Any, rollouts: Iterable[Rollout] = ()) -> None:
        """Take in groups (`GroupResult`, or mappings with its fields), asked for or not, with their rollouts if kept.

        A mapping needs `rewards` and either `pick_id` or `env`, `task` and `group_id`.
        """
        with self._lock:
            picks = self.open_picks()
            found = [clean for item in as_list(results) if (clean := self._clean(item, picks)) is not None]
            if found:
                self._journal.observe(self._with_offsets(found, rollouts), self.scheduler.step)

    def release(self, picks: Any, reason: str) -> None:
        """End picks (or their ids) that will give no result; unknown ones are counted."""
        with self._lock:
            ids = [str(pick.pick_id if isinstance(pick, Pick) else pick) for pick in as_list(picks)]
            self._journal.release(ids, str(reason), self.scheduler.step)
            self._end(ids)

    def note(self, step: int | None, data: Mapping[str, Any]) -> None:
        """Put something on record that no decision depends on: a timing, a held-out score, a warning."""
        if self.sink is not None:
            with self._lock:
                self.sink.note(step, data)

    def save(self, step: int) -> bool:
        """Keep a snapshot of now, named by the step that comes next; False when it was not kept."""
        with self._lock:
            if self.sink is None or not self.sink.works:
                return False
            state = {
                "format": SNAPSHOT_FORMAT,
                "offset": self.sink.position(),
                "tasks": self._tasks,
                "asked_here": self._asked_here,
                "scheduler": self.scheduler.state_dict(),
                "trainer": self.extra() if self.extra else None,
            }
            self._snapshot_at = step
            return self.sink.save_state(step, state, keep=SNAPSHOTS_KEPT)

    def open_picks(self) -> dict[str, Pick]:
        """Picks without an answer, by id, oldest first."""
        with self._lock:
            ledger, tasks = self.scheduler.ledger, self.scheduler.catalogue.tasks
            return {
                pick_id: Pick(pick_id, tasks[p.task].env, tasks[p.task].task, p.position)
                for pick_id, p in ((name, ledger.open[name]) for name in self._in_order())
            }

    def metrics(self) -> dict[str, float]:
        """The scheduler's counters and gauges, and the session's own."""
        with self._lock:
            own: dict[str, float] = {f"session/{name}": float(count) for name, count in self.counts.items()}
            if self.sink is not None:
                names = ("failures", "waiting", "lost")
                own |= {f"sink/{name}": float(getattr(self.sink, name)) for name in names}
            return {**self.scheduler.metrics(), **own}

    # ------------------------------------------------------------------ inside

    def _in_order(self) -> list[str]:
        picks = self.scheduler.ledger.open
        return sorted(picks, key=lambda pick_id: (picks[pick_id].step, picks[pick_id].position))

    def _count(self, n: Any) -> int:
        number = whole(n)
        if number is None or number < 0:
            self.counts["bad_count"] += 1
        return max(number or 0, 0)

    def _step(self, step: Any) -> int:
        """The step that is meant: never before the current one."""
        number = whole(step)
        if number is None:
            self.counts["bad_step"] += 1
            return self.scheduler.step
        if self.scheduler.started and number < self.scheduler.step:
            self.counts["step_back"] += 1
            return self.scheduler.step
        return number

    def _turn(self, step: int) -> None:
        """Between two steps: finish the record of the one before, and keep a snapshot if it is time."""
        self._keep_scores()
        if self.sink is not None:
            self.sink.retry()
        if self._snapshot_at is None:
            self._snapshot_at = step
        elif self._every and step - self._snapshot_at >= self._every:
            self.save(step)
        self._asked_here, self._interrupted = 0, self._interrupted if step == self._interrupted else None

    def _given_back(self, most: int, step: int) -> tuple[Pick, ...]:
        """Picks of before the resume that had no answer and do not expire at `step`."""
        ledger, picks = self.scheduler.ledger, self.open_picks() if self._back else {}
        given: list[Pick] = []
        while self._back and len(given) < most:
            pick_id = self._back.popleft()
            if pick_id in picks and ledger.open[pick_id].step >= step - ledger.expire_after:
                given.append(picks[pick_id])
        if given:
            self.counts["given_back"] += len(given)
            self.note(step, {"given_back": [pick.pick_id for pick in given]})
        return tuple(given)

    def _still_to_ask(self, n: int, step: int) -> int:
        """The interrupted step is completed, never taken beyond its batch."""
        if step != self._interrupted:
            return n
        return min(n, max(self.scheduler.config.batch_size - self._asked_here, 0))

    def _clean(self, item: Any, picks: Mapping[str, Pick]) -> GroupResult | None:
        found = group_from(item, picks)
        if found is None:
            self.counts["bad_result"] += 1
            return None
        result, complete = found
        self.counts["field_dropped"] += not complete
        self.counts["partial_result"] += result.missing > 0
        if result.pick_id is None:
            return result
        if result.pick_id not in picks:
            seen = result.group_id in self.scheduler.ledger.seen
            how = "duplicate" if seen else "late" if result.pick_id in self._ended else "unknown_pick"
            self.counts[f"{how}_result"] += 1
        elif result.step is None:
            return msgspec.structs.replace(result, step=self.scheduler.ledger.open[result.pick_id].step)
        return result

    def _with_offsets(self, results: Sequence[GroupResult], rollouts: Iterable[Rollout]) -> list[GroupResult]:
        """The results with the places of their rollouts in the run folder."""
        kept = list(rollouts)
        offsets = self.sink.add_rollouts(kept) if self.sink is not None and kept else []
        of: dict[str, list[int]] = {}
        for rollout, offset in zip(kept, offsets, strict=False):  # none when they were not kept
            of.setdefault(rollout.group_id, []).append(offset)
        return [
            msgspec.structs.replace(result, offsets=tuple(of[result.group_id])) if result.group_id in of else result
            for result in results
        ]

    def _end(self, pick_ids: Iterable[str]) -> None:
        self._ended.update(dict.fromkeys(pick_ids))
        while len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]

    def _keep_scores(self) -> None:
        if not self._scored:
            self._journal.keep_scores()
            self._scored = True


def manifest_of(path: Path, scheduler: EnvSched, **facts: Any) -> Manifest:
    """The manifest of a new live run; `facts` go over what the scheduler says."""
    config = scheduler.config
    said = {
        "kind": "live",
        "scheduler": scheduler.name,
        "config": msgspec.to_builtins(config),
        "seed": config.seed,
        "batch_size": config.batch_size,
        "reward_ranges": config.reward_ranges,
    }
    return new_manifest(path.resolve().name, **{**said, **facts})
