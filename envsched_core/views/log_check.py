"""One pass over every line of a run: whether the log is whole, in order and as it was written.

`check_log` reads the events as they stand, so damage is found where it is; `verify_run` derives every decision again.
Both take time in proportion to the log and tell how far they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from envsched_core.errors import DamagedError, EnvSchedError, StoreError
from envsched_core.records import Event
from envsched_core.replay import VerifyReport, verify
from envsched_core.store import ChainProblem, check_chain, load_state, read_manifest
from envsched_core.store.lines import Envelope, RawLine, decode_data, decode_envelope, raw_lines, segments

from .gaps import Numbers, gap_table
from .pick_ends import PickEnds
from .run_view import RunView
from .soundness import out_of_range

__all__ = ["LogCheck", "Verified", "check_log", "counted", "verify_run"]

Progress = Callable[[float, str], None]
"""Called with the share done, in [0, 1], and what is being done."""
SCANNED = 0.7
"""Share of the whole that reading the lines takes; the chain is checked after that."""
MOST_ROWS = 10_000
"""Problems listed; all are counted."""


class LogCheck(msgspec.Struct, frozen=True):
    """What a pass over the whole log found."""

    rules: pd.DataFrame
    """Columns: rule; status (holds; broken; noted: odd, but allowed; nothing to check); checked; broken (how many are
    not as they should be); first (where the first is, or what it is; untrusted)."""
    problems: pd.DataFrame
    """Every place that is not as it was written, at most 10,000. Columns: file, line (NULL where lines do not apply),
    offset (byte in the file; NULL where it is not known), event, step, what (untrusted)."""
    gaps: pd.DataFrame
    """Where event numbers do not go on by one: `gap_table`."""
    kinds: pd.DataFrame
    """Columns: kind, version (of the line), events, known (whether this version reads it)."""
    segments: pd.DataFrame
    """Columns: file, lines, events (that could be read), first and last (their numbers), bytes."""
    waits: pd.DataFrame
    """Answered picks by the steps they waited. Columns: steps (event of the result minus step of the pick), groups."""
    counters: pd.DataFrame
    """What the scheduler itself had counted by the newest snapshot that can be read. Columns: name (as in its metrics),
    count. Empty without one."""
    counters_step: int | None
    """Step of that snapshot."""
    events: int
    """Events read."""
    whole: bool
    """Whether nothing is broken."""


class Verified(msgspec.Struct, frozen=True):
    """Whether the decisions are what the events lead to."""

    ok: bool | None
    """None: it could not be told."""
    said: str
    """What was checked, or why it could not be; untrusted."""
    problems: pd.DataFrame
    """Columns: file, line, step, task, field, was, should_be, message (all untrusted)."""
    decisions: int
    """Derived again and compared."""


class _Scan:
    """What is gathered line by line."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.problems: list[tuple[Any, ...]] = []
        self.unreadable = self.unnumbered = self.lines = self.events = 0
        self.numbers = Numbers()
        self.kinds: Counter[tuple[str, int, bool]] = Counter()
        self.segments: dict[str, list[Any]] = {}
        self.steps_back: dict[str, list[Any]] = {"asked": [0, ""], "observed": [0, ""]}
        self.ends = PickEnds()
        self._last_step: dict[str, int] = {}

    def take(self, raw: RawLine) -> None:
        """One whole line."""
        self.lines += 1
        row = self.segments.setdefault(raw.segment, [0, 0, None, None])
        row[0] += 1
        try:
            envelope = decode_envelope(raw, self.writer)
            data = decode_data(envelope)
        except DamagedError as error:
            self._refuse(raw, None, str(error))
            return
        row[1], row[2], row[3] = row[1] + 1, envelope.seq if row[2] is None else row[2], envelope.seq
        self.kinds[envelope.kind, envelope.v, data is not None] += 1
        self.numbers.take(envelope.seq, raw.segment, raw.number, raw.offset, self.unnumbered)
        event = Event(envelope.seq, envelope.kind, envelope.step, data, "")
        fault = out_of_range(event) if data is not None else ""
        if fault:
            self._refuse(raw, envelope, fault)
            return
        self.events += 1
        self._order(event, raw)
        self.ends.take(event)

    def _refuse(self, raw: RawLine, envelope: Envelope | None, what: str) -> None:
        self.unreadable += 1
        self.unnumbered += envelope is None
        if len(self.problems) < MOST_ROWS:
            place = (raw.segment, raw.number, raw.offset)
            self.problems.append(
                (*place, envelope.seq if envelope else None, envelope.step if envelope else None, what)
            )

    def _order(self, event: Event, raw: RawLine) -> None:
        if event.kind not in self.steps_back or event.step is None:
            return
        last = self._last_step.get(event.kind, event.step)
        if event.step < last:
            found = self.steps_back[event.kind]
            found[1] = found[1] or f"{raw.segment} line {raw.number}: step {event.step} after step {last}"
            found[0] += 1
        self._last_step[event.kind] = max(last, event.step)


def check_log(view: RunView, progress: Progress | None = None) -> LogCheck:
    """Check the log of a run as it stands on disk now: lines, numbers, steps, picks, hash chain, digests, scores.

    Raises:
        FormatVersionError: a newer version wrote a line. StoreError: it is no run folder any more.
    """
    tell = progress or (lambda share, what: None)
    path = view.path
    scan, size = _Scan(read_manifest(path).writer), max(view.reader.size(), 1)
    torn = 0
    for raw in raw_lines(path):
        if raw.torn:
            torn = raw.end - raw.start
            break
        scan.take(raw)
        if scan.lines % 200 == 0:
            tell(SCANNED * min(raw.end / size, 1.0), "reading every line")
    tell(SCANNED, "checking the hash chain and the digests")
    chain = check_chain(path)
    tell(0.95, "checking the scores of every step")
    rules = _rules(view, scan, chain, torn)
    step, counters = counted(view)
    tell(1.0, "done")
    return LogCheck(
        rules=rules,
        problems=_problems(scan, chain, path),
        gaps=gap_table(scan.numbers),
        kinds=pd.DataFrame(
            [(kind, version, n, known) for (kind, version, known), n in sorted(scan.kinds.items())],
            columns=["kind", "version", "events", "known"],
        ),
        segments=_segments(scan, path),
        waits=pd.DataFrame(sorted(scan.ends.waits.items()), columns=["steps", "groups"]),
        counters=counters,
        counters_step=step,
        events=scan.events,
        whole="broken" not in set(rules["status"]),
    )


def _rules(view: RunView, scan: _Scan, chain: list[ChainProblem], torn: int) -> pd.DataFrame:
    ends, asked = scan.ends, scan.steps_back["asked"]
    in_events = [problem for problem in chain if problem.segment.startswith("events/")]
    elsewhere = [problem for problem in chain if not problem.segment.startswith("events/")]
    first = f"{scan.problems[0][0]} line {scan.problems[0][1]}" if scan.problems else ""
    gap = f"{scan.numbers.found[0][0]} line {scan.numbers.found[0][1]}" if scan.numbers.found else ""
    scored = view.reader.scored_steps()
    faulty = [step for step in scored if view.scores(step) is None]
    observed = scan.steps_back["observed"]
    digests = 1 + sum(n for (kind, *_), n in scan.kinds.items() if kind in ("registered", "graph"))
    rows = [
        ("every line can be read", scan.lines, scan.unreadable, 0, first),
        ("the last line is whole", 1, 0, int(torn > 0), f"{torn:,} bytes" if torn else ""),
        ("event numbers go on by one", scan.events, scan.numbers.count, 0, gap),
        ("hash chain: every line is as it was written", scan.lines, len(in_events), 0, _told(in_events)),
        ("digests of manifest, catalogue and graphs", digests, len(elsewhere), 0, _told(elsewhere)),
        ("decisions come in the order of their steps", ends.decisions, asked[0], 0, asked[1]),
        ("results come in the order of their steps", ends.results, 0, observed[0], observed[1]),
        ("every pick has an id of its own", ends.asked, ends.same_id, 0, ends.first["same_id"]),
        ("every pick ends once", ends.asked, 0, ends.again, ends.first["again"]),
        ("what expires was asked for", ends.expired, ends.never_asked, 0, ends.first["never_asked"]),
        ("what is released was asked for", ends.released, 0, ends.unknown, ends.first["unknown"]),
        ("every pick has ended", ends.asked, 0, len(ends.open), next(iter(ends.open), "")),
        ("scores of every task fit the catalogue", len(scored), len(faulty), 0, f"step {faulty[0]}" if faulty else ""),
    ]
    told = [(rule, _status(n, bad, noted), n, bad + noted, where) for rule, n, bad, noted, where in rows]
    return pd.DataFrame(told, columns=["rule", "status", "checked", "broken", "first"])


def _status(checked: int, broken: int, noted: int) -> str:
    if broken:
        return "broken"
    return "noted" if noted else "holds" if checked else "nothing to check"


def _told(problems: list[ChainProblem]) -> str:
    return f"{problems[0].segment} line {problems[0].line}: {problems[0].message}" if problems else ""


def _problems(scan: _Scan, chain: list[ChainProblem], path: Path) -> pd.DataFrame:
    """Those of the lines and those of the chain, each with its byte offset where lines have one."""
    wanted = {(p.segment, p.line) for p in chain if p.segment.startswith("events/")}
    lines = raw_lines(path) if wanted else ()
    places = {(raw.segment, raw.number): raw.offset for raw in lines if (raw.segment, raw.number) in wanted}
    rows = [
        *scan.problems,
        *((p.segment, p.line or None, places.get((p.segment, p.line)), p.seq, p.step, p.message) for p in chain),
    ]
    return _frame(rows[:MOST_ROWS], ["file", "line", "offset", "event", "step", "what"])


def _frame(rows: list[tuple[Any, ...]], columns: list[str]) -> pd.DataFrame:
    whole = {name: "Int64" for name in columns if name not in ("file", "what")}
    return pd.DataFrame(rows, columns=columns).astype(whole)


def _segments(scan: _Scan, path: Path) -> pd.DataFrame:
    sizes = {f"events/{file.name}": file.stat().st_size for file in segments(path)}
    rows = [(name, *scan.segments.get(name, (0, 0, None, None)), size) for name, size in sizes.items()]
    frame = pd.DataFrame(rows, columns=["file", "lines", "events", "first", "last", "bytes"])
    return frame.astype({"first": "Int64", "last": "Int64"})


def counted(view: RunView) -> tuple[int | None, pd.DataFrame]:
    """What the scheduler itself had counted when the newest readable snapshot was taken, and the step of that.

    Columns: name (as in its metrics), count. No snapshot: (None, no rows).
    """
    columns = ["name", "count"]
    for step in reversed(view.reader.state_steps()):
        try:
            state = load_state(view.path, step)
            inner = state.get("scheduler", state)
            found = {str(name): int(count) for name, count in inner["counts"].items()}
            found["rewards/clipped"] = int(inner["predictor"]["moments"]["clipped"])
        except (StoreError, KeyError, TypeError, ValueError, AttributeError):  # damaged: an earlier one may be sound
            continue
        return step, pd.DataFrame(sorted(found.items()), columns=columns)
    return None, pd.DataFrame([], columns=columns)


def verify_run(view: RunView, progress: Progress | None = None) -> Verified:
    """Derive every decision of the run again and compare; what is so damaged that it cannot be done says why."""
    tell = progress or (lambda share, what: None)
    tell(0.0, "checking the hash chain")
    try:
        report = verify(view.path, lambda done, total: tell(done / max(total, 1), "deriving decisions again"))
    except EnvSchedError as error:
        return Verified(None, str(error), _differences(None), 0)
    except Exception as error:  # lines that are as written, but hold what no scheduler can take: say so, do not fall
        return Verified(None, f"{type(error).__name__}: {error}", _differences(None), 0)
    return Verified(report.ok, report.checked, _differences(report), report.decisions)


def _differences(report: VerifyReport | None) -> pd.DataFrame:
    rows = [
        (p.segment, p.line or None, p.step, p.task, p.field, p.was, p.should_be, p.message)
        for p in (report.problems if report else ())
    ]
    columns = ["file", "line", "step", "task", "field", "was", "should_be", "message"]
    return pd.DataFrame(rows, columns=columns).astype({"line": "Int64", "step": "Int64"})
