from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import md5
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser_checks import CHROMIUM, CLICKED, POINTS, Site, Watch, entry, expect, sound
from page_runs import PAGES
from small_run import simulated, write_run

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

FIRST_CELL = "e => [e.envschedCells.at.left + e.envschedCells.at.column / 2, 30 + e.envschedCells.at.row / 2]"


def test_every_page_opens_by_its_link_and_asks_no_other_host(site, watch):
    for i, path in enumerate(PAGES):
        watch.page.emulate_media(color_scheme=("light", "dark")[i % 2])
        watch.open(site.url(f"{path}?run=demo&step=2&env=env1"), PAGES[path])
        assert all(part in watch.page.url for part in ("run=demo", "step=2", "env=env1"))
        sound(watch)


def test_a_step_opens_its_batch_and_back_returns(site, watch):
    page = watch.open(site.url("?run=demo"), "Overview")
    watch.strike(watch.reach("steps").locator(".bars .point path").nth(1), POINTS)
    expect(page.locator("h1")).to_contain_text("Batch of step 1")
    assert "step=1" in page.url
    assert "run=demo" in page.url
    page.get_by_role("button", name="Next").click()
    expect(page.locator("h1")).to_contain_text("Batch of step 2")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Batch of step 1")
    sound(watch)


def test_a_row_opens_its_decision(site, watch):
    page = watch.open(site.url("batch?run=demo&step=1"), "Batch")
    watch.pick("pick_order")
    expect(page.locator("h1")).to_contain_text("Decision")
    expect(page.get_by_text("was pick 1 of step 1")).to_be_visible()
    assert "task=" in page.url
    sound(watch)


def test_a_cell_opens_its_environment_at_its_step_and_back_undoes_it(site, watch):
    page = watch.open(site.url("variance?run=demo"), "Variance")
    before = page.url
    cells = page.locator(".cells")
    watch.steady(cells)
    x, y = cells.evaluate(FIRST_CELL)
    cells.hover(position={"x": x, "y": y})
    expect(page.locator(".frame .tip")).to_contain_text("predicted variance 0.")
    watch.strike(cells, CLICKED, {"x": x, "y": y})
    page.wait_for_url("**/variance?*step=0*")
    watch.settle()
    assert "env=env" in page.url
    page.go_back()
    page.wait_for_url(before)
    sound(watch)


def test_back_needs_one_press_while_a_run_is_followed(site, watch):
    page = watch.open(site.url("?run=demo"), "Overview")
    for _ in range(2):
        watch.strike(watch.reach("steps").locator(".bars .point path").nth(1), POINTS)
        expect(page.locator("h1")).to_contain_text("Batch of step 1")
        page.wait_for_url("**/batch?run=demo&step=1")
        page.go_back()
        expect(page.locator("h1")).to_contain_text("Overview")
        assert page.url == site.url("?run=demo")
    sound(watch)


def test_a_bad_link_is_told_and_the_address_names_what_is_shown(site, watch):
    page = watch.open(site.url("batch?run=nowhere&step=x&env=none"), "Batch of step 3")
    for text in ("run 'nowhere', which is not in this folder", "Step 'x' is not in this run", "environment 'none'"):
        expect(page.get_by_text(text)).to_be_visible()
    page.wait_for_url("**/batch?run=demo")
    sound(watch)


def test_the_run_and_the_filters_travel_through_the_menu(site, watch):
    page = watch.open(site.url("batch?run=demo&step=1&env=env2"), "Batch of step 1")
    page.get_by_role("link", name="Coverage").click()
    expect(page.locator("h1")).to_contain_text("Coverage")
    watch.settle()
    assert all(part in page.url for part in ("run=demo", "step=1", "env=env2"))
    page.get_by_role("link", name="Batch").click()
    expect(page.locator("h1")).to_contain_text("Batch of step 1")


def test_text_of_a_log_runs_nothing_and_is_shown_as_it_is(site, watch):
    page = watch.open(site.url("decision?run=demo&step=0&task=env0::task-0"), "Decision")
    page.get_by_text("The task as the catalogue has it").click()
    expect(page.get_by_text("<script>alert(1)</script> **bold** $x^2$").first).to_be_visible()
    ours = "() => [...document.querySelectorAll('main script')].every(x => x.textContent.includes('envschedHistory'))"
    assert page.evaluate(ours)
    assert page.locator("main b:text-is('bold')").count() == 0
    sound(watch)


def test_a_run_that_grows_is_followed_without_reloading(site, watch):
    write_run(site.runs / "growing", last_open=True)
    page = watch.open(site.url("?run=growing"), "Overview")
    expect(page.get_by_text("30 events")).to_be_visible()
    from envsched_core.store import RunWriter

    with RunWriter.resume(site.runs / "growing") as writer:
        writer.observed([simulated("env0", f"task-{n}", 3, 100 + n) for n in range(3)], 3)
    expect(page.get_by_text("34 events")).to_be_visible()
    sound(watch)


@pytest.mark.skipif(find_spec("numba") is None, reason="the closed loop needs numba")
def test_two_sessions_watch_a_trainer_that_nothing_holds_up(site, browser):
    """A real `envsched train` in its own process; both pages reach its newest step without being reloaded."""
    steps, run = 12, site.runs / "trained"
    command = [sys.executable, "-m", "envsched_core.cli", "train", "--world", "small", "--steps", str(steps)]
    trainer = subprocess.Popen([*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1200):
        if (run / "run.json").is_file():
            break
        time.sleep(0.1)
    watched = [Watch(browser), Watch(browser, "dark")]
    for one in watched:
        one.open(site.url("?run=trained"), "Overview")
    assert trainer.wait(timeout=120) == 0
    for one in watched:
        expect(one.page.get_by_text(f"last step {steps - 1}")).to_be_visible()
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
    pool = load_pool(runs / "gym")
    replay_pool(pool, runs / "gym-replay", config=config_for(pool, {"batch_size": 64}), steps=6)
    running = Site(runs)
    yield running.wait()
    running.stop()


@pytest.mark.parametrize("run", ["gym-replay", "tau"])
def test_every_page_on_real_logs(real, watch, run):
    watch.open(real.url(f"?run={run}&whole=true"), "Overview")
    for path in PAGES:
        watch.go(path)
        sound(watch)


def test_a_table_downloads_as_csv(site, watch):
    page = watch.open(site.url("coverage?run=demo"), "Coverage")
    watch.reach("left_behind")
    with page.expect_download() as found:
        page.locator(".st-key-left_behind_csv").get_by_role("button").click()
    text = Path(found.value.path()).read_text(encoding="utf-8")
    assert text.startswith('"env",')
    assert len(text.splitlines()) > 1
    sound(watch)


def test_a_click_in_the_menu_that_was_lost_is_made_once_more(site, watch):
    """As when a tick of a live run takes its page away: here its message to the server is dropped."""
    watch.page.add_init_script(
        "const send = WebSocket.prototype.send; WebSocket.prototype.send = function (told) {"
        " if (window.drop) window.drop = false; else send.call(this, told); }"
    )
    page = watch.open(site.url("?run=demo&live=false"), "Overview")
    page.evaluate("window.drop = true")
    watch.go("batch")
    assert page.evaluate("window.drop") is False
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Overview")
    sound(watch)


def test_what_the_page_just_left_still_tells_is_kept_back(site, watch):
    """Answered behind the click it would empty the new page, whose next part would end Streamlit's client."""
    watch.page.add_init_script(
        "const send = WebSocket.prototype.send; WebSocket.prototype.send = function (told) {"
        " if (window.late) return void setTimeout(() => send.call(this, told), window.late);"
        " if (!window.left) Object.assign(window, {socket: this, told}); send.call(this, told); }"
    )
    page = watch.open(site.url("?run=demo&live=false"), "Overview")
    page.get_by_text("Show as table").first.click()  # the last thing told: by a part
    expect(page.get_by_test_id("stExpander").get_by_text("CSV")).to_be_visible()
    watch.settle()
    page.evaluate(
        "() => { window.left = true;"
        " [...document.querySelectorAll('[data-testid=stSidebarNav] a')].find(a => a.pathname === '/batch').click();"
        " socket.send(told); window.late = 800; setTimeout(() => { window.late = 0; }, 800); }"
    )
    expect(page.locator("h1")).to_contain_text("Batch")
    watch.reach("composition")
    expect(page.locator("h1")).to_contain_text("Batch")
    sound(watch)


@pytest.mark.parametrize(
    ("told", "kept_back"),
    [
        ("batch, decision, part of batch, part of decision, part of batch", (2,)),
        ("batch, decision, part of compare", ()),  # an act on the new page led on to a third before a part spoke
        ("batch, decision, decision, part of batch", ()),  # or back to the page before
        ("batch, decision, compare, part of batch, part of decision, part of compare", (3, 4)),
        ("batch, decision, batch, part of batch", ()),
    ],
)
def test_only_what_a_page_just_left_tells_is_kept_back(watch, told, kept_back):
    """Every other message may be an act of the reader."""
    from streamlit.proto.BackMsg_pb2 import BackMsg

    page = watch.page
    page.set_content("<div data-testid=stApp></div>")
    page.evaluate("() => { window.sent = []; WebSocket.prototype.send = told => sent.push(told[0]); }")
    page.add_script_tag(path=Path(str(entry.__file__)).with_name("history.js"))
    page.evaluate("performance.now = () => 0")
    lines = told.split(", ")
    for i, line in enumerate(lines):
        name = line.removeprefix("part of ")
        message = BackMsg()
        message.rerun_script.page_script_hash = md5(name.encode()).hexdigest()
        message.rerun_script.fragment_id = md5(b"part").hexdigest() if name != line else ""
        sent = [i, *message.SerializeToString()]
        page.evaluate("told => WebSocket.prototype.send.call(null, new Uint8Array(told))", sent)
    assert page.evaluate("sent") == [i for i in range(len(lines)) if i not in kept_back]


@pytest.mark.parametrize("first", ["click", "view"])
def test_a_click_in_the_same_moment_as_a_chart_comes_into_view_draws_the_page(site, watch, first):
    """Streamlit's client would tell both in the name of the chart."""
    watch.page.add_init_script(
        "window.IntersectionObserver = class { constructor(found) { this.found = found; }"
        " observe(place) { if (place.className === 'waiting') window.view = () =>"
        " this.found([{isIntersecting: true, target: place}]); } unobserve() {} disconnect() {} };"
    )
    page = watch.open(site.url("batch?run=demo&step=1&live=false"), "Batch of step 1")
    page.wait_for_function("window.view !== undefined")
    page.evaluate(
        "first => { const acts = [() => document.querySelector('.st-key-next_step button').click(), window.view];"
        " for (const act of first === 'click' ? acts : acts.reverse()) setTimeout(act); }",
        first,
    )
    expect(page.locator("h1")).to_contain_text("Batch of step 2")
    sound(watch)


def test_a_pick_in_a_table_that_was_drawn_anew_meanwhile_comes_with_the_next_tick(site, watch):
    """The server drops what a part tells that is gone: here the browser does."""
    watch.page.add_init_script(
        "const send = WebSocket.prototype.send, text = new TextDecoder('latin1');"
        " WebSocket.prototype.send = function (told) {"
        """ if (!window.dropped && /"rows":\\[0/.test(text.decode(told))) window.dropped = true;"""
        " else send.call(this, told); }"
    )
    write_run(site.runs / "lately", last_open=True)
    page = watch.open(site.url("batch?run=lately&step=1"), "Batch")
    watch.pick("pick_order")
    expect(page.locator("h1")).to_contain_text("Decision")
    assert page.evaluate("window.dropped")
    sound(watch)


def test_a_page_that_ended_is_loaded_anew(site, watch):
    page = watch.open(site.url("batch?run=demo&step=2&live=false"), "Batch")
    page.evaluate("document.getElementById('root').replaceChildren()")
    expect(page.locator("h1")).to_contain_text("Batch of step 2")
    sound(watch)
