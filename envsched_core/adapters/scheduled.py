"""What the adapters that extend a trainer's own class have in common: class attributes that say where the run is.

    class Rows(VerlRows, RLHFDataset):
        run = "runs/mine"                     the run folder: resumed where there is one
        options = {"group_size": 8}           any knob of `envsched config`

A data set of slots has the length of the trainer's own, cut to whole batches; read again from the start it goes on
with new slots (a pass). Where the trainer is restarted within a pass, it goes on in that pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from envsched_core.errors import ContractError

from .desk import AnyDesk, open_desk
from .ray import RayScheduler
from .reading import tasks_of
from .slots import Slot, Slots

__all__ = ["Passes", "Scheduled"]


class Scheduled:
    """Where the run of a trainer's part is, and how its rows are tasks."""

    run: ClassVar[str | Path | None] = None
    """The run folder; it must be set."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Knobs of the config, over the batch and group size that the trainer says."""
    scheduler: ClassVar[str] = "envsched"
    actor: ClassVar[str | None] = None
    """Name of a Ray actor that keeps the run, where parts of the trainer live in other processes."""
    describe: ClassVar[Callable[[Any, int], Any] | None] = None
    """Row and place -> TaskSpec, where `reading.task_of` does not find environment and task."""

    @classmethod
    def open_slots(cls, rows: Iterable[Any], **sizes: int | None) -> Slots:
        """The slots over the trainer's rows; `sizes`: batch_size, group_size as the trainer has them.

        Raises:
            ContractError: `run` is not set, or there are no rows.
        """
        tasks = tasks_of(rows, cls.describe)
        if cls.run is None or not tasks:
            why = "there are no rows" if cls.run else "set run = FOLDER on the class"
            raise ContractError(f"{cls.__name__}: {why}")
        config = {**{name: size for name, size in sizes.items() if size}, **cls.options}
        desk: AnyDesk
        if cls.actor is not None:
            desk = RayScheduler(cls.run, config, name=cls.actor, scheduler=cls.scheduler)
        else:
            desk = open_desk(cls.run, config, scheduler=cls.scheduler)
        return Slots(desk, tasks)


class Passes:
    """Items of a data set that is read over and over, in order -> slots."""

    def __init__(self, slots: Slots, rows: int) -> None:
        """`rows`: length of the trainer's own data set; a pass is as long, in whole batches."""
        self.slots = slots
        self.length = max(rows // slots.size, 1) * slots.size
        before = slots.batches() * slots.size
        self._pass, self._seen = max(before - 1, 0) // self.length, set[int]()
        self._at_end = before > 0 and before % self.length == 0

    def slot(self, item: int) -> Slot:
        """The slot of a 0-based item; an item that this pass had already begins the next."""
        if item in self._seen or (self._at_end and item < self.slots.size):
            self._pass, self._seen = self._pass + 1, set()
        elif not self._seen:  # the batches before were served before the restart
            self._seen = set(range(item // self.slots.size * self.slots.size))
        self._at_end = False
        self._seen.add(item)
        return self.slots.at(self._pass * self.length + item)
