"""Slots: what each index of a trainer's data stands for, decided when it is first asked for and the same ever after.

    slots = Slots(desk, tasks)
    slots.at(70)          the data set's item 70: place 6 of step 2 in batches of 32; prefetched, out of order or again
    slots.next()          for trainers that shuffle their indices or have none: slot after slot, batch after batch
    slots.pull(5, step=2) the next 5 of step 2, for trainers that pull what a step needs

An index asks for its whole batch, so a decision is a batch and its picks do not depend on the order in which a loader
fetches them. After a restart the picks come from the run's own record: an index that was served before gives the
same pick, also when the trainer goes back to an older checkpoint; a group that was observed before counts once.

A trainer must always be given something: where the scheduler has nothing to give (all tasks in flight, or fewer
tasks than a batch), a slot holds a stand-in, a task by a keyed draw, which is not a pick; its rewards are evidence
all the same.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envsched_core.keyed import mix
from envsched_core.records import Pick, TaskSpec, task_key

from .desk import AnyDesk, harmless
from .groups import Open

__all__ = ["Slot", "Slots"]

AHEAD = 8
"""Steps that may be skipped over and are then asked for in between: loaders prefetch out of order."""
STEPS_KEPT = 1000
"""Steps whose slots stay in memory; an index of before gets a stand-in."""


class Slot(NamedTuple):
    """One item of a trainer's data."""

    row: int
    """0-based row of the trainer's own data."""
    env: str
    task: str
    step: int
    place: int
    """0-based place in the step."""
    pick_id: str | None = None
    """None for a stand-in."""

    @property
    def group_id(self) -> str:
        """The id of the group that is rolled out for it: its pick's, or one of its own."""
        return self.pick_id or f"stand-in-{self.step}/{self.place}"

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)

    @property
    def open(self) -> Open:
        """What a single reward names."""
        return Open(self.group_id, self.env, self.task, self.step, self.pick_id)

    def result(self, rewards: Sequence[float | None], **more: Any) -> dict[str, Any]:
        """A whole group as a desk observes it; further fields as in `GroupResult`."""
        return {**self.open._asdict(), "rewards": list(rewards), **more}


class Slots:
    """The slots of one run, for all threads of a process."""

    def __init__(self, desk: AnyDesk, tasks: Sequence[TaskSpec], *, size: int | None = None) -> None:
        """`tasks`: the trainer's rows in order, each a task of its own. `size`: tasks in a batch, else the desk's."""
        self.desk, self.tasks = desk, list(tasks)
        self.size = size or desk.batch_size
        self.counts: Counter[str] = Counter()
        self.changed = desk.register(self.tasks)
        self._row = {task.key: row for row, task in enumerate(self.tasks)}
        self._lock = threading.RLock()
        self._steps: dict[int, list[Slot]] = {}
        self._by_group: dict[str, Slot] = {}
        for step, picks in sorted(desk.served().items()):
            self._keep(step, picks)
        self._latest = max(self._steps, default=None)
        self._interrupted = self._latest
        self._pulled = {step: len(slots) for step, slots in self._steps.items()}
        self._number = self.batches() * self.size
        open_then = desk.unanswered()
        self._back = deque(s for slots in self._steps.values() for s in slots if s.pick_id in open_then)

    def at(self, number: int) -> Slot:
        """The slot of a 0-based index that counts on from batch to batch and never starts again."""
        step, place = divmod(int(number), self.size)
        with self._lock:
            self._ask_between(step)
            return self._slot(step, place, self.size)

    def next(self) -> Slot:
        """The next slot: after a restart first those that had no answer, then batch after batch."""
        with self._lock:
            if self._back:
                return self._back.popleft()
            self._number += 1
            return self.at(self._number - 1)

    def pull(self, n: int = 1, *, step: int | None = None) -> list[Slot]:
        """The next `n` slots of `step` (the latest when None).

        After a restart, first those that had no answer; but see `back_to`.
        """
        with self._lock:
            at = (self._latest or 0) if step is None else step
            found = [self._back.popleft() for _ in range(min(n, len(self._back)))]
            while len(found) < n:
                found.append(self._next(at, n - len(found)))
            return found

    def back_to(self, step: int) -> None:
        """The trainer goes on from its own checkpoint: pulls of `step` and later give what they gave before."""
        with self._lock:
            self._back.clear()
            self._pulled = {at: count for at, count in self._pulled.items() if at < step}

    def batches(self) -> int:
        """Steps that slots were served for, counted from step 0."""
        return 0 if self._latest is None else self._latest + 1

    def still_open(self) -> list[Slot]:
        """Slots of before the restart that had no answer, oldest first."""
        with self._lock:
            return list(self._back)

    def of(self, group_id: Any) -> Slot | None:
        """The slot of a pick or group; None for one that is not known (any more)."""
        with self._lock:
            return self._by_group.get(group_id) if isinstance(group_id, str) else None

    @harmless(lambda: None)
    def report(self, group_id: Any, reward: float | None, *, rollout: int | None = None) -> None:
        """One rollout's reward, for the slot whose id the trainer carried along; of unknown ones only the count."""
        slot = self.of(group_id)
        if slot is None:
            self.counts["unknown_group"] += 1
        else:
            self.desk.report(slot.open, reward, rollout=rollout)

    def observe(self, results: Iterable[Mapping[str, Any]]) -> None:
        """Whole groups, as `Slot.result` makes them."""
        kept = list(results)
        if kept:
            self.desk.observe(kept)

    def state_dict(self) -> dict[str, Any]:
        """How far the pulls have come, for the trainer's checkpoint; what was picked stands in the run folder."""
        with self._lock:
            return {"format": 1, "pulled": {str(step): count for step, count in self._pulled.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Pull on from there: what the run gave after that state was saved, it gives again, in the same order."""
        with self._lock:
            self._back.clear()
            self._pulled = {int(step): int(count) for step, count in state["pulled"].items()}

    def metrics(self) -> dict[str, float]:
        """The desk's, and what was counted here."""
        return {**self.desk.metrics(), **{f"adapter/{name}": float(n) for name, n in self.counts.items()}}

    # ------------------------------------------------------------------ inside

    def _next(self, step: int, more: int) -> Slot:
        """The next slot of a step, or where it has gone by and nothing of it is left, of the latest."""
        if not self._left(step):
            step = max(step, self._latest or 0)
        if not self._left(step):
            self._ask(step, more)
            if not self._left(step) and step == self._interrupted:  # a kill interrupted it, and its batch is complete
                self._interrupted = None
                return self._next(step + 1, more)
        place = self._pulled.get(step, 0)
        self._pulled[step] = place + 1
        return self._slot(step, place, 0)

    def _left(self, step: int) -> int:
        return len(self._steps.get(step, ())) - self._pulled.get(step, 0)

    def _slot(self, step: int, place: int, ahead: int) -> Slot:
        slots = self._steps.get(step, [])
        if place >= len(slots) and ahead:
            self._ask(step, ahead - len(slots))
            slots = self._steps.get(step, [])
        while place >= len(slots):
            slots = self._stand_in(step)
        return slots[place]

    def _ask_between(self, step: int) -> None:
        """Steps that a loader skipped are asked for in order, so that none is refused as gone by."""
        if self._latest is not None and step - self._latest <= AHEAD:
            for between in range(self._latest + 1, step):
                self._ask(between, self.size)

    def _ask(self, step: int, n: int) -> None:
        """Ask for more of the latest step or a later one; steps gone by are not decided on again."""
        if n <= 0 or (self._latest is not None and step < self._latest):
            return
        self._latest = step
        self._keep(step, self.desk.ask(n, step=step))

    def _keep(self, step: int, picks: Iterable[Pick]) -> None:
        slots = self._steps.setdefault(step, [])
        for pick in picks:
            row = self._row.get(task_key(pick.env, pick.task))
            if row is None:  # a task of the run that the trainer no longer has
                self._stand_in(step)
            else:
                self._add(Slot(row, pick.env, pick.task, step, len(slots), pick.pick_id))
        while len(self._steps) > STEPS_KEPT:
            for slot in self._steps.pop(min(self._steps)):
                self._by_group.pop(slot.group_id, None)

    def _stand_in(self, step: int) -> list[Slot]:
        slots = self._steps.setdefault(step, [])
        draw = mix(np.array([step], dtype=np.uint64), len(slots))[0]
        row = int(draw % np.uint64(len(self.tasks)))
        self._add(Slot(row, self.tasks[row].env, self.tasks[row].task, step, len(slots)))
        self.counts["stand_in"] += 1
        return slots

    def _add(self, slot: Slot) -> None:
        self._steps[slot.step].append(slot)
        self._by_group[slot.group_id] = slot
