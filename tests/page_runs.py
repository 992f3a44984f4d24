"""What the tests of the pages share: runs of every kind, and the app as a link opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_run import write_log, write_run

__all__ = ["PAGES", "app", "shown_page", "sound", "write_runs"]

PAGES = {
    "overview": "Overview",
    "batch": "Batch",
    "decision": "Decision",
    "graph": "Graph",
    "compare": "Compare",
    "variance": "Variance",
    "coverage": "Coverage",
    "cold_start": "Cold start",
    "log_health": "Log health",
    "report": "Report",
}
"""Each page's place in the URL, and what its title begins with."""


def write_runs(folder: Path) -> Path:
    """A live run whose last step is open, a log with and without steps, and a run before its first batch."""
    write_run(folder / "demo", last_open=True)
    write_log(folder / "log")
    write_log(folder / "stepless", steps=False)
    write_run(folder / "new", steps=0)
    return folder


def app(runs: Path, monkeypatch: pytest.MonkeyPatch, **link: str) -> Any:
    """The app over a folder of runs, opened by a link with every chart drawn and every table open; not run yet."""
    from envsched_dashboard import parts
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv("ENVSCHED_RUNS", str(runs))
    test = AppTest.from_file(str(Path(parts.__file__).with_name("entry.py")), default_timeout=60)
    test.session_state["whole"] = True
    for key, value in link.items():
        test.query_params[key] = value
    return test


def shown_page(test: Any, page: str, **values: object) -> Any:
    """The app after a click that goes to `page`."""
    test.session_state["go_to"] = (page, values)
    return sound(test.run())


def sound(test: Any) -> Any:
    """The app, which must not have failed."""
    assert not test.exception, [e.value for e in test.exception]
    return test


def crossed_by_a_tick(test: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """When `parts` gets to the function of that name, once, the page is asked for with every widget as it is now.

    This is what becomes of a tick of a live run that waits when a click draws the page: its older values come with it.
    """
    from envsched_dashboard import parts
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    as_it_was, act = test._tree.get_widget_states(), getattr(parts, name)

    def crossed(*given: Any) -> None:
        monkeypatch.setattr(parts, name, act)
        context = get_script_run_ctx()
        told = {"widget_states": as_it_was, "query_string": context.query_string}
        context.script_requests.request_rerun(RerunData(page_script_hash=context.page_script_hash, **told))
        act(*given)

    monkeypatch.setattr(parts, name, crossed)
