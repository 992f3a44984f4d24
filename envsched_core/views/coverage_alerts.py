"""What deserves a look: stuck tasks, concentration, environments left behind, rewards that fall or hardly differ.

Every alert has a rule with a number in it, told in `alerts`; none is a verdict. A run without one is not thereby good.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .cold_start import stuck_tasks
from .coverage_balance import visit_balance
from .coverage_quotas import quota_use
from .nearly_flat import nearly_flat
from .run_view import RunView
from .trends import coverage, environments, reward_trend

__all__ = ["alerts"]

TRIES = 3
"""Visits from which a task that gave nothing is called stuck."""
WINDOW = 10
"""Steps over which concentration is judged."""
PART = 5
"""The last of so many equal parts of the run is held against the one before it."""
ERRORS = 3.0
"""Standard errors by which a part must fall below the one before it."""
FEWEST = 64
"""Groups in each part below which no fall is told."""
FEW = 0.03
"""Nearly flat groups up to this part of the mixed ones are not told."""


def alerts(view: RunView) -> pd.DataFrame:
    """One row an alert that holds; none where nothing is out of the ordinary.

    Columns: alert, count, of (what `count` is a part of, or is held against; missing where nothing is), step (where
    it shows; missing = the whole run).
    stuck: tasks visited at least `TRIES` times without a usable or a non-lowest reward; of all tasks seen.
    never_visited: environments without a visit although uniform draws of as many picks would be expected to leave
    less than half an environment out; of all environments.
    concentrated: effective number of environments over the last `WINDOW` steps, below 90 % of simulated uniform
    draws; against their mean.
    below_floor: environments that fell short of their smallest share at some step; of those that have one.
    fewer_mixed, lower_reward: share of mixed groups, mean reward, in the last fifth of the steps, lower than in the
    fifth before it by more than `ERRORS` standard errors; against that.
    nearly_flat: mixed groups whose rewards differ by less than `NEARLY_FLAT`, if more than `FEW` of all mixed groups;
    of those.
    unreadable: lines or files of which nothing could be taken in; of all lines.
    """
    rows: list[tuple[str, float, float | None, int | None]] = []
    stuck = stuck_tasks(view, TRIES)
    table = environments(view)
    if len(stuck):
        rows.append(("stuck", len(stuck), float(table["tasks_seen"].sum()), None))
    rows += _left_out(view, table) + _concentrated(view) + _floors(view) + _falls(view) + _nearly_flat(view)
    health = view.health()
    if health.unread:
        rows.append(("unreadable", health.unread, health.events + health.unread, None))
    found = pd.DataFrame(rows, columns=["alert", "count", "of", "step"])
    return found.astype({"count": "float64", "of": "float64", "step": "Int64"})


def _left_out(view: RunView, table: pd.DataFrame) -> list[tuple[str, float, float | None, int | None]]:
    over_time = coverage(view)
    never = int((table["tasks_seen"] == 0).sum())
    if over_time.table.empty or not never:
        return []
    left = over_time.environments - float(over_time.table["uniform_environments"].iloc[-1])
    return [("never_visited", never, over_time.environments, None)] if left < 0.5 else []


def _concentrated(view: RunView) -> list[tuple[str, float, float | None, int | None]]:
    table = visit_balance(view, WINDOW, most_points=1).table.tail(1)
    for row in table.to_dict("records"):
        if row["effective"] < row["uniform_effective_low"]:
            return [("concentrated", row["effective"], row["uniform_effective"], int(row["step"]))]
    return []


def _floors(view: RunView) -> list[tuple[str, float, float | None, int | None]]:
    table = quota_use(view)
    short = int((table["below_floor"] > 0).sum())
    return [("below_floor", short, float((table["floor_picks"] > 0).sum()), None)] if short else []


def _falls(view: RunView) -> list[tuple[str, float, float | None, int | None]]:
    table = reward_trend(view)
    size = len(table) // PART
    last, before = table.tail(size), table.iloc[len(table) - 2 * size : len(table) - size]
    n, m = float(last["groups"].sum()), float(before["groups"].sum())
    if min(n, m) < FEWEST:
        return []
    rows: list[tuple[str, float, float | None, int | None]] = []
    for alert, column in (("fewer_mixed", "informative_share"), ("lower_reward", "mean_reward")):
        now, then = (float(np.average(part[column], weights=part["groups"])) for part in (last, before))
        # The variance of a share of groups; for a mean of rewards in [0, 1] it is an upper bound.
        error = np.sqrt(now * (1.0 - now) / n + then * (1.0 - then) / m)
        if then - now > ERRORS * error:
            rows.append((alert, now, then, int(last["step"].iloc[0])))
    return rows


def _nearly_flat(view: RunView) -> list[tuple[str, float, float | None, int | None]]:
    near, mixed = nearly_flat(view)
    return [("nearly_flat", near, mixed, None)] if near > FEW * mixed else []
