"""Evidence: whose past rollouts spoke for each of a decision's candidates, gathered for all of them at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .catalogue import Catalogue
from .passes import Floats, Indices, runs
from .predictor import Predictor
from .propagation import reached
from .records import Evidence, Relation

__all__ = ["evidence_of"]

RELATIONS: tuple[Relation, ...] = ("own", "within", "cross")


def evidence_of(
    predictor: Predictor, catalogue: Catalogue, tasks: Indices, most: Indices, totals: Sequence[float]
) -> list[tuple[Evidence, ...]]:
    """The strongest evidence for each of `tasks` [M], at most `most` [M] of it; shares are parts of `totals` [M].

    Strength is counted in equivalent rollouts; equal ones go by index. Who was never rolled out says nothing.
    """
    m, h = predictor.moments, predictor.point.h
    scale = float(m.discount.scale()[h])
    row, relation, other, weight, count = _speakers(predictor, tasks, scale)
    order = np.lexsort((other, -count, row))
    order = order[runs(np.bincount(row, minlength=len(tasks))) < most[row[order]]]
    row, relation, other = row[order], relation[order], other[order]
    rollouts = m.n[h][other]
    columns = (weight[order], count[order] / np.asarray(totals)[row], m.s[h][other] / rollouts, scale * rollouts)
    numbers = [np.round(column, 12).tolist() for column in columns]
    specs = [catalogue.tasks[task] for task in other.tolist()]
    names = [spec.env for spec in specs], [spec.task for spec in specs]
    kinds = [RELATIONS[kind] for kind in relation.tolist()]
    every = list(map(Evidence, *names, kinds, *numbers, m.last_step[other].tolist()))
    ends = np.cumsum(np.bincount(row, minlength=len(tasks))).tolist()
    return [tuple(every[start:end]) for start, end in itertools.pairwise([0, *ends])]


def _speakers(predictor: Predictor, tasks: Indices, scale: float) -> tuple[Indices, Indices, Indices, Floats, Floats]:
    """Row of the task spoken for, relation, index, edge weight, equivalent rollouts, of all who were rolled out."""
    p, graph, n = predictor.point, predictor.graph, predictor.moments.n[predictor.point.h]
    everyone = np.arange(len(tasks))
    found = [(everyone, np.zeros_like(everyone), tasks, np.ones(len(tasks)), scale * n[tasks])]
    pulls = predictor.pulls(tasks)
    for relation, tau in enumerate((p.tau_within, p.tau_cross), start=1):
        if graph is None or tau == 0.0:
            continue
        reach, others, weights = reached(graph.within if relation == 1 else graph.cross, tasks)
        seen = np.flatnonzero(n[others] > 0)  # few of them
        other, weight = others[seen].astype(np.int64), weights[seen].astype(float)
        rows = np.repeat(everyone, reach)[seen]
        found.append(
            (rows, np.full_like(rows, relation), other, weight, scale * pulls[relation - 1][rows] * weight * n[other])
        )
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    heard = columns[4] > 0
    row, kind, other, weight, count = (column[heard] for column in columns)
    return row, kind, other, weight, count
