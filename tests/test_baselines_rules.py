"""Each published rule against its formula, and what all of them keep over a restart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_checks import drive, encoded, invented_tasks

from envsched_core.baselines import NAMES, Dps, Dump, Greso, LevelReplay, Mopps, Peer, Sec, make_scheduler
from envsched_core.baselines.peer import draw_arms, mean_advantage
from envsched_core.config import config_from
from envsched_core.records import GroupResult, TaskSpec

RULES = [name for name in NAMES if isinstance(make_scheduler(name), Peer)]


def made(name, tasks, **values):
    scheduler = make_scheduler(name, config_from({"batch_size": 8, "group_size": 4, **values}))
    scheduler.register(tasks)
    return scheduler


def catalogue(environments, per_env):
    return [TaskSpec(f"e{e}", f"t{i}") for e in range(environments) for i in range(per_env)]


def teach(scheduler, groups, step=0):
    """Groups (environment, task, rewards) of one step, taken in."""
    scheduler.ask(0, step=step)
    named = [GroupResult(f"{step}.{i:04}", e, t, tuple(map(float, r)), step=step) for i, (e, t, r) in enumerate(groups)]
    scheduler.observe(named)
    scheduler.ask(0, step=step + 1)


def memory(scheduler, name, *index):
    return scheduler.memory[name][index]


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize("count", range(1, 8))
def test_the_mean_advantage_is_that_of_binary_rewards(count):
    p, rewards = count / 8, np.array([1.0] * count + [0.0] * (8 - count))
    assert mean_advantage(rewards) == pytest.approx(2 * np.sqrt(p * (1 - p)) * np.sqrt(7 / 8), rel=1e-5)
    assert mean_advantage(rewards * 100.0) == pytest.approx(mean_advantage(rewards), rel=1e-4)


def test_a_flat_or_single_reward_has_no_advantage():
    assert mean_advantage(np.ones(4)) == mean_advantage(np.zeros(1)) == 0.0


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 4)), max_size=6),
    st.lists(st.floats(0, 1, exclude_max=True), max_size=30),
)
def test_arms_give_what_they_have_and_no_more(arms, draws):
    probability, left = np.array([a for a, _ in arms]), np.array([n for _, n in arms], dtype=np.int64)
    drawn = np.bincount(draw_arms(probability, left, np.array(draws)), minlength=len(arms))
    reachable = np.where(probability > 0, left, 0)
    assert np.all(drawn <= reachable)
    assert drawn.sum() == min(len(draws), reachable.sum())


def test_slots_are_drawn_in_proportion_and_tasks_uniformly():
    scheduler = made("sec", catalogue(2, 100), batch_size=16)
    teach(scheduler, [("e0", "t0", (1, 0, 1, 0))])
    weight = np.exp(memory(scheduler, "quality") / Sec.TEMPERATURE)
    wanted = weight[0] / weight.sum()
    counts = Counter()
    for step in range(2, 202):
        decision = scheduler.ask(16, step=step)
        counts.update(pick.key for pick in decision.picks)
        scheduler.release([pick.pick_id for pick in decision.picks], "test")
    share = sum(n for key, n in counts.items() if key.startswith("e0::")) / 3200
    assert share == pytest.approx(wanted, abs=5 * np.sqrt(wanted * (1 - wanted) / 3200))
    within = np.array([counts[f"e0::t{i}"] for i in range(100)])
    assert np.all(np.abs(within - within.mean()) < 6 * np.sqrt(within.mean()))


def test_an_environment_that_runs_dry_leaves_its_slots_to_others():
    scheduler = made("dump", [*catalogue(1, 3), *[TaskSpec("big", f"t{i}") for i in range(40)]])
    teach(scheduler, [("big", f"t{i}", (1, 1, 1, 1)) for i in range(20)] + [("e0", "t0", (1, 0, 1, 0))])
    count = Counter(pick.env for pick in scheduler.ask(8, step=1).picks)
    assert count == {"e0": 3, "big": 5}


# ---------------------------------------------------------------- the rules


def test_mopps_decays_and_adds():
    scheduler = made("mopps", catalogue(1, 4))
    teach(scheduler, [("e0", "t1", (1, 1, 0, 1))])
    teach(scheduler, [("e0", "t1", (0, 0, 0, 1))], step=1)
    a = 0.5 * (0.5 * 1 + 0.5 + 3) + 0.5 + 1
    b = 0.5 * (0.5 * 1 + 0.5 + 1) + 0.5 + 3
    assert memory(scheduler, "beta", slice(None), 1).tolist() == [a, b]
    assert memory(scheduler, "beta", slice(None), 0).tolist() == [1.0, 1.0]


def test_mopps_and_dps_choose_among_their_candidates():
    for name, rule in (("mopps", Mopps), ("dps", Dps)):
        scheduler = made(name, catalogue(2, 400), batch_size=8)
        assert np.count_nonzero(scheduler._worth().terms["not_a_candidate"] == 0) == 8 * rule.CANDIDATES
        decision = scheduler.ask(8, step=0)
        assert all(p.terms["not_a_candidate"] == 0 for p in decision.candidates if p.kept_as == "pick")


def test_dump_is_a_windowed_mean_and_a_bonus():
    scheduler = made("dump", catalogue(3, 60))
    rewards = [(1, 0, 1, 0) if i % 2 else (1, 1, 1, 1) for i in range(200)]
    teach(scheduler, [("e0", f"t{i % 60}", rewards[i]) for i in range(200)] + [("e1", "t0", (1, 0, 0, 0))])
    values = scheduler._values()
    last = np.concatenate([np.full(4, mean_advantage(np.array(r, dtype=float))) for r in rewards])[-Dump.WINDOW :]
    assert values[0] == pytest.approx(last.mean() + np.sqrt(2 * np.log(805) / 801))
    assert values[1] == pytest.approx(mean_advantage(np.array([1.0, 0, 0, 0])) + np.sqrt(2 * np.log(805) / 5))
    assert values[2] == pytest.approx(np.sqrt(2 * np.log(805)))


def test_sec_moves_by_the_mean_of_the_step():
    scheduler = made("sec", catalogue(2, 4))
    mixed, flat = (1, 1, 0, 0), (1, 1, 1, 1)
    teach(scheduler, [("e0", "t0", mixed), ("e0", "t1", flat)])
    first = 0.5 * mean_advantage(np.array(mixed, dtype=float)) / 2
    assert memory(scheduler, "quality") == pytest.approx([first, 0.0])
    teach(scheduler, [("e0", "t2", flat)], step=1)
    assert memory(scheduler, "quality") == pytest.approx([first / 2, 0.0])


def test_pools_weigh_by_the_latest_group():
    scheduler = made("difficulty-pool", catalogue(1, 6))
    groups = {"t0": (0, 0, 0, 1), "t1": (0, 0, 1, 1), "t2": (0, 1, 1, 1), "t3": (1, 1, 1, 1)}
    teach(scheduler, [("e0", task, rewards) for task, rewards in groups.items()])
    assert scheduler._worth().terms["pool_weight"].tolist() == [0.2, 1.0, 1.0, 0.2, 1.0, 1.0]
    teach(scheduler, [("e0", "t3", (0, 1, 0, 1))], step=1)
    assert scheduler._worth().terms["pool_weight"][3] == 1.0


def test_late_groups_do_not_overrule_newer_ones():
    scheduler = made("difficulty-pool", catalogue(1, 2))
    scheduler.ask(0, step=1)
    late, newer = (GroupResult(i, "e0", "t0", (r,) * 4, step=s) for i, r, s in (("z", 0.0, 0), ("a", 1.0, 1)))
    scheduler.observe([newer, late])
    scheduler.ask(0, step=2)
    assert memory(scheduler, "latest", 0) == 1.0


def test_greso_skips_by_flat_groups_of_one_kind_in_a_row():
    scheduler = made("greso", catalogue(1, 400))
    flat, solved, mixed = (0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1)
    for step, rewards in enumerate([(flat, flat, solved), (flat, solved, solved), (flat, solved, mixed)]):
        teach(scheduler, [("e0", f"t{i}", r) for i, r in enumerate(rewards)], step=step)
    assert memory(scheduler, "streak")[:4].tolist() == [3, 2, 0, 0]
    skipped = np.zeros(4)
    for scheduler.step in range(4, 2004):
        skipped -= scheduler._worth().terms["skipped"][:4] / 2000
    assert skipped[0] == pytest.approx(1 - 0.5**3, abs=0.04)
    assert skipped[1] == pytest.approx(1 - 0.5**2, abs=0.05)
    assert skipped[2] == pytest.approx(0.0) == skipped[3]


def test_greso_adjusts_after_the_first_epoch():
    scheduler = made("greso", catalogue(1, 4))
    flat, solved = (0, 0, 0, 0), (1, 1, 1, 1)
    teach(scheduler, [("e0", f"t{i}", flat) for i in range(4)])
    assert memory(scheduler, "p_hard") == Greso.START
    teach(scheduler, [("e0", f"t{i}", flat) for i in range(4)], step=1)
    assert (memory(scheduler, "p_hard"), memory(scheduler, "p_easy")) == pytest.approx((0.49, 0.51))
    teach(scheduler, [("e0", f"t{i}", solved) for i in range(4)], step=2)
    assert (memory(scheduler, "p_hard"), memory(scheduler, "p_easy")) == pytest.approx((0.50, 0.50))


def test_dps_is_the_published_update_step_by_step():
    scheduler = made("dps", catalogue(1, 3))
    counts, believed, predicted = np.ones((3, 3)), np.full(3, 1 / 3), np.full(3, 1 / 3)
    shown = [(0, 0, 0, 0), (0, 1, 0, 1), None, (1, 1, 1, 1), None]
    state = {(0, 0, 0, 0): 0, (0, 1, 0, 1): 1, (1, 1, 1, 1): 2}
    for step, rewards in enumerate(shown):
        groups = [("e0", "t0", rewards)] if rewards else []
        teach(scheduler, [*groups, ("e0", "t1", (1, 0, 1, 0))], step=step)
        now = np.eye(3)[state[rewards]] if rewards else predicted
        moved = np.outer(now, believed) * counts / counts.sum(axis=0) if rewards else np.zeros((3, 3))
        counts = 0.7 * counts + 0.3 + moved / max(moved.sum(), 1e-12)
        believed, predicted = now, counts / counts.sum(axis=0) @ now
        assert memory(scheduler, "transitions")[:, :, 0] == pytest.approx(counts)
        assert memory(scheduler, "predicted")[:, 0] == pytest.approx(predicted)
    assert memory(scheduler, "predicted")[:, 2] == pytest.approx(np.full(3, 1 / 3))


def test_dps_takes_several_groups_of_a_task_one_after_another():
    once, twice = made("dps", catalogue(1, 2)), made("dps", catalogue(1, 2))
    flat, mixed = (0, 0, 0, 0), (0, 1, 0, 1)
    teach(once, [("e0", "t0", flat)])
    teach(once, [("e0", "t0", mixed)], step=1)
    teach(twice, [("e0", "t0", flat), ("e0", "t0", mixed)])
    assert memory(once, "predicted")[:, 0] == pytest.approx(memory(twice, "predicted")[:, 0])


def test_level_replay_replays_what_had_the_largest_loss():
    scheduler = made("level-replay", catalogue(1, 40), batch_size=4)
    fresh = scheduler.ask(4, step=0)
    scheduler.release([p.pick_id for p in fresh.picks], "test")
    teach(scheduler, [("e0", f"t{i}", (0, 1, 0, 1) if i < 3 else (1, 1, 1, 1)) for i in range(36)], step=1)
    counts = Counter()
    for step in range(3, 203):
        decision = scheduler.ask(4, step=step)
        counts.update(p.task for p in decision.picks)
        scheduler.release([p.pick_id for p in decision.picks], "test")
    unseen = sum(counts[f"t{i}"] for i in range(36, 40)) / 800
    assert unseen == pytest.approx(0.1, abs=0.05)  # nine tenths of the tasks have been seen
    assert min(counts[f"t{i}"] for i in range(3)) > 3 * max(counts[f"t{i}"] for i in range(3, 36))


def test_level_replay_keeps_its_share_for_what_is_old():
    scheduler = made("level-replay", catalogue(1, 120), batch_size=16)
    teach(scheduler, [("e0", f"t{i}", (1, 1, 1, 1)) for i in range(60)])
    teach(scheduler, [("e0", f"t{i}", (0, 1, 0, 1)) for i in range(60, 120)], step=500)
    old = 0
    for step in range(502, 602):
        decision = scheduler.ask(16, step=step)
        old += sum(int(p.task[1:]) < 60 for p in decision.picks)
        scheduler.release([p.pick_id for p in decision.picks], "test")
    # Nearly all of the age lies with the first 60, nearly all of the rank weight with the others.
    assert old / 1600 == pytest.approx(LevelReplay.STALENESS, abs=0.03)


def test_level_replay_waits_until_enough_is_seen():
    scheduler = made("level-replay", catalogue(1, 100), batch_size=4)
    teach(scheduler, [("e0", f"t{i}", (0, 1)) for i in range(int(100 * LevelReplay.RHO) - 1)])
    assert not {p.task for p in scheduler.ask(4, step=1).picks} & {f"t{i}" for i in range(19)}


def test_learnability_takes_half_from_what_was_mixed():
    scheduler = made("learnability", catalogue(1, 200), batch_size=4)
    teach(scheduler, [("e0", f"t{i}", (0, 1, 0, 1) if i < 20 else (0, 0, 0, 1)) for i in range(40)])
    counts = Counter()
    for step in range(2, 202):
        decision = scheduler.ask(4, step=step)
        counts.update(p.task for p in decision.picks)
        scheduler.release([p.pick_id for p in decision.picks], "test")
    best = np.array([counts[f"t{i}"] for i in range(20)])
    assert best.sum() / 800 == pytest.approx(0.5, abs=0.08)
    assert best.min() > 3


# ---------------------------------------------------------------- what all of them keep


@pytest.mark.parametrize("name", RULES)
def test_the_rule_chooses_by_its_own_statistics_alone(name):
    """The graph is not built, no quota binds, and terms are the rule's."""
    scheduler = made(name, invented_tasks())
    decisions = drive(scheduler, 4)
    assert scheduler.graph is None
    assert all(q.limit == 8 for d in decisions for q in d.quotas)
    assert not any(
        t.startswith(("exploitation", "coverage", "uncertainty")) for c in decisions[-1].candidates for t in c.terms
    )


@pytest.mark.parametrize("name", RULES)
def test_tasks_that_vanish_and_join_over_a_restart_keep_the_others_memory(name):
    tasks = invented_tasks()
    saved = made(name, tasks)
    drive(saved, 5)
    kept = [TaskSpec("new", "t0"), *reversed(tasks[6:]), TaskSpec("new", "t1")]
    loaded = made(name, kept)
    loaded.load_state_dict(saved.state_dict())
    for key in [*loaded.TASKS]:
        for task in tasks[6:]:
            was = saved.memory[key][..., saved.catalogue.index[task.key]]
            assert np.array_equal(was, loaded.memory[key][..., loaded.catalogue.index[task.key]], equal_nan=True)
        fill = np.full(loaded.TASKS[key].shape, loaded.TASKS[key].fill)
        assert np.array_equal(loaded.memory[key][..., loaded.catalogue.index["new::t0"]], fill, equal_nan=True)
    for key in loaded.ENVIRONMENTS:
        for env, index in saved.catalogue.env_index.items():
            assert np.array_equal(
                saved.memory[key][..., index], loaded.memory[key][..., loaded.catalogue.env_index[env]]
            )
    assert all(np.array_equal(saved.memory[key], loaded.memory[key]) for key in loaded.NUMBERS)
    assert len(loaded.ask(8, step=6).picks) == 8


@pytest.mark.parametrize("name", RULES)
def test_a_save_right_after_tasks_joined_loads(name):
    saved = made(name, invented_tasks())
    drive(saved, 2)
    saved.register([TaskSpec("new", "t0")])
    loaded = made(name, [*invented_tasks(), TaskSpec("new", "t0")])
    loaded.load_state_dict(saved.state_dict())
    assert encoded(drive(saved, 3, first=2)) == encoded(drive(loaded, 3, first=2))


@pytest.mark.parametrize("name", RULES)
def test_a_refused_registration_changes_nothing(name):
    scheduler = made(name, invented_tasks())
    with pytest.raises(Exception, match="environment"):
        scheduler.register([TaskSpec("new", "t0"), TaskSpec("", "t1")])
    assert encoded(drive(scheduler, 2)) == encoded(drive(made(name, invented_tasks()), 2))
