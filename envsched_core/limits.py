"""The limits on what is read: each with its environment variable, its default and what it is for.

A log and a run folder are untrusted: what they claim is checked against these before memory or time is spent on it.
A breach is an error, or the loss of one record, that names file and place and says which variable raises the limit.
The variables are read when a file is opened, so that they hold from any shell and for the dashboard alike.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .errors import ConfigError

__all__ = [
    "ARCHIVE_MEMBERS",
    "ARRAY_BYTES",
    "LIMITS",
    "MANIFEST_BYTES",
    "RECORD_BYTES",
    "ROWS",
    "RUN_BYTES",
    "RUN_LINE_BYTES",
    "UNPACKED_BYTES",
    "UNPACKED_TIMES",
    "Limit",
]


class Limit(NamedTuple):
    """One limit."""

    variable: str
    """Environment variable that changes it."""
    default: int
    unit: str
    """What is counted."""
    what: str
    """What it holds for."""

    def now(self) -> int:
        """The limit as it is set.

        Raises:
            ConfigError: the variable holds no whole number from 1 on.
        """
        given = os.environ.get(self.variable, "").strip().replace("_", "")
        if not given:
            return self.default
        if not (given.isascii() and given.isdecimal() and len(given) < 19 and int(given)):
            raise ConfigError(
                f"{self.variable} is no whole number from 1 on: set it to a number of {self.unit}, or unset it"
            )
        return int(given)

    def remedy(self) -> str:
        """What to say to who needs more."""
        return f"the limit; {self.variable} raises it"


RECORD_BYTES = Limit(
    "ENVSCHED_MAX_RECORD_BYTES", 64 * 2**20, "bytes", "a line, array item, table row or archive member of a log"
)
ROWS = Limit("ENVSCHED_MAX_ROWS", 100_000_000, "rows", "all files of one import")
UNPACKED_BYTES = Limit("ENVSCHED_MAX_UNPACKED_BYTES", 2**36, "bytes", "what a packed file or .eval archive unpacks to")
UNPACKED_TIMES = Limit(
    "ENVSCHED_MAX_UNPACKED_TIMES", 1_000, "times", "how far a packed file or archive member of a log may unpack"
)
ARCHIVE_MEMBERS = Limit("ENVSCHED_MAX_ARCHIVE_MEMBERS", 500_000, "members", "an .eval archive or packed run")
MANIFEST_BYTES = Limit("ENVSCHED_MAX_MANIFEST_BYTES", 64 * 2**20, "bytes", "run.json of a run folder")
RUN_LINE_BYTES = Limit(
    "ENVSCHED_MAX_RUN_LINE_BYTES", 128 * 2**20, "bytes", "a line of tasks, tools or rollouts of a run folder"
)
ARRAY_BYTES = Limit("ENVSCHED_MAX_ARRAY_BYTES", 2**32, "bytes", "what an .npz file of a run folder unpacks to")
RUN_BYTES = Limit("ENVSCHED_MAX_RUN_BYTES", 2**30, "bytes", "what a packed archive of runs unpacks to")

LIMITS = (
    *(RECORD_BYTES, ROWS, UNPACKED_BYTES, UNPACKED_TIMES, ARCHIVE_MEMBERS),
    *(MANIFEST_BYTES, RUN_LINE_BYTES, ARRAY_BYTES, RUN_BYTES),
)
"""All of them, in the order in which the documents list them."""
