"""Scores: what every task is worth to a batch as it grows, and the signed terms of which.

    gain_i = value_i x product over cells c of i of ((1 + mean n) / (1 + n_c + m_c)) ^ w_c
             - w_r sum over j in S of sim(i, j) sqrt(value_i value_j)

with n_c the discounted visits of a cell and m_c the picks of this step (problem.py); each factor enters the
record as the signed term that it adds. With a temperature the score is the gain times exp(T Gumbel): the same order as
log gain + T Gumbel, in the gain's own unit, so that the draw is one more signed term. Scores are compared
after rounding to 1e-9; ties go by a seeded order, itself a term below 1e-10.

All N tasks are scored in blocks (passes.py), single ones as plain numbers from what `look_up` fetched. Both take the
same steps in the same order, so that they agree to the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fused import Fused
from .passes import blocks
from .problem import Floats, Indices, Problem

__all__ = ["Scores"]

DIGITS = 1e9
"""Scores are compared in whole multiples of one over this."""
WHOLE = 2.0**53
"""Floats beyond are whole already."""
TIE = 1e-10
"""Size of the tie-break term: below the rounding, so it never outweighs a score."""
FLOOR = 1e-9
"""Gains at or below 0 count as this much in a draw."""


_Fact = tuple[float, float, float, tuple[int, ...]]
"""What a task's score is made of: the sum of its fixed terms, factor of its draw, tie-break term, its cells."""
_Near = tuple[NDArray[np.integer], Floats, int, int]
"""Neighbours of some tasks, what each loses once that task is picked, and where those of one begin and end."""
EVERY = slice(None)


class Scores:
    """The scores of one step's tasks against the picks so far."""

    def __init__(self, problem: Problem) -> None:
        """Against an empty batch."""
        p = self.problem = problem
        self.picked = [np.zeros(len(c.counts)) for c in p.cells]
        self.usual = [c.usual() for c in p.cells]
        self.effect = self._effects()
        self.penalty: dict[int, float] = {}
        self._turns = [c.shape == "turn" for c in p.cells]
        self._drawn = p.factor is not None
        self._facts: dict[int, _Fact] = {}
        self._near: dict[int, _Near] = {}

    def _effects(self, picked: Sequence[Floats] | None = None) -> list[list[float]]:
        """Effect of every cell, kind by kind, after these picks (all so far); the last is for tasks without a cell."""
        kinds = zip(self.problem.cells, self.picked if picked is None else picked, self.usual, strict=True)
        return [[*c.effect(m, u), c.outside] for c, m, u in kinds]

    # ------------------------------------------------------------------ scores of all tasks

    def gains(self) -> Floats:
        """Gain [N] of adding each task to the batch as it stands."""
        out = self.gains_of(EVERY, self.tables())
        if self.penalty:
            out[list(self.penalty)] -= list(self.penalty.values())
        return out

    def first_gains(self) -> Floats:
        """The same for an empty batch."""
        nothing = [np.zeros_like(m) for m in self.picked]
        return self.gains_of(EVERY, [np.array(effect) for effect in self._effects(nothing)])

    def tables(self) -> list[Floats]:
        """Effects of each kind of cells after the picks so far as arrays, the last for tasks without a cell."""
        return [np.array(effect) for effect in self.effect]

    def gains_of(self, at: slice | Indices, tables: Sequence[Floats]) -> Floats:
        """Gains of the tasks `at`, without the similarity penalty."""
        out = np.array(self.problem.fixed[at])
        for cells, table in zip(self.problem.cells, tables, strict=True):
            effect = table.take(cells.cell[at])
            out = np.add(out, effect, out=out) if cells.shape == "turn" else np.multiply(out, effect, out=out)
        return out

    def keys(self, gains: Floats, at: slice | Indices = EVERY) -> Floats:
        """Scores of tasks with these gains: drawn, rounded, ties broken."""
        p = self.problem
        return np.asarray(_key(gains if p.factor is None else _drawn(gains, p.factor[at]), p.tie[at]))

    def scores(self) -> Floats:
        """Score [N] of each task against the batch as it stands."""
        tables, out = self.tables(), np.empty(len(self.problem.fixed))
        for part in blocks(len(out)):
            out[part] = self.keys(self.gains_of(part, tables), part)
        if self.penalty:
            held = np.array(list(self.penalty), dtype=np.int64)
            out[held] = self.scores_of(held)
        return out

    def scores_of(self, tasks: Indices) -> Floats:
        """The same of a few `tasks` [M]."""
        gains = self.gains_of(tasks, self.tables())
        if self.penalty:
            gains -= [self.penalty.get(task, 0.0) for task in tasks.tolist()]
        return self.keys(gains, tasks)

    # ------------------------------------------------------------------ scores of one task

    def look_up(self, tasks: Indices) -> None:
        """Have the numbers of `tasks` [M] at hand: one task by itself costs as much as a hundred together."""
        p = self.problem
        cells = [c.cell[tasks].tolist() for c in p.cells]
        facts = zip(
            p.fixed[tasks].tolist(),
            [1.0] * len(tasks) if p.factor is None else p.factor[tasks].tolist(),
            (TIE * p.tie[tasks]).tolist(),
            zip(*cells, strict=True) if cells else [()] * len(tasks),
            strict=True,
        )
        self._facts.update(zip(tasks.tolist(), facts, strict=True))

    def look_around(self, tasks: Indices) -> None:
        """Have the neighbours of `tasks` [M] at hand, for the same reason."""
        p = self.problem
        if p.weight_similarity == 0.0 or not len(tasks):
            return
        root = (p.weight_similarity * np.sqrt(np.maximum(p.value[tasks], 0.0))).astype(np.float32)
        found = p.similar(tasks)
        row = np.concatenate([np.repeat(np.arange(len(tasks)), reach) for reach, _, _ in found])
        other = np.concatenate([others for _, others, _ in found])
        similarity = np.concatenate([weight for _, _, weight in found])
        order = np.argsort(row, kind="stable")
        row, other = row[order], other[order]
        loss = root[row] * similarity[order] * np.sqrt(np.maximum(p.value[other], 0.0))
        ends = np.cumsum(np.bincount(row, minlength=len(tasks))).tolist()
        near = ((other, loss, start, end) for start, end in itertools.pairwise([0, *ends]))
        self._near.update(zip(tasks.tolist(), near, strict=True))

    def _fact(self, task: int) -> _Fact:
        if task not in self._facts:
            self.look_up(np.array([task]))
        return self._facts[task]

    def _against_batch(self, tasks: Indices) -> tuple[Floats, Floats]:
        """Effects of each kind of their cells on `tasks` [K, M], and their penalties [M]; NaN = resembles no pick."""
        kinds = zip(self.tables(), self.problem.cells, strict=True)
        effects = np.array([table[c.cell[tasks]] for table, c in kinds]).reshape(len(self.effect), len(tasks))
        return effects, np.array([self.penalty.get(task, np.nan) for task in tasks.tolist()])

    def _terms(self, tasks: Indices, effects: Floats, penalties: Floats) -> list[dict[str, float]]:
        """Signed terms of `tasks` [M] under these, to 12 decimals; they sum to the scores."""
        p, value = self.problem, self.problem.fixed[tasks]
        terms = p.terms(tasks)
        for cells, effect, turn in zip(p.cells, effects, self._turns, strict=True):
            covered = value + effect if turn else value * effect
            terms[cells.term] = np.where(cells.cell[tasks] >= 0, covered - value, np.nan)
            value = covered
        terms["similarity_penalty"] = -penalties
        if p.factor is not None:
            gain = value - np.nan_to_num(penalties)
            terms["draw"] = np.maximum(gain, FLOOR) * p.factor[tasks] - gain
        terms["tie_break"] = TIE * p.tie[tasks]
        return _as_dicts(list(terms), np.column_stack(list(terms.values())))

    def _effects_on(self, task: int) -> list[float]:
        """Effect of each of the task's cells."""
        return [effect[cell] for effect, cell in zip(self.effect, self._fact(task)[3], strict=True)]

    def _gain_and_key(self, task: int) -> tuple[float, float]:
        """Gain and score of one task."""
        gain, factor, tie, cells = self._facts[task] if task in self._facts else self._fact(task)
        for turn, effect, cell in zip(self._turns, self.effect, cells):  # noqa: B905  # the hottest line: no check
            gain = gain + effect[cell] if turn else gain * effect[cell]
        gain -= self.penalty.get(task, 0.0)
        score = gain if not self._drawn else (gain if gain > FLOOR else FLOOR) * factor
        scaled = score * DIGITS  # as in `keys`, to the last bit
        return gain, (round(scaled) / DIGITS if -WHOLE < scaled < WHOLE else scaled / DIGITS) + tie

    # ------------------------------------------------------------------ picks

    def _visit(self, task: int, sign: float) -> None:
        """Put a pick into (or take it out of) its cells and its neighbours' penalties."""
        p = self.problem
        for k, cell in enumerate(self._fact(task)[3]):
            if cell >= 0:
                cells, picked = p.cells[k], self.picked[k]
                picked[cell] += sign
                self.effect[k][cell] = cells.effect_of(float(cells.counts[cell] + picked[cell]), self.usual[k])
        if p.weight_similarity == 0.0:
            return
        if task not in self._near:
            self.look_around(np.array([task]))
        others, losses, start, end = self._near[task]
        penalty, get = self.penalty, self.penalty.get
        for other, loss in zip(others[start:end].tolist(), losses[start:end].tolist()):  # noqa: B905  # as hot
            total = get(other, 0.0) + sign * loss
            penalty[other] = total if total > 0.0 else 0.0


@Fused
def _drawn(gain: Floats, factor: Floats) -> Any:
    return np.maximum(gain, FLOOR) * factor


@Fused
def _key(score: Floats, tie: Floats) -> Any:
    return np.rint(score * DIGITS) / DIGITS + TIE * tie


def _as_dicts(names: Sequence[str], rows: Floats) -> list[dict[str, float]]:
    """Each of `rows` [M, T] by name, to 12 decimals, without its NaN: those that have the same ones go together."""
    out: list[dict[str, float]] = [{}] * len(rows)
    rows, has = np.round(rows, 12), ~np.isnan(rows)
    alike = has @ (1 << np.arange(len(names)))
    for kind in np.unique(alike):
        places = np.flatnonzero(alike == kind)
        columns = np.flatnonzero(has[places[0]])
        some = [names[k] for k in columns.tolist()]
        for place, row in zip(places.tolist(), rows[np.ix_(places, columns)].tolist(), strict=True):
            out[place] = dict(zip(some, row, strict=True))
    return out
