"""Run folders that lead elsewhere, resumed and verified: nothing outside is written, and nothing hangs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_run import write_run

from envsched_core.errors import StoreError
from envsched_core.store import RunWriter, check_chain, list_runs, new_manifest

pytestmark = pytest.mark.security
Tally = Callable[..., None]

FILES = ("writer.lock", "run.json", "tasks.jsonl", "tools.jsonl", "rollouts/rollouts.jsonl", "counters.json")
FOLDERS = ("events", "graph", "scores", "state", "rollouts")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("sound") / "run")


def contents(place: Path) -> dict[str, bytes]:
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_resuming_writes_cuts_and_deletes_nothing_outside(tmp_path: Path, sound: Path, tally: Tally, name: str) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(sound, run)
    if name in FOLDERS:
        (run / name).rename(outside) if (run / name).exists() else outside.mkdir()
        for other in ("77/kept", "5.npz", ".5.npz.1.tmp"):
            (outside / other).parent.mkdir(exist_ok=True)
            (outside / other).write_text("of another")
    else:
        outside.write_bytes(((run / name).read_bytes() if (run / name).exists() else b"") + b"of\nanother")
        (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    before = contents(outside)
    with pytest.raises(StoreError, match="leads nowhere or out of its run folder"):
        RunWriter.resume(run)
    assert contents(outside) == before
    tally("links out of a run folder that is resumed", 1)


def test_a_lock_that_is_a_link_is_not_taken_by_a_new_run(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("of another")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "writer.lock").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="is a link"):
        RunWriter.create(tmp_path / "run", new_manifest("run", "live"))
    assert (tmp_path / "outside").read_text() == "of another"


@pytest.mark.parametrize("name", ["tasks.jsonl", "tools.jsonl", "graph/1/pattern.npy", "events/seg-000000.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_named_and_not_read(tmp_path: Path, sound: Path, tally: Tally, name: str, kind: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(sound, run)
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    else:
        (run / name).symlink_to("/dev/zero")
    with pytest.raises(StoreError, match=Path(name).name):
        check_chain(run)
    tally("pipes, folders and devices in place of a file", 1)


def test_numbers_that_no_writer_wrote_are_no_graphs(tmp_path: Path, sound: Path, tally: Tally) -> None:
    run = tmp_path / "run"
    shutil.copytree(sound, run)
    names = ("007", "\u0667", "9" * 200)
    for name in names:
        (run / "graph" / name).mkdir()
    RunWriter.resume(run).close()
    assert {path.name for path in (run / "graph").iterdir()} >= set(names)
    assert len(list_runs(run)) == 1
    tally("numbers that are spelled otherwise", len(names))
