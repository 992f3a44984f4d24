"""The compare page: its words and numbers against direct computation, its links, and what a log's text may not do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from page_runs import app, crossed_by_a_tick, shown_page, sound
from small_run import opened, write_log, write_run

from envsched_core import views
from envsched_core.replay.walk import Walk
from envsched_core.store import RunWriter

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")

from envsched_dashboard import compare_charts, compare_words  # noqa: E402  (after the skips)
from streamlit.testing.v1 import AppTest  # noqa: E402

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    write_run(folder / "demo")
    write_run(folder / "twin")
    write_run(folder / "larger", batch=10, steps=3)
    write_log(folder / "log")
    return folder


def page(runs: Path, monkeypatch: pytest.MonkeyPatch, **link: str) -> AppTest:
    test = app(runs, monkeypatch, **link)
    # Before the first run the name of the file is taken for the page's place in the URL: a link that opens there.
    return sound(test.switch_page("app_pages/compare.py").run())


def shown(test: AppTest) -> str:
    return "\n".join(element.value for element in (*test.text, *test.subheader, *test.caption, *test.markdown))


# ---------------------------------------------------------------------- two runs


def test_a_second_run_is_asked_for(runs, monkeypatch):
    test = page(runs, monkeypatch, run="demo")
    assert test.title[0].value == "Compare & what-if"
    assert "Choose a second run" in test.info[0].value
    test.selectbox(key="with").select("twin").run()
    assert "B: twin" in shown(sound(test))


def test_a_run_beside_one_that_decided_the_same(runs, monkeypatch):
    test = page(runs, monkeypatch, run="demo", **{"with": "twin"})
    assert "Comparable with care" in test.warning[0].value  # each trained a policy of its own
    text = shown(test)
    assert text.count("the runs do not differ in it") == 4
    assert "they share 8.0 picks a step on average" in text
    assert "Only A: 0 tasks" in text


def test_numbers_on_the_page_are_those_of_the_view(runs, monkeypatch):
    test = page(runs, monkeypatch, run="demo", **{"with": "larger"})
    found = views.compare(opened(runs / "demo"), opened(runs / "larger"))
    assert "Not comparable" in test.error[0].value
    text = shown(test)
    assert "different batches: A takes 8 tasks a step, B 10" in text
    row = found.headline.iloc[0]
    assert f"A {row['a']:.0%} ({row['a_low']:.0%} to {row['a_high']:.0%}), B {row['b']:.0%}" in text
    both = found.steps[found.steps["shared"].notna()]
    assert f"they share {both['shared'].mean():.1f} picks a step" in text
    assert f"would share {both['shared_by_chance'].mean():.1f}" in text
    assert f"Only B: {(found.only['run'] == 'b').sum()} tasks" in text


def test_a_link_to_a_run_that_is_not_there_is_told(runs, monkeypatch):
    test = page(runs, monkeypatch, run="demo", **{"with": "<b>gone</b>"})
    assert "second run is not in this folder" in test.warning[0].value
    assert "itself" in page(runs, monkeypatch, run="demo", **{"with": "demo"}).warning[0].value


@pytest.mark.parametrize("other", ["log", "demo"])
def test_a_log_beside_a_run(runs, monkeypatch, other):
    sound(page(runs, monkeypatch, run="log" if other == "demo" else "demo", **{"with": other}))


def test_a_second_run_that_cannot_be_read(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "demo", tmp_path / "demo")
    (tmp_path / "future").mkdir()
    (tmp_path / "future" / "run.json").write_text('{"format": 99, "writer": "envsched 9.0"}', encoding="utf-8")
    test = page(tmp_path, monkeypatch, run="demo", **{"with": "future"})
    assert "cannot be read" in test.error[0].value
    assert "envsched 9.0" in shown(test)


def test_a_lone_run_and_a_run_without_steps(tmp_path, monkeypatch):
    write_run(tmp_path / "new", steps=0)
    assert "no other run" in page(tmp_path, monkeypatch).info[0].value
    page(tmp_path, monkeypatch, compare="What if")


# ---------------------------------------------------------------------- what if


def what_if(runs: Path, monkeypatch: pytest.MonkeyPatch, **link: str) -> AppTest:
    return page(runs, monkeypatch, run="demo", step="2", compare="What if", **link)


def test_nothing_is_computed_before_something_is_changed(runs, monkeypatch):
    test = what_if(runs, monkeypatch)
    assert "Change a setting" in test.info[0].value
    assert "Computed now, not read" in shown(test)


def test_a_link_with_changes_decides_the_step_again(runs, monkeypatch):
    changes = {"exclude_environments": ["env0"]}
    test = what_if(runs, monkeypatch, set=json.dumps(changes))
    moment = Walk(runs / "demo").to(2)
    was, now = moment.decide().picks().keys(), moment.decide(changes).picks().keys()
    text = shown(test)
    assert f"step 2 picks {len(now - was)} other tasks" in text
    assert f"{len(was & now)} of 8 stay" in text
    assert "all 8 recorded picks come out again" in text
    first = moment.decide(changes).explain(next(key for key in now if key not in was))
    assert first.verdict in text


def test_the_form_changes_the_link(runs, monkeypatch):
    test = what_if(runs, monkeypatch)
    next(field for field in test.number_input if field.label == "Exponent of task coverage").set_value(0.25)
    next(button for button in test.button if button.label == "Decide again").click()
    test = sound(test.run())
    assert json.loads(test.text_input(key="set").value) == {"weight_task": 0.25}
    assert "Under these settings" in shown(test)
    test.button(key="what_if_reset").click().run()
    assert sound(test).text_input(key="set").value == ""


def test_the_form_keeps_what_it_has_no_field_for(runs, monkeypatch):
    link = {
        "max_share": 0.4, "max_shares": {"env1": 0.25}, "min_shares": {"env2": 0.1}, "pin_tasks": ["env0::task-3"],
        "exclude_tasks": ["env3::task-1"], "exclude_environments": ["env0"],
    }  # fmt: skip
    test = what_if(runs, monkeypatch, set=json.dumps(link), task="env3::task-1")
    fields = {field.label: field for field in (*test.number_input, *test.selectbox)}
    assert fields["Largest share of one environment"].value == 0.4
    fields["Exponent of task coverage"].set_value(0.25)
    fields["Environment with a quota of its own"].select("env2")
    fields["Its largest share"].set_value(0.5)
    fields["The task chosen on the left"].select("pin it")
    next(button for button in test.button if button.label == "Decide again").click()
    made = json.loads(sound(test.run()).text_input(key="set").value)
    assert made == link | {
        "weight_task": 0.25, "max_shares": {"env1": 0.25, "env2": 0.5}, "exclude_tasks": [],
        "pin_tasks": ["env0::task-3", "env3::task-1"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [("{half", "no JSON object"), ("[1]", "no JSON object"), ('{"seed": 4}', "cannot be decided so")],
)
def test_changes_that_cannot_be_are_told(runs, monkeypatch, text, said):
    test = what_if(runs, monkeypatch, set=text)
    assert said in " ".join(element.value for element in (*test.warning, *test.error))


def test_the_smallest_change_is_found_on_demand(runs, monkeypatch):
    candidates = Walk(runs / "demo").to(2).recorded[-1].candidates
    key = next(c.key for c in candidates if c.outcome == "below_cutoff")
    test = what_if(runs, monkeypatch, task=key)
    assert "Smallest change found" not in shown(test)
    assert any(caption.value.startswith("Its score would have to rise by ") for caption in test.caption)
    test.button(key="smallest_button").click().run()
    assert "Confirmed by deciding the step again" in shown(sound(test))


def test_a_decision_leads_to_what_would_have_picked_it(runs, monkeypatch):
    candidates = Walk(runs / "demo").to(2).recorded[-1].candidates
    key = next(c.key for c in candidates if c.outcome == "below_cutoff")
    test = shown_page(app(runs, monkeypatch, run="demo", step="2", task=key).run(), "decision")
    assert test.button(key="to_what_if").label == "What would have picked it?"
    test = sound(test.button(key="to_what_if").click().run())
    assert test.title[0].value == "Compare & what-if"
    assert "Confirmed by deciding the step again" in shown(test)


def test_what_the_browser_told_before_it_knew_of_an_act_does_not_undo_it(runs, monkeypatch):
    test = what_if(runs, monkeypatch, set='{"weight_task": 0.25}')
    crossed_by_a_tick(test, monkeypatch, "begin_page")
    test.button(key="what_if_reset").click().run()
    assert sound(test).text_input(key="set").value == ""
    assert "Change a setting" in test.info[0].value
    test.text_input(key="set").set_value('{"weight_task": 0.5}').run()  # what was asked for is done with
    assert "Under these settings" in shown(sound(test))


def test_a_log_has_nothing_to_decide_again(runs, monkeypatch):
    test = page(runs, monkeypatch, run="log", compare="What if")
    assert "no decision was recorded" in test.info[0].value


# ---------------------------------------------------------------------- words and figures


def row(**fields: float | str) -> dict[str, float | str]:
    base: dict[str, float | str] = {"figure": "informative_share", "a": 0.5, "b": 0.4, "a_low": 0.45, "a_high": 0.55}
    return base | {"b_low": 0.35, "b_high": 0.45, "difference": 0.1, "low": 0.02, "high": 0.2, "steps": 9} | fields


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "without 0 in it, so A is higher"),
        ({"difference": -0.1, "low": -0.2, "high": -0.01}, "so B is higher"),
        ({"low": -0.02}, "with 0 in it"),
        ({"steps": 1}, "one step has no interval"),
        ({"difference": float("nan")}, "no difference to show"),
        ({"difference": 0.0, "low": 0.0, "high": 0.0}, "do not differ"),
    ],
)
def test_an_interval_is_said_for_what_it_is(fields, said):
    assert said in compare_words.headline_sentence(row(**fields))


def test_labels_of_a_log_are_escaped_in_every_figure():
    bad = "<b>$x$</b>"
    gaps = pd.DataFrame({"env": [bad], "share_difference": [0.1], "picks_a": [3.0], "picks_b": [1.0]})
    moved = pd.DataFrame({"env": [bad], "before": [1.0], "after": [2.0], "limit_after": [3.0]})
    for figure in (compare_charts.environment_gaps(gaps), compare_charts.moved_environments(moved)):
        assert "<b>" not in "".join(figure.layout.yaxis.ticktext)


def test_both_runs_stand_on_one_axis_of_steps(runs):
    found = views.compare(opened(runs / "demo"), opened(runs / "larger"))
    figure = compare_charts.over_time(found.steps, 1)
    axes = [name for name in figure.layout if str(name).startswith("xaxis")]
    assert len({str(figure.layout[name].range) for name in axes}) == 1
    assert all(list(trace.x) == found.steps["step"].tolist() for trace in figure.data)


def test_held_out_success_stands_beside_the_picks_where_both_runs_noted_it(runs, tmp_path, monkeypatch):
    for name, last in (("demo", 0.5), ("twin", 0.75)):
        run = Path(shutil.copytree(runs / name, tmp_path / name))
        with RunWriter.resume(run) as writer:
            writer.note(3, {"metric": "heldout_success", "value": last})
    text = shown(page(tmp_path, monkeypatch, run="demo", **{"with": "twin"}))
    assert "A 50% at step 3, B 75% at step 3" in text
