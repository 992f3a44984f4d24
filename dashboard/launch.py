"""Starts `envsched train` as a process of its own: it goes on when the page, or the dashboard, is closed.

The dashboard itself writes nothing: the new process owns the run folder. Only offered while the dashboard is
bound to loopback, since whoever can open the page could otherwise start processes on this machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["LOOPBACK", "Launch", "can_train", "free_name", "problem_of", "start"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Launch(NamedTuple):
    """A process that was started."""

    name: str
    """Of its run, inside the folder of runs."""
    process: subprocess.Popen[bytes]
    said: Path
    """What it printed to stderr."""


def can_train() -> bool:
    """Whether the closed loop can run here (it needs numba, the extra `train`)."""
    return find_spec("numba") is not None


def free_name(folder: Path, stem: str) -> str:
    """A name that no run of the folder has."""
    taken = {path.name for path in folder.glob(f"{stem}*")}
    return next(name for i in range(len(taken) + 1) if (name := stem if i == 0 else f"{stem}-{i + 1}") not in taken)


def problem_of(folder: Path, name: str) -> str | None:
    """Why a run of that name cannot be started; None when it can."""
    if not SAFE_NAME.fullmatch(name):
        return "A name has letters, digits, dots, dashes and underscores, and starts with a letter or digit."
    return "There is a run of that name already." if (folder / name).exists() else None


def start(folder: Path, name: str, *, world: str, scheduler: str, steps: int, seed: int) -> Launch:
    """Start the process; it detaches from this one.

    Raises:
        OSError: it cannot be started.
    """
    options = {"--world": world, "--scheduler": scheduler, "--steps": steps, "--seed": seed, "--out": folder / name}
    command = [sys.executable, "-m", "envsched_core.cli", "train", *(str(x) for pair in options.items() for x in pair)]
    with tempfile.NamedTemporaryFile(prefix="envsched-", suffix=".log", delete=False) as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
    return Launch(name, process, Path(said.name))
