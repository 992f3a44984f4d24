from __future__ import annotations

import csv
import io
import stat
import tomllib
import zipfile
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pandas as pd
import pytest
from small_run import opened, simulated, write_log, write_run

from envsched_core import views
from envsched_core.cli import reporting
from envsched_core.config import Config
from envsched_core.records import TaskSpec, Tool
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunWriter, new_manifest
from envsched_core.views import report_print

report_page = pytest.importorskip("envsched_core.views.report_page")

PAYLOADS = (
    "<script>alert(1)</script>",
    "</title><img src=//x.example/a onerror=alert(2)>",
    "</style><style>@import '//x.example/b'</style>",
    '" onmouseover="alert(3)" x="',
    "<svg onload=alert(4)><a xlink:href=javascript:alert(5)>",
    "{{ 7 * 7 }}{% include 'report.css' %}",
    "]]><iframe srcdoc='<b>'>",
)
QUIET = {"html", "head", "meta", "link", "title", "style", "body", "header", "main", "section", "h1", "h2", "h3", "p"}
QUIET |= {"dl", "dt", "dd", "div", "figure", "figcaption", "details", "summary", "table", "thead", "tbody", "tr", "th"}
QUIET |= {"td", "ul", "li", "svg", "desc", "rect", "text", "line", "circle", "polyline", "polygon"}


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def hostile_run(path: Path) -> Path:
    """A live run with a payload in every field that a log or a trainer can fill."""
    p = PAYLOADS
    tasks = [
        TaskSpec(f"{p[e]}{e}", f"{p[t % 7]}-{t}", p[t % 7], (Tool(p[0], p[1], (p[2],)),), (p[3],), p[4], (p[5],))
        for e in range(7)
        for t in range(4)
    ]
    config = Config(batch_size=6, seed=1)
    facts = {"scheduler": p[0], "config": msgspec.to_builtins(config) | {p[3]: p[1]}, "notes": p, "batch_size": 6}
    manifest = new_manifest(p[1], "live", source={"run_id": p[2], "path": p[3]}, **facts)
    manifest = msgspec.structs.replace(manifest, writer=p[4], created=p[5])
    scheduler = EnvSched(config)
    scheduler.register(tasks)
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks(tasks)
        for step in range(4):
            decision = scheduler.ask(6, step=step, policy_version=p[0])
            writer.asked(decision)
            groups = [
                msgspec.structs.replace(
                    simulated("env0", f"task-{i}", step, i), group_id=f"{p[1]}{step}-{i}", env=pick.env, task=pick.task,
                    policy_version=p[2], step=step, calls=((p[3],),) * 4,
                )
                for i, pick in enumerate(decision.picks)
            ]  # fmt: skip
            scheduler.observe(groups)
            writer.observed(groups, step)
            writer.note(step, {"metric": p[step], "value": 0.1 * step})
            writer.note(step, {"metric": p[6], "value": 0.1 * step})
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> views.Report:
    return views.report(opened(write_run(tmp_path_factory.mktemp("page") / "demo")))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> views.Report:
    return views.report(opened(hostile_run(tmp_path_factory.mktemp("hostile") / "<b>run")))


@pytest.mark.security
def test_nothing_of_a_log_becomes_markup(hostile):
    found = Elements(report_page.page(hostile))
    assert found.tags <= QUIET
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    text = "".join(found.texts)
    for payload in PAYLOADS:
        assert payload in text
    assert "49" not in report_page.page(hostile).split("<title>")[1].split("</title>")[0]


@pytest.mark.security
@pytest.mark.parametrize("which", ["report", "hostile"])
def test_the_page_asks_for_nothing(which, request):
    html = report_page.page(request.getfixturevalue(which))
    found = Elements(html)
    places = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "srcdoc", "background"}
    assert [value for name, value in found.attributes if name in places] == ["data:,"]
    policy = next(value for name, value in found.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy
    css = html.split("<style>")[1].split("</style>")[0]
    assert not [word for word in ("url(", "@import", "@font-face") if word in css]
    assert "prefers-color-scheme: dark" in css
    assert "@media print" in css


@pytest.mark.security
def test_the_charts_are_sound_files_of_their_own(hostile):
    with zipfile.ZipFile(io.BytesIO(report_page.zipped(report_page.charts(hostile)))) as archive:
        assert {"environments.svg", "measures.svg"} <= set(archive.namelist())
        for name in archive.namelist():
            drawn = ElementTree.fromstring(archive.read(name))
            assert {one.tag.rpartition("}")[2] for one in drawn.iter()} <= QUIET


@pytest.mark.security
def test_marks_that_turn_text_around_are_shown_as_such(report):
    turned = msgspec.structs.replace(report, subtitle="a\u202eb\x00c\x1b[31m d\ne\tf\xa0g")
    assert "a\ufffdb\ufffdc\ufffd[31m d e f g" in report_page.page(turned)


def test_the_page_holds_every_sentence_figure_and_chart(report):
    text = "".join(Elements(report_page.page(report)).texts)
    for sentence in (*(a.sentence for a in report.answers), *report.caveats, *(f.value for f in report.figures)):
        assert sentence in text
    for word, meaning in report.glossary:
        assert word in text
        assert meaning in text
    for chart in report.charts:
        assert chart.title in text


def test_the_same_run_gives_the_same_bytes(report):
    assert report_page.page(report) == report_page.page(report)
    assert report_page.zipped(report_page.tables(report)) == report_page.zipped(report_page.tables(report))
    assert report_page.zipped(report_page.charts(report)) == report_page.zipped(report_page.charts(report))


def test_long_tables_are_cut_and_it_is_told(report):
    long = msgspec.structs.replace(report, tables=report.tables | {"environments": _long(100)})
    assert "60 more rows stand in the tables' file environments.csv" in report_page.page(long)
    assert len(_read(report_page.zipped(report_page.tables(long)), "environments.csv")) == 101


def _long(rows: int) -> pd.DataFrame:
    return pd.DataFrame({"env": [f"env{i}" for i in range(rows)]})


def _read(data: bytes, name: str) -> list[list[str]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return list(csv.reader(io.StringIO(archive.read(name).decode("utf-8"), newline="")))


def test_every_table_is_in_the_zip(report):
    with zipfile.ZipFile(io.BytesIO(report_page.zipped(report_page.tables(report)))) as archive:
        assert set(archive.namelist()) == {"report.txt", *(f"{name}.csv" for name in report.tables)}
        assert report.answers[0].sentence in archive.read("report.txt").decode("utf-8")
    steps = _read(report_page.zipped(report_page.tables(report)), "steps.csv")
    assert [row[0] for row in steps] == ["step", "0", "1", "2", "3"]


def test_without_a_browser_that_is_said(report, monkeypatch):
    monkeypatch.setattr(report_print.shutil, "which", lambda name: None)
    assert report_print.browser() is None
    with pytest.raises(report_print.PrintError, match="Chromium-like browser"):
        report_page.pdf(report)


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """Puts a program that behaves as `script` says where a browser would be."""

    def install(script: str) -> None:
        program = tmp_path / "chromium"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setattr(report_print.shutil, "which", lambda name: str(program) if name == "chromium" else None)

    return install


def test_a_browser_prints_page_and_charts(report, browser):
    browser('for a in "$@"; do case "$a" in --print-to-pdf=*|--screenshot=*) printf printed > "${a#*=}";; esac; done')
    assert report_page.pdf(report) == b"printed"
    assert report_page.pictures(report) == {f"{chart.key}.png": b"printed" for chart in report.charts}
    with pytest.raises(report_print.PrintError, match="how high the page is"):
        report_page.picture(report)


@pytest.mark.parametrize("script", ["exit 3", "exit 0"])
def test_a_browser_that_does_not_print_is_told(report, browser, script):
    browser(script)
    with pytest.raises(report_print.PrintError, match="did not print"):
        report_page.pdf(report)


def test_the_command_writes_what_it_is_asked_for(envsched, tmp_path, monkeypatch):
    run = write_log(tmp_path / "log")
    page, tables, charts = (tmp_path / name for name in ("page.html", "tables.zip", "charts"))
    status, out, _ = envsched("report", run, "--out", page, "--tables", tables, "--charts", charts)
    assert (status, out.count("written to")) == (0, 3)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert zipfile.is_zipfile(tables)
    assert {file.suffix for file in charts.iterdir()} == {".svg"}
    status, out, _ = envsched("report", run, "--json")
    assert (status, msgspec.json.decode(out)["name"]) == (0, "log")
    status, out, _ = envsched("report", run)
    assert (status, "Which environments were starved?" in out) == (0, True)
    monkeypatch.chdir(run)
    assert envsched("report", ".")[1].startswith("log\n")


def test_the_command_says_what_is_wrong(envsched, tmp_path, monkeypatch):
    run = write_log(tmp_path / "log")
    assert "this run has no task a::b" in envsched("report", run, "--task", "a::b")[2]
    assert "cannot be written" in envsched("report", run, "--out", tmp_path / "no" / "page.html")[2]
    monkeypatch.setattr(reporting, "find_spec", lambda name: None)
    status, _, err = envsched("report", run, "--out", tmp_path / "page.html")
    assert (status, "needs jinja2" in err) == (2, True)


def test_the_template_travels_with_the_package():
    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["envsched_core"]
    for name in ("views/report.html", "views/report.css"):
        assert Path(views.__file__).with_name(Path(name).name).is_file()
        assert any(fnmatch(name, pattern) for pattern in patterns)
    assert any(one.startswith("jinja2") for one in project["project"]["optional-dependencies"]["dashboard"])
