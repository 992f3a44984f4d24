"""Run folders as versions of the past wrote them: read, verified, gone on with; and one from the future, refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import frozen_run
import msgspec
import pytest

from envsched_core.config import config_from
from envsched_core.errors import FormatVersionError
from envsched_core.live import LiveSession
from envsched_core.records import Decision
from envsched_core.replay import verify
from envsched_core.replay.verify import first_difference
from envsched_core.store import FORMAT, RunReader
from envsched_core.views import RunView

FORMATS = Path(__file__).parent / "formats"
FROZEN = sorted(path for path in FORMATS.glob("run_*") if (path / "next.json").is_file())


@pytest.fixture(params=FROZEN, ids=lambda path: path.name)
def frozen(request, tmp_path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


def test_the_current_format_is_frozen():
    assert FORMATS / f"run_{FORMAT}" in FROZEN


def test_every_decision_comes_out_again(frozen):
    report = verify(frozen)
    assert report.ok, report.problems
    assert report.decisions == frozen_run.STEPS


def test_its_state_goes_on_to_the_same_picks_and_terms(frozen):
    """The snapshot and the events after it were written elsewhere; what is decided here is the same to 1e-9."""
    with LiveSession.resume(frozen) as live:
        assert live.resumed is not None
        assert live.resumed.snapshot == 3
        found = msgspec.json.decode(frozen_run.next_decision(live))
    expected = json.loads((frozen / "next.json").read_bytes())
    assert [c["pick_id"] for c in found["candidates"]] == [c["pick_id"] for c in expected["candidates"]]
    assert first_difference(expected, found) is None


def test_a_run_made_today_is_the_frozen_one(tmp_path):
    """Under the knobs on its record: defaults may change, what they mean may not."""
    folder = tmp_path / f"run_{FORMAT}"
    frozen = FORMATS / folder.name
    frozen_run.make(folder, config_from(RunReader(frozen).manifest.config))
    for name in ("tasks.jsonl", "tools.jsonl"):
        assert (folder / name).read_bytes() == (frozen / name).read_bytes()
    pairs = [[msgspec.to_builtins(e.event.data) for e in RunReader(path).events()] for path in (frozen, folder)]
    assert first_difference(*pairs) is None


def test_the_pages_read_it(frozen):
    view = RunView(frozen)
    view.poll()
    assert view.steps() == list(range(frozen_run.STEPS))


def test_a_run_of_a_later_format_is_refused_with_the_version_to_install():
    with pytest.raises(FormatVersionError, match=r"format 99 was written by envsched 9\.9\.9; this version reads"):
        RunReader(FORMATS / "run_99")


def test_a_decision_of_another_version_decodes(frozen):
    """What stands in a later line of a known kind and is unknown here is passed over."""
    decision = json.loads((frozen / "next.json").read_bytes()) | {"a_later_field": 1}
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision).step == frozen_run.STEPS
