"""Read models: everything a page shows of a run folder comes from here, and nothing is recomputed to be shown.

    run_view   RunView: tails the events into tables        intake, tables  events to rows
    runs       the runs of a folder                         summary         headline numbers, one row a step
    batch      one step's batch                             decision        one task at one step
    tasks      the catalogue                                graph_map       the graph of an environment or around a task
    trends     variance, coverage, trust over the run       compare         two runs side by side
    comparable whether two runs can be compared             what_if         a step decided again
    cold_start, first_steps  before there was data        log_health, log_check    can these numbers be trusted?
    report     what a run amounts to, for people who were not there; report_page makes files of it

What a table's columns mean stands in its docstring.

The exceptions compute and say so: `rederived` (a decision that was not on record) and `what_if`.
Text in the tables comes from logs and is untrusted.
"""

from .batch import Filters, batch, composition, outcome_counts, redundancy, term_totals
from .cold_start import (
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
from .csv_table import csv_bytes
from .decision import Explained, afterwards, explained, group_rollouts, recorded, rederived, rivals, timeline
from .first_steps import FirstSteps, first_steps
from .graph_map import GraphMap, ego_graph, environment_graph
from .log_check import LogCheck, Verified, check_log, verify_run
from .log_health import (
    LogFacts,
    RawLine,
    import_drops,
    ingest_lags,
    invariants,
    log_facts,
    log_files,
    odd_counts,
    raw_line,
    unreadable_lines,
)
from .report import Report, report
from .run_view import OUTCOME_CODES, STATES, Health, RunView
from .runs import runs
from .summary import Comparator, Summary, comparator, measures, steps, summary
from .tasks import task, task_keys, tasks
from .trends import Coverage, Grid, coverage, environments, quota_hits, trust, variance_grid
from .what_if import Moments, Rearranged, Setting, Smallest, what_if_settings

__all__ = [
    "OUTCOME_CODES",
    "STATES",
    "Comparability",
    "Comparator",
    "Comparison",
    "Coverage",
    "Explained",
    "Filters",
    "FirstSteps",
    "GraphMap",
    "Grid",
    "Health",
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
    "Verified",
    "afterwards",
    "batch",
    "check_log",
    "comparability",
    "comparator",
    "compare",
    "composition",
    "coverage",
    "csv_bytes",
    "ego_graph",
    "environment_graph",
    "environments",
    "errors_by_state",
    "evidence_reached",
    "evidence_states",
    "explained",
    "first_evidence",
    "first_steps",
    "group_rollouts",
    "guesses",
    "import_drops",
    "ingest_lags",
    "invariants",
    "log_facts",
    "log_files",
    "measures",
    "odd_counts",
    "outcome_counts",
    "picks_by_state",
    "quota_hits",
    "raw_line",
    "recorded",
    "rederived",
    "redundancy",
    "report",
    "rivals",
    "rollouts_seen",
    "runs",
    "source_shares",
    "steps",
    "stuck_tasks",
    "summary",
    "task",
    "task_keys",
    "tasks",
    "term_totals",
    "timeline",
    "transfer_off",
    "trust",
    "unreadable_lines",
    "variance_grid",
    "verify_run",
    "what_if_settings",
]
