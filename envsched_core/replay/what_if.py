"""What if: one recorded step decided again under other weights, quotas or trust in a relation.

    Moment    the scheduler as it stood when the step began; `decide` any number of times
    what_if   the batch under the settings of the run and under changed ones, and why picks enter or leave

Nothing is read off the record but the calls: both batches are computed. Under unchanged settings the batch must be the
recorded one, and `Moment.fault` says where it is not. Only the one step is decided: everything before it stays as it
was, and no reward is known of what enters, so this says what the choice would have been and nothing of its effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config, config_from
from envsched_core.errors import ConfigError
from envsched_core.records import Candidate, Decision, Event, Explanation
from envsched_core.scheduler import EnvSched
from envsched_core.scheduler.changed import TRUST, changed, explain_all, has_weights
from envsched_core.store import Manifest

from .verify import first_difference

__all__ = ["LEAN", "Again", "Moment", "Move", "Setting", "WhatIf", "settings_of", "what_if"]

WEIGHTS = (
    *("weight_variance", "weight_usable", "weight_uncertainty", "weight_cost"),
    *("weight_environment", "weight_pattern", "weight_task", "weight_similarity"),
)
DRAW = ("temperature", "uniform_share")
QUOTAS = (
    *("max_share", "max_shares", "min_shares"),
    *("pin_tasks", "pin_environments", "exclude_tasks", "exclude_environments"),
)
MERGED = ("max_shares", "min_shares")
"""Settings by environment: those given are laid over those of the run."""
LEAN = {"near_misses": 0.0, "sample": 0.0}
"""For a trial of which only the picks matter: no other candidate is written down."""


class Setting(NamedTuple):
    """One thing that may be changed, and what it was."""

    name: str
    kind: Literal["weight", "draw", "quota", "relation"]
    value: Any
    choices: tuple[float, ...]
    """Values that a part of the trust can take; empty = any in the knob's range."""


class Again(NamedTuple):
    """A step decided anew."""

    decisions: tuple[Decision, ...]
    scheduler: EnvSched

    def picks(self) -> dict[str, Candidate]:
        """The picks of the step by key, in order."""
        return {c.key: c for decision in self.decisions for c in decision.candidates if c.kept_as == "pick"}

    def explain(self, key: str) -> Explanation:
        """Why a task was picked, or not, in this decision."""
        return self.scheduler.explain(self.decisions[-1].step, key)


class Move(msgspec.Struct, frozen=True):
    """A task that the changed settings bring into the batch or put out of it."""

    change: Literal["enters", "leaves"]
    key: str
    before: Explanation
    """Under the settings of the run."""
    after: Explanation


class WhatIf(msgspec.Struct, frozen=True):
    """One step under the settings of the run and under changed ones; both computed, see the module's head."""

    step: int
    changes: dict[str, tuple[Any, Any]]
    """Setting -> what it was and what it is here."""
    before: tuple[Decision, ...]
    after: tuple[Decision, ...]
    moves: tuple[Move, ...]
    """Those that enter, in order of their picks, then those that leave."""
    stay: int
    """Picks of both."""
    fault: str
    """Where the batch under the run's settings is not the recorded one; empty when it is."""
    notes: tuple[str, ...]


class Moment:
    """The scheduler of a run as it stood when a step began, and the calls of that step."""

    def __init__(self, scheduler: EnvSched, step: int, calls: tuple[Event, ...]) -> None:
        """`calls`: the events from the first ask of the step to its last."""
        self.scheduler, self.step = scheduler, step
        joined = next((i for i, event in enumerate(calls) if event.kind == "registered"), len(calls))
        self.calls = calls[:joined]
        self.notes: tuple[str, ...] = ()
        if joined < len(calls):
            self.notes = ("tasks joined in the middle of this step: only its asks before that are decided again",)
        self.recorded: tuple[Decision, ...] = tuple(event.data for event in self.calls if event.kind == "asked")
        self._unchanged: Again | None = None

    def decide(self, settings: Mapping[str, Any] | None = None, *, lean: bool = False) -> Again:
        """The step under `settings`, laid over those of the run; `lean` writes down nothing but the picks.

        Raises:
            ConfigError: a setting is unknown, out of range, or shaped what was learned before the step.
        """
        config, trust = _split(self.scheduler.config, settings or {})
        if lean:
            config = msgspec.structs.replace(config, **LEAN)
        scheduler = changed(self.scheduler, config, trust)
        asked = {pick.pick_id: pick.key for decision in self.recorded for pick in decision.picks}
        decisions = (_repeat(scheduler, event, asked) for event in self.calls)
        return Again(tuple(decision for decision in decisions if decision is not None), scheduler)

    def unchanged(self) -> Again:
        """The step under the settings of the run; computed once."""
        if self._unchanged is None:
            self._unchanged = self.decide()
        return self._unchanged

    def fault(self) -> str:
        """Where the decision under the run's settings is not the recorded one; empty when it is, to 1e-9.

        The digest of the config does not count: it also tells knobs that joined since and decide nothing here.
        """
        for recorded, computed in zip(self.recorded, self.unchanged().decisions, strict=True):
            alike = msgspec.structs.replace(computed, config_digest=recorded.config_digest)
            found = first_difference(msgspec.to_builtins(recorded), msgspec.to_builtins(alike))
            if found:
                return self._told(*found)
        return ""

    def _told(self, field: str, was: str, now: str) -> str:
        asked = [pick.key for decision in self.recorded for pick in decision.picks]
        again = len(set(asked) & self.unchanged().picks().keys())
        return (
            f"{again} of the {len(asked)} recorded picks come out again; the first difference is {field}, {was} on "
            f"record and {now} when computed again"
        )


def _split(base: Config, settings: Mapping[str, Any]) -> tuple[Config, dict[str, float]]:
    """The config and the trust that settings mean."""
    trust: dict[str, float] = {}
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name in TRUST:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{name} must be a number, got {value!r}")
            trust[name] = float(value)
        elif name not in (*WEIGHTS, *DRAW, *QUOTAS):
            known = ", ".join((*WEIGHTS, *DRAW, *QUOTAS, *TRUST))
            raise ConfigError(f"'{name}' cannot be changed for one step; these can: {known}")
        elif name in MERGED and isinstance(value, Mapping):
            values[name] = {**getattr(base, name), **value}
        else:
            values[name] = value
    return config_from(values, base), trust


def _repeat(scheduler: EnvSched, event: Event, asked: Mapping[str, str]) -> Decision | None:
    """One call of the step. A pick that was released frees the same task's place, where it is a pick here as well."""
    if event.kind == "asked":
        recorded: Decision = event.data
        return scheduler.ask(recorded.asked, step=recorded.step, policy_version=recorded.policy_version)
    if event.kind == "observed":
        scheduler.observe([event.data])
    elif event.kind == "released":
        own = {key: scheduler.ledger.by_task.get(scheduler.catalogue.index[key]) for key in asked.values()}
        ids = [own[asked[given]] if given in asked else given for given in event.data["pick_ids"]]
        scheduler.release([pick_id for pick_id in ids if pick_id], event.data["reason"])
    return None


def settings_of(manifest: Manifest, decision: Decision) -> tuple[Setting, ...]:
    """What may be changed at a recorded step, with the values in use: only what its scheduler reads.

    Raises:
        ConfigError: the scheduler is not known here.
    """
    scheduler = make_scheduler(manifest.scheduler, config_from(manifest.config))
    config, graph = scheduler.config, decision.graph_version > 0
    unread = {"weight_pattern": not graph, "weight_similarity": not graph, "weight_cost": not config.cost}
    names = [name for name in WEIGHTS if has_weights(scheduler) and not unread.get(name, False)]
    found = [Setting(name, "weight", getattr(config, name), ()) for name in names]
    found += [Setting(name, "draw", getattr(config, name), ()) for name in DRAW]
    found += [Setting(name, "quota", getattr(config, name), ()) for name in QUOTAS]
    if decision.trust is not None and has_weights(scheduler):
        for name, grid in zip(TRUST, scheduler.predictor.grids, strict=True):
            if len(grid) > 1:
                found.append(Setting(name, "relation", getattr(decision.trust, name), tuple(sorted(grid))))
    return tuple(found)


def what_if(moment: Moment, settings: Mapping[str, Any]) -> WhatIf:
    """The step of `moment` under the settings of the run and under `settings`.

    Raises:
        ConfigError: as `Moment.decide`.
    """
    before, after = moment.unchanged(), moment.decide(settings)
    was, now = before.picks(), after.picks()
    keys = [*(key for key in now if key not in was), *(key for key in was if key not in now)]
    sides = zip(keys, explain_all(before.scheduler, keys), explain_all(after.scheduler, keys), strict=True)
    moves = [Move("enters" if key in now else "leaves", key, *told) for key, *told in sides]
    return WhatIf(
        step=moment.step,
        changes={name: (_value(before.scheduler, name), _value(after.scheduler, name)) for name in settings},
        before=before.decisions,
        after=after.decisions,
        moves=tuple(moves),
        stay=len(was.keys() & now.keys()),
        fault=moment.fault(),
        notes=moment.notes,
    )


def _value(scheduler: EnvSched, name: str) -> Any:
    return getattr(scheduler.predictor.point if name in TRUST else scheduler.config, name)
