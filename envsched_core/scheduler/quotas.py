"""Quotas: how many picks of a step each environment may take at most, and must get at least."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from envsched_core.catalogue import Catalogue
from envsched_core.config import Config

__all__ = ["Quotas"]


class Quotas:
    """The quotas of a config over the environments of a catalogue."""

    def __init__(self, config: Config, catalogue: Catalogue) -> None:
        """The catalogue may grow."""
        self.config, self.catalogue = config, catalogue
        self._known: dict[int | None, NDArray[np.int64]] = {}  # limits by the size of the step; None = floors

    def limits(self, size: int) -> NDArray[np.int64]:
        """Most picks of each environment [E] in a step of `size` picks."""
        return self._of_environments(size, lambda env: self._limit(env, size))

    def floors(self) -> NDArray[np.int64]:
        """Fewest picks of each environment [E] in a step of the batch's size."""
        return self._of_environments(None, self._floor)

    def _of_environments(self, kind: int | None, quota: Callable[[str], int]) -> NDArray[np.int64]:
        """They only change when environments join."""
        names = self.catalogue.env_names
        if kind not in self._known or len(self._known[kind]) != len(names):
            self._known[kind] = np.array([quota(name) for name in names], dtype=np.int64)
        return self._known[kind]

    def _limit(self, env: str, size: int) -> int:
        """Most picks of one environment in a step of `size` picks: at least one, unless its share is 0.

        The general share never falls below an even split, which no batch could keep; a floor raises the limit.
        """
        even = 1.0 / len(self.catalogue.env_names)
        share = self.config.max_shares.get(env, max(self.config.max_share, even))
        return max(math.ceil(share * size - 1e-9), 1 if share > 0 else 0, self._floor(env))

    def _floor(self, env: str) -> int:
        c = self.config
        return max(math.floor(c.min_shares.get(env, 0.0) * c.batch_size + 1e-9), int(env in c.pin_environments))
