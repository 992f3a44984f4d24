"""What a pick is worth to EnvSched: its value, and the coverage of the cells that it lies in."""

from __future__ import annotations

from collections.abc import Callable

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
    told: Callable[[slice], Prediction],
    env: Indices,
    graph: DualRelationGraph | None,
    visits: Floats,
    cost: ExpectedCost | None = None,
) -> Worth:
    """Exploitation (variance, usable chance), uncertainty, cost, task coverage; environments and patterns as cells.

    `told` gives what is predicted of the tasks of a slice, `env` [N] is the environment of every task, `visits` [N] its
    groups rolled out, discounted, open picks included. Where a `cost` is expected, exploitation and uncertainty count
    per that cost.
    """
    terms, value = _exploitation(config, told, len(env))
    if cost is not None:
        terms["cost"] = value * (cost.factor(config.weight_cost) - 1.0)
        value = value + terms["cost"]
    if config.weight_task > 0:
        seen = np.flatnonzero(visits)  # of a large catalogue a small part; 0 for all others
        terms["coverage_task"] = np.zeros(len(env))
        terms["coverage_task"][seen] = value[seen] * ((1.0 + visits[seen]) ** -config.weight_task - 1.0)
    cells = [cells_of("coverage_environment", env, config.weight_environment, visits)]
    if graph is not None and graph.pattern_names:
        pattern = np.full(len(env), -1, dtype=np.int64)
        pattern[: len(graph.pattern)] = graph.pattern
        cells.append(cells_of("coverage_pattern", pattern, config.weight_pattern, visits))
    return Worth(terms, value, [cell for cell in cells if cell.weight > 0])


def _exploitation(config: Config, told: Callable[[slice], Prediction], n: int) -> tuple[dict[str, Floats], Floats]:
    """Terms of all `n` tasks that follow from their prediction, but those that are 0 for every task; and their sum."""
    weights = (config.weight_variance, config.weight_usable, config.weight_uncertainty)
    names = ("exploitation_variance", "exploitation_usable", "uncertainty")
    terms = {name: np.zeros(n) for name, weight in zip(names, weights, strict=True) if weight > 0}
    value = np.zeros(n)
    for part in blocks(n):
        prediction = told(part)
        for name, values in terms.items():
            if name == "exploitation_variance":
                values[part] = config.weight_variance * 4.0 * prediction.variance
            elif name == "exploitation_usable":
                values[part] = config.weight_usable * prediction.usable(config.group_size)
            else:
                values[part] = config.weight_uncertainty * 4.0 * prediction.sd
            value[part] += values[part]
    return {name: values for name, values in terms.items() if values.any()}, value


def cells_of(term: str, index: Indices, weight: float, visits: Floats) -> Cells:
    """Cells with the visits of their tasks; `index` [N] is each task's cell, -1 = none."""
    size = int(index.max(initial=-1)) + 1
    seen = np.flatnonzero(visits)
    seen = seen[index[seen] >= 0]
    counts = np.bincount(index[seen], visits[seen], minlength=size).astype(float)
    return Cells(term, index, counts, weight)
