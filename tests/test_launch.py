"""Starting a run from the page: names are checked, the process is its own, it only writes its run."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

launch = pytest.importorskip("envsched_dashboard.launch")


@pytest.mark.parametrize("name", ["../up", "", ".hidden", "a/b", "a b", "-x", "x" * 65])
def test_unsafe_names_are_refused(tmp_path, name):
    assert launch.problem_of(tmp_path, name)


def test_names_in_use_are_refused_and_the_next_is_offered(tmp_path):
    assert launch.free_name(tmp_path, "train") == "train"
    (tmp_path / "train").mkdir()
    assert launch.problem_of(tmp_path, "train")
    assert launch.free_name(tmp_path, "train") == "train-2"
    assert launch.problem_of(tmp_path, "train-2") is None


@pytest.mark.skipif(find_spec("numba") is None, reason="the closed loop needs numba")
def test_a_started_run_writes_its_folder_in_a_session_of_its_own(tmp_path):
    started = launch.start(tmp_path, "run", world="small", scheduler="uniform", steps=1, seed=0)
    assert os.getsid(started.process.pid) != os.getsid(0)
    assert started.process.wait(timeout=120) == 0, started.said.read_text(errors="replace")
    assert (tmp_path / "run" / "run.json").is_file()
    started.said.unlink()


def test_a_process_that_fails_says_why(tmp_path):
    started = launch.start(tmp_path, "run", world="nowhere", scheduler="uniform", steps=1, seed=0)
    assert started.process.wait(timeout=120) == 2
    assert started.said.read_text(errors="replace").strip()
    started.said.unlink()
