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

from .passes import blocks

__all__ = ["LONG", "Fused", "compiles"]

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
        if len(first) < LONG:
            return self.formula(first, *others)
        if self._loop is None:
            self._loop = _compiler()(self.formula)
        return self._loop(first, *others)


def compiles() -> bool:
    """Whether long arrays go through compiled loops here."""
    return _compiler() is not _in_blocks


@cache
def _compiler() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes a loop of a formula: numba, or blocks where it is not there or does not fit this NumPy."""
    try:
        import numba
    except ImportError:
        return _in_blocks
    return cast("Callable[[Callable[..., Any]], Callable[..., Any]]", numba.vectorize)


def _in_blocks(formula: Callable[..., Any]) -> Callable[..., Any]:
    """The formula block by block, so that what it makes on its way stays in the cache."""

    def loop(*arguments: Any) -> Any:
        found = [
            formula(*(some[part] if isinstance(some, np.ndarray) else some for some in arguments))
            for part in blocks(len(arguments[0]))
        ]
        return np.concatenate(found) if len(found) > 1 else found[0]

    return loop
