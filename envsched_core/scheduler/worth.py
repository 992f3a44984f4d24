"""What a pick is worth to EnvSched: its value, and the coverage of the cells that it lies in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from envsched_core.config import Config
from envsched_core.costs import ExpectedCost
from envsched_core.graph import DualRelationGraph
from envsched_core.moments import Floats
from envsched_core.passes import blocks
from envsched_core.predictor import Prediction
from envsched_core.problem import Cells

from .protocol import Worth

__all__ = ["cells_of", "worth_of"]

Indices = NDArray[np.int64]


def worth_of(
    config: Config,
    told: Callable[[Indices | slice], Prediction],
    env: Indices,
    graph: DualRelationGraph | None,
    visits: Floats,
    cost: ExpectedCost | None = None,
) -> Worth:
    """Exploitation (variance, usable chance), uncertainty, cost, task coverage; environments and patterns as cells.

    `told` gives what is predicted of some tasks, `env` [N] is the environment of every task, `visits` [N] its groups
    rolled out, discounted, open picks included. Where a `cost` is expected, exploitation and uncertainty count per
    that cost. Terms are worked out again for the few tasks that are written down: at a million tasks, to keep them
    all would cost more than to compute them.
    """
    factor = None if cost is None else cost.factor(config.weight_cost)
    names, value = _values(config, told, factor, len(env))
    seen = np.flatnonzero(visits > 0)  # of a large catalogue a small part
    fixed = value.copy()
    if config.weight_task > 0:
        fixed[seen] += _task_coverage(config, value[seen], visits[seen])

    def terms(tasks: Indices) -> dict[str, Floats]:
        out = {name: term for name, term in _parts(config, told(tasks)) if name in names}
        if factor is not None:
            out["cost"] = sum(out.values(), start=np.zeros(len(tasks))) * (factor[tasks] - 1.0)
        if config.weight_task > 0:
            out["coverage_task"] = _task_coverage(config, value[tasks], visits[tasks])
        return out

    cells = [cells_of("coverage_environment", env, config.weight_environment, visits, seen)]
    if graph is not None and graph.pattern_names:
        pattern: NDArray[np.integer] = graph.pattern
        if len(pattern) < len(env):
            pattern = np.concatenate([pattern, np.full(len(env) - len(pattern), -1, dtype=pattern.dtype)])
        cells.append(cells_of("coverage_pattern", pattern, config.weight_pattern, visits, seen))
    return Worth(terms, value, [cell for cell in cells if cell.weight > 0], fixed)


def _parts(config: Config, prediction: Prediction) -> Iterator[tuple[str, Floats]]:
    """Terms that follow from what is predicted of tasks [M]."""
    variance, sd = prediction.variance_and_sd()
    if config.weight_variance > 0:
        yield "exploitation_variance", config.weight_variance * 4.0 * variance
    if config.weight_usable > 0:
        yield "exploitation_usable", config.weight_usable * prediction.usable(config.group_size)
    if config.weight_uncertainty > 0:
        yield "uncertainty", config.weight_uncertainty * 4.0 * sd


def _values(
    config: Config, told: Callable[[slice], Prediction], factor: Floats | None, n: int
) -> tuple[set[str], Floats]:
    """Sum of these terms [N], times the cost `factor`; and which of them are not 0 for every task."""
    names: set[str] = set()
    value = np.zeros(n)
    for part in blocks(n):  # each block looks at every environment once
        some = value[part]
        for name, term in _parts(config, told(part)):
            some += term
            if name not in names and term.any():
                names.add(name)
        if factor is not None:
            some += some * (factor[part] - 1.0)
    return names, value


def _task_coverage(config: Config, value: Floats, visits: Floats) -> Floats:
    """What a task's own visits take from its value [M]."""
    return np.asarray(value * ((1.0 + visits) ** -config.weight_task - 1.0))


def cells_of(
    term: str, index: NDArray[np.integer], weight: float, visits: Floats, seen: Indices | None = None
) -> Cells:
    """Cells with the visits of their tasks; `index` [N] is each task's cell, -1 = none; `seen`: those with visits."""
    size = int(index.max(initial=-1)) + 1
    seen = np.flatnonzero(visits) if seen is None else seen
    seen = seen[index[seen] >= 0]
    counts = np.bincount(index[seen], visits[seen], minlength=size).astype(float)
    return Cells(term, index, counts, weight)
