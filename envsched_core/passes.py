"""Passes over all N tasks that stay cheap when N is a million: nothing is sorted, and blocks stay in the cache.

What a pass makes on its way (and a formula of many factors makes a lot) is never larger than a block, so that
memory is written for results only. Blocks change no value: every element is computed as it would be in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["blocks", "places_in_groups", "ranks", "runs", "threshold", "top"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 1 << 14
"""Elements of a block; some dozen arrays of them fit into a core's own cache."""
SAMPLE = 1 << 15
"""Elements that a threshold is estimated from."""
BUCKETS = 1 << 16
"""Classes of nearly equal values that ranks are counted by."""


def blocks(n: int) -> Iterator[slice]:
    """Slices that cover [0, n) in order."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def threshold(values: Floats, most: int) -> float:
    """A value with roughly `most` of `values` [N] at or above it, and at least one; -inf where that is all of them."""
    step = max(len(values) // SAMPLE, 1)
    sample = values[::step]
    place = len(sample) - max(most // step, 1)
    return float(np.partition(sample, place)[place]) if place > 0 else -np.inf


def top(values: Floats, most: int) -> Indices:
    """Places of the `most` largest of `values` [N], the largest first, equal ones in order; -inf never counts."""
    most = min(most, len(values))
    if not most:
        return np.zeros(0, dtype=np.int64)
    found = np.flatnonzero(values >= threshold(values, 2 * most))
    if len(found) < most:  # the sample was no likeness of the whole
        found = np.arange(len(values))
    if len(found) > most:
        least = np.partition(values[found], len(found) - most)[len(found) - most]
        found = found[values[found] >= least]
    found = found[values[found] > -np.inf]
    return np.asarray(found[np.lexsort((found, -values[found]))][:most])


def ranks(values: Floats, among: Floats) -> Indices:
    """1 + how many of `among` [N] are larger, for each of `values` [M], which are some of them.

    Counted by buckets of values; only the buckets that hold one of `values` are sorted.
    """
    low, high = float(among.min()), float(among.max())
    scale = (BUCKETS - 1) / (high - low) if high > low else 0.0
    if not np.isfinite(scale):
        scale = 0.0
    bucket = np.empty(len(among), dtype=np.int64)
    for part in blocks(len(among)):
        bucket[part] = (among[part] - low) * scale
    of = ((values - low) * scale).astype(np.int64)
    above = len(among) - np.cumsum(np.bincount(bucket, minlength=BUCKETS))
    wanted = np.zeros(BUCKETS, dtype=bool)
    wanted[of] = True
    near = np.sort(among[wanted[bucket]])
    # Of the values that were sorted, those in higher buckets are counted in `above` already.
    higher = np.cumsum(np.where(wanted, np.bincount(bucket, minlength=BUCKETS), 0)[::-1])[::-1]
    beyond = len(near) - np.searchsorted(near, values, side="right")
    counts = np.append(higher, 0)
    return np.asarray(1 + above[of] + beyond - counts[of + 1])


def places_in_groups(groups: Indices) -> Indices:
    """0-based place of each element among its equals, in order."""
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups) if len(groups) else np.zeros(0, dtype=np.int64)
    place = np.empty(len(groups), dtype=np.int64)
    place[order] = runs(counts)
    return place


def runs(lengths: NDArray[np.integer]) -> Indices:
    """0..l-1 for each of `lengths`, laid end to end."""
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths))
