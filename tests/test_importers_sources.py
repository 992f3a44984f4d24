"""Which files of what the user named are read, and what is said of the others; nothing is lost unsaid."""

import os
import shutil
import sys

import pytest
from typer.testing import CliRunner

from envsched_core.cli import app
from envsched_core.errors import ConfigError, LogFormatError
from envsched_core.importers import ImportOptions, import_log, import_run
from envsched_core.importers.sources import Left, files_below
from envsched_core.store import RunReader

ROWS = "".join(f'{{"env": "a", "task_id": {k}, "reward": {r}}}\n' for k in (1, 2) for r in (0, 1))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "log"
    made.mkdir()
    (made / "a.jsonl").write_text(ROWS)
    return made


def notes(folder, **options):
    report = import_log([folder], ImportOptions(**options)).report
    return report, "\n".join(report.notes)


def test_a_damaged_file_of_a_folder_is_passed_over_with_its_reason(folder):
    (folder / "torn.parquet").write_bytes(b"PAR1" * 20)
    (folder / "wide.jsonl").write_bytes(ROWS.encode("utf-16"))
    (folder / "none.jsonl").touch()
    report, said = notes(folder)
    assert report.kept == 4
    assert "(torn.parquet): not a readable Parquet file" in said
    assert "(wide.jsonl): text in UTF-16" in said
    assert "(none.jsonl): empty" in said


def test_a_file_counts_once_however_many_links_and_paths_lead_to_it(folder):
    (folder / "0-latest.jsonl").symlink_to(folder / "a.jsonl")
    (folder / "loop").symlink_to(folder)
    report = import_log([folder, folder / "a.jsonl"]).report
    assert (report.rows, report.files) == (4, ("log/a.jsonl",))
    assert any("2 files (a.jsonl, log/0-latest.jsonl)" in note for note in report.notes)
    assert any("1 link (loop)" in note for note in report.notes)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_file_whose_name_is_no_text_is_read_under_a_name_that_is(folder, tmp_path):
    for name in (b"b\xff.jsonl", b"b\xfe.jsonl", b"c\nd.jsonl", b"e\xff.txt"):
        with open(os.path.join(os.fsencode(folder), name), "w") as file:
            file.write("none" if name.endswith(b"txt") else ROWS)
    report = import_run([folder], tmp_path / "run")
    assert report.kept == 16
    assert {"log/b\\xff.jsonl", "log/b\\xfe.jsonl", "log/c\nd.jsonl"} <= set(report.files)
    assert len(list(RunReader(tmp_path / "run").manifest.notes)) == len(report.warnings())


def test_a_folder_that_may_not_be_read_is_told(folder, monkeypatch):
    (folder / "shut").mkdir()
    walk = os.walk

    def guarded(top, onerror):
        for place, folders, names in walk(top):
            if "shut" in folders:
                folders.remove("shut")
                onerror(PermissionError(13, "Permission denied", str(folder / "shut")))
            yield place, folders, names

    monkeypatch.setattr(os, "walk", guarded)
    left = Left([], [], [])
    assert [path.name for path in files_below(folder, left)] == ["a.jsonl"]
    assert left.closed == [folder / "shut"]
    assert "passed over 1 folder (shut): it may not be read" in notes(folder)[1]


def test_a_format_that_was_named_is_compared_with_what_the_files_are(folder):
    shutil.copy(folder / "a.jsonl", folder / "b.jsonl")
    with pytest.raises(LogFormatError, match=r"not tau2 \(--format\), it looks like table"):
        import_log([folder], ImportOptions(format="tau2"))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogFormatError, match="neither a file nor a folder"):
        import_log([tmp_path / "pipe"])


def test_what_of_a_join_file_or_task_list_is_not_used_is_counted(folder, tmp_path):
    side = tmp_path / "side.jsonl"
    side.write_text('{"task_id": 1, "env": "b"}\n{"task_id": 1, "env": "c"}\nnone\n{"env": "d"}\n')
    _, said = notes(folder, join=("task_id", side))
    assert "2 rows are not in the join file" in said
    assert "1 records of the --join file were not used: says otherwise" in said
    assert "1 records of the --join file were not used: not JSON" in said
    assert "1 records of the --join file were not used: no task_id" in said
    side.write_text(
        '{"task_id": 1, "env": "a", "text": "x"}\n{"task_id": 1, "env": "a", "text": "y"}\n{"task_id": 1, "env": "z"}\n'
    )
    _, said = notes(folder, tasks=side)
    assert "1 records of the --tasks file were not used: says otherwise" in said
    assert "1 listed tasks are of environments without any rollout" in said
    side.write_text('{"other": 1, "env": "b"}\n')
    _, said = notes(folder, join=("other", side))
    assert "4 rows have no column 'other' to join by" in said


def test_rows_that_no_rule_fits_are_counted(folder):
    assert "4 rows fit no --env-rule" in notes(folder, env_rules=(("x", "never"),))[1]
    assert "4 rows fit no --env-rule" in notes(folder, env_rules=(("x", "path:never"),))[1]


def test_one_field_is_read_from_one_column(folder, tmp_path):
    arguments = ["import", str(folder), "--out", str(tmp_path / "run"), "--map", "task=env", "--map", "task=task_id"]
    assert isinstance(CliRunner().invoke(app, arguments).exception, ConfigError)
    with pytest.raises(ConfigError, match="two columns for task: env and task_id"):
        import_log([folder], ImportOptions(mapping={"task": "env", "task_id": "task_id"}))


def test_what_stands_beside_the_objects_of_an_array_is_counted(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(f'["a, b", {ROWS.splitlines()[0]}, 1, null,{ROWS.splitlines()[1]}]\n[{{}}]')
    report = import_log([path]).report
    assert report.drop_reasons == {"not a JSON object": 3, "more behind the end of the array, which was not read": 1}
    assert report.kept == 2


def test_a_followed_log_tells_why_rows_are_dropped(folder, tmp_path):
    arguments = [folder / "a.jsonl", "--out", tmp_path / "run", "--format", "trl", "--at-end", "stop"]
    found = CliRunner().invoke(app, ["follow", *map(str, arguments)])
    assert "dropped rows: " in found.output
    assert "4 rows, 4 dropped" in found.output
