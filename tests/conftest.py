"""What several test files share: the public logs where they are at hand, and a small simulated run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from simulated_pool import record_pool, simulate

from envsched_core.cli import main

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("dev", max_examples=20, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


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
