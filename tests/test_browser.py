from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_runs import PAGES
from small_run import simulated, write_log, write_run

playwright = pytest.importorskip("playwright.sync_api")
entry = pytest.importorskip("envsched_dashboard")
expect = playwright.expect

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KNOWN = ("_stcore/health", "_stcore/host-config")
"""Streamlit probes these under the page's own path on a deep link; they answer 404."""


class Site:
    """A running dashboard and where to find it."""

    def __init__(self, runs: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.runs = runs
        script = Path(str(entry.__file__)).with_name("entry.py")
        options = ["--server.port", str(self.port), "--server.headless", "true"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", str(script), *options],
            env={**os.environ, "ENVSCHED_RUNS": str(runs)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> Site:
        for _ in range(150):
            try:
                with urllib.request.urlopen(f"{self.url('_stcore/health')}", timeout=1):
                    return self
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("the dashboard did not start")

    def url(self, path: str) -> str:
        """Where a page is; the first one has the empty path, since Streamlit knows the default page by no other."""
        return f"http://127.0.0.1:{self.port}/{path.removeprefix(next(iter(PAGES)))}"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    runs = tmp_path_factory.mktemp("browser")
    write_log(runs / "log")
    write_run(runs / "demo", last_open=True)
    running = Site(runs)
    yield running.wait()
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


class Watch:
    """A page, the hosts it asked and what its console said."""

    def __init__(self, browser: playwright.Browser, theme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme=theme)
        self.hosts: set[str] = set()
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2].split(":")[0]))
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _heard(self, message: playwright.ConsoleMessage) -> None:
        url = str(message.location.get("url", ""))
        if message.type == "error" and not ("404" in message.text and url.endswith(KNOWN)):
            self.errors.append(f"{message.text} {url}")

    def open(self, url: str, title: str) -> playwright.Page:
        self.page.goto(url)
        expect(self.page.locator("h1")).to_contain_text(title, timeout=30_000)
        self.settle()
        return self.page

    def settle(self) -> None:
        expect(self.page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=30_000)
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=30_000)


@pytest.fixture
def watch(browser) -> Iterator[Watch]:
    watched = Watch(browser)
    yield watched
    watched.page.close()


def sound(watched: Watch) -> None:
    assert watched.page.get_by_test_id("stException").count() == 0
    assert watched.errors == []
    assert watched.hosts == {"127.0.0.1"}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_asks_no_other_host(site, browser, path, theme):
    watched = Watch(browser, theme)
    watched.open(site.url(f"{path}?run=demo&step=2"), PAGES[path])
    sound(watched)
    watched.page.close()


def test_a_step_opens_its_batch_and_back_returns(site, watch):
    page = watch.open(site.url("?run=demo"), "Overview")
    page.locator(".st-key-steps .bars .point path").nth(1).click(force=True)
    expect(page.locator("h1")).to_contain_text("Batch of step 1", timeout=15_000)
    assert "step=1" in page.url
    assert "run=demo" in page.url
    page.get_by_role("button", name="Next").click()
    expect(page.locator("h1")).to_contain_text("Batch of step 2", timeout=15_000)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Batch of step 1", timeout=15_000)
    sound(watch)


def test_a_row_opens_its_decision(site, watch):
    page = watch.open(site.url("batch?run=demo&step=1"), "Batch")
    table = page.locator(".st-key-pick_order")
    table.scroll_into_view_if_needed()
    canvas = table.locator("canvas").first
    expect(canvas).to_be_visible()
    page.wait_for_timeout(500)
    canvas.click(position={"x": 15, "y": 35 + 17}, force=True)  # the grid's scroller lies over its canvas
    expect(page.locator("h1")).to_contain_text("Decision", timeout=15_000)
    expect(page.get_by_text("was pick 1 of step 1")).to_be_visible(timeout=15_000)
    assert "task=" in page.url
    sound(watch)


def test_a_cell_opens_its_environment_at_its_step(site, watch):
    page = watch.open(site.url("variance?run=demo"), "Variance")
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    box = plot.bounding_box()
    assert box is not None
    page.wait_for_timeout(500)
    page.mouse.click(box["x"] + box["width"] / 8, box["y"] + box["height"] / 8)
    expect(page.locator("h1")).to_contain_text("Graph", timeout=15_000)
    assert "step=0" in page.url
    sound(watch)


NODE_AT = """id => {
    const host = [...document.querySelectorAll("*")].find(e => e.shadowRoot && e.shadowRoot.querySelector(".graph"));
    const place = host.shadowRoot.querySelector(".graph"), box = place.getBoundingClientRect();
    const at = place.envschedNodeAt(id);
    return [box.x + at.x, box.y + at.y];
}"""


def test_a_node_opens_its_decision(site, watch):
    page = watch.open(site.url("graph?run=demo&step=2&env=env1"), "Graph")
    page.wait_for_timeout(1000)
    page.mouse.click(*page.evaluate(NODE_AT, 15))
    expect(page.locator("h1")).to_contain_text("Decision", timeout=15_000)
    expect(page.get_by_text("env1::task-3 at step 2").first).to_be_visible(timeout=15_000)
    sound(watch)


def test_the_run_and_the_filters_travel_through_the_menu(site, watch):
    page = watch.open(site.url("batch?run=demo&step=1&env=env2"), "Batch of step 1")
    page.get_by_role("link", name="Coverage").click()
    expect(page.locator("h1")).to_contain_text("Coverage", timeout=15_000)
    watch.settle()
    assert all(part in page.url for part in ("run=demo", "step=1", "env=env2"))
    page.get_by_role("link", name="Batch").click()
    expect(page.locator("h1")).to_contain_text("Batch of step 1", timeout=15_000)


def test_text_of_a_log_runs_nothing_and_is_shown_as_it_is(site, watch):
    page = watch.open(site.url("decision?run=demo&step=0&task=env0::task-0"), "Decision")
    page.get_by_text("The task as the catalogue has it").click()
    expect(page.get_by_text("<script>alert(1)</script> **bold** $x^2$").first).to_be_visible()
    assert page.locator("main script, main b:text-is('bold')").count() == 0
    sound(watch)


def test_a_run_that_grows_is_followed_without_reloading(site, watch):
    write_run(site.runs / "growing", last_open=True)
    page = watch.open(site.url("?run=growing"), "Overview")
    expect(page.get_by_text("30 events")).to_be_visible(timeout=15_000)
    from envsched_core.store import RunWriter

    with RunWriter.resume(site.runs / "growing") as writer:
        writer.observed([simulated("env0", f"task-{n}", 3, 100 + n) for n in range(3)], 3)
    expect(page.get_by_text("34 events")).to_be_visible(timeout=15_000)
    sound(watch)


@pytest.mark.skipif(find_spec("numba") is None, reason="the closed loop needs numba")
def test_two_sessions_watch_a_trainer_that_nothing_holds_up(site, browser):
    """A real `envsched train` in its own process; both pages reach its newest step without being reloaded."""
    steps, run = 12, site.runs / "trained"
    command = [sys.executable, "-m", "envsched_core.cli", "train", "--world", "small", "--steps", str(steps)]
    trainer = subprocess.Popen([*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if (run / "run.json").is_file():
            break
        time.sleep(0.1)
    watched = [Watch(browser), Watch(browser, "dark")]
    for one in watched:
        one.open(site.url("?run=trained"), "Overview")
    assert trainer.wait(timeout=120) == 0
    for one in watched:
        expect(one.page.get_by_text(f"last step {steps - 1}")).to_be_visible(timeout=15_000)
        expect(one.page.get_by_text("Held-out success", exact=True)).to_be_visible()
        sound(one)
        one.page.close()


@pytest.fixture(scope="module")
def real(shared_inputs, tmp_path_factory) -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    from envsched_core.importers import ImportOptions, import_run
    from envsched_core.replay import config_for, load_pool, replay_pool

    runs = tmp_path_factory.mktemp("real")
    gym = shared_inputs / "04-reasoning-gym-eval"
    tau = shared_inputs / "01-tau-bench"
    import_run([tau / "gpt-4o-airline.trials.json"], runs / "tau", ImportOptions(tools=tau / "airline_tools.json"))
    import_run([gym / "rollouts_qwen_qwq-32b.jsonl"], runs / "gym", ImportOptions(tasks=gym / "tasks.jsonl"))
    for name, size, steps in (("tau", 8, 4), ("gym", 64, 6)):
        pool = load_pool(runs / name)
        config = config_for(pool, {"batch_size": size})
        replay_pool(pool, runs / f"{name}-replay", config=config, steps=steps)
    running = Site(runs)
    yield running.wait()
    running.stop()


@pytest.mark.parametrize("run", ["tau-replay", "gym-replay", "tau"])
def test_every_page_on_real_logs(real, watch, run):
    for path, title in PAGES.items():
        watch.open(real.url(f"{path}?run={run}"), title)
        sound(watch)


def test_a_table_downloads_as_csv(site, watch):
    page = watch.open(site.url("coverage?run=demo"), "Coverage")
    with page.expect_download(timeout=15_000) as found:
        page.get_by_role("button", name="CSV").last.click()
    text = Path(found.value.path()).read_text(encoding="utf-8")
    assert text.startswith('"env",')
    assert len(text.splitlines()) > 1
    sound(watch)
