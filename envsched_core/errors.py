"""Every error the project raises on purpose. Each message says what, where, and what to do.

EnvSchedError
├── ConfigError            a knob is unknown, of the wrong type or out of range
├── LogFormatError         a log cannot be read (file, line)
├── ContractError          a call of ask, observe, release or register is wrong in itself
│   └── UnknownTaskError   a task or step that the scheduler does not know was asked about
└── StoreError             a run folder cannot be written or read
    ├── FormatVersionError written by a newer version than this one
    ├── LockedError        another process is writing this run
    └── DamagedError       events or arrays of a run folder are not what was written

A failed or missing rollout is data (a `GroupResult` with its status), never an exception.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "ContractError",
    "DamagedError",
    "EnvSchedError",
    "FormatVersionError",
    "LockedError",
    "LogFormatError",
    "StoreError",
    "UnknownTaskError",
]


class EnvSchedError(Exception):
    """Base of all errors that EnvSched raises on purpose."""


class ConfigError(EnvSchedError):
    """A knob is unknown, of the wrong type or out of range; names the key."""


class LogFormatError(EnvSchedError):
    """A log cannot be read; names the file, the line where there is one, and the remedy."""

    def __init__(self, message: str, *, file: str = "", line: int | None = None) -> None:
        place = f"{file}:{line}: " if line is not None else f"{file}: " if file else ""
        super().__init__(place + message)
        self.file = file
        self.line = line


class ContractError(EnvSchedError):
    """A call to a scheduler is wrong in itself (a negative batch, a step in the past)."""


class UnknownTaskError(ContractError):
    """A task or step was asked about that this scheduler never saw."""


class StoreError(EnvSchedError):
    """A run folder cannot be written or read."""


class FormatVersionError(StoreError):
    """The run folder was written by a newer format than this version reads."""


class LockedError(StoreError):
    """Another process holds the run folder's writer lock."""


class DamagedError(StoreError):
    """Events or arrays of a run folder differ from what was written."""
