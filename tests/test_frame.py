"""The frame around every page: steps, filters, links, and the named states of a run."""

from __future__ import annotations

from pathlib import Path

import page_runs
import pytest
from page_runs import shown_page, sound
from small_run import simulated, write_log, write_run

from envsched_core.store import RunReader, RunWriter
from envsched_core.views import Filters, RunView, filtered_steps

pytest.importorskip("streamlit")
frame = pytest.importorskip("envsched_dashboard.frame")

from envsched_core.views import Health  # noqa: E402  (after the skips)

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return page_runs.write_runs(tmp_path_factory.mktemp("frame"))


def view(path: Path) -> RunView:
    opened = RunView(path)
    opened.poll()
    return opened


def test_filtered_steps_are_those_with_a_pick_that_passes(runs):
    asked = [event.data for event, *_ in RunReader(runs / "demo").events() if event.kind == "asked"]
    for env in ("env0", "env3"):
        wanted = [d.step for d in asked if any(c.kept_as == "pick" and c.env == env for c in d.candidates)]
        assert filtered_steps(view(runs / "demo"), Filters((env,))) == wanted
    turned_away = {d.step for d in asked if any(c.outcome == "below_cutoff" for c in d.candidates)}
    assert filtered_steps(view(runs / "demo"), Filters(outcomes=("below_cutoff",))) == sorted(turned_away)
    assert filtered_steps(view(runs / "demo"), Filters()) == [0, 1, 2, 3]
    assert filtered_steps(view(runs / "log"), Filters(("env1",))) == [2, 3]
    assert filtered_steps(view(runs / "stepless"), Filters(("env1",))) == []


def test_previous_and_next_go_to_steps_that_pass_the_filters(runs, monkeypatch):
    test = sound(page_runs.app(runs, monkeypatch, run="log", step="1", env="env0").run())
    assert test.button(key="next_step").disabled
    test.button(key="previous_step").click().run()
    assert test.slider(key="step").value == 0
    test.multiselect(key="env").set_value(["env1"]).run()
    assert test.button(key="previous_step").disabled
    test.button(key="next_step").click().run()
    assert test.slider(key="step").value == 2


def test_a_tick_does_not_undo_a_step(runs, monkeypatch):
    test = sound(page_runs.app(runs, monkeypatch, run="demo", step="1").run())
    page_runs.crossed_by_a_tick(test, monkeypatch, "take_values")
    test.button(key="next_step").click().run()
    assert sound(test).slider(key="step").value == 2
    test.slider(key="step").set_value(0).run()  # what was asked for is done with
    assert sound(test).slider(key="step").value == 0


@pytest.mark.parametrize(("raw", "shown"), [("99", 3), ("x", 3), ("-7", 0), ("9" * 40, 3), ("²", 3)])
def test_a_step_that_is_not_there_is_told_with_the_one_that_is_shown(runs, monkeypatch, raw, shown):
    test = shown_page(sound(page_runs.app(runs, monkeypatch, run="demo", step=raw).run()), "batch")
    assert test.title[0].value == f"Batch of step {shown}"
    assert f"step {shown} is shown" in test.warning[0].value


def test_a_run_that_is_not_there_is_told_and_the_newest_is_shown(runs, monkeypatch):
    test = sound(page_runs.app(runs, monkeypatch, run="nowhere").run())
    assert "run 'nowhere'" in test.warning[0].value
    assert test.selectbox(key="run").value == test.selectbox(key="run").options[0]


def one_step_more(run: Path) -> None:
    """A step of a log: one more group."""
    with RunWriter.resume(run) as writer:
        last = max(view(run).steps())
        writer.observed([simulated("env0", "task-1", last + 1, 900 + last)], last + 1)


def test_the_newest_step_is_followed_or_stayed_at(tmp_path, monkeypatch):
    write_log(tmp_path / "log")
    manifest = tmp_path / "log" / "run.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"import"', '"live"'), encoding="utf-8")
    test = sound(page_runs.app(tmp_path, monkeypatch, run="log").run())
    one_step_more(tmp_path / "log")
    assert sound(test.run()).slider(key="step").value == 4
    test.toggle(key="follow").set_value(False).run()
    one_step_more(tmp_path / "log")
    assert (sound(test.run()).slider(key="step").value, test.slider(key="step").max) == (4, 5)
    test.button(key="next_step").click().run()
    assert test.toggle(key="follow").value
    one_step_more(tmp_path / "log")
    assert sound(test.run()).slider(key="step").value == 6
    test.button(key="previous_step").click().run()
    assert not test.toggle(key="follow").value
    test.toggle(key="follow").set_value(True).run()
    assert test.slider(key="step").value == 6


@pytest.mark.parametrize(
    ("age", "steps", "unknown", "grows", "names"),
    [
        (1.0, [0], 0, True, ["Live"]),
        (1.0, [], 0, True, ["Live", "Empty"]),
        (9e3, [0], 0, True, ["Stale"]),
        (9e3, [0], 0, False, ["Recorded"]),
        (9e3, [0], 2, False, ["Recorded", "Partial"]),
    ],
)
def test_every_state_has_its_name(age, steps, unknown, grows, names):
    health = Health(9, (), unknown, 0, 0, age, None)
    assert frame.run_states(health, steps, grows=grows) == names


def test_states_are_said_where_they_are_met(tmp_path, runs, monkeypatch):
    test = shown_page(sound(page_runs.app(runs, monkeypatch, run="new").run()), "batch")
    assert test.info[0].value.startswith("Empty: ")
    (tmp_path / "future").mkdir()
    (tmp_path / "future" / "run.json").write_text('{"format": 99, "writer": "envsched 9.0"}', encoding="utf-8")
    assert sound(page_runs.app(tmp_path, monkeypatch).run()).error[0].value.startswith("Broken: ")


def test_a_long_reading_tells_how_far_it_is_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("envsched_core.views.run_view.BLOCK", 10)
    monkeypatch.setattr("envsched_core.views.run_view.LONG_BYTES", 0)
    write_run(tmp_path / "run")
    whole, heard = view(tmp_path / "run"), []
    opened = RunView(tmp_path / "run")

    def told(done: int, total: int) -> None:
        assert opened.reading == (done, total)
        heard.append(done)
        if len(heard) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened.poll(told)
    assert opened.reading is None
    assert opened.poll(told)
    assert heard == sorted(set(heard))
    assert heard[-1] < opened.reader.size()
    for table in ("candidates", "groups_raw", "terms"):
        assert opened.query(f"SELECT * FROM {table}").equals(whole.query(f"SELECT * FROM {table}"))
    assert opened.health().events == whole.health().events
    assert not opened.poll()
