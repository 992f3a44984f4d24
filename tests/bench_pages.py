"""How fast the pages are: first useful paint on a second visit and one interaction each, in headless Chromium.

    python tests/bench_pages.py --folder FOLDER [--size small|large|both] [--page PAGE ...]

Two invented runs are made once and kept in FOLDER. Both hold 120 steps of 256 picks with their near misses, decided
by the scheduler itself: `small` over 5,000 tasks, `large` over 100,000 tasks, with groups that nobody asked for until
groups and kept candidates are 1,000,000 rows. A page is opened twice, each time in a session of its own; the second
time counts. All times are seconds of the wall clock, from the browser's own:

    open     from the address to the first chart, table, figure or graph of the page being drawn
    whole    to the last one that is in view, with the page's script at its end
    step     from the click on "Previous" to the page's script being at its end and the frame after it drawn
    filter   the same, from the choice of one environment

`no run` is the dashboard on an empty folder: what Streamlit and the browser take by themselves, at the load that is
printed with it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from browser_checks import CHROMIUM, FLAGS, Site, playwright
from invented_runs import write_invented
from page_runs import PAGES

from envsched_core.store import RunReader

SEEN = ", ".join(
    f"[data-testid=stMain] {mark}:visible"
    for mark in (
        *("[data-testid=stPlotlyChart] .main-svg", "[data-testid=stDataFrame]", "[data-testid=stMetric]"),
        *("[data-testid=stTable]", ".graph canvas", ".cells", "iframe"),
        *("[data-testid=stButton]", "[data-testid=stSelectbox]"),
    )
)
"""What a person came for, or where the page waits for a choice; Playwright looks through open shadow roots."""
PATIENCE = 900_000
"""Milliseconds until a page counts as not opening at all; the first visit reads the whole run."""


class Size(NamedTuple):
    """What a run holds, and what its pages may take."""

    tasks: int
    environments: int
    steps: int
    rows: int
    """Groups and kept candidates together, at least."""
    open_seconds: float
    act_seconds: float


SIZES = {"small": Size(5_000, 100, 120, 0, 3.0, 0.5), "large": Size(100_000, 1_000, 120, 1_000_000, 6.0, 1.0)}
BATCH = 256


def made(folder: Path, name: str) -> Path:
    """The run of that name, made where it is not there yet."""
    run, size = folder / name, SIZES[name]
    if not run.is_dir():
        began = time.monotonic()
        making = folder / "in the making" / name
        write_invented(
            making, tasks=size.tasks, environments=size.environments, steps=size.steps, batch=BATCH, rows=size.rows
        )
        making.rename(run)
        print(f"{name}: made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return run


# ---------------------------------------------------------------------- timing, inside the browser

WATCH = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    window.benchRan = window.benchDone = 0;
    new MutationObserver(() => {
        const now = performance.now(), state = app.getAttribute('data-test-script-state');
        if (state === 'running') { window.benchRan = now; window.benchDone = 0; }
        else requestAnimationFrame(() => setTimeout(() => { window.benchDone = performance.now(); }));
    }).observe(app, {attributes: true, attributeFilter: ['data-test-script-state']});
    for (const kind of ['click', 'keydown'])
        document.addEventListener(kind, () => { window.benchBegan = performance.now(); }, {capture: true});
}"""
DONE = """() => window.benchRan > window.benchBegan && window.benchDone > window.benchRan
    && (window.benchDone - window.benchBegan) / 1000"""


class Times(NamedTuple):
    """Seconds; None where a page could not be timed."""

    open: float
    whole: float
    step: float | None
    filter: float | None


def _wait(page: Any) -> None:
    """Until nothing has run or been a placeholder for a while."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=PATIENCE)
    page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton]')", timeout=PATIENCE)
    page.wait_for_function("() => !(window.envschedInView?.told)", timeout=PATIENCE)  # what is in view is drawn


def _opened(page: Any, url: str, title: str) -> tuple[float, float]:
    began = time.monotonic()
    page.goto(url)
    page.locator("h1", has_text=title).wait_for(timeout=PATIENCE)
    page.locator(SEEN).first.wait_for(timeout=PATIENCE)
    useful = time.monotonic() - began
    _wait(page)
    return useful, time.monotonic() - began


def _acted(page: Any, act: Any) -> float:
    page.evaluate("() => { window.benchBegan = Infinity; }")
    act()
    seconds: float = page.wait_for_function(DONE, timeout=PATIENCE).json_value()
    page.wait_for_timeout(300)
    return seconds


def timed(browser: Any, site: Site, path: str, run: str) -> Times:
    """Opens a page twice and acts on it twice."""
    for visit in range(2):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        useful, whole = _opened(page, site.url(f"{path}?run={run}&live=false"), PAGES[path])
        if visit == 0:
            page.close()
    page.wait_for_timeout(1000)
    page.evaluate(WATCH)
    previous = page.get_by_role("button", name="Previous")
    _acted(page, previous.click)
    step = _acted(page, previous.click)  # the second one: all code of the page has been loaded
    page.get_by_text("Filters", exact=True).click()
    page.wait_for_timeout(1000)  # it unfolds slowly, and a list that opens meanwhile closes again
    box = page.get_by_role("combobox", name="Environment")
    box.click()
    box.type("env7")
    choice = page.get_by_role("option", name="env7", exact=True)
    choice.wait_for()
    narrowed = _acted(page, choice.click)
    page.close()
    print(f"{run}, {path}: {useful:.2f} s to open", file=sys.stderr)
    return Times(useful, whole, step, narrowed)


def bare(browser: Any, folder: Path) -> float:
    """Seconds that the page of an empty folder takes to open on a second visit."""
    (folder / "nothing").mkdir(exist_ok=True)
    site = Site(folder / "nothing")
    try:
        site.wait()
        for _ in range(2):
            page = browser.new_page()
            began = time.monotonic()
            page.goto(site.url(""))
            page.get_by_text("no runs here yet").wait_for(timeout=PATIENCE)
            seconds = time.monotonic() - began
            page.close()
    finally:
        site.stop()
    return seconds


def _report(name: str, rows: dict[str, Times]) -> bool:
    size = SIZES[name]
    print(f"\n{name}: targets {size.open_seconds:g} s to open, {size.act_seconds:g} s to act")
    print(f"{'page':12} {'open':>6} {'whole':>6} {'step':>6} {'filter':>6}")
    good = True
    for path, times in rows.items():
        slow = times.open > size.open_seconds or max(times.step or 0, times.filter or 0) > size.act_seconds
        good &= not slow
        numbers = " ".join("     -" if x is None else f"{x:6.2f}" for x in times)
        print(f"{path:12} {numbers}{'  over' if slow else ''}")
    return good


def main() -> int:
    """0 when every page is within its targets."""
    options = argparse.ArgumentParser(description="How fast the pages are.")
    options.add_argument("--folder", type=Path, required=True, help="where the invented runs are kept")
    options.add_argument("--size", choices=[*SIZES, "both"], default="both")
    options.add_argument("--page", choices=list(PAGES), action="append")
    chosen = options.parse_args()
    names = list(SIZES) if chosen.size == "both" else [chosen.size]
    for name in names:
        run = made(chosen.folder, name)
        began, view = time.monotonic(), RunReader(run)
        events = sum(1 for _ in view.events())
        print(f"{name}: {events:,} events, {view.size() / 1e6:,.0f} MB, read in {time.monotonic() - began:.0f} s")
    site = Site(chosen.folder)
    try:
        site.wait()
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
            print(f"no run: {bare(browser, chosen.folder):.2f} s to open; load {os.getloadavg()[0]:.1f}")
            found = {name: {path: timed(browser, site, path, name) for path in chosen.page or PAGES} for name in names}
            browser.close()
    finally:
        site.stop()
    return 0 if all([_report(name, rows) for name, rows in found.items()]) else 1


if __name__ == "__main__":
    sys.exit(main())
