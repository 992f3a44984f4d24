"""The smallest change of one setting that would have picked a given task at a recorded step.

Each setting is tried alone: first in growing strides either way, then by bisection between the last value that did not
pick the task and the first that did, then the value found is rounded away from what it was. Every trial decides the
whole step anew, and what is told was confirmed by one more run. A pick need not come and go only once along a setting,
so a smaller change between two strides can be missed: "smallest" means the smallest that was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from envsched_core.config import config_from
from envsched_core.errors import ConfigError, UnknownTaskError
from envsched_core.scheduler.changed import TRUST

from .pool import Progress
from .what_if import Moment, Setting

__all__ = ["Change", "Smallest", "smallest_change"]

UP = (1.25, 2.0, 4.0, 16.0, 100.0)
DOWN = (0.8, 0.5, 0.25, 0.0625, 0.0)
FROM_ZERO = (0.01, 0.05, 0.25, 1.0, 5.0)
"""Factors on a setting, and values where it is 0."""
HALVINGS = 6
"""Bisections of a stride: the widest, of 6.25 times, ends within 3 %."""
BARRED = ("in_flight", "cooling_down", "unavailable")


class Change(msgspec.Struct, frozen=True):
    """One setting that picks the task when it alone is changed so."""

    kind: Literal["weight", "draw", "quota", "relation", "pin", "exclusion"]
    name: str
    """Name of the setting; for a quota the environment."""
    was: float | None
    """None where it is no number (pin, exclusion). Quotas count in picks a step."""
    needs: float | None
    settings: dict[str, Any]
    """What `Moment.decide` takes to have it."""
    position: int
    """0-based place of the task among the step's picks."""
    leave: int
    """Picks of the run's own batch that leave for it."""


class Smallest(msgspec.Struct, frozen=True):
    """What would have picked a task."""

    key: str
    picked: bool
    """Whether it was picked anyway; there are no changes then."""
    barred: str
    """Outcome code that no weight or quota can change; empty when the task could be picked."""
    changes: tuple[Change, ...]
    """Fewest other picks changed first, then the smaller part of the setting's value; the pin last."""
    tried: int
    """Times the step was decided again."""
    without: tuple[str, ...]
    """Settings that do not pick the task at any value tried."""


def smallest_change(
    moment: Moment, key: str, settings: Sequence[Setting], progress: Progress | None = None
) -> Smallest:
    """Try every setting alone until task `key` (ENV::TASK) is picked; `settings` are those of the step.

    Raises:
        UnknownTaskError: the run has no such task.
    """
    base = moment.unchanged()
    if key not in base.scheduler.catalogue.index:
        raise UnknownTaskError(f"this run had no task {key} at step {moment.step}")
    if key in base.picks():
        return Smallest(key, True, "", (), 0, ())
    search = _Search(moment, key)
    outcome = base.explain(key).candidate.outcome
    if outcome in BARRED:
        freed = search.confirmed("exclusion", "exclusion", None, None, _not_excluded(moment, key))
        return Smallest(key, False, "" if freed else outcome, tuple(freed), search.tried, ())
    found: list[Change] = []
    without = []
    numeric = [s for s in settings if s.kind in ("weight", "draw", "relation") and s.name != "uniform_share"]
    for done, setting in enumerate(numeric):
        changes = search.along(setting)
        found += changes
        without += [] if changes else [setting.name]
        if progress:
            progress(done + 1, len(numeric) + 1)
    quota = search.quota()
    without += [] if quota else ["quota"]
    ordered = sorted([*found, *quota], key=lambda change: (change.leave, _part(change), change.name))
    pinned = search.confirmed("pin", "pin_tasks", None, None, {"pin_tasks": (*moment.scheduler.config.pin_tasks, key)})
    if progress:
        progress(len(numeric) + 1, len(numeric) + 1)
    return Smallest(key, False, "", (*ordered, *pinned), search.tried, tuple(without))


def _allowed(name: str, value: float) -> bool:
    """Whether a knob may have a value."""
    try:
        config_from({name: value})
    except ConfigError:
        return False
    return True


def _part(change: Change) -> float:
    """How much of the setting the change is; a setting that was 0 counts by what it became."""
    was, needs = change.was or 0.0, change.needs or 0.0
    return abs(needs - was) / was if was else needs


def _not_excluded(moment: Moment, key: str) -> dict[str, Any]:
    """Settings that lift the task's exclusion; empty when it is not excluded."""
    config, env = moment.scheduler.config, key.split("::")[0]
    out: dict[str, Any] = {}
    if key in config.exclude_tasks:
        out["exclude_tasks"] = tuple(other for other in config.exclude_tasks if other != key)
    if env in config.exclude_environments:
        out["exclude_environments"] = tuple(other for other in config.exclude_environments if other != env)
    return out


class _Search:
    """Trials for one task."""

    def __init__(self, moment: Moment, key: str) -> None:
        self.moment, self.key, self.tried = moment, key, 0

    def picks(self, settings: Mapping[str, Any]) -> bool:
        """Whether the task is picked under `settings`."""
        self.tried += 1
        return self.key in self.moment.decide(settings, lean=True).picks()

    def confirmed(
        self, kind: Any, name: str, was: float | None, needs: float | None, settings: dict[str, Any]
    ) -> list[Change]:
        """The change, once a full run with it has picked the task; else nothing."""
        if not settings:
            return []
        self.tried += 1
        picks = self.moment.decide(settings).picks()
        if self.key not in picks:
            return []
        leave = len(self.moment.unchanged().picks().keys() - picks.keys())
        return [Change(kind, name, was, needs, settings, picks[self.key].position or 0, leave)]

    def along(self, setting: Setting) -> list[Change]:
        """The smallest change of one setting in either direction."""
        if setting.name in TRUST:
            values = sorted(setting.choices, key=lambda value: abs(value - setting.value))
            first = next((v for v in values if v != setting.value and self.picks({setting.name: v})), None)
            return [] if first is None else self._change(setting, first)
        return [change for way in _ways(float(setting.value)) for change in self._one_way(setting, way)]

    def _one_way(self, setting: Setting, way: Sequence[float]) -> list[Change]:
        missed = float(setting.value)
        for value in (value for value in way if _allowed(setting.name, value)):
            if self.picks({setting.name: value}):
                return self._change(setting, self._between(setting.name, missed, value))
            missed = value
        return []

    def _between(self, name: str, missed: float, hit: float) -> float:
        """Bisection, in logs where both are positive; the result is one that picks."""
        start = missed
        for _ in range(HALVINGS):
            middle = math.sqrt(missed * hit) if missed > 0 and hit > 0 else (missed + hit) / 2
            if self.picks({name: middle}):
                hit = middle
            else:
                missed = middle
        rounded = _away(hit, start)
        return rounded if _allowed(name, rounded) and self.picks({name: rounded}) else hit

    def _change(self, setting: Setting, value: float) -> list[Change]:
        return self.confirmed(setting.kind, setting.name, float(setting.value), value, {setting.name: value})

    def quota(self) -> list[Change]:
        """The fewest further picks of its environment that let the task in."""
        env = self.key.split("::")[0]
        base = self.moment.unchanged().scheduler
        size = max(base.config.batch_size, sum(d.asked for d in self.moment.recorded))
        limit = int(base._limits(size)[base.catalogue.env_names.index(env)])

        def raised(picks: int) -> dict[str, Any]:
            return {"max_shares": {env: picks / size}}

        if limit >= size or not self.picks(raised(size)):
            return []
        missed, hit = limit, size
        for stride in _doubling(limit, size):
            if self.picks(raised(stride)):
                hit = stride
                break
            missed = stride
        while hit - missed > 1:
            middle = (missed + hit) // 2
            missed, hit = (missed, middle) if self.picks(raised(middle)) else (middle, hit)
        return self.confirmed("quota", env, float(limit), float(hit), raised(hit))


def _ways(value: float) -> list[list[float]]:
    """Growing strides upwards, and downwards to 0."""
    if value == 0.0:
        return [list(FROM_ZERO)]
    return [[value * factor for factor in UP], [value * factor for factor in DOWN]]


def _doubling(limit: int, size: int) -> Iterator[int]:
    """`limit` + 1, + 2, + 4, ... below `size`."""
    stride = 1
    while limit + stride < size:
        yield limit + stride
        stride *= 2


def _away(value: float, start: float) -> float:
    """`value` to three significant digits, rounded away from `start`."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    rounded = (math.ceil if value > start else math.floor)(value / unit) * unit
    return float(f"{rounded:.6g}")
