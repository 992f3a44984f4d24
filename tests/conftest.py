"""What several test files share: the public logs where they are at hand, and a small simulated run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from simulated_pool import record_pool, simulate
from small_run import write_log, write_run

from envsched_core.cli import main

if TYPE_CHECKING:  # these two skip where there is no browser driver
    from browser_checks import Site, Watch, playwright

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("dev", max_examples=20, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


TALLIED = ("faults", "security")
"""Markers whose tests say how much they tried and what was lost."""


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str, int, int], None]:
    """Call it with (what was tried, how often, how many of them lost something); the end of the run adds it up."""
    marker = next((name for name in TALLIED if request.node.get_closest_marker(name)), "")

    def add(what: str, tried: int, lost: int = 0) -> None:
        request.node.user_properties.append(("tally", (marker, what, tried, lost)))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row for each thing that was tried, where any test of these markers ran."""
    sums: dict[tuple[str, str], list[int]] = {}
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if getattr(report, "when", "") != "call":
            continue
        for name, value in report.user_properties:
            if name == "tally":
                marker, what, tried, lost = value
                row = sums.setdefault((marker, what), [0, 0])
                row[0], row[1] = row[0] + tried, row[1] + lost
    for marker in TALLIED:
        rows = {what: row for (of, what), row in sorted(sums.items()) if of == marker}
        if rows:
            tried, lost = (sum(row[k] for row in rows.values()) for k in (0, 1))
            terminalreporter.section(f"{marker}: {tried:,} tried, {lost or 'nothing'} lost")
            for what, row in rows.items():
                terminalreporter.write_line(f"{row[0]:>9,}  {what}: {row[1] or 'nothing'} lost")


@pytest.fixture(scope="session")
def shared_inputs() -> Path:
    """The folder of real public logs; the test is skipped where it is absent."""
    folder = Path(os.environ.get("ENVSCHED_SHARED", ROOT.parent / "shared")) / "inputs"
    if not folder.is_dir():
        pytest.skip("no public logs here (ENVSCHED_SHARED)")
    return folder


@pytest.fixture(scope="session")
def imported_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small simulated pool in the form of an imported run: 12 environments, 96 tasks, 3 groups of 8 each."""
    run = tmp_path_factory.mktemp("runs") / "pool"
    record_pool(simulate(96, seed=1, draws=3), run, draws=3)
    return run


@pytest.fixture
def envsched(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line; returns (exit status, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A dashboard over a live run whose last step is open (`demo`) and a log (`log`)."""
    from browser_checks import CHROMIUM, Site

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
    """Debian's Chromium without a window, which asks nothing of its own accord."""
    from browser_checks import CHROMIUM, FLAGS, playwright

    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def watch(browser: playwright.Browser) -> Iterator[Watch]:
    """A page in light colours whose requests and console are heard."""
    from browser_checks import Watch

    watched = Watch(browser)
    yield watched
    watched.page.close()
