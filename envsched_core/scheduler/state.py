"""Saving a scheduler and carrying on: to the last bit when the catalogue is the same, by key when it is not.

State is nested dicts of plain values with arrays as leaves (no pickle) and leads with a format number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.config import RULES_BEFORE, config_from, digest
from envsched_core.errors import ContractError
from envsched_core.graph import DualRelationGraph
from envsched_core.predictor import GRIDS
from envsched_core.problem import added, terms_at
from envsched_core.records import GroupResult
from envsched_core.selection import Batch

if TYPE_CHECKING:
    from .core import EnvSched

__all__ = ["STATE_FORMAT", "load", "save"]

STATE_FORMAT = 2
"""1 had no regression, costs or shuffled relations."""


def save(s: EnvSched) -> dict[str, Any]:
    """Plain data and arrays, no pickle; leads with its format number."""
    return {
        "format": STATE_FORMAT,
        "scheduler": s.name,
        "config": msgspec.to_builtins(s.config),
        "step": s.step,
        "started": s.started,
        "catalogue": s.catalogue.state_dict(),
        "ledger": s.ledger.state_dict(),
        "predictor": s.predictor.state_dict(),
        "traces": s.traces.state_dict(),
        "graph": _graph_state(s),
        "visits": s.visits.copy(),
        "visit_shift": s.visit_clock.shift.copy(),
        "visit_now": s.visit_clock.now,
        "pending": msgspec.to_builtins(s._pending),
        "fresh_traces": s._fresh_traces,
        "counts": dict(s.counts),
        "expired": list(s._expired),
        "batch": _batch_state(s),
    }


def _graph_state(s: EnvSched) -> dict[str, Any] | None:
    if s.built is None:
        return None
    return {"version": s.built.version, "arrays": s.built.arrays(), "names": list(s.built.pattern_names)}


def _batch_state(s: EnvSched) -> dict[str, Any] | None:
    if s._batch is None:
        return None
    cells = [cell.counts.copy() for cell in s._batch.problem.cells]
    frozen = {"eligible": s._batch.problem.eligible.copy(), "reserve": s._batch.problem.reserve.copy(), "cells": cells}
    terms = s._batch.problem.terms(np.arange(len(s.catalogue)))
    return {**s._batch.state_dict(), "frozen": {**frozen, "terms": terms}}


def load(s: EnvSched, state: Mapping[str, Any]) -> None:
    """Carry on from a saved state. Register the tasks first; those that vanished are counted and dropped.

    Raises:
        ContractError: the state is of a newer format or of another scheduler.
    """
    if "format" not in state or "predictor" not in state:
        raise ContractError("this is no state of a scheduler: it has no format number")
    if int(state["format"]) > STATE_FORMAT:
        raise ContractError(f"state format {state['format']} is newer than {STATE_FORMAT}; upgrade envsched")
    if int(state["format"]) < STATE_FORMAT:
        raise ContractError(
            f"state format {state['format']} is older than {STATE_FORMAT}: its predictions cannot be carried on; start "
            "a new run, or go on with the version of envsched that saved it"
        )
    if state["scheduler"] != s.name:
        raise ContractError(f"the state is of scheduler '{state['scheduler']}', this one is '{s.name}'")
    _check_grids(s, state["config"])
    tasks, envs = s.catalogue.translate(state["catalogue"])
    same = np.array_equal(tasks, np.arange(len(s.catalogue)))
    s.counts = Counter({str(k): int(v) for k, v in state["counts"].items()})
    s.counts["state/tasks_vanished"] += int(np.count_nonzero(tasks < 0))
    s.counts["state/tasks_joined"] += len(s.catalogue) - int(np.count_nonzero(tasks >= 0))
    s.step, s.started = int(state["step"]), bool(state["started"])
    _load_graph(s, state["graph"], same)
    s.ledger.load_state_dict(state["ledger"], tasks)
    s.predictor.load_state_dict(state["predictor"], tasks, envs)
    s.traces.load_state_dict(state["traces"], tasks)
    s.visits[tasks[tasks >= 0]] = np.asarray(state["visits"])[tasks >= 0]
    s.visit_clock.shift, s.visit_clock.now = np.array(state["visit_shift"]), int(state["visit_now"])
    s._pending = [r for r in msgspec.convert(state["pending"], list[GroupResult]) if r.key in s.catalogue.index]
    s._fresh_traces = int(state["fresh_traces"])
    s._expired = tuple(state["expired"])
    same = same and digest(config_from({**RULES_BEFORE, **state["config"]})) == digest(s.config)
    _load_batch(s, state["batch"], tasks, same)


def _check_grids(s: EnvSched, saved: Mapping[str, Any]) -> None:
    """All knobs may change over a restart but those that the saved sums are laid out by."""
    for knob in ("half_lives", *GRIDS):
        was, now = tuple(saved[knob]), tuple(getattr(s.config, knob))
        if was != now:
            raise ContractError(f"the state was saved with {knob} = {was}, this scheduler has {now}; set it back")


def _load_graph(s: EnvSched, saved: Mapping[str, Any] | None, same: bool) -> None:
    if saved is None or not s.uses_graph:
        return
    graph = DualRelationGraph.from_arrays(saved["version"], saved["arrays"], saved["names"]) if same else None
    if graph is not None:
        s.built, s.predictor.graph = graph, s.as_used(graph)
    s.builder.resume(int(saved["version"]), graph)


def _load_batch(s: EnvSched, saved: Mapping[str, Any] | None, tasks: NDArray[np.int64], same: bool) -> None:
    """A step in progress goes on: to the last bit with the same catalogue and config, else with its picks kept."""
    s._batch, s._settled, s._decisions = None, None, []
    if saved is None:
        return
    problem = s._problem()
    if not same:
        s._batch = Batch(problem)
        picks = [(int(tasks[task]), int(place), how) for task, place, how, *_ in saved["chosen"] if tasks[task] >= 0]
        dropped = [int(tasks[task]) for task in saved["dropped"] if tasks[task] >= 0]
        s._batch.carry(picks, dropped, int(saved["position"]))
        return
    frozen = saved["frozen"]
    cells = [c._replace(counts=np.array(counts)) for c, counts in zip(problem.cells, frozen["cells"], strict=True)]
    terms = {name: np.asarray(values) for name, values in frozen["terms"].items()}
    problem = problem._replace(eligible=np.array(frozen["eligible"]), reserve=np.array(frozen["reserve"]), cells=cells)
    s._batch = Batch(problem._replace(terms=terms_at(terms), fixed=added(terms, len(s.catalogue))))
    s._batch.load_state_dict(saved)
