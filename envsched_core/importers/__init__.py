"""Logs in: a log of rollouts -> tasks, groups and a report on what was found.

    import_log(paths, options) -> Imported(tasks, groups(), report)    in memory, without messages
    import_run(paths, out, options) -> ImportReport                    into a run folder
    sniff(path) -> "table", list_formats(), report_lines(report)

Inside, top to bottom: files (records of a file) and values, messages, fields (untrusted values -> ours);
catalogue (--tasks, --tools); base (rows, options, the reader protocol); one module per format, found by
formats (name -> lazy reader) and sources (paths -> files); grouping (rows -> groups, streaming); statistics,
report, wording; driver (the loop). Memory: one record, one text a task, 40 bytes a rollout, 500 a group.
"""

from .base import Drop, ImportOptions
from .driver import Imported, Progress, import_log, import_run
from .formats import FORMATS, list_formats, sniff
from .report import ImportReport
from .statistics import RewardRange
from .wording import report_lines

__all__ = [
    "FORMATS",
    "Drop",
    "ImportOptions",
    "ImportReport",
    "Imported",
    "Progress",
    "RewardRange",
    "import_log",
    "import_run",
    "list_formats",
    "report_lines",
    "sniff",
]
