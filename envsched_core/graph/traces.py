"""Traces: what rollouts showed of each task beyond their mean. Bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Topology", "Traces"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Topology(NamedTuple):
    """Where rewards lie, equal tasks sharing one row."""

    rows: Floats
    """Distinct reward topologies [T, BINS]; a row of zeros where nothing was seen."""
    of: Indices
    """Row of each task [N]."""


class Traces:
    """Observed calls of each task and where its rewards lie."""

    MOST_SEQUENCES = 8
    BINS = 6
    """Mass at 0, in (0, 1/2), in [1/2, 1), at 1; then whether a reward was graded; then how the mean moved."""

    def __init__(self) -> None:
        """Starts empty; tasks join with `grow`."""
        self.calls: dict[int, list[tuple[str, ...]]] = {}
        self.mass = np.zeros((0, 4))
        self.drift = np.zeros(0)
        self.last_mean = np.zeros(0)
        self.changed: set[int] = set()
        """Tasks that showed something since the last graph."""

    def grow(self, n: int) -> None:
        """Make room for `n` tasks in all."""
        more = n - len(self.mass)
        self.mass = np.concatenate([self.mass, np.zeros((more, 4))])
        self.drift = np.concatenate([self.drift, np.zeros(more)])
        self.last_mean = np.concatenate([self.last_mean, np.full(more, np.nan)])

    def add(self, task: int, mapped: Sequence[float], calls: Sequence[tuple[str, ...]]) -> None:
        """Take in one group: mapped rewards [G] and the observed tool names of each rollout."""
        self.changed.add(task)
        for reward in mapped:
            self.mass[task, 0 if reward <= 1e-9 else 1 if reward < 0.5 else 2 if reward < 1 - 1e-9 else 3] += 1.0
        mean = sum(mapped) / len(mapped)
        if not np.isnan(self.last_mean[task]):
            self.drift[task] = 0.5 * self.drift[task] + 0.5 * (mean - self.last_mean[task])
        self.last_mean[task] = mean
        if calls:
            kept = self.calls.setdefault(task, [])
            kept.extend(calls[: self.MOST_SEQUENCES])
            del kept[: -self.MOST_SEQUENCES]

    def remap(self, tasks: NDArray[np.bool_], a: float, b: float) -> None:
        """An environment's reward range moved: a mapped reward r of its tasks [N] is now a r + b.

        What moved is not drift. The bins of `mass` hold no rewards to map again; they fade as more come in.
        """
        self.last_mean[tasks] = a * self.last_mean[tasks] + b
        self.drift[tasks] *= a

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays."""
        calls = {str(task): [list(c) for c in kept] for task, kept in self.calls.items()}
        return {
            "calls": calls,
            "mass": self.mass.copy(),
            "drift": self.drift.copy(),
            "last_mean": self.last_mean.copy(),
            "changed": sorted(self.changed),
        }

    def load_state_dict(self, state: Mapping[str, Any], tasks: Indices) -> None:
        """Take over; `tasks` maps saved indices to those here (-1 = gone)."""
        for name in ("mass", "drift", "last_mean"):
            getattr(self, name)[tasks[tasks >= 0]] = np.asarray(state[name])[tasks >= 0]
        self.calls = {}
        for task, kept in state["calls"].items():
            if tasks[int(task)] >= 0:
                self.calls[int(tasks[int(task)])] = [tuple(c) for c in kept]
        # A state without the list says nothing of what changed: take everything seen.
        changed = state.get("changed", np.flatnonzero(np.asarray(state["mass"]).any(axis=1)))
        self.changed = {int(tasks[int(i)]) for i in changed if tasks[int(i)] >= 0}

    def topology(self, env: Indices) -> Topology:
        """Reward topology of every task: its own rewards, with four rollouts' worth of its environment's."""
        n_env = int(env.max(initial=-1)) + 1
        seen = np.flatnonzero(self.mass.any(axis=1))
        whole = np.zeros((n_env, 4))
        np.add.at(whole, env[seen], self.mass[seen])
        shape = whole / np.maximum(whole.sum(axis=1, keepdims=True), 1.0)
        # Tasks without rewards of their own look like their environment: one row for all of them.
        mass = np.concatenate([4.0 * shape, self.mass[seen] + 4.0 * shape[env[seen]]])
        mass = mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-12)
        drift = np.concatenate([np.zeros(n_env), np.maximum(self.drift[seen], 0.0)])
        graded = (mass[:, 1:3].sum(axis=1) > 0).astype(float)
        rows, inverse = np.unique(np.column_stack([mass, graded * 0.5, drift]), axis=0, return_inverse=True)
        inverse = inverse.ravel()  # NumPy 2.0 gives a column here
        of = inverse[env]
        of[seen] = inverse[n_env:]
        return Topology(rows, of)
