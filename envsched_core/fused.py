"""Formulas over all N tasks: a pass of NumPy for every operator, or one compiled loop for all of them.

A formula is a function of numbers made of operators and NumPy's functions of single elements, so that it also takes
arrays. Where numba is installed (the extra `scale`), long arrays go through one loop that numba makes of it; a tenth
of the time is usual, since each number is read and written once. Both give the same bits, so that a run does not
depend on what is installed: operators, roots and roundings are exact in IEEE 754, and numba neither reorders nor
contracts them. Logarithms and exponentials are not exact and have no place in a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

__all__ = ["LONG", "Fused"]

LONG = 1 << 14
"""Elements from which a compiled loop is used: with fewer, a second for the compiler is never earned back."""


class Fused:
    """A formula of arrays of one length, or of such arrays and numbers; the first argument is an array."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        """`formula` calls no other function than NumPy's."""
        self.formula = formula
        self._loop: Callable[..., Any] | None = None

    def __call__(self, first: np.ndarray[Any, Any], *others: Any) -> Any:
        """Element by element; a new array."""
        if first.size < LONG:
            return self.formula(first, *others)
        if self._loop is None:
            self._loop = _compiler()(self.formula)
        return self._loop(first, *others)


@cache
def _compiler() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes a loop of a formula; without numba, or with one that does not fit this NumPy, the formula stays."""
    try:
        import numba
    except ImportError:
        return lambda formula: formula
    return cast("Callable[[Callable[..., Any]], Callable[..., Any]]", numba.vectorize)
