"""Predict before seeing, score after: one scheduler's predictions along one order of a run's groups.

The groups of a step are all predicted from the state before it, then handed in together. Which tasks were rolled out
is the log's affair, so every predictor meets the same groups in the same order, and differences are paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import special

from envsched_core.config import Config
from envsched_core.keyed import mix, name_hash
from envsched_core.predictor import Prediction
from envsched_core.replay import RecordedPool, is_mixed
from envsched_core.replay.pool import mapped_variance
from envsched_core.scheduler import EnvSched

__all__ = ["Groups", "Predicted", "Probed", "batches_of", "ceiling_draws", "groups_of", "own_order", "walk"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

FEWEST_STEPS = 8
"""A log with fewer steps than this has phases, not an order to learn along."""
LEVEL = 0.9
"""Of the interval of the next group's mean."""
PRIOR = 0.5
"""Groups' worth of variance by which an environment's concentration is shrunk to the whole log's."""


class Groups(NamedTuple):
    """The groups of a run as arrays [n]."""

    task: Indices
    env: Indices
    size: Indices
    """Rewards G."""
    total: Floats
    """Sum of the rewards, mapped to [0, 1] and clipped, in [0, G]."""
    variance: Floats
    """Population variance of the mapped rewards."""
    flat: Floats
    """1 where all rewards are equal."""
    names: tuple[str, ...]
    """Environments [E]."""


class Probed(NamedTuple):
    """What was predicted of a sample of tasks [C] before a step."""

    step: int
    tasks: Indices
    seen: Flags
    mean: Floats
    variance: Floats


class Predicted(NamedTuple):
    """What was predicted of groups [n], each before it was seen."""

    places: Indices
    """Places in the pool's groups, in the order in which they came."""
    seen: Flags
    """Whether a group of the task had been seen before."""
    variance: Floats
    value: Floats
    """What a pick of its task was worth to the scheduler, before coverage and penalty (`EnvSched.values`)."""
    flat: Floats
    """Chance that all its rewards are equal."""
    log_score: Floats
    """Log likelihood (nats) of the rewards under the predicted Beta, for the whole group."""
    covered: Flags
    """Whether the group's mean fell into its interval."""
    mass: Floats
    """Chance that the prediction gave that interval: at least 0.9, since successes are whole numbers."""
    probed: tuple[Probed, ...]


def groups_of(pool: RecordedPool, config: Config) -> Groups:
    """The pool's groups as arrays."""
    tasks = {task.key: i for i, task in enumerate(pool.tasks)}
    names = {env: i for i, env in enumerate(dict.fromkeys(group.env for group in pool.groups))}
    ends = [config.reward_ranges.get(group.env, (0.0, 1.0)) for group in pool.groups]
    totals = [
        float(np.clip((np.array(group.rewards) - low) / (high - low), 0.0, 1.0).sum())
        for group, (low, high) in zip(pool.groups, ends, strict=True)
    ]
    return Groups(
        task=np.array([tasks[group.key] for group in pool.groups], dtype=np.int64),
        env=np.array([names[group.env] for group in pool.groups], dtype=np.int64),
        size=np.array([len(group.rewards) for group in pool.groups], dtype=np.int64),
        total=np.array(totals),
        variance=np.array([mapped_variance(group, config) or 0.0 for group in pool.groups]),
        flat=np.array([1.0 - is_mixed(group, config) for group in pool.groups]),
        names=tuple(names),
    )


def own_order(pool: RecordedPool) -> bool:
    """Whether the log has an order to learn along: a step for every group, and at least eight of them."""
    steps = {group.step for group in pool.groups}
    return None not in steps and len(steps) >= FEWEST_STEPS


def batches_of(pool: RecordedPool, size: int, *, seed: int) -> list[tuple[int, Indices]]:
    """The run's groups by step: the log's own steps, else `size` at a time in a seeded order.

    A log with a few steps only (phases of a training run) keeps their order, and is shuffled within each.
    """
    steps = np.array([group.step or 0 for group in pool.groups], dtype=np.int64)
    if own_order(pool):
        return [(int(step), np.flatnonzero(steps == step)) for step in np.unique(steps)]
    hashes = mix(np.array([name_hash(group.group_id) for group in pool.groups], dtype=np.uint64), seed)
    order = np.lexsort((hashes, steps))
    return [(k, order[i : i + size]) for k, i in enumerate(range(0, len(order), size))]


def walk(
    pool: RecordedPool,
    scheduler: EnvSched,
    batches: Sequence[tuple[int, Indices]],
    probes: Mapping[int, Indices] | None = None,
) -> Predicted:
    """Predict and hand in, step by step; before the steps of `probes` their tasks are predicted too."""
    groups = groups_of(pool, scheduler.config)
    scheduler.register([msgspec.structs.replace(task, draws=None) for task in pool.tasks])
    seen = np.zeros(len(pool.tasks), dtype=bool)
    parts: list[tuple[Indices, Flags, Prediction]] = []
    values: list[Floats] = []
    probed: list[Probed] = []
    for step, places in batches:
        scheduler.ask(0, step=step)  # nothing is picked; results of the step before are taken in
        tasks = groups.task[places]
        parts.append((places, seen[tasks], scheduler.predictor.predict(tasks)))
        values.append(scheduler.values[tasks])
        if probes and step in probes:
            told = scheduler.predictor.predict(probes[step])
            probed.append(Probed(step, probes[step], seen[probes[step]], told.mean, told.variance))
        scheduler.observe([msgspec.structs.replace(pool.groups[i], step=step, pick_id=None) for i in places])
        seen[tasks] = True
    return _predicted(groups, parts, np.concatenate(values), tuple(probed))


def _predicted(
    groups: Groups, parts: Sequence[tuple[Indices, Flags, Prediction]], values: Floats, probed: tuple[Probed, ...]
) -> Predicted:
    """Everything that was predicted, against what came."""
    places = np.concatenate([part[0] for part in parts])
    told = Prediction(*(np.concatenate([part[2][k] for part in parts]) for k in range(len(Prediction._fields))))
    size, total = groups.size[places], groups.total[places]
    flat, covered, mass = np.zeros(len(places)), np.zeros(len(places), dtype=bool), np.zeros(len(places))
    for g in np.unique(size):
        at = size == g
        one = Prediction(*(array[at] for array in told))
        flat[at] = 1.0 - one.usable(int(g))
        covered[at], mass[at] = _interval(one, int(g), total[at])
    a, b = told.a, told.n - told.a
    return Predicted(
        places=places,
        seen=np.concatenate([part[1] for part in parts]),
        variance=told.variance,
        value=values,
        flat=flat,
        log_score=np.asarray(special.betaln(a + total, b + size - total) - special.betaln(a, b)),
        covered=covered,
        mass=mass,
        probed=probed,
    )


def _interval(told: Prediction, size: int, total: Floats) -> tuple[Flags, Floats]:
    """Whether `total` [M] lies in the central interval of the Beta-binomial of `size` rollouts, and its mass."""
    k = np.arange(size + 1)
    a, b = told.a[:, None], (told.n - told.a)[:, None]
    chance = np.exp(special.betaln(a + k, b + size - k) - special.betaln(a, b)) * special.binom(size, k)
    below = np.cumsum(chance, axis=1)
    tail = (1.0 - LEVEL) / 2.0
    low = (below >= tail - 1e-12).argmax(axis=1)
    high = (below >= 1.0 - tail - 1e-12).argmax(axis=1)
    rows = np.arange(len(total))
    mass = below[rows, high] - np.where(low > 0, below[rows, np.maximum(low - 1, 0)], 0.0)
    return (total >= low - 1e-9) & (total <= high + 1e-9), mass


def ceiling_draws(groups: Groups, *, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Simulated logs [draws, n]: every group's true p(1 - p), and the variance of the rewards drawn from it.

    The tasks of each environment get success rates from a Beta(k m, k (1 - m)) fitted to the whole log by moments:
    m is the environment's mean, and since the expected unbiased variance of a group is k / (k + 1) m (1 - m), k follows
    from the observed one (shrunk to the whole log's by `PRIOR`). Rewards are binary, groups as large as in the log.
    The rank correlation of the two is what somebody would reach who knew every task's true rate: the noise ceiling.
    """
    means, count = groups.total / groups.size, np.bincount(groups.env)
    unbiased = groups.variance * groups.size / np.maximum(groups.size - 1, 1)
    mean = (np.bincount(groups.env, means) + 0.5) / (count + 1.0)
    seen, most = np.bincount(groups.env, unbiased), count * mean * (1.0 - mean)
    share = np.clip((seen + PRIOR * seen.sum() / most.sum()) / (most + PRIOR), 0.01, 0.99)
    k = share / (1.0 - share)
    tasks, first = np.unique(groups.task, return_index=True)
    env, place = groups.env[first], np.searchsorted(tasks, groups.task)
    rng = np.random.default_rng(seed)
    p = rng.beta((k * mean)[env], (k * (1.0 - mean))[env], size=(draws, len(tasks)))[:, place]
    right = rng.binomial(groups.size, p) / groups.size
    return p * (1.0 - p), right * (1.0 - right)
