"""What a session counted, as pages show it: from its file, from a snapshot without one, and by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_checks import session, step_through
from page_runs import app, shown_page

from envsched_core import views
from envsched_core.errors import DamagedError
from envsched_core.live import LiveSession
from envsched_core.store import read_counters
from envsched_core.views.counters import MEANINGS, meaning

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def counted_run(run: Path) -> dict[str, float]:
    """A run with odd calls; its metrics at the end."""
    with session(run, snapshot_every=2) as live:
        step_through(live, range(4))
        live.observe(3)
        live.release("none", "<b>stale</b>")
    return live.metrics()


def opened(run: Path) -> views.RunView:
    view = views.RunView(run)
    view.poll()
    return view


def test_every_counter_is_shown_with_its_meaning(tmp_path: Path) -> None:
    metrics = counted_run(tmp_path / "run")
    step, table = views.session_counts(opened(tmp_path / "run"))
    assert step == 3
    assert dict(zip(table["name"], table["count"], strict=True)) == metrics
    assert [name for name in table["name"] if not meaning(name)] == []
    assert (meaning("released/anything"), meaning("weather/sun")) == (MEANINGS["released/"], "")


def test_a_restart_goes_on_counting(tmp_path: Path) -> None:
    counted_run(tmp_path / "run")
    with LiveSession.resume(tmp_path / "run") as live:
        live.observe(3)
    assert live.metrics()["session/bad_result"] == 2
    told = read_counters(tmp_path / "run")
    assert told is not None
    assert told.counts["session/bad_result"] == 2


def test_without_a_readable_file_the_newest_snapshot_is_asked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    counted_run(run)
    (run / "counters.json").write_bytes(b"{")
    with pytest.raises(DamagedError, match="may be deleted"):
        read_counters(run)
    LiveSession.resume(run).close()
    (run / "counters.json").unlink()
    step, table = views.session_counts(opened(run))
    assert step == 2
    assert dict(zip(table["name"], table["count"], strict=True))["groups/observed"] == 16
    for state in (run / "state").iterdir():
        state.unlink()
    assert views.session_counts(opened(run)).step is None


def test_the_page_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = counted_run(tmp_path / "runs" / "live")
    test = app(tmp_path / "runs", monkeypatch)
    test = shown_page(test, "log_health", run="live")
    assert "What the session counted" in [part.value for part in test.subheader]
    shown = next(d.value for d in test.dataframe if "name" in d.value.columns and "meaning" in d.value.columns)
    assert len(shown) == len(metrics)
