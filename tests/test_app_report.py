from __future__ import annotations

import stat
from html import unescape
from pathlib import Path

import pytest
from page_runs import app, shown_page, write_runs
from small_run import HOSTILE

from envsched_core import views
from envsched_core.views import RunView, report_page, report_print

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")

from streamlit.testing.v1 import AppTest  # noqa: E402  (after the skips)

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return write_runs(tmp_path_factory.mktemp("app"))


def opened(runs: Path, monkeypatch: pytest.MonkeyPatch, **link: str) -> AppTest:
    return shown_page(app(runs, monkeypatch, **link).run(), "report")


def preview(test: AppTest) -> str:
    """The page in the preview, which stands in an attribute of a frame of its own."""
    found = test.get("iframe")[0].proto.srcdoc
    assert 'sandbox=""' in found
    return unescape(found.split('srcdoc="')[1].rsplit('" style=', 1)[0])


def facts(run: Path, **example: object) -> views.Report:
    view = RunView(run)
    view.poll()
    return views.report(view, **example)


@pytest.mark.parametrize("run", ["demo", "log", "stepless", "new"])
def test_the_preview_is_the_report_of_every_kind_of_run(runs, monkeypatch, run):
    test = opened(runs, monkeypatch, run=run)
    assert test.title[0].value == "Report"
    assert preview(test) == report_page.page(facts(runs / run))


def test_a_chosen_task_is_the_example(runs, monkeypatch):
    test = opened(runs, monkeypatch, run="demo", step="2", task="env0::task-3")
    assert preview(test) == report_page.page(facts(runs / "demo", step=2, task="env0::task-3"))
    assert "at step 2?" in preview(test)


def test_a_second_run_can_be_held_against_it(runs, monkeypatch):
    test = opened(runs, monkeypatch, run="demo")
    test.selectbox(key="with").select("log").run()
    assert not test.exception
    assert "are not comparable: " in preview(test)


def test_every_table_can_be_taken_along(runs, monkeypatch):
    test = opened(runs, monkeypatch, run="demo")
    told = facts(runs / "demo")
    assert len(test.dataframe) == sum(len(table) > 0 for table in told.tables.values())
    labels = [button.proto.label for button in test.get("download_button")]
    assert labels[:3] == ["Page (HTML)", "Tables (CSV)", "Charts (SVG)"]


@pytest.mark.security
def test_no_log_text_is_rendered(runs, monkeypatch):
    test = opened(runs, monkeypatch, run="demo", step="2", task="env0::task-0")
    assert HOSTILE.split()[0] not in "".join(element.value for element in (*test.markdown, *test.caption))
    assert "<script>" not in preview(test)


def test_without_a_browser_the_page_says_so(runs, monkeypatch):
    monkeypatch.setattr(report_print.shutil, "which", lambda name: None)
    test = opened(runs, monkeypatch, run="demo")
    assert "none was found" in " ".join(caption.value for caption in test.caption)
    assert not [button for button in test.button if button.label.startswith("Make ")]


@pytest.mark.parametrize(("script", "done"), [("printf x > ${a#*=}", True), ("false", False)])
def test_a_browser_is_started_when_it_is_asked_to(runs, tmp_path, monkeypatch, script, done):
    program = tmp_path / "chromium"
    program.write_text(f'#!/bin/sh\nfor a in "$@"; do case "$a" in --print-to-pdf=*) {script};; esac; done\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(report_print.shutil, "which", lambda name: str(program) if name == "chromium" else None)
    test = opened(runs, monkeypatch, run="demo")
    test.button(key="report_make_PDF").click().run()
    assert not test.exception
    labels = [button.proto.label for button in test.get("download_button")]
    assert ("Save PDF" in labels, not test.error) == (done, done)
