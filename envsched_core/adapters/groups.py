"""Groups assembled from single rewards: reward functions score one rollout at a time, often in other processes.

    groups = Groups(8, deliver)
    groups.add(Open("3/0", "airline", "17", step=3), 1.0)     delivered as one result with the eighth reward
    groups.turn(6)                                            what is still short by now goes as it is

A rollout that was lost with its worker leaves its group short, never lost: the rewards that did arrive are
delivered as a partial group when later steps have begun, or at `flush`. The same rollout reported twice (a reward
worker that was restarted) counts once where the trainer numbers its rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Groups", "Open", "of_tag"]

MOST_DELIVERED = 10_000
"""Delivered groups that are remembered, to know a reward that comes too late."""


class Open(NamedTuple):
    """What a reward belongs to."""

    group_id: str
    env: str
    task: str
    step: int | None = None
    pick_id: str | None = None

    def tag(self) -> dict[str, Any]:
        """As plain data that a trainer carries along with a rollout."""
        return self._asdict()


def of_tag(tag: Any) -> Open | None:
    """What a tag says; None for anything else."""
    if not isinstance(tag, Mapping) or not all(isinstance(tag.get(name), str) for name in ("group_id", "env", "task")):
        return None
    return Open(tag["group_id"], tag["env"], tag["task"], tag.get("step"), tag.get("pick_id"))


class Waiting(NamedTuple):
    """A group that is not complete."""

    of: Open
    since: int
    """Its step, or where it names none, that at which its first reward came."""
    rewards: dict[int | str, float | None]
    """By rollout; None where it has no usable reward."""


class Groups:
    """Single rewards in, whole groups out; not for several threads at once."""

    def __init__(self, size: int, deliver: Callable[[list[dict[str, Any]]], object], *, patience: int) -> None:
        """`size`: rollouts in a group. `patience`: later steps during which a group may still be completed."""
        self.size, self.patience = size, patience
        self.counts: Counter[str] = Counter()
        self._deliver = deliver
        self._waiting: dict[str, Waiting] = {}
        self._delivered: dict[str, None] = {}
        self._now = 0

    @property
    def waiting(self) -> int:
        """Groups that are not complete yet."""
        return len(self._waiting)

    def add(self, of: Open, reward: float | None, *, rollout: int | None = None) -> None:
        """One rollout's reward, None when it has none. `rollout`: its number in the group, where there is one."""
        if of.group_id in self._delivered:
            self.counts["late_reward"] += 1
            return
        found = self._waiting.setdefault(of.group_id, Waiting(of, self._now if of.step is None else of.step, {}))
        name: int | str = rollout if rollout is not None else f"unnumbered {len(found.rewards)}"
        if name in found.rewards:
            self.counts["duplicate_reward"] += 1
            return
        found.rewards[name] = reward
        if len(found.rewards) >= self.size:
            self._send([found])

    def turn(self, step: int) -> None:
        """A step begins: groups of more than `patience` steps ago are delivered as they are."""
        if step > self._now:
            self._now = step
            self._send([w for w in self._waiting.values() if w.since < step - self.patience])

    def flush(self) -> None:
        """Deliver everything, complete or not."""
        self._send(list(self._waiting.values()))

    def _send(self, complete: list[Waiting]) -> None:
        for waiting in complete:
            del self._waiting[waiting.of.group_id]
            self._delivered[waiting.of.group_id] = None
            self.counts["short_group"] += len(waiting.rewards) < self.size
        while len(self._delivered) > MOST_DELIVERED:
            del self._delivered[next(iter(self._delivered))]
        if complete:
            self._deliver([self._result(waiting) for waiting in complete])

    def _result(self, waiting: Waiting) -> dict[str, Any]:
        lost = max(self.size - len(waiting.rewards), 0)
        rewards = [reward for _, reward in sorted(waiting.rewards.items(), key=lambda item: _place(item[0]))]
        return {**waiting.of._asdict(), "rewards": [*rewards, *[None] * lost]}


def _place(name: int | str) -> tuple[int, int]:
    return (0, name) if isinstance(name, int) else (1, int(name.split()[-1]))
