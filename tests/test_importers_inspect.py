"""Inspect: one JSON object and the archive, scores as rewards, summaries alone, and archives that are traps."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, eval_archive, import_log, sniff

FORMATS = Path(__file__).parent / "formats"
GARDEN, KITCHEN = FORMATS / "inspect" / "garden.json", FORMATS / "inspect" / "kitchen.eval"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def packed(path, log, members=(), method=zipfile.ZIP_DEFLATED):
    """The archive of a log, packed as every Python can read it."""
    header = {key: value for key, value in log.items() if key != "samples"}
    samples = log["samples"]
    summaries = [{key: value for key, value in item.items() if key != "messages"} for item in samples]
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": log["eval"]}))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        archive.writestr("summaries.json", json.dumps(summaries))
        archive.writestr("header.json", json.dumps(header))
        for name, content in members:
            archive.writestr(name, content)
    return path


def garden(**changes):
    return json.loads(GARDEN.read_text()) | changes


def scored(*values):
    """A log of one sample in as many epochs, with these scores."""
    samples = [{"id": 1, "epoch": epoch, "input": "i", "scores": scores} for epoch, scores in enumerate(values, 1)]
    return garden(samples=samples, results=None)


def test_an_evaluation_goes_the_whole_way(tmp_path):
    (tmp_path / "logs").mkdir()
    for number in range(3):
        about = garden()["eval"] | {"task": f"garden {number}", "task_id": f"T{number}"}
        (tmp_path / "logs" / f"{number}.json").write_text(json.dumps(garden(eval=about)))
    way = whole_way(tmp_path / "logs", tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("inspect",), 18, 3)
    assert (way.report.missing, way.report.partial_groups) == (6, 3)
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert first.messages[2].content == "One call will do.\nOn it."
    assert [(call.name, call.arguments[:7]) for call in first.calls] == [("water", '{"plot"')]
    assert first.reward_parts.keys() == {"verify"}


def test_letters_are_rewards_and_epochs_are_a_group():
    groups = list(read(GARDEN).groups())
    assert [group.rewards for group in groups][::3] == [(1.0, 0.0, 0.0, 1.0), (1.0, 0.5, 0.0, 0.0)]
    assert (groups[4].rewards, groups[4].missing) == ((1.0, 0.0), 2)
    assert groups[0].group_id == "garden::garden/job-0#garden-eval"
    assert (groups[0].policy_version, groups[0].cost.tokens, groups[0].cost.seconds) == ("toy/model", 50.0, 8.0)
    assert groups[0].calls == (("water",),) * 4


def test_long_texts_that_the_log_keeps_once_are_put_back():
    task = read(GARDEN).tasks[0]
    assert task.text.startswith("Water the ferns before the roses")
    assert [(tool.name, tool.parameters) for tool in task.tools] == [("water", ("plot",))]


def test_older_logs_have_one_score_and_a_transcript(tmp_path):
    log = garden()
    for sample in log["samples"]:
        sample["score"] = sample.pop("scores").get("verify")
        sample["transcript"] = {"events": sample.pop("events", []), "content": sample.pop("attachments", {})}
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    older, newer = read(path), read(GARDEN)
    assert [group.rewards for group in older.groups()] == [group.rewards for group in newer.groups()]
    assert [(task.text, task.tools) for task in older.tasks] == [(task.text, task.tools) for task in newer.tasks]


def test_what_a_failed_tool_said_is_shown(tmp_path):
    said = {"role": "tool", "content": "", "error": {"type": "timeout", "message": "took too long"}}
    path = tmp_path / "log.json"
    path.write_text(json.dumps(garden(samples=[{"id": 1, "epoch": 1, "input": "i", "messages": [said]}])))
    seen = []
    import_log([path], sink=lambda rollouts: [seen.append(rollout) or 0 for rollout in rollouts])
    assert seen[0].messages[0].content == "error: took too long"
    assert seen[0].reward is None


@pytest.mark.parametrize("kind", ["eval", "json"])
def test_the_archive_and_the_object_tell_the_same(tmp_path, kind):
    path = packed(tmp_path / "log", garden()) if kind == "eval" else GARDEN
    assert sniff(path) == "inspect"
    assert [group.rewards for group in read(path).groups()] == [group.rewards for group in read(GARDEN).groups()]


def test_a_real_archive_is_packed_with_zstd(tmp_path):
    pytest.importorskip("zipfile_zstd")
    log = read(KITCHEN)
    assert next(log.groups()).rewards == (1.0, 1.0, 0.0, 1.0)
    assert any("the reward is verify's score; --reward names another (style)" in note for note in log.report.notes)
    whole_way(KITCHEN, tmp_path)


def test_without_what_unpacks_zstd_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(eval_archive, "_reads_zstd", lambda: False)
    monkeypatch.setitem(sys.modules, "zipfile_zstd", None)
    with pytest.raises(LogFormatError, match=r"pip install 'envsched\[inspect\]'"):
        read(KITCHEN)


def test_summaries_are_enough_without_rollouts(tmp_path):
    log = garden()
    path = packed(tmp_path / "log.eval", log)
    with zipfile.ZipFile(path) as archive:  # samples that could not be read if they were opened
        members = [
            (name, b"not JSON" if name.startswith("samples/") else archive.read(name)) for name in archive.namelist()
        ]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    found = read(path, keep_rollouts=False)
    assert [group.rewards for group in found.groups()] == [group.rewards for group in read(GARDEN).groups()]
    assert any("only the summaries of 24 samples were read" in note for note in found.report.notes)
    whole = read(path)
    assert [group.rewards for group in whole.groups()] == [group.rewards for group in found.groups()]
    assert any("24 samples have no member that can be read: not JSON" in note for note in whole.report.notes)


def test_samples_without_a_member_are_known_by_their_summaries(tmp_path):
    """A log cut into chunks, or one whose evaluation was stopped before its end."""
    log = garden(status="started")
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", json.dumps({"eval": log["eval"], "status": "started"}))
        archive.writestr("_journal/summaries/1.json", json.dumps(log["samples"][:12]))
        archive.writestr("_journal/summaries/2.json", json.dumps(log["samples"][12:]))
    report = read(path).report
    assert (report.rows, report.groups) == (24, 6)
    assert any("24 samples have no member that can be read" in note for note in report.notes)
    assert any("did not end well (status started)" in note for note in report.notes)


def test_a_sample_taken_over_by_a_retry_counts_once(tmp_path):
    (tmp_path / "first.json").write_text(json.dumps(garden(samples=garden()["samples"][:12], status="error")))
    (tmp_path / "second.json").write_text(GARDEN.read_text())
    report = read(tmp_path).report
    assert (report.rows, report.rollouts, report.groups, report.group_sizes) == (36, 24, 6, ((4, 6),))


@pytest.mark.parametrize(
    ("scores", "reward", "expected"),
    [
        ([{"a": {"value": True}}, {"a": {"value": "0.25"}}], None, (1.0, 0.25)),
        ([{"a": {"value": "C"}, "b": {"value": 7}}], "b", (7.0,)),
        ([{"a": {"value": {"x": "I", "y": 2}}}, {"a": {"value": {"x": "C", "y": 3}}}], "x", (0.0, 1.0)),
        ([{"a": {"value": {"x": 1, "y": 2}}}], "a/y", (2.0,)),
        ([{"a": {"value": {"only": 0.5}}}], None, (0.5,)),
        ([{"a": {"value": float("nan")}}, {"a": {"value": "words"}}, None, {"a": {"value": 1}}], None, (1.0,)),
    ],
)
def test_scores_become_rewards(tmp_path, scores, reward, expected):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(scored(*scores)))
    group = next(read(path, reward=reward).groups())
    assert (group.rewards, group.missing) == (expected, len(scores) - len(expected))


def test_a_scorer_of_several_numbers_asks_which(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(scored({"a": {"value": {"x": 1, "y": 2}}})))
    with pytest.raises(LogFormatError, match=r"a gives no single score \(a/x, a/y\): choose one with --reward"):
        read(path)
    with pytest.raises(LogFormatError, match="no row has a reward part or column 'z'"):
        read(path, reward="z")


def bomb(path, size, members):
    """An archive of zeros, with the least that a log has."""
    return packed(path, garden(samples=[]), [(f"samples/{n}_epoch_1.json", bytes(size)) for n in range(members)])


@pytest.mark.security
@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("MEMBERS", 5, "members, more than 5"),
        ("BYTES", 2**20, "it unpacks to"),
        ("TIMES", 200, "times its size"),
    ],
)
def test_an_archive_beyond_a_limit_is_not_opened(tmp_path, monkeypatch, limit, value, said):
    monkeypatch.setenv(f"ENVSCHED_MAX_{'ARCHIVE' if limit == 'MEMBERS' else 'UNPACKED'}_{limit}", str(value))
    monkeypatch.setattr(eval_archive, "SMALL", 1)
    with pytest.raises(LogFormatError, match=f"not opened: .*{said}"):
        read(bomb(tmp_path / "log.eval", 2**20, 4))


@pytest.mark.security
def test_members_that_lie_or_are_damaged_cost_their_own_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSCHED_MAX_RECORD_BYTES", str(2**16))
    path = packed(tmp_path / "log.eval", garden(), [("samples/long_epoch_1.json", b" " * 2**17)])
    with zipfile.ZipFile(path) as archive:
        broken = archive.getinfo("samples/garden/job-1_epoch_1.json").header_offset
        lying = archive.getinfo("samples/garden/job-2_epoch_1.json")
    content = bytearray(path.read_bytes())
    content[broken + 120 : broken + 140] = bytes(20)
    at = content.rindex(b"samples/garden/job-2_epoch_1.json") - 46  # its entry in the directory at the end
    assert int.from_bytes(content[at + 24 : at + 28], "little") == lying.file_size
    content[at + 24 : at + 28] = (100).to_bytes(4, "little")
    path.write_bytes(content)
    report = read(path).report
    assert (report.kept, report.dropped) == (24, 1)
    assert next(iter(report.drop_reasons)).startswith("longer than 65,536 bytes")
    assert any("2 samples have no member that can be read: damaged" in note for note in report.notes)
    assert report.prompt_conflicts == 0


@pytest.mark.security
def test_names_of_members_are_never_paths(tmp_path):
    sample = garden()["samples"][0] | {"id": "../../up"}
    outside = tmp_path / "up_epoch_1.json"
    log = read(packed(tmp_path / "a.eval", garden(samples=[sample], results=None)))
    assert [task.task for task in log.tasks] == ["../../up"]
    assert not outside.exists()


def test_what_is_no_evaluation_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "any.zip", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(LogFormatError, match="a ZIP archive"):
        read(tmp_path / "any.zip")
    with pytest.raises(LogFormatError, match="is no log of Inspect"):
        read(tmp_path / "any.zip", format="inspect")
    (tmp_path / "none").touch()
    with pytest.raises(LogFormatError, match="the file is empty"):
        read(tmp_path / "none", format="inspect")
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", "[]")
    with pytest.raises(LogFormatError, match="describes no evaluation"):
        read(tmp_path / "log.eval")
