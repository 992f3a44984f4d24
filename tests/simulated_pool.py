"""A simulated pool of tool tasks whose reward variances are known, in the form of an imported run.

Nothing here is measured on a model. Every task has a true success rate p, drawn from a logistic model:

    logit p = 2.5 (0.4 ease(environment) + ease(pattern) + ease(environment, object)) + noise

so that tasks of one environment with the same object, and tasks of one execution pattern in any
environment, resemble each other: both relations of the graph have something to find. A rollout passes
each of the task's k checks with chance p, and its reward is the share passed on the environment's own
scale; its variance is `span^2 p (1 - p) / k`. All draws are keyed by the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from envsched_core.records import Cost, GroupResult, Message, Rollout, TaskSpec, Tool, ToolCall
from envsched_core.store import RunWriter, new_manifest


class Environment(NamedTuple):
    """What one simulated environment is made of."""

    objects: tuple[str, str, str]
    dialect: int
    """Which word it uses for each role: tool names differ between environments, roles do not."""
    checks: int
    """Checks of its verifier (k); 1 = binary reward."""
    low: float
    high: float
    ease: float


ENVIRONMENTS = {
    "airline": Environment(("reservation", "flight", "passenger"), 0, 1, 0.0, 1.0, -0.6),
    "bank": Environment(("account", "card", "loan"), 1, 1, 0.0, 1.0, 0.4),
    "calendar": Environment(("meeting", "room", "invitation"), 2, 1, 0.0, 1.0, 1.2),
    "clinic": Environment(("appointment", "patient", "prescription"), 0, 4, 0.0, 4.0, -0.8),
    "courier": Environment(("parcel", "route", "depot"), 1, 1, 0.0, 1.0, 0.0),
    "helpdesk": Environment(("ticket", "agent", "device"), 2, 1, 0.0, 1.0, 0.8),
    "hotel": Environment(("booking", "suite", "guest"), 0, 1, 0.0, 1.0, -0.2),
    "insurance": Environment(("claim", "policy", "quote"), 1, 5, -1.0, 1.0, -1.2),
    "library": Environment(("loan", "book", "member"), 2, 1, 0.0, 1.0, 1.6),
    "payroll": Environment(("payslip", "employee", "bonus"), 0, 1, 0.0, 1.0, -0.4),
    "retail": Environment(("order", "item", "voucher"), 1, 1, 0.0, 1.0, 0.2),
    "telecom": Environment(("line", "plan", "invoice"), 2, 1, 0.0, 1.0, -1.0),
}

VERBS = {
    "look_up": ("get", "read", "show"),
    "search": ("search", "find", "list"),
    "create": ("create", "add", "open"),
    "update": ("update", "modify", "change"),
    "delete": ("cancel", "remove", "delete"),
    "move": ("move", "transfer", "swap"),
    "compute": ("calculate", "estimate", "compute"),
    "pay": ("pay", "charge", "refund"),
    "message": ("notify", "email", "message"),
    "authenticate": ("verify", "authenticate", "identify"),
}

PATTERNS = {
    ("look_up",): 2.6,
    ("search", "look_up"): 1.8,
    ("authenticate", "look_up", "update"): 0.4,
    ("search", "create", "message"): 0.0,
    ("authenticate", "look_up", "delete", "pay"): -1.2,
    ("look_up", "compute", "pay"): -0.6,
    ("search", "compute", "compute", "create", "pay"): -2.6,
    ("authenticate", "search", "move", "update", "message"): -3.2,
}
"""Execution patterns (roles in order) and their ease."""

PHRASES = {
    "look_up": "tell me the state of",
    "search": "find the right",
    "create": "set up a new",
    "update": "correct the details of",
    "delete": "call off",
    "move": "shift over",
    "compute": "work out the cost of",
    "pay": "settle what is due for",
    "message": "let everyone know about",
    "authenticate": "check who I am",
}

OBJECT_SPREAD = 0.6
SHARPNESS = 2.5
"""Pushes success rates to the ends: as in real logs, most groups of 8 come out all alike."""


class SimulatedTask(NamedTuple):
    """A task and what is true of it."""

    spec: TaskSpec
    p: float
    """True chance to pass one check."""
    mean: float
    """True mean reward, on the environment's scale."""
    variance: float
    """True reward variance, on the environment's scale."""


class SimulatedPool(NamedTuple):
    """Tasks with known variances, and the seed of their rollouts."""

    tasks: tuple[SimulatedTask, ...]
    seed: int

    def rollouts(self, draw: int, *, size: int) -> Iterator[tuple[GroupResult, tuple[Rollout, ...]]]:
        """The `draw`-th recorded group of every task, with `size` rollouts each."""
        for index, task in enumerate(self.tasks):
            yield _group(task, np.random.default_rng([self.seed, 1, draw, index]), draw, size)


def simulate(tasks: int = 288, *, seed: int = 0, draws: int = 3) -> SimulatedPool:
    """A pool of `tasks` tasks spread evenly over the environments; `draws` groups of each can be recorded."""
    rng = np.random.default_rng([seed, 0])
    eases = {(env, thing): rng.normal(0, OBJECT_SPREAD) for env, e in ENVIRONMENTS.items() for thing in e.objects}
    names, patterns = list(ENVIRONMENTS), list(PATTERNS)
    made = []
    for index in range(tasks):
        env = names[index % len(names)]
        thing = ENVIRONMENTS[env].objects[int(rng.integers(3))]
        pattern = patterns[int(rng.integers(len(patterns)))]
        logit = SHARPNESS * (0.4 * ENVIRONMENTS[env].ease + PATTERNS[pattern] + eases[env, thing]) + rng.normal()
        spec = _spec(env, f"{env}-{index // len(names):03d}", thing, pattern, int(rng.integers(100, 999)), draws)
        made.append(_truth(spec, 1 / (1 + np.exp(-logit))))
    return SimulatedPool(tuple(made), seed)


def _truth(spec: TaskSpec, p: float) -> SimulatedTask:
    e = ENVIRONMENTS[spec.env]
    span = e.high - e.low
    return SimulatedTask(spec, float(p), float(e.low + span * p), float(span**2 * p * (1 - p) / e.checks))


def _tool(env: str, role: str, thing: str) -> Tool:
    name = f"{VERBS[role][ENVIRONMENTS[env].dialect]}_{thing}"
    return Tool(
        name, f"{VERBS[role][ENVIRONMENTS[env].dialect].capitalize()} a {thing} of the {env}.", (f"{thing}_id",)
    )


def _spec(env: str, task: str, thing: str, pattern: tuple[str, ...], number: int, draws: int) -> TaskSpec:
    asked = ", then ".join(f"{PHRASES[role]} {thing} {number}" for role in pattern).replace(
        f"am, {thing} {number}", "am"
    )
    return TaskSpec(
        env,
        task,
        text=f"Please {asked}.",
        tools=tuple(_tool(env, role, thing) for role in VERBS),
        state=(thing,),
        verifier=f"{env}-{ENVIRONMENTS[env].checks}-checks",
        calls=tuple(_tool(env, role, thing).name for role in pattern),
        draws=draws,
    )


def _group(
    task: SimulatedTask, rng: np.random.Generator, draw: int, size: int
) -> tuple[GroupResult, tuple[Rollout, ...]]:
    """One group of rollouts: rewards drawn from the truth, calls that miss a step where a check failed."""
    e, spec = ENVIRONMENTS[task.spec.env], task.spec
    passed = rng.binomial(e.checks, task.p, size=size)
    rewards = [float(e.low + (e.high - e.low) * k / e.checks) for k in passed]
    group_id = f"{spec.env}/{spec.task}/{draw}"
    rollouts = tuple(
        _rollout(spec, group_id, index, reward, bool(k == e.checks), rng)
        for index, (reward, k) in enumerate(zip(rewards, passed, strict=True))
    )
    cost = Cost(
        tokens=sum(r.tokens or 0 for r in rollouts),
        seconds=round(sum(r.seconds or 0 for r in rollouts), 1),
        tool_calls=sum(len(m.calls) for r in rollouts for m in r.messages),
    )
    return GroupResult(group_id, spec.env, spec.task, tuple(rewards), cost=cost), rollouts


def _rollout(
    spec: TaskSpec, group_id: str, index: int, reward: float, solved: bool, rng: np.random.Generator
) -> Rollout:
    """One rollout as short messages; a failed one leaves out a call or ends early."""
    calls = list(spec.calls or ())
    if not solved:
        del calls[int(rng.integers(len(calls)))]
    thing = spec.state[0]
    steps = [Message("assistant", calls=(ToolCall(name, f'{{"id":{rng.integers(99)}}}'),)) for name in calls]
    last = Message("assistant", "Done." if solved else f"This {thing} is beyond me.")
    tokens = 40 + 60 * len(calls) + int(rng.integers(40))
    seconds = round(tokens / 50, 1)
    return Rollout(
        group_id, spec.env, spec.task, index, reward, messages=(*steps, last), tokens=tokens, seconds=seconds
    )


def record_pool(pool: SimulatedPool, source: Path, *, draws: int) -> None:
    """Write the pool as a run folder, as if a log of `draws` groups a task had been imported.

    The messages of rollouts are kept for the first group of each task only.

    Raises:
        StoreError: the folder holds something.
    """
    manifest = new_manifest(
        source.name,
        "import",
        seed=pool.seed,
        reward_ranges={env: (e.low, e.high) for env, e in ENVIRONMENTS.items()},
        simulated=True,
        notes=("simulated: rewards are drawn from known success rates, no model was run",),
    )
    with RunWriter.create(source, manifest) as writer:
        writer.add_tasks([task.spec for task in pool.tasks])
        for draw in range(draws):
            _write_draw(writer, pool, draw)


def _write_draw(writer: RunWriter, pool: SimulatedPool, draw: int) -> None:
    results = []
    for result, rollouts in pool.rollouts(draw, size=8):
        offsets = tuple(writer.add_rollouts(rollouts)) if draw == 0 else ()
        results.append(msgspec.structs.replace(result, offsets=offsets))
    writer.observed(results, None)
