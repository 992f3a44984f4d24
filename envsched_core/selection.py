"""The batch: exact lazy greedy on value x coverage - similarity penalty, under quotas.

    gain_i = value_i x product over cells c of i of ((1 + mean n) / (1 + n_c + m_c)) ^ w_c
             - w_r sum over j in S of sim(i, j) sqrt(value_i value_j)

with n_c the discounted visits of a cell and m_c the picks of this step (problem.py); each factor enters the
record as the signed term that it adds. Gains only fall as the batch S grows, so a stale score is an upper bound
and lazy greedy picks what the naive loop would (a test). With a temperature the score is the gain times exp(T Gumbel): the same order as
log gain + T Gumbel, in the gain's own unit, so that the draw is one more signed term. Scores are compared
after rounding to 1e-9; ties go by a seeded order, itself a term below 1e-10. Everything recorded about a
decision is taken from here at the moment of picking.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .keyed import mix, unit
from .problem import Floats, Indices, Problem
from .records import Relaxation

__all__ = ["Batch", "Chosen"]

How = Literal["score", "uniform", "pinned", "floor", "relaxed"]

DIGITS = 9
"""Decimals to which scores are compared."""
TIE = 1e-10
"""Size of the tie-break term: below the rounding, so it never outweighs a score."""
FLOOR = 1e-9
"""Gains at or below 0 count as this much in a draw."""
COIN, DRAW = 1, 2  # keys that tell the coin of a position from its draw


class Chosen(NamedTuple):
    """One pick, with what it was chosen against."""

    task: int
    position: int
    how: How
    score: float
    gain: float
    terms: dict[str, float]


class Batch:
    """The batch of one step as it grows; several asks may share it."""

    def __init__(self, problem: Problem) -> None:
        """Computes the score of every task for an empty batch."""
        p = self.problem = problem
        n_env = len(p.limit)
        self.static: Floats = np.sum(list(p.terms.values()), axis=0) if p.terms else np.zeros(len(p.env))
        self.factor = np.exp(p.temperature * p.gumbel) if p.temperature > 0 else None
        self.eligible = p.eligible.copy()
        self.reserve = p.reserve.copy()
        self.limit, self.floor = p.limit.copy(), p.floor.copy()
        self.used = np.zeros(n_env, dtype=np.int64)
        self.picked = [np.zeros(len(c.counts)) for c in p.cells]
        self.effect = [c.effect(m) for c, m in zip(p.cells, self.picked, strict=True)]
        self.penalty: dict[int, float] = {}
        self.chosen: dict[int, Chosen] = {}
        self.position = 0
        self.pinned = list(dict.fromkeys(p.pinned))
        self.dropped: set[int] = set()
        self.blocked: dict[int, tuple[int, float]] = {}
        self.price = np.zeros(n_env)
        self.block_count = np.zeros(n_env, dtype=np.int64)
        self.relaxed: list[Relaxation] = []
        self.initial_gain = self.gains()
        self.initial = self.keys(self.initial_gain)
        self._heap: list[tuple[float, int]] = []
        self._rest: Indices = np.zeros(0, dtype=np.int64)
        self._bound = -math.inf
        self._fill()

    # ------------------------------------------------------------------ scores

    def gains(self, *, penalties: bool = True) -> Floats:
        """Gain [N] of adding each task to the batch as it stands, with or without the similarity penalty."""
        out = self.static.copy()
        for cells, effect in zip(self.problem.cells, self.effect, strict=True):
            if cells.shape == "turn":
                out += np.append(effect, 0.0)[cells.cell]
            else:
                out *= np.append(effect, 1.0)[cells.cell]
        if penalties and self.penalty:
            out[list(self.penalty)] -= list(self.penalty.values())
        return out

    def keys(self, gains: Floats) -> Floats:
        """Scores [N]: drawn, rounded, ties broken."""
        scores = gains if self.factor is None else np.maximum(gains, FLOOR) * self.factor
        return np.round(scores, DIGITS) + TIE * self.problem.tie

    def terms_of(self, task: int) -> dict[str, float]:
        """Signed terms of one task against the batch as it stands; they sum to its score."""
        p = self.problem
        terms = {name: float(values[task]) for name, values in p.terms.items()}
        value = float(self.static[task])
        for term, covered in self._covered(task, value):
            terms[term] = covered - value
            value = covered
        if task in self.penalty:
            terms["similarity_penalty"] = -self.penalty[task]
        if self.factor is not None:
            gain = self._gain(task)
            terms["draw"] = float(max(gain, FLOOR) * self.factor[task]) - gain
        terms["tie_break"] = TIE * float(p.tie[task])
        return terms

    def _covered(self, task: int, value: float) -> Iterator[tuple[str, float]]:
        """Each coverage term of a task, with its value once that term is in."""
        for cells, effect in zip(self.problem.cells, self.effect, strict=True):
            cell = cells.cell[task]
            if cell >= 0:
                value = value + float(effect[cell]) if cells.shape == "turn" else value * float(effect[cell])
                yield cells.term, value

    def _gain(self, task: int) -> float:
        gain = float(self.static[task])
        for _, gain in self._covered(task, gain):
            pass
        return gain - self.penalty.get(task, 0.0)

    def _key(self, task: int) -> float:
        gain = self._gain(task)
        score = gain if self.factor is None else max(gain, FLOOR) * float(self.factor[task])
        return float(np.round(score, DIGITS)) + TIE * float(self.problem.tie[task])

    # ------------------------------------------------------------------ the greedy loop

    def choose(self, n: int) -> list[Chosen]:
        """Add up to `n` picks; fewer only when no task is left (recorded as a shortfall)."""
        picks: list[Chosen] = []
        for _ in range(n):
            pick = self._next()
            if pick is None:
                self.relaxed.append(Relaxation("shortfall", "", n, len(picks)))
                break
            picks.append(pick)
        if self.position >= self.problem.size:
            self._give_up_floors(self.used < self.floor)
        return picks

    def _next(self) -> Chosen | None:
        while self.pinned:
            task = self.pinned.pop(0)
            if self.eligible[task]:
                return self._take(task, "pinned")
        if self._coin() and (drawn := self._draw_uniform()) is not None:
            return self._take(drawn, "uniform")
        due = self._due_floors()
        if due.any():
            best = self._best(due[self.problem.env])
            if best is not None:
                return self._take(best, "floor")
            self._give_up_floors(due)
        top = self._pop()
        if top is None:
            return self._relax()
        return self._take(top, "relaxed" if self.problem.reserve[top] else "score")

    def _take(self, task: int, how: How) -> Chosen:
        key, gain, terms = self._key(task), self._gain(task), self.terms_of(task)
        pick = Chosen(task, self.position, how, key, gain, terms)
        self._settle_blocked(key)
        self.chosen[task] = pick
        self.position += 1
        self.eligible[task] = False
        self._use(int(self.problem.env[task]))
        self._visit(task, 1.0)
        return pick

    def _use(self, env: int) -> None:
        self.used[env] += 1
        if self.used[env] > self.limit[env]:  # a pin, or nothing else was left
            limit, used = int(self.problem.limit[env]), int(self.used[env])
            self.relaxed.append(Relaxation("quota", self.problem.env_names[env], limit, used))

    def _visit(self, task: int, sign: float) -> None:
        """Put a pick into (or take it out of) its cells and its neighbours' penalties."""
        p = self.problem
        for k, cells in enumerate(p.cells):
            cell = cells.cell[task]
            if cell >= 0:
                self.picked[k][cell] += sign
                self.effect[k] = cells.effect(self.picked[k])
        if p.weight_similarity == 0.0:
            return
        others, similarity = p.similar(task)
        root = p.weight_similarity * math.sqrt(max(float(p.value[task]), 0.0))
        shared = root * similarity * np.sqrt(np.maximum(p.value[others], 0.0))
        for other, penalty in zip(others.tolist(), shared.tolist(), strict=True):
            self.penalty[other] = max(self.penalty.get(other, 0.0) + sign * penalty, 0.0)

    def _pop(self) -> int | None:
        """The task with the highest score whose environment has room; notes those its quota stopped."""
        while True:
            if self._heap and -self._heap[0][0] >= self._bound:
                stale, task = heapq.heappop(self._heap)
                if not self.eligible[task]:
                    continue
                key = self._key(task)
                if (key < -stale and self._heap and key < -self._heap[0][0]) or key < self._bound:
                    heapq.heappush(self._heap, (-key, task))
                    continue
                env = self.problem.env[task]
                if self.used[env] < self.limit[env]:
                    return task
                self.blocked[task] = (self.position, key)
                self.block_count[env] += 1
            elif len(self._rest):
                self._extend()
            else:
                return None

    def _settle_blocked(self, taken: float) -> None:
        """Shadow price: what the quota stopped at this position, minus what was taken instead."""
        for task, (position, key) in reversed(self.blocked.items()):
            if position != self.position:
                break
            env = self.problem.env[task]
            self.price[env] = max(self.price[env], key - taken)

    # The heap holds the best tasks only; `_bound` is the best score outside it (an upper bound, since
    # scores only fall), and the rest is added in growing blocks when the heap's best falls below it.

    def _fill(self) -> None:
        tasks = np.flatnonzero(self.eligible)
        if self.blocked:  # they wait until their quota is relaxed
            tasks = tasks[~np.isin(tasks, list(self.blocked))]
        keys = self.keys(self.gains())[tasks]
        self._heap, self._rest, self._rest_keys = [], tasks, keys
        self._block = max(1024, 8 * self.problem.size)
        self._extend()

    def _extend(self) -> None:
        tasks, keys = self._rest, self._rest_keys
        if len(tasks) > self._block:
            order = np.argpartition(-keys, self._block)
            first, later = order[: self._block], order[self._block :]
            self._rest, self._rest_keys = tasks[later], keys[later]
            self._bound = float(self._rest_keys.max())
            tasks, keys = tasks[first], keys[first]
        else:
            self._rest, self._rest_keys = tasks[:0], keys[:0]
            self._bound = -math.inf
        self._heap += zip((-keys).tolist(), tasks.tolist(), strict=True)
        heapq.heapify(self._heap)
        self._block *= 2

    # ------------------------------------------------------------------ uniform draws, floors, relaxation

    def _coin(self) -> bool:
        p = self.problem
        return bool(p.uniform_share > 0 and unit(mix(p.seed_hash, COIN, self.position))[0] < p.uniform_share)

    def _draw_uniform(self) -> int | None:
        """A uniform draw from the tasks that may still be picked: by rejection, so that it costs no pass over N."""
        p, n = self.problem, len(self.eligible)
        for attempt in range(64 if n else 0):
            task = int(unit(mix(p.seed_hash, DRAW, self.position, attempt))[0] * n)
            if self.eligible[task] and self.used[p.env[task]] < self.limit[p.env[task]]:
                return task
        left = np.flatnonzero(self.eligible & (self.used < self.limit)[p.env])
        return int(left[int(unit(mix(p.seed_hash, DRAW, self.position, 64))[0] * len(left))]) if len(left) else None

    def _due_floors(self) -> NDArray[np.bool_]:
        """Environments [E] behind their floor: it is due evenly over the step, so that small asks keep it too."""
        p = self.problem
        due = np.ceil(self.floor * min((self.position + 1) / p.size, 1.0) - 1e-9)
        behind: NDArray[np.bool_] = self.used < due
        return behind

    def _give_up_floors(self, envs: NDArray[np.bool_]) -> None:
        for env in np.flatnonzero(envs):
            floor, used = int(self.floor[env]), int(self.used[env])
            self.relaxed.append(Relaxation("floor", self.problem.env_names[int(env)], floor, used))
            self.floor[env] = used

    def _best(self, allowed: NDArray[np.bool_]) -> int | None:
        """The highest score among `allowed` [N] by a plain pass."""
        left = np.flatnonzero(self.eligible & allowed)
        return int(left[np.argmax(self.keys(self.gains())[left])]) if len(left) else None

    def _relax(self) -> Chosen | None:
        """Nothing fits: give the least exceeded quota one more pick, then wake resting tasks, else give up."""
        p = self.problem
        if not self.eligible.any():
            if not self.reserve.any():
                return None
            self.eligible |= self.reserve
            self.reserve[:] = False
            self.relaxed.append(Relaxation("cool_down", "", 0, int(self.eligible.sum())))
            self._fill()
            return self._next()
        open_env = np.unique(p.env[self.eligible])
        excess = (self.used - p.limit)[open_env]
        allowed = np.isin(p.env, open_env[excess == excess.min()])
        best = self._best(allowed)
        if best is None:
            return None
        pick = self._take(best, "relaxed")
        env = int(p.env[best])
        self.limit[env] = max(self.limit[env], self.used[env])
        return pick

    # ------------------------------------------------------------------ afterwards

    def drop(self, task: int) -> None:
        """Take a released pick back: its quota and coverage are free again, the task is not asked twice."""
        if task not in self.chosen:
            return
        del self.chosen[task]
        self.dropped.add(task)
        self.used[self.problem.env[task]] -= 1
        self._visit(task, -1.0)
        self.blocked.clear()
        self._fill()

    SAVED = ("eligible", "reserve", "limit", "floor", "used", "price", "block_count", "position", "pinned")

    def state_dict(self) -> dict[str, Any]:
        """What the batch has become so far; with the same problem, `load_state_dict` carries on from there."""
        return {
            **{name: copy.copy(getattr(self, name)) for name in self.SAVED},
            "picked": [m.copy() for m in self.picked],
            "penalty": [list(pair) for pair in self.penalty.items()],
            "blocked": [[task, *place] for task, place in self.blocked.items()],
            "chosen": [list(pick) for pick in self.chosen.values()],
            "dropped": sorted(self.dropped),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        for name in self.SAVED:
            setattr(self, name, copy.copy(state[name]))
        self.picked = [np.array(m) for m in state["picked"]]
        self.effect = [c.effect(m) for c, m in zip(self.problem.cells, self.picked, strict=True)]
        self.penalty = {int(task): float(penalty) for task, penalty in state["penalty"]}
        self.blocked = {int(task): (int(position), float(key)) for task, position, key in state["blocked"]}
        self.chosen = {int(fields[0]): Chosen(*fields) for fields in state["chosen"]}
        self.dropped = {int(task) for task in state["dropped"]}
        self._fill()

    def carry(self, picks: Sequence[tuple[int, int, How]], dropped: Sequence[int], position: int) -> None:
        """Take over the picks (task, position, how) of a batch over another pool; `position` is the next one."""
        for task, place, how in picks:
            self.position = place
            self.eligible[task] = True
            self._take(task, how)
        self.dropped.update(dropped)
        self.eligible[list(dropped)] = False
        self.relaxed.clear()
        self.position = position

    def certificate(self) -> float | None:
        """Summed gain of the picks (0 where penalties make it negative) over the B largest gains the quotas allow.

        Those are the gains of the empty batch. Gains only fall, so no order of picks can add up to more.
        """
        if self.factor is not None or not self.chosen:
            return None
        order = np.flatnonzero(self.problem.eligible)
        order = order[np.argsort(-self.initial_gain[order], kind="stable")]
        env = self.problem.env[order]
        place = _place_in_group(env)
        best = self.initial_gain[order][place < self.limit[env]][: len(self.chosen)].sum()
        reached = sum(pick.gain for pick in self.chosen.values())
        return float(min(max(reached / best, 0.0), 1.0)) if best > 0 else None


def _place_in_group(groups: Indices) -> Indices:
    """0-based place of each element among its equals, in order."""
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups) if len(groups) else np.zeros(0, dtype=np.int64)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.empty(len(groups), dtype=np.int64)
    place[order] = np.arange(len(groups)) - starts
    return place
