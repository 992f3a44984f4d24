"""What stands beside the map: the chosen task with its neighbours and its evidence, or the chosen edge's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError

from . import loading, parts, words
from .frame import Frame
from .loading import EdgeFacts, EnvironmentMap, Explained, GraphMap, Run

__all__ = ["PART_MEANINGS", "chosen_edge", "chosen_pair", "chosen_task", "flow_of", "found_tasks", "step_picks"]

Choose = Callable[[str], None]
PART_MEANINGS = {
    "text": "words of both texts",
    "tools": "tools of both",
    "state": "objects of the environment's state",
    "verifier": "how both are checked",
    "calls": "reference calls in order",
    "roles": "what their calls do, in order",
    "shape": "length and form of the calls",
    "topology": "where the rewards lie",
}
"""Part of an edge -> what was compared."""
FIRST = 220
"""Characters of a task's text shown here."""


def flow_of(run: Run, step: int | None, key: str) -> tuple[pd.DataFrame, Explained | None]:
    """The evidence behind a task's prediction at a step, on record or computed because the reader asked for it."""
    if step is None:
        return pd.DataFrame(), None
    try:
        found = loading.explained(run, step, key)
        if found.candidate is None and st.session_state.get("rederive") == [run.path, step, key]:
            with st.spinner("Computing the step again from the events …"):
                found = loading.rederived(run, step, key)
    except EnvSchedError:
        return pd.DataFrame(), None
    return loading.evidence_flow(found), found


# ---------------------------------------------------------------------- a task


def chosen_task(
    run: Run, frame: Frame, key: str, found: GraphMap, flow: pd.DataFrame, said: Explained | None, choose: Choose,
    open_around: Choose | None,
) -> None:  # fmt: skip
    """Facts of the task, where its prediction came from, its neighbours, and the way on."""
    parts.plain_text(key)
    _facts(run, frame, key, found)
    with st.container(horizontal=True):
        st.button(
            "Its decision", icon=":material/help_center:", key="open_decision", type="primary",
            on_click=lambda: parts.go_to("decision", task=key),
        )  # fmt: skip
        if open_around is not None:
            st.button(
                "Around it", icon=":material/filter_center_focus:", key="open_around",
                on_click=open_around, args=(key,),
            )  # fmt: skip
    if key not in set(found.nodes["key"]):
        st.caption("It is not on this map; “Around it” shows it with its neighbours.")
    _flow(run, frame, key, found, flow, said, choose)
    _neighbours(run, frame, key, choose)


def _facts(run: Run, frame: Frame, key: str, found: GraphMap) -> None:
    spec = loading.task(run, key)
    rows = found.nodes[found.nodes["key"] == key]
    lines = []
    if len(rows):
        row = rows.iloc[0]
        state = row["state"] if isinstance(row["state"], str) else "not on record"
        rank = words.count(row["rank"])
        lines = [
            f"Predicted variance {words.variance(row['variance'])} of at most 0.25, rank {rank}",
            f"{words.outcome(row['outcome'])}; evidence: {state}",
            _seen(row, frame.step),
            f"Pattern: {row['pattern']}" if row["pattern"] != "unknown" else "Pattern: not known",
        ]
    tools = ", ".join(tool.name for tool in spec.tools[:8])
    lines.append(f"{words.several(len(spec.tools), 'tool')}: {tools}" if tools else "No tools known")
    if spec.text:
        text = " ".join(spec.text[: 4 * FIRST].split())
        lines.append(text[:FIRST] + ("…" if len(text) > FIRST or len(spec.text) > 4 * FIRST else ""))
    parts.plain_text("\n".join(lines))


def _seen(row: Any, step: int | None) -> str:
    when = "" if step is None else f" before step {step}"
    text = f"{words.several(row['groups'], 'group')} observed{when}"
    return text if pd.isna(row["last_step"]) else f"{text}, the last at step {int(row['last_step'])}"


def _flow(
    run: Run, frame: Frame, key: str, found: GraphMap, flow: pd.DataFrame, said: Explained | None, choose: Choose
) -> None:
    st.markdown("**Evidence into it**")
    if frame.step is None or said is None:
        st.caption("No decision of this step has a word on it.")
        return
    if flow.empty:
        st.caption("What its prediction came from is on record for picks, near misses and a random sample only.")
        st.button(
            "Compute it again", icon=":material/replay:", key="rederive_flow",
            on_click=_ask_again, args=([run.path, frame.step, key],),
        )  # fmt: skip
        return
    given = flow[flow["source"].isin(["within", "cross"])]
    named = given[given["key"] != ""]
    off = int((~named["key"].isin(set(found.nodes["key"]))).sum())
    text = f"Neighbours gave {words.percent(float(given['share'].sum()))} of the predicted mean at step {frame.step}"
    if off:
        text += f"; {words.count(off)} of the {words.count(len(named))} named are not on this map"
    if said.source == "re-derived":
        text += "; computed again from the run's events"
    st.caption(f"{text}. Arrows show who; rows sum to 100 %.")
    table = pd.DataFrame(
        {
            "share": flow["share"],
            "from": [key or _unnamed(name) for key, name in zip(flow["key"], flow["source"], strict=True)],
            "source": [words.source(str(name)) for name in flow["source"]],
            "edge weight": flow["weight"],
            "mean reward": flow["mean"],
            "rollouts": flow["rollouts"],
            "last step": flow["last_step"],
        }
    )
    keys = flow["key"].tolist()
    parts.pick_row(
        table, key="graph_flow", rows=6, on_pick=lambda row: choose(keys[row]) if keys[row] else None,
        columns={
            "share": st.column_config.ProgressColumn(
                "share", format="percent", min_value=0.0, max_value=1.0, width="small"
            ),
            "edge weight": st.column_config.NumberColumn(format="%.2f"),
            "mean reward": st.column_config.NumberColumn(format="%.2f"),
            "rollouts": st.column_config.NumberColumn("rollouts (aged)", format="%.1f"),
        },
    )  # fmt: skip


def _unnamed(source: str) -> str:
    return "others, not named on record" if source in ("within", "cross") else words.source(source)


def _ask_again(wanted: list[object]) -> None:
    st.session_state["rederive"] = wanted


def _neighbours(run: Run, frame: Frame, key: str, choose: Choose) -> None:
    table = loading.neighbours(run, key, frame.step)
    st.markdown(f"**Neighbours: {words.count(len(table))}**")
    if table.empty:
        st.caption("No edge leads to or from it in the graph of this step.")
        return
    keys = table["key"].tolist()
    shown = table[["weight", "key", "relation", "parts", "groups", "variance", "state"]]
    parts.pick_row(
        shown, key="graph_neighbours", rows=7, on_pick=lambda row: choose(keys[row]),
        columns={
            "key": "task",
            "weight": st.column_config.NumberColumn("weight", format="%.2f", width="small"),
            "parts": "made of",
            "groups": "groups observed",
            "variance": st.column_config.NumberColumn("predicted variance", format="%.3f"),
            "state": "evidence",
        },
    )  # fmt: skip


# ---------------------------------------------------------------------- an edge


def chosen_edge(facts: EdgeFacts, choose: Choose) -> None:
    """The parts that an edge's weight is the sum of, and what both ends share."""
    where = "across environments" if facts.relation == "cross" else "within one environment"
    st.markdown(f"**Edge {where}, weight {facts.weight:.3f}**")
    parts.plain_text(f"{facts.source}\n{facts.target}")
    with st.container(horizontal=True):
        st.button("First task", key="edge_source", on_click=lambda: choose(facts.source))
        st.button("Second task", key="edge_target", on_click=lambda: choose(facts.target))
    st.caption(f"What it is made of, as graph version {facts.version} has it; the parts sum to the weight.")
    table = facts.parts.assign(compared=[PART_MEANINGS.get(name, "") for name in facts.parts["part"]])
    parts.table(
        table[["part", "value", "share", "compared"]], key="edge_parts",
        columns={
            "value": st.column_config.NumberColumn("part of the weight", format="%.3f"),
            "share": st.column_config.ProgressColumn("share", format="percent", min_value=0.0, max_value=1.0),
        },
    )  # fmt: skip
    lines = [f"Tools of both: {', '.join(facts.tools)}" if facts.tools else "No tool is known of both."]
    lines += [f"Reference calls: {' > '.join(calls)}" for calls in facts.calls if calls]
    parts.plain_text("\n".join(lines))


def chosen_pair(found: EnvironmentMap, ends: tuple[int, int], opened: Choose) -> None:
    """Two environments and the edges between them."""
    names = dict(zip(found.nodes["node"], found.nodes["env"], strict=True))
    hits = found.edges[(found.edges["source"] == ends[0]) & (found.edges["target"] == ends[1])]
    if hits.empty or not set(ends) <= set(names):
        st.caption("That pair has no edge on this map.")
        return
    row = hits.iloc[0]
    st.markdown(f"**{words.several(row['edges'], 'cross edge')}, mean weight {row['weight']:.3f}**")
    parts.plain_text(f"{names[ends[0]]}\n{names[ends[1]]}")
    with st.container(horizontal=True):
        st.button("Open the first", key="pair_source", on_click=lambda: opened(names[ends[0]]))
        st.button("Open the second", key="pair_target", on_click=lambda: opened(names[ends[1]]))


# ---------------------------------------------------------------------- nothing, or a search


def step_picks(found: GraphMap, step: int | None, choose: Choose) -> None:
    """While nothing is chosen: how to choose, and the step's picks on the map as a way to."""
    st.caption("Click a task for its facts, its neighbours and its evidence; click an edge for what it is made of.")
    picks = found.nodes[found.nodes["outcome"].isin(["selected", "uniform_draw"])]
    if step is None or picks.empty:
        return
    picks = picks.sort_values(["variance", "node"], ascending=[False, True])
    st.markdown(f"**Picked at step {step} and on this map: {words.count(len(picks))}**")
    st.caption("By predicted variance, of at most 0.25.")
    keys = picks["key"].tolist()
    parts.pick_row(
        picks[["variance", "key", "state", "groups"]], key="graph_picks", rows=12,
        on_pick=lambda row: choose(keys[row]),
        columns={
            "variance": st.column_config.NumberColumn("variance", format="%.3f", width="small"),
            "key": "task",
            "state": "evidence",
            "groups": "groups observed",
        },
    )  # fmt: skip


def found_tasks(table: pd.DataFrame, total: int, on_map: set[int], choose: Choose) -> None:
    """The tasks that a search found, and how many of them are on the map."""
    here = int(table["node"].isin(on_map).sum())
    st.markdown(f"**Found: {words.count(total)}**")
    if not total:
        st.caption("No task's name, or beginning of its text, holds these words.")
        return
    note = words.size_note(len(table), total, "tasks that were found, in the order of the catalogue")
    st.caption(f"{note} {words.count(here)} of the listed are on this map and ringed there.")
    keys = table["key"].tolist()
    shown = table.assign(here=table["node"].isin(on_map))[["key", "here", "text"]]
    parts.pick_row(
        shown, key="graph_found", rows=10, on_pick=lambda row: choose(keys[row]),
        columns={"key": "task", "here": st.column_config.CheckboxColumn("on this map")},
    )  # fmt: skip
