"""verifiers v1 and prime-rl traces, prime-rl v0.6 rollouts and OpenEnv collections, on small invented files."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from shadow_runs import Following, append
from whole_way import whole_way

from envsched_core.errors import LogFormatError
from envsched_core.importers import ImportOptions, import_log, import_run, sniff
from envsched_core.store import RunReader

FORMATS = Path(__file__).parent / "formats"
RUN = FORMATS / "prime_rl_run"
ALL = RUN / "rollouts" / "step_12" / "train" / "all" / "traces.jsonl"
EFFECTIVE = RUN / "rollouts" / "step_12" / "train" / "effective"
BARE = FORMATS / "verifiers_traces.jsonl"
V06 = FORMATS / "prime_rl_v06"
OPENENV = FORMATS / "openenv_run"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def episodes(path=ALL):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_training_run_is_read_with_step_group_policy_and_what_was_trained_on():
    log = read(RUN)
    kept, lost, later = log.groups()
    assert (kept.key, kept.group_id, kept.step) == ("retail::retail/refund-3", "retail::retail/refund-3#12/g-19", 12)
    assert (kept.policy_version, kept.trained, lost.trained, later.trained) == ("10", True, False, None)
    assert kept.rewards == pytest.approx((1.1, 0.1))  # score x weight, the unscored judge left out
    assert (kept.missing, lost.missing, lost.status) == (1, 1, "partial")
    assert (later.step, len(later.rewards)) == (13, 2)
    assert log.report.rows == 8
    assert any("evaluations during training" in note for note in log.report.notes)
    assert any("effective tells" in note for note in log.report.notes)
    assert not log.report.kept_only


def test_an_episode_carries_task_tools_calls_messages_and_cost(tmp_path):
    import_run([ALL], tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    task = reader.tasks()[0]
    assert (task.text, task.tools[0].name, task.tools[0].parameters) == ("Refund order 3", "refund", ("order",))
    first = next(found.event.data for found in reader.events() if found.event.kind == "observed")
    assert first.calls[0] == ("refund", "refund")
    assert first.cost.tokens == 21.0
    rollout, _, failed = reader.rollouts(first)
    assert [message.role for message in rollout.messages] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
    assert rollout.messages[2].calls[0].arguments == '{"order": 0}'
    assert rollout.reward_parts == {"n_tools": 2.0, "db_match": 1.0, "style": 0.5}
    assert (rollout.tokens, rollout.seconds, rollout.status) == (7.0, 2.5, "agent_done")
    assert (failed.reward, failed.status) == (None, "error: ToolError no answer")


def test_effective_alone_is_known_to_hold_kept_groups_only():
    report = read(EFFECTIVE).report
    assert report.kept_only
    assert report.warning.startswith("effective/traces.jsonl holds what was trained on")
    assert next(read(EFFECTIVE / "traces.jsonl").groups()).trained


def test_an_evaluation_that_is_named_is_read():
    (group,) = read(RUN / "rollouts" / "step_12" / "eval" / "all" / "traces.jsonl").groups()
    assert (group.task, group.rewards) == ("retail/refund-9", pytest.approx((1.1,)))


def test_bare_traces_name_environment_and_group_in_their_info_or_nowhere():
    trained, evaluated = read(BARE, env="mine").groups()
    assert (trained.env, trained.step, trained.policy_version) == ("retail", 2, "4")
    assert trained.group_id.endswith("#2/h1")
    assert (trained.task, evaluated.task) == ("ab5", "retail/refund-6")  # without a key, the hash
    assert (evaluated.env, evaluated.step, evaluated.policy_version) == ("mine", None, "tiny")
    assert len(evaluated.rewards) == 2


def test_an_evaluation_folder_names_the_environment(tmp_path):
    path = write(tmp_path / "sums--tiny--chat--0a1b2c3d" / "traces.jsonl", episodes(BARE)[2:])
    assert read(path).tasks[0].env == "sums"


def test_a_part_of_the_reward_is_chosen_and_a_score_alone_is_a_reward(tmp_path):
    assert next(read(ALL, reward="style").groups()).rewards == (0.5, 0.5)
    one = episodes()[0]
    one["traces"][0]["rewards"] = {"done": 0.25, "lost": {"score": float("nan"), "weight": 1.0}}
    assert next(read(write(tmp_path / "traces.jsonl", [one])).groups()).rewards == (0.25,)


def test_of_several_agents_the_trained_one_counts(tmp_path):
    one = episodes()[0]
    judge = one["traces"][0] | {"agent": {"name": "judge", "trainable": False}, "rewards": {"x": {"score": 9.0}}}
    solver = json.loads(json.dumps(one["traces"][0]))
    solver["rewards"]["db_match"]["score"] = 0.0
    log = read(write(tmp_path / "traces.jsonl", [one | {"traces": [judge, one["traces"][0], solver]}]))
    assert next(log.groups()).rewards == pytest.approx((0.6,))
    assert "1 episodes have several traces" in log.report.notes[0]


def test_the_last_branch_is_shown_and_a_loop_of_parents_ends(tmp_path):
    one = episodes()[0]
    nodes = [
        {"message": {"role": "user", "content": "go"}},
        {"parent": 0, "message": {"role": "assistant", "content": "first"}, "sampled": True},
        {"parent": 0, "message": {"role": "assistant", "content": "second"}, "sampled": True},
    ]
    one["traces"][0]["nodes"] = nodes
    two = json.loads(json.dumps(one)) | {"id": "other"}
    two["traces"][0]["nodes"][2]["parent"] = 2
    import_run([write(tmp_path / "traces.jsonl", [one, two])], tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    group = next(found.event.data for found in reader.events() if found.event.kind == "observed")
    branch, loop = reader.rollouts(group)
    assert [message.content for message in branch.messages] == ["go", "second"]
    assert loop.messages


def test_a_stream_beside_the_rollouts_by_step_is_not_read_twice(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    stream = tmp_path / "run" / "monitors" / "file" / "traces" / "stream.jsonl"
    write(stream, episodes())
    report = read(tmp_path / "run").report
    assert (report.rows, report.repeats) == (8, 0)
    assert any("stream.jsonl: left out" in note for note in report.notes)
    assert read(stream.parent).report.rows == 6
    shutil.rmtree(tmp_path / "run" / "rollouts")
    assert read(tmp_path / "run").report.rows == 6


def test_a_record_of_another_shape_costs_only_itself(tmp_path):
    good = episodes()[0]
    bad = [good | {"traces": 5}, good | {"traces": [{"nodes": [{"parent": "x"}]}]}, {"id": 1}]
    log = read(write(tmp_path / "traces.jsonl", [good, *bad]))
    assert (log.report.kept, log.report.dropped) == (1, 3)
    assert log.report.first_drops[0].line == 2


def test_the_same_episode_twice_counts_once(tmp_path):
    assert read(ALL, Path(shutil.copy(ALL, tmp_path))).report.repeats == 6


def test_a_sealed_chunk_is_read_through(tmp_path):
    data = ALL.read_bytes()
    half = data.index(b"\n", len(data) // 2) + 1
    frames = [pa.compress(part, codec="zstd", asbytes=True) for part in (data[:half], data[half:])]
    seek_table = b"\x5e\x2a\x4d\x18\x04\x00\x00\x00\x00\x00\x00\x00"  # a frame to be skipped
    (tmp_path / "chunk-000.jsonl.zst").write_bytes(b"".join(frames) + seek_table)
    assert read(tmp_path).report.rollouts == read(ALL).report.rollouts == 6
    (tmp_path / "chunk-000.jsonl.zst").write_bytes(frames[0][:-20])
    with pytest.raises(LogFormatError, match="ends early"):
        read(tmp_path / "chunk-000.jsonl.zst")


def test_traces_are_followed_as_they_are_written(tmp_path):
    log = tmp_path / "rollouts" / "step_12" / "train" / "all" / "traces.jsonl"
    following = Following(tmp_path / "rollouts", tmp_path / "run")
    lines = ALL.read_text().splitlines(keepends=True)
    append(log, "".join(lines[:3]) + lines[3][:50])
    assert following.look() == []
    append(log, lines[3][50:] + "".join(lines[4:]))
    shutil.copytree(RUN / "rollouts" / "step_13", tmp_path / "rollouts" / "step_13")
    assert [step.step for step in following.look()] == [12]
    assert sorted(len(group.rewards) + group.missing for group in following.groups()) == [3, 3]
    following.shadow.close()


def test_prime_rl_v06_rows_name_group_policy_and_filter():
    log = read(V06)
    kept, filtered, later = log.groups()
    assert (kept.key, kept.step, kept.policy_version, kept.trained) == ("sums::1", 3, "7", True)
    assert (filtered.trained, filtered.rewards) == (False, (1.0, 1.0))
    assert (later.step, later.rewards, later.missing) == (4, (1.0,), 1)
    assert kept.calls == (("add",), ("add",))
    assert (kept.cost.tokens, kept.cost.seconds) == (8.0, 3.0)
    assert set(read(V06 / "step_3").tasks[0].verifier) == set()
    assert len(log.report.notes) == 1
    assert next(read(V06 / "step_4" / "eval_rollouts_sums.jsonl").groups()).task == "8"


def test_openenv_episodes():
    log = read(OPENENV)
    two, three = log.groups()
    assert (two.key, two.rewards, two.policy_version, two.calls) == (
        "maze::maze-2", (0.0, 1.0), "tiny", (("move",), ("move", "move")),
    )  # fmt: skip
    assert (three.task, log.tasks[0].text, log.tasks[0].verifier) == ("maze-3", "Leave maze 2.", "goal")
    assert next(read(OPENENV, reward="turns").groups()).rewards == (1.0, 1.0)


def test_openenv_says_what_it_did_not_keep(tmp_path):
    shutil.copy(OPENENV / "results.jsonl", tmp_path)
    (tmp_path / "metadata.json").write_text('{"env": "maze", "keep_losses": false}')
    assert "reward below 0" in read(tmp_path).report.notes[0]
    (tmp_path / "metadata.json").unlink()
    assert read(tmp_path).tasks[0].env == "openenv"


@pytest.mark.parametrize(
    ("path", "format"),
    [
        (ALL, "traces"),
        (BARE, "traces"),
        (V06 / "step_3" / "train_rollouts.jsonl", "prime-rl"),
        (OPENENV / "results.jsonl", "openenv"),
    ],
)
def test_sniffing_looks_at_content(tmp_path, path, format):
    shutil.copy(path, tmp_path / "anything.bin")
    assert sniff(tmp_path / "anything.bin") == format


@pytest.mark.parametrize("log", [RUN, V06, OPENENV], ids=lambda path: path.name)
def test_the_whole_way_to_the_decision_page(tmp_path, log):
    way = whole_way(log, tmp_path)
    assert way.verdict
    assert way.rollouts[0].messages


def test_what_verifiers_itself_writes(tmp_path):
    v1 = pytest.importorskip("verifiers.v1")
    from verifiers.v1 import episode as e
    from verifiers.v1 import trace as t
    from verifiers.v1 import types as y
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.graph import MessageNode

    task = t.TraceTask(type="T", data=v1.TaskData(idx=0, prompt="Refund order 0"), key="refund-0")
    call = y.ToolCall(id="c", name="refund", arguments="{}")
    nodes = [
        MessageNode(message=y.UserMessage(content="Refund order 0")),
        MessageNode(parent=0, sampled=True, message=y.AssistantMessage(tool_calls=[call]), token_ids=[1], mask=[True]),
        MessageNode(parent=1, message=y.ToolMessage(tool_call_id="c", content="ok")),
    ]
    trace = t.Trace(
        task=task,
        agent=t.AgentInfo(config=WireAgentConfig(model="tiny")),
        tools=[y.Tool(name="refund", parameters={"properties": {"order": {}}})],
        nodes=nodes,
        calls=[t.ModelCall(node=1, usage=y.Usage(prompt_tokens=5, completion_tokens=4))],
        rewards={"db": t.Reward(score=1.0, weight=0.5), "judge": None},
        ok=True,
    )
    work = e.TrainWorkInfo(step=4, policy=e.PolicySpan(start=2, end=3))
    about = {
        "env": e.EnvInfo(id="pkg", name="retail"),
        "task": task,
        "group": e.GroupInfo(id="g"),
        "run": e.TrainRunInfo(id="r", work=work),
    }
    whole = e.Episode(**about, ok=True, traces=[trace])
    failed = e.Episode(**about, errors=[t.Error(type="SandboxError", message="gone")])
    log = read(write(tmp_path / "traces.jsonl", [one.to_record() for one in (whole, failed)]))
    (group,) = log.groups()
    assert (group.key, group.rewards, group.missing, group.step) == ("retail::refund-0", (0.5,), 1, 4)
    assert (group.policy_version, group.calls, log.tasks[0].text) == ("2", (("refund",), ()), "Refund order 0")
    assert log.tasks[0].tools[0].parameters == ("order",)
