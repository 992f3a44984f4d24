"""Logs in: a log of rollouts -> tasks, groups and a report on what was found.

    import_log(paths, options) -> Imported(tasks, groups(), report)    in memory, without messages
    import_run(paths, out, options) -> ImportReport                    into a run folder
    sniff(path) -> "table", list_formats(), carried(), report_lines(report)

Inside, top to bottom: json_cut, packed and files (records of a file) and values, messages, fields (untrusted values
-> ours); catalogue (--tasks, --tools, --join); base (rows, options, the reader protocol), identity (environment and
task by the user's rules); one module per format, found by formats (name -> lazy reader) and sources (paths -> files;
not_logs says what else lies there); grouping (rows -> groups, streaming); statistics, report, wording; driver (the
loop); growing (a log that is still written). Memory: one record, one text a task, 40 bytes a rollout, 500 a group.
"""

from .base import Carries, Drop, ImportOptions
from .driver import Imported, Progress, import_log, import_run
from .formats import FORMATS, carried, list_formats, sniff
from .report import ImportReport
from .statistics import RewardRange
from .wording import report_lines

__all__ = [
    "FORMATS",
    "Carries",
    "Drop",
    "ImportOptions",
    "ImportReport",
    "Imported",
    "Progress",
    "RewardRange",
    "carried",
    "import_log",
    "import_run",
    "list_formats",
    "report_lines",
    "sniff",
]
