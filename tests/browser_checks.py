"""What the browser tests share: a dashboard in a process of its own, and a page that is watched.

The fixtures `site`, `browser` and `watch` stand in conftest.py. Importing this module skips the importing test
file where Playwright or the dashboard is not installed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from page_runs import PAGES

playwright = pytest.importorskip("playwright.sync_api")
entry = pytest.importorskip("envsched_dashboard")
expect = playwright.expect

__all__ = ["CHROMIUM", "FLAGS", "KNOWN", "Site", "Watch", "expect", "playwright", "sound"]

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

    def go(self, path: str) -> playwright.Page:
        """Opens a page through the menu, without loading the app anew."""
        title = PAGES[path]
        name = MENU.get(path, title)
        self.page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=False).click()
        expect(self.page.locator("h1")).to_contain_text(title, timeout=30_000)
        self.settle()
        return self.page

    def reach(self, key: str) -> playwright.Locator:
        """A chart or table by its key, scrolled to: it is drawn when it comes into view."""
        self.page.wait_for_function(REACHED, arg=key, timeout=30_000)
        drawn = self.page.locator(f".st-key-{key}")
        self.settle()
        drawn.scroll_into_view_if_needed()
        return drawn

    def pick(self, key: str, row: int = 0) -> None:
        """Selects a row of a table by its position."""
        canvas = self.reach(key).locator("canvas").first
        expect(canvas).to_be_visible()
        self.page.wait_for_timeout(500)
        canvas.click(position={"x": 15, "y": 35 * (row + 1) + 17}, force=True)  # the scroller lies over the canvas

    def colours(self, theme: str) -> None:
        """Switches to the light or dark colours, as the reader's system would."""
        before = self.page.evaluate(BACKGROUND)
        self.page.emulate_media(color_scheme=theme)
        self.page.wait_for_function(f"before => ({BACKGROUND})() !== before", arg=before)

    def settle(self) -> None:
        app = self.page.get_by_test_id("stApp")
        expect(app).to_have_attribute("data-test-script-state", "notRunning", timeout=30_000)
        expect(self.page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=30_000)
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=30_000)


def sound(watched: Watch) -> None:
    assert watched.page.get_by_test_id("stException").count() == 0
    assert watched.errors == []
    assert watched.hosts == {"127.0.0.1"}
