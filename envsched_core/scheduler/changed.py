"""The same scheduler under other settings for one step: what it has learned is shared, what an ask writes is its own.

An ask changes nothing but the ledger of open picks, so a step can be decided any number of times from one
scheduler that stands before it. Only what a decision reads may change: weights, quotas, the draw, and which of the
learned trusts is used. What shaped the evidence (half-lives, ranges, the graph's knobs) stays.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from envsched_core.config import Config, digest
from envsched_core.errors import ConfigError, ContractError
from envsched_core.explanation import explanation
from envsched_core.ledger import Ledger
from envsched_core.predictor import Point, Predictor
from envsched_core.recording import Recorder
from envsched_core.records import Explanation

from .core import EnvSched
from .quotas import Quotas

__all__ = ["TRUST", "begin", "changed", "explain_all", "has_weights"]

TRUST = Point._fields[1:]
"""Parts of the trust that may be set to another value of their grids: all but the half-life."""


def begin(scheduler: EnvSched, step: int) -> None:
    """Bring a scheduler to the beginning of `step`, as its first ask does; the ask itself may follow or not.

    Raises:
        ContractError: the step was asked for already.
    """
    if scheduler.started and (step < scheduler.step or (step == scheduler.step and scheduler._decisions)):
        raise ContractError(f"step {step} cannot begin: step {scheduler.step} was asked for already")
    if not scheduler.started or step > scheduler.step:
        scheduler._begin(step)


def has_weights(scheduler: EnvSched) -> bool:
    """Whether the weights of the config say what a pick is worth; peers with a rule of their own read none."""
    return type(scheduler)._worth is EnvSched._worth


def changed(before: EnvSched, config: Config, trust: Mapping[str, float]) -> EnvSched:
    """A scheduler that decides the step `before` stands at under `config` and `trust`; `before` stays as it is.

    Results may be observed and picks released on it, no task registered and no later step asked for: it shares the
    catalogue, the evidence and the graph.

    Raises:
        ConfigError: a part of the trust is not on its grid.
    """
    after = copy.copy(before)
    after.config = config
    after.ledger = _own(before.ledger)
    after.predictor = _trusting(before.predictor, config, trust)
    after.quotas = Quotas(config, after.catalogue)
    after.recorder = Recorder(after.catalogue, after.ledger, after.predictor, config)
    after.counts = Counter(before.counts)
    after._pending = list(before._pending)
    after._digest = digest(config)
    after._batch, after._settled, after._decisions = None, None, []
    return after


def explain_all(scheduler: EnvSched, keys: Sequence[str]) -> list[Explanation]:
    """`explain` of many tasks at the latest step; those that are not on record are computed together."""
    on_record = {c.key for d in scheduler._decisions for c in d.candidates}
    away = [key for key in keys if key not in on_record]
    tasks = np.array([scheduler.catalogue.position(key) for key in away], dtype=np.int64)
    computed = {}
    if scheduler._settled is not None:
        found = scheduler.recorder.candidates(scheduler._settled, tasks, ["near_miss"] * len(away))
        computed = {c.key: explanation(c, scheduler._decisions[-1], "re-derived") for c in found}
    return [computed.get(key) or scheduler.explain(scheduler.step, key) for key in keys]


def _own(ledger: Ledger) -> Ledger:
    """A ledger that can be written to."""
    own = copy.copy(ledger)
    own.open, own.by_task, own.seen = dict(ledger.open), dict(ledger.by_task), dict(ledger.seen)
    own.drawn, own.last_pick = ledger.drawn.copy(), ledger.last_pick.copy()
    own.counts = Counter(ledger.counts)
    return own


def _trusting(predictor: Predictor, config: Config, trust: Mapping[str, float]) -> Predictor:
    """A predictor with the same evidence and another point of the trust in use."""
    own = copy.copy(predictor)
    own.config = config
    used = predictor.point
    point = Point(used.h, *(trust.get(name, getattr(used, name)) for name in TRUST))
    if point not in predictor.points:
        grids = dict(zip(TRUST, predictor.grids, strict=True))
        wrong = next((name for name, value in trust.items() if value not in grids[name]), "the trust")
        values = ", ".join(f"{value:g}" for value in grids.get(wrong, ()))
        raise ConfigError(f"{wrong} must be one of the values that this run learned over: {values}")
    own.used = predictor.points.index(point)
    return own
