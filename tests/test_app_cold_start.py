from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from page_runs import app, shown_page, write_runs

from envsched_core import views
from envsched_core.store import RunReader
from envsched_core.views.run_view import RunView

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")
page = pytest.importorskip("envsched_dashboard.app_pages.cold_start")
figures = pytest.importorskip("envsched_dashboard.cold_start_charts")

from streamlit.testing.v1 import AppTest  # noqa: E402  (after the skips)

EVIL = "<a href='x'>$x$ %{y}</a>"

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = write_runs(tmp_path_factory.mktemp("app"))
    bare = Path(shutil.copytree(folder / "demo", folder / "bare"))
    shutil.rmtree(bare / "scores")
    return folder


def visit(runs: Path, monkeypatch: pytest.MonkeyPatch, **values: object) -> AppTest:
    return shown_page(app(runs, monkeypatch), "cold_start", **values)


def captions(test: AppTest) -> str:
    return "\n".join(caption.value for caption in test.caption)


def test_the_page_says_when_guessing_ended(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="demo")
    assert test.title[0].value == "Cold start"
    decisions = [event.data for event, *_ in RunReader(runs / "demo").events() if event.kind == "asked"]
    picks = [c for d in decisions for c in d.candidates if c.kept_as == "pick"]
    blind = [c for c in picks if c.state == "prior only"]
    assert test.subheader[0].value.startswith(f"{len(blind)} of {len(picks)} picks ({len(blind) / len(picks):.0%})")
    assert "Press Play: steps 0 to 3" in captions(test)
    table = next(d.value for d in test.dataframe if "predicted_mean" in d.value.columns)
    assert len(table) in (len(blind), len(picks))


def test_a_run_without_scores_says_that_it_estimates(runs, monkeypatch):
    assert "were not kept at 4 steps" in captions(visit(runs, monkeypatch, run="bare"))


@pytest.mark.parametrize("run", ["log", "stepless", "new"])
def test_runs_without_decisions_show_what_there_is(runs, monkeypatch, run):
    test = visit(runs, monkeypatch, run=run)
    assert "holds results, but no decision" in test.info[0].value
    said = captions(test)
    assert ("carry no step" in said) == (run == "stepless")
    assert ("all have given a usable reward" in said) == (run != "new")


def test_the_environment_filter_narrows_the_tables(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="demo", env=["env1"])
    table = next(d.value for d in test.dataframe if "first_result" in d.value.columns)
    assert table["env"].tolist() == ["env1"]


def test_tasks_that_give_nothing_follow_the_number_of_tries(runs, monkeypatch):
    view = RunView(runs / "demo")
    view.poll()
    test = visit(runs, monkeypatch, run="demo")
    test.number_input(key="least").set_value(1).run()
    spent = views.stuck_tasks(view, 1)["rollouts"].sum()
    assert f"took {spent} of {views.rollouts_seen(view)} rollouts" in captions(test)
    test.number_input(key="least").set_value(40).run()
    assert "No task was tried so often" in captions(test)


def test_uniform_draws_alone_can_be_looked_at(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="demo")
    test.toggle(key="draws_only").set_value(True).run()
    assert not test.exception
    said = captions(test)
    assert "unbiased sample" in said or "has been answered yet" in said


def test_errors_can_be_looked_at_by_source(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="demo", errors_by=page.BY_SOURCE)
    shown = next(d.value for d in test.dataframe if "brier" in d.value.columns)
    assert "all tasks together" in set(shown["source"])


def picks(guesses: list[int], drawn: list[int]) -> pd.DataFrame:
    blind = [g + d for g, d in zip(guesses, drawn, strict=True)]
    return pd.DataFrame({"step": range(len(guesses)), "picks": 10, "prior_only": blind, "guesses": guesses})


@pytest.mark.parametrize(
    ("guesses", "drawn", "said"),
    [
        ([0, 0], [0, 0], "No pick rested on the prior alone."),
        (
            [5, 0],
            [0, 0],
            "5 of 20 picks (25%) rested on the prior alone; the last choice on the prior alone was at step 0",
        ),
        ([5, 2], [0, 1], "1 of them uniform draws; the newest step still chose 2 tasks so."),
        ([0, 0], [1, 0], "none of them was chosen by its score."),
    ],
)
def test_the_sentence_on_guessing(guesses, drawn, said):
    assert said in page.guessing_sentence(picks(guesses, drawn))


def test_a_weight_of_0_is_not_called_learned_where_the_settings_chose_it():
    row = {"relation": "cross", "step": 9, "scored": 1200, "learned": True}
    assert page.off_sentence(row).endswith("is off at step 9: after 1,200 groups, no weight above 0 predicted better.")
    assert page.off_sentence(row | {"learned": False}).endswith("is switched off by the run's settings.")


def test_the_player_has_a_frame_a_step_and_no_markup(runs):
    view = RunView(runs / "demo")
    view.poll()
    found = views.first_steps(view)
    figure = figures.player(found)
    assert [frame.name for frame in figure.frames] == ["0", "1", "2", "3"]
    for i, frame in enumerate(figure.frames):
        cells = [cell for row in frame.data[0].z for cell in row]
        assert cells == [int(state) for state in found.states[i].ravel()]
        assert len(frame.data[1].x) == (found.picks["step"] == i).sum()
    evil = views.FirstSteps((0,), (EVIL,), ((EVIL,),), found.states[:1, :1, :1], found.picks.iloc[:0], 1, 1)
    text = figures.player(evil).to_json()
    assert "<a href" not in text
    assert "$x" not in text


def test_a_gap_of_the_player_is_no_state(runs):
    view = RunView(runs / "bare")
    view.poll()
    figure = figures.player(views.first_steps(view))
    cells = [cell for row in json.loads(figure.to_json())["frames"][0]["data"][0]["z"] for cell in row]
    assert None in cells


def test_charts_over_one_step_and_unknown_sources():
    one = pd.DataFrame({"step": [3], "prior_only": [2], "own_history": [0]})
    assert [bar.name for bar in figures.by_state(one, "picks", None).data] == ["prior only"]
    shares = pd.DataFrame({"step": [0, 0], "source": ["own", EVIL], "share": [0.5, 0.5]})
    assert "<a href" not in figures.sources(shares, 0).to_json()
    trust = pd.DataFrame({"step": [0], "tau_within": [0.5], "tau_cross": [0.0], "features_share": [float("nan")]})
    assert len(figures.trust(trust, None).data) == 2


def test_many_steps_are_put_together_and_nothing_is_lost():
    many = pd.DataFrame({"step": range(1203), "basis": "counted", "prior_only": 2, "own_history": 1})
    figure = figures.by_state(many, "picks", None)
    assert [sum(bar.y) for bar in figure.data] == [2406, 1203]
    assert len(figure.data[0].x) <= figures.MOST_BARS
    assert figure.layout.xaxis.title.text == "step (each bar puts 3 together)"
    shares = pd.DataFrame({"step": range(1203), "source": "own", "share": 1.0})
    assert set(figures.sources(shares, None).data[0].y) == {1.0}
