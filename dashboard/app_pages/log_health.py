"""Log health: can I trust what I see?

What costs next to nothing is always shown. What reads every line again stands behind a button, tells how far it is,
and its result stays until the run grows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import charts, loading, parts, words
from ..frame import Frame
from ..loading import LogCheck, LogFacts, RawLine, Run, Verified

__all__ = ["health_sentence", "show", "size", "waits"]

SIGNS = {
    "holds": "✔ holds",
    "broken": "✖ broken",
    "noted": "◦ noted: odd, but allowed",
    "nothing to check": "- nothing to check",
}
BYTES = {"bytes": st.column_config.NumberColumn(format="bytes")}
PLACES = {"offset": st.column_config.NumberColumn("byte offset", format="localized")}


def show(frame: Frame) -> None:
    """Verdict, freshness, checks, what could not be read, what was odd, and the files."""
    run = frame.run
    st.title("Log health")
    if run is None:
        return
    facts, unreadable, rules = loading.log_facts(run), loading.unreadable_lines(run), loading.invariants(run)
    unread = loading.health(run).unread  # with kinds that are not known here, of which no line is shown
    broken, checked = int((rules["status"] == "broken").sum()), int(rules["checked"].sum())
    st.subheader(health_sentence(facts, unread, broken, checked), anchor=False)
    _headline(run, facts, unread)
    _unreadable(run, unreadable)
    if facts.gaps:
        st.subheader("Gaps in the event numbers", anchor=False)
        _gaps(loading.log_gaps(run), "gaps")
    _lag(run, facts)
    _invariants(rules)
    _check(run)
    _verify(run)
    _odd(run)
    _counted(run)
    _dropped(run)
    _versions(run)
    _files(run)


def health_sentence(facts: LogFacts, unread: int, broken: int, checked: int) -> str:
    """The verdict of what is checked all the time; `checked` says how much of decisions there was to check."""
    said = []
    if unread:
        said.append(f"{words.several(unread, 'line or file', 'lines or files')} could not be read")
    if broken:
        said.append(f"{words.several(broken, 'rule is', 'rules are')} broken by decisions on record")
    if facts.gaps:
        said.append(f"the event numbers do not go on by one at {words.several(facts.gaps, 'place')}")
    if facts.torn:
        said.append(f"the last {words.count(facts.torn)} bytes are no whole line yet")
    if not said and not checked:
        return "Everything could be read; there is no decision on record to check."
    if not said:
        return "Everything could be read, and every decision on record adds up."
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def size(amount: int) -> str:
    """Bytes in the largest fitting unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:.1f} {unit}"
    return f"{amount} bytes"


def _headline(run: Run, facts: LogFacts, unread: int) -> None:
    row = st.columns(4)
    row[0].metric("Events read", words.count(loading.health(run).events), border=True, height="stretch",
                  help=f"{size(facts.bytes)} in all segments.")  # fmt: skip
    row[1].metric("Could not be read", words.count(unread), border=True, height="stretch",
                  help="Lines of the event log (those of kinds that only a newer version knows, too), and files of "
                  "scores or graphs, that were passed over.")  # fmt: skip
    row[2].metric("Gaps", words.count(facts.gaps), border=True, height="stretch",
                  help="Places where the event numbers do not go on by one: events are missing, or come "
                  "twice.")  # fmt: skip
    row[3].metric("Newest event", words.age(facts.age), border=True, height="stretch",
                  help="When the events last grew, by the clock of the file system.")  # fmt: skip
    parts.plain_text(f"Written by {facts.writer}, begun {facts.created}.")


def _unreadable(run: Run, table: pd.DataFrame) -> None:
    if table.empty:
        return
    st.subheader("What could not be read", anchor=False)
    st.caption("Passed over, so every number of every page may be short of it. Select a line to see it as it stands.")
    places = list(zip(table["file"], table["offset"], strict=True))
    parts.pick_row(
        table, key="unreadable", columns=PLACES, rows=8, on_pick=lambda row: _look_at(run, *places[row]),
    )  # fmt: skip
    _raw(run)


def _look_at(run: Run, file: str, offset: Any) -> None:
    st.session_state["raw_line"] = (run.path, file, None if pd.isna(offset) else int(offset))


def _raw(run: Run) -> None:
    """The line that was selected, exactly as it stands on disk."""
    path, file, offset = st.session_state.get("raw_line", ("", "", None))
    if path != run.path:
        return
    if offset is None:
        st.caption("This is a file of arrays: it has no lines to show.")
        return
    try:
        found = loading.raw_line(run, file, offset)
    except EnvSchedError as error:
        parts.plain_text(str(error))
        return
    parts.plain_text(f"{file} from byte {offset:,}: {size(found.bytes)}" + _cut(found))
    st.code(found.text, language=None, wrap_lines=True)


def _cut(found: RawLine) -> str:
    return f", the first {len(found.text):,} characters" if found.cut else ""


def _gaps(table: pd.DataFrame, key: str) -> None:
    columns = {"after": "number before", "event": "number found", "missing": "events left out"}
    parts.table(table, key=key, columns={**PLACES, **columns})


def _versions(run: Run) -> None:
    st.subheader("Format versions", anchor=False)
    columns = {"version": "version on record", "known": "this version of EnvSched reads up to"}
    parts.table(loading.format_versions(run), key="format_versions", columns=columns)


def _lag(run: Run, facts: LogFacts) -> None:
    st.subheader("Ingest lag", anchor=False)
    said = f"{size(facts.behind)} of whole lines are on disk and not taken in yet"
    if facts.torn:
        said += f"; behind them stands a line of {size(facts.torn)} without an end, in the making or never finished"
    if facts.waiting:
        waiting = words.several(facts.waiting, "pick waits for its result", "picks wait for their result")
        said += f"; {waiting}, the oldest since step {facts.oldest_waiting}"
        said += f" (newest step {facts.last_step})" if facts.last_step is not None else ""
    st.caption(f"{said}.")
    table = loading.ingest_lags(run)
    if len(table):
        st.markdown("**The log that this run follows**")
        columns = {name: st.column_config.NumberColumn(format="bytes") for name in ("taken", "bytes", "behind")}
        columns["age"] = st.column_config.NumberColumn("seconds since it grew", format="%.0f")
        parts.table(table, key="ingest_lags", columns=columns)


def _invariants(rules: pd.DataFrame) -> None:
    st.subheader("What must hold of every decision on record", anchor=False)
    parts.table(_signed(rules), key="invariants", columns={"broken": "not as it should be", "first": "the first one"})


def _signed(rules: pd.DataFrame) -> pd.DataFrame:
    return rules.assign(status=[SIGNS[status] for status in rules["status"]])


def _long(run: Run, name: str, title: str, work: Callable[..., Any]) -> Any:
    """A button for what takes long, its progress, and what it found; None before, or when it failed."""
    if st.button(title, key=f"{name}_button", icon=":material/fact_check:"):
        bar = st.progress(0.0, text="starting")
        try:
            found = work(run, lambda share, what: bar.progress(min(share, 1.0), text=what))
            st.session_state[name] = (run, found)
        except (EnvSchedError, OSError) as error:
            st.error("The check could not be carried through.", icon=":material/error:")
            parts.plain_text(str(error))
        bar.empty()
    of, found = st.session_state.get(name, (None, None))
    if of is None or of.path != run.path:
        return None
    if of.version != run.version:
        st.caption(":material/history: The run has grown since this was checked; check again to take in the rest.")
    return found


def _check(run: Run) -> None:
    st.subheader("Is the log as it was written?", anchor=False)
    st.caption(
        "Reads every line again: numbers without gaps, steps in order, every pick ending once, the hash chain, and the "
        "digests of catalogue, graphs and manifest."
    )
    found: LogCheck | None = _long(run, "log_check", "Check the whole log", loading.check_log)
    if found is None:
        return
    verdict = "Nothing is broken" if found.whole else "The log is not as it was written, or not in order"
    (st.success if found.whole else st.error)(
        f"{verdict}: {words.several(found.events, 'event was', 'events were')} read."
    )
    parts.table(_signed(found.rules), key="rules", columns={"broken": "not as it should be", "first": "the first one"})
    if len(found.problems):
        st.markdown("**Where it is not as it was written**")
        parts.table(found.problems, key="log_problems", columns=PLACES)
    if len(found.gaps):
        st.markdown("**Gaps in the event numbers**")
        _gaps(found.gaps, "log_gaps")
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Kinds of events and their format versions**")
        parts.table(found.kinds, key="log_kinds", columns={"known": "read by this version"})
        st.markdown("**Segments**")
        parts.table(
            found.segments, key="log_segments", columns={**BYTES, "first": "first number", "last": "last number"}
        )
    with right:
        if len(found.waits):
            st.markdown("**How many steps picks waited for their result**")
            alt = f"Answered picks by the steps they waited, up to {found.waits['steps'].max()}"
            parts.chart(partial(waits, found.waits), found.waits, key="waits", alt=alt)
        if found.counters_step is not None:
            st.markdown("**What the scheduler itself had counted**")
            st.caption(f"By its newest snapshot, of step {found.counters_step}.")
            parts.table(found.counters, key="counters")


def waits(table: pd.DataFrame) -> go.Figure:
    """Answered picks by the steps between ask and result."""
    figure = charts.empty_figure(240, showlegend=False)
    figure.add_bar(
        x=table["steps"], y=table["groups"], marker={"color": charts.BLUE},
        hovertemplate="%{y:,} results came %{x} steps after their pick<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="steps from pick to result", tickformat="d", dtick=1 if len(table) <= 12 else None)
    figure.update_yaxes(title="groups", rangemode="tozero")
    return figure


def _verify(run: Run) -> None:
    st.subheader("Are the decisions what the events lead to?", anchor=False)
    st.caption("Runs the scheduler again over the recorded events and compares every decision with the record.")
    found: Verified | None = _long(run, "verified", "Derive every decision again", loading.verify_run)
    if found is None:
        return
    if found.ok:
        said = words.several(found.decisions, "decision was", "decisions were")
        st.success(f"{said} derived again.", icon=":material/check:")
    elif found.ok is None:
        st.warning("It could not be told.", icon=":material/help:")
    else:
        st.error("The run is not what its events lead to.", icon=":material/error:")
    parts.plain_text(found.said)
    if len(found.problems):
        parts.table(found.problems, key="verify_problems")


def _odd(run: Run) -> None:
    st.subheader("What was counted as odd", anchor=False)
    table = loading.odd_counts(run)
    shown = table.assign(share=table["count"] / table["among"].where(table["among"] > 0))
    parts.table(
        shown[["what", "count", "share", "among", "unit", "meaning"]], key="odd_counts",
        columns={
            "count": st.column_config.NumberColumn(format="localized"),
            "share": st.column_config.NumberColumn(format="percent"),
            "among": st.column_config.NumberColumn("among so many", format="localized"),
            "meaning": "what was done",
        },
    )  # fmt: skip


def _counted(run: Run) -> None:
    """Every counter of the session, whether or not it counted anything odd."""
    found = loading.session_counts(run)
    if found.table.empty:
        return
    st.subheader("What the session counted", anchor=False)
    at = f"step {found.step}" if found.step is not None else "its beginning"
    st.caption(f"As it last said so, at {at}; the same numbers as in its metrics.")
    columns = {"count": st.column_config.NumberColumn(format="localized"), "meaning": "what it means"}
    parts.table(found.table, key="session_counts", columns=columns)


def _dropped(run: Run) -> None:
    reasons, first = loading.import_drops(run)
    if reasons.empty:
        return
    st.subheader("What the import left out", anchor=False)
    left, right = st.columns(2, gap="medium")
    with left:
        parts.table(reasons, key="drop_reasons")
    with right:
        if len(first):
            parts.table(first, key="first_drops")


def _files(run: Run) -> None:
    st.subheader("Files of the run folder", anchor=False)
    table = loading.log_files(run)
    parts.table(
        table, key="log_files",
        columns={**BYTES, "changed": st.column_config.DatetimeColumn("changed (UTC)", format="YYYY-MM-DD HH:mm:ss")},
    )  # fmt: skip
    missing = int((table["what"] == "missing").sum())
    if missing:
        st.warning(f"{words.count(missing)} that every run has are missing.", icon=":material/warning:")
