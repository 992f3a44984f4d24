"""What several test files share: the public logs where they are at hand, and a small simulated run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
