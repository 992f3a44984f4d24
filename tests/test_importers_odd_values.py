"""Whatever stands where the formats have their values: a row may be lost, an import never fails in another way."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsched_core.errors import EnvSchedError, LogFormatError
from envsched_core.importers import ImportOptions, import_log, import_run

FORMATS = Path(__file__).parent / "formats"
SAMPLES = (
    "verl",
    "verl_v1",
    "tau2_folder",
    "tau2_tasks",
    "bfcl",
    "bfcl_v3",
    "acebench",
    "environments.jsonl",
    "inspect",
    "nemo_gym",
    "tinker",
    "rllm",
    "skyrl",
    "areal",
    "slime",
    "atropos",
    "roll",
    "prime_hosted",
)
ODD = (
    None,
    True,
    -1,
    1e308,
    float("nan"),
    10**400,
    "",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"a": None},
    [{"name": None}],
    "[{]",
)


def places(value, path=()):
    """Where every value in a JSON value stands; of a list the first three items."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def put(value, path, new):
    """The value with another one at a place."""
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = put(copy[key], rest, new)
    return copy


@pytest.mark.parametrize("sample", SAMPLES)
@settings(max_examples=10)
@given(data=st.data())
def test_an_odd_value_anywhere_costs_rows_at_most(tmp_path_factory, sample, data):
    folder = tmp_path_factory.mktemp("odd") / "log"
    files = sorted(path for path in FORMATS.glob(f"{sample}/**/*.json*") if path.is_file()) or [FORMATS / sample]
    path = data.draw(st.sampled_from(files))
    try:
        values = [json.loads(path.read_text())]
    except ValueError:
        values = [json.loads(line) for line in path.read_text().splitlines()]
    number = data.draw(st.integers(0, len(values) - 1))
    place = data.draw(st.sampled_from(list(places(values[number]))))
    values[number] = put(values[number], place, data.draw(st.sampled_from(ODD)))
    shutil.copytree(FORMATS / sample, folder) if (FORMATS / sample).is_dir() else folder.mkdir()
    changed = folder / (path.relative_to(FORMATS / sample) if (FORMATS / sample).is_dir() else path.name)
    changed.write_text("".join(json.dumps(value) + "\n" for value in values))
    try:
        report = import_run([folder], folder.with_name("run"))
    except EnvSchedError:
        assert not folder.with_name("run").exists()
    else:
        assert report.rows == report.kept + report.dropped


@pytest.mark.parametrize(
    "format",
    [
        "verl",
        "trl",
        "tau2",
        "bfcl",
        "acebench",
        "environments",
        "inspect",
        "nemo-gym",
        "art",
        "tinker",
        "skyrl",
        "areal",
        "slime",
        "atropos",
        "roll",
        "prime-hosted",
    ],
)
def test_a_file_of_another_format_is_refused_by_name(format):
    with pytest.raises(LogFormatError, match="is no"):
        import_log([FORMATS / "table.csv"], ImportOptions(format=format))
