"""Whose rollouts speak for a task, one relation after the other: what evidence.py does for many tasks at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envsched_core.predictor import Predictor

__all__ = ["speakers"]

Floats = NDArray[np.float64]


def speakers(predictor: Predictor, task: int) -> tuple[list[str], NDArray[np.int64], Floats, Floats]:
    """Relation, index, edge weight and equivalent rollouts of every task that speaks for `task`; itself first."""
    p, m = predictor.point, predictor.moments
    scale = m.discount.scale()[p.h]
    relations, indices = ["own"], [np.array([task])]
    weights, counts = [np.ones(1)], [scale * m.n[p.h][[task]]]
    in_rollouts = predictor.config.neighbours_unit == "rollout"
    unit = 1.0 if in_rollouts else m.concentration(p.h)[m.env[task]]
    for relation, tau in (("within", p.tau_within), ("cross", p.tau_cross)):
        if predictor.graph is None or tau == 0.0:
            continue
        index, weight = predictor.graph.row(relation, task)
        relations += [relation] * len(index)
        indices.append(index)
        weights.append(weight)
        counts.append(scale * tau * unit * weight * m.n[p.h][index])
    return relations, np.concatenate(indices), np.concatenate(weights), np.concatenate(counts)
