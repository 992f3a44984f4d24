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

BLOCK = 1 << 15
"""Elements of a block: a quarter of a megabyte of floats, so that what a formula makes on its way stays in a cache."""
SAMPLE = 1 << 12
"""Elements that a threshold is estimated from."""
BUCKETS = 1 << 14
"""Classes of nearly equal values that ranks are counted by."""


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices of `size` that cover [0, n) in order."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def threshold(values: Floats, most: int, among: NDArray[np.bool_] | None = None) -> float:
    """A value with roughly `most` of `values` [N] at or above it, and at least one; -inf where that is all of them.

    Only those `among` [N] count, when given.
    """
    step = max(len(values) // SAMPLE, 1)
    sample = values[::step] if among is None else values[::step][among[::step]]
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

    Counted by buckets of values, even ones over all but the outermost few; only the buckets that hold one of `values`
    are sorted.
    """
    sample = among[:: max(len(among) // SAMPLE, 1)]
    ends = len(sample) // 64, len(sample) - 1 - len(sample) // 64
    low, high = np.partition(sample, ends)[list(ends)].tolist()
    scale = (BUCKETS - 3) / (high - low) if high > low else 0.0
    if not np.isfinite(scale):
        scale = 0.0

    def bucket_of(some: Floats) -> Indices:
        out = some * scale
        out += 1.0 - low * scale
        return np.asarray(np.clip(out, 0.0, BUCKETS - 1.0, out=out), dtype=np.int64)

    of = bucket_of(values)
    wanted = np.zeros(BUCKETS, dtype=bool)
    wanted[of] = True
    count, near = np.zeros(BUCKETS, dtype=np.int64), []
    for part in blocks(len(among)):  # a block has a count of every bucket
        bucket = bucket_of(among[part])
        count += np.bincount(bucket, minlength=BUCKETS)
        near.append(among[part][wanted[bucket]])
    sorted_near = np.sort(np.concatenate(near))
    above = len(among) - np.cumsum(count)
    # Of the values that were sorted, those in higher buckets are counted in `above` already.
    higher = np.append(np.cumsum(np.where(wanted, count, 0)[::-1])[::-1], 0)
    beyond = len(sorted_near) - np.searchsorted(sorted_near, values, side="right")
    return np.asarray(1 + above[of] + beyond - higher[of + 1])


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
