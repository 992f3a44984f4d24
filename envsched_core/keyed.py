"""Randomness without a stream: every number is a hash of what it is for.

A draw is keyed by (seed, step, position or task), so it does not depend on how many draws came before:
asking twice, resuming or replaying gives the same numbers. The mixer is SplitMix64 (Steele, Lea and
Flood, 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fused import Fused
from .passes import blocks

__all__ = ["below", "gumbel", "mix", "mix_each", "name_hash", "unit"]

Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_BY_30, _BY_27, _BY_31 = np.uint64(30), np.uint64(27), np.uint64(31)
_UNUSED = np.uint64(11)
"""Bits of a hash that a float has no room for."""


def name_hash(name: str) -> int:
    """64 stable bits of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def mix(hashes: Hashes, *keys: int) -> Hashes:
    """Stir integer keys into 64-bit hashes [N]; a new array."""
    out = np.array(hashes, ndmin=1)
    plain = [np.uint64(key & 0xFFFFFFFFFFFFFFFF) for key in keys]
    for part in blocks(len(out)):
        for key in plain:
            out[part] = _stirred(out[part], key)
    return out


@Fused
def _stirred(hashes: Hashes, key: np.uint64) -> Any:
    out = (hashes ^ key) + _STEP
    out = (out ^ (out >> _BY_30)) * _FIRST
    out = (out ^ (out >> _BY_27)) * _SECOND
    return out ^ (out >> _BY_31)


def mix_each(hashes: Hashes, keys: NDArray[np.int64]) -> Hashes:
    """Stir one key into each of the hashes, both [N]: element by element what `mix` makes of them."""
    return mix(hashes ^ keys.astype(np.uint64), 0)


def unit(hashes: Hashes, *keys: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) [N], 53 bits each, of the hashes with `keys` stirred in."""
    out = np.empty(len(hashes))
    for part in blocks(len(out)):
        out[part] = _unit(mix(hashes[part], *keys))
    return out


@Fused
def _unit(hashes: Hashes) -> Any:
    return (hashes >> _UNUSED) * 2.0**-53


def below(hashes: Hashes, share: float, *keys: int) -> NDArray[np.bool_]:
    """Whether `unit` of each hash [N], with `keys` stirred in, is below `share`, without the numbers."""
    out, most = np.empty(len(hashes), dtype=bool), np.uint64(math.ceil(share * 2.0**53))
    for part in blocks(len(out)):
        out[part] = _below(mix(hashes[part], *keys), most)
    return out


@Fused
def _below(hashes: Hashes, most: np.uint64) -> Any:
    return (hashes >> _UNUSED) < most


def gumbel(hashes: Hashes, *keys: int) -> NDArray[np.float64]:
    """Standard Gumbel numbers [N] of the hashes with `keys` stirred in."""
    out = unit(hashes, *keys)
    for part in blocks(len(out)):
        some = np.maximum(out[part], 2.0**-53, out=out[part])  # 0 has no logarithm
        for _ in range(2):
            np.negative(np.log(some, out=some), out=some)
    return out
