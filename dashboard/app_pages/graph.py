"""Graph: which tasks are related, and where does evidence flow?

What is chosen stands in the URL: the scope, colour, relations, smallest weight, search, and the node or edge whose
facts stand beside the map. A click changes the URL; the page is drawn from it, so links and Back work.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError

from .. import graph_export, graph_looks, graph_panel, graph_tables, graph_words, loading, parts
from ..frame import Frame
from ..graph_colours import COLOURS, legend
from ..graph_looks import Look
from ..graph_view import graph_view
from ..loading import GraphMap, Run

__all__ = ["show"]

TASK, ENVIRONMENT, ALL, ENVIRONMENTS = "Around a task", "One environment", "All tasks", "Environments"
MOST_TASKS = 5_000
"""Tasks that are drawn one by one."""
EVERYTHING = 10**9
HEIGHT = 600
STYLE = """<style>
@media (max-width: 1150px) {
  .st-key-graph_split > div > [data-testid="stHorizontalBlock"], .st-key-graph_split [data-testid="stHorizontalBlock"] {
    flex-wrap: wrap; }
  .st-key-graph_split > [data-testid="stLayoutWrapper"] > [data-testid="stHorizontalBlock"] > [data-testid="stColumn"] {
    min-width: 100%; }
}
.st-key-graph_panel .stText, .st-key-graph_panel .stText > div { font-size: .86rem; line-height: 1.45; }
</style>"""


class Settings(NamedTuple):
    """What the controls above the map say."""

    scope: str
    color: str
    relations: tuple[str, ...]
    weight: float
    find: str


def show(frame: Frame) -> None:
    """A map with its panel, its tables and its files."""
    run = frame.run
    st.title("Graph")
    if run is None:
        return
    envs = sorted(loading.environments(run)["env"])
    if not envs:
        st.info("No tasks are registered yet.", icon=":material/hourglass_empty:")
        return
    st.html(STYLE)
    _leave_other_run(run)
    chosen = _controls(run, frame)
    if chosen.scope == ENVIRONMENTS:
        _environments(run, frame, chosen)
    else:
        _tasks(run, frame, chosen, envs)


def _leave_other_run(run: Run) -> None:
    """A node or an edge chosen in another run means nothing here."""
    if st.session_state.get("graph_run", run.path) != run.path:
        _choose(None)
    st.session_state["graph_run"] = run.path


# ---------------------------------------------------------------------- the controls


def _controls(run: Run, frame: Frame) -> Settings:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        scope = _scope(run, frame)
        color = st.selectbox(
            "Colour by", COLOURS, key="color", bind="query-params", width=190,
        )  # fmt: skip
        relations = st.pills(
            "Edges", ["within", "cross"], default=["within", "cross"], selection_mode="multi", key="relations",
            bind="query-params", disabled=scope == ENVIRONMENTS,
        )  # fmt: skip
        weight = st.slider("Smallest edge weight", 0.0, 1.0, 0.0, 0.05, key="weight", bind="query-params", width=200)
        find = st.text_input(
            "Find a task", key="find", bind="query-params", placeholder="name or words of its text", width=220
        )
    return Settings(scope, str(color or COLOURS[0]), tuple(relations), float(weight), (find or "").strip())


def _scope(run: Run, frame: Frame) -> str:
    """Follows the task, the filters and the size of the catalogue until one is chosen."""
    _, total = loading.task_keys(run, frame.filters.environments, 1)
    scopes = [TASK, ENVIRONMENT, *([ALL] if total <= MOST_TASKS else []), ENVIRONMENTS]
    fitting = ALL if total <= MOST_TASKS else ENVIRONMENTS
    if frame.task is not None:
        fitting = TASK
    elif len(frame.filters.environments) == 1:
        fitting = ENVIRONMENT
    # A link without a scope, for one from another page, shows what it names, whatever was looked at before.
    asked, before = (frame.task, frame.filters.environments), st.session_state.get("graph_asked")
    scope = st.session_state.get("scope")
    stale = before is not None and before[0] != asked and before[1] == scope
    if st.query_params.get("scope") not in scopes and (stale or scope not in scopes):
        st.session_state["scope"] = fitting
    chosen = str(
        st.segmented_control("Show", scopes, key="scope", bind="query-params", required=True) or fitting
    )  # fmt: skip
    parts.values_taken("scope")
    st.session_state["graph_asked"] = (asked, chosen)
    return chosen


# ---------------------------------------------------------------------- maps of tasks


def _tasks(run: Run, frame: Frame, chosen: Settings, envs: list[str]) -> None:
    found, title, ask = _task_map(run, frame, chosen, envs)
    if found is None:
        return
    parts.plain_text(title)
    nodes = dict(zip(found.nodes["node"].astype(int), found.nodes["key"], strict=True))
    if found.absent:
        st.info(graph_words.ABSENT[found.absent], icon=":material/info:")
        graph_tables.task_tables(found, _listed, ask, None)
        return
    key, edge = _chosen(run, nodes, frame)
    hits, total = loading.find_tasks(run, chosen.find, frame.filters.environments) if chosen.find else (None, 0)
    if key:
        found = _with_all_of(found, loading.neighbours(run, key, frame.step), key, chosen)
    st.caption(_sizes(found, chosen))
    if empty := graph_words.no_edges(found, chosen.relations, chosen.weight):
        st.info(empty, icon=":material/info:")
    flow, said = graph_panel.flow_of(run, frame.step, key) if key else (pd.DataFrame(), None)
    look = _look(run, frame, chosen, found, key=key, edge=edge, hits=hits, flow=flow, title=title)
    data = graph_looks.task_data(found, look)
    st.html(legend(look.color, look.steps))
    with st.container(key="graph_split"):
        left, right = st.columns([1.8, 1], gap="medium")
        with left:
            graph_view(data, key="graph", height=HEIGHT, on_click=lambda hit: _clicked(hit, nodes))
        with right, st.container(key="graph_panel"):
            _panel(run, frame, chosen, found, nodes, key, edge, hits, total, flow, said)
    graph_tables.task_tables(found, _listed, ask, partial(_page, data, look, title, frame, found, chosen))


def _task_map(
    run: Run, frame: Frame, chosen: Settings, envs: list[str]
) -> tuple[GraphMap | None, str, partial[GraphMap]]:
    """The map, what it shows in words, and how to ask for all of it."""
    given: dict[str, Any] = {"relations": chosen.relations, "weight": chosen.weight}
    if chosen.scope == TASK:
        ask = partial(loading.ego_graph, run, frame.task or "", frame.step, **given)
        if frame.task is None:
            st.info(
                "Choose a task on the left, or find one above, to see what it is tied to.", icon=":material/search:"
            )
            if chosen.find:
                hits, total = loading.find_tasks(run, chosen.find, frame.filters.environments)
                graph_panel.found_tasks(hits, total, set(), _open_around)
            return None, "", ask
        return ask(), f"Around {frame.task}", partial(ask, most_nodes=EVERYTHING, most_edges=EVERYTHING)
    if chosen.scope == ENVIRONMENT:
        env = _environment(frame, envs)
        ask = partial(loading.environment_graph, run, env, frame.step, **given)
        whole = partial(ask, most_nodes=EVERYTHING, most_edges=EVERYTHING, most_cross=EVERYTHING)
        return ask(), f"Environment {env}", whole
    ask = partial(loading.task_graph, run, frame.step, frame.filters.environments, **given)
    some = f"Tasks of {', '.join(frame.filters.environments)}" if frame.filters.environments else "All tasks"
    return ask(), some, partial(ask, most_within=EVERYTHING, most_cross=EVERYTHING)


def _with_all_of(found: GraphMap, ties: pd.DataFrame, key: str, chosen: Settings) -> GraphMap:
    """The map with every edge of one task that the controls let through and whose other end is on it."""
    node = dict(zip(found.nodes["key"], found.nodes["node"].astype(int), strict=True))
    ties = ties[ties["key"].isin(node.keys()) & ties["relation"].isin(chosen.relations)]
    ties = ties[ties["weight"] >= chosen.weight]
    if key not in node or ties.empty:
        return found
    own = ties[["relation", "weight", "parts"]].assign(source=node[key], target=ties["key"].map(node))
    there = found.edges[(found.edges["source"] != node[key]) & (found.edges["target"] != node[key])]
    return msgspec.structs.replace(found, edges=pd.concat([own, there], ignore_index=True)[list(found.edges)])


def _environment(frame: Frame, envs: list[str]) -> str:
    """The filtered environment, else that of the task, else the first; several are told."""
    wanted = frame.filters.environments
    if len(wanted) > 1:
        st.caption("Several environments are chosen on the left; the map shows the first of them.")
    if wanted:
        return wanted[0]
    if frame.task is not None:
        return frame.task.split("::", 1)[0]
    st.caption("Choose an environment in the filters on the left; the first one is shown.")
    return envs[0]


def _sizes(found: GraphMap, chosen: Settings) -> str:
    what = {TASK: "tasks within two edges", ENVIRONMENT: "tasks of the environment"}.get(chosen.scope, "tasks")
    around, fair = chosen.scope == TASK, chosen.scope == ALL
    return graph_words.sizes(found, what, chosen.relations, chosen.weight, around=around, fair=fair)


def _page(data: dict[str, Any], look: Look, title: str, frame: Frame, found: GraphMap, chosen: Settings) -> bytes:
    """The map as a file of its own."""
    lines = [_sizes(found, chosen), _where(frame)]
    return graph_export.standalone_page(data, legend(look.color, look.steps), title, lines)


def _where(frame: Frame) -> str:
    return f"Run {frame.name}" + ("" if frame.step is None else f", step {frame.step}")


# ---------------------------------------------------------------------- what is chosen


def _listed(key: str) -> None:
    """A task chosen from a list: the map brings it into sight."""
    st.session_state["graph_look"] = st.session_state.get("graph_look", 0) + 1
    _choose(key)


def _choose(key: str | None, edge: tuple[int, int] | None = None) -> None:
    """Put a task, an edge or nothing into the URL."""
    for name, value in (("node", key), ("edge", f"{min(edge)}-{max(edge)}" if edge else None)):
        if value is not None:
            st.query_params[name] = value
        elif name in st.query_params:
            del st.query_params[name]


def _clicked(hit: dict[str, Any], nodes: dict[int, str]) -> None:
    if "node" in hit:
        _choose(nodes.get(int(hit["node"])))
    elif "edge" in hit:
        one, other = (int(end) for end in hit["edge"])
        _choose(None, (one, other))
    else:
        _choose(None)


def _chosen(run: Run, nodes: dict[int, str], frame: Frame) -> tuple[str | None, tuple[int, int] | None]:
    """The task and the edge that the URL names; what it names in vain is told."""
    edge = _ends(st.query_params.get("edge"))
    if edge is not None and set(edge) <= set(nodes):
        return None, edge
    if "edge" in st.query_params:
        st.warning("The link's edge is not between two tasks of this map.", icon=":material/link_off:")
    key = st.query_params.get("node")
    if key is None:
        return (frame.task if frame.task in nodes.values() else None), None
    try:
        loading.task(run, key)
    except EnvSchedError:
        st.warning("The link's task is not in this run.", icon=":material/link_off:")
        return None, None
    return key, None


def _ends(raw: str | None) -> tuple[int, int] | None:
    ends = (raw or "").split("-")
    if len(ends) != 2 or not all(end.isascii() and end.isdecimal() and len(end) < 10 for end in ends):
        return None
    return int(ends[0]), int(ends[1])


def _look(
    run: Run, frame: Frame, chosen: Settings, found: GraphMap, *, key: str | None, edge: tuple[int, int] | None,
    hits: pd.DataFrame | None, flow: pd.DataFrame, title: str,
) -> Look:  # fmt: skip
    nodes = found.nodes
    kept = frame.filters.keep(nodes if chosen.scope != TASK else nodes.drop(columns="env"))
    at = nodes.loc[nodes["key"] == key, "node"]
    return Look(
        shape=json.dumps([run.path, chosen.scope, title]),
        color=chosen.color,
        steps=(frame.steps[0], frame.steps[-1]) if frame.steps else (0, 0),
        selected=int(at.iloc[0]) if len(at) else None,
        edge=f"{edge[0]}-{edge[1]}" if edge else None,
        matches=None if hits is None or hits.empty else frozenset(hits["node"].astype(int)),
        faint=frozenset(set(nodes["node"].astype(int)) - set(kept["node"].astype(int)))
        if frame.filters.outcomes or frame.filters.states
        else frozenset(),
        flow=flow if len(flow) else None,
        look=int(st.session_state.get("graph_look", 0)),
        around=chosen.scope == TASK,
    )


def _panel(
    run: Run, frame: Frame, chosen: Settings, found: GraphMap, nodes: dict[int, str], key: str | None,
    edge: tuple[int, int] | None, hits: pd.DataFrame | None, total: int, flow: pd.DataFrame,
    said: loading.Explained | None,
) -> None:  # fmt: skip
    if edge is not None:
        try:
            facts = loading.edge_facts(run, nodes[edge[0]], nodes[edge[1]], frame.step)
        except EnvSchedError:
            st.caption("The graph of this step has no edge between these two; another step's may.")
            parts.plain_text("\n".join(nodes[end] for end in edge))
        else:
            graph_panel.chosen_edge(facts, _listed)
    elif key is not None:
        around = chosen.scope == TASK and key == frame.task
        open_around = None if around else _open_around
        graph_panel.chosen_task(run, frame, key, found, flow, said, _listed, open_around)
    if hits is not None:
        graph_panel.found_tasks(hits, total, set(nodes), _listed)
    elif edge is None and key is None:
        graph_panel.step_picks(found, frame.step, _listed)


# ---------------------------------------------------------------------- the map of environments


def _environments(run: Run, frame: Frame, chosen: Settings) -> None:
    found = loading.environment_map(run, frame.step, chosen.weight)
    nodes = dict(zip(found.nodes["node"].astype(int), found.nodes["env"], strict=True))
    if found.absent:
        st.info(graph_words.ABSENT[found.absent], icon=":material/info:")
        graph_tables.environment_tables(found, _open_environment, lambda: found, None)
        return
    st.caption(graph_words.environment_sizes(found, chosen.weight))
    if why := graph_words.too_many(int(found.nodes["tasks"].sum()), MOST_TASKS):
        st.caption(why)
    hits, total = loading.find_tasks(run, chosen.find, frame.filters.environments) if chosen.find else (None, 0)
    ends = _ends(st.query_params.get("edge"))
    look = Look(
        shape=json.dumps([run.path, chosen.scope]),
        color=chosen.color,
        steps=(frame.steps[0], frame.steps[-1]) if frame.steps else (0, 0),
        edge=f"{ends[0]}-{ends[1]}" if ends else None,
        matches=None
        if hits is None or hits.empty
        else frozenset(i for i, env in nodes.items() if env in set(hits["env"])),
        faint=frozenset(i for i, env in nodes.items() if env not in frame.filters.environments)
        if frame.filters.environments
        else frozenset(),
    )
    data = graph_looks.environment_data(found, look)
    st.html(legend(look.color, look.steps, environments=True))
    with st.container(key="graph_split"):
        left, right = st.columns([1.8, 1], gap="medium")
        with left:
            graph_view(data, key="graph", height=HEIGHT, on_click=lambda hit: _environment_clicked(hit, nodes))
        with right, st.container(key="graph_panel"):
            if ends is not None:
                graph_panel.chosen_pair(found, ends, _open_environment)
            if hits is not None:
                graph_panel.found_tasks(hits, total, set(), _open_around)
            elif ends is None:
                st.caption("Click an environment for its tasks; click a line for the edges between two environments.")
    key = legend(look.color, look.steps, environments=True)
    lines = [graph_words.environment_sizes(found, chosen.weight), _where(frame)]
    page = partial(graph_export.standalone_page, data, key, "Environments", lines)
    whole = partial(loading.environment_map, run, frame.step, chosen.weight, EVERYTHING, EVERYTHING)
    graph_tables.environment_tables(found, _open_environment, whole, page)


def _stay(**values: object) -> None:
    """From a callback: set values of the frame and of this page without leaving it; the frame takes them in."""
    _choose(None)
    parts.ask(**values)


def _open_environment(env: str) -> None:
    _stay(env=[env], task=None, scope=ENVIRONMENT)


def _open_around(key: str) -> None:
    _stay(task=key, scope=TASK)


def _environment_clicked(hit: dict[str, Any], nodes: dict[int, str]) -> None:
    if "node" in hit:
        _open_environment(nodes[int(hit["node"])])
    elif "edge" in hit:
        one, other = (int(end) for end in hit["edge"])
        _choose(None, (one, other))
    else:
        _choose(None)
