"""Problem: everything that the batch of one step depends on, frozen when the step begins.

Coverage counts visits in cells (environments, interaction patterns) with g(n) = n / (n + 1). g saturates: it
favours what was rarely seen and stops taxing what was seen often, which log1p goes on doing (on replays of
public logs that cost informative groups once the pool was half used).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .keyed import Hashes

__all__ = ["Cells", "Floats", "Indices", "Problem", "rarity"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def rarity(count: Floats) -> Floats:
    """Gain of one more visit after `count`: g(n + 1) - g(n) = 1 / ((n + 1) (n + 2)) for g(n) = n / (n + 1)."""
    return 1.0 / ((count + 1.0) * (count + 2.0))


class Cells(NamedTuple):
    """One kind of coverage: every task lies in at most one of C cells."""

    term: str
    """Name of its term."""
    cell: Indices
    """Cell of each task [N]; -1 = none."""
    counts: Floats
    """Visits before this step [C], discounted, open picks included."""
    weight: float
    shape: Literal["rare", "turn"] = "rare"
    """rare: g(n) = n / (n + 1). turn: g(n) = -n^2 / 2, strictly by turns."""

    def marginal(self, picked: Floats) -> Floats:
        """Gain of one more visit to each cell [C] after `picked` picks [C] of this step."""
        count = self.counts + picked
        return self.weight * (rarity(count) if self.shape == "rare" else -count)


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
    tie: Floats
    """Seeded order in [0, 1) [N]."""
    uniform_share: float
    seed_hash: Hashes
    """64 bits of (seed, step) [1]."""
    size: int
    """Picks in the whole step (B)."""
    env_names: Sequence[str]
