"""Commands that open the dashboard: dashboard, demo. It runs as a child process, on this machine's own address only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from envsched_core.errors import EnvSchedError, StoreError
from envsched_core.store import unpack

from .closed_loop import loaded
from .output import say

__all__ = ["add_to", "recorded_archive"]

ADDRESS = "127.0.0.1"
PORTS = range(8501, 8521)
PATIENCE = 60.0
"""Seconds within which the dashboard must answer."""
STREAMLIT_OPTIONS = {
    "server.address": ADDRESS,
    "server.headless": "true",
    "server.showEmailPrompt": "false",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "logger.level": "warning",
}

Port = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help=f"{PORTS[0]}, or the next free one, when not given.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address.")]


class DashboardError(EnvSchedError):
    """The dashboard cannot be started."""


def dashboard(
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of run folders.")] = Path("runs"),
    port: Port = None,
    no_browser: NoBrowser = False,
) -> None:
    """Open the dashboard on a folder of runs; it only reads them."""
    if not runs.is_dir():
        raise StoreError(f"{runs} is no folder of runs; name one with --runs, or see `envsched demo`")
    _serve(runs, port, browser=not no_browser)


def demo(port: Port = None, no_browser: NoBrowser = False) -> None:
    """Open the dashboard on the recorded runs that come with EnvSched: a small policy that really learned."""
    archive = recorded_archive()
    with tempfile.TemporaryDirectory(prefix="envsched-demo-") as folder:
        if archive is None:
            say("the recorded runs are not here; training them once more")
            loaded("envsched_core.bench.record").record(Path(folder))
        else:
            unpack(archive, Path(folder))
        _serve(Path(folder), port, browser=not no_browser)


def recorded_archive() -> Path | None:
    """The recorded runs, installed or in a checkout; None where there are none."""
    folder = _folder_of("envsched_data", "data")
    found = sorted(folder.glob("*.tar.xz")) if folder is not None else []
    return found[0] if found else None


def _folder_of(package: str, name: str) -> Path | None:
    """Where an installed package lies, else the folder `name` of the checkout."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    beside = Path(__file__).resolve().parents[2] / name
    return Path(places[0]) if places else beside if beside.is_dir() else None


def _serve(runs: Path, port: int | None, *, browser: bool) -> None:
    """Run the dashboard until it is stopped."""
    entry = _entry()
    chosen = _free_port(port)
    options = [part for key, value in STREAMLIT_OPTIONS.items() for part in (f"--{key}", value)]
    command = [sys.executable, "-m", "streamlit", "run", str(entry), "--server.port", str(chosen), *options]
    environment = {**os.environ, "ENVSCHED_RUNS": str(runs.resolve())}
    signal.signal(signal.SIGTERM, _stop)
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        address = f"http://{ADDRESS}:{chosen}"
        _wait_until_healthy(child, f"{address}/_stcore/health")
        say(f"dashboard on {runs}: {address} (Ctrl-C stops it)")
        sys.stdout.flush()
        if browser:
            webbrowser.open(address)
        child.wait()
    except KeyboardInterrupt:
        say()
    finally:
        _end(child)


def _entry() -> Path:
    """The file that Streamlit gets, once all it needs is installed."""
    missing = [
        name for name in ("streamlit", "plotly", "pyvis", "networkx", "envsched_dashboard") if not find_spec(name)
    ]
    folder = _folder_of("envsched_dashboard", "dashboard")
    if missing or folder is None:
        raise DashboardError(
            f"the dashboard needs {', '.join(missing)}: python -m pip install 'envsched[dashboard]' "
            "(in a checkout: python -m pip install '.[dashboard]')"
        )
    return folder / "entry.py"


def _free_port(wanted: int | None) -> int:
    for port in (wanted,) if wanted is not None else PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ADDRESS, port))
            except OSError:
                continue
        return port
    where = f"port {wanted}" if wanted is not None else f"every port from {PORTS[0]} to {PORTS[-1]}"
    raise DashboardError(f"{where} is in use; choose another with --port")


def _wait_until_healthy(child: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise DashboardError(f"the dashboard ended at once (status {child.returncode}); its words are above")
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise DashboardError(f"the dashboard did not answer within {PATIENCE:.0f} s")


def _stop(number: int, frame: FrameType | None) -> None:
    """A polite end is an interrupt, so that the child is ended too."""
    raise KeyboardInterrupt


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child, by force if it must be."""
    child.terminate()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("dashboard")(dashboard)
    app.command("demo")(demo)
