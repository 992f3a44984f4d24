"""Decision: why was this task picked (or not) at this step?"""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError
from envsched_core.explanation import PART_WORDS, features_sentence, logit_parts, ties, trust_sentence
from envsched_core.records import Candidate

from .. import charts, loading, parts, words
from ..frame import Frame
from ..loading import Explained, Run
from . import rollouts, states
from .compare import WHAT_IF

__all__ = ["show"]


def show(frame: Frame) -> None:
    """The verdict, its terms, its evidence, its rivals, the task's history and its rollouts."""
    run, step = frame.run, frame.step
    st.title("Decision")
    if run is None:
        return
    key = frame.task or _first_pick(run, step)
    if key is None:
        st.info("Choose a task on the left.", icon=":material/arrow_back:")
        return
    if frame.task is None:
        st.caption("No task is chosen on the left, so the first one is shown.")
    parts.plain_text(f"{key}" if step is None else f"{key}   at step {step}")
    if step is not None and loading.composition(run, step).empty:
        states.no_decisions(frame)
    elif step is not None:
        _why(run, step, key)
    _task_text(run, key)
    _history(run, key, step)
    rollouts.show(run, key, step)


def _first_pick(run: Run, step: int | None) -> str | None:
    if step is not None:
        table = loading.batch(run, step)
        if len(table):
            return f"{table['env'].iloc[0]}::{table['task'].iloc[0]}"
    keys, _ = loading.task_keys(run, (), 1)
    return keys[0] if keys else None


def _why(run: Run, step: int, key: str) -> None:
    try:
        found = loading.explained(run, step, key)
        if found.candidate is None and st.session_state.get("rederive") == [run.path, step, key]:
            with st.spinner("Computing the step again from the events …"):
                found = loading.rederived(run, step, key)
    except EnvSchedError as error:
        st.error("This decision cannot be explained.", icon=":material/error:")
        parts.plain_text(str(error))
        return
    _verdict(found, run, key)
    _what_if(run, step, key, picked=found.picked)
    if found.candidate is not None:
        _terms_and_evidence(found, found.candidate)
    _rivals(run, step, key, found)


def _what_if(run: Run, step: int, key: str, *, picked: bool) -> None:
    """To the page that decides this step again."""
    title = "What if the settings had been others?" if picked else "What would have picked it?"

    def go() -> None:
        # Whoever asks what would have picked it gets the answer there, without asking once more.
        asked = {} if picked else {"smallest": [run.path, step, key]}
        parts.go_to("compare", compare=WHAT_IF, step=step, task=key, **asked)

    st.button(title, icon=":material/tune:", key="to_what_if", on_click=go)


def _verdict(found: Explained, run: Run, key: str) -> None:
    with st.container(border=True, key="verdict"):
        if found.candidate is not None:
            _badge(picked=found.picked)
            parts.plain_text(found.verdict)
            c = found.candidate
            sentence = words.prediction_sentence(
                mean=c.mean, low=c.low, high=c.high, value=c.variance, usable=c.usable, rollouts=c.rollouts
            )
            st.caption(f"{sentence} Evidence: {c.state}.")
            if found.source == "re-derived":
                st.caption(":material/replay: Computed again from the run's events; it was not on record.")
            return
        if found.source == "nothing":
            st.write("This step has no word on the task: it was not in the random sample of the rest.")
        else:
            sentence = words.standing_sentence(
                rank=found.rank, score=found.score, cutoff=found.cutoff, code=found.outcome, eligible=found.eligible,
                spent=found.spent,
            )  # fmt: skip
            _badge(picked=False)
            parts.plain_text(sentence)
            st.caption(f"Predicted variance {words.variance(found.variance)} of at most 0.25. Evidence: {found.state}.")
        st.caption(
            "Terms and evidence are recorded for picks, near misses and a random sample of the rest; for this task "
            "they can be computed again from the run's events."
        )
        st.button(
            "Compute its terms again", icon=":material/replay:", key="rederive_button",
            on_click=_ask_again, args=([run.path, found.step, key],),
        )  # fmt: skip


def _badge(*, picked: bool) -> None:
    if picked:
        st.badge("Picked", icon=":material/check:", color="blue")
    else:
        st.badge("Not picked", icon=":material/block:", color="gray")


def _ask_again(wanted: list[object]) -> None:
    st.session_state["rederive"] = wanted


def _terms_and_evidence(found: Explained, c: Candidate) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**How the score adds up**")
        terms = pd.DataFrame(
            [(words.term(name), value) for name, value in c.terms.items()] + [("score", c.score)],
            columns=["term", "value"],
        )
        parts.chart(
            partial(charts.waterfall, c.terms, c.score, found.cutoff), terms, key="terms", rows=len(terms),
            alt=f"Waterfall of the terms that sum to the score {words.number(c.score)}",
        )  # fmt: skip
        _limits(found, c)
    with right:
        st.markdown("**Where the prediction came from**")
        shares = pd.DataFrame(
            [(words.source(name), share) for name, share in c.shares.items()], columns=["source", "share"]
        )
        parts.chart(
            partial(charts.evidence_split, c.shares), shares, key="shares", alt="Share of each source of evidence"
        )
        _features(c)
    with st.expander("What the words mean", icon=":material/menu_book:"):
        for word, meaning in words.GLOSSARY.items():
            st.markdown(f"**{word}**: {meaning}")
    _evidence(c)


def _features(c: Candidate) -> None:
    """What the task's text, tools and environment predict."""
    told = logit_parts(c)
    if not told:
        return
    st.markdown("**What its features say**")
    st.caption(features_sentence(told))
    table = pd.DataFrame([(PART_WORDS[name], value) for name, value in told.items()], columns=["features", "logit"])
    parts.chart(
        partial(charts.logit_parts, table["features"].tolist(), table["logit"].tolist()), table, key="features",
        rows=len(table), alt="Logits that each kind of feature adds to the predicted mean reward",
    )  # fmt: skip


def _limits(found: Explained, c: Candidate) -> None:
    """The numbers the outcome follows from."""
    lines = [words.reason(c.outcome, _json(c))]
    if found.cutoff is not None:
        margin = c.score - found.cutoff
        how = "tied with the score" if ties(margin) else f"margin {words.signed(margin)}"
        lines.append(f"Cut-off {words.number(found.cutoff)}, {how}.")
    if found.quota is not None:
        q = found.quota
        lines.append(
            f"Quota of its environment: {q.used} of {q.limit} used, {q.blocked} turned away, shadow price "
            f"{words.number(q.price)}."
        )
    if found.runner_up == c.key:
        lines.append("No task that was not picked had a higher score.")
    elif found.runner_up is not None:
        lines.append(f"Best task not picked: {found.runner_up} with score {words.number(found.runner_up_score)}.")
    if found.trust is not None:
        lines.append(trust_sentence(found.trust))
    parts.plain_text("\n".join(lines))


def _json(c: Candidate) -> str:
    return pd.Series(c.details, dtype=object).to_json()


def _evidence(c: Candidate) -> None:
    if not c.evidence:
        st.caption("No task had spoken for it yet: the prediction is its environment's and the overall mean.")
        return
    st.subheader("Strongest evidence", anchor=False)
    keys = [f"{e.env}::{e.task}" for e in c.evidence]
    table = pd.DataFrame(
        {
            "task": keys,
            "relation": [e.relation for e in c.evidence],
            "share": [e.share for e in c.evidence],
            "edge weight": [e.weight for e in c.evidence],
            "mean reward": [e.mean for e in c.evidence],
            "rollouts": [e.rollouts for e in c.evidence],
            "last step": [e.last_step for e in c.evidence],
        }
    )
    parts.pick_row(
        table,
        key="evidence",
        on_pick=lambda row: parts.go_to("decision", task=keys[row]),
        columns={
            "share": st.column_config.ProgressColumn(
                "share of the mean", format="percent", min_value=0.0, max_value=1.0
            ),
            "edge weight": st.column_config.NumberColumn(format="%.2f"),
            "mean reward": st.column_config.NumberColumn(format="%.2f"),
            "rollouts": st.column_config.NumberColumn("rollouts (aged)", format="%.1f"),
        },
    )


def _rivals(run: Run, step: int, key: str, found: Explained) -> None:
    st.subheader("Just above and just below it", anchor=False)
    table = loading.rivals(run, step, key)
    if table.empty:
        st.caption("No other task of this step is on record.")
        return
    said = "By rank before any pick; scores are those at the moment of picking, or against the finished batch."
    if not table["this"].any():
        said = "It could not be picked, so it has no rank: the first of the ranking are shown."
    st.caption(said)
    keys = [f"{env}::{task}" for env, task in zip(table["env"], table["task"], strict=True)]
    left, right = st.columns(2, gap="medium")
    with left:
        parts.chart(
            partial(charts.rivals, table, found.cutoff), table, key="rivals_chart", rows=len(table),
            alt="Scores of the tasks next in rank",
        )  # fmt: skip
    with right:
        shown = table.assign(outcome=charts.rival_outcomes(table, found.cutoff)).rename(
            columns={"this": "this task", "env": "environment", "variance": "predicted variance", "state": "evidence"}
        )
        parts.pick_row(
            shown,
            key="rivals",
            on_pick=lambda row: parts.go_to("decision", task=keys[row]),
            columns={
                "score": st.column_config.NumberColumn(format="%.4f"),
                "predicted variance": st.column_config.NumberColumn(format="%.3f"),
            },
        )


def _task_text(run: Run, key: str) -> None:
    spec = loading.task(run, key)
    with st.expander("The task as the catalogue has it", icon=":material/description:"):
        facts = [
            f"{words.several(len(spec.tools), 'tool')}: {', '.join(t.name for t in spec.tools[:12])}"
            if spec.tools
            else "no tools known"
        ]
        if spec.calls:
            facts.append(f"reference calls: {' > '.join(spec.calls)}")
        if spec.verifier:
            facts.append(f"verifier: {spec.verifier}")
        if spec.draws is not None:
            facts.append(f"recorded groups: {spec.draws}")
        parts.plain_text("\n".join(facts))
        if spec.text:
            st.code(spec.text[:20_000], language=None, wrap_lines=True)


def _history(run: Run, key: str, step: int | None) -> None:
    st.subheader("This task over the run", anchor=False)
    table = loading.timeline(run, key)
    if table.empty:
        st.caption("No step has a word on this task.")
        return
    parts.chart(
        partial(charts.timeline, table, step), table, key="timeline",
        alt="Predicted and observed variance of the task by step",
    )  # fmt: skip
