"""The Scheduler contract (protocol.py) and EnvSched (core.py, its saved state in state.py)."""

from .core import EnvSched
from .protocol import Scheduler, Worth

__all__ = ["EnvSched", "Scheduler", "Worth"]
