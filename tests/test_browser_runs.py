"""Every page on runs of every kind, in both colours: nothing fails, nothing is asked of another host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_checks import CHROMIUM, Site, Watch, expect, sound
from invented_runs import write_invented
from page_runs import PAGES
from small_run import simulated, write_run

from envsched_core.store import RunWriter

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

STATES = {"empty": "Empty", "small": "Live", "growing": "Live", "large": "Recorded", "damaged": "Partial"}
"""A run of each kind, and the name of its state that its pages show."""


def damage(run: Path) -> None:
    """A line that is no JSON, arrays that are cut off, and a last line that was never finished."""
    segment = run / "events" / "seg-000000.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:5], b"{broken}\n", *lines[5:], b'{"v":1,"seq":']))
    scores = run / "scores" / "1.npz"
    scores.write_bytes(scores.read_bytes()[:200])
    array = next((run / "graph").rglob("*.npy"))
    array.write_bytes(array.read_bytes()[:-8])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    runs = tmp_path_factory.mktemp("runs")
    write_run(runs / "empty", steps=0)
    write_run(runs / "small")
    write_run(runs / "growing", last_open=True)
    write_invented(runs / "large", tasks=2_000, environments=40, steps=12, batch=64)
    damage(Path(shutil.copytree(runs / "small", runs / "damaged")))
    running = Site(runs)
    yield running.wait()
    running.stop()


def grow(run: Path, number: int) -> None:
    """One more group, as a trainer would add it while somebody looks."""
    with RunWriter.resume(run) as writer:
        writer.observed([simulated("env1", f"task-{number}", 3, 500 + number)], 3)


@pytest.mark.parametrize("run", STATES)
def test_every_page_in_both_colours(site, browser, run):
    watched = Watch(browser)
    page = watched.open(site.url(f"?run={run}&whole=true"), "Overview")
    for number, path in enumerate(PAGES):
        watched.go(path)
        if run == "growing":
            grow(site.runs / run, number)
        state = page.get_by_test_id("stSidebar").get_by_text(STATES[run], exact=True)
        expect(state).to_be_visible()  # the next tick reads what was just written
        watched.colours("light" if number % 2 else "dark")
        watched.settle()
        if run == "damaged":
            expect(page.get_by_text("of the run could not be read").first).to_be_visible()
        sound(watched)
    watched.page.close()


def test_a_run_that_cannot_be_read_is_named_and_the_others_stay(site, watch):
    broken = site.runs / "broken"
    broken.mkdir()
    (broken / "run.json").write_text('{"format": 99, "writer": "envsched 9.0"}', encoding="utf-8")
    page = watch.open(site.url("?run=broken"), "EnvSched")
    expect(page.get_by_text("Broken: this run cannot be read")).to_be_visible()
    page.goto(site.url("?run=small"))
    expect(page.locator("h1")).to_contain_text("Overview")
    shutil.rmtree(broken)
    sound(watch)
