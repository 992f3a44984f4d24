"""Click-throughs of the explaining pages: the player of the first steps, what-if, the report as a file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from browser_checks import Watch, expect, sound
from small_run import write_run

from envsched_core.replay.walk import Walk

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

PLAYER = ".st-key-first_steps .js-plotly-plot"
PICKS_AT = f"document.querySelector('{PLAYER}').data[1].x.length"
STATES_AT = f"JSON.stringify(document.querySelector('{PLAYER}').data[0].z)"
STEP_AT = f"document.querySelector('{PLAYER}').layout.sliders[0].active || 0"


def number(page, name: str):
    """The field of a number, by its label."""
    return page.get_by_label(name, exact=True)


def test_the_player_goes_through_the_first_steps_and_stops(site, watch):
    page = watch.open(site.url("cold_start?run=demo"), "Cold start")
    watch.reach("first_steps")
    page.wait_for_function(f"document.querySelector('{PLAYER}')?._transitionData?._frames?.length === 4")
    assert page.evaluate(STEP_AT) == 0
    first = page.evaluate(STATES_AT)
    page.locator(f"{PLAYER} .updatemenu-button", has_text="Play").click()
    page.wait_for_function(f"({STEP_AT}) === 3")
    assert page.evaluate(STATES_AT) != first
    assert page.evaluate(PICKS_AT) == 8
    page.locator(f"{PLAYER} .updatemenu-button", has_text="Pause").click()
    assert page.evaluate(STEP_AT) == 3
    sound(watch)


def test_a_weight_is_changed_and_what_enters_and_leaves_is_explained(site, watch):
    page = watch.open(site.url("compare?run=demo&compare=What+if&step=2"), "Compare")
    field = number(page, "Exponent of task coverage")
    field.fill("0")
    page.get_by_role("button", name="Decide again").click()
    expect(page.get_by_text("Under these settings step 2 picks")).to_be_visible()
    expect(page.get_by_text("recorded picks come out again")).to_be_visible()
    watch.settle()
    assert "weight_task" in page.url
    moment = Walk(site.runs / "demo").to(2)
    was, now = moment.decide().picks(), moment.decide({"weight_task": 0.0})
    entering = [key for key in now.picks() if key not in was]
    expect(page.get_by_text(now.explain(entering[0]).verdict)).to_be_visible()
    watch.pick("what_if_moves", 1)
    expect(page.get_by_text(now.explain(entering[1]).verdict)).to_be_visible()
    page.get_by_role("button", name="Back to the run's settings").click()
    expect(page.get_by_text("Change a setting and decide the step again.")).to_be_visible()
    sound(watch)


def test_a_decision_leads_to_the_smallest_change_and_to_the_step_with_it(site, watch):
    candidates = Walk(site.runs / "demo").to(2).recorded[-1].candidates
    key = next(c.key for c in candidates if c.outcome == "below_cutoff")
    page = watch.open(site.url(f"decision?run=demo&step=2&task={key}"), "Decision")
    page.get_by_role("button", name="What would have picked it?").click()
    expect(page.locator("h1")).to_contain_text("Compare")
    expect(page.get_by_text("Confirmed by deciding the step again")).to_be_visible(timeout=60_000)
    watch.settle()
    watch.pick("smallest_changes")
    expect(page.get_by_text("Under these settings step 2 picks")).to_be_visible()
    assert "task=" in page.url
    assert "compare=What" in page.url
    sound(watch)


def test_the_report_is_a_file_that_opens_without_a_request(site, watch, browser, tmp_path):
    page = watch.open(site.url("report?run=demo&with=log"), "Report")
    with page.expect_download() as found:
        page.get_by_role("button", name="Page (HTML)").click()
    file = tmp_path / "report.html"
    file.write_bytes(Path(found.value.path()).read_bytes())
    with page.expect_download() as found:
        page.get_by_role("button", name="Tables (CSV)").click()
    with zipfile.ZipFile(found.value.path()) as archive:
        assert {"report.txt", "steps.csv", "environments.csv"} <= set(archive.namelist())
    sound(watch)
    for theme in ("light", "dark"):
        alone = browser.new_context(offline=True, color_scheme=theme).new_page()
        asked: list[str] = []
        said: list[str] = []
        alone.on("request", lambda request, asked=asked: asked.append(request.url))
        alone.on("console", lambda message, said=said: said.append(message.text))
        alone.goto(file.as_uri())
        expect(alone.get_by_role("heading", name="Which environments were starved?")).to_be_visible()
        expect(alone.get_by_role("heading", name="And against a second run?")).to_be_visible()
        assert alone.locator("figure svg").count() >= 4
        alone.locator("figure summary").first.click()
        expect(alone.locator("figure table").first).to_be_visible()
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        assert said == []
        alone.context.close()


def test_the_page_and_its_charts_are_printed_where_a_browser_is(site, tmp_path, envsched):
    page, charts = tmp_path / "report.png", tmp_path / "charts"
    status, _, err = envsched("report", site.runs / "demo", "--out", page, "--png", charts)
    assert status == 0, err
    assert envsched("report", site.runs / "demo", "--out", tmp_path / "report.pdf")[0] == 0
    width, height = (int.from_bytes(page.read_bytes()[at : at + 4], "big") for at in (16, 20))
    assert (width, 3_000 < height < 16_000) == (1000, True)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in charts.iterdir())
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_charts_and_columns_have_room_when_the_window_is_narrow(site, browser):
    watched = Watch(browser, "dark")
    page = watched.page
    page.set_viewport_size({"width": 900, "height": 1000})
    for path in ("cold_start", "decision", "compare", "log_health"):
        page.goto(site.url(f"{path}?run=demo&step=2&whole=true"))
        expect(page.locator("h1")).to_be_visible()
        watched.settle()
        main = page.locator(".stMainBlockContainer")
        assert main.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
        charts = main.locator(".stPlotlyChart")
        if charts.count():
            expect(charts.first).to_be_visible()
            assert min(box["width"] for one in charts.all() if (box := one.bounding_box())) > 350
    sound(watched)
    page.close()


def test_a_damaged_log_says_where_and_shows_the_line(site, watch):
    run = write_run(site.runs / "damaged")
    segment = run / "events" / "seg-000000.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:3], b"<b>broken</b>\n", *lines[4:9], *lines[10:]]))
    page = watch.open(site.url("log_health?run=damaged"), "Log health")
    expect(page.get_by_text("the event numbers do not go on by one at 1 place")).to_be_visible()
    watch.pick("unreadable")
    expect(page.get_by_text("<b>broken</b>")).to_be_visible()
    page.get_by_role("button", name="Check the whole log").click()
    expect(page.get_by_text("The log is not as it was written, or not in order")).to_be_visible()
    sound(watch)
