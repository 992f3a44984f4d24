"""What a session counts of its own: kept in its run folder, so that pages show it and a restart goes on counting."""

from __future__ import annotations

from collections import Counter

from envsched_core.errors import StoreError
from envsched_core.store import read_counters

from .intake import whole
from .sink import Sink

__all__ = ["count_on", "own_metrics"]

TOTALS = ("failures", "lost", "unwritable")
"""What a sink counts over the whole run."""
NOW = ("waiting", "gone")


def own_metrics(counts: Counter[str], sink: Sink | None) -> dict[str, float]:
    """The counters of a session and of its sink by their names in `metrics`."""
    own = {f"session/{name}": float(count) for name, count in counts.items()}
    if sink is not None:
        own |= {f"sink/{name}": float(getattr(sink, name)) for name in (*TOTALS, *NOW)}
    return own


def count_on(counts: Counter[str], sink: Sink) -> None:
    """Take over what was counted before a restart; a file that cannot be read is as good as none."""
    try:
        told = read_counters(sink.path)
    except StoreError:
        return
    for name, count in told.counts.items() if told else ():
        kind, _, rest = name.partition("/")
        if kind == "session":
            counts[rest] += whole(count) or 0
        elif kind == "sink" and rest in TOTALS:
            setattr(sink, rest, whole(count) or 0)
