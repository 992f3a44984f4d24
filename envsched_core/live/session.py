"""LiveSession: the calls of a trainer's loop."""

from __future__ import annotations

import functools
import logging
import threading
from collections import ChainMap, Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.records import Decision, GroupResult, Pick
from envsched_core.replay.journal import Journal
from envsched_core.scheduler import EnvSched
from envsched_core.store import Manifest, RunReader, RunWriter, new_manifest

from .counting import count_on, own_metrics
from .intake import MOST_NAME, as_list, attempt, group_from, label_of, plain, rollout_from, task_from, text_of, whole
from .restore import SNAPSHOT_FORMAT, Restored, Resumed, restore
from .sink import Sink

__all__ = ["LiveSession"]

SNAPSHOTS_KEPT = 2
PICKS_KEPT = 10_000
"""Picks that are remembered, to know an answer that comes when they have ended."""

Extra = Callable[[], Mapping[str, Any]]
"""What a trainer wants kept with a snapshot: plain data and arrays."""
P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("envsched")


def guarded(
    otherwise: Callable[[], T],
) -> Callable[[Callable[Concatenate[LiveSession, P], T]], Callable[Concatenate[LiveSession, P], T]]:
    """A call for one thread at a time that never raises: what fails is counted and told once."""

    def around(call: Callable[Concatenate[LiveSession, P], T]) -> Callable[Concatenate[LiveSession, P], T]:
        @functools.wraps(call)
        def guard(self: LiveSession, /, *arguments: P.args, **named: P.kwargs) -> T:
            with self._lock:
                found, error = attempt(lambda: (call(self, *arguments, **named),))
                if found is not None:
                    return found[0]
                self.counts["failed_call"] += 1
                if self.counts["failed_call"] == 1:
                    log.warning("a call of %s failed; the run goes on", call.__name__, exc_info=error)
                return otherwise()

        return guard

    return around


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
        self._snapshot_at = (restored.resumed.snapshot or 0) if restored else None
        self._interrupted = scheduler.step if restored and scheduler.started else None
        self._back: deque[str] = deque(self._in_order()) if restored else deque()
        self._scored = True
        self._counts_kept: dict[str, float] = {}
        self._picks: dict[str, Pick] = {}
        self._asked_at: dict[str, int] = {}
        self._lock = threading.RLock()
        for step, picks in self.resumed.asked.items() if self.resumed else ():
            self._remember(picks, step)
        for pick_id, pick in self.open_picks().items():
            self._remember((pick,), scheduler.ledger.open[pick_id].step)

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
        sink = Sink(writer)
        session = cls(restored.scheduler, sink, restored=restored, **settings)
        count_on(session.counts, sink)
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @guarded(lambda: None)
    def close(self) -> None:
        """Write what is left and give the run folder free."""
        self._keep_scores()
        if self.sink is not None:
            self.sink.hurry()
            self._keep_counts(always=True)
            self.sink.close()

    # ------------------------------------------------------------------ the calls

    @guarded(lambda: None)
    def register(self, tasks: Any) -> None:
        """Make tasks known; those known already, as they are, are passed over, so a resumed trainer may repeat it."""
        catalogue = self.scheduler.catalogue
        given = [attempt(task_from, task)[0] for task in as_list(tasks, self.counts)]
        good = [task for task in given if task is not None]
        self.counts["bad_task"] += len(given) - len(good)
        fresh = [t for t in good if (i := catalogue.index.get(t.key)) is None or catalogue.tasks[i] != t]
        if fresh:
            self._journal.register(fresh)
            self._tasks += len(fresh)

    @guarded(tuple[Pick, ...])
    def ask(self, n: Any = 1, *, step: Any, policy_version: Any = None) -> tuple[Pick, ...]:
        """Up to `n` tasks to roll out at `step`; after a resume, those without an answer first."""
        wanted, at = self._count(n), self._step(step)
        if wanted is None:
            return ()
        if not self.scheduler.started or at > self.scheduler.step:
            self._turn(at)
        back = self._given_back(wanted, at)
        new = self._still_to_ask(wanted - len(back), at)
        if new == 0 and (back or wanted):
            return back
        decision = self.decision = self._journal.ask(new, at, label_of(policy_version), scores=False)
        self._asked_here += len(decision.picks)
        self._scored = False
        self._remember(decision.picks, at)
        if self._asked_here >= self.scheduler.config.batch_size:
            self._keep_scores()
        return back + decision.picks

    @guarded(lambda: None)
    def observe(self, results: Any, rollouts: Any = ()) -> None:
        """Take in groups (`GroupResult`, or mappings with its fields), asked for or not, with their rollouts if kept.

        A mapping needs `rewards` and either `pick_id` or `env`, `task` and `group_id`.
        """
        picks = ChainMap(self.open_picks(), self._picks)
        cleaned = [self._clean(item, picks) for item in as_list(results, self.counts)]
        found = [result for result in cleaned if result is not None]
        if found:
            self._journal.observe(self._with_offsets(found, rollouts), self.scheduler.step)

    @guarded(lambda: None)
    def release(self, picks: Any, reason: Any) -> None:
        """End picks (or their ids) that will give no result; unknown ones are counted."""
        given = [text_of(p.pick_id if isinstance(p, Pick) else p) for p in as_list(picks, self.counts)]
        ids = [pick_id for pick_id in given if pick_id is not None and len(pick_id) <= MOST_NAME]
        self.counts["bad_release"] += len(given) - len(ids)
        self._journal.release(ids, label_of(reason) or "", self.scheduler.step)

    @guarded(lambda: None)
    def note(self, step: Any, data: Any) -> None:
        """Put something on record that no decision depends on: a timing, a held-out score, a warning."""
        at = whole(step)
        if step is not None and at is None:
            self.counts["bad_step"] += 1
            at = self.scheduler.step if self.scheduler.started else None
        if not isinstance(data, Mapping):
            self.counts["bad_note"] += 1
        elif self.sink is not None:
            self.sink.note(at, plain(data))

    @guarded(lambda: False)
    def save(self, step: Any) -> bool:
        """Keep a snapshot of now, named by the step that comes next; False when it was not kept."""
        at = whole(step)
        if at is None:
            self.counts["bad_step"] += 1
            return False
        if self.sink is None or not self.sink.works:
            return False
        self._snapshot_at = at
        trainer, error = attempt(self.extra) if self.extra else (None, None)
        if error is not None:  # without the trainer's part, a resume could not go on from this snapshot
            self.counts["extra_failed"] += 1
            return False
        state = {
            "format": SNAPSHOT_FORMAT,
            "offset": self.sink.position(),
            "tasks": self._tasks,
            "asked_here": self._asked_here,
            "scheduler": self.scheduler.state_dict(),
            "trainer": trainer,
        }
        return self.sink.save_state(at, state, keep=SNAPSHOTS_KEPT)

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
            return {**self.scheduler.metrics(), **own_metrics(self.counts, self.sink)}

    # ------------------------------------------------------------------ inside

    def _in_order(self) -> list[str]:
        picks = self.scheduler.ledger.open
        return sorted(picks, key=lambda pick_id: (picks[pick_id].step, picks[pick_id].position))

    def _count(self, n: Any) -> int | None:
        number = whole(n)
        if number is None or number < 0:
            self.counts["bad_count"] += 1
            return None
        return number

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
        if self.sink is not None:
            self.sink.retry()
        self._keep_scores()
        due = bool(self._every) and self._snapshot_at is not None and step - self._snapshot_at >= self._every
        if self._snapshot_at is None:
            self._snapshot_at = step
        elif due:
            self.save(step)
        self._keep_counts(always=due)
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
        found, _ = attempt(group_from, item, picks)
        if found is None:
            self.counts["bad_result"] += 1
            return None
        result, complete = found
        self.counts["field_dropped"] += not complete
        self.counts["partial_result"] += result.missing > 0
        if result.pick_id is None:
            return result
        ledger = self.scheduler.ledger
        asked = ledger.open[result.pick_id].step if result.pick_id in ledger.open else None
        if asked is None:
            asked = self._asked_at.get(result.pick_id)
            how = "unknown_pick" if asked is None else "late"
            self.counts["duplicate_result" if result.group_id in ledger.seen else f"{how}_result"] += 1
        return msgspec.structs.replace(result, step=asked) if result.step is None else result

    def _with_offsets(self, results: Sequence[GroupResult], rollouts: Any) -> list[GroupResult]:
        """The results with the places of their rollouts in the run folder."""
        given = [attempt(rollout_from, rollout)[0] for rollout in as_list(rollouts, self.counts)]
        kept = [rollout for rollout in given if rollout is not None]
        self.counts["bad_rollout"] += len(given) - len(kept)
        offsets = self.sink.add_rollouts(kept) if self.sink is not None and kept else []
        of: dict[str, list[int]] = {}
        for rollout, offset in zip(kept, offsets, strict=False):  # none when they were not kept
            of.setdefault(rollout.group_id, []).append(offset)
        return [
            msgspec.structs.replace(result, offsets=tuple(of[result.group_id])) if result.group_id in of else result
            for result in results
        ]

    def _remember(self, picks: Iterable[Pick], step: int) -> None:
        for pick in picks:
            self._picks[pick.pick_id], self._asked_at[pick.pick_id] = pick, step
        while len(self._picks) > PICKS_KEPT:
            oldest = next(iter(self._picks))
            del self._picks[oldest], self._asked_at[oldest]

    def _keep_counts(self, *, always: bool) -> None:
        """Put what was counted beside the events: when the session counted anything, or `always`."""
        own = own_metrics(self.counts, self.sink)
        if self.sink is not None and (always or own != self._counts_kept):
            step = self.scheduler.step if self.scheduler.started else None
            if self.sink.save_counters(step, self.metrics()):
                self._counts_kept = own

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
