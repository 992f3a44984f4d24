"""`envsched import`: the list of formats, catalogues, and what the options must look like."""

import json
from pathlib import Path

import pytest

from envsched_core.importers import FORMATS, Carries, carried, list_formats
from envsched_core.importers.formats import reader_of

FILES = Path(__file__).parent / "formats"


@pytest.mark.parametrize("format", FORMATS)
def test_every_reader_declares_what_its_logs_carry(format):
    reader = reader_of(format)
    found = reader.CARRIES
    levels = [getattr(found, field) for field in Carries.__struct_fields__ if field != "limits"]
    assert set(levels) <= {"yes", "some", "no"}
    assert reader.ABOUT
    assert not reader.ABOUT.endswith(".")
    assert not found.limits.endswith(".")


def test_the_list_of_formats_is_a_table_and_json(envsched):
    status, out, _ = envsched("import", "--list")
    assert status == 0
    head, *rows = out.split("\n\n")[0].splitlines()
    assert head.split()[:5] == ["format", "env", "task", "group", "step"]
    assert [row.split()[0] for row in rows] == list(FORMATS)
    _, out, _ = envsched("import", "--list", "--json")
    found = json.loads(out)
    assert list(found) == list(FORMATS) == list(carried())
    assert found["table"]["about"] == list_formats()["table"]
    assert found["traces"]["policy"] == "yes"


def test_import_without_a_path_or_a_run_says_what_it_takes(envsched):
    for arguments in ([], [FILES / "table.csv"], ["--out", "x"]):
        status, _, err = envsched("import", *arguments)
        assert status == 2
        assert "--out RUN" in err


@pytest.mark.parametrize("option", ["--join", "--env-rule", "--map"])
def test_an_option_of_two_sides_that_has_one_says_its_form(envsched, tmp_path, option):
    status, _, err = envsched("import", FILES / "table.csv", "--out", tmp_path / "run", option, "one")
    assert status == 2
    assert f"{option} one: write " in err


def test_a_catalogue_is_told_and_neither_replayed_nor_assessed(envsched, tmp_path):
    status, out, _ = envsched("import", FILES / "tasks.jsonl", "--out", tmp_path / "run")
    assert status == 0
    assert "a catalogue of" in out
    assert "nothing to replay" in out
    status, _, err = envsched("replay", tmp_path / "run", "--out", tmp_path / "replay")
    assert (status, "no observed group to replay" in err) == (2, True)
    status, _, err = envsched("assess", FILES / "tasks.jsonl")
    assert status == 2
    assert "no rollouts" in err


def test_rules_and_join_reach_the_reader(envsched, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"index": 1, "prompt": "a retail agent", "reward": 1}\n')
    side = tmp_path / "side.jsonl"
    side.write_text('{"index": 1, "env": "airline"}\n')
    _, out, _ = envsched("import", log, "--out", tmp_path / "a", "--env-rule", r"\1=a (\w+) agent")
    assert "  retail: rewards" in out
    _, out, _ = envsched("import", log, "--out", tmp_path / "b", "--join", f"index={side}")
    assert "  airline: rewards" in out


def readme_row(format: str) -> str:
    """What README.md says of a format: what it is, what it carries (some of it in brackets), its limits."""
    reader = reader_of(format)
    told = {field: getattr(reader.CARRIES, field) for field in Carries.__struct_fields__ if field != "limits"}
    yes, some = (", ".join(f.replace("_", " ") for f in told if told[f] == level) for level in ("yes", "some"))
    carries = " ".join(part for part in (yes, f"({some})" if some else "") if part)
    return f"| `{format}` | {reader.ABOUT} | {carries} | {reader.CARRIES.limits} |"


@pytest.mark.parametrize("format", FORMATS)
def test_the_readme_says_of_a_format_what_its_reader_declares(format):
    readme = Path(__file__).parent.parent / "README.md"
    assert readme_row(format) in readme.read_text(encoding="utf-8").splitlines()
