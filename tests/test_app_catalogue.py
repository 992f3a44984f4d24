"""A catalogue without rollouts on every page: its graph is shown, and nothing else breaks."""

from __future__ import annotations

import json
from pathlib import Path

import page_runs
import pytest
from page_runs import PAGES, shown_page

from envsched_core.importers import import_run

pytest.importorskip("streamlit")
pytest.importorskip("envsched_dashboard.parts")

# A thread that Streamlit leaves to the garbage collector at exit.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("catalogue")
    tasks = [
        {"env": f"kitchen{k % 2}", "task_id": k, "question": f"Cook soup {k % 3}", "tools": ["stir", "taste"]}
        for k in range(8)
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    import_run([folder / "tasks.jsonl"], folder / "runs" / "tasks")
    return folder / "runs"


@pytest.mark.parametrize("page", ["overview", "decision", "coverage"])
def test_every_page_opens(runs, monkeypatch, page):
    test = shown_page(page_runs.app(runs, monkeypatch, run="tasks").run(), page)
    assert test.title[0].value.startswith(PAGES[page])


def test_the_graph_page_shows_its_graph(runs, monkeypatch):
    test = shown_page(page_runs.app(runs, monkeypatch, run="tasks").run(), "graph")
    assert not [info for info in test.info if "no graph here" in info.value]
    assert len(test.dataframe[0].value) > 0
