"""What a session has counted so far, beside its events: the little that no event tells, such as results of no use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from envsched_core.errors import DamagedError

from .files import COUNTERS, encode, kept_inside, read_line, replace_file

__all__ = ["Counters", "read_counters", "write_counters"]


class Counters(msgspec.Struct, frozen=True):
    """What a session had counted when it last said so."""

    step: int | None
    """The step it stood at; None before the first."""
    counts: dict[str, float]
    """Counters and gauges by name, as in `metrics`."""


def write_counters(run: Path, step: int | None, counts: Mapping[str, float]) -> None:
    """Put them in the place of those of before."""
    replace_file(run / COUNTERS, encode(Counters(step, dict(counts))) + b"\n")


def read_counters(run: Path) -> Counters | None:
    """What was last put there; None for a run that no session made.

    Raises:
        DamagedError: it cannot be read.
    """
    path = kept_inside(run, COUNTERS)
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(read_line(file, path, ""), type=Counters)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read ({error}); it may be deleted") from error
