"""prime-rl: in the place of `TrainSource`, which mixes environments by fixed ratios and pulls one task at a time.

    source = PrimeSource({"retail": retail_tasks, "airline": airline_tasks}, TaskRequest, open_desk("runs/mine"))

`next_task(step=...)` asks, `on_result(group)` observes; groups come in any order, and stale ones never, so their
picks expire. The curriculum's gates stay prime-rl's: what `inner.on_result` says is passed on. prime-rl saves
`state_dict()` with its checkpoints; what was picked stands in the run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from envsched_core.live.intake import text_of, whole
from envsched_core.records import TaskSpec

from .desk import AnyDesk, harmless
from .reading import cost_of, field, number, task_of, tasks_of, weighted
from .slots import Slots

__all__ = ["PrimeSource"]

MOST_ENDLESS = 2000
"""Tasks that are taken of a task set that has no length."""


class PrimeSource:
    """What prime-rl's orchestrator calls of a `TrainSource`."""

    def __init__(
        self,
        tasks: Mapping[str, Iterable[Any]],
        request: Callable[..., Any],
        desk: AnyDesk,
        *,
        inner: Any = None,
        describe: Callable[[Any, int], Any] | None = None,
    ) -> None:
        """`tasks`: by environment name; of an endless task set the first 2,000. `request`: prime-rl's `TaskRequest`.

        `inner`: prime-rl's own source, whose admission gates go on deciding what is trained on.
        """
        self.request, self.inner = request, inner
        named = [(env, task) for env, some in tasks.items() for task in _finite(some)]
        self._tasks = [task for _, task in named]

        def told(item: tuple[str, Any], place: int) -> TaskSpec:
            made = describe(item[1], place) if describe else None
            return made if isinstance(made, TaskSpec) else _spec(*item, place)

        specs = tasks_of(named, told)
        self._by_name = {(env, _key(task)): spec.task for (env, task), spec in zip(named, specs, strict=True)}
        self.slots = Slots(desk, specs)

    def next_task(self, *, step: int) -> Any:
        """The next task of a dispatch step, as prime-rl's request."""
        (slot,) = self.slots.pull(1, step=whole(step))
        return self.request(env_name=slot.env, task=self._tasks[slot.row], step=step)

    def on_result(self, group: list[Any]) -> bool:
        """Observe a finished group (episodes); whether it is trained on says `inner`, True without one."""
        admitted = bool(self.inner.on_result(group)) if self.inner is not None else True
        self.observe(group, admitted)
        return admitted

    @harmless(lambda: None)
    def observe(self, group: list[Any], admitted: bool) -> None:
        """One group of episodes of one task."""
        if not group:
            return
        first = group[0]
        env, key = text_of(field(field(first, "env"), "name", "id")) or "", _key(field(first, "task"))
        policy = field(field(field(first, "run"), "work"), "policy")
        group_id = text_of(field(field(first, "group"), "id")) or text_of(field(first, "id"))
        tokens = (field(episode, "num_output_tokens") for episode in group)
        seconds = (field(field(t, "timing"), "duration") for e in group for t in field(e, "traces") or ())
        result = {
            "group_id": group_id,
            "env": env,
            "task": self._by_name.get((env, key), key),
            "step": whole(field(field(field(first, "run"), "work"), "step")),
            "rewards": [episode_reward(episode) for episode in group],
            "trained": admitted,
            "policy_version": text_of(field(policy, "start")),
            "cost": cost_of(tokens=tokens, seconds=seconds),
            "calls": tuple(_calls(episode) for episode in group),
        }
        self.slots.observe([result])

    def metrics(self) -> dict[str, float]:
        """Counters and gauges for prime-rl's log."""
        own = {f"envsched/{name}": value for name, value in self.slots.metrics().items()}
        return {**(self.inner.metrics() if self.inner is not None else {}), **own}

    def state_dict(self) -> dict[str, Any]:
        """For prime-rl's checkpoint."""
        inner = self.inner.state_dict() if self.inner is not None else None
        return {"envsched": self.slots.state_dict(), "inner": inner}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Pull on from a checkpoint: what was pulled after it comes again, in the same order."""
        self.slots.load_state_dict(state["envsched"])
        if self.inner is not None and state.get("inner") is not None:
            self.inner.load_state_dict(state["inner"])


def episode_reward(episode: Any) -> float | None:
    """Mean over its trainable agents of the weighted sum of the named rewards; None where nothing was scored."""
    totals = []
    for trace in field(episode, "traces") or ():
        if field(field(trace, "agent"), "trainable") is False:
            continue
        parts = [p for p in (field(trace, "rewards") or {}).values() if p is not None]
        weights = [1.0 if (w := number(field(p, "weight"))) is None else w for p in parts]
        total = weighted([field(p, "score") for p in parts], weights)
        if total is not None:
            totals.append(total)
    return sum(totals) / len(totals) if totals else None


def _calls(episode: Any) -> tuple[str, ...]:
    nodes = [node for trace in field(episode, "traces") or () for node in field(trace, "nodes") or ()]
    calls = [call for node in nodes for call in field(field(node, "message"), "tool_calls") or ()]
    return tuple(name for call in calls if (name := text_of(field(call, "name"))))


def _spec(env: str, task: Any, place: int) -> TaskSpec:
    found = task_of(task, place)
    return TaskSpec(env, _key(task) or found.task, text=found.text, tools=found.tools)


def _key(task: Any) -> str:
    return text_of(field(task, "key") or field(field(task, "data"), "idx") or field(task, "idx")) or ""


def _finite(tasks: Iterable[Any]) -> list[Any]:
    return list(tasks) if hasattr(tasks, "__len__") else list(islice(tasks, MOST_ENDLESS))
