"""One pool replay, bare: which recorded groups a scheduler draws, in the order in which it draws them.

`replay/pool.py` writes a replay down; this only counts, and knows two things more. A scheduler that fills its batch
(`fills_batch`, DAPO's dynamic sampling) is asked again within a step until as many groups as a batch has came out
mixed; every group it generated counts, against the same budget of groups as everybody's. And the references know the
log: `oracle` draws in proportion to the reward variance of each task's next recorded group, `oracle-top` takes the
largest under the quota; where the next group is flat, what lies behind it counts a little (`BEHIND`).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.baselines import FILLING_ROUNDS, REFERENCES, make_scheduler
from envsched_core.config import Config, config_from
from envsched_core.replay import RecordedPool, is_mixed
from envsched_core.replay.pool import mapped_variance
from envsched_core.scheduler import EnvSched, Worth

__all__ = ["Drawn", "PoolOracle", "draw", "scheduler_for"]

Indices = NDArray[np.int64]

BEHIND = 0.01
"""Weight of the groups behind a task's next one: small, so that it only tells apart tasks that give nothing now."""


class Drawn(NamedTuple):
    """What a replay drew [n]."""

    groups: Indices
    """Places in the pool's groups."""
    steps: Indices


class PoolOracle(EnvSched):
    """Knows the variance of the group that each task would give next."""

    def __init__(self, config: Config, pool: RecordedPool, *, name: str) -> None:
        """`pool`: the one that will be drawn from; its tasks are registered in their order."""
        super().__init__(config, name=name)
        self._coming = [
            _worths([mapped_variance(group, config) or 0.0 for group in queue]) for queue in pool.queues().values()
        ]

    def _worth(self) -> Worth:
        drawn = self.ledger.drawn.tolist()
        coming = [queue[k] if k < len(queue) else 0.0 for queue, k in zip(self._coming, drawn, strict=True)]
        return Worth({"recorded_variance": np.array(coming)}, np.zeros(len(coming)), [])


def _worths(variances: list[float]) -> list[float]:
    """Each group's variance, and a little of the mean of those behind it."""
    return [v + BEHIND * sum(variances[k + 1 :]) / max(len(variances) - k - 1, 1) for k, v in enumerate(variances)]


def scheduler_for(name: str, config: Config, pool: RecordedPool) -> EnvSched:
    """A scheduler or reference by name.

    Raises:
        ConfigError: neither has that name.
    """
    if name in REFERENCES:
        return PoolOracle(config_from(REFERENCES[name], config), pool, name=name)
    return make_scheduler(name, config)


def draw(pool: RecordedPool, scheduler: EnvSched, *, steps: int) -> Drawn:
    """Draw `steps` batches of groups, or what there is; each task's groups come in log order, each once."""
    batch, config = scheduler.config.batch_size, scheduler.config
    coming: dict[str, list[int]] = {task.key: [] for task in pool.tasks}
    for place, group in enumerate(pool.groups):
        coming[group.key].append(place)
    queues = {key: iter(places) for key, places in coming.items()}
    scheduler.register(pool.drawable())
    groups: list[int] = []
    at: list[int] = []
    for step in range(steps):
        wanted = batch
        for _ in range(FILLING_ROUNDS if scheduler.fills_batch else 1):
            picks = scheduler.ask(min(batch, steps * batch - len(groups)), step=step).picks
            places = [next(queues[pick.key]) for pick in picks]
            revealed = [
                msgspec.structs.replace(pool.groups[place], step=step, pick_id=pick.pick_id)
                for place, pick in zip(places, picks, strict=True)
            ]
            scheduler.observe(revealed)
            groups += places
            at += [step] * len(places)
            wanted -= sum(is_mixed(group, config) for group in revealed)
            if wanted <= 0 or not picks:
                break
    return Drawn(np.array(groups, dtype=np.int64), np.array(at, dtype=np.int64))
