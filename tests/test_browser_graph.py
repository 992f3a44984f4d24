from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser_checks import CHROMIUM, CLICKED, Site, Watch, expect, playwright, sound
from graph_runs import HOSTILE_ENVS, hostile_tasks, write_hostile_run
from small_run import write_run

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

MAP = """() => {
    const host = [...document.querySelectorAll("*")].find(e => e.shadowRoot && e.shadowRoot.querySelector(".graph"));
    return host ? host.shadowRoot.querySelector(".graph") : null;
}"""
NODE_AT = f"""id => {{
    const place = ({MAP})(), box = place.getBoundingClientRect(), at = place.envschedNodeAt(id);
    return [box.x + at.x, box.y + at.y];
}}"""
PLACED = f"""() => {{
    const place = ({MAP})(), box = place.getBoundingClientRect(), network = place.envschedMap.network;
    return [box.x, box.y, box.width, box.height, network.getScale(), network.getViewPosition()];
}}"""
LOOKS, MOST_LOOKS = 6, 150
DRAWN = f"""() => {{
    const map = ({MAP})().envschedMap, network = map.network;
    const nodes = map.nodes.get().filter(n => typeof n.id === "number");
    return {{
        places: network.getPositions(), view: [network.getScale(), network.getViewPosition()],
        fills: Object.fromEntries(nodes.map(n => [n.id, n.color.background])),
        rings: nodes.filter(n => n.borderWidth > 1).map(n => n.id), edges: map.edges.getIds(),
        texts: nodes.map(n => n.label), tip: map.tip.textContent, marked: map.marked === true,
    }};
}}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    runs = tmp_path_factory.mktemp("graphs")
    write_hostile_run(runs / "hostile", steps=4)
    write_run(runs / "demo", last_open=True)
    running = Site(runs)
    yield running.wait()
    running.stop()


def opened(site: Site, watch: Watch, link: str) -> playwright.Page:
    watch.page.on("dialog", lambda dialog: watch.errors.append(f"dialog {dialog.message}"))
    page = watch.open(site.url(f"graph?{link}"), "Graph")
    page.wait_for_function(f"() => ({MAP})()?.envschedMap")
    steady(page)  # it fits itself into view with its first frame
    return page


def steady(page: playwright.Page) -> None:
    """Waits until the map stands still, on the page and in itself."""
    seen: list[object] = []
    while len(seen) < MOST_LOOKS:
        seen.append(page.evaluate(PLACED))
        if len(seen) >= LOOKS and all(one == seen[-1] for one in seen[-LOOKS:]):
            return
        page.wait_for_timeout(100)
    raise AssertionError("the map does not stand still")


def strike(watch: Watch, aim: Callable[[], Sequence[float]]) -> None:
    """Clicks where `aim` says, in pixels of the page."""

    def click() -> None:
        steady(watch.page)
        watch.page.mouse.click(*aim())

    watch.until_told(click, CLICKED)


def drawn(page: playwright.Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(DRAWN)
    return found


def beside(page: playwright.Page, key: str) -> playwright.Locator:
    """The name of the chosen task in the panel; tables beside it may hold it too."""
    return page.locator(".st-key-graph_panel").get_by_test_id("stText").get_by_text(key, exact=True)


def test_a_node_has_its_facts_beside_it_and_leads_to_its_decision(site, watch):
    page = opened(site, watch, "run=demo&step=2&env=env1")
    strike(watch, lambda: page.evaluate(NODE_AT, 15))
    expect(beside(page, "env1::task-3")).to_be_visible()
    assert "node=env1" in page.url
    watch.settle()
    page.get_by_role("button", name="Its decision").click()
    expect(page.locator("h1")).to_contain_text("Decision")
    expect(page.get_by_text("env1::task-3 at step 2").first).to_be_visible()
    watch.settle()
    for _ in range(3):  # a page that is opened by a click writes its parameters as entries of their own
        page.go_back()
        if "/graph" in page.url:
            break
    expect(page.locator("h1")).to_contain_text("Graph")
    expect(beside(page, "env1::task-3")).to_be_visible()
    sound(watch)


def test_an_edge_tells_its_parts_and_nothing_of_a_log_is_run(site, watch):
    task = hostile_tasks()[0].key
    page = opened(site, watch, f"run=hostile&step=3&scope=All+tasks&node={quote(task, safe='')}")
    expect(beside(page, task)).to_be_visible()
    found = drawn(page)
    other = next(e for e in found["edges"] if str(e).startswith(("0-", "flow ")))
    end = int(str(other).replace("flow ", "").replace("0-", ""))
    steady(page)
    x, y = page.evaluate(NODE_AT, 0)
    page.mouse.move(x + 1, y + 1)
    page.wait_for_function(f"() => ({MAP})().envschedMap.tip.textContent.includes('observed')")
    assert HOSTILE_ENVS[0] in drawn(page)["tip"]

    def on_the_edge() -> list[float]:
        one, far = page.evaluate(NODE_AT, 0), page.evaluate(NODE_AT, end)
        return [a + 0.4 * (b - a) for a, b in zip(one, far, strict=True)]

    strike(watch, on_the_edge)
    expect(page.locator(".st-key-graph_panel").get_by_text("the parts sum to the weight")).to_be_visible()
    assert "edge=" in page.url
    assert page.evaluate("document.title") != "owned"
    assert page.locator("main b:has-text('href'), main img[src*=elsewhere]").count() == 0
    sound(watch)


def test_a_step_recolours_the_same_map_in_place(site, watch):
    page = opened(site, watch, "run=demo&step=1&color=observations")
    page.evaluate(f"() => {{ ({MAP})().envschedMap.marked = true; }}")
    before = drawn(page)
    page.get_by_role("button", name="Next").click()
    page.wait_for_function("() => new URL(location).searchParams.get('step') === '2'")
    watch.settle()
    page.wait_for_function(
        f"old => JSON.stringify(({DRAWN})().fills) !== old",
        arg=page.evaluate("x => JSON.stringify(x)", before["fills"]),
    )
    after = drawn(page)
    assert after["marked"], "the map was built anew"
    assert (after["places"], after["view"]) == (before["places"], before["view"])
    assert set(after["fills"]) == set(before["fills"])
    sound(watch)


def test_a_search_rings_and_a_threshold_drops(site, watch):
    page = opened(site, watch, "run=demo&step=2")
    before = drawn(page)
    find = page.get_by_label("Find a task")
    find.fill("market 2 for")
    find.press("Enter")
    expect(page.get_by_text("Found: 12")).to_be_visible()
    watch.settle()
    page.wait_for_function(f"() => ({DRAWN})().rings.length >= 12")
    assert set(range(24, 36)) <= set(drawn(page)["rings"])
    thumb = page.locator(".st-key-weight").get_by_role("slider")
    thumb.focus()
    for _ in range(14):
        thumb.press("ArrowRight")
    expect(page.get_by_text("weigh 0.7 or more").first).to_be_visible()
    watch.settle()
    assert 0 < len(drawn(page)["edges"]) < len(before["edges"])
    assert all(part in page.url for part in ("weight=0.7", "find=market"))
    page.get_by_role("button", name="within", exact=True).click()
    expect(page.get_by_text("(switched off)").first).to_be_visible()
    sound(watch)


def test_an_environment_opens_from_the_map_of_environments(site, watch):
    page = opened(site, watch, "run=demo&step=2&scope=Environments")
    strike(watch, lambda: page.evaluate(NODE_AT, 2))
    expect(page.get_by_text("Environment env2", exact=True)).to_be_visible()
    watch.settle()
    assert "env=env2" in page.url
    page.go_back()
    expect(page.get_by_text("All 4 environments.")).to_be_visible()
    sound(watch)


def test_the_files_hold_the_map_and_open_without_a_request(site, watch, browser):
    page = opened(site, watch, "run=hostile&step=3&scope=All+tasks")
    with page.expect_download() as found:
        page.get_by_role("button", name="All of it as GraphML").click()
    assert Path(found.value.path()).read_text(encoding="utf-8").count("<node ") == 24
    with page.expect_download() as found:
        page.get_by_role("button", name="This map as a page (HTML)").click()
    file = Path(found.value.path()).with_suffix(".html")
    file.write_bytes(Path(found.value.path()).read_bytes())
    alone, heard = browser.new_page(), []
    alone.on("request", lambda request: heard.append(request.url))
    alone.on("dialog", lambda dialog: heard.append(dialog.message))
    alone.on("pageerror", lambda error: heard.append(str(error)))
    alone.on("console", lambda message: heard.append(message.text) if message.type == "error" else None)
    alone.goto(file.as_uri())
    alone.wait_for_function("() => typeof network !== 'undefined' && network.getScale() > 0")
    alone.wait_for_timeout(500)
    assert heard == [file.as_uri()]
    assert alone.locator("canvas").count() == 1
    assert alone.evaluate("nodes.length") == 24 + len(HOSTILE_ENVS)
    assert alone.evaluate("document.title") == "All tasks"
    alone.close()
    sound(watch)
