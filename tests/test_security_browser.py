"""Hostile runs in a real browser: no script runs, no payload becomes an element, no other host is asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from browser_checks import CHROMIUM, Site, Watch, expect, sound
from hostile import FOLDER, PAYLOADS, RENDERED, hostile_tasks, write_hostile_import, write_hostile_run
from page_runs import PAGES
from small_run import write_run

from envsched_core import views
from envsched_core.views import RunView, report_page

pytestmark = [pytest.mark.security, pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TASK = hostile_tasks()[0].key


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory) -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    runs = tmp_path_factory.mktemp("hostile") / "runs"
    runs.mkdir()
    write_hostile_run(runs)
    write_hostile_import(runs)
    write_run(runs / "demo")
    running = Site(runs)
    yield running.wait()
    running.stop()


@pytest.fixture
def alert(watch) -> Watch:
    """A page whose dialogs are errors."""
    watch.page.on("dialog", lambda dialog: (watch.errors.append(dialog.message), dialog.dismiss()))
    return watch


def harmless(watched: Watch) -> None:
    """Nothing of a payload ran or was rendered, and only this machine was asked."""
    sound(watched)
    assert watched.page.evaluate("window.ran") is None
    assert watched.page.evaluate(RENDERED) == []


def opened(site: Site, watched: Watch, page: str, run: str, **link: str) -> None:
    values = {"run": run, "step": "1", "whole": "true", **link}
    asked = "&".join(f"{key}={quote(value, safe='')}" for key, value in values.items())
    watched.open(site.url(f"{page}?{asked}"), PAGES[page])


def test_what_is_looked_for_is_found(watch):
    """The check itself: each payload, rendered as HTML, is told; Markdown and TeX by what they would become."""
    became = ("<strong>pwnstrong</strong>", "<span class=katex>x</span>", "<a href='https://elsewhere.invalid'>x</a>")
    for text in (*PAYLOADS[:7], *became):
        watch.page.set_content(f'<div title="{text}' if text.startswith('"') else text)
        assert watch.page.evaluate(RENDERED) or watch.page.evaluate("window.ran"), text


@pytest.mark.parametrize("run", [FOLDER, "imported"])
def test_no_page_renders_a_word_of_a_log(hostile_site, alert, tally, run):
    page = alert.page
    for path in PAGES:
        opened(hostile_site, alert, path, run, **({"task": TASK, "with": "demo"} if run == FOLDER else {}))
        charts = page.locator(".stPlotlyChart:visible")
        for k in range(min(charts.count(), 3)):
            charts.nth(k).hover(force=True)
        if path in ("overview", "decision"):
            page.get_by_test_id("stSidebar").get_by_test_id("stSelectbox").first.click()
            page.wait_for_timeout(300)
            page.keyboard.press("Escape")
        harmless(alert)
    tally("payloads in every field, on every page, in Chromium", len(PAYLOADS) * len(PAGES))


def test_what_was_said_and_done_is_shown_as_it_is(hostile_site, alert, tally):
    opened(hostile_site, alert, "decision", FOLDER, task=TASK)
    box = alert.page.get_by_label("Show the text of a rollout")
    box.scroll_into_view_if_needed()
    box.click()
    alert.page.get_by_role("option").first.click()
    expect(alert.page.get_by_text("<script>window.ran='script'</script>").first).to_be_visible(timeout=15_000)
    alert.settle()
    harmless(alert)
    tally("payloads in messages and calls, in Chromium", len(PAYLOADS) * 3)


def test_hostile_links_are_told_and_nothing_more(hostile_site, alert, tally):
    links = ("../../etc", "..%2F..%2Fetc%2Fpasswd", *PAYLOADS[:2], PAYLOADS[8], PAYLOADS[10])
    for text in links:
        opened(hostile_site, alert, "graph", text, task=text, env=text, find=text, edge=text)
        harmless(alert)
    tally("hostile links, in Chromium", len(links) * 5)


def test_files_to_take_along_hold_no_live_word(hostile_site, alert, browser, tmp_path, tally):
    opened(hostile_site, alert, "graph", FOLDER, scope="All tasks")
    with alert.page.expect_download(timeout=30_000) as found:
        alert.page.get_by_role("button", name="This map as a page (HTML)").click()
    (tmp_path / "map.html").write_bytes(Path(found.value.path()).read_bytes())
    view = RunView(hostile_site.runs / FOLDER)
    view.poll()
    report = views.report(view)
    (tmp_path / "report.html").write_text(report_page.page(report), encoding="utf-8")
    for name, data in report_page.charts(report).items():
        (tmp_path / name).write_bytes(data)
    files = sorted(path for path in tmp_path.iterdir() if path.suffix in (".html", ".svg"))
    assert len(files) > 4
    for file in files:
        alone = Watch(browser)
        alone.page.on("dialog", lambda dialog, alone=alone: (alone.errors.append(dialog.message), dialog.dismiss()))
        asked: list[str] = []
        alone.page.on("request", lambda request, asked=asked: asked.append(request.url))
        alone.page.goto(file.as_uri())
        alone.page.wait_for_timeout(300)
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        assert alone.errors == []
        assert alone.page.evaluate("window.ran") is None
        assert alone.page.evaluate(RENDERED) == []
        alone.page.close()
    tally("payloads in exported pages and charts, in Chromium", len(files) * len(PAYLOADS))


def test_a_name_of_another_host_that_leads_here_is_not_answered(hostile_site, watch, tally):
    page = watch.page
    for path in PAGES:
        page.goto(hostile_site.url(f"{path}?run=demo").replace("127.0.0.1", "elsewhere.invalid"))
        expect(page.get_by_text("under a name that is not its own")).to_be_visible(timeout=30_000)
        watch.settle()
        assert page.get_by_test_id("stSidebar").count() == 0
        assert "demo" not in page.inner_text("body")
    page.goto(hostile_site.url("").replace("127.0.0.1", "localhost"))
    expect(page.locator("h1")).to_contain_text("Overview", timeout=30_000)
    watch.settle()
    tally("names of other hosts that lead here", len(PAGES))


def test_only_this_machine_reaches_it(hostile_site, tally):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells this machine's own address
            own = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no other address")
    if own.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(ConnectionError):
        socket.create_connection((own, hostile_site.port), timeout=5)
    tally("other addresses of this machine", 1)
