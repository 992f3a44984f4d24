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
from .passes import blocks
from .propagation import Reached

__all__ = ["Cells", "Floats", "Indices", "Problem", "Terms", "added", "terms_at"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Cells(NamedTuple):
    """One kind of coverage: every task lies in at most one of C cells."""

    term: str
    """Name of its term."""
    cell: NDArray[np.integer]
    """Cell of each task [N]; -1 = none."""
    counts: Floats
    """Visits before this step [C], discounted, open picks included."""
    weight: float
    shape: Literal["factor", "turn"] = "factor"
    """factor: the value is multiplied by the rarity. turn: visits are subtracted, strictly by turns."""

    @property
    def outside(self) -> float:
        """Effect on a task that lies in no cell."""
        return 0.0 if self.shape == "turn" else 1.0

    def usual(self) -> float:
        """Mean visits of a cell before this step."""
        return float(self.counts.sum()) / max(len(self.counts), 1)

    def effect(self, picked: Floats, usual: float) -> list[float]:
        """Factor on (or, by turns, addition to) the value of the tasks of each cell [C], after `picked` picks [C]."""
        counts = self.counts + picked
        if self.shape == "turn":
            return [-self.weight * count for count in counts.tolist()]
        rarity = ((1.0 + usual) / (1.0 + counts)).tolist()
        try:
            return [rare**self.weight for rare in rarity]
        except OverflowError:
            return [self.effect_of(count, usual) for count in counts.tolist()]

    def effect_of(self, count: float, usual: float) -> float:
        """The same of one cell with `count` visits: plain numbers, so that one cell or all makes no difference."""
        if self.shape == "turn":
            return -self.weight * count
        try:
            return float(((1.0 + usual) / (1.0 + count)) ** self.weight)
        except OverflowError:
            return math.inf


Terms = Callable[[Indices], dict[str, Floats]]
"""The fixed signed terms [M] of some tasks [M], by name."""


def terms_at(terms: Mapping[str, Floats]) -> Terms:
    """The terms of some tasks out of those of all [N]."""
    return lambda tasks: {name: values[tasks] for name, values in terms.items()}


def added(terms: Mapping[str, Floats], n: int) -> Floats:
    """Sum of terms [N] of all `n` tasks."""
    out = np.zeros(n)
    for part in blocks(n):
        for values in terms.values():
            out[part] += values[part]
    return out


class Problem(NamedTuple):
    """Everything a step's batch depends on, frozen when the step begins."""

    terms: Terms
    """Fixed signed terms of some tasks."""
    fixed: Floats
    """Their sum [N]."""
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
    similar: Callable[[Indices], Sequence[Reached]]
    """Neighbours of some tasks in each relation; the weight of an edge is how similar its ends are."""
    weight_similarity: float
    factor: Floats | None
    """What a draw multiplies each task's gain by [N], about 1 at the edge of a batch; None = no draw."""
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
