"""tau-bench trials and verifiers runs, on small invented files."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, import_run, sniff

FORMATS = Path(__file__).parent / "formats"
TAU = FORMATS / "tau_bench.json"
RUN = FORMATS / "verifiers_run"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def rewrite(source, target, change):
    """A copy of a JSON-lines file with every row changed."""
    rows = [change(json.loads(line)) for line in source.read_text().splitlines()]
    target.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return target


def test_tau_bench_trials_of_a_task_are_a_group():
    four, seven = read(TAU).groups()
    assert (four.key, four.rewards, four.group_id) == ("retail::4", (1.0, 0.0), "retail::4#tau_bench.json")
    assert four.calls == (("get_order_details", "cancel_pending_order"), ("get_order_details",))
    assert (four.cost.turns, four.cost.tool_calls) == (5.0, 3.0)
    assert [place.line for place in four.places] == [1, 2]
    assert (seven.rewards, seven.missing, seven.status) == ((1.0, 1.0), 1, "partial")


def test_tau_bench_tasks_carry_instruction_reference_and_tools():
    task = read(TAU, tools=FORMATS / "tools.json").tasks[0]
    assert task.text == "Ask to cancel order 4."
    assert (task.calls, task.verifier) == (("cancel_pending_order",), "actions")
    assert [(tool.name, tool.parameters) for tool in task.tools] == [
        ("cancel_pending_order", ("order",)),
        ("get_order_details", ("order",)),
    ]


def test_tau_bench_environment_is_given_or_inferred_or_told(tmp_path):
    assert read(TAU, env="shop").tasks[0].env == "shop"
    strange = tmp_path / "trials.json"
    strange.write_text(TAU.read_text().replace("cancel_pending_order", "frob").replace("get_order_details", "frob"))
    log = read(strange)
    assert log.tasks[0].env == "tau-bench"
    assert "--env" in log.report.notes[0]


def test_tau_bench_torn_array_keeps_whole_trials(tmp_path):
    torn = tmp_path / "trials.json"
    torn.write_text(TAU.read_text()[:-100])
    report = read(torn).report
    assert (report.kept, report.drop_reasons) == (4, {"torn last item": 1})
    assert report.first_drops[0].line == 5


def test_tau_bench_files_are_separate_groups(tmp_path):
    shutil.copy(TAU, tmp_path / "other.json")
    log = read(TAU, tmp_path / "other.json")
    assert (log.report.groups, log.tasks[0].draws) == (4, 2)


def test_reward_may_be_a_part_of_tau_bench():
    assert next(read(TAU, reward="r_actions").groups()).rewards == (1.0, 0.0)


@pytest.mark.parametrize("path", [RUN, RUN / "results.jsonl"])
def test_verifiers_run_is_read_as_folder_or_file(path):
    log = read(path)
    zero, one = log.groups()
    assert (zero.key, zero.rewards, zero.policy_version) == ("sums::0", (1.0, 0.0), "tiny")
    assert zero.calls == (("add",), ("add",))
    assert (zero.cost.seconds, zero.cost.turns) == (3.0, 2.0)
    assert (one.rewards, one.missing) == ((0.0,), 1)
    task = log.tasks[0]
    assert (task.text, task.tools[0].name, task.verifier) == ("2+2?", "add", "exact_reward")
    assert any("avg_reward 0.9, the rows' mean is 0.3333" in note for note in log.report.notes)


def test_verifiers_runs_in_one_folder_are_separate_groups(tmp_path):
    for name in ("a", "b"):
        shutil.copytree(RUN, tmp_path / name)
    log = read(tmp_path)
    assert (log.report.groups, log.report.tasks, log.tasks[0].draws) == (4, 2, 2)
    assert not any("metadata" in note and "passed over" in note for note in log.report.notes)


def test_verifiers_ids_that_are_all_zero_mean_no_id(tmp_path):
    shutil.copy(RUN / "metadata.json", tmp_path)
    path = rewrite(RUN / "results.jsonl", tmp_path / "results.jsonl", lambda row: row | {"example_id": 0})
    log = read(path)
    assert [len(group.places) for group in log.groups()] == [2, 2]
    assert any("hashes of prompt and answer" in note for note in log.report.notes)


def test_verifiers_wrong_ids_are_told_and_can_be_mapped(tmp_path):
    shutil.copy(RUN / "metadata.json", tmp_path)
    ids = iter([0, 0, 1, 1])
    path = rewrite(RUN / "results.jsonl", tmp_path / "results.jsonl", lambda row: row | {"example_id": next(ids)})
    report = read(path).report
    assert (report.prompt_conflicts, len(report.first_conflicts)) == (2, 2)
    assert any("different tasks" in text for text in report.warnings())
    assert read(path, mapping={"task_id": "prompt"}).report.prompt_conflicts == 0


def test_verifiers_mixture_names_the_environment_in_the_row(tmp_path):
    shutil.copy(RUN / "metadata.json", tmp_path)
    path = rewrite(
        RUN / "results.jsonl", tmp_path / "results.jsonl", lambda row: row | {"info": {"env_id": ["mix", "sums"]}}
    )
    assert read(path).tasks[0].env == "mix/sums"


def test_verifiers_without_metadata(tmp_path):
    folder = tmp_path / "sums--tiny" / "0a1b2c3d"
    folder.mkdir(parents=True)
    shutil.copy(RUN / "results.jsonl", folder)
    assert read(folder).tasks[0].env == "sums"
    assert read(folder / "results.jsonl", env="mine").tasks[0].env == "mine"


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("tau_bench.json", "tau-bench"),
        ("verifiers_run/results.jsonl", "verifiers"),
        ("table.csv", "table"),
        ("table.jsonl", "table"),
    ],
)
def test_sniffing_looks_at_content(tmp_path, name, format):
    path = tmp_path / "anything.bin"
    shutil.copy(FORMATS / name, path)
    assert sniff(path) == format


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b'{"loss": 1}\n{"loss": 2}\n', "JSON lines with 'loss'"),
        (b'{\n "a": 1\n}\n', "one JSON object"),
        (b"PK\x03\x04zip", "neither text nor Parquet"),
        (b"PAR1junk", "not a readable Parquet"),
        (b"a,b\n1,2\n", "CSV or text with 'a', 'b'"),
        (b"[" * 50_000, "a JSON array"),
        ("env,task_id,reward\na,1,0\n".encode("utf-16"), "UTF-16"),
        ("env,task_id,reward\na,1,0\n".encode("utf-16-le"), "UTF-16"),
        (gzip.compress(b"env,task_id,reward\na,1,0\n", mtime=0)[:-12], "ends early"),
        (b"env,task_id,reward\ra,1,0\ra,1,1\r", "carriage return alone"),
        ("env,task_id,reward\na,1,0\n".encode("utf-16-be"), "UTF-16"),
        (b'\0\0\0\0\0{"env": "a", "task_id": 1, "reward": 0}\n', "zero bytes"),
        (b'{"env": "a", "task_id": 1}{"env": "a", "task_id": 2}', "jq -c"),
        (b'{\n"env": "a"\n}\n{\n"env": "b"\n}\n', "jq -c"),
        (b"[]", "no whole object"),
    ],
)
def test_an_unknown_format_says_what_it_is_and_what_to_do(tmp_path, content, said):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(LogFormatError, match=said):
        read(path)


def test_a_folder_without_logs_and_a_path_that_is_not_there(tmp_path):
    (tmp_path / "README.md").write_text("hello\n")
    with pytest.raises(LogFormatError, match="no log in this folder"):
        read(tmp_path)
    with pytest.raises(LogFormatError, match="no such file"):
        read(tmp_path / "absent")


def test_a_row_with_a_bare_carriage_return_is_dropped(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"env,task_id,reward\na,1,0\na,1,1\ra,1,1\na,1,1\n")
    report = read(tmp_path / "log.csv").report
    assert (report.kept, report.dropped) == (2, 1)


def test_a_format_that_a_file_is_not_is_refused():
    with pytest.raises(LogFormatError, match="is not tau-bench: it has no info, traj; it looks like table"):
        read(FORMATS / "table.csv", format="tau-bench")
    assert read(RUN / "results.jsonl", format="verifiers", env="e").tasks


def test_a_run_folder_inside_a_log_folder_is_passed_over_and_told(tmp_path):
    shutil.copy(FORMATS / "table.csv", tmp_path)
    import_run([tmp_path / "table.csv"], tmp_path / "runs" / "mine")
    report = read(tmp_path).report
    assert report.files == (f"{tmp_path.name}/table.csv",)
    assert report.notes[0].startswith("passed over 1 run folder (runs/mine)")
    with pytest.raises(LogFormatError, match="is a run folder"):
        read(tmp_path / "runs" / "mine")


def test_files_of_several_policies_are_told(tmp_path):
    for model in "ab":
        row = {"env": "e", "task_id": 1, "reward": 1, "model": model}
        (tmp_path / f"{model}.jsonl").write_text(json.dumps(row) + "\n")
    assert "groups of 2 policies" in read(tmp_path).report.notes[-1]
    assert not read(tmp_path / "a.jsonl").report.notes
