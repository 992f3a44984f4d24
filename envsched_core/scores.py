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
from collections.abc import Sequence

import numpy as np

from .passes import blocks
from .problem import EVERY, Floats, Indices, Problem

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
        self._turns = [c.shape == "turn" for c in p.cells]
        self._facts: dict[int, _Fact] = {}

    def _effects(self) -> list[list[float]]:
        """Effect of every cell, kind by kind, after the picks so far."""
        kinds = zip(self.problem.cells, self.picked, self.usual, strict=True)
        return [c.effect(m, u).tolist() for c, m, u in kinds]

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
        cells = [c.cell[tasks].tolist() for c in p.cells]
        facts = zip(
            self.static[tasks].tolist(),
            [1.0] * len(tasks) if self.factor is None else self.factor[tasks].tolist(),
            (TIE * p.tie[tasks]).tolist(),
            zip(*cells, strict=True) if cells else [()] * len(tasks),
            strict=True,
        )
        self._facts.update(zip(tasks.tolist(), facts, strict=True))

    def _fact(self, task: int) -> _Fact:
        if task not in self._facts:
            self.look_up(np.array([task]))
        return self._facts[task]

    def terms_of(self, task: int) -> dict[str, float]:
        """Signed terms of one task against the batch as it stands; they sum to its score."""
        p = self.problem
        value, factor, tie, cells = self._fact(task)
        terms = {name: float(values[task]) for name, values in p.terms.items()}
        for k, cell in enumerate(cells):
            if cell >= 0:
                effect = self.effect[k][cell]
                covered = value + effect if self._turns[k] else value * effect
                terms[p.cells[k].term] = covered - value
                value = covered
        if task in self.penalty:
            terms["similarity_penalty"] = -self.penalty[task]
        if self.factor is not None:
            gain = value - self.penalty.get(task, 0.0)
            terms["draw"] = max(gain, FLOOR) * factor - gain
        terms["tie_break"] = tie
        return terms

    def _gain_and_key(self, task: int) -> tuple[float, float]:
        """Gain and score of one task."""
        gain, factor, tie, cells = self._facts[task] if task in self._facts else self._fact(task)
        for turn, effect, cell in zip(self._turns, self.effect, cells):  # noqa: B905  # the hottest line: no check
            if cell >= 0:
                gain = gain + effect[cell] if turn else gain * effect[cell]
        gain -= self.penalty.get(task, 0.0)
        score = gain if self.factor is None else (gain if gain > FLOOR else FLOOR) * factor
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
        others, similarity = p.similar(task)
        root = p.weight_similarity * math.sqrt(max(float(p.value[task]), 0.0))
        shared = root * similarity * np.sqrt(np.maximum(p.value[others], 0.0))
        penalty = self.penalty
        for other, more in zip(others.tolist(), shared.tolist(), strict=True):
            total = penalty.get(other, 0.0) + sign * more
            penalty[other] = total if total > 0.0 else 0.0


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
