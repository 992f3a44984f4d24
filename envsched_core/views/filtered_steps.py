"""Which steps hold something that passes the page's filters: where previous and next go."""

from __future__ import annotations

from .batch import Filters
from .run_view import RunView

__all__ = ["filtered_steps"]


def filtered_steps(view: RunView, filters: Filters) -> list[int]:
    """Steps with a pick that passes, in order; all steps without a filter.

    With outcomes among the filters every candidate on record counts, since most outcomes are those of tasks that were
    not picked. In a log without decisions a step passes with a group of a chosen environment.
    """
    if not (filters.environments or filters.outcomes or filters.states):
        return view.steps()
    known = "candidates" if view.row("SELECT count(*) n FROM decisions")["n"] else "groups_raw"
    tests, values = [], {}
    for column, chosen in (("env", filters.environments), ("outcome", filters.outcomes), ("state", filters.states)):
        if chosen and (known == "candidates" or column == "env"):
            tests.append(f"list_contains(${column}, {column})")
            values[column] = list(chosen)
    if known == "candidates" and not filters.outcomes:
        tests.append("kept_as = 'pick'")
    found = view.query(
        f"SELECT DISTINCT step FROM {known} WHERE {' AND '.join(['step >= 0', *tests])} ORDER BY step", values
    )
    return [int(step) for step in found["step"]]
