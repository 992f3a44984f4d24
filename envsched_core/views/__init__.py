"""Read models: everything a page shows of a run folder comes from here, and nothing is recomputed to be shown.

    run_view   RunView: tails the events into tables        intake, tables  events to rows
    runs       the runs of a folder                         summary         headline numbers, one row a step
    batch      one step's batch                             decision        one task at one step
    tasks      the catalogue                                graph_map       the graph of an environment or around a task
    trends     variance, coverage, trust over the run       compare         two runs side by side

What a table's columns mean stands in its docstring.

The one exception, `rederived`, computes a decision again from the events because it was not on record; its
result says so. Text in the tables comes from logs and is untrusted.
"""

from .batch import Filters, batch, composition, outcome_counts, redundancy, term_totals
from .compare import Comparison, compare
from .decision import Explained, afterwards, explained, group_rollouts, recorded, rederived, rivals, timeline
from .graph_map import GraphMap, ego_graph, environment_graph
from .run_view import OUTCOME_CODES, STATES, Health, RunView
from .runs import runs
from .summary import Comparator, Summary, comparator, measures, steps, summary
from .tasks import task, task_keys, tasks
from .trends import Coverage, Grid, coverage, environments, quota_hits, trust, variance_grid

__all__ = [
    "OUTCOME_CODES",
    "STATES",
    "Comparator",
    "Comparison",
    "Coverage",
    "Explained",
    "Filters",
    "GraphMap",
    "Grid",
    "Health",
    "RunView",
    "Summary",
    "afterwards",
    "batch",
    "comparator",
    "compare",
    "composition",
    "coverage",
    "ego_graph",
    "environment_graph",
    "environments",
    "explained",
    "group_rollouts",
    "measures",
    "outcome_counts",
    "quota_hits",
    "recorded",
    "rederived",
    "redundancy",
    "rivals",
    "runs",
    "steps",
    "summary",
    "task",
    "task_keys",
    "tasks",
    "term_totals",
    "timeline",
    "trust",
    "variance_grid",
]
