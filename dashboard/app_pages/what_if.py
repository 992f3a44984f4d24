"""What if: one recorded step decided again under other settings; the numbers here are computed, not read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import compare_charts as figures
from .. import compare_words, loading, parts, words
from ..frame import Frame
from ..loading import Progress, Rearranged, Run, Setting, Smallest
from . import states

__all__ = ["show"]

RECOMPUTED = (
    "Computed now, not read: the calls of the run are repeated up to this step, then the step is decided twice, under "
    "its own settings and under the changed ones. Everything before the step stays as it was, and no reward is known "
    "of what enters: this is what the choice would have been, not what it would have led to."
)
AS_IT_IS = "as it is"
TASK_CHOICES = {AS_IT_IS: "", "pin it": "pin_tasks", "exclude it": "exclude_tasks"}
MOST_TEXT = 4_000
"""Characters of changes that a link may carry."""


def show(frame: Frame, run: Run) -> None:
    """The form of settings, what they change in the step, and what would have picked the chosen task."""
    step = frame.step
    if step is None:
        states.no_step(frame)
        return
    if loading.composition(run, step).empty:
        states.no_decisions(frame)
        return
    st.badge("Recomputed", icon=":material/replay:", color="orange")
    st.caption(RECOMPUTED)
    try:
        known = loading.what_if_settings(run, step)
        if frame.task is not None:  # a task is asked about: its answer first, the settings below
            _smallest(run, step, frame.task)
        wanted = _wanted()
        _form(run, step, known, wanted, frame)
        if wanted:
            _answer(run, step, wanted, frame)
        else:
            st.info("Change a setting and decide the step again.", icon=":material/tune:")
        if frame.task is None:
            _smallest(run, step, None)
    except EnvSchedError as error:
        st.error("This step cannot be decided so.", icon=":material/error:")
        parts.plain_text(str(error))


# ---------------------------------------------------------------------- the settings


def _wanted() -> dict[str, Any]:
    """The changes that the link carries, as JSON in `set`."""
    with st.expander("The changes as the link carries them", icon=":material/data_object:"):
        text = st.text_input(
            "JSON, setting to value", key="set", bind="query-params", max_chars=MOST_TEXT,
            placeholder='{"weight_task": 2, "max_shares": {"ENV": 0.5}}',
        )  # fmt: skip
        parts.values_taken("set")
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        st.warning("The link's changes are no JSON object; none are made.", icon=":material/link_off:")
        parts.plain_text(str(error))
        return {}


def _form(run: Run, step: int, known: tuple[Setting, ...], wanted: dict[str, Any], frame: Frame) -> None:
    """One field a setting; submitted, what differs from the run's own goes into the link."""
    # Other settings, another step or another link start the fields anew.
    mark = zlib.crc32(msgspec.json.encode([run.path, step, wanted, frame.task]))
    with st.form(f"what_if_{mark}", border=True):
        fields = {s.name: s for s in known if s.kind != "quota"}
        for kind, title in (("weight", "Weights"), ("draw", "Draw"), ("relation", "Trust in each source")):
            shown = [s for s in fields.values() if s.kind == kind]
            if shown:
                st.markdown(f"**{title}**")
            for column, s in zip(_columns(len(shown)), shown, strict=False):
                with column:
                    _field(s, wanted.get(s.name, s.value), f"what_if_{mark}_{s.name}")
        st.markdown("**Quotas and availability**")
        _quota_fields(run, known, wanted, frame.task, mark)
        st.form_submit_button(
            "Decide again",
            icon=":material/replay:",
            type="primary",
            on_click=_submit,
            args=(mark, known, wanted, frame.task),
        )
    if wanted:
        st.button("Back to the run's settings", icon=":material/undo:", key="what_if_reset", on_click=_use, args=({},))


def _columns(n: int) -> list[Any]:
    return [column for _ in range(-(-n // 4)) for column in st.columns(4)]


def _field(s: Setting, value: Any, key: str) -> None:
    title = compare_words.setting(s.name)
    title = f"{title[:1].upper()}{title[1:]}"
    if s.choices:
        at = s.choices.index(value) if value in s.choices else None
        st.selectbox(title, s.choices, index=at, key=key, help=f"this step used {s.value:g}")
        return
    st.number_input(
        title, min_value=0.0, value=_number(value, float(s.value)), step=0.05, format="%.6g", key=key,
        help=f"the run has {s.value:g}",
    )  # fmt: skip


def _number(value: Any, otherwise: float) -> float:
    """A number of the link as a field can show it."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e6
    return float(value) if fits else otherwise


def _quota_fields(run: Run, known: tuple[Setting, ...], wanted: dict[str, Any], task: str | None, mark: int) -> None:
    most = next(s for s in known if s.name == "max_share")
    one, two, three, four = st.columns(4)
    with one:
        _field(most, wanted.get("max_share", most.value), f"what_if_{mark}_max_share")
    two.selectbox(
        "Environment with a quota of its own", sorted(loading.environments(run)["env"]), index=None,
        key=f"what_if_{mark}_env", placeholder="none",
    )  # fmt: skip
    three.number_input(
        "Its largest share", min_value=0.0, max_value=1.0, value=1.0, step=0.05, key=f"what_if_{mark}_env_share"
    )
    four.selectbox("The task chosen on the left", list(TASK_CHOICES), key=f"what_if_{mark}_task", disabled=task is None)


def _submit(mark: int, known: tuple[Setting, ...], wanted: dict[str, Any], task: str | None) -> None:
    """From the form: what differs from the run's own settings, and the link's changes that have no field."""
    values = st.session_state
    changes = {s.name: wanted[s.name] for s in known if s.kind == "quota" and s.name in wanted}
    changes.pop("max_share", None)
    for s in known:
        field = values.get(f"what_if_{mark}_{s.name}")
        if field is not None and s.kind != "quota" and float(field) != float(s.value):
            changes[s.name] = float(field)
    own = {s.name: s.value for s in known}
    if float(values[f"what_if_{mark}_max_share"]) != float(own["max_share"]):
        changes["max_share"] = float(values[f"what_if_{mark}_max_share"])
    if env := values.get(f"what_if_{mark}_env"):
        given = changes.get("max_shares")
        share = {env: float(values[f"what_if_{mark}_env_share"])}
        changes["max_shares"] = given | share if isinstance(given, dict) else share
    name = TASK_CHOICES[values.get(f"what_if_{mark}_task") or AS_IT_IS]
    if name and task:
        for other in filter(None, TASK_CHOICES.values()):  # pinned or excluded, not both
            tasks = [key for key in _tasks(changes.get(other, own[other])) if key != task]
            if other == name or other in changes:
                changes[other] = [*tasks, task] if other == name else tasks
    _use(changes)


def _tasks(value: Any) -> list[Any]:
    """The tasks of a setting; a link may hold anything."""
    return list(value) if isinstance(value, list | tuple) else []


def _use(changes: dict[str, Any]) -> None:
    """From a callback: put changes into the link."""
    parts.ask(set=msgspec.json.encode(changes).decode() if changes else "")


# ---------------------------------------------------------------------- the answer


@contextmanager
def _progress(text: str) -> Iterator[Progress]:
    """A bar for as long as the work takes, with how much of it is done."""
    bar = st.progress(0.0, text=text)

    def tell(done: int, total: int) -> None:
        bar.progress(min(done / max(total, 1), 1.0), text=f"{text} {done:,} of {total:,}")

    try:
        yield tell
    finally:
        bar.empty()


def _answer(run: Run, step: int, wanted: dict[str, Any], frame: Frame) -> None:
    with _progress(f"Repeating the steps before step {step}:") as tell:
        found = loading.what_if(run, step, wanted, tell)
    before, after = found.picks
    st.subheader(compare_words.what_if_sentence(step=step, stay=found.stay, before=before, after=after), anchor=False)
    _told(found)
    if not found.changes.empty:
        changes = found.changes.assign(setting=[compare_words.setting(name) for name in found.changes["setting"]])
        parts.table(changes, key="what_if_changes")
    if found.moves.empty:
        return
    _moves(found, frame)
    st.markdown("**Picks by environment**")
    moved = found.environments.head(40)
    if len(moved) < len(found.environments):
        st.caption(words.size_note(len(moved), len(found.environments), "environments, largest difference first"))
    parts.chart(
        partial(figures.moved_environments, moved), found.environments, key="what_if_environments", rows=len(moved),
        alt="Picks by environment under the run's settings and under the changed ones",
    )  # fmt: skip


def _told(found: Rearranged) -> None:
    """Whether the recomputed batch under the run's own settings is the recorded one."""
    if found.fault:
        st.warning(
            "This version of EnvSched does not give the recorded batch again: both batches below are its own, not the "
            "run's.",
            icon=":material/warning:",
        )
        parts.plain_text(found.fault)
    else:
        st.caption(
            f":material/check: Under the run's own settings all {words.count(found.picks[0])} recorded picks come out "
            "again, every number of the record to 1e-9."
        )
    for note in found.notes:
        st.caption(note)


def _moves(found: Rearranged, frame: Frame) -> None:
    table = found.moves
    if frame.filters.environments:
        table = table[table["env"].isin(frame.filters.environments)].reset_index(drop=True)
    if table.empty:
        st.info("No task that enters or leaves passes the filters.", icon=":material/filter_alt_off:")
        return
    keys = [f"{env}::{task}" for env, task in zip(table["env"], table["task"], strict=True)]
    st.caption("Select a row to see its terms under both settings.")
    parts.pick_row(
        _readable(table), key="what_if_moves",
        on_pick=lambda row: st.session_state.__setitem__("what_if_row", keys[row]),
        columns={name: st.column_config.NumberColumn(format="%.4f") for name in ("score before", "score here")},
    )  # fmt: skip
    chosen = st.session_state.get("what_if_row")
    row = keys.index(chosen) if chosen in keys else 0
    _side_by_side(found, table.iloc[row])


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "change": table["change"],
            "environment": table["env"],
            "task": table["task"],
            "was": [words.outcome(code) for code in table["outcome_before"]],
            "is here": [words.outcome(code) for code in table["outcome_after"]],
            "score before": table["score_before"],
            "score here": table["score_after"],
            "pick before": table["position_before"],
            "pick here": table["position_after"],
        }
    )


def _side_by_side(found: Rearranged, row: pd.Series[Any]) -> None:
    """Why one task enters or leaves: both verdicts, and the terms beside each other."""
    parts.plain_text(f"{row['env']}::{row['task']} {row['change']}")
    left, right = st.columns(2, gap="medium")
    for place, side, title in (
        (left, "before", "Under the run's settings"),
        (right, "after", "Under the changed ones"),
    ):
        with place:
            st.markdown(f"**{title}**")
            parts.plain_text(row[f"why_{side}"])
            st.caption(f"Score {words.number(row[f'score_{side}'])}, cut-off {words.number(row[f'cutoff_{side}'])}.")
    terms = found.terms[(found.terms["env"] == row["env"]) & (found.terms["task"] == row["task"])]
    parts.chart(
        partial(figures.term_pairs, terms),
        terms,
        key="what_if_terms",
        alt="Terms of the score under both settings, side by side",
    )


# ---------------------------------------------------------------------- the smallest change


def _smallest(run: Run, step: int, task: str | None) -> None:
    st.subheader("The smallest change that would have picked a task", anchor=False)
    if task is None:
        st.caption("Choose a task on the left.")
        return
    parts.plain_text(f"{task} at step {step}")
    known = loading.explained(run, step, task)
    lacking = compare_words.lacking_sentence(score=known.score, cutoff=known.cutoff)
    if lacking and known.outcome in ("below_cutoff", "too_similar"):
        st.caption(lacking)
    question = [run.path, step, task]
    st.button(
        "Find it", icon=":material/search:", key="smallest_button", on_click=_ask, args=(question,),
        help="each setting is tried alone; every trial decides the whole step again",
    )  # fmt: skip
    if st.session_state.get("smallest") != question:
        return
    with _progress("Repeating the steps before it, then trying one setting after the other:") as tell:
        found = loading.smallest_change(run, step, task, tell)
    _found(found)


def _ask(question: list[object]) -> None:
    st.session_state["smallest"] = question


def _found(found: Smallest) -> None:
    first = found.changes[0] if found.changes else None
    parts.plain_text(
        compare_words.smallest_sentence(
            picked=found.picked, barred=found.barred, changes=len(found.changes), tried=found.tried,
            first=compare_words.change(first.kind, first.name, first.was, first.needs) if first else "",
            leave=first.leave if first else 0,
        )
    )  # fmt: skip
    if not found.changes:
        return
    st.caption("Each row alone picks it. Select one to decide the step with it.")
    table = pd.DataFrame(
        {
            "change": [compare_words.change(c.kind, c.name, c.was, c.needs) for c in found.changes],
            "was": [c.was for c in found.changes],
            "needs": [c.needs for c in found.changes],
            "it becomes pick": [c.position + 1 for c in found.changes],
            "picks that leave": [c.leave for c in found.changes],
        }
    )
    settings = [c.settings for c in found.changes]
    parts.pick_row(table, key="smallest_changes", on_pick=lambda row: _use(settings[row]))
    if found.without:
        names = ", ".join("its quota" if name == "quota" else compare_words.setting(name) for name in found.without)
        st.caption(f"At no value tried: {names}.")
