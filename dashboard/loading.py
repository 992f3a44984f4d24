"""The one cached door to envsched_core.views.

A run is opened once per server and tailed; every read model is cached on (run folder, version, arguments), so
a page that reruns without news costs nothing. Pages import read models and their types from here only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import pandas as pd
import streamlit as st

from envsched_core import views
from envsched_core.views import Coverage, Explained, Filters, GraphMap, Grid, Health, RunView, Summary

__all__ = [
    "OUTCOME_CODES",
    "RUNS_VARIABLE",
    "STATES",
    "Coverage",
    "Explained",
    "Filters",
    "GraphMap",
    "Grid",
    "Health",
    "Run",
    "Summary",
    "afterwards",
    "batch",
    "comparator",
    "composition",
    "coverage",
    "ego_graph",
    "environment_graph",
    "environments",
    "explained",
    "folder",
    "group_rollouts",
    "health",
    "list_runs",
    "measures",
    "open_run",
    "outcome_counts",
    "poll",
    "quota_hits",
    "recorded",
    "recorded_rollouts",
    "rederived",
    "redundancy",
    "rivals",
    "step_list",
    "steps",
    "summary",
    "task",
    "task_keys",
    "tasks",
    "term_totals",
    "timeline",
    "variance_grid",
]

RUNS_VARIABLE = "ENVSCHED_RUNS"
"""Environment variable that names the folder of runs."""
OUTCOME_CODES = views.OUTCOME_CODES
STATES = views.STATES

P = ParamSpec("P")
R = TypeVar("R")


class Run(NamedTuple):
    """A run as it stood when the page began: the key of everything that is cached."""

    path: str
    version: int


@st.cache_resource(max_entries=8, show_spinner="Opening the run …")
def _view(path: str) -> RunView:
    return RunView(Path(path))


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs={Filters: repr})
def _read(name: str, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _MODELS[name](_view(run.path), *args, **kwargs)


_MODELS: dict[str, Callable[..., Any]] = {}


def _cached(model: Callable[Concatenate[RunView, P], R]) -> Callable[Concatenate[Run, P], R]:
    """The same read model, taking a `Run` and kept until the run changes."""
    name = model.__name__
    _MODELS[name] = model

    def read(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", _read(name, run, args, kwargs))

    return read


def folder() -> Path:
    """The folder of runs that the dashboard was started on."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs"))


def list_runs() -> pd.DataFrame:
    """The runs of the folder, as `views.runs` has them."""
    return views.runs(folder())


def open_run(path: str) -> Run:
    """Open a run (or find it open) and take in what is new.

    Raises:
        EnvSchedError: it cannot be read; the message says what to do.
    """
    view = _view(path)
    view.poll()
    return Run(path, view.version)


def poll(run: Run) -> bool:
    """Whether the run holds more than `run` knew; cheap when it does not."""
    view = _view(run.path)
    view.poll()
    return view.version != run.version


def health(run: Run) -> Health:
    """What could not be read, and how old the newest event is; never cached."""
    return _view(run.path).health()


def _step_list(view: RunView) -> list[int]:
    return view.steps()


def _recorded_rollouts(view: RunView, number: int) -> list[Any]:
    source = view.source()
    return views.group_rollouts(source, number) if source else []


step_list = _cached(_step_list)
recorded_rollouts = _cached(_recorded_rollouts)
summary = _cached(views.summary)
steps = _cached(views.steps)
measures = _cached(views.measures)
comparator = _cached(views.comparator)
batch = _cached(views.batch)
composition = _cached(views.composition)
outcome_counts = _cached(views.outcome_counts)
term_totals = _cached(views.term_totals)
redundancy = _cached(views.redundancy)
explained = _cached(views.explained)
rederived = _cached(views.rederived)
rivals = _cached(views.rivals)
timeline = _cached(views.timeline)
afterwards = _cached(views.afterwards)
recorded = _cached(views.recorded)
group_rollouts = _cached(views.group_rollouts)
task = _cached(views.task)
task_keys = _cached(views.task_keys)
tasks = _cached(views.tasks)
environment_graph = _cached(views.environment_graph)
ego_graph = _cached(views.ego_graph)
variance_grid = _cached(views.variance_grid)
coverage = _cached(views.coverage)
environments = _cached(views.environments)
quota_hits = _cached(views.quota_hits)
