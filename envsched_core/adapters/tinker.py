"""tinker-cookbook: an `RLDataset` whose batches are picked, of group builders that report their rewards.

    TinkerDataset(builders, open_desk("runs/mine", {"batch_size": 32, "group_size": 8}), batches=200)

`get_batch(i)` is the same for the same `i`, also after a restart. A builder's total rewards are seen when the cookbook
asks it for the group's rewards, constant groups included; a group that ends without them is given back at `cleanup`.
A builder that is sent to another process reports to the run's Ray actor, so there the desk must be a `RayScheduler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .desk import AnyDesk, Desk, desk_here, harmless
from .groups import Open
from .reading import field, number, tasks_of
from .slots import Slots

__all__ = ["ReportingBuilder", "TinkerDataset"]


class ReportingBuilder:
    """Around an `EnvGroupBuilder`; all else is the inner one's. It pickles as far as the inner one does."""

    def __init__(self, inner: Any, of: Open, desk: AnyDesk) -> None:
        """`of`: the group that it builds."""
        self.inner, self.of = inner, of
        self._desk: AnyDesk | str = str(desk.path) if isinstance(desk, Desk) else desk
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        """Whatever else the cookbook wants of a builder."""
        if name == "inner":  # not there yet, while it is being unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def make_envs(self) -> Any:
        """The inner builder's environments."""
        return await self.inner.make_envs()

    async def compute_group_rewards(self, trajectory_group: list[Any], env_group: Sequence[Any]) -> Any:
        """The inner builder's rewards, observed together with those of the steps."""
        found = await self.inner.compute_group_rewards(trajectory_group, env_group)
        self.look_at(trajectory_group, found)
        return found

    async def cleanup(self) -> None:
        """The inner builder's; a group without rewards is given back."""
        await self.inner.cleanup()
        self.end()

    def logging_tags(self) -> list[str]:
        """The inner builder's labels, and the task's."""
        return [*self.inner.logging_tags(), f"task:{self.of.task}"]

    @harmless(lambda: None)
    def look_at(self, trajectories: list[Any], finals: list[Any]) -> None:
        """Observe each trajectory's total reward."""
        self._ended = True
        rewards = []
        for trajectory, (final, _) in zip(trajectories, finals, strict=True):
            steps = [number(field(step, "reward")) for step in field(trajectory, "transitions") or ()]
            parts = [*steps, number(final)]
            rewards.append(None if None in parts else sum(part for part in parts if part is not None))
        self.desk().observe([{**self.of.tag(), "rewards": rewards}])

    @harmless(lambda: None)
    def end(self) -> None:
        """Give the pick back if nothing was observed, and see that it is known."""
        if not self._ended and self.of.pick_id is not None:
            self.desk().release([self.of.pick_id], "no rewards")
        self.desk().flush()  # the process may end with the group

    def desk(self) -> AnyDesk:
        """The desk of this process, or the actor.

        Raises:
            ContractError: the builder was sent to a process that has no desk.
        """
        return desk_here(self._desk) if isinstance(self._desk, str) else self._desk


class TinkerDataset:
    """What the cookbook's training loops call of an `RLDataset`."""

    def __init__(
        self,
        builders: Sequence[Any],
        desk: AnyDesk,
        *,
        batches: int,
        describe: Callable[[Any, int], Any] | None = None,
    ) -> None:
        """`builders`: one a task. `batches`: the length of training. `describe(builder, place)` -> TaskSpec."""
        self.builders, self.batches = list(builders), batches
        self.slots = Slots(desk, tasks_of(self.builders, describe))

    def __len__(self) -> int:
        """Batches."""
        return self.batches

    def get_batch(self, index: int) -> list[ReportingBuilder]:
        """The builders of a 0-based batch."""
        first = index * self.slots.size
        slots = [self.slots.at(first + place) for place in range(self.slots.size)]
        return [ReportingBuilder(self.builders[slot.row], slot.open, self.slots.desk) for slot in slots]
