"""The archive: packed and unpacked runs are the same runs; nothing is written outside the folder."""

from __future__ import annotations

import io
import tarfile

import pytest
from store_runs import write_run

from envsched_core.errors import StoreError
from envsched_core.store import RunReader, pack, unpack


def test_a_packed_run_reads_as_before(tmp_path):
    run = tmp_path / "run"
    write_run(run)
    pack([run], tmp_path / "a.tar.xz")
    pack([run], tmp_path / "b.tar.xz")
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()
    unpack(tmp_path / "a.tar.xz", tmp_path / "out")
    before, after = RunReader(run), RunReader(tmp_path / "out" / "run")
    assert list(before.events()) == list(after.events())
    assert before.tasks() == after.tasks()
    assert not (tmp_path / "out" / "run" / "writer.lock").exists()


def test_an_archive_cannot_write_outside(tmp_path):
    with tarfile.open(tmp_path / "evil.tar.xz", "w:xz") as out:
        member = tarfile.TarInfo("../escaped")
        member.size = 1
        out.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(StoreError):
        unpack(tmp_path / "evil.tar.xz", tmp_path / "in")
    assert not (tmp_path / "escaped").exists()


def test_no_archive_and_a_bomb_are_told(tmp_path, monkeypatch):
    (tmp_path / "no.tar.xz").write_bytes(b"nothing")
    with pytest.raises(StoreError, match="cannot be unpacked"):
        unpack(tmp_path / "no.tar.xz", tmp_path / "out")
    write_run(tmp_path / "run")
    pack([tmp_path / "run"], tmp_path / "a.tar.xz")
    monkeypatch.setenv("ENVSCHED_MAX_RUN_BYTES", "10")
    with pytest.raises(StoreError, match="more than 10 bytes"):
        unpack(tmp_path / "a.tar.xz", tmp_path / "out")
