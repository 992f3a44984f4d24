"""The batch: exact lazy greedy on value x coverage - similarity penalty, under quotas.

Gains (scores.py) only fall as the batch S grows, so a stale score is an upper bound and lazy greedy picks what the
naive loop would (a test). A step scores all N tasks once; the loop then works on the best few thousand of them.
Everything recorded about a decision is taken from here at the moment of picking.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .keyed import mix, mix_each, unit
from .passes import places_in_groups, threshold, top
from .problem import Floats, Indices, Problem
from .records import Relaxation
from .scores import Scores

__all__ = ["Batch", "Chosen"]

How = Literal["score", "uniform", "pinned", "floor", "relaxed"]

COIN, DRAW = 1, 2  # keys that tell the coin of a position from its draw


class Chosen(NamedTuple):
    """One pick, with what it was chosen against."""

    task: int
    position: int
    how: How
    score: float
    gain: float
    terms: dict[str, float]


class Batch(Scores):
    """The batch of one step as it grows; several asks may share it."""

    def __init__(self, problem: Problem) -> None:
        """Computes the score of every task for an empty batch."""
        super().__init__(problem)
        p = self.problem
        n_env = len(p.limit)
        self.eligible = p.eligible.copy()
        self.reserve = p.reserve.copy()
        self.limit, self.floor = p.limit.copy(), p.floor.copy()
        self.used = np.zeros(n_env, dtype=np.int64)
        self.chosen: dict[int, Chosen] = {}
        self.position = 0
        self.pinned = list(dict.fromkeys(p.pinned))
        self.dropped: set[int] = set()
        self.blocked: dict[int, tuple[int, float]] = {}
        self.price = np.zeros(n_env)
        self.block_count = np.zeros(n_env, dtype=np.int64)
        self.relaxed: list[Relaxation] = []
        self._taken: dict[int, tuple[list[float], float]] = {}
        self._floored = False
        self._heap: list[tuple[float, int]] = []
        self._bound = -math.inf
        self.initial = self.scores()
        self._fill(self.initial)

    # ------------------------------------------------------------------ the greedy loop

    def choose(self, n: int) -> list[Chosen]:
        """Add up to `n` picks; fewer only when no task is left (recorded as a shortfall)."""
        picks: list[Chosen] = []
        draws, self._floored = self._draws(n), bool(self.floor.any())
        for k in range(n):
            pick = self._next(draws[k])
            if pick is None:
                self.relaxed.append(Relaxation("shortfall", "", n, len(picks)))
                break
            picks.append(pick)
        if self.position >= self.problem.size:
            self._give_up_floors(self.used < self.floor)
        return picks

    def _next(self, draw: int | None) -> Chosen | None:
        """The next pick; `draw`: the task to try first where the position is one for a uniform draw."""
        while self.pinned:
            pinned = self.pinned.pop(0)
            if self.eligible[pinned]:
                return self._take(pinned, "pinned")
        if draw is not None and (task := self._draw_uniform(draw)) is not None:
            return self._take(task, "uniform")
        due = self._due_floors()
        if due is not None:
            best = self._best(due[self.problem.env])
            if best is not None:
                return self._take(best, "floor")
            self._give_up_floors(due)
        found = self._pop()
        if found is None:
            return self._relax(draw)
        task, gain, key = found
        return self._take(task, "relaxed" if self.problem.reserve[task] else "score", (gain, key))

    def _take(self, task: int, how: How, known: tuple[float, float] | None = None) -> Chosen:
        """Pick a task; `known`: its gain and score, where they were worked out just now."""
        gain, key = known or self._gain_and_key(task)
        pick = Chosen(task, self.position, how, key, gain, {})
        self._taken[task] = self._effects_on(task), self.penalty.get(task, math.nan)
        self._settle_blocked(key)
        self.chosen[task] = pick
        self.position += 1
        self.eligible[task] = False
        self._use(int(self.problem.env[task]))
        self._visit(task, 1.0)
        return pick

    def terms_of(self, tasks: Indices) -> list[dict[str, float]]:
        """Signed terms of `tasks` [M], which sum to their scores: of picks when they were picked, of others now.

        Picks get theirs here and not as they are taken: one by itself costs as much as a hundred together.
        """
        effects, penalties = self._against_batch(tasks)
        index = tasks.tolist()
        picked = [i for i, task in enumerate(index) if task in self.chosen]
        taken = [i for i in picked if index[i] in self._taken]  # those of a saved state have their terms
        if taken:
            effects_then, penalties_then = zip(*(self._taken[index[i]] for i in taken), strict=True)
            effects[:, taken], penalties[taken] = np.array(effects_then).T, penalties_then
        out = self._terms(tasks, effects, penalties)
        for i in picked:
            pick = self.chosen[index[i]]
            pick.terms.update({} if pick.terms else out[i])
            out[i] = pick.terms
        return out

    def _use(self, env: int) -> None:
        self.used[env] += 1
        if self.used[env] > self.limit[env]:  # a pin, or nothing else was left
            limit, used = int(self.problem.limit[env]), int(self.used[env])
            self.relaxed.append(Relaxation("quota", self.problem.env_names[env], limit, used))

    def _pop(self) -> tuple[int, float, float] | None:
        """The best task whose environment has room, its gain and score; notes those that a quota stopped."""
        heap, eligible, gain_and_key = self._heap, self.eligible, self._gain_and_key
        while True:
            if heap and -heap[0][0] >= self._bound:
                stale, task = heap[0]
                if not eligible[task]:
                    heapq.heappop(heap)
                    continue
                gain, key = gain_and_key(task)
                if key < -stale:
                    again = (-key, task)
                    heapq.heapreplace(heap, again)
                    if heap[0] is not again or key < self._bound:
                        continue
                heapq.heappop(heap)
                env = self.problem.env[task]
                if self.used[env] < self.limit[env]:
                    return task, gain, key
                self.blocked[task] = (self.position, key)
                self.block_count[env] += 1
            elif self._bound > -math.inf:
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

    # The heap holds the best tasks only. All others score less than `_bound` (scores only fall); they are added in
    # growing blocks when the heap's best falls below it.

    def _fill(self, scores: Floats | None = None) -> None:
        self._upper = self.scores() if scores is None else scores
        self._open = self.eligible.copy()
        self._open[list(self.blocked)] = False  # they wait until their quota is relaxed
        self._heap.clear()
        self._facts = {}
        self._block, self._bound = max(1024, 4 * self.problem.size), math.inf
        self._extend()

    def _extend(self) -> None:
        above, self._bound = self._bound, threshold(self._upper, self._block, self._open)
        inside = (self._upper >= self._bound) & self._open if self._bound > -math.inf else self._open
        tasks = np.flatnonzero(inside)
        self.look_up(tasks)
        best = self._upper[tasks]
        self._heap += zip((-best).tolist(), tasks.tolist(), strict=True)
        heapq.heapify(self._heap)
        if above == math.inf:  # nearly all picks will be among these
            self.look_around(tasks[top(best, 4 * self.problem.size)])
        self._open[tasks] = False
        self._block *= 2

    # ------------------------------------------------------------------ uniform draws, floors, relaxation

    def _draws(self, n: int) -> Sequence[int | None]:
        """For each of the next `n` positions that is for a uniform draw, the task to try first; None for all others.

        For no more positions than there are tasks to pick.
        """
        p, n, many = self.problem, min(n, len(self.eligible) + 1), len(self.eligible)
        if p.uniform_share <= 0 or not many:
            return [None] * n
        positions = np.arange(self.position, self.position + n)
        coins = mix_each(np.repeat(mix(p.seed_hash, COIN), n), positions)
        drawn = np.flatnonzero(unit(coins) < p.uniform_share)
        first = unit(mix_each(np.repeat(mix(p.seed_hash, DRAW), len(drawn)), positions[drawn]), 0)
        tasks = (first * many).astype(np.int64)
        self.look_up(tasks)
        self.look_around(tasks)
        found = dict(zip(drawn.tolist(), tasks.tolist(), strict=True))
        return [found.get(k) for k in range(n)]

    def _draw_uniform(self, task: int) -> int | None:
        """A uniform draw from the tasks that may still be picked: by rejection, so that it costs no pass over N."""
        p, n = self.problem, len(self.eligible)
        for attempt in range(1, 65):
            if self.eligible[task] and self.used[p.env[task]] < self.limit[p.env[task]]:
                return task
            task = int(unit(p.seed_hash, DRAW, self.position, attempt)[0] * n)
        left = np.flatnonzero(self.eligible & (self.used < self.limit)[p.env])
        return int(left[int(unit(p.seed_hash, DRAW, self.position, 64)[0] * len(left))]) if len(left) else None

    def _due_floors(self) -> NDArray[np.bool_] | None:
        """Environments [E] behind their floor, if any: due evenly over the step, so that small asks keep it too."""
        p = self.problem
        if not self._floored:
            return None
        due = np.ceil(self.floor * min((self.position + 1) / p.size, 1.0) - 1e-9)
        behind: NDArray[np.bool_] = self.used < due
        return behind if behind.any() else None

    def _give_up_floors(self, envs: NDArray[np.bool_]) -> None:
        for env in np.flatnonzero(envs):
            floor, used = int(self.floor[env]), int(self.used[env])
            self.relaxed.append(Relaxation("floor", self.problem.env_names[int(env)], floor, used))
            self.floor[env] = used

    def _best(self, allowed: NDArray[np.bool_]) -> int | None:
        """The highest score among `allowed` [N] by a plain pass over them."""
        left = np.flatnonzero(self.eligible & allowed)
        return int(left[np.argmax(self.scores_of(left))]) if len(left) else None

    def _relax(self, draw: int | None) -> Chosen | None:
        """Nothing fits: give the least exceeded quota one more pick, then wake resting tasks, else give up."""
        p = self.problem
        if not self.eligible.any():
            if not self.reserve.any():
                return None
            self.eligible |= self.reserve
            self.reserve[:] = False
            self.relaxed.append(Relaxation("cool_down", "", 0, int(self.eligible.sum())))
            self._fill()
            return self._next(draw)
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
        self._taken.pop(task, None)  # not there after `load_state_dict`
        self.dropped.add(task)
        self.used[self.problem.env[task]] -= 1
        self._visit(task, -1.0)
        self.blocked.clear()
        self._fill()

    SAVED = ("eligible", "reserve", "limit", "floor", "used", "price", "block_count", "position", "pinned")

    def state_dict(self) -> dict[str, Any]:
        """What the batch has become so far; with the same problem, `load_state_dict` carries on from there."""
        self.terms_of(np.array(list(self.chosen), dtype=np.int64))
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
        self.effect = self._effects()
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

        Those are the gains of the empty batch, of all tasks that could be picked in the end (resting ones that were
        woken too) and under the quotas as they were relaxed. Gains only fall, so no order of picks adds up to more.
        """
        if self.problem.factor is not None or not self.chosen:
            return None
        p, n = self.problem, len(self.chosen)
        could = p.eligible | (p.reserve & ~self.reserve)
        could[list(self.chosen)] = True
        limit = np.maximum(self.limit, self.used)
        gains = np.where(could, self.first_gains(), -math.inf)
        most, kept = n, np.zeros(0)
        while len(kept) < n and most < 8 * len(gains):  # the best of all, until the quotas leave enough of them
            most *= 8
            order = top(gains, most)
            env = p.env[order]
            kept = gains[order][places_in_groups(env) < limit[env]]
        best = kept[:n].sum()
        reached = sum(pick.gain for pick in self.chosen.values())
        return float(round(max(reached / best, 0.0), 12)) if best > 0 else None
