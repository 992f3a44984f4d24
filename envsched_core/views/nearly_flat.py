"""Mixed groups whose rewards differ by next to nothing.

They count as mixed, since any difference gives GRPO a gradient; it may be noise of the grader all the same.
"""

from __future__ import annotations

from .run_view import RunView
from .summary import COUNTED

__all__ = ["NEARLY_FLAT", "nearly_flat"]

NEARLY_FLAT = 0.01
"""Standard deviation of a group's rewards, in parts of the reward range, below which a mixed group is nearly flat."""


def nearly_flat(view: RunView) -> tuple[int, int]:
    """How many of the counted mixed groups (`Summary.mixed`) are nearly flat, and how many these are."""
    found = view.row(
        f"SELECT count(*) FILTER (sqrt(variance) < ?) near, count(*) mixed FROM {COUNTED} WHERE mixed", [NEARLY_FLAT]
    )
    return int(found["near"]), int(found["mixed"])
