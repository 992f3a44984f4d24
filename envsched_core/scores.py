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

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .passes import blocks
from .problem import EVERY, Floats, Indices, Problem

__all__ = ["Scores"]

DIGITS = 1e9
"""Scores are compared in whole multiples of one over this."""
TIE = 1e-10
"""Size of the tie-break term: below the rounding, so it never outweighs a score."""
FLOOR = 1e-9
"""Gains at or below 0 count as this much in a draw."""


class _Fact(NamedTuple):
    """One task's numbers of the step."""

    static: float
    factor: float
    tie: float
    cells: tuple[int, ...]
    terms: tuple[float, ...]


class Scores:
    """The scores of one step's tasks against the picks so far."""

    def __init__(self, problem: Problem) -> None:
        """Against an empty batch."""
        p = self.problem = problem
        self.static, self.factor = _static(p), _factor(p)
        self.picked = [np.zeros(len(c.counts)) for c in p.cells]
        self.usual = [c.usual() for c in p.cells]
        self.effect = self._effects()
        self.penalty: dict[int, float] = {}
        self._facts: dict[int, _Fact] = {}

    def _effects(self) -> list[list[float]]:
        """Effect of every cell, kind by kind, after the picks so far."""
        p = self.problem
        return [c.effect(m, u).tolist() for c, m, u in zip(p.cells, self.picked, self.usual, strict=True)]

    # ------------------------------------------------------------------ scores of all tasks

    def gains(self) -> Floats:
        """Gain [N] of adding each task to the batch as it stands."""
        out = self._gains(EVERY, self._tables(self.effect))
        if self.penalty:
            out[list(self.penalty)] -= list(self.penalty.values())
        return out

    def first_gains(self) -> Floats:
        """The same for an empty batch."""
        kinds = zip(self.problem.cells, self.usual, strict=True)
        return self._gains(EVERY, self._tables([c.effect(np.zeros(len(c.counts)), u).tolist() for c, u in kinds]))

    def _tables(self, effects: Sequence[Sequence[float]]) -> list[Floats]:
        """Effects of each kind of cells as arrays, the last for tasks without a cell."""
        kinds = zip(self.problem.cells, effects, strict=True)
        return [np.array([*effect, 0.0 if cells.shape == "turn" else 1.0]) for cells, effect in kinds]

    def _gains(self, at: slice | Indices, tables: Sequence[Floats]) -> Floats:
        """Gains of the tasks `at`, without the similarity penalty."""
        out = np.array(self.static[at])
        for cells, table in zip(self.problem.cells, tables, strict=True):
            effect = table[cells.cell[at]]
            out = np.add(out, effect, out=out) if cells.shape == "turn" else np.multiply(out, effect, out=out)
        return out

    def keys(self, gains: Floats, at: slice | Indices = EVERY) -> Floats:
        """Scores of tasks with these gains: drawn, rounded, ties broken."""
        scores = gains if self.factor is None else np.maximum(gains, FLOOR) * self.factor[at]
        return np.asarray(np.rint(scores * DIGITS) / DIGITS + TIE * self.problem.tie[at])

    def scores(self) -> Floats:
        """Score [N] of each task against the batch as it stands."""
        tables, out = self._tables(self.effect), np.empty(len(self.static))
        for part in blocks(len(out)):
            out[part] = self.keys(self._gains(part, tables), part)
        if self.penalty:
            held = self.penalised()
            out[held] = self.scores_of(held)
        return out

    def scores_of(self, tasks: Indices, *, penalties: bool = True) -> Floats:
        """The same of a few `tasks` [M], with or without the similarity penalty."""
        gains = self._gains(tasks, self._tables(self.effect))
        if penalties:
            gains -= [self.penalty.get(task, 0.0) for task in tasks.tolist()]
        return self.keys(gains, tasks)

    def penalised(self) -> Indices:
        """Tasks that resemble a pick."""
        return np.array(list(self.penalty), dtype=np.int64)

    # ------------------------------------------------------------------ scores of one task

    def look_up(self, tasks: Indices) -> None:
        """Have the numbers of `tasks` [M] at hand: one task by itself costs as much as a hundred together."""
        p = self.problem
        ones = np.ones(len(tasks)) if self.factor is None else self.factor[tasks]
        cells = [c.cell[tasks].tolist() for c in p.cells]
        terms = [values[tasks].tolist() for values in p.terms.values()]
        columns = (
            self.static[tasks].tolist(),
            ones.tolist(),
            (TIE * p.tie[tasks]).tolist(),
            zip(*cells, strict=True) if cells else [()] * len(tasks),
            zip(*terms, strict=True) if terms else [()] * len(tasks),
        )
        self._facts.update(zip(tasks.tolist(), map(_Fact._make, zip(*columns, strict=True)), strict=True))

    def _fact(self, task: int) -> _Fact:
        if task not in self._facts:
            self.look_up(np.array([task]))
        return self._facts[task]

    def terms_of(self, task: int) -> dict[str, float]:
        """Signed terms of one task against the batch as it stands; they sum to its score."""
        fact = self._fact(task)
        terms = dict(zip(self.problem.terms, fact.terms, strict=True))
        value = fact.static
        for term, covered in self._covered(fact):
            terms[term] = covered - value
            value = covered
        if task in self.penalty:
            terms["similarity_penalty"] = -self.penalty[task]
        if self.factor is not None:
            gain = self._gain(task)
            terms["draw"] = max(gain, FLOOR) * fact.factor - gain
        terms["tie_break"] = fact.tie
        return terms

    def _covered(self, fact: _Fact) -> Iterator[tuple[str, float]]:
        """Each coverage term of a task, with its value once that term is in."""
        value = fact.static
        for cells, effect, cell in zip(self.problem.cells, self.effect, fact.cells, strict=True):
            if cell >= 0:
                value = value + effect[cell] if cells.shape == "turn" else value * effect[cell]
                yield cells.term, value

    def _gain(self, task: int) -> float:
        fact = self._fact(task)
        gain = fact.static
        for cells, effect, cell in zip(self.problem.cells, self.effect, fact.cells, strict=True):
            if cell >= 0:
                gain = gain + effect[cell] if cells.shape == "turn" else gain * effect[cell]
        return gain - self.penalty.get(task, 0.0)

    def _key(self, task: int) -> float:
        gain, fact = self._gain(task), self._fact(task)
        score = gain if self.factor is None else max(gain, FLOOR) * fact.factor
        return _rounded(score) + fact.tie

    # ------------------------------------------------------------------ picks

    def _visit(self, task: int, sign: float) -> None:
        """Put a pick into (or take it out of) its cells and its neighbours' penalties."""
        p = self.problem
        for k, (cells, cell) in enumerate(zip(p.cells, self._fact(task).cells, strict=True)):
            if cell >= 0:
                self.picked[k][cell] += sign
                at = slice(cell, cell + 1)
                self.effect[k][cell] = float(cells.effect(self.picked[k], self.usual[k], at)[0])
        if p.weight_similarity == 0.0:
            return
        others, similarity = p.similar(task)
        root = p.weight_similarity * math.sqrt(max(float(p.value[task]), 0.0))
        shared = root * similarity * np.sqrt(np.maximum(p.value[others], 0.0))
        for other, penalty in zip(others.tolist(), shared.tolist(), strict=True):
            self.penalty[other] = max(self.penalty.get(other, 0.0) + sign * penalty, 0.0)


def _static(p: Problem) -> Floats:
    """The fixed terms of each task [N], summed."""
    out = np.zeros(len(p.env))
    for part in blocks(len(out)):
        for values in p.terms.values():
            out[part] += values[part]
    return out


def _factor(p: Problem) -> Floats | None:
    """What a draw multiplies each task's gain by [N]; None without draws."""
    if p.temperature <= 0:
        return None
    out = np.empty(len(p.gumbel))
    for part in blocks(len(out)):
        np.exp(p.temperature * p.gumbel[part], out=out[part])
    return out


def _rounded(score: float) -> float:
    """What `Batch.keys` makes of one score, to the last bit."""
    scaled = score * DIGITS
    return round(scaled) / DIGITS if abs(scaled) < 2.0**53 else scaled / DIGITS
