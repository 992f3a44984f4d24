from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from page_runs import app, shown_page, sound, write_runs

from envsched_core import views
from envsched_core.views import RunView

pytest.importorskip("streamlit")
parts = pytest.importorskip("envsched_dashboard.parts")
page = pytest.importorskip("envsched_dashboard.app_pages.log_health")
loading = pytest.importorskip("envsched_dashboard.loading")

from streamlit.testing.v1 import AppTest  # noqa: E402  (after the skips)

SEGMENT = "events/seg-000000.jsonl"

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = write_runs(tmp_path_factory.mktemp("app"))
    damaged = Path(shutil.copytree(folder / "demo", folder / "damaged"))
    lines = (damaged / SEGMENT).read_bytes().splitlines(keepends=True)
    (damaged / SEGMENT).write_bytes(b"".join([*lines[:5], b"{**bold** <b>}\n", *lines[5:9], *lines[10:], b'{"v":']))
    (damaged / "scores" / "1.npz").write_bytes(b"")
    (damaged / "tasks.jsonl").write_bytes((damaged / "tasks.jsonl").read_bytes().replace(b"flight 5", b"flight 6"))
    return folder


def visit(runs: Path, monkeypatch: pytest.MonkeyPatch, **values: object) -> AppTest:
    return shown_page(app(runs, monkeypatch), "log_health", **values)


def table(test: AppTest, column: str) -> pd.DataFrame:
    return next(d.value for d in test.dataframe if column in d.value.columns)


def said(test: AppTest) -> str:
    return "\n".join(e.value for kind in (test.text, test.caption) for e in kind)


@pytest.mark.parametrize("run", ["demo", "log", "stepless", "new"])
def test_a_sound_run_is_said_to_be_sound(runs, monkeypatch, run):
    test = visit(runs, monkeypatch, run=run)
    assert test.title[0].value == "Log health"
    said = "and every decision on record adds up" if run == "demo" else "there is no decision on record to check"
    assert test.subheader[0].value.replace(";", ",") == f"Everything could be read, {said}."
    metrics = {metric.label: metric.value for metric in test.metric}
    events = len((runs / run / SEGMENT).read_bytes().splitlines()) if (runs / run / SEGMENT).exists() else 0
    assert (metrics["Events read"], metrics["Could not be read"]) == (f"{events}", "0")
    assert set(table(test, "rule")["status"]) <= {"✔ holds", "- nothing to check"}


def test_waiting_picks_are_told(runs, monkeypatch):
    assert "8 picks wait for their result, the oldest since step 3 (newest step 3)" in said(
        visit(runs, monkeypatch, run="demo")
    )


def test_a_damaged_run_shows_what_is_wrong_and_the_line_itself(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="damaged")
    assert "1 line or file could not be read" in test.subheader[0].value
    assert "the last 5 bytes are no whole line yet" in test.subheader[0].value
    shown = table(test, "message")
    lines = (runs / "demo" / SEGMENT).read_bytes().splitlines(keepends=True)
    assert (shown["line"].tolist(), shown["offset"].tolist()) == ([6], [sum(map(len, lines[:5]))])
    test.session_state["raw_line"] = (str(runs / "damaged"), SEGMENT, int(shown["offset"].iloc[0]))
    sound(test.run())
    assert [code.value for code in test.code] == ["{**bold** <b>}"]
    assert not [m.value for m in test.markdown if "<b>" in m.value]


def test_a_gap_is_told_without_a_check(runs, monkeypatch, tmp_path):
    shutil.copytree(runs / "demo", tmp_path / "demo")
    segment = tmp_path / "demo" / "events" / "seg-000000.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:4], *lines[6:]]))
    test = visit(tmp_path, monkeypatch, run="demo")
    assert "event numbers do not go on by one at 1 place" in test.subheader[0].value
    assert next(metric for metric in test.metric if metric.label == "Gaps").value == "1"
    gaps = next(d.value for d in test.dataframe if "missing" in d.value.columns)
    assert gaps[["after", "event", "missing"]].to_numpy().tolist() == [[3, 6, 2]]


def test_kinds_of_a_newer_version_count_as_not_read_everywhere(runs, monkeypatch, tmp_path):
    run = Path(shutil.copytree(runs / "demo", tmp_path / "newer"))
    lines = (run / SEGMENT).read_bytes().splitlines(keepends=True)
    event = msgspec.json.decode(lines[-1])
    with (run / SEGMENT).open("ab") as file:
        file.write(msgspec.json.encode(event | {"kind": "dreamt"}) + b"\n")
    test = visit(tmp_path, monkeypatch, run="newer")
    assert "1 line or file could not be read" in test.subheader[0].value
    metrics = {metric.label: metric.value for metric in test.metric}
    assert metrics["Could not be read"] == "1"
    assert "1 line or file of the run could not be read" in " ".join(warning.value for warning in test.warning)
    view = RunView(run)
    view.poll()
    assert "1 lines or files of the run could not be read" in " ".join(views.report(view).caveats)


def test_a_line_that_is_not_cut_is_not_said_to_be():
    whole, cut = (loading.RawLine("\u00e9" * 3, 6, cut=cut) for cut in (False, True))
    assert (page._cut(whole), page._cut(cut)) == ("", ", the first 3 characters")


def test_the_whole_log_is_checked_on_demand(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="demo")
    assert not test.success
    sound(test.button(key="log_check_button").click().run())
    assert "Nothing is broken" in test.success[0].value
    rules = [d.value for d in test.dataframe if "rule" in d.value.columns][1]
    assert "✖ broken" not in set(rules["status"])
    sound(test.run())
    assert "Nothing is broken" in test.success[0].value  # it stays
    sound(test.button(key="verified_button").click().run())
    assert "4 decisions were derived again" in test.success[1].value


def test_checks_of_a_damaged_run_end_with_what_they_found(runs, monkeypatch):
    test = visit(runs, monkeypatch, run="damaged")
    sound(test.button(key="log_check_button").click().run())
    assert "not as it was written" in test.error[0].value
    assert table(test, "missing")["missing"].tolist() == [1]
    assert {"tasks.jsonl", SEGMENT} <= set(table(test, "what")["file"])
    sound(test.button(key="verified_button").click().run())
    assert "hash chain is broken" in said(test)


def test_a_check_belongs_to_its_run_and_its_version(runs, monkeypatch, tmp_path):
    shutil.copytree(runs / "demo", tmp_path / "a")
    shutil.copytree(runs / "log", tmp_path / "b")
    test = visit(tmp_path, monkeypatch, run="a")
    sound(test.button(key="log_check_button").click().run())
    line = (tmp_path / "a" / SEGMENT).read_bytes().splitlines(keepends=True)[-1]
    with (tmp_path / "a" / SEGMENT).open("ab") as file:
        file.write(line)
    sound(test.run())
    assert "has grown since this was checked" in said(test)
    sound(test.selectbox(key="run").select("b").run())
    assert not test.success


def test_a_check_that_cannot_be_carried_through_says_why(runs, monkeypatch, tmp_path):
    run = Path(shutil.copytree(runs / "demo", tmp_path / "a"))
    test = visit(tmp_path, monkeypatch, run="a")

    def gone(*_: object) -> None:
        raise OSError(f"{run} is gone")

    monkeypatch.setattr(loading, "check_log", gone)
    sound(test.button(key="log_check_button").click().run())
    assert "could not be carried through" in test.error[0].value
    assert "is gone" in said(test)


def test_odd_counts_are_shown_with_their_share(runs, monkeypatch):
    shown = table(visit(runs, monkeypatch, run="demo"), "meaning").set_index("what")
    assert shown.loc["released", "share"] == pytest.approx(1 / 32)


@pytest.mark.parametrize(("amount", "text"), [(12, "12 bytes"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (3e9, "3.0 GB")])
def test_sizes_in_words(amount, text):
    assert page.size(amount) == text


def test_the_chart_of_waits_has_a_bar_a_wait():
    figure = page.waits(pd.DataFrame({"steps": [0, 2], "groups": [5, 1]}))
    assert (list(figure.data[0].x), list(figure.data[0].y)) == ([0, 2], [5, 1])
