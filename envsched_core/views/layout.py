"""Where the nodes of a small graph stand: one disc per environment, discs on a spiral, alike beside alike.

Positions depend on the graph alone, so they stay put while the step changes. No forces, no iterations: a few
eigenvectors of small matrices, whose signs are fixed. All coordinates are in pixels of an unzoomed canvas.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

__all__ = ["disc", "layout", "spectral_order"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

SPACING = 62.0
"""Pixels between neighbouring nodes of a disc."""
GAP = 50.0
"""Pixels between discs."""
WIDE = 1.35
"""How much wider than high the whole is, as screens are."""
DENSE = 500
"""Nodes up to which all eigenvectors are found; beyond it only the few that are needed."""
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))


def layout(env: Indices, within: sparse.csr_array, cross: sparse.csr_array, centre: int) -> Floats:
    """Positions [N, 2] of nodes with environments `env` [N]; environment `centre` stands in the middle.

    `within` and `cross` [N, N] tie the nodes inside and across environments.
    """
    names = _spiral_order(env, cross, centre)
    radii = np.array([_radius(int((env == name).sum())) for name in names])
    places = _spiral(radii)
    out = np.zeros((len(env), 2))
    for name, place in zip(names, places, strict=True):
        members = np.flatnonzero(env == name)
        out[members] = place + disc(within[members][:, members])
    return out


def _radius(n: int) -> float:
    return SPACING * 0.6 * (math.sqrt(n) + 0.5)


def disc(ties: sparse.csr_array) -> Floats:
    """Positions [n, 2] on a disc of evenly spread points, tied nodes near each other."""
    n = ties.shape[0]
    k = np.arange(n)
    turn = np.column_stack([np.cos(k * GOLDEN_ANGLE), np.sin(k * GOLDEN_ANGLE)])
    points = SPACING * 0.6 * np.sqrt(k + 0.5)[:, None] * turn
    first, second = spectral_order(ties, 2)
    columns = max(round(np.sqrt(n)), 1)
    across = np.array_split(np.argsort(points[:, 0], kind="stable"), columns)
    nodes = np.array_split(np.argsort(first, kind="stable"), columns)
    out = np.zeros((n, 2))
    for spots, members in zip(across, nodes, strict=True):
        down = spots[np.argsort(points[spots, 1], kind="stable")]
        out[members[np.argsort(second[members], kind="stable")]] = points[down]
    return out


def spectral_order(ties: sparse.csr_array, vectors: int) -> Floats:
    """The `vectors` smoothest non-constant functions on a graph [vectors, n] (eigenvectors of its Laplacian)."""
    n = ties.shape[0]
    if n < 3:
        return np.tile(np.arange(n, dtype=float), (vectors, 1))
    chosen = _smoothest(ties, vectors) if n <= DENSE else _smoothest_of_many(ties, vectors)
    if len(chosen) < vectors:
        chosen = np.vstack([chosen, np.tile(np.arange(n, dtype=float), (vectors - len(chosen), 1))])
    largest = np.take_along_axis(chosen, np.abs(chosen).argmax(axis=1)[:, None], axis=1)
    out: Floats = np.round(chosen * np.where(largest < 0, -1.0, 1.0), 9)
    return out


def _smoothest(ties: sparse.csr_array, vectors: int) -> Floats:
    n = ties.shape[0]
    weights = np.asarray(ties.toarray(), dtype=float)
    weights = np.maximum(weights, weights.T) + 1e-3 / n  # joined up, so that no part floats free
    _, found = np.linalg.eigh(np.diag(weights.sum(axis=1)) - weights)
    chosen: Floats = found[:, 1 : vectors + 1].T
    return chosen


def _smoothest_of_many(ties: sparse.csr_array, vectors: int) -> Floats:
    """The same of the normalised graph, by a few Lanczos steps from a fixed start; in order of index if they fail."""
    n = ties.shape[0]
    weights = sparse.csr_array(ties.maximum(ties.T)).astype(float)
    root = sparse.diags_array(1.0 / np.sqrt(weights.sum(axis=1) + 1e-3))
    start = np.linspace(1.0, 2.0, n)
    try:
        _, found = linalg.eigsh(root @ weights @ root, k=vectors + 1, which="LA", v0=start, tol=1e-4, maxiter=300)
    except linalg.ArpackError as error:  # no convergence, or no edges at all
        found = getattr(error, "eigenvectors", np.zeros((n, 0)))
    chosen: Floats = np.asarray(found, dtype=float)[:, ::-1][:, 1 : vectors + 1].T
    return chosen


def _spiral_order(env: Indices, cross: sparse.csr_array, centre: int) -> list[int]:
    """Environments in the order of the spiral: the middle one, then the rest with alike ones adjacent."""
    names = [int(name) for name in np.unique(env)]
    member = sparse.csr_array((np.ones(len(env)), (np.searchsorted(names, env), np.arange(len(env)))))
    between = sparse.csr_array(member @ cross @ member.T)
    around = [i for i, name in enumerate(names) if name != centre]
    order = spectral_order(sparse.csr_array(between[around][:, around]), 1)[0]
    ordered = [names[around[i]] for i in np.argsort(order, kind="stable")]
    return [name for name in names if name == centre] + ordered


def _spiral(radii: Floats) -> Floats:
    """Centres [E, 2] of discs along a spiral that starts around the first disc."""
    out = np.zeros((len(radii), 2))
    if len(radii) < 2:
        return out
    widest = float(radii[1:].max())
    distance = float(radii[0]) + widest + GAP
    pitch = 2 * widest + GAP
    angle = 0.0
    for i in range(1, len(radii)):
        if i > 1:
            angle += (radii[i - 1] + radii[i] + GAP) / (distance + pitch * angle / (2 * np.pi))
        reach = distance + pitch * angle / (2 * np.pi)
        out[i] = WIDE * reach * np.cos(angle), reach * np.sin(angle)
    return out
