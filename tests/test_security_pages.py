"""Hostile runs and links on every page, without a browser: no payload is rendered, and nothing is written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hostile import FOLDER, PAYLOADS, hostile_tasks, write_hostile_import, write_hostile_run
from page_runs import PAGES, app, shown_page
from small_run import write_log, write_run

pytest.importorskip("streamlit")
pytest.importorskip("envsched_dashboard")

from google.protobuf.message import Message

pytestmark = [pytest.mark.security, pytest.mark.filterwarnings("ignore::ResourceWarning")]

PLAIN = {
    ("text", "body"),
    ("code", "code_text"),
    ("selectbox", "options"),
    ("selectbox", "raw_value"),
    ("multiselect", "options"),
    ("plotly_chart", "spec"),  # escaped: see the browser's test
    ("iframe", "srcdoc"),  # the report: see test_views_report_page.py
    ("bidi_component", "json"),  # the map, drawn on a canvas
    ("arrow_data_frame", "data"),
}
"""Fields of Streamlit's elements that never become Markdown or HTML."""
MARKS = [mark for text in PAYLOADS for mark in text.split() if ("pwn" in mark or "ran=" in mark) and not mark.isalnum()]
MARKUP = re.compile(r"pwn\w*[*_~`$:\]]|[*_~`$\[]pwn|:\w+[\[:/]|//|www\\.|[<>]")
"""What would become Markdown, in cells of `st.table`, which render it."""
LINKED = ("run", "step", "task", "env", "outcome", "state", "with", "compare", "set", "scope", "view", "color", "find")
LINKED += ("edge", "node", "span", "window", "kinds", "weight", "live", "draws_only", "together", "errors_by")


def strings(message: Message, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text in an element as Streamlit sends it, and where it is."""
    for field, found in message.ListFields():
        for value in found if field.is_repeated else [found]:
            if isinstance(value, Message):
                yield from strings(value, (*way, field.name))
            elif isinstance(value, str):
                yield (*way, field.name), value


def rendered(test) -> list[tuple[str, ...]]:
    """Where a payload stands in what may be rendered."""
    return [
        (node.type, *way)
        for node in test._tree
        if isinstance(getattr(node, "proto", None), Message)
        for way, text in strings(node.proto)
        if (node.type, way[-1]) not in PLAIN and any(mark in text for mark in MARKS)
    ] + [
        ("table", str(cell))
        for table in test.table
        for cell in table.value.to_numpy().ravel()
        if MARKUP.search(str(cell))
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "runs"
    folder.mkdir()
    write_hostile_run(folder)
    write_hostile_import(folder)
    write_run(folder / "demo")
    write_log(folder.parent / "outside")
    return folder


@pytest.mark.parametrize("run", [FOLDER, "imported"])
def test_no_text_of_a_log_is_where_it_could_be_rendered(runs, monkeypatch, tally, run):
    task = hostile_tasks()[0].key if run == FOLDER else None
    test = app(runs, monkeypatch, run=run).run()
    for page in PAGES:
        shown_page(test, page, step=1, task=task, **{"with": "demo"})
        assert test.title[0].value.startswith(PAGES[page])
        assert rendered(test) == []
    tally("payloads in every field, on every page", len(PAYLOADS) * len(PAGES))


_written: list[tuple[str, tuple[object, ...]]] = []
_watching = False
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
EVENTS += ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: what is written, started or asked of another host while pages are drawn."""
    if not _watching:
        return
    opens = event == "open" and arguments[0] != os.devnull
    if event in EVENTS or (opens and isinstance(arguments[2], int) and arguments[2] & WRITING):
        _written.append((event, arguments))
    elif event == "open" and "outside" in str(arguments[0]):
        _written.append(("read outside", arguments))


@contextmanager
def watched() -> Iterator[list[tuple[str, tuple[object, ...]]]]:
    """What was done that a page must not do."""
    global _watching
    if _hear not in _hooked:
        sys.addaudithook(_hear)  # it cannot be taken away again
        _hooked.append(_hear)
    _written.clear()
    _watching = True
    try:
        yield _written
    finally:
        _watching = False


_hooked: list[object] = []


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def test_no_page_writes_starts_or_asks_anything(runs, monkeypatch, tmp_path, tally):
    for run in (FOLDER, "demo", "imported"):  # what is loaded once, is loaded; what is opened once, is open
        test = app(runs, monkeypatch, run=run).run()
        for page in PAGES:
            shown_page(test, page)
    monkeypatch.chdir(tmp_path)
    before = state_of(runs)
    for path in [*runs.rglob("*"), runs]:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        with watched() as done:
            for run in (FOLDER, "demo", "imported"):
                test = app(runs, monkeypatch, run=run).run()
                for page in PAGES:
                    shown_page(test, page)
    finally:
        for path in [runs, *runs.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
    assert done == []
    assert list(tmp_path.iterdir()) == []
    assert state_of(runs) == before
    tally("pages over a folder that is read only", 3 * len(PAGES))


LINKS = (
    "../outside",
    "/etc/passwd",
    "demo/../../outside",
    "\x00",
    PAYLOADS[0],
    PAYLOADS[8],
    PAYLOADS[10],
    PAYLOADS[11],
)
LINKS += ("9" * 400, "-1", "[" * 3000, '{"a": 1e999}', "true", "\ud7ff\u202e")


@pytest.mark.parametrize("page", ["overview", "graph", "compare"])
def test_a_hostile_link_shows_a_page_and_opens_nothing_else(runs, monkeypatch, tally, page):
    with watched() as done:
        for value in (*LINKS, str(runs.parent / "outside")):
            link = dict.fromkeys(LINKED, value)
            if page != "overview":
                link |= {"run": "demo", "scope": "All tasks", "compare": "What if"}
            assert rendered(shown_page(app(runs, monkeypatch, **link).run(), page)) == []
    assert done == []
    tally("hostile links", (len(LINKS) + 1) * len(LINKED))
