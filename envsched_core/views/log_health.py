"""Can these numbers be trusted? What a run folder holds, what of it could not be read, what was odd, and how fresh.

All of this comes from the tables and from the sizes of files, so it costs next to nothing; what takes a pass over
every line stands in log_check.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from envsched_core.errors import EnvSchedError, StoreError
from envsched_core.importers.growing import Mark
from envsched_core.records import GroupResult
from envsched_core.shadow.progress import read_progress
from envsched_core.store import FORMAT
from envsched_core.store.lines import VERSION, decode_envelope, raw_lines, segments

from .gaps import gap_table
from .run_view import RunView
from .soundness import COUNTS

__all__ = [
    "LogFacts",
    "RawLine",
    "format_versions",
    "import_drops",
    "ingest_lags",
    "invariants",
    "log_facts",
    "log_files",
    "log_gaps",
    "odd_counts",
    "raw_line",
    "unreadable_lines",
]

MOST_RAW = 20_000
"""Bytes of a line shown."""
TOLERANCE = 1e-8
"""Terms are written rounded to 1e-9 or so each; a wrong term is far off."""

KINDS = (
    # name in the folder, what it is
    ("run.json", "manifest"),
    ("tasks.jsonl", "catalogue: tasks"),
    ("tools.jsonl", "catalogue: tools"),
    ("events", "events"),
    ("graph", "graphs"),
    ("scores", "scores of every task"),
    ("state", "snapshots"),
    ("rollouts", "rollouts"),
    ("counters.json", "what the session has counted"),
    ("shadow.json", "how far the followed log was taken"),
    ("writer.lock", "the writer's lock"),
)
NEEDED = ("run.json", "tasks.jsonl", "events")


class LogFacts(msgspec.Struct, frozen=True):
    """Writer, order and freshness of a run."""

    writer: str
    created: str
    """ISO 8601, UTC."""
    gaps: int
    """Places where event numbers do not go on by one; `log_gaps` has them."""
    bytes: int
    """Of all segments now."""
    behind: int
    """Bytes of whole lines that are on disk but not in the tables yet."""
    torn: int
    """Bytes behind the last whole line: a line in the making, or never finished."""
    age: float
    """Seconds since the events last grew."""
    waiting: int
    """Picks without an end."""
    oldest_waiting: int | None
    """Step of the oldest of them."""
    last_step: int | None


class RawLine(msgspec.Struct, frozen=True):
    """A line as it stands on disk."""

    text: str
    """At most 20,000 bytes of it; what is no UTF-8 is shown as a replacement character. Untrusted."""
    bytes: int
    """Of the whole line."""
    cut: bool
    """Whether `text` is only its beginning."""


def log_facts(view: RunView) -> LogFacts:
    """Writer, gaps and freshness; never cached, since files change without an event."""
    health, manifest, size = view.health(), view.manifest, view.reader.size()
    waiting = view.row("SELECT count(*) n, min(step) oldest FROM outcomes WHERE ended = 'open'")
    return LogFacts(
        writer=manifest.writer,
        created=manifest.created,
        gaps=view.numbers.count,
        bytes=size,
        behind=max(size - view.reader.offset - health.torn_bytes, 0),
        torn=health.torn_bytes,
        age=health.age,
        waiting=int(waiting["n"]),
        oldest_waiting=waiting["oldest"],
        last_step=health.last_step,
    )


def log_files(view: RunView) -> pd.DataFrame:
    """What stands in the run folder: every segment of the events by itself, folders of many files as one row.

    Columns: file (inside the run folder; untrusted), what (it is; "not known" for what no run folder has, "missing" for
    what every one has), files, bytes, changed (newest change, UTC).
    """
    rows: list[tuple[str, str, int, int, datetime | None]] = []
    for name, what in KINDS:
        place = view.path / name
        parts = segments(view.path) if name == "events" else [place]
        rows += [row for part in parts if (row := _row(view.path, part, what)) is not None]
        if name in NEEDED and not any(row[1] == what for row in rows):
            rows.append((name, "missing", 0, 0, None))
    known = {name for name, _ in KINDS}
    rows += [
        row
        for place in _entries(view.path)
        if place.name not in known and (row := _row(view.path, place, "not known")) is not None
    ]
    frame = pd.DataFrame(rows, columns=["file", "what", "files", "bytes", "changed"])
    return frame.astype({"changed": "datetime64[us, UTC]"})


def _entries(folder: Path) -> list[Path]:
    """What stands in a folder; nothing when it was removed meanwhile."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _row(run: Path, place: Path, what: str) -> tuple[str, str, int, int, datetime] | None:
    """One file, or a folder as a whole; None when it is not there (any more)."""
    try:
        inside = [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else [place]
        found = [file.stat() for file in inside]
    except OSError:  # a writer may rename or drop a file at any moment
        return None
    if not found:
        return None
    newest = datetime.fromtimestamp(max(f.st_mtime for f in found), UTC)
    return str(place.relative_to(run)), what, len(found), sum(f.st_size for f in found), newest


def unreadable_lines(view: RunView) -> pd.DataFrame:
    """Lines and files that could not be read and were passed over, in the order in which they were met.

    Columns: file, line (1-based; NULL for a file of arrays), offset (byte in the file; NULL where it is not known),
    message (untrusted).
    """
    rows = [(p.segment, p.line or None, p.offset if p.line else None, p.message) for p in view.health().problems]
    frame = pd.DataFrame(rows, columns=["file", "line", "offset", "message"])
    return frame.astype({"line": "Int64", "offset": "Int64"})


def raw_line(view: RunView, file: str, offset: int) -> RawLine:
    """The line of a segment that starts at a byte.

    Raises:
        StoreError: the run has no such segment, or it cannot be read.
    """
    known = {f"events/{segment.name}": segment for segment in segments(view.path)}
    if file not in known or offset < 0:
        raise StoreError(f"{view.path} has no segment {file}")
    try:
        with known[file].open("rb") as stream:
            stream.seek(offset)
            data = stream.readline()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    return RawLine(data[:MOST_RAW].decode("utf-8", "replace").rstrip("\n"), len(data), len(data) > MOST_RAW)


def log_gaps(view: RunView) -> pd.DataFrame:
    """Where event numbers do not go on by one, as far as the log was read: `gap_table`."""
    return gap_table(view.numbers)


def format_versions(view: RunView) -> pd.DataFrame:
    """What of a run folder carries a version number.

    Columns: what, version (NULL where there is none to read), known (the highest that this version reads).
    """
    rows = [
        ("run folder (run.json)", view.manifest.format, FORMAT),
        ("event lines, by the first one", _line_version(view), VERSION),
    ]
    frame = pd.DataFrame(rows, columns=["what", "version", "known"])
    return frame.astype({"version": "Int64"})


def _line_version(view: RunView) -> int | None:
    first = next(raw_lines(view.path), None)
    if first is None or first.torn:
        return None
    try:
        return decode_envelope(first, view.manifest.writer).v
    except EnvSchedError:  # it is among the unreadable lines
        return None


def odd_counts(view: RunView) -> pd.DataFrame:
    """What was taken in but does not fit, with what it was counted among; rows with nothing odd are there too.

    Columns: what, count, among, unit (what both are counted in), meaning (what was done about it).
    """
    groups = view.row(
        "SELECT count(*) n, count(*) FILTER (t.task IS NULL) AS unknown, "
        "count(*) FILTER (candidate IS NULL) AS unasked, "
        "count(*) FILTER (scored = 0) empty, coalesce(sum(missing), 0)::BIGINT missing, "
        "coalesce(sum(scored + missing), 0)::BIGINT rollouts, coalesce(sum(scored), 0)::BIGINT rewards "
        "FROM groups_raw g LEFT JOIN (SELECT DISTINCT env, task FROM tasks) t USING (env, task)"
    )
    ends = view.row("SELECT count(*) n, count(*) FILTER (ended = 'expired') expired, "
                    "count(*) FILTER (ended = 'released') released FROM outcomes")  # fmt: skip
    health = view.health()
    lines = sum(problem.line > 0 for problem in health.problems)
    asked = bool(ends["n"])
    rows: list[tuple[str, int, int, str, str]] = [
        ("unknown task", groups["unknown"], groups["n"], "groups", "not in the catalogue; no evidence for any task"),
        ("observed twice", health.duplicates, groups["n"] + health.duplicates, "groups", "counted once"),
        ("malformed", lines, health.events + lines, "lines", "no event could be read of them; passed over"),
        ("kind not known", health.unknown, health.events + health.unknown, "lines", "a newer version's; passed over"),
        ("no usable reward", groups["empty"], groups["n"], "groups", "add no evidence"),
        ("reward missing", groups["missing"], groups["rollouts"], "rollouts", "null, not finite or failed; left out"),
        (
            "reward clipped",
            _clipped(view),
            groups["rewards"],
            "rollouts",
            "outside the declared range; moved into it",
        ),
    ]
    if asked:
        rows += [
            ("not asked for", groups["unasked"], groups["n"], "groups", "taken in as evidence; no pick ended"),
            ("expired", ends["expired"], ends["n"], "picks", "no result came in time; the quota was freed"),
            ("released", ends["released"], ends["n"], "picks", "the trainer gave them back; no evidence"),
        ]
    return pd.DataFrame(rows, columns=["what", "count", "among", "unit", "meaning"])


def _clipped(view: RunView) -> int:
    """Rewards outside the declared range of their environment; none where the ranges are what was observed."""
    declared = {
        str(env): (float(low), float(high))
        for env, low, high in view.query("SELECT env, low, high FROM ranges WHERE declared").itertuples(index=False)
    }
    if view.manifest.ranges_observed or not declared:
        return 0
    payloads = view.query("SELECT payload FROM groups_raw WHERE list_contains($envs, env)", {"envs": list(declared)})
    return sum(_outside(msgspec.json.decode(text, type=GroupResult), declared) for text in payloads["payload"])


def _outside(group: GroupResult, declared: Mapping[str, tuple[float, float]]) -> int:
    low, high = declared[group.env]
    slack = 1e-9 * (high - low)  # as moments.py counts them
    return sum(not low - slack <= reward <= high + slack for reward in group.rewards)


def import_drops(view: RunView) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What an import left out: (rows by reason; the first ten of them). Texts are untrusted.

    Columns: reason, rows; and file, line, reason.
    """
    report = view.manifest.report
    reasons = report.get("drop_reasons")
    rows = [(str(k), v) for k, v in reasons.items() if isinstance(v, int)] if isinstance(reasons, dict) else []
    if isinstance(report.get("repeats"), int) and report["repeats"]:
        rows.append(("repeats a rollout of its group", report["repeats"]))
    first = report.get("first_drops")
    drops = [drop for drop in first if isinstance(drop, dict)] if isinstance(first, list) else []
    shown = [(str(drop.get("file", "")), _whole(drop.get("line")), str(drop.get("reason", ""))) for drop in drops]
    return (
        pd.DataFrame(rows, columns=["reason", "rows"]),
        pd.DataFrame(shown, columns=["file", "line", "reason"]).astype({"line": "Int64"}),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < COUNTS else None


def ingest_lags(view: RunView) -> pd.DataFrame:
    """How far a followed log was taken, file by file; empty for a run that follows none.

    Columns: file (untrusted), taken and bytes (of it now; NULL when it cannot be found, or is a format that is read
    whole), behind (bytes not taken; a group waits until its step is over), rows (taken, of a format read whole), age
    (seconds since the file last changed).
    """
    rows = [_lag(view.path, mark) for mark in read_progress(view.path).files]
    return pd.DataFrame(rows, columns=["file", "taken", "bytes", "behind", "rows", "age"]).astype(
        {"taken": "Int64", "bytes": "Int64", "behind": "Int64", "rows": "Int64"}
    )


def _lag(run: Path, mark: Mark) -> tuple[Any, ...]:
    try:
        now = (run / mark.path).stat()  # an absolute path stays what it is
    except (OSError, ValueError):
        return mark.label, mark.offset or None, None, None, mark.rows or None, None
    age = max(time.time() - now.st_mtime, 0.0)
    if mark.rows and not mark.offset:
        return mark.label, None, now.st_size, None, mark.rows, age
    return mark.label, mark.offset, now.st_size, max(now.st_size - mark.offset, 0), None, age


def invariants(view: RunView) -> pd.DataFrame:
    """What must hold of every decision on record, checked over the tables.

    Columns: rule, status (holds, broken, nothing to check), checked, broken (of these), first (where the first one
    is: step and task; untrusted).
    """
    return pd.DataFrame(list(_rules(view)), columns=["rule", "status", "checked", "broken", "first"])


def _rules(view: RunView) -> Iterator[tuple[Any, ...]]:
    sums = (
        ("terms add up to the score", "terms", "value", f"abs(total - score) > {TOLERANCE} * greatest(abs(score), 1)"),
        ("shares of the prediction add up to 1", "shares", "share", f"abs(total - 1) > {TOLERANCE}"),
    )
    for rule, table, column, wrong in sums:
        inner = f"SELECT candidate, sum({column}) total FROM {table} GROUP BY candidate"
        yield _rule(view, rule, f"SELECT *, {wrong} AS wrong FROM ({inner}) JOIN candidates USING (candidate)")
    yield _rule(
        view, "no task is picked twice in a step",
        "SELECT step, env, task, count(*) > 1 AS wrong FROM outcomes GROUP BY step, env, task",
    )  # fmt: skip
    yield _rule(
        view, "no call gives more picks than were asked for",
        "SELECT step, '' env, '' task, picks > asked AS wrong FROM decisions",
    )  # fmt: skip
    yield _rule(
        view, "quotas are kept, or their relaxation is on record",
        "SELECT q.step, q.env, '' task, used > q.limit_picks AND r.env IS NULL AS wrong FROM quotas q "
        "LEFT JOIN (SELECT DISTINCT step, env FROM relaxed) r ON r.step = q.step AND r.env IN (q.env, '')",
    )  # fmt: skip


def _rule(view: RunView, rule: str, cases: str) -> tuple[Any, ...]:
    """`cases` gives one row a case: step, env, task, wrong."""
    found = view.row(f"SELECT count(*) n, count(*) FILTER (wrong) broken FROM ({cases})")
    n, broken = int(found["n"]), int(found["broken"])
    status = "nothing to check" if not n else "broken" if broken else "holds"
    return rule, status, n, broken, _first(view, cases) if broken else ""


def _first(view: RunView, cases: str) -> str:
    """Where the first wrong case is."""
    place = view.row(f"SELECT step, env, task FROM ({cases}) WHERE wrong ORDER BY step, env, task")
    name = f"{place['env']}::{place['task']}" if place["task"] else str(place["env"])
    return f"step {place['step']}" + (f", {name}" if name else "")
