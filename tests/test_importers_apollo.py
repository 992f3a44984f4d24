"""Catalogues of environments: texts, tools, state and paths, and their odd instructions."""

import json
from pathlib import Path

from envsched_core.importers import ImportOptions, import_log, import_run
from envsched_core.store import RunReader

CATALOGUE = Path(__file__).parent / "formats" / "environments.jsonl"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_a_catalogue_becomes_a_run_with_tasks_and_a_graph(tmp_path):
    report = import_run([CATALOGUE], tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    tasks = reader.tasks()
    assert (report.formats, report.groups, len(tasks)) == (("environments",), 0, 4)
    first = tasks[0]
    assert (first.key, first.text, first.state) == (
        "bank_1::bank_1:0",
        "Open an account for Ann.",
        ("accounts", "cards"),
    )
    assert [(tool.name, tool.parameters) for tool in first.tools] == [
        ("OpenAccount", ("owner",)),
        ("BlockCard", ("card",)),
    ]
    assert [task.calls for task in tasks[:2]] == [("OpenAccount",), ("BlockCard", "OpenAccount")]
    assert any(found.event.kind == "graph" for found in reader.events())


def test_odd_instructions_are_told_and_kept():
    log = read(CATALOGUE)
    assert log.tasks[1].text == "Block the card of Bo.\nThen open an account."
    assert any("are a list" in note and "bank_1:1" in note for note in log.report.notes)
    assert any("more than one task" in note and "(1;" in note for note in log.report.notes)


def test_bad_lines_double_ids_and_tasks_without_one(tmp_path):
    lines = CATALOGUE.read_text().splitlines()
    first = json.loads(lines[0])
    first["tasks"][2]["task_id"] = "bank_1:0"
    nameless = {"env": "x", "tasks": [{"instruction": "a"}, {"instruction": "b"}]}
    path = tmp_path / "environments.jsonl"
    path.write_text("\n".join([json.dumps(first), json.dumps(nameless), '{"env": "torn'][:3]))
    log = read(path)
    assert [task.key for task in log.tasks] == ["bank_1::bank_1:0", "bank_1::bank_1:1", "x::0", "x::1"]
    assert log.report.drop_reasons == {"torn last line": 1}
    assert any("twice in an environment" in note for note in log.report.notes)


def test_public_catalogue(shared_inputs):
    log = read(shared_inputs / "09-apollo-tau-bench" / "environments.jsonl")
    assert (len(log.tasks), len({task.env for task in log.tasks})) == (1890, 63)
    assert all(task.text and task.tools and task.state and task.calls for task in log.tasks)
    notes = "\n".join(log.report.notes)
    assert "banking_services_2:11" in notes
    assert "(6;" in notes
