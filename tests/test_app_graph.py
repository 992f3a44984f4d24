from __future__ import annotations

import io
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from graph_runs import HOSTILE_ENVS, hostile_tasks, write_hostile_run
from page_runs import app, shown_page, sound
from small_run import write_log, write_run

from envsched_core import views
from envsched_core.views.run_view import RunView

pytest.importorskip("envsched_dashboard")

from envsched_dashboard import graph_colours, graph_export, graph_looks


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("graph_pages")
    write_run(folder / "demo", last_open=True)
    write_hostile_run(folder / "hostile")
    write_log(folder / "log")
    return folder


@pytest.fixture
def graph(runs, monkeypatch):
    """The Graph page of a run at a step, with the given controls; `node` and `edge` as the URL has them."""

    def at(node: str = "", edge: str = "", **values: object):
        test = sound(app(runs, monkeypatch, run=str(values.pop("run", "demo")), step="2").run())
        test = shown_page(test, "graph", **values)
        for key, value in (("node", node), ("edge", edge)):
            if value:
                test.query_params[key] = value
        return sound(test.run()) if node or edge else test

    return at


def view_of(runs: Path, name: str) -> RunView:
    view = RunView(runs / name)
    view.poll()
    return view


def text_of(test) -> str:
    return "\n".join(str(e.value) for kind in (test.caption, test.text, test.markdown, test.info) for e in kind)


def test_the_map_says_how_much_of_the_whole_it_shows(graph, runs):
    found = view_of(runs, "demo").graph()
    said = text_of(graph())
    assert "All 48 tasks." in said
    assert f"Edges within: {found.within.nnz // 2} of {found.within.nnz // 2}." in said
    assert f"Edges across: {min(500, found.cross.nnz // 2)} of {found.cross.nnz // 2}." in said
    assert "Graph version 1." in said
    one = text_of(graph(env=["env1"]))
    assert "Environment env1" in one
    assert "All 12 tasks of the environment." in one


def test_a_task_of_the_url_has_its_facts_and_neighbours_beside_the_map(graph, runs):
    test = graph(node="env2::task-4")
    table = views.neighbours(view_of(runs, "demo"), "env2::task-4", 2)
    said = text_of(test)
    assert f"Neighbours: {len(table)}" in said
    row = views.task_graph(view_of(runs, "demo"), 2).nodes.set_index("key").loc["env2::task-4"]
    assert f"Predicted variance {row['variance']:.3g} of at most 0.25, rank {row['rank']}" in said
    assert test.button(key="open_decision").label == "Its decision"
    sound(test.button(key="open_decision").click().run())
    assert test.title[0].value == "Decision"
    assert test.session_state["task"] == "env2::task-4"


def test_an_edge_of_the_url_has_its_parts_beside_the_map(graph, runs):
    edge = views.task_graph(view_of(runs, "demo"), 2).edges.iloc[0]
    test = graph(edge=f"{edge['source']}-{edge['target']}")
    assert f"weight {edge['weight']:.3f}" in text_of(test)
    (table,) = [e.value for e in test.dataframe if "compared" in e.value]
    assert table["value"].sum() == pytest.approx(edge["weight"], abs=1e-5)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"node": "env9::<b>gone</b>"}, "The link's task is not in this run."),
        ({"edge": "7-900000"}, "The link's edge is not between two tasks of this map."),
        ({"edge": "<b>"}, "The link's edge is not between two tasks of this map."),
    ],
)
def test_a_bad_link_is_told(graph, link, said):
    assert [w.value for w in graph(**link).warning] == [said]


def test_controls_narrow_the_edges_and_say_so(graph, runs):
    test = graph()
    test = sound(test.slider(key="weight").set_value(1.0).run())
    found = views.task_graph(view_of(runs, "demo"), 2, weight=1.0)
    assert f"Edges within: 0 of {found.within_total} (0 weigh 1 or more)." in text_of(test)
    test = sound(test.pills(key="relations").set_value(["within"]).run())
    assert f"Edges across: 0 of {found.cross_total} (switched off)." in text_of(test)
    said = f"No edge of these kinds weighs 1 or more here; the strongest of any kind weighs {found.heaviest:.2f}."
    assert said in text_of(test)
    test = sound(test.slider(key="weight").set_value(0.0).run())
    test = sound(test.pills(key="relations").set_value([]).run())
    assert "Both kinds of edges are switched off." in text_of(test)


@pytest.mark.parametrize(("color", "said"), [
    ("observations", "groups observed before the step"), ("evidence state", "own history"),
    ("last step", "last observed at step 0"), ("predicted variance", "predicted variance 0"),
])  # fmt: skip
def test_every_colour_has_its_legend(graph, color, said):
    test = graph(color=color)
    assert any(said in e.proto.body for e in test.get("html"))


def test_evidence_has_the_colour_of_its_legend_whatever_the_relation(runs):
    view = view_of(runs, "hostile")  # both relations are trusted there, whatever would be learned
    found = views.task_graph(view, 2)
    nodes = found.nodes.set_index("key")["node"]
    told = [c.key for c in view.decisions(2)[-1].candidates]
    looks = [
        graph_looks.Look("x", selected=int(nodes[key]), flow=views.evidence_flow(views.explained(view, 2, key)))
        for key in told
    ]
    arrows = [arrow for look in looks for arrow in graph_looks.task_data(found, look)["flow"]]
    assert {arrow["cross"] for arrow in arrows} == {False, True}
    (colour,) = {arrow["colour"] for arrow in arrows}
    assert f'{colour};vertical-align:middle"></b> evidence into the chosen task' in LEGEND


def test_a_search_lists_what_it_found(graph):
    said = text_of(graph(find="family of 2"))
    assert "Found: 16" in said
    assert "16 of the listed are on this map" in said
    assert "No task's name, or beginning of its text, holds these words." in text_of(graph(find="no such words"))


def test_environments_are_a_map_of_their_own(graph, runs):
    found = views.environment_map(view_of(runs, "demo"), 2)
    said = text_of(graph(scope="Environments"))
    assert "All 4 environments." in said
    assert f"Pairs tied by cross edges: 6 of 6, with {found.cross_total} of {found.cross_total} cross edges." in said
    row = found.edges.to_dict("records")[0]
    test = graph(scope="Environments", edge=f"{row['source']}-{row['target']}")
    assert f"{row['edges']} cross edges, mean weight {row['weight']:.3f}" in text_of(test)
    test = sound(test.button(key="pair_source").click().run())
    assert f"Environment {found.nodes['env'].iloc[row['source']]}" in text_of(test)


def test_a_log_says_why_it_has_no_graph(graph):
    test = graph(run="log")
    assert "There is no graph here: this is a log" in text_of(test)
    assert len(test.dataframe(key="graph_nodes").value) == 24


# ---------------------------------------------------------------------- files


LEGEND = graph_colours.legend(graph_colours.VARIANCE, (0, 2))


def hostile_files(runs: Path) -> tuple[str, bytes, views.GraphMap]:
    view = view_of(runs, "hostile")
    found = views.task_graph(view, 2)
    task = hostile_tasks()[0].key
    node = int(found.nodes.loc[found.nodes["key"] == task, "node"].iloc[0])
    flow = views.evidence_flow(views.explained(view, 2, task))
    look = graph_looks.Look("x", selected=node, matches=frozenset(found.nodes["node"]), flow=flow)
    data = graph_looks.task_data(found, look)
    page = graph_export.standalone_page(data, LEGEND, f"Around {task}", [f"Run {HOSTILE_ENVS[1]}"])
    return page.decode(), graph_export.graphml(found), found


def test_the_page_of_a_map_asks_nobody_and_runs_nothing_of_a_log(runs):
    page = hostile_files(runs)[0]
    plain = graph_export.standalone_page(
        graph_looks.task_data(views.task_graph(view_of(runs, "demo"), 2), graph_looks.Look("x")), LEGEND, "A title", []
    ).decode()
    assert not re.search(r"<(link|script|img|iframe|a)\b[^>]*\b(src|href)\s*=", page, re.IGNORECASE)
    for tag in ("<script", "</script", "<img", "<b ", 'onmouseover="', "innerHTML"):
        assert page.count(tag) == plain.count(tag), tag
    assert "Content-Security-Policy" in page
    assert page.count("elsewhere.invalid") > 6  # the names are there, as texts


def test_graphml_comes_back_as_it_went(runs):
    _, file, found = hostile_files(runs)
    graph = nx.read_graphml(io.BytesIO(file), node_type=int)
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (len(found.nodes), len(found.edges))
    for row in found.nodes.to_dict("records"):
        facts = graph.nodes[row["node"]]
        assert facts["env"] == row["env"].replace("\x07", "\ufffd")
        assert facts["task"] == row["task"]
        assert facts["variance"] == pytest.approx(row["variance"])
    edge = found.edges.iloc[0]
    facts = graph.edges[edge["source"], edge["target"]]
    assert (facts["relation"], facts["weight"]) == (edge["relation"], pytest.approx(edge["weight"]))


def test_colours_keep_to_their_scale_and_grey_is_not_known():
    found = graph_colours.colours(np.array([0.0, 0.25, 9.0, -1.0, np.nan]), 0.0, 0.25)
    low, high = graph_colours.CIVIDIS[0], graph_colours.CIVIDIS[-1]
    assert found == [low, high, high, low, graph_colours.NOT_KNOWN]
