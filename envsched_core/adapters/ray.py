"""Ray: one named actor keeps a run, and every process of the cluster asks and reports there.

    desk = RayScheduler("runs/mine", {"batch_size": 32, "group_size": 8})      the same line in every process
    desk.report(of, reward)                                                    one rollout, from any worker

The actor is detached and found by name in a namespace of its own, so it outlives the process that made it; made twice,
it is one. `ask` waits for its answer, reports do not: they are on their way when the call returns, and have arrived
when `flush` does. Rollouts that died with their worker leave a group short, never lost: what was reported of it is
observed when its pick would expire. Restarted by Ray, the actor resumes the run folder: what was sent meanwhile
arrives then, single rewards of groups that it had not complete are gone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envsched_core.records import Pick, TaskSpec

from .desk import TasksChanged, harmless, open_desk
from .groups import Open

__all__ = ["RayScheduler"]

NAMESPACE = "envsched"


class Keeper:
    """What runs inside the actor: a desk."""

    def __init__(self, run: str, config: Mapping[str, Any], scheduler: str) -> None:
        self.desk = open_desk(run, dict(config), scheduler=scheduler)

    def call(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """One call of the desk."""
        return getattr(self.desk, name)(*arguments, **named)

    def sizes(self) -> tuple[int, int]:
        """Batch and group size."""
        return self.desk.batch_size, self.desk.group_size


class RayScheduler:
    """A desk that is an actor; it may be passed to other processes."""

    def __init__(
        self,
        run: str | Path | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        name: str = "envsched",
        namespace: str = NAMESPACE,
        scheduler: str = "envsched",
    ) -> None:
        """`run`: the run folder, as the actor's machine sees it; None = only find an actor that is there."""
        self.run, self.config, self.scheduler = str(Path(run).resolve()) if run else None, dict(config or {}), scheduler
        self.name, self.namespace = name, namespace
        self._handle: Any = None
        self._last: Any = None  # calls of one process arrive in order, so the last stands for all
        self._sizes: tuple[int, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.run, self.config, self.name, self.namespace, self.scheduler)

    @property
    def batch_size(self) -> int:
        """Tasks in a batch."""
        return self._known_sizes()[0]

    @property
    def group_size(self) -> int:
        """Rollouts in a group."""
        return self._known_sizes()[1]

    def register(self, tasks: Sequence[TaskSpec]) -> TasksChanged:
        """Make the trainer's tasks known; waits."""
        return TasksChanged(*self._ask("register", list(tasks)))

    @harmless(tuple[Pick, ...])
    def ask(self, n: int, *, step: int, policy_version: str | None = None) -> tuple[Pick, ...]:
        """Up to `n` tasks for `step`; waits. None at all while the actor cannot be reached."""
        return tuple(self._ask("ask", n, step=step, policy_version=policy_version))

    @harmless(lambda: None)
    def observe(self, results: Any, rollouts: Any = ()) -> None:
        """Send whole groups."""
        self._tell("observe", results, rollouts)

    @harmless(lambda: None)
    def report(self, of: Open, reward: float | None, *, rollout: int | None = None) -> None:
        """Send one rollout's reward."""
        self._tell("report", of, reward, rollout=rollout)

    @harmless(lambda: None)
    def release(self, picks: Any, reason: str) -> None:
        """Send picks that will give no result."""
        self._tell("release", picks, reason)

    @harmless(lambda: False)
    def save(self, step: int) -> bool:
        """Keep a snapshot; waits."""
        return bool(self._ask("save", step))

    def served(self) -> dict[int, tuple[Pick, ...]]:
        """Picks by step that were on record when the actor opened the run; waits."""
        return dict(self._ask("served"))

    def unanswered(self) -> frozenset[str]:
        """Ids of those of them that had no result; waits."""
        return frozenset(self._ask("unanswered"))

    @harmless(dict[str, float])
    def metrics(self) -> dict[str, float]:
        """Counters and gauges; waits, so that what this process sent before is in them. None at all as with `ask`."""
        return dict(self._ask("metrics"))

    @harmless(lambda: None)
    def flush(self) -> None:
        """Wait until what this process sent has arrived, at most a minute."""
        if self._last is not None:
            self._ray().wait([self._last], timeout=60)

    def close(self) -> None:
        """End the run and the actor: observe what is there, give the folder free; other processes flush before."""
        ray, handle = self._ray(), self._actor()
        ray.get(handle.call.remote("close", (), {}))
        ray.kill(handle)
        self._handle = None

    # ------------------------------------------------------------------ inside

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        return self._ray().get(self._actor().call.remote(name, arguments, named))

    def _tell(self, name: str, *arguments: Any, **named: Any) -> None:
        # Sent again where the actor went away before it answered: what it is told twice counts once.
        self._last = self._actor().call.options(max_task_retries=-1).remote(name, arguments, named)

    def _known_sizes(self) -> tuple[int, int]:
        if self._sizes is None:
            self._sizes = tuple(self._ray().get(self._actor().sizes.remote()))
        return self._sizes

    def _actor(self) -> Any:
        if self._handle is None:
            ray = self._ray()
            if self.run is None:
                self._handle = ray.get_actor(self.name, namespace=self.namespace)
            else:
                made = ray.remote(Keeper).options(
                    name=self.name,
                    namespace=self.namespace,
                    lifetime="detached",
                    get_if_exists=True,
                    max_restarts=-1,
                    num_cpus=0,
                )
                self._handle = made.remote(self.run, self.config, self.scheduler)
        return self._handle

    def _ray(self) -> Any:
        return importlib.import_module("ray")


def _again(run: str | None, config: dict[str, Any], name: str, namespace: str, scheduler: str) -> RayScheduler:
    return RayScheduler(run, config, name=name, namespace=namespace, scheduler=scheduler)
