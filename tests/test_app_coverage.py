from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from page_runs import app, shown_page, write_runs

from envsched_core import views
from envsched_core.views.run_view import RunView

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")
page = pytest.importorskip("envsched_dashboard.app_pages.coverage")
batch = pytest.importorskip("envsched_dashboard.app_pages.batch")
overview = pytest.importorskip("envsched_dashboard.app_pages.overview")
figures = pytest.importorskip("envsched_dashboard.coverage_charts")
batch_figures = pytest.importorskip("envsched_dashboard.batch_charts")

from streamlit.testing.v1 import AppTest  # noqa: E402  (after the skips)

EVIL = "<a href='x'>$x$ %{y}</a>"

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return write_runs(tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="module")
def view(runs) -> RunView:
    view = RunView(runs / "demo")
    view.poll()
    return view


def visit(runs: Path, monkeypatch: pytest.MonkeyPatch, to: str = "coverage", **values: object) -> AppTest:
    return shown_page(app(runs, monkeypatch), to, **values)


def captions(test: AppTest) -> str:
    return "\n".join(caption.value for caption in test.caption)


# ---------------------------------------------------------------------- coverage


def test_the_page_follows_the_step(runs, view, monkeypatch):
    row = views.coverage(view).table.iloc[1]
    test = visit(runs, monkeypatch, run="demo", step=1)
    assert test.subheader[0].value.startswith(
        f"By step 1, {row['tasks']:.0f} of 48 tasks and {row['environments']:.0f} of 4"
    )
    balance = views.visit_balance(view).table.iloc[1]
    said = captions(test)
    assert f"as evenly as to {balance['effective']:.1f} equal ones" in said
    assert f"Gini coefficient {balance['gini']:.2f}" in said


def test_chosen_environments_are_all_the_page_is_about(runs, view, monkeypatch):
    test = visit(runs, monkeypatch, run="demo", env=["env1"])
    found = views.coverage(view, ("env1",))
    assert f"{found.table['tasks'].iloc[-1]} of 12 tasks and 1 of 1 environment were reached" in test.subheader[0].value
    assert "Only the 1 environment of the filter count" in captions(test)
    table = next(d.value for d in test.dataframe if "quota_hits" in d.value.columns)
    assert table["env"].tolist() == ["env1"]
    whole = views.visits_by_environment(view).set_index("env")
    assert table["ratio"].tolist() == [whole["ratio"]["env1"]]
    test.button(key="all_environments").click().run()
    assert test.multiselect(key="env").value == []


def test_kinds_of_tasks_and_the_window_are_chosen(runs, view, monkeypatch):
    test = visit(runs, monkeypatch, run="demo", kinds="Tool sets", window="Last 10")
    found = views.kinds_reached(view, "tools")
    assert f"1 of {len(found.table)} tool sets were visited" in captions(test)
    assert "Over the last 10 steps to step 3" in captions(test)
    table = next(d.value for d in test.dataframe if "kind" in d.value.columns)
    assert table["visits"].tolist() == [32]


def test_the_environment_with_fewest_visits_against_uniform_draws_comes_first(runs, view, monkeypatch):
    test = visit(runs, monkeypatch, run="demo")
    table = next(d.value for d in test.dataframe if "quota_hits" in d.value.columns)
    assert table["env"].tolist() == views.visits_by_environment(view)["env"].tolist()
    assert table["ratio"].is_monotonic_increasing
    assert (table["visits"] / table["expected"]).tolist() == pytest.approx(table["ratio"].tolist())


def test_quotas_are_told_in_numbers(runs, view, monkeypatch):
    use = views.quota_use(view)
    said = page.quota_sentence(use)
    assert said in captions(visit(runs, monkeypatch, run="demo"))
    assert f"turned {use['blocked'].sum()} candidates away" in said or not use["blocked"].sum()
    short = use.assign(floor_picks=2, below_floor=[1, *[0] * (len(use) - 1)], blocked=0)
    assert "4 have a smallest share; 1 fell short" in page.quota_sentence(short)


@pytest.mark.parametrize("run", ["log", "stepless", "new"])
def test_runs_without_decisions_show_what_there_is(runs, monkeypatch, run):
    test = visit(runs, monkeypatch, run=run)
    said = "\n".join(info.value for info in test.info)
    assert {"log": "No execution pattern is known", "stepless": "carry no step", "new": "Nothing has been picked yet"}[
        run
    ] in said
    if run == "log":
        assert "By step" in test.subheader[0].value
    if run == "stepless":
        assert "24 of 24 tasks and 2 of 2 environments were reached." in test.subheader[0].value


def test_a_cell_leads_to_the_picks_or_to_what_was_observed(runs, view, monkeypatch):
    grid = views.visit_grid(view, most_steps=2)
    asked: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(parts, "go_to", lambda to, **values: asked.append((to, values)))
    row, column = map(int, np.argwhere(grid.visits > 0)[0])
    for decided in (True, False):
        page._open(grid, row * len(grid.steps) + column, decided=decided)
    values = {"step": grid.last_at[row, column], "env": [grid.envs[row]]}
    assert asked == [("batch", values), ("variance", values)]


def test_a_visit_is_a_cell_and_none_is_blank(view):
    grid = views.visit_grid(view)
    drawn = figures.raster(grid, 1, unit="picks")
    assert [value or 0 for value in drawn["values"]] == grid.visits.ravel().tolist()
    assert 0 not in drawn["values"]
    assert (drawn["scale"], drawn["chosen"], drawn["blank"]) == ((1.0, float(grid.visits.max())), 1, "")


def test_no_band_is_drawn_where_none_was_simulated(view):
    table = views.visit_balance(view).table
    assert len(figures.evenness(table, "gini", 4, 1).data) == 4
    bare = table.assign(**{column: np.nan for column in table if column.startswith("uniform_")})
    assert len(figures.evenness(bare, "effective", 4, 1).data) == 1


# ---------------------------------------------------------------------- overview and batch


def test_alerts_are_told_with_their_numbers_and_a_way_to_look(runs, view, monkeypatch):
    test = visit(runs, monkeypatch, "overview", run="demo")
    found = views.alerts(view)
    if found.empty:
        assert "Nothing out of the ordinary" in captions(test)
    for row in found.to_dict("records"):
        said = overview.alert_sentence(row["alert"], row["count"], row["of"], row["step"])
        assert any(said in text.value for text in test.text)
    trend = next(d.value for d in test.dataframe if "mean_reward" in d.value.columns)
    assert trend["groups"].tolist() == views.reward_trend(view)["groups"].tolist()


@pytest.mark.parametrize("code", [*overview.ALERT_PAGES, "of a newer version"])
def test_every_alert_has_a_sentence(code):
    assert overview.alert_sentence(code, 2.0, 8.0, 4)


def test_a_batch_says_what_changed_and_how_alike_its_picks_are(runs, view, monkeypatch):
    test = visit(runs, monkeypatch, "batch", run="demo", step=2)
    assert batch.change_sentence(views.batch_change(view, 2)) in captions(test)
    pairs = next(d.value for d in test.dataframe if "other pick" in d.value.columns)
    weights, keys = views.alike_matrix(view, 2)
    assert len(pairs) == np.count_nonzero(np.triu(weights))
    assert pairs["task"].iloc[0] == keys[pairs["pick"].iloc[0] - 1]
    first = visit(runs, monkeypatch, "batch", run="demo", step=0)
    assert not any("What changed" in heading.value for heading in first.subheader)


def test_the_player_ends_with_the_whole_batch(view):
    table = views.batch(view, 2)
    picks = table[table["kept_as"] == "pick"]
    figure = batch_figures.played(picks)
    assert [sum(frame.data[0].x) for frame in figure.frames] == list(range(1, 9))
    assert sum(figure.data[0].x) == 8
    evil = pd.DataFrame({"env": [EVIL] * 2, "task": [EVIL] * 2, "score": [1.0, 0.5], "outcome": ["selected"] * 2})
    assert "<a href" not in batch_figures.played(evil).to_json()
    assert "<a href" not in batch_figures.alike(np.ones((2, 2), np.float32), [EVIL, EVIL]).to_json()
    moved = pd.DataFrame({"env": [EVIL], "before": [0], "picks": [2], "change": [2]})
    assert "<a href" not in batch_figures.changes(moved).to_json()
