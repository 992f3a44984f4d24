"""Every importer and the reader of run folders on damaged bytes and values: nothing but an EnvSchedError comes out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz_importers import read_log, read_run, samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_run import write_run

pytestmark = pytest.mark.security

SEEDS = st.integers(0, 2**40)


@pytest.fixture(scope="module")
def sound_run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("sound") / "run", steps=3)


@pytest.mark.parametrize("sample", samples(), ids=lambda path: path.name)
def test_a_damaged_log_is_read_or_refused(tmp_path_factory, tally, sample):
    tried = []

    @settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
    @given(seed=SEEDS)
    def check(seed: int) -> None:
        tried.append(seed)
        read_log(sample, tmp_path_factory.mktemp("log"), random.Random(seed))

    check()
    tally("damaged logs", len(tried))


def test_a_damaged_run_folder_is_read_or_refused(tmp_path_factory, tally, sound_run):
    tried = []

    @settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
    @given(seed=SEEDS)
    def check(seed: int) -> None:
        tried.append(seed)
        read_run(sound_run, tmp_path_factory.mktemp("run"), random.Random(seed))

    check()
    tally("damaged run folders", len(tried))
