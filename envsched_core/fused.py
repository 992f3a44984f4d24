"""Formulas over all N tasks: a pass of NumPy for every operator, or one compiled loop for all of them.

A formula is a function of numbers made of operators and NumPy's functions of single elements, so that it also takes
arrays. Where numba is installed (the extra `scale`), long arrays go through one loop that numba makes of it, which
reads and writes each number once. Both give the same bits for finite floats and for hashes, so that a run does not
depend on what is installed: operators, roots and roundings are correctly rounded, and numba neither reorders nor
contracts them. Logarithms and exponentials are not, and have no place in a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .passes import BLOCK

__all__ = ["LONG", "Fused", "compiles"]

LONG = BLOCK
"""Elements from which a compiled loop is used. No more than a block, since passes over all tasks go block by block; no
fewer, since compiling takes some tenths of a second, once in a process."""


class Fused:
    """A formula of arrays of one shape, or of such arrays and numbers."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        """`formula` calls no functions but NumPy's, and `range`."""
        self.formula = formula
        self._loop: Callable[..., Any] | None = None

    def __call__(self, first: Any, *others: Any) -> Any:
        """Element by element; `first` is as long as any of `others`."""
        if np.size(first) < LONG:
            return self.formula(first, *others)
        if self._loop is None:
            self._loop = _compiled(self.formula, (first, *others))
        return self._loop(first, *others)


def compiles() -> bool:
    """Whether long arrays go through compiled loops here; compiles one to see."""

    def formula(x: Any) -> Any:
        return x + 1.0

    return _compiled(formula, (1.0,)) is not formula


def _compiled(formula: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """A loop over hashes and floats as in `arguments`; where none can be made, for whatever reason, the formula itself.

    Compiled at once: threads that come first together each make one, where a shared one would warn of the others.
    """
    numba = _numba()
    try:
        types = tuple(numba.uint64 if np.result_type(a).kind == "u" else numba.float64 for a in arguments)
        loop: Callable[..., Any] = numba.vectorize([types])(formula)
    except Exception:  # numba only saves time: whatever ails it, the formula is there
        return formula
    return loop


@cache
def _numba() -> Any:
    """The module; None where it is missing or does not start, as with a NumPy that is too new for it."""
    try:
        import numba
    except Exception:  # a broken installation may raise anything
        return None
    return numba
