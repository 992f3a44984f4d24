"""Several worlds at once -> one row a scheduler: the mean over the worlds, with its interval.

The worlds are a fixed set (M, E, H at some base strengths): what is resampled is world seeds and run seeds within each,
not which of them there are (a stratified bootstrap; Davison and Hinkley 1997, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.testbed import Curve

from .curves import BASELINE, OURS, REFERENCE, Runs, early_share
from .rows import cell

__all__ = ["Overall", "overall", "overall_rows"]

DRAWS = 2000

Floats = NDArray[np.float64]
Three = tuple[float, float, float]
Number = Callable[[Curve], float]
Pair = tuple[Floats, Floats]
"""Numerators and denominators of one world [world seeds, run seeds]."""


class Overall(msgspec.Struct, frozen=True):
    """One scheduler, mean over worlds. Intervals are 95 %: mean, low, high."""

    headroom_captured: Three | None
    """By area; over the worlds in which the oracle gains something. None without the oracle."""
    difference_area: Three
    """Paired difference of the area to uniform."""
    envsched_minus: Three | None
    """EnvSched's area minus this one's; None without EnvSched, and for itself."""
    difference_at_equal_calls: Three
    """As `difference_area`, over as many tool calls as both runs of a pair made, in place of steps."""
    envsched_minus_at_equal_calls: Three | None
    """As `envsched_minus`, the same way."""
    early_informative_ratio: Three | None
    """Mixed share of the first three steps over uniform's."""
    tool_calls_ratio: Three | None
    """Tool calls over uniform's."""


def overall(found: Sequence[Runs]) -> dict[str, Overall]:
    """Every scheduler that ran in all worlds."""
    names = [name for name in found[0].names if all(name in runs.names for runs in found)]
    return {name: _overall(name, found) for name in names}


def _overall(name: str, found: Sequence[Runs]) -> Overall:
    area = Curve.area
    referred = REFERENCE in found[0].names and all(REFERENCE in runs.names for runs in found)
    rooms = [(runs.gain(name, area), runs.gain(REFERENCE, area)) for runs in found] if referred else []
    ahead = name != OURS and all(OURS in runs.names for runs in found)
    gains = [runs.gain(name, area) for runs in found]
    return Overall(
        headroom_captured=_mean([pair for pair in rooms if pair[1].mean() > 0]),
        difference_area=_mean_of(gains),
        envsched_minus=_mean_of([runs.gain(OURS, area, over=name) for runs in found]) if ahead else None,
        difference_at_equal_calls=_mean_of([runs.gain_at_equal_calls(name) for runs in found]),
        envsched_minus_at_equal_calls=(
            _mean_of([runs.gain_at_equal_calls(OURS, over=name) for runs in found]) if ahead else None
        ),
        early_informative_ratio=_ratio(name, found, early_share),
        tool_calls_ratio=_ratio(name, found, lambda c: c.tool_calls),
    )


def _ratio(name: str, found: Sequence[Runs], number: Number) -> Three | None:
    """A number over uniform's, in each world."""
    pairs = [(runs.of(name, number), runs.of(BASELINE, number)) for runs in found]
    return _mean([pair for pair in pairs if pair[1].mean() > 0])


def _mean_of(values: Sequence[Floats]) -> Three:
    return _mean([(one, np.ones_like(one)) for one in values]) or (np.nan, np.nan, np.nan)


def _mean(pairs: Sequence[Pair]) -> Three | None:
    """Mean over worlds of the ratio of means in each, and its interval; None for no world."""
    if not pairs:
        return None
    rng = np.random.default_rng(0)
    drawn = np.zeros(DRAWS)
    for tops, below in pairs:
        worlds = rng.integers(tops.shape[0], size=(DRAWS, tops.shape[0], 1))
        seeds = rng.integers(tops.shape[1], size=(DRAWS, *tops.shape))
        top, bottom = (values[worlds, seeds].sum(axis=(1, 2)) for values in (tops, below))
        drawn += np.divide(top, bottom, out=np.full(DRAWS, np.nan), where=bottom > 0) / len(pairs)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    mean = float(np.mean([tops.sum() / below.sum() for tops, below in pairs]))
    return mean, float(low), float(high)


def overall_rows(rows: Mapping[str, Overall]) -> Iterator[list[str]]:
    """A row a scheduler, with a head."""
    names = Overall.__struct_fields__
    yield ["scheduler", *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]
    for name, one in rows.items():
        threes = [getattr(one, field) or (None, None, None) for field in names]
        yield [name, *(cell(value) for three in threes for value in three)]
