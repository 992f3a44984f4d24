from __future__ import annotations

import shutil
from pathlib import Path

import page_runs
import pytest
from page_runs import PAGES, shown_page, write_runs
from small_run import HOSTILE, write_run

from envsched_core.store import RunReader

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")

from streamlit.testing.v1 import AppTest  # noqa: E402  (after the skips)

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return write_runs(tmp_path_factory.mktemp("app"))


def app(runs: Path, monkeypatch: pytest.MonkeyPatch, **link: str) -> AppTest:
    return page_runs.app(runs, monkeypatch, **link).run()


def shown(test: AppTest) -> str:
    return "\n".join(element.value for element in test.text)


@pytest.mark.parametrize("run", ["demo", "log", "stepless"])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_every_kind_of_run(runs, monkeypatch, run, page):
    test = shown_page(app(runs, monkeypatch, run=run), page)
    assert test.title[0].value.startswith(PAGES[page])


def test_headline_numbers_equal_a_direct_computation(runs, monkeypatch):
    test = app(runs, monkeypatch, run="demo")
    metrics = {metric.label: metric.value for metric in test.metric}
    assert (metrics["Picks"], metrics["Steps"]) == ("32", "4")
    groups = [event.data for event, *_ in RunReader(runs / "demo").events() if event.kind == "observed"]
    mixed = [len(set(group.rewards)) > 1 for group in groups if len(group.rewards) > 1]
    assert metrics["Informative groups"] == f"{sum(mixed) / len(mixed):.0%}"
    assert "8 picks wait for their results" in test.subheader[0].value


def test_a_chart_is_made_when_it_comes_into_view(runs, monkeypatch):
    from envsched_dashboard import charts

    made = []
    monkeypatch.setattr(charts, "empty_figure", lambda *_, **__: made.append(1) or pytest.fail("it was not seen"))
    test = page_runs.app(runs, monkeypatch, run="demo")
    test.session_state["whole"] = False
    for page in PAGES:
        shown_page(test, page)
    assert not made


@pytest.mark.parametrize("page", PAGES)
def test_no_runs(tmp_path, monkeypatch, page):
    test = shown_page(app(tmp_path, monkeypatch), page)
    assert "no runs here yet" in test.info[0].value
    assert "envsched import" in test.code[0].value


def test_a_run_before_its_first_batch(tmp_path, monkeypatch):
    write_run(tmp_path / "new", steps=0)
    test = app(tmp_path, monkeypatch)
    for page in PAGES:
        shown_page(test, page)


def test_damaged_lines_are_told_on_every_page(runs, tmp_path, monkeypatch):
    run = Path(shutil.copytree(runs / "demo", tmp_path / "demo"))
    segment = run / "events" / "seg-000000.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:5], b"{broken}\n", *lines[5:]]))
    test = app(tmp_path, monkeypatch)
    for page in PAGES:
        assert "1 line or file of the run could not be read" in shown_page(test, page).warning[0].value


def test_a_run_of_a_newer_format_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "future").mkdir()
    (tmp_path / "future" / "run.json").write_text('{"format": 99, "writer": "envsched 9.0"}', encoding="utf-8")
    test = app(tmp_path, monkeypatch)
    assert not test.exception
    assert "envsched 9.0" in shown(test)


def test_a_bad_link_is_told_and_not_silently_replaced(runs, monkeypatch):
    test = app(runs, monkeypatch, run="demo", step="99", env="[x](y)", task="nowhere::1")
    said = " ".join(warning.value for warning in test.warning)
    assert "Step '99' is not in this run (0 to 3)" in said
    assert "nowhere  1" in said
    assert "[x]" not in said


def test_the_step_buttons_walk_the_steps(runs, monkeypatch):
    test = shown_page(app(runs, monkeypatch, run="demo"), "batch")
    assert test.title[0].value == "Batch of step 3"
    test.button(key="previous_step").click().run()
    assert test.title[0].value == "Batch of step 2"
    test.button(key="next_step").click().run()
    assert test.title[0].value == "Batch of step 3"
    assert test.button(key="next_step").disabled


def test_a_link_opens_a_decision_of_a_task_at_a_step(runs, monkeypatch):
    test = shown_page(app(runs, monkeypatch, run="demo", step="2", task="env0::task-3"), "decision")
    assert "env0::task-3   at step 2" in shown(test)


def test_a_task_off_the_record_is_rederived_on_demand(runs, monkeypatch):
    test = app(runs, monkeypatch, run="demo", step="2")
    for number in range(12):
        test.selectbox(key="task").select(f"env0::task-{number}")
        shown_page(test, "decision")
        if any(button.key == "rederive_button" for button in test.button):
            break
    test.button(key="rederive_button").click().run()
    assert "was not picked at step 2" in shown(test)
    assert any("Computed again from the run's events" in caption.value for caption in test.caption)


def test_another_run_drops_what_belonged_to_the_last(runs, monkeypatch):
    test = app(runs, monkeypatch, run="demo", step="1", env="env3", task="env3::task-1")
    test.selectbox(key="run").select("log").run()
    assert not test.exception
    assert (test.selectbox(key="task").value, test.multiselect(key="env").value) == (None, [])


def test_text_of_a_log_is_never_markdown(runs, monkeypatch):
    test = shown_page(app(runs, monkeypatch, run="demo", task="env0::task-0"), "decision")
    rendered = [e.value for kind in (test.markdown, test.caption, test.title, test.subheader) for e in kind]
    assert not [value for value in rendered if "<script" in value or "**bold**" in value]
    assert any(HOSTILE in code.value for code in test.code)


def test_a_click_that_the_page_it_opened_is_told_of_again_is_not_followed(monkeypatch):
    session: dict[str, str] = {"page": "overview"}
    monkeypatch.setattr(parts.st, "session_state", session)
    opened: list[str] = []
    click = parts._here(lambda: opened.append(session["page"]))
    for session["page"] in ("overview", "batch", "overview"):
        click()
    assert opened == ["overview", "overview"]
