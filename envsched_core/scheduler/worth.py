"""What a pick is worth to EnvSched: its value, and the coverage of the cells that it lies in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envsched_core.config import Config
from envsched_core.costs import ExpectedCost
from envsched_core.graph import DualRelationGraph
from envsched_core.moments import Floats
from envsched_core.predictor import Prediction
from envsched_core.problem import Cells

from .protocol import Worth

__all__ = ["cells_of", "worth_of"]

Indices = NDArray[np.int64]


def worth_of(
    config: Config,
    prediction: Prediction,
    env: Indices,
    graph: DualRelationGraph | None,
    visits: Floats,
    cost: ExpectedCost | None = None,
) -> Worth:
    """Exploitation (variance, usable chance), uncertainty, cost, task coverage; environments and patterns as cells.

    `env` [N] is the environment of every task, `visits` [N] its groups rolled out, discounted, open picks included.
    Where a `cost` is expected, exploitation and uncertainty count per that cost.
    """
    variance = config.weight_variance * 4.0 * prediction.variance
    usable = config.weight_usable * prediction.usable(config.group_size)
    uncertainty = config.weight_uncertainty * 4.0 * prediction.sd
    terms = {"exploitation_variance": variance, "exploitation_usable": usable, "uncertainty": uncertainty}
    terms = {name: values for name, values in terms.items() if values.any()}
    value: Floats = np.sum(list(terms.values()), axis=0) if terms else np.zeros(len(env))
    if cost is not None:
        terms["cost"] = value * (cost.factor(config.weight_cost) - 1.0)
        value = value + terms["cost"]
    if config.weight_task > 0:
        terms["coverage_task"] = value * ((1.0 + visits) ** -config.weight_task - 1.0)
    cells = [cells_of("coverage_environment", env, config.weight_environment, visits)]
    if graph is not None and graph.pattern_names:
        pattern = np.full(len(env), -1, dtype=np.int64)
        pattern[: len(graph.pattern)] = graph.pattern
        cells.append(cells_of("coverage_pattern", pattern, config.weight_pattern, visits))
    return Worth(terms, value, [cell for cell in cells if cell.weight > 0])


def cells_of(term: str, index: Indices, weight: float, visits: Floats) -> Cells:
    """Cells with the visits of their tasks; `index` [N] is each task's cell, -1 = none."""
    known = index >= 0
    size = int(index.max(initial=-1)) + 1
    counts = np.bincount(index[known], visits[known], minlength=size).astype(float)
    return Cells(term, index, counts, weight)
