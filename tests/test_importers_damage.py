"""A damaged record costs itself, whatever the format: no reader raises anything but a word on the file."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envsched_core.errors import LogFormatError
from envsched_core.importers import FORMATS, ImportOptions, import_log, report_lines
from envsched_core.importers.files import head_of
from envsched_core.importers.formats import format_of

FILES = Path(__file__).parent / "formats"
OPTIONS = ImportOptions(env="e")


def samples():
    """One JSON file of each format, by what it is read as."""
    found = {}
    for path in sorted(FILES.rglob("*")):
        if path.is_file() and path.suffix in (".json", ".jsonl"):
            head = head_of(path)
            format = format_of(head, OPTIONS)
            if format is not None and head.kind in ("jsonl", "array", "object"):
                found.setdefault(format, path)
    return found


SAMPLES = samples()
odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["\ud800", "a::b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(value, at=()):
    """The way to every value inside a value."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def replaced(value, at, new):
    """A copy of a value with another in one place."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


def records_in(path):
    """What a file holds, line by line or as a whole."""
    text = path.read_text(encoding="utf-8")
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line]


def test_most_formats_have_a_sample():
    assert len(SAMPLES) > len(FORMATS) // 2


@pytest.mark.parametrize("format", SAMPLES)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_record_costs_itself(tmp_path_factory, format, data):
    folder = tmp_path_factory.mktemp("damage") / "log"
    path = SAMPLES[format]
    shutil.copytree(path.parent, folder) if path.parent != FILES else folder.mkdir()
    records = records_in(path)
    for _ in range(data.draw(st.integers(1, 3))):
        k = data.draw(st.integers(0, len(records) - 1))
        ways = list(places(records[k]))
        records[k] = replaced(records[k], data.draw(st.sampled_from(ways)), data.draw(odd))
    lines = [json.dumps(record) for record in records]
    (folder / path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    try:
        log = import_log([folder / path.name], ImportOptions(format=format, env="e"))
    except LogFormatError:
        return
    groups = list(log.groups())
    assert sum(len(group.rewards) + group.missing for group in groups) == log.report.rollouts
    assert all(line.isprintable() or "\n" not in line for line in report_lines(log.report))
