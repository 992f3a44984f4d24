"""Problem: everything that the batch of one step depends on, frozen when the step begins.

Coverage counts visits in cells (environments, interaction patterns) and multiplies a task's value by the
cell's rarity, ((1 + mean visits) / (1 + its visits)) ^ weight. As a factor it means the same at every level of
value: while nearly everything fails, values are small, and a coverage that is added drowns them (in the closed
loop without a base policy that halved what was gained).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .keyed import Hashes

__all__ = ["Cells", "Floats", "Indices", "Problem"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


EVERY = slice(None)


class Cells(NamedTuple):
    """One kind of coverage: every task lies in at most one of C cells."""

    term: str
    """Name of its term."""
    cell: Indices
    """Cell of each task [N]; -1 = none."""
    counts: Floats
    """Visits before this step [C], discounted, open picks included."""
    weight: float
    shape: Literal["factor", "turn"] = "factor"
    """factor: the value is multiplied by the rarity. turn: visits are subtracted, strictly by turns."""

    def usual(self) -> float:
        """Mean visits of a cell before this step."""
        return float(self.counts.sum()) / max(len(self.counts), 1)

    def effect(self, picked: Floats, usual: float, at: slice = EVERY) -> Floats:
        """Factor on (or, by turns, addition to) the value of the tasks of the cells `at`, after `picked` picks [C]."""
        return np.array([self.effect_of(count, usual) for count in (self.counts[at] + picked[at]).tolist()])

    def effect_of(self, count: float, usual: float) -> float:
        """The same of one cell with `count` visits: plain numbers, so that one cell or all makes no difference."""
        if self.shape == "turn":
            return -self.weight * count
        try:
            return float(((1.0 + usual) / (1.0 + count)) ** self.weight)
        except OverflowError:
            return math.inf


class Problem(NamedTuple):
    """Everything a step's batch depends on, frozen when the step begins."""

    terms: Mapping[str, Floats]
    """Fixed signed terms of every task [N]."""
    value: Floats
    """What a pick is worth [N], >= 0; scales the similarity penalty."""
    cells: Sequence[Cells]
    env: Indices
    """Environment of each task [N]."""
    limit: Indices
    """Most picks per environment [E]."""
    floor: Indices
    """Fewest picks per environment [E]."""
    eligible: NDArray[np.bool_]
    """Tasks that may be picked [N]."""
    reserve: NDArray[np.bool_]
    """Tasks that may be picked if nothing else is left [N] (cooling down)."""
    pinned: Sequence[int]
    similar: Callable[[int], tuple[NDArray[np.int32], NDArray[np.float32]]]
    """Neighbours of a task and their similarity in [0, 1]."""
    weight_similarity: float
    temperature: float
    gumbel: Floats
    """Gumbel numbers [N], about 0 at the edge of a batch; empty when the temperature is 0."""
    hashes: Hashes
    """64 bits of (seed, step, task) [N]."""
    tie: Floats
    """Seeded order in [0, 1) [N]."""
    uniform_share: float
    seed_hash: Hashes
    """64 bits of (seed, step) [1]."""
    size: int
    """Picks in the whole step (B)."""
    env_names: Sequence[str]
