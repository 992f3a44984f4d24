"""The one cached door to envsched_core.views.

A run is opened once per server and tailed; every read model is cached on (run folder, version, arguments), so
a page that reruns without news costs nothing. Pages import read models and their types from here only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import pandas as pd
import streamlit as st

from envsched_core import views
from envsched_core.views import (
    Balance,
    BatchChange,
    Comparability,
    Comparison,
    Counted,
    Coverage,
    EdgeFacts,
    EnvironmentMap,
    Explained,
    Filters,
    FirstSteps,
    GraphMap,
    Grid,
    Health,
    Kinds,
    LogCheck,
    LogFacts,
    Moments,
    RawLine,
    Rearranged,
    Report,
    RunView,
    Setting,
    Smallest,
    Summary,
    TaskGrid,
    Verified,
    Visits,
    csv_bytes,
    report_page,
    report_print,
)

__all__ = [
    "NEARLY_FLAT",
    "OUTCOME_CODES",
    "RUNS_VARIABLE",
    "STATES",
    "Balance",
    "BatchChange",
    "Comparability",
    "Comparison",
    "Counted",
    "Coverage",
    "EdgeFacts",
    "EnvironmentMap",
    "Explained",
    "Filters",
    "FirstSteps",
    "GraphMap",
    "Grid",
    "Health",
    "Kinds",
    "LogCheck",
    "LogFacts",
    "Progress",
    "RawLine",
    "Rearranged",
    "Report",
    "Run",
    "Setting",
    "Smallest",
    "Summary",
    "TaskGrid",
    "Verified",
    "Visits",
    "afterwards",
    "alerts",
    "alike_matrix",
    "batch",
    "batch_change",
    "calibration_curve",
    "check_log",
    "comparability",
    "comparator",
    "compare",
    "composition",
    "coverage",
    "csv_bytes",
    "edge_facts",
    "ego_graph",
    "environment_graph",
    "environment_map",
    "environments",
    "errors_by_source",
    "errors_by_state",
    "evidence_flow",
    "evidence_reached",
    "evidence_states",
    "explained",
    "filtered_steps",
    "find_tasks",
    "first_evidence",
    "first_steps",
    "folder",
    "format_versions",
    "group_rollouts",
    "guesses",
    "health",
    "import_drops",
    "ingest_lags",
    "interval_coverage",
    "invariants",
    "kinds_reached",
    "list_runs",
    "log_facts",
    "log_files",
    "log_gaps",
    "measures",
    "neighbours",
    "odd_counts",
    "open_run",
    "outcome_counts",
    "picks_by_state",
    "poll",
    "quota_hits",
    "quota_steps",
    "quota_use",
    "rank_correlations",
    "raw_line",
    "recorded",
    "recorded_rollouts",
    "rederived",
    "redundancy",
    "relaxations",
    "report",
    "report_page",
    "report_print",
    "reward_trend",
    "rivals",
    "rollouts_seen",
    "session_counts",
    "smallest_change",
    "source_shares",
    "step_list",
    "steps",
    "stuck_tasks",
    "summary",
    "task",
    "task_graph",
    "task_grid",
    "task_keys",
    "tasks",
    "term_totals",
    "timeline",
    "transfer_off",
    "trust",
    "unreadable_lines",
    "variance_grid",
    "variance_means",
    "verify_run",
    "visit_balance",
    "visit_grid",
    "visits_by_environment",
    "what_if",
    "what_if_settings",
]

RUNS_VARIABLE = "ENVSCHED_RUNS"
"""Environment variable that names the folder of runs."""
NEARLY_FLAT = views.NEARLY_FLAT
OUTCOME_CODES = views.OUTCOME_CODES
STATES = views.STATES

WAIT_SECONDS = 0.2
"""Between two looks at how far another session has read."""

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

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


def _fresh(model: Callable[Concatenate[RunView, P], R]) -> Callable[Concatenate[Run, P], R]:
    """A read model of files that may change without an event, taking a `Run`; never cached."""

    def read(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return model(_view(run.path), *args, **kwargs)

    return read


def folder() -> Path:
    """The folder of runs that the dashboard was started on."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs"))


def list_runs() -> pd.DataFrame:
    """The runs of the folder, as `views.runs` has them."""
    return views.runs(folder())


def open_run(path: str, told: Progress | None = None) -> Run:
    """Open a run (or find it open) and take in what is new; `told` hears of bytes while that takes long.

    Raises:
        EnvSchedError: it cannot be read; the message says what to do.
    """
    view = _view(path)
    view.poll(told)
    while part := view.reading:  # another session reads it: what is there by now is not the run
        if told is not None:
            told(*part)
        time.sleep(WAIT_SECONDS)
        view.poll(told)
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
filtered_steps = _cached(views.filtered_steps)
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
task_graph = _cached(views.task_graph)
environment_map = _cached(views.environment_map)
neighbours = _cached(views.neighbours)
edge_facts = _cached(views.edge_facts)
find_tasks = _cached(views.find_tasks)
evidence_flow = views.evidence_flow
variance_grid = _cached(views.variance_grid)
coverage = _cached(views.coverage)
environments = _cached(views.environments)
quota_hits = _cached(views.quota_hits)
task_grid = _cached(views.task_grid)
calibration_curve = _cached(views.calibration_curve)
rank_correlations = _cached(views.rank_correlations)
interval_coverage = _cached(views.interval_coverage)
variance_means = _cached(views.variance_means)
visit_grid = _cached(views.visit_grid)
visits_by_environment = _cached(views.visits_by_environment)
visit_balance = _cached(views.visit_balance)
kinds_reached = _cached(views.kinds_reached)
quota_use = _cached(views.quota_use)
quota_steps = _cached(views.quota_steps)
relaxations = _cached(views.relaxations)
alerts = _cached(views.alerts)
reward_trend = _cached(views.reward_trend)
batch_change = _cached(views.batch_change)
alike_matrix = _cached(views.alike_matrix)
errors_by_source = _cached(views.errors_by_source)
errors_by_state = _cached(views.errors_by_state)
evidence_reached = _cached(views.evidence_reached)
evidence_states = _cached(views.evidence_states)
first_evidence = _cached(views.first_evidence)
first_steps = _cached(views.first_steps)
guesses = _cached(views.guesses)
picks_by_state = _cached(views.picks_by_state)
rollouts_seen = _cached(views.rollouts_seen)
source_shares = _cached(views.source_shares)
stuck_tasks = _cached(views.stuck_tasks)
transfer_off = _cached(views.transfer_off)
trust = _cached(views.trust)
import_drops = _cached(views.import_drops)
invariants = _cached(views.invariants)
odd_counts = _cached(views.odd_counts)
log_facts = _fresh(views.log_facts)
session_counts = _fresh(views.session_counts)
log_files = _fresh(views.log_files)
log_gaps = _cached(views.log_gaps)
format_versions = _cached(views.format_versions)
ingest_lags = _fresh(views.ingest_lags)
unreadable_lines = _fresh(views.unreadable_lines)
raw_line = _fresh(views.raw_line)
check_log = _fresh(views.check_log)
verify_run = _fresh(views.verify_run)


def _compare(view: RunView, other: Run) -> Comparison:
    return views.compare(view, _view(other.path))


def _report(view: RunView, other: Run | None, step: int | None = None, task: str | None = None) -> Report:
    return views.report(view, step=step, task=task, other=None if other is None else _view(other.path))


def _comparability(view: RunView, other: Run) -> Comparability:
    return views.comparability(view, _view(other.path))


@st.cache_resource
def _moments() -> Moments:
    return Moments()


compare = _cached(_compare)
report = _cached(_report)
comparability = _cached(_comparability)
what_if_settings = _cached(views.what_if_settings)


def what_if(run: Run, step: int, settings: Mapping[str, Any], progress: Progress) -> Rearranged:
    """A step decided again under other settings: computed, and kept while it is not asked otherwise."""
    return _moments().what_if(_view(run.path), step, settings, progress)


def smallest_change(run: Run, step: int, key: str, progress: Progress) -> Smallest:
    """The smallest change of each setting that would have picked task `key`; computed."""
    return _moments().smallest_change(_view(run.path), step, key, progress)
