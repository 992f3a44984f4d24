"""The optimiser: Adam (lr 0.05, betas 0.9 and 0.99) on a gradient of ascent, in one compiled pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draws import compiled
from .policy import FEATURES, NONE, Floats

__all__ = ["Adam"]


@compiled
def adam_step(
    weights: Floats,
    mean: Floats,
    square: Floats,
    gradient: Floats,
    rates: tuple[float, float, float],
    left: tuple[float, float],
) -> None:
    """Adam (Kingma and Ba 2015, arXiv 1412.6980) in one pass, upwards; `left` corrects the moments' start at 0."""
    rate, first, second = rates
    for i in range(len(weights)):
        slope = gradient[i]
        if slope == 0.0 and mean[i] == 0.0 and square[i] == 0.0:
            continue  # most weights are never used; they stay as they are
        mean[i] += first * (slope - mean[i])
        square[i] += second * (slope * slope - square[i])
        weights[i] += rate * (mean[i] / left[0]) / (np.sqrt(square[i] / left[1]) + 1e-8)


class Adam:
    """Weights and the optimiser's two moments, with a state of their non-zero entries."""

    def __init__(self, weights: Floats, *, rate: float = 0.05, first: float = 0.9, second: float = 0.99) -> None:
        """`weights` [FEATURES + 1] are copied."""
        self.weights = weights.copy()
        self.mean = np.zeros_like(weights)
        self.square = np.zeros_like(weights)
        self.steps = 0
        self.rate, self.first, self.second = rate, first, second

    def step(self, gradient: Floats) -> None:
        """One step up the gradient [FEATURES + 1]."""
        self.steps += 1
        gradient[NONE] = 0.0
        rates = self.rate, 1.0 - self.first, 1.0 - self.second
        left = 1.0 - self.first**self.steps, 1.0 - self.second**self.steps
        adam_step(self.weights, self.mean, self.square, gradient, rates, left)

    def state_dict(self) -> dict[str, Any]:
        """Non-zero entries as arrays."""
        used = np.flatnonzero((self.weights != 0) | (self.square != 0) | (self.mean != 0))
        kept = {name: getattr(self, name)[used] for name in ("weights", "mean", "square")}
        return {"steps": self.steps, "used": used.astype(np.int32), **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.steps = int(state["steps"])
        used = np.asarray(state["used"], dtype=np.int64)
        for name in ("weights", "mean", "square"):
            values = np.zeros(FEATURES + 1)
            values[used] = state[name]
            setattr(self, name, values)
