"""A run of the closed loop on record: ToolWorld's policy learns on what a scheduler asks for, through a LiveSession.

This is what `envsched train` runs, and what a trainer's own loop would look like. The learner's state lies in the
session's snapshots, so that a run killed at any moment goes on to the same decisions: the learner goes back to its
snapshot and rolls out again, from the same keys, what is on record already; nothing is asked for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envsched_core.baselines import one_ask_a_step
from envsched_core.config import Config, config_from
from envsched_core.errors import ConfigError, EnvSchedError
from envsched_core.live import LiveSession
from envsched_core.moments import is_flat
from envsched_core.records import GroupResult, Pick
from envsched_core.store import RunReader, RunWriter, read_manifest
from envsched_core.testbed import EVALUATED, AnyLearner, make_learner

__all__ = ["TrainPlan", "TrainResult", "plan_for", "recorded_plan", "train_run"]

SNAPSHOT_EVERY = 10
METRIC = "heldout_success"

Clock = Callable[[], float]


class TrainPlan(msgspec.Struct, frozen=True):
    """What is trained, and on what."""

    world: str = "M"
    scheduler: str = "envsched"
    steps: int = 120
    batch_size: int = 32
    group_size: int = 8
    seed: int = 0
    """Of the scheduler and of all rollouts."""
    world_seed: int = 0
    """Of the world and its base policy."""
    settings: dict[str, Any] = {}
    """Further knobs of the scheduler."""

    def config(self) -> Config:
        """The scheduler's config.

        Raises:
            ConfigError: a knob is unknown or out of range, or the scheduler is none for a loop that asks once a step.
        """
        own = {"batch_size": self.batch_size, "group_size": self.group_size, "seed": self.seed}
        config = config_from({**self.settings, **own})
        one_ask_a_step(self.scheduler, config)
        return config


def plan_for(out: Path, *, resume: bool, **given: Any) -> TrainPlan:
    """The plan on record when there is one to resume, else the defaults; what was given (not None) over it.

    Raises:
        ConfigError: the run was not written by `envsched train`. StoreError: its manifest cannot be read.
    """
    base = recorded_plan(out) if resume and (out / "run.json").is_file() else TrainPlan()
    return msgspec.structs.replace(base, **{name: value for name, value in given.items() if value is not None})


def recorded_plan(run: Path) -> TrainPlan:
    """The plan that a run was started with.

    Raises:
        ConfigError: the run was not written by `envsched train`. StoreError: its manifest cannot be read.
    """
    source = read_manifest(run).source.get("plan")
    if source is None:
        raise ConfigError(f"{run} was not written by `envsched train`; choose another folder")
    return msgspec.convert(source, TrainPlan)


class TrainResult(msgspec.Struct, frozen=True):
    """What a run came to, read back from its folder."""

    world: str
    world_seed: int
    scheduler: str
    seed: int
    steps: int
    """Steps that have been asked for."""
    heldout_success: dict[int, float]
    """Step -> held-out success, mean over environments."""
    heldout_success_micro: dict[int, float]
    """Step -> held-out success, mean over tasks."""
    zero_variance_share: float | None
    """Share of groups whose rewards were all equal."""
    tasks_seen: int
    rollouts: int
    tool_calls: float


def train_run(
    out: Path,
    plan: TrainPlan,
    *,
    resume: bool = False,
    keep_rollouts: bool = True,
    progress: Callable[[int, int], None] | None = None,
    clock: Clock | None = None,
) -> TrainResult:
    """Train for `plan.steps` steps; with `resume`, go on with the run in `out` if there is one.

    `clock`: seconds from some fixed moment; with one, the time of each part of a step goes into a note.

    Raises:
        StoreError: `out` holds something (or, to resume, no run). ConfigError: the plan is not that of the run.
    """
    config = plan.config()
    seeds = {"world_seed": plan.world_seed, "run_seed": plan.seed}
    learner = make_learner(plan.world, group_size=plan.group_size, **seeds)
    options: dict[str, Any] = {"snapshot_every": SNAPSHOT_EVERY, "extra": learner.state_dict}
    if resume and (out / "run.json").is_file():
        _keep_to(out, plan, learner)
        session = LiveSession.resume(out, **options)
    else:
        session = LiveSession.create(out, plan.scheduler, config, **options, **_facts(plan))
    with session:
        session.register(learner.specs)
        loop = _Loop(session, learner, plan, keep_rollouts, clock)
        loop.measured = _measured(out)
        loop.run(progress)
    return _result(out, plan)


def _facts(plan: TrainPlan) -> dict[str, Any]:
    """What the manifest says of a plan."""
    name = "BFCL-v3 multi-turn" if plan.world == "bfcl" else f"ToolWorld {plan.world}"
    said = (
        f"{name}, world seed {plan.world_seed}: a small policy that learns by GRPO in executable environments, "
        "not the training of a language model"
    )
    return {"source": {"path": name, "plan": msgspec.to_builtins(plan)}, "notes": (said,)}


def _keep_to(out: Path, plan: TrainPlan, learner: AnyLearner) -> None:
    """Refuse to go on with another plan or other tasks; another number of steps is neither, and goes on record."""
    recorded = recorded_plan(out)
    names = [name for name in TrainPlan.__struct_fields__ if getattr(recorded, name) != getattr(plan, name)]
    if set(names) - {"steps"}:
        told = ", ".join(f"{name} {getattr(recorded, name)}" for name in names if name != "steps")
        raise ConfigError(f"{out} was started with {told}; resume it with the same")
    tasks = {task.key: task for task in learner.specs}
    if any(tasks.get(task.key) != task for task in RunReader(out).tasks()):
        raise ConfigError(
            f"{out} was started when world {plan.world} had other tasks; start a new run in another folder"
        )
    if plan.steps < recorded.steps and plan.steps < (done := _steps_asked(out)):
        raise ConfigError(
            f"{out} has {done} steps on record, more than {plan.steps}; resume it with --steps {done} or more"
        )
    if names:
        with RunWriter.resume(out) as writer:
            writer.update_manifest(source={**writer.manifest.source, "plan": msgspec.to_builtins(plan)})


def _steps_asked(out: Path) -> int:
    """How many steps of a run have been asked for."""
    return len({event.step for event, *_ in RunReader(out).events() if event.kind == "asked"})


def _measured(out: Path) -> set[int | None]:
    """Steps whose held-out score is on record, also from before the snapshot that a resume starts at."""
    notes = (event for event, *_ in RunReader(out).events() if event.kind == "note")
    return {event.step for event in notes if event.data.get("metric") == METRIC}


class _Loop:
    """The loop of a trainer."""

    def __init__(
        self, session: LiveSession, learner: AnyLearner, plan: TrainPlan, keep_rollouts: bool, clock: Clock | None
    ) -> None:
        self.session, self.learner, self.plan = session, learner, plan
        self.keep_rollouts, self.clock = keep_rollouts, clock
        found = session.resumed
        self.asked: dict[int, tuple[Pick, ...]] = found.asked if found else {}
        self.observed = found.observed if found else frozenset()
        self.measured: set[int | None] = set()
        """Steps whose held-out score is on record."""
        self.first = 0
        if found and found.snapshot is not None and found.trainer is not None:
            learner.load_state_dict(found.trainer)
            self.first = found.snapshot

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        """All steps that are left."""
        for step in range(self.first, self.plan.steps + 1):
            if (step in EVALUATED or step == self.plan.steps) and step not in self.measured:
                macro, micro = self.learner.evaluate()
                self.session.note(step, {"metric": METRIC, "value": macro, "micro": micro})
            if step < self.plan.steps:
                self.step(step)
            if progress:
                progress(min(step + 1, self.plan.steps), self.plan.steps)

    def step(self, step: int) -> None:
        """Ask (unless that is on record), roll out, observe, learn."""
        times = [self._now()]
        version = self.learner.policy_version
        picks = self.asked.get(step) or self.session.ask(self.plan.batch_size, step=step, policy_version=version)
        times.append(self._now())
        try:
            results = self.learner.rollouts([pick.key for pick in picks], step)
        except EnvSchedError as error:  # an environment that fails costs its step, never the run
            self.session.release(picks, f"error: {error}")
            return
        times.append(self._now())
        self._observe(picks, results)
        times.append(self._now())
        self.learner.update()
        times.append(self._now())
        if self.clock is not None and step not in self.asked:
            names = ("ask", "rollouts", "observe", "update")
            spent = {name: round(b - a, 4) for name, a, b in zip(names, times, times[1:], strict=False)}
            self.session.note(step, {"seconds": spent})

    def _observe(self, picks: Sequence[Pick], results: Sequence[GroupResult]) -> None:
        """Hand in what is not on record yet."""
        answered = [
            msgspec.structs.replace(result, pick_id=pick.pick_id)
            for pick, result in zip(picks, results, strict=True)
            if result.group_id not in self.observed
        ]
        kept = answered if self.keep_rollouts else []
        self.session.observe(answered, [rollout for group in kept for rollout in self.learner.transcripts(group)])

    def _now(self) -> float:
        return self.clock() if self.clock is not None else 0.0


def _result(out: Path, plan: TrainPlan) -> TrainResult:
    """Read back what the run came to."""
    macro, micro, steps = {}, {}, set()
    flat, tasks, rollouts, calls = [], set(), 0, 0.0
    for event, *_ in RunReader(out).events():
        if event.kind == "note" and event.data.get("metric") == METRIC and event.step is not None:
            macro[event.step], micro[event.step] = event.data["value"], event.data["micro"]
        elif event.kind == "asked":
            steps.add(event.data.step)
        elif event.kind == "observed":
            group: GroupResult = event.data
            flat.append(is_flat(group.rewards))
            tasks.add(group.key)
            rollouts += len(group.rewards) + group.missing
            calls += (group.cost.tool_calls or 0.0) if group.cost else 0.0
    return TrainResult(
        world=plan.world,
        world_seed=plan.world_seed,
        scheduler=plan.scheduler,
        seed=plan.seed,
        steps=len(steps),
        heldout_success=macro,
        heldout_success_micro=micro,
        zero_variance_share=sum(flat) / len(flat) if flat else None,
        tasks_seen=len(tasks),
        rollouts=rollouts,
        tool_calls=calls,
    )
