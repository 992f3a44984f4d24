"""What claims too much is refused by a stated limit: with file, line and remedy, and never with a traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hostile import write_hostile_run
from small_run import write_run
from store_runs import write_run as write_small

from envsched_core.errors import ConfigError, DamagedError, EnvSchedError, LogFormatError, StoreError
from envsched_core.importers import ImportOptions, import_log, import_run
from envsched_core.limits import LIMITS, RECORD_BYTES
from envsched_core.store import RunReader, check_chain, list_runs, load_state, unpack
from envsched_core.views import RunView

pytestmark = pytest.mark.security

ROW = {"env": "e", "task": "t", "reward": 1.0, "step": 1}
LINE = json.dumps(ROW) + "\n"


def log(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


# ---------------------------------------------------------------------- the limits themselves


def test_every_limit_says_what_it_is_for_and_is_set_by_its_variable(monkeypatch):
    assert len({limit.variable for limit in LIMITS}) == len(LIMITS)
    for limit in LIMITS:
        assert limit.now() == limit.default
        monkeypatch.setenv(limit.variable, " 1_000 ")
        assert limit.now() == 1000
        assert limit.variable in limit.remedy()


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "1e3", "many", "\u0663", "9" * 30])
def test_a_limit_that_is_no_number_is_told(monkeypatch, tmp_path, envsched, given):
    monkeypatch.setenv(RECORD_BYTES.variable, given)
    with pytest.raises(ConfigError, match="no whole number from 1 on"):
        RECORD_BYTES.now()
    status, _, err = envsched("import", log(tmp_path / "a.jsonl", LINE), "--out", tmp_path / "run")
    assert (status, err.count("\n")) == (2, 1)


# ---------------------------------------------------------------------- large and deep records


def test_a_line_beyond_the_limit_costs_itself_and_alone_is_refused(tmp_path, tally):
    long = json.dumps(ROW)[:-1] + ', "text": "' + "x" * RECORD_BYTES.default + '"}\n'
    report = import_log([log(tmp_path / "a.jsonl", LINE, long, LINE.replace("1.0", "0.0"))]).report
    assert (report.kept, report.first_drops[0].line) == (2, 2)
    assert "ENVSCHED_MAX_RECORD_BYTES raises it" in report.first_drops[0].reason
    with pytest.raises(LogFormatError, match=r"b\.jsonl: line 1: longer than 67,108,864 bytes, the limit; ENVSCHED_"):
        import_log([log(tmp_path / "b.jsonl", long)])
    tally("lines beyond the limit", 2)


@pytest.mark.parametrize("start", ['{"a":', "[", '{"env":"e","task":"t","reward":1,"messages":['])
def test_deep_nesting_costs_a_row(tmp_path, tally, start):
    for depth in (500, 5_000, 200_000):
        path = log(tmp_path / f"{depth}.jsonl", LINE, start * depth + "\n", LINE.replace("1.0", "0.0"))
        assert import_log([path]).report.kept == 2
        whole = start * depth + "1" + ("}" if start[0] == "{" else "]") * depth
        with pytest.raises(EnvSchedError):
            import_log([log(tmp_path / f"{depth}.json", whole)])
    tally("deeply nested JSON", 6)


def test_a_text_that_breaks_off_takes_time_in_proportion(tmp_path, tally):
    """Each escaped quote was once looked at as the start of a string that goes to the end of the file."""
    torn = '[{"env":"e","task":"t","reward":1},{"env":"e","task":"' + '\\"a' * 400_000
    report = import_log([log(tmp_path / "a.json", torn)]).report
    assert (report.kept, report.drop_reasons) == (1, {"torn last item": 1})
    with pytest.raises(EnvSchedError):
        import_log([log(tmp_path / "b.json", '{\n"a": "' + '\\"a' * 400_000)])
    tally("texts that break off in a string", 2)


def test_many_keys_and_long_texts_are_taken_or_refused(tmp_path, tally):
    keys = json.dumps(ROW)[:-1] + "".join(f', "k{i}": {i}' for i in range(200_000)) + "}\n"
    long = [json.dumps({**ROW, field: "x" * 10**6}) + "\n" for field in ("env", "task", "group", "policy_version")]
    report = import_log([log(tmp_path / "a.jsonl", LINE, keys, *long)]).report
    assert report.kept + report.dropped == 6
    tally("records with 200,000 keys or a text of a million characters", 5)


@pytest.mark.parametrize("number", ["9" * 5_000, "-" + "9" * 400, "1e999", "NaN", "-Infinity", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["step", "reward", "tokens", "group"])
def test_absurd_numbers_cost_a_row_at_most(tmp_path, tally, field, number):
    other = {key: value for key, value in ROW.items() if key != field}
    line = json.dumps(other)[:-1] + f', "{field}": {number}}}\n'
    report = import_log([log(tmp_path / "a.jsonl", LINE, line)]).report
    assert report.kept + report.dropped == 2
    tally("absurd numbers", 1)


def test_more_rows_than_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSCHED_MAX_ROWS", "3")
    with pytest.raises(LogFormatError, match=r"a\.jsonl: more than 3 rows so far, the limit; ENVSCHED_MAX_ROWS"):
        import_run([log(tmp_path / "a.jsonl", *[LINE] * 4)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------- packed files and tables


def packed(path: Path, blocks: int) -> Path:
    with gzip.open(path, "wb") as out:
        out.write(LINE.encode())
        for _ in range(blocks):
            out.write(bytes(2**20))
    return path


def test_gzip_and_zstd_bombs_are_refused(tmp_path, monkeypatch, tally):
    with pytest.raises(LogFormatError, match=r"a\.gz: unpacks to more than 1,000 times its size, the limit"):
        import_log([packed(tmp_path / "a.gz", 96)])
    monkeypatch.setenv("ENVSCHED_MAX_UNPACKED_BYTES", str(2**20))
    with pytest.raises(LogFormatError, match="unpacks to more than 1,048,576 bytes, the limit"):
        import_log([packed(tmp_path / "b.gz", 2)])
    pyarrow = pytest.importorskip("pyarrow")
    with pyarrow.CompressedOutputStream(str(tmp_path / "c.zst"), "zstd") as out:
        out.write(LINE.encode() + bytes(2**22))
    with pytest.raises(LogFormatError, match="unpacks to more than 1,048,576 bytes, the limit"):
        import_log([tmp_path / "c.zst"])
    tally("gzip and zstd bombs", 3)


def test_a_small_packed_log_may_unpack_far(tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as out:
        out.write(LINE.encode() + b"\n" * 2**20)
    assert (tmp_path / "a.gz").stat().st_size * 600 < 2**20
    assert import_log([tmp_path / "a.gz"]).report.kept == 1


def test_a_parquet_footer_that_claims_too_much_is_refused(tmp_path, monkeypatch, tally):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"env": ["e"] * 1000, "task": ["t"] * 1000, "reward": [0.5] * 1000}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    monkeypatch.setenv("ENVSCHED_MAX_ROWS", "999")
    with pytest.raises(LogFormatError, match=r"a\.parquet: claims 1,000 rows, more than 999, the limit"):
        import_log([tmp_path / "a.parquet"])
    monkeypatch.delenv("ENVSCHED_MAX_ROWS")
    whole = (tmp_path / "a.parquet").read_bytes()
    rows = whole.rindex(b"\x16\xd0\x0f")  # the varint of 1,000, zigzag, in the footer
    for claim in (b"\x16\xff\xff\xff\xff\x0f", b"\x16\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x16\x01"):
        footer = int.from_bytes(whole[-8:-4], "little") + len(claim) - 3
        made = whole[:rows] + claim + whole[rows + 3 : -8] + struct.pack("<I", footer) + b"PAR1"
        (tmp_path / "b.parquet").write_bytes(made)
        with pytest.raises(EnvSchedError):
            import_log([tmp_path / "b.parquet"])
    tally("rows that a Parquet footer claims", 4)


def test_rows_of_a_parquet_file_that_share_one_large_text_cost_one_at_a_time(tmp_path, monkeypatch, tally):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"env": ["e"] * 100, "task": ["t"] * 100, "reward": [0.5] * 100, "prompt": ["x" * 2**18] * 100}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 2**16
    monkeypatch.setenv("ENVSCHED_MAX_RECORD_BYTES", str(2**18))
    with pytest.raises(LogFormatError, match="100 x longer than 262,144 bytes, the limit"):
        import_log([tmp_path / "a.parquet"])
    tally("Parquet rows beyond the limit", 100)


# ---------------------------------------------------------------------- run folders


def npy(shape: str, dtype: str = "<f8", data: bytes = b"") -> bytes:
    """An array whose head claims what it likes."""
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


CLAIMS = ("(1000000000000,)", "(4000000000, 4000000000)", "(-1,)", "(0, -5)", "(99999999999999999999999,)", "(1.5,)")
CLAIMS += ("('a',)", "()", "(True,)", "x", "(((", "'''x", "(" * 300 + ")" * 300)


@pytest.mark.parametrize(
    "claim", [*((c, "<f8") for c in CLAIMS), ("(1,)", "|O"), ("(1,)", "<V99999999999"), ("(1,)", "|S0")]
)
def test_an_array_head_that_claims_too_much_is_damage(tmp_path, tally, claim):
    run = write_run(tmp_path / "run")
    for name in ("scores/1.npz", "state/1.npz"):
        (run / name).parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(run / name, "w") as archive:
            for member in ("score", "mean", "tree"):
                archive.writestr(f"{member}.npy", npy(*claim))
    with pytest.raises(DamagedError):
        RunReader(run).scores(1)
    with pytest.raises(DamagedError):
        load_state(run, 1)
    graph = next((run / "graph").glob("*/within_weights.npy"))
    graph.write_bytes(npy(*claim))
    with pytest.raises(DamagedError):
        RunReader(run).graph()
    tally("array heads that lie", 3)


def test_an_npz_bomb_is_refused(tmp_path, monkeypatch, tally):
    run = write_run(tmp_path / "run")
    np.savez_compressed(run / "scores" / "1.npz", score=np.zeros(2**20))
    monkeypatch.setenv("ENVSCHED_MAX_ARRAY_BYTES", str(2**20))
    with pytest.raises(DamagedError, match="unpacks to more than 1,048,576 bytes, the limit"):
        RunReader(run).scores(1)
    tally("bombs in a run folder", 1)


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [("indices", 0, 10**6), ("indices", 0, -1), ("indptr", 1, 10**6), ("indptr", -1, 3), ("part_text", None, 1)],
)
def test_edges_that_lead_nowhere_are_damage(tmp_path, tally, name, index, value):
    """SciPy would follow them into memory that is not the matrix's."""
    run = write_run(tmp_path / "run")
    file = next((run / "graph").glob(f"*/within_{name}.npy"))
    array = np.load(file, allow_pickle=False)
    if index is None:
        array = array[:-value]
    else:
        array[index] = value
    np.save(file, array, allow_pickle=False)
    with pytest.raises(DamagedError):
        RunReader(run).graph()
    tally("graphs whose arrays do not fit", 1)


def test_lines_and_manifests_beyond_the_limit_are_damage(tmp_path, monkeypatch, tally):
    write_small(tmp_path / "run")
    monkeypatch.setenv("ENVSCHED_MAX_RUN_LINE_BYTES", "20")
    with pytest.raises(DamagedError, match=r"t\w+\.jsonl:1: longer than 20 bytes, the limit; ENVSCHED_MAX_RUN_LINE"):
        RunReader(tmp_path / "run").tasks()
    monkeypatch.setenv("ENVSCHED_MAX_MANIFEST_BYTES", "100")
    with pytest.raises(DamagedError, match=r"run\.json is longer than 100 bytes, the limit"):
        RunReader(tmp_path / "run")
    tally("run folders beyond a limit", 2)


def test_archives_of_runs_are_held_to_limits_and_to_their_folder(tmp_path, monkeypatch, tally):
    def archive(*members: tuple[str, int, bytes]) -> Path:
        with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as out:
            for name, size, kind in members:
                member = tarfile.TarInfo(name)
                member.size, member.type, member.linkname = size, kind, "../../outside"
                out.addfile(member, io.BytesIO(bytes(size)))
        return tmp_path / "a.tar.xz"

    names = ("../up", "a/../../up", "a/./../../up")
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    tried = [(name, 1, tarfile.REGTYPE) for name in names] + [("a", 0, kind) for kind in kinds]
    for member in tried:
        with pytest.raises(StoreError):
            unpack(archive(member), tmp_path / "in")
    unpack(archive((str(tmp_path / "absolute"), 1, tarfile.REGTYPE)), tmp_path / "in")  # taken as below the folder
    assert not {"up", "absolute"} & {path.name for path in tmp_path.iterdir()}
    monkeypatch.setenv("ENVSCHED_MAX_RUN_BYTES", "1000")
    with pytest.raises(StoreError, match="claims more than 1,000 bytes, the limit"):
        unpack(archive(("a", 2000, tarfile.REGTYPE)), tmp_path / "in")
    monkeypatch.setenv("ENVSCHED_MAX_ARCHIVE_MEMBERS", "2")
    with pytest.raises(StoreError, match="claims more than 2 members, the limit"):
        unpack(archive(*[(f"{k}", 0, tarfile.REGTYPE) for k in range(3)]), tmp_path / "in")
    tally("archives of runs that lie or lead outside", len(tried) + 3)


# ---------------------------------------------------------------------- links and names


INSIDE = ("run.json", "tasks.jsonl", "tools.jsonl", "events", "events/seg-000000.jsonl", "graph/1", "scores/0.npz")
INSIDE += ("rollouts", "rollouts/rollouts.jsonl", "graph/1/pattern.npy", "graph/1/pattern_names.json")


@pytest.mark.parametrize("name", INSIDE)
def test_a_link_that_leads_out_of_a_run_is_not_followed(tmp_path, tally, name):
    run = write_run(tmp_path / "runs" / "run")
    outside = tmp_path / "outside"
    (run / name).rename(outside)
    (run / name).symlink_to(outside)
    with pytest.raises(DamagedError, match="leads nowhere or out of its run folder"):
        _read_all(run)
    (run / name).unlink()
    (run / name).symlink_to(run / name)  # a link to itself
    with pytest.raises(StoreError):
        _read_all(run)
    tally("links that lead out of a run folder", 2)


def _read_all(run: Path) -> None:
    assert all(isinstance(found, Exception) is False or _again(found) for _, found in list_runs(run.parent))
    reader = RunReader(run)
    assert reader.tasks()
    events = [located.event.data for located in reader.events()]
    assert reader.graph() is not None
    assert reader.scores(0) is not None
    for group in events:
        if getattr(group, "offsets", ()):
            assert reader.rollouts(group)
    raise AssertionError("it was read")


def _again(found: Exception) -> bool:
    raise found


def test_a_run_that_is_itself_a_link_and_links_inside_it_are_followed(tmp_path):
    run = write_run(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run").symlink_to(run)
    (run / "tasks.jsonl").rename(run / "kept.jsonl")
    (run / "tasks.jsonl").symlink_to("kept.jsonl")
    assert len(RunReader(tmp_path / "runs" / "run").tasks()) == 48


def test_a_pipe_in_a_run_folder_does_not_hang_its_reader(tmp_path, tally):
    run = write_run(tmp_path / "run")
    (run / "tasks.jsonl").unlink()
    os.mkfifo(run / "tasks.jsonl")
    with pytest.raises(DamagedError, match="a pipe or device"):
        RunReader(run).tasks()
    tally("pipes in a run folder", 1)


def test_a_manifest_names_its_source_and_opens_no_other_run(tmp_path, tally):
    secret = write_run(tmp_path / "secret")
    assert RunReader(secret).manifest.run_id == "secret"
    run = write_hostile_run(tmp_path)
    manifest = json.loads((run / "run.json").read_text(encoding="utf-8"))
    places = ("../secret", str(secret), "../../../../../../etc", "\x00", "~", "/dev/zero", "a" * 5000)
    for place in places:
        for claim in ({}, {"run_id": "else"}, {"run_id": "secret"} if "secret" not in place else {"run_id": "x"}):
            (run / "run.json").write_text(json.dumps({**manifest, "source": {"path": place, **claim}}))
            view = RunView(run)
            assert view.source() is None
    tally("sources that a manifest names", 3 * len(places))


def test_names_of_runs_and_tasks_are_never_paths(tmp_path, envsched, tally):
    names = ("../../up", "/etc/passwd", "a/../../b", "..", "CON", "\x00", "\\\\host\\share", "-rf")
    rows = [
        json.dumps({**ROW, "env": name, "task": name, "group": name, "reward": k % 2}) + "\n"
        for k, name in enumerate(names)
    ]
    (tmp_path / "work").mkdir()
    import_run([log(tmp_path / "work" / "a.jsonl", *rows)], tmp_path / "work" / "run", ImportOptions())
    status, _, err = envsched(
        "replay", tmp_path / "work" / "run", "--out", tmp_path / "work" / "replay", "--batch-size", "1"
    )
    assert status == 0, err
    assert {path.name for path in tmp_path.iterdir()} == {"work"}
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"a.jsonl", "run", "replay"}
    assert check_chain(tmp_path / "work" / "run") == []
    tally("names that look like paths", len(names) * 3)


@pytest.mark.parametrize("command", ["import", "replay", "assess", "report", "verify", "runs"])
def test_commands_on_what_they_cannot_read_say_so_in_words(tmp_path, envsched, tally, command):
    (tmp_path / "\x1b[31mred\u202e").write_bytes(b"\x80\x04K\x01.")
    (tmp_path / "zeros").write_bytes(bytes(1000))
    (tmp_path / "run.json").write_text('{"format": 1}')
    for name in ("\x1b[31mred\u202e", "zeros", "run.json", "absent"):
        place = tmp_path / name
        status, out, err = envsched(
            command, place, *(("--out", tmp_path / "out") if command in ("import", "replay") else ())
        )
        assert status in (1, 2), (command, name)
        assert "Traceback" not in out + err
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
    tally("files that no command can read", 4)
