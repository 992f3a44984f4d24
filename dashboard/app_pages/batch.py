"""Batch: what is in this step's batch, and where did it come from?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from .. import batch_charts as figures
from .. import charts, loading, parts, words
from ..frame import Frame
from ..loading import BatchChange, Run
from . import states

__all__ = ["change_sentence", "show"]

MOST_ENVS = 40
"""Environments in the composition chart; the table twin has all."""


def show(frame: Frame) -> None:
    """Composition against quotas, what the picks were scored for, what changed, the pick order, alike picks."""
    run, step = frame.run, frame.step
    st.title("Batch" if step is None else f"Batch of step {step}")
    if run is None or step is None:
        return states.no_step(frame)
    table = loading.batch(run, step)
    composition = loading.composition(run, step)
    if composition.empty:
        return states.no_decisions(frame)
    steps = loading.steps(run)
    row = steps[steps["step"] == step].iloc[0]
    st.subheader(_sentence(row, composition), anchor=False)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _composition(composition, frame)
    with right:
        _worth(run, step, drawn=int(row["draws"]) == int(row["picks"]))
    _change(run, step, frame)
    _order(frame.filters.keep(table))
    _play(table)
    _alike(run, step)
    return None


def _sentence(row: pd.Series[Any], composition: pd.DataFrame) -> str:
    return words.batch_sentence(
        step=int(row["step"]),
        picks=int(row["picks"]),
        envs=int(row["environments"]),
        draws=int(row["draws"]),
        bound=int((composition["blocked"] > 0).sum()),
        mixed=int(composition["mixed"].sum()),
        answered=int(composition["answered"].sum()),
    )


def _composition(table: pd.DataFrame, frame: Frame) -> None:
    st.markdown("**Where the picks come from**")
    if frame.filters.environments:
        table = table[table["env"].isin(frame.filters.environments)]
    shown = table.head(MOST_ENVS)
    if len(shown) < len(table):
        st.caption(words.size_note(len(shown), len(table), "environments, most picks first"))
    alt = "Picks by environment against quotas"
    parts.chart(partial(charts.composition, shown), table, key="composition", alt=alt, rows=len(shown))


def _worth(run: Run, step: int, *, drawn: bool) -> None:
    st.markdown("**What the picks were scored for**")
    totals = loading.term_totals(run, step)
    if drawn:
        st.caption("Every pick was a uniform draw: these scores decided nothing.")
    else:
        st.caption(words.worth_sentence(dict(zip(totals["name"], totals["total"], strict=True))))
    alt = "Mean signed terms per pick"
    parts.chart(partial(charts.term_totals, totals), totals, key="term_totals", alt=alt, rows=len(totals))
    st.markdown("**How every task of the pool ended**")
    counts = loading.outcome_counts(run, step)
    outcomes = [
        words.outcome(code) if code in words.OUTCOMES else "in a way not known here" for code in counts["outcome"]
    ]
    shown = pd.DataFrame({"outcome": outcomes, "tasks": counts["tasks"].map(words.count)})
    parts.short_table(shown, counts, key="outcome_counts")


def _change(run: Run, step: int, frame: Frame) -> None:
    found = loading.batch_change(run, step)
    if found.before is None:
        return
    st.subheader(f"What changed since step {found.before}", anchor=False)
    st.caption(change_sentence(found))
    table = found.environments
    if frame.filters.environments:
        table = table[table["env"].isin(frame.filters.environments)]
    moved = table[table["change"] != 0].head(MOST_ENVS)
    if moved.empty:
        st.caption("Every environment got as many picks as before.")
        return
    with st.expander("Environments that gained or lost picks", icon=":material/swap_horiz:"):
        parts.chart(
            partial(figures.changes, moved), table, key="batch_change", rows=len(moved),
            alt=f"Change of picks of {len(moved)} environments against step {found.before}",
        )  # fmt: skip


def change_sentence(found: BatchChange) -> str:
    """How many tasks stayed, came and left."""
    return (
        f"Tasks picked at both steps: {words.count(found.kept)}; entered: {words.count(found.entered)}; "
        f"left: {words.count(found.left)}; picked for the first time in the run: {words.count(found.first_time)}."
    )


def _play(table: pd.DataFrame) -> None:
    """The batch as it was filled; all picks, whatever the filters."""
    picks = table[table["kept_as"] == "pick"].sort_values("position", kind="stable")
    if len(picks) < 2 or picks["env"].nunique() > MOST_ENVS:
        return
    with st.expander("Play the pick order", icon=":material/play_circle:"):
        st.caption("Press Play: the batch fills pick by pick. Quotas and similarity to earlier picks change the order.")
        shown = picks[["position", "env", "task", "outcome", "score"]].assign(position=picks["position"] + 1)
        alt = f"Player over {len(picks)} picks: picks of each environment so far"
        parts.chart(partial(figures.played, picks), shown, key="pick_player", alt=alt, rows=picks["env"].nunique())


def _order(table: pd.DataFrame) -> None:
    st.subheader("Picks in order, then near misses, then a sample of the rest", anchor=False)
    if table.empty:
        st.info("No candidate on record passes the filters.", icon=":material/filter_alt_off:")
        return
    st.caption("Select a row to see why. Filters on the left narrow the table.")
    keys = [f"{env}::{task}" for env, task in zip(table["env"], table["task"], strict=True)]
    parts.pick_row(
        _readable(table),
        key="pick_order",
        on_pick=lambda row: parts.go_to("decision", task=keys[row]),
        columns={
            "pick": st.column_config.NumberColumn("pick", help="1-based order in the step; empty when not picked"),
            "score": st.column_config.NumberColumn(format="%.4f", help="score units, at the moment of picking"),
            "over cut-off": st.column_config.NumberColumn(format="%+.4f"),
            "predicted variance": st.column_config.ProgressColumn(format="%.3f", min_value=0.0, max_value=0.25),
            "observed variance": st.column_config.NumberColumn(format="%.3f"),
        },
    )


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    reasons = [words.reason(code, details) for code, details in zip(table["outcome"], table["details"], strict=True)]
    came = [
        "mixed" if mixed else "flat" if ended == "observed" else ended
        for ended, mixed in zip(table["ended"].fillna(""), table["mixed"].astype("boolean").fillna(False), strict=True)
    ]
    return pd.DataFrame(
        {
            "pick": table["position"] + 1,
            "environment": table["env"],
            "task": table["task"],
            "why": reasons,
            "score": table["score"],
            "over cut-off": table["margin"],
            "predicted variance": table["variance"],
            "came out": came,
            "observed variance": table["observed"],
            "evidence": table["state"],
            "rank before picks": table["rank"].where(table["rank"] > 0),
            "on record as": table["kept_as"].str.replace("_", " "),
        }
    )


def _alike(run: Run, step: int) -> None:
    st.subheader("Picks that are alike", anchor=False)
    pairs = loading.redundancy(run, step)
    if pairs.empty:
        st.caption("No two picks of this batch are tied in a graph of this run.")
        return
    pairs = pairs.assign(a_position=pairs["a_position"] + 1, b_position=pairs["b_position"] + 1)
    st.caption(
        "The strongest ties of the graph between two picks of this batch; the similarity penalty keeps them few."
    )
    weights, keys = loading.alike_matrix(run, step)
    parts.chart(
        partial(figures.alike, weights, keys), _pairs(weights, keys), key="alike_matrix",
        alt=f"Edge weights between {len(keys)} picks in pick order",
        on_click=lambda cell: parts.go_to("decision", task=keys[int(cell) // len(keys)]),
    )  # fmt: skip
    if len(keys) < int(pairs[["a_position", "b_position"]].max().max()):
        st.caption(f"The first {words.count(len(keys))} picks are drawn.")
    parts.table(
        pairs,
        key="alike",
        columns={
            "a": "task",
            "b": "alike task",
            "a_position": st.column_config.NumberColumn("pick"),
            "b_position": st.column_config.NumberColumn("pick of the other"),
            "weight": st.column_config.ProgressColumn("edge weight", format="%.2f", min_value=0.0, max_value=1.0),
        },
    )


def _pairs(weights: NDArray[np.float32], keys: list[str]) -> pd.DataFrame:
    """The drawn half of the matrix as rows, strongest first."""
    r, c = (at.tolist() for at in np.nonzero(np.triu(weights)))
    rows = [(i + 1, keys[i], j + 1, keys[j], float(weights[i, j])) for i, j in zip(r, c, strict=True)]
    table = pd.DataFrame(rows, columns=["pick", "task", "other pick", "other task", "edge weight"])
    return table.sort_values("edge weight", ascending=False, kind="stable")
