"""Where the nodes around one task stand: the task in the middle, who is tied to it on a ring, the rest outside.

Tasks of one environment stand side by side, those of the task's own environment first; on the outer ring a task
stands as near as the even spacing lets it to those that tie it to the middle. All coordinates are in pixels of an
unzoomed canvas and depend on the ties alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .layout import spectral_order

__all__ = ["rings"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

INNER, OUTER = 220.0, 150.0
"""Radius of the inner ring, and what the outer one is at least wider by."""
APART = 86.0
"""Pixels between neighbours of a ring."""


def rings(ties: sparse.csr_array, env: Indices, middle: int) -> Floats:
    """Positions [N, 2] of nodes with `ties` [N, N] and environments `env` [N] around node `middle`."""
    out = np.zeros((len(env), 2))
    reach = np.asarray(ties[[middle]].toarray()).ravel()
    inner = np.flatnonzero(reach > 0)
    outer = np.setdiff1d(np.flatnonzero(reach <= 0), [middle])
    smooth = np.zeros(len(env))
    if len(inner):
        smooth[inner] = spectral_order(sparse.csr_array(ties[inner][:, inner]), 1)[0]
    inner = inner[np.lexsort((inner, smooth[inner], env[inner], env[inner] != env[middle]))]
    turn = np.zeros(len(env))
    turn[inner] = _even(len(inner))
    radius = max(INNER, len(inner) * APART / (2 * np.pi))
    out[inner] = radius * _direction(turn[inner])
    if len(outer):
        toward = (
            np.asarray(ties[outer][:, inner] @ _direction(turn[inner])) if len(inner) else np.zeros((len(outer), 2))
        )
        wanted = np.arctan2(toward[:, 1], toward[:, 0]) % (2 * np.pi)
        outer = outer[np.lexsort((outer, env[outer], np.round(wanted, 6)))]
        wanted = np.sort(wanted)
        slots = _even(len(outer))
        # Turned as a whole so that the even slots lie nearest to where their tasks are wanted.
        off = np.exp(1j * (wanted - slots)).sum()
        wide = max(radius + OUTER, len(outer) * APART / (2 * np.pi))
        out[outer] = wide * _direction(slots + (np.angle(off) if abs(off) > 1e-9 else 0.0))
    return out


def _even(n: int) -> Floats:
    """Angles [n] round a circle."""
    return np.asarray(2 * np.pi * np.arange(n) / max(n, 1), dtype=float)


def _direction(turn: Floats) -> Floats:
    return np.column_stack([np.cos(turn), np.sin(turn)])
