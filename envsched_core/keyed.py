"""Randomness without a stream: every number is a hash of what it is for.

A draw is keyed by (seed, step, position or task), so it does not depend on how many draws came before:
asking twice, resuming or replaying gives the same numbers. The mixer is SplitMix64 (Steele, Lea and
Flood, 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["gumbel", "mix", "name_hash", "unit"]

Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def name_hash(name: str) -> int:
    """64 stable bits of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def mix(hashes: Hashes, *keys: int) -> Hashes:
    """Stir integer keys into 64-bit hashes [N]; a new array."""
    out = np.atleast_1d(hashes).copy()
    for key in keys:
        out ^= np.uint64(key & 0xFFFFFFFFFFFFFFFF)
        out += _STEP
        out = (out ^ (out >> np.uint64(30))) * _FIRST
        out = (out ^ (out >> np.uint64(27))) * _SECOND
        out ^= out >> np.uint64(31)
    return out


def unit(hashes: Hashes) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) [N], 53 bits each."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def gumbel(hashes: Hashes) -> NDArray[np.float64]:
    """Standard Gumbel numbers [N]."""
    return -np.log(-np.log(np.clip(unit(hashes), 2.0**-53, 1.0 - 2.0**-53)))
