"""What the browser tests share: a dashboard in a process of its own, and a page that is watched.

The fixtures `site`, `browser` and `watch` stand in conftest.py. Importing this module skips the importing test
file where Playwright or the dashboard is not installed.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from page_runs import PAGES

playwright = pytest.importorskip("playwright.sync_api")
entry = pytest.importorskip("envsched_dashboard")
expect = playwright.expect
expect.set_options(timeout=30_000)  # a machine that is busy draws late; no test is about how late

__all__ = ["CHROMIUM", "CLICKED", "FLAGS", "KNOWN", "POINTS", "Site", "Watch", "entry", "expect", "playwright", "sound"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP elsewhere.invalid 127.0.0.1",  # a name of another host that leads here
]
KNOWN = ("_stcore/health", "_stcore/host-config")
"""Streamlit probes these under the page's own path on a deep link; they answer 404."""
MENU = {"compare": "Compare & what-if"}
"""Names in the menu that are not the page's title."""
REACHED = """key => {
    const drawn = document.querySelector(`.st-key-${key}`);
    (drawn || document.querySelector(`.st-key-${key}_place`))?.scrollIntoView({block: "center"});
    return Boolean(drawn);
}"""
"""Scrolls to a chart or table until it stands there: its place goes away when it is drawn."""
STEADY = """(drawn, frames) => new Promise(done => {
    let last = "", same = 0;
    const look = () => {
        const box = drawn.getBoundingClientRect(), now = [box.x, box.y, box.width, box.height].join();
        same = now === last ? same + 1 : 0;
        last = now;
        if (!drawn.isConnected || same >= frames) done(drawn.isConnected);
        else requestAnimationFrame(look);
    };
    look();
})"""
"""Whether something is still there when it has stood in one place for so many frames."""
FRAMES = 12
TRIES = 3
TOLD_SECONDS = 10
ROWS, POINTS, CLICKED = r'{"selection":{"rows":\[', r'"points":\[{', '"event":"clicked"'
"""What the server is told of a click: in a table, in a chart, in cells or a graph; regular expressions."""
BACKGROUND = "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"


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


class Watch:
    """A page, the hosts it asked and what its console said."""

    def __init__(self, browser: playwright.Browser, theme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme=theme)
        self.hosts: set[str] = set()
        self.errors: list[str] = []
        self.told: list[bytes] = []
        self.page.on("websocket", lambda socket: socket.on("framesent", self._sent))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2].split(":")[0]))
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _sent(self, sent: str | bytes) -> None:
        self.told.append(sent if isinstance(sent, bytes) else sent.encode())

    def _heard(self, message: playwright.ConsoleMessage) -> None:
        url = str(message.location.get("url", ""))
        if message.type == "error" and not ("404" in message.text and url.endswith(KNOWN)):
            self.errors.append(f"{message.text} {url}")

    def open(self, url: str, title: str) -> playwright.Page:
        self.page.goto(url)
        expect(self.page.locator("h1")).to_contain_text(title)
        self.settle()
        return self.page

    def go(self, path: str) -> playwright.Page:
        """Opens a page through the menu, without loading the app anew."""
        title = PAGES[path]
        name = MENU.get(path, title)
        self.page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=False).click()
        expect(self.page.locator("h1")).to_contain_text(title)
        self.settle()
        return self.page

    def reach(self, key: str) -> playwright.Locator:
        """A chart or table by its key, scrolled to: it is drawn when it comes into view."""
        self.page.wait_for_function(REACHED, arg=key)
        drawn = self.page.locator(f".st-key-{key}")
        self.settle()
        drawn.scroll_into_view_if_needed()
        return drawn

    def pick(self, key: str, row: int = 0) -> None:
        """Selects a row of a table by its position."""
        drawn = self.reach(key).locator("canvas").first  # a scroller lies over it
        self.strike(drawn, rf"{key}.{{1,6}}{ROWS}{row}\]", {"x": 15, "y": 35 * (row + 1) + 17})

    def strike(self, drawn: playwright.Locator, told: str, at: dict[str, float] | None = None) -> None:
        """Clicks what has no element of its own, at a place of it in pixels."""

        def click() -> None:
            self.steady(drawn)
            drawn.click(force=True, position=at)

        self.until_told(click, told)

    def steady(self, drawn: playwright.Locator) -> None:
        """Waits until it is in view and stands still; it may be drawn anew meanwhile."""
        expect(drawn).to_be_visible()
        for _ in range(TRIES * TRIES):
            drawn.scroll_into_view_if_needed()
            if drawn.evaluate(STEADY, FRAMES):
                return
        raise AssertionError("it is drawn anew over and over")

    def until_told(self, act: Callable[[], None], told: str) -> None:
        """Acts, and again only where the browser told the server nothing like it: a page may not listen yet."""
        before = len(self.told)
        for _ in range(TRIES):
            act()
            end = time.monotonic() + TOLD_SECONDS
            while time.monotonic() < end:
                if any(re.search(told.encode(), message, re.DOTALL) for message in self.told[before:]):
                    return
                self.page.wait_for_timeout(50)
        raise AssertionError(f"the server was told nothing like {told}")

    def colours(self, theme: str) -> None:
        """Switches to the light or dark colours, as the reader's system would."""
        before = self.page.evaluate(BACKGROUND)
        self.page.emulate_media(color_scheme=theme)
        self.page.wait_for_function(f"before => ({BACKGROUND})() !== before", arg=before)

    def settle(self) -> None:
        app = self.page.get_by_test_id("stApp")
        expect(app).to_have_attribute("data-test-script-state", "notRunning")
        expect(self.page.get_by_test_id("stStatusWidget")).to_have_count(0)
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0)


def sound(watched: Watch) -> None:
    assert watched.page.get_by_test_id("stException").count() == 0
    assert watched.errors == []
    assert watched.hosts == {"127.0.0.1"}
