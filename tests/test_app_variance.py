from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from page_runs import app, shown_page, write_runs
from small_run import opened, write_run

from envsched_core import views

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")
page = pytest.importorskip("envsched_dashboard.app_pages.variance")
figures = pytest.importorskip("envsched_dashboard.variance_charts")

from streamlit.testing.v1 import AppTest  # noqa: E402  (after the skips)

EVIL = "<a href='x'>$x$ %{y}</a>"

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = write_runs(tmp_path_factory.mktemp("app"))
    write_run(folder / "longer", steps=8)
    return folder


def visit(runs: Path, monkeypatch: pytest.MonkeyPatch, **values: object) -> AppTest:
    return shown_page(app(runs, monkeypatch), "variance", **values)


def captions(test: AppTest) -> str:
    return "\n".join(caption.value for caption in test.caption)


def test_the_page_judges_the_predictions_by_evidence_state(runs, monkeypatch):
    view = opened(runs / "longer")
    test = visit(runs, monkeypatch, run="longer")
    ranks, inside = views.rank_correlations(view).iloc[0], views.interval_coverage(view)
    said = captions(test)
    assert f"Spearman's {ranks['correlation']:.2g} over {ranks['groups']} groups" in said
    assert f"{inside['inside'].iloc[0]:.0%} against 90 % nominal" in said
    table = next(d.value for d in test.dataframe if "nominal" in d.value.columns)
    assert table["groups"].tolist() == inside["groups"].tolist()
    curve = [d.value for d in test.dataframe if "from_predicted" in d.value.columns]
    assert [set(t["state"]) & {"all picks"} for t in curve] == [{"all picks"}, set()]


def test_the_headline_follows_the_filters(runs, monkeypatch):
    view = opened(runs / "longer")
    whole, one = views.variance_means(view), views.variance_means(view, views.Filters(environments=("env1",)))
    told = views.summary(view)
    assert list(whole.values()) == pytest.approx([told.predicted_variance, told.predicted_shown, told.mean_variance])
    assert one != whole
    said = visit(runs, monkeypatch, run="longer", env=["env1"]).subheader[0].value
    assert said.startswith(f"Picks that pass the filters were predicted a mean variance of {one['predicted']:.3g},")
    assert said.endswith(f"they showed {one['observed']:.3g}.")
    log = visit(runs, monkeypatch, run="log", env=["env1"]).subheader[0].value
    assert log.startswith("Observed groups of the chosen environments had")


def test_filters_narrow_the_judgement_or_say_that_too_little_is_left(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="longer", env=["env0", "env1"])
    assert "Observed picks that pass the filters" in captions(test)
    test = visit(runs, monkeypatch, run="longer", outcome=["too_similar"])
    assert any("Fewer than 16 observed picks" in info.value for info in test.info)
    assert any("No cell has a value" in info.value for info in test.info) or "pass the filters" in captions(test)


@pytest.mark.parametrize("view", ["Predicted", "Observed", "Observed - predicted"])
def test_one_environment_shows_its_tasks_and_the_way_back(runs, monkeypatch, view):
    test = visit(runs, monkeypatch, run="demo", step=2, env=["env1"], view=view)
    assert any(text.value == "Tasks of env1, step 2 marked." for text in test.text)
    test.button(key="all_environments").click().run()
    assert test.multiselect(key="env").value == []
    assert "Click a cell for the tasks of its environment" in captions(test)


def test_columns_and_what_a_cell_holds_are_chosen(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="longer", together="Largest", span="5 steps")
    said = captions(test)
    assert "Largest predicted variance over all tasks" in said
    assert "Each column puts 5 steps together" in said
    test = visit(runs, monkeypatch, run="longer", state=["own history"])
    assert "Only tasks that pass the filters" in captions(test)


def test_a_cell_leads_to_its_tasks_and_a_task_to_its_decision(runs, monkeypatch):
    grid = views.variance_grid(opened(runs / "demo"))
    asked: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(parts, "go_to", lambda to, **values: asked.append((to, values)))
    page._open_environment(grid, 1 * len(grid.steps) + 2)
    tasks = views.task_grid(opened(runs / "demo"), "env1", span=2)
    row, column = map(int, np.argwhere(tasks.picked_at == 1)[0])
    page._open_task(tasks, row * len(tasks.steps) + column)
    page._open_task(tasks, int(np.argwhere(tasks.picked_at[:, 1] < 0)[0, 0]) * len(tasks.steps) + 1)
    assert asked[0] == ("variance", {"step": 2, "env": [grid.envs[1]]})
    assert asked[1] == ("decision", {"step": 1, "task": f"env1::{tasks.tasks[row]}"})
    assert asked[2][1]["step"] == 2


@pytest.mark.parametrize("run", ["log", "stepless", "new"])
def test_runs_without_decisions_show_what_there_is(runs, monkeypatch, run):
    test = visit(runs, monkeypatch, run=run)
    said = "\n".join(info.value for info in test.info)
    assert {"log": "no decision was recorded", "stepless": "carry no step", "new": "no events with a step"}[run] in said
    assert not [d for d in test.dataframe if "nominal" in d.value.columns]


# ---------------------------------------------------------------------- figures


def values() -> np.ndarray:
    return np.array([[0.1, np.nan, 0.0], [np.nan, 0.0, np.nan]], dtype=np.float32)


def test_not_observed_is_told_apart_from_nothing():
    drawn = figures.cells(["a", EVIL], [0, 1, 2], values(), span=1, kind="observed", chosen=1)
    assert drawn["values"] == [0.1, None, 0.0, None, 0.0, None]
    assert (drawn["blank"], drawn["unit"], drawn["chosen"]) == ("not observed", "observed variance", 1)
    assert figures.cells(["a"], [0], values()[:1, :1], span=1, kind="predicted")["blank"] == "no prediction on record"


@pytest.mark.parametrize(("kind", "ends"), [("predicted", (0.0, 0.25)), ("difference", (-0.25, 0.25))])
def test_colours_mean_the_same_at_every_step(kind, ends):
    for value in (0.01, 0.24):
        drawn = figures.cells(["e"], [4], np.full((1, 1), value, np.float32), span=1, kind=kind)
        assert drawn["scale"] == ends
        assert len(drawn["colours"]) == (3 if kind == "difference" else 10)


def test_dots_are_picks_and_where_results_are_shown_only_those_without():
    picks = np.array([[1, 0, 0], [0, 1, 2]], dtype=np.int32)
    told = figures.cells(["a", "b"], [0, 1, 2], values(), span=1, kind="predicted", picks=picks)
    assert (told["dots"], told["dotted"]) == ([0, 4, 5], "picked")
    seen = figures.cells(["a", "b"], [0, 1, 2], values(), span=1, kind="observed", picks=picks)
    assert (seen["dots"], seen["dotted"]) == ([5], "picked, no result")


def test_sentences_say_what_is_missing():
    ranks = pd.DataFrame({"correlation": [np.nan], "groups": [20], "right": [np.nan]})
    assert "no order to judge" in page.rank_sentence(ranks)
    within = pd.DataFrame(
        {"interval": ["group", "task"], "inside": [0.9, 0.5], "right": [0.95, 0.6], "binary": [0.25, 0.25]}
    )
    assert "rewards of 0 and 1, as 25% of" in page.within_sentence(within)
    assert "3 steps" in page.grid_caption("difference", "largest", 3, filtered=False)


def test_a_log_without_steps_leads_from_environment_to_tasks(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="stepless", env=["env1"])
    assert any(text.value == "Tasks of env1." for text in test.text)
    table = next(d.value for d in test.dataframe if "task" in d.value.columns)
    assert (len(table), table["groups"].sum()) == (12, 12)
