"""What the code itself must not do: run what a log says, load pickles, write where it only reads, leave loopback."""

from __future__ import annotations

import ast
import csv
import io
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
from hostile import FOLDER, FORMULAS, PAYLOADS, write_hostile_import, write_hostile_run
from page_runs import PAGES, app, shown_page

from envsched_core import views
from envsched_core.bench.rows import write_csv
from envsched_core.cli import show
from envsched_core.outgoing import harmless_cell, printable_lines
from envsched_core.views import RunView, csv_bytes

pytestmark = [pytest.mark.security, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROOT = Path(__file__).resolve().parent.parent
CODE = sorted([*(ROOT / "envsched_core").rglob("*.py"), *(ROOT / "dashboard").rglob("*.py")])
RUNNING = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "pty.spawn"}
LOADING = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "torch", "xml"}
STARTING = {
    "dashboard/launch.py",
    "envsched_core/cli/show.py",
    "envsched_core/views/report_print.py",
}
"""Files that start a process, each with a list of arguments: the dashboard, a run, a browser that prints."""


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    return [
        (ast.unparse(node.func), node)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def keyword(call: ast.Call, name: str) -> object:
    found = next((one.value for one in call.keywords if one.arg == name), None)
    return found.value if isinstance(found, ast.Constant) else found


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_of_a_log_is_ever_run(path, tally):
    place = path.relative_to(ROOT).as_posix()
    for name, call in calls(path):
        assert name not in RUNNING, f"{place}:{call.lineno}"
        if name.endswith((".load", "memmap")) and name.split(".")[0] in ("np", "numpy"):
            assert keyword(call, "allow_pickle") is False, f"{place}:{call.lineno}"
        if name.split(".")[-1] in ("Popen", "run", "call", "check_output") and name.split(".")[0] == "subprocess":
            assert place in STARTING, f"{place}:{call.lineno} starts a process"
            assert keyword(call, "shell") in (None, False)
        if (
            name.split(".")[-1] in ("read_pickle", "to_pickle", "read_html", "extractall")
            and name != "packed.extractall"
        ):
            raise AssertionError(f"{place}:{call.lineno}: {name}")
        if name == "jinja2.Environment":
            assert keyword(call, "autoescape") is True
        assert keyword(call, "unsafe_allow_html") in (None, False), f"{place}:{call.lineno}"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    assert not {name.split(".")[0] for name in names} & LOADING, place
    tally("files of code", 1)


def test_html_of_the_pages_is_their_own():
    """st.html and scripts take constants, or the legend that graph_looks escapes."""
    for path in sorted((ROOT / "dashboard").rglob("*.py")):
        for name, call in calls(path):
            if name in ("st.html", "st.components.v1.html"):
                assert ast.unparse(call.args[0]).split("(")[0] in ("STYLE", "HISTORY", "legend"), (
                    f"{path}:{call.lineno}"
                )


def test_every_table_leaves_through_the_one_writer():
    allowed = {"envsched_core/views/csv_table.py", "envsched_core/bench/rows.py"}
    for path in CODE:
        if path.relative_to(ROOT).as_posix() not in allowed:
            found = [name for name, _ in calls(path) if name.endswith(".to_csv") or name.startswith("csv.writer")]
            assert not found, path


# ---------------------------------------------------------------------- tables for a spreadsheet


def starts_a_formula(cell: str) -> bool:
    return re.match(r"[\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]", cell) is not None or cell[:1] in ("\t", "\r")


def checked(data: bytes, table: pd.DataFrame) -> int:
    """The cells of a CSV, none of which begins a formula unless it is a number."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert len(rows) == len(table) + 1
    for row in rows[1:]:
        for cell, (_, column) in zip(row, table.items(), strict=True):
            if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
                assert cell == "" or float(cell) is not None
            else:
                assert not starts_a_formula(cell), cell
    return sum(len(row) for row in rows)


def test_formulas_are_text_in_every_writer(tmp_path, tally):
    texts = [*FORMULAS, *PAYLOADS, *(f"{text}{more}" for text in FORMULAS for more in (" ", "\n=1", ";=1"))]
    table = pd.DataFrame({text: texts for text in texts} | {"number": range(-3, len(texts) - 3)})
    checked(csv_bytes(table), table)
    head = next(csv.reader(io.StringIO(csv_bytes(table).decode(), newline="")))
    assert not any(starts_a_formula(cell) for cell in head)
    write_csv(tmp_path / "rows.csv", [["name", "value"], *([text, "-0.5"] for text in texts)])
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert all(not starts_a_formula(name) and value == "-0.5" for name, value in rows[1:])
    assert all(harmless_cell(text).replace("'", "") == text.replace("'", "") for text in FORMULAS)
    tally("formulas in tables", 3 * len(texts))


def test_every_download_of_every_page_is_free_of_formulas(tmp_path, monkeypatch, tally):
    """Each table that a page offers, of runs whose every text is a payload."""
    parts = pytest.importorskip("envsched_dashboard.parts")
    offered: list[pd.DataFrame] = []
    monkeypatch.setattr(parts, "partial", lambda write, data: offered.append(data) or (lambda: b""))
    (tmp_path / "runs").mkdir()
    write_hostile_run(tmp_path / "runs")
    write_hostile_import(tmp_path / "runs")
    for run in (FOLDER, "imported"):
        test = app(tmp_path / "runs", monkeypatch, run=run).run()
        for page in PAGES:
            shown_page(test, page, step=1)
        view = RunView(tmp_path / "runs" / run)
        view.poll()
        offered += views.report(view).tables.values()
    cells = sum(checked(csv_bytes(table), table) for table in offered)
    assert len(offered) > 40
    tally("cells of downloads", cells)


# ---------------------------------------------------------------------- terminal, launcher, container


@pytest.mark.parametrize("text", PAYLOADS)
def test_a_terminal_gets_no_escape(text, tally):
    shown = printable_lines(text)
    assert len(shown) == len(text)
    assert all(c == "\n" or c.isprintable() for c in shown)
    tally("texts on a terminal", 1)


class Child:
    """What the launcher would have started."""

    started: ClassVar[list[tuple[list[str], dict[str, str]]]] = []
    returncode = 0

    def __init__(self, command: list[str], env: dict[str, str], **more: object) -> None:
        self.started.append((command, env))

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        return None


def test_the_launcher_binds_to_loopback_whatever_the_environment_says(tmp_path, monkeypatch, envsched, tally):
    pytest.importorskip("envsched_dashboard")
    monkeypatch.setattr(show.subprocess, "Popen", Child)
    monkeypatch.setattr(show, "_wait_until_healthy", lambda child, address: None)
    monkeypatch.setattr(show.signal, "signal", lambda *given: None)
    monkeypatch.setenv("STREAMLIT_SERVER_ADDRESS", "0.0.0.0")
    status, out, _ = envsched("dashboard", "--runs", tmp_path, "--no-browser")
    command, env = Child.started[-1]
    options = dict(zip(command[command.index("run") + 2 :: 2], command[command.index("run") + 3 :: 2], strict=True))
    assert (status, options["--server.address"], options["--browser.gatherUsageStats"]) == (0, "127.0.0.1", "false")
    assert "http://127.0.0.1:" in out
    assert env["ENVSCHED_RUNS"] == str(tmp_path.resolve())
    tally("ways to start the dashboard", 1)


def test_the_settings_beside_the_entry_bind_to_loopback_and_say_nothing():
    found = tomllib.loads((ROOT / "dashboard" / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert found["server"]["address"] == "127.0.0.1"
    assert (found["server"]["enableCORS"], found["server"]["enableXsrfProtection"]) == (True, True)
    assert (found["server"]["enableStaticServing"], found["browser"]["gatherUsageStats"]) == (False, False)


def test_no_secret_is_part_of_the_project():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert not [name for name in listed.splitlines() if name.endswith(("secrets.toml", ".pem", ".key", ".env"))]
    assert os.environ.get("STREAMLIT_AUTH_COOKIE_SECRET") is None


@pytest.mark.parametrize(
    ("asked", "ours"),
    [
        *((host, True) for host in ("127.0.0.1:8501", "localhost", "LOCALHOST:1", "[::1]:8501", "proxy.invalid")),
        *(
            (host, False)
            for host in ("elsewhere.invalid", "127.0.0.1.elsewhere.invalid:80", "[::1", "127.0.0.1@x", "a b")
        ),
    ],
)
def test_only_names_of_this_machine_or_its_proxy_are_answered(monkeypatch, tally, asked, ours):
    gate = pytest.importorskip("envsched_dashboard.gate")
    monkeypatch.setattr(gate.st, "get_option", {"browser.serverAddress": "proxy.invalid"}.get)
    assert gate._is_ours(asked) is ours
    tally("names that the dashboard is asked for under", 1)


def test_where_a_login_is_set_up_no_page_is_drawn_before_it(tmp_path, monkeypatch, tally):
    gate = pytest.importorskip("envsched_dashboard.gate")
    monkeypatch.setattr(gate.st, "user", {"is_logged_in": False})  # as Streamlit has it where secrets.toml has [auth]
    write_hostile_run(tmp_path)
    for path in PAGES:
        test = app(tmp_path, monkeypatch, run=FOLDER)
        test.session_state["go_to"] = (path, {})
        test.run()
        assert [button.label for button in test.button] == ["Log in"]
        assert (len(test.sidebar), [title.value for title in test.title]) == (0, ["EnvSched"])
    tally("pages asked for without a login", len(PAGES))
