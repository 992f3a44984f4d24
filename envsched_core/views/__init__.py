"""Read models: everything a page shows of a run folder comes from here, and nothing is recomputed to be shown.

    run_view   RunView: tails the events into tables        intake, tables  events to rows
    runs       the runs of a folder                         summary         headline numbers, one row a step
    batch      one step's batch                             decision        one task at one step
    tasks      the catalogue                                graph_map       tasks of the graph: one, an environment, all
    graph_edges, graph_flow  an edge's parts; evidence      graph_envs      environments as nodes; finding a task
    variance_cells, variance_truth  variance by step, and was the prediction right?
    trends     coverage, quota hits, trust over the run     compare         two runs side by side
    coverage_balance, coverage_kinds, coverage_quotas, coverage_alerts  how evenly, which kinds, what limits did
    nearly_flat  mixed groups that differ by next to nothing
    comparable whether two runs can be compared             what_if         a step decided again
    filtered_steps  where previous and next go
    cold_start, first_steps  before there was data        log_health, log_check    can these numbers be trusted?
    report     what a run amounts to, for people who were not there; report_page makes files of it

What a table's columns mean stands in its docstring.

The exceptions compute and say so: `rederived` (a decision that was not on record) and `what_if`.
Text in the tables comes from logs and is untrusted.
"""

from .batch import (
    BatchChange,
    Filters,
    alike_matrix,
    batch,
    batch_change,
    composition,
    outcome_counts,
    redundancy,
    term_totals,
)
from .cold_start import (
    errors_by_source,
    errors_by_state,
    evidence_reached,
    evidence_states,
    first_evidence,
    guesses,
    picks_by_state,
    rollouts_seen,
    source_shares,
    stuck_tasks,
    transfer_off,
)
from .comparable import Comparability, comparability
from .compare import Comparison, compare
from .counters import Counted, session_counts
from .coverage_alerts import alerts
from .coverage_balance import Balance, Visits, visit_balance, visit_grid
from .coverage_kinds import Kinds, kinds_reached
from .coverage_quotas import quota_steps, quota_use, relaxations
from .csv_table import csv_bytes
from .decision import Explained, afterwards, explained, group_rollouts, recorded, rederived, rivals, timeline
from .filtered_steps import filtered_steps
from .first_steps import FirstSteps, first_steps
from .graph_edges import EdgeFacts, edge_facts
from .graph_envs import EnvironmentMap, environment_map, find_tasks
from .graph_flow import evidence_flow
from .graph_map import GraphMap, ego_graph, environment_graph, neighbours, task_graph
from .log_check import LogCheck, Verified, check_log, verify_run
from .log_health import (
    LogFacts,
    RawLine,
    format_versions,
    import_drops,
    ingest_lags,
    invariants,
    log_facts,
    log_files,
    log_gaps,
    odd_counts,
    raw_line,
    unreadable_lines,
)
from .nearly_flat import NEARLY_FLAT
from .report import Report, report
from .report_facts import visits_by_environment
from .run_view import OUTCOME_CODES, STATES, Health, RunView
from .runs import runs
from .summary import Comparator, Summary, comparator, measures, steps, summary
from .tasks import task, task_keys, tasks
from .trends import Coverage, coverage, environments, quota_hits, reward_trend, trust
from .variance_cells import Grid, TaskGrid, task_grid, variance_grid
from .variance_truth import calibration_curve, interval_coverage, rank_correlations, variance_means
from .what_if import Moments, Rearranged, Setting, Smallest, what_if_settings

__all__ = [
    "NEARLY_FLAT",
    "OUTCOME_CODES",
    "STATES",
    "Balance",
    "BatchChange",
    "Comparability",
    "Comparator",
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
    "Moments",
    "RawLine",
    "Rearranged",
    "Report",
    "RunView",
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
    "format_versions",
    "group_rollouts",
    "guesses",
    "import_drops",
    "ingest_lags",
    "interval_coverage",
    "invariants",
    "kinds_reached",
    "log_facts",
    "log_files",
    "log_gaps",
    "measures",
    "neighbours",
    "odd_counts",
    "outcome_counts",
    "picks_by_state",
    "quota_hits",
    "quota_steps",
    "quota_use",
    "rank_correlations",
    "raw_line",
    "recorded",
    "rederived",
    "redundancy",
    "relaxations",
    "report",
    "reward_trend",
    "rivals",
    "rollouts_seen",
    "runs",
    "session_counts",
    "source_shares",
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
    "what_if_settings",
]
