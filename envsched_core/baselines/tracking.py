"""Rules that follow a belief about each task: MoPPS (a Beta of its rate) and DPS (a hidden Markov model of its state).

Both choose among candidates drawn uniformly at each step, as the papers choose among the batches of a loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.special import betaincinv

from envsched_core.problem import Floats, Indices
from envsched_core.scheduler import Worth

from .peer import Column, Peer, Seen

__all__ = ["Dps", "Mopps"]

ENTRY_KEY, DRAW_KEY = 21, 20


class Tracker(Peer):
    """Chooses among `CANDIDATES` x batch size free tasks drawn at random; all others rank below them."""

    CANDIDATES: ClassVar[int]

    def _candidates(self) -> Indices:
        entry = self._uniform(ENTRY_KEY)
        free = np.flatnonzero(self._free())
        most = self.CANDIDATES * self.config.batch_size
        return free if len(free) <= most else free[np.argpartition(entry[free], most - 1)[:most]]

    def _among(self, candidates: Indices, term: str, worth: Floats, least: float) -> Worth:
        """The candidates [M] at their `worth` [M], all others at `least`, 1 below it."""
        value = np.full(len(self.catalogue), least)
        value[candidates] = worth
        out = np.full(len(value), -1.0)
        out[candidates] = 0.0
        return Worth({term: value, "not_a_candidate": out}, np.zeros(len(value)), [])


class Mopps(Tracker):
    """MoPPS (Qu et al. 2025, arXiv 2507.04632): a Beta of its own for each task, drawn; nearest to TARGET wins.

    Of `CANDIDATES` x batch size tasks drawn at random, those whose drawn rate (Thompson) lies nearest to 1/2. When
    a group of k rollouts with summed reward s comes in: a <- L a + (1 - L) a0 + s, b <- L b + (1 - L) b0 + k - s,
    with a0 = b0 = 1 and L = DECAY (rewards mapped to [0, 1]). Tasks share nothing.
    """

    NAME = "mopps"
    DECAY = 0.5
    CANDIDATES = 16
    TARGET = 0.5
    TASKS: ClassVar = {"beta": Column((2,), 1.0)}

    def _take(self, groups: Sequence[Seen]) -> None:
        beta = self.memory["beta"]
        for task, _, mapped, _ in groups:
            gained = np.array([mapped.sum(), len(mapped) - mapped.sum()])
            beta[:, task] = self.DECAY * beta[:, task] + (1.0 - self.DECAY) + gained

    def _rate(self) -> Worth:
        candidates = self._candidates()
        a, b = self.memory["beta"][:, candidates]
        drawn = betaincinv(a, b, self._uniform(DRAW_KEY)[candidates])
        return self._among(candidates, "distance_from_half", -np.abs(drawn - self.TARGET), -self.TARGET)


class Dps(Tracker):
    """DPS, dynamics-predictive sampling (Mao et al. 2026, arXiv 2603.10887): a hidden Markov model of each task.

    States: unsolved, partly solved, solved; a group shows the state without error: mixed is partly solved, flat is
    solved or unsolved by its mean (binary rewards: all or none right). With A [3, 3] the Dirichlet counts of the
    transitions (A0 = 1), P = A / its column sums, m the state believed after the step before, and z what is
    seen (without a group: what was predicted), each step with results does

        A <- DECAY A + (1 - DECAY) A0 + (z m^T * P) / sum(z m^T * P)      the last term only with a group
        predicted <- P(A) z

    and the candidates with the highest predicted chance of `partly solved` are picked; ties in seeded order. A task
    never seen stays at 1/3 each. Several groups of a task in one step are taken one after another.
    CANDIDATES and DECAY as in the published mathematics runs.
    """

    NAME = "dps"
    DECAY = 0.7
    CANDIDATES = 32
    TASKS: ClassVar = {
        "transitions": Column((3, 3), 1.0),  # counts of [to, from]
        "believed": Column((3,), 1 / 3),
        "predicted": Column((3,), 1 / 3),
        "seen": Column((), 0.0),
    }

    def _take(self, groups: Sequence[Seen]) -> None:
        observed = np.array([group.task for group in groups])
        states = [1 if not group.flat else 2 if group.mapped.mean() >= 0.5 else 0 for group in groups]
        rest = self.memory["seen"] > 0
        rest[observed] = False
        self._step(np.flatnonzero(rest), None)
        waiting = np.ones(len(groups), dtype=bool)
        while waiting.any():  # once, but for tasks with several groups
            left = np.flatnonzero(waiting)
            _, turn = np.unique(observed[left], return_index=True)
            now = left[turn]
            self._step(observed[now], np.eye(3)[:, np.array(states)[now]])
            waiting[now] = False
        self.memory["seen"][observed] = 1.0

    def _step(self, tasks: Indices, shown: Floats | None) -> None:
        """One step of `tasks` [M], whose states `shown` [3, M] are known or None."""
        memory = self.memory
        counts, before = memory["transitions"][:, :, tasks], memory["believed"][:, tasks]
        now = memory["predicted"][:, tasks] if shown is None else shown
        faded = self.DECAY * counts + (1.0 - self.DECAY)
        if shown is not None:
            moved = shown[:, None] * before[None, :] * (counts / counts.sum(axis=0))
            faded += moved / moved.sum(axis=(0, 1))
        predicted = (faded / faded.sum(axis=0) * now[None, :]).sum(axis=1)
        memory["transitions"][:, :, tasks] = faded
        memory["believed"][:, tasks] = now
        memory["predicted"][:, tasks] = predicted / predicted.sum(axis=0)

    def _rate(self) -> Worth:
        candidates = self._candidates()
        return self._among(candidates, "partly_solved", self.memory["predicted"][1, candidates], 0.0)
