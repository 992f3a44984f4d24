import json
from collections import Counter

import msgspec
import pytest

from envsched_core.baselines import NAMES, make_scheduler
from envsched_core.config import PRESETS, Config
from envsched_core.errors import ConfigError, DamagedError, StoreError, UnknownTaskError
from envsched_core.records import GroupResult, TaskSpec
from envsched_core.replay import (
    batch_for,
    config_for,
    config_of,
    explain_run,
    load_pool,
    next_batch,
    preset_of,
    replay_audit,
    replay_pool,
    sampling_weights,
    verify,
)
from envsched_core.replay.rederive import _rederived
from envsched_core.replay.verify import first_difference
from envsched_core.store import RunReader, RunWriter, new_manifest

ONE_ASK = [name for name in NAMES if not make_scheduler(name).fills_batch]

BATCH, STEPS = 12, 4


@pytest.fixture(scope="module")
def pool(imported_run):
    return load_pool(imported_run)


@pytest.fixture(scope="module")
def config(pool):
    return config_for(pool, {"batch_size": BATCH})


@pytest.fixture(scope="module")
def replayed(pool, config, tmp_path_factory):
    out = tmp_path_factory.mktemp("replayed") / "run"
    return out, replay_pool(pool, out, config=config, steps=STEPS)


def events(run, kind):
    return [event.data for event, *_ in RunReader(run).events() if event.kind == kind]


def write_log(path, groups, **manifest):
    """A run as an import would write it."""
    keys = {(g.env, g.task): None for g in groups}
    with RunWriter.create(path, new_manifest(path.name, "import", **manifest)) as writer:
        writer.add_tasks([TaskSpec(env, task) for env, task in keys])
        writer.observed(groups, None)
    return path


# ---------------------------------------------------------------- pool replay


@pytest.mark.parametrize("scheduler", ONE_ASK)
def test_each_recorded_group_is_revealed_at_most_once(pool, config, scheduler, tmp_path):
    replay_pool(pool, tmp_path / "run", scheduler=scheduler, config=config, steps=STEPS)
    revealed = Counter(group.group_id for group in events(tmp_path / "run", "observed"))
    recorded = {group.group_id: group for group in pool.groups}
    assert set(revealed.values()) == {1}
    assert set(revealed) <= set(recorded)
    assert all(g.rewards == recorded[g.group_id].rewards for g in events(tmp_path / "run", "observed"))


def test_groups_of_a_task_come_in_log_order(pool, replayed):
    by_task: dict[str, list[str]] = {}
    for group in events(replayed[0], "observed"):
        by_task.setdefault(group.key, []).append(group.group_id)
    order = {group.group_id: i for i, group in enumerate(pool.groups)}
    assert all([order[i] for i in ids] == sorted(order[i] for i in ids) for ids in by_task.values())


def test_the_result_is_what_the_events_add_up_to(replayed):
    out, result = replayed
    groups = events(out, "observed")
    assert result.picks == len(groups) == BATCH * STEPS
    assert result.informative_share == sum(len(set(g.rewards)) > 1 for g in groups) / len(groups)
    assert result.rollouts_generated == sum(len(g.rewards) for g in groups)
    assert result.environments_covered == len({g.env for g in groups})
    assert [step.picks for step in result.per_step] == [BATCH] * STEPS


def test_every_group_answers_its_pick(replayed):
    picks = {(p.key, p.pick_id, d.step) for d in events(replayed[0], "asked") for p in d.picks}
    assert {(g.key, g.pick_id, g.step) for g in events(replayed[0], "observed")} == picks


def test_generated_rollouts_are_the_asked_groups_and_nothing_before_them(replayed):
    """No pilot rollouts: the first ask works on an empty history and every group was asked for."""
    out, result = replayed
    decisions = events(out, "asked")
    assert {c.state for c in decisions[0].candidates} == {"prior only"}
    assert result.rollouts_generated == 8 * sum(len(d.picks) for d in decisions)


def test_a_pool_is_drawn_to_its_end_and_that_is_told(imported_run):
    pool = load_pool(imported_run)
    result = replay_pool(pool, config=config_for(pool, {"batch_size": 96, "max_share": 1.0}), steps=50)
    assert result.exhausted
    assert result.picks == len(pool.groups)


def test_the_end_of_a_pool_is_no_step_and_all_agree_on_the_steps(imported_run, tmp_path):
    pool = load_pool(imported_run)
    result = replay_pool(
        pool, tmp_path / "run", config=config_for(pool, {"batch_size": 96, "max_share": 1.0}), steps=50
    )
    report = verify(tmp_path / "run")
    assert result.exhausted
    assert (report.ok, report.steps, report.decisions) == (True, result.steps, result.steps)
    with pytest.raises(UnknownTaskError, match=f"from 0 to {result.steps - 1}$"):
        explain_run(tmp_path / "run", result.steps)


def test_a_small_pool_is_replayed_in_small_batches(tmp_path):
    groups = [GroupResult(f"g{i}", "e", f"t{i}", (0.0, 1.0)) for i in range(35)]
    pool = load_pool(write_log(tmp_path / "small", groups))
    result = replay_pool(pool)
    assert (batch_for(pool), result.batch_size, result.steps) == (4, 4, 9)


def test_a_step_out_of_range_is_refused_with_its_place(tmp_path):
    run = write_log(tmp_path / "log", [GroupResult("g", "e", "t", (0.0, 1.0), step=10**22)])
    with pytest.raises(DamagedError, match=r"seg-000000.jsonl:2: its step is out of range"):
        load_pool(run)
    manifest = new_manifest("asked", "live", scheduler="uniform")
    with RunWriter.create(tmp_path / "asked", manifest) as writer:
        writer.add_tasks([TaskSpec("e", "t")])
        writer.observed([GroupResult("g", "e", "t", (0.0, 1.0), step=10**22)], 0)
    assert "out of range" in verify(tmp_path / "asked").problems[0].message


def test_without_out_the_same_is_found(pool, config, replayed):
    assert replay_pool(pool, config=config, steps=STEPS) == replayed[1]


def test_a_replay_keeps_rollouts_of_its_source(replayed):
    reader = RunReader(replayed[0])
    group = next(g for g in events(replayed[0], "observed") if g.offsets)
    assert [r.reward for r in reader.rollouts(group)] == list(group.rewards)


def test_the_manifest_names_source_config_and_simulation(replayed, config):
    manifest = RunReader(replayed[0]).manifest
    assert manifest.kind == "replay"
    assert manifest.simulated
    assert manifest.source["run_id"] == "pool"
    assert msgspec.convert(manifest.config, Config) == config
    assert (replayed[0] / manifest.source["path"]).resolve().name == "pool"


def test_a_folder_in_use_is_refused(pool, config, replayed):
    with pytest.raises(StoreError):
        replay_pool(pool, replayed[0], config=config, steps=1)


def test_a_run_without_groups_is_refused(tmp_path):
    write_log(tmp_path / "empty", [])
    with pytest.raises(StoreError, match="no observed group"):
        load_pool(tmp_path / "empty")


# ---------------------------------------------------------------- config


def test_config_takes_group_size_and_ranges_from_the_log(pool):
    config = config_for(pool, {"seed": 3})
    assert (config.group_size, config.seed) == (8, 3)
    assert config.reward_ranges["insurance"] == (-1.0, 1.0)
    assert config_for(pool, {"group_size": 2}).group_size == 2


def test_few_environments_keep_a_choice_under_the_quota(pool, tmp_path):
    few = write_log(tmp_path / "few", [GroupResult(f"g{i}", f"e{i}", "t", (0.0, 1.0)) for i in range(3)])
    assert config_for(load_pool(few), {}).max_share == pytest.approx(2 / 3)
    assert config_for(load_pool(few), {"max_share": 0.1}).max_share == 0.1
    assert config_for(pool, {}).max_share == PRESETS["replay"]["max_share"]
    assert config_for(pool, {}, preset="training").max_share == Config().max_share
    assert preset_of(config_for(load_pool(few), {})) == "replay"


def test_observed_ranges_hold_zero_and_one(tmp_path):
    run = write_log(
        tmp_path / "run",
        [GroupResult("g", "e", "t", (0.2, 3.0))],
        reward_ranges={"e": (0.2, 3.0)},
        ranges_observed=True,
    )
    assert config_for(load_pool(run), {}).reward_ranges == {"e": (0.0, 3.0)}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_known_by_name(pool, preset):
    assert preset_of(config_for(pool, {}, preset=preset)) == preset
    assert preset_of(config_for(pool, {"temperature": 0.123}, preset=preset)) == "custom"


def test_an_unknown_preset_is_named(pool):
    with pytest.raises(ConfigError, match="training"):
        config_for(pool, {}, preset="fast")


# ---------------------------------------------------------------- audit


def test_audit_follows_the_log_and_invents_nothing(pool, config, tmp_path):
    result = replay_audit(pool, tmp_path / "run", config=config)
    assert [g.group_id for g in events(tmp_path / "run", "observed")] == [g.group_id for g in pool.groups]
    assert result.rollouts_generated == sum(len(g.rewards) for g in pool.groups)
    assert result.steps_from == f"chunks of {BATCH} groups in log order, since the log has none"
    assert verify(tmp_path / "run").ok


def test_audit_picks_end_as_observed_or_released(pool, config, tmp_path):
    result = replay_audit(pool, tmp_path / "run", config=config, steps=3)
    asked = {p.pick_id for d in events(tmp_path / "run", "asked") for p in d.picks}
    observed = {g.pick_id for g in events(tmp_path / "run", "observed") if g.pick_id}
    released = {i for e in events(tmp_path / "run", "released") for i in e["pick_ids"]}
    assert observed | released == asked
    assert not observed & released
    assert result.overlap == pytest.approx(len(observed) / len(asked))
    assert {e["reason"] for e in events(tmp_path / "run", "released")} == {"audit: not rolled out"}


def test_audit_takes_the_steps_of_the_log(tmp_path):
    groups = [GroupResult(f"g{s}{t}", "e", f"t{t}", (0.0, 1.0), step=s) for s in (4, 7) for t in range(3)]
    result = replay_audit(write_log(tmp_path / "run", groups), config=Config(batch_size=2))
    assert [step.step for step in result.per_step] == [4, 7]
    assert result.steps_from == "those of the log"
    assert result.batch_size == 3


# ---------------------------------------------------------------- verify


@pytest.mark.parametrize("scheduler", ONE_ASK)
def test_a_replay_verifies(pool, config, scheduler, tmp_path):
    replay_pool(pool, tmp_path / "run", scheduler=scheduler, config=config, steps=STEPS)
    report = verify(tmp_path / "run")
    assert report.ok
    assert (report.decisions, report.rounded) == (STEPS, 0)


def test_a_graph_rebuilt_in_mid_run_verifies(pool, tmp_path):
    config = config_for(pool, {"batch_size": BATCH, "refresh_groups": BATCH})
    replay_pool(pool, tmp_path / "run", config=config, steps=STEPS)
    assert len(RunReader(tmp_path / "run").graph_versions()) == STEPS
    assert verify(tmp_path / "run").ok


def test_an_import_has_its_chain_checked(imported_run):
    report = verify(imported_run)
    assert report.ok
    assert report.decisions == 0


def copy_with(run, out, change):
    """The same run, written anew with changed events, so that its hash chain holds."""
    reader = RunReader(run)
    with RunWriter.create(out, reader.manifest) as writer:
        writer.add_tasks(reader.tasks())
        writer.add_graph(reader.graph(1), 0)
        for event, *_ in reader.events():
            if event.kind == "asked":
                writer.asked(change(event.data))
            elif event.kind == "observed":
                writer.observed([change(event.data)], event.step)
    return out


def test_a_forged_decision_is_found_behind_a_whole_chain(replayed, tmp_path):
    def change(data):
        if getattr(data, "candidates", None) and data.step == 2:
            forged = msgspec.structs.replace(data.candidates[1], score=data.candidates[1].score + 0.5)
            return msgspec.structs.replace(data, candidates=(data.candidates[0], forged, *data.candidates[2:]))
        return data

    report = verify(copy_with(replayed[0], tmp_path / "forged", change))
    (found,) = report.problems
    assert not report.ok
    assert (found.step, found.field) == (2, "candidates[1].score")
    assert found.task == events(replayed[0], "asked")[2].candidates[1].key


def test_a_forged_reward_shows_in_the_next_decision(replayed, tmp_path):
    def change(data):
        flip = isinstance(data, GroupResult) and data.pick_id == "1.0"
        return msgspec.structs.replace(data, rewards=tuple(1 - r for r in data.rewards)) if flip else data

    report = verify(copy_with(replayed[0], tmp_path / "forged", change))
    assert not report.ok
    assert report.problems[0].step == 2


def test_one_changed_digit_names_line_step_and_task(replayed, tmp_path):
    run = copy_with(replayed[0], tmp_path / "run", lambda data: data)
    segment = run / "events" / "seg-000000.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"kind":"observed"' in line)
    data = json.loads(lines[at])["data"]
    lines[at] = lines[at].replace(b'"rewards":[', b'"rewards":[9', 1)
    segment.write_bytes(b"".join(lines))
    report = verify(run)
    assert not report.ok
    found = report.problems[0]
    assert (found.segment, found.line, found.step) == ("events/seg-000000.jsonl", at + 1, 0)
    assert found.task == f"{data['env']}::{data['task']}"


def test_a_changed_digit_of_a_decision_names_task_and_field(replayed, tmp_path):
    run = copy_with(replayed[0], tmp_path / "run", lambda data: data)
    segment = run / "events" / "seg-000000.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if b'"kind":"asked"' in line][1]
    third = json.loads(lines[at])["data"]["candidates"][2]
    value = str(third["rollouts"]).encode()
    before, after = lines[at].split(b'"task":"' + third["task"].encode(), 1)
    changed = value[:-1] + (b"1" if value[-1:] != b"1" else b"2")
    lines[at] = before + b'"task":"' + third["task"].encode() + after.replace(value, changed, 1)
    segment.write_bytes(b"".join(lines))
    found = verify(run).problems[0]
    assert (found.line, found.step, found.task) == (at + 1, 1, f"{third['env']}::{third['task']}")
    assert found.field == "candidates[2].rollouts"


def test_rounding_of_another_processor_is_no_difference():
    assert first_difference({"a": [1.0]}, {"a": [1.0 + 1e-12]}) is None
    assert first_difference({"a": [1.0]}, {"a": [1.0 + 1e-6]}) == ("a[0]", "1.0", "1.000001")
    assert first_difference({"a": [1]}, {"a": [1, 2]}) == ("a", "1 entries", "2 entries")
    assert first_difference({"a": 1}, {"b": 1}) == ("a", "1", "absent")


# ---------------------------------------------------------------- explain and next


def test_explain_answers_from_the_record_for_picks(replayed):
    found = explain_run(replayed[0], 1)
    assert [e.candidate.position for e in found] == list(range(BATCH))
    assert {(e.picked, e.source) for e in found} == {(True, "recorded")}


def test_explain_recomputes_what_is_not_on_record(pool, replayed):
    on_record = {c.key for d in events(replayed[0], "asked") if d.step == 3 for c in d.candidates}
    other = next(task.key for task in pool.tasks if task.key not in on_record)
    (found,) = explain_run(replayed[0], 3, other)
    assert found.source == "re-derived"
    assert not found.picked
    assert found.verdict.startswith(other)


def test_recomputing_gives_the_recorded_numbers(replayed):
    recorded = explain_run(replayed[0], 2)[0]
    again = _rederived(RunReader(replayed[0]), 2, recorded.candidate.key)
    assert again.candidate == recorded.candidate


def test_explain_names_what_is_there(replayed, imported_run):
    with pytest.raises(UnknownTaskError, match="from 0 to 3"):
        explain_run(replayed[0], 99)
    with pytest.raises(UnknownTaskError, match="nope::1"):
        explain_run(replayed[0], 0, "nope::1")
    with pytest.raises(UnknownTaskError, match="envsched replay"):
        explain_run(imported_run, 0)


@pytest.mark.parametrize("which", ["imported_run", "replayed"])
def test_next_batch_uses_all_that_was_observed(which, request):
    run = request.getfixturevalue(which)
    pool = load_pool(run if which == "imported_run" else run[0])
    decision, _ = next_batch(pool, 10)
    assert len(decision.picks) == 10
    assert "own history" in {c.state for c in decision.candidates}
    assert preset_of(config_of(pool, {})) == ("training" if which == "imported_run" else "replay")


def test_weights_cover_every_task_and_sum_to_one(pool):
    _, scheduler = next_batch(pool, 8)
    weights = sampling_weights(scheduler, pool.tasks)
    assert [(w.env, w.task) for w in weights] == [(t.env, t.task) for t in pool.tasks]
    assert sum(w.weight for w in weights) == pytest.approx(1)
    assert min(w.weight for w in weights) >= 0
