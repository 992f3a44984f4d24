"""Randomness without a stream: every number is a hash of what it is for.

A draw is keyed by (seed, step, position or task), so it does not depend on how many draws came before:
asking twice, resuming or replaying gives the same numbers. The mixer is SplitMix64 (Steele, Lea and
Flood, 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .passes import blocks

__all__ = ["below", "gumbel", "mix", "mix_each", "name_hash", "unit"]

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
    plain = [np.uint64(key & 0xFFFFFFFFFFFFFFFF) for key in keys]
    for part in blocks(len(out)):
        for key in plain:
            _stir(out[part], key)
    return out


def _stir(hashes: Hashes, key: np.uint64) -> None:
    hashes ^= key
    hashes += _STEP
    hashes ^= hashes >> np.uint64(30)
    hashes *= _FIRST
    hashes ^= hashes >> np.uint64(27)
    hashes *= _SECOND
    hashes ^= hashes >> np.uint64(31)


def mix_each(hashes: Hashes, keys: NDArray[np.int64]) -> Hashes:
    """Stir one key into each of the hashes, both [N]: element by element what `mix` makes of them."""
    return mix(hashes ^ keys.astype(np.uint64), 0)


def unit(hashes: Hashes, *keys: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) [N], 53 bits each, of the hashes with `keys` stirred in."""
    out = np.empty(len(hashes))
    for part in blocks(len(out)):
        _unit(_stirred(hashes[part], keys), out[part])
    return out


def _stirred(hashes: Hashes, keys: Sequence[int]) -> Hashes:
    return mix(hashes, *keys) if keys else hashes


def _unit(hashes: Hashes, out: NDArray[np.float64]) -> None:
    np.multiply(hashes >> np.uint64(11), 2.0**-53, out=out)


def below(hashes: Hashes, share: float, *keys: int) -> NDArray[np.bool_]:
    """Whether `unit` of each hash [N], with `keys` stirred in, is below `share`, without the numbers."""
    out, most = np.empty(len(hashes), dtype=bool), np.uint64(math.ceil(share * 2.0**53))
    for part in blocks(len(out)):
        np.less(_stirred(hashes[part], keys) >> np.uint64(11), most, out=out[part])
    return out


def gumbel(hashes: Hashes, *keys: int) -> NDArray[np.float64]:
    """Standard Gumbel numbers [N] of the hashes with `keys` stirred in."""
    out = np.empty(len(hashes))
    for part in blocks(len(out)):
        some = out[part]
        _unit(_stirred(hashes[part], keys), some)
        np.maximum(some, 2.0**-53, out=some)  # 0 has no logarithm
        for _ in range(2):
            np.negative(np.log(some, out=some), out=some)
    return out
