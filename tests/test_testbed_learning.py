from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the testbed needs the extra `train`")

from envsched_core.baselines import FILLING_ROUNDS, make_scheduler
from envsched_core.config import Config
from envsched_core.errors import ConfigError, ContractError, UnknownTaskError
from envsched_core.records import Rollout
from envsched_core.testbed import Learner, World, make_oracle, make_world, train
from envsched_core.testbed.draws import compiled
from envsched_core.testbed.loop import PROBE, advantages
from envsched_core.testbed.optimiser import Adam
from envsched_core.testbed.policy import FEATURES, Player, forget, initial_weights, new_scratch
from envsched_core.testbed.rollout import episode, new_trace, rollout_key

CONFIG = Config(batch_size=8)


@lru_cache
def world_of(name: str) -> World:
    return make_world(name)


@lru_cache
def keys() -> list[str]:
    return list(world_of("small").places)


def learner(name: str = "small", **options: int) -> Learner:
    return Learner(world_of(name), **options)


def log_chance(weights: np.ndarray, place: int, grad: np.ndarray | None = None) -> float:
    """Log chance of one rollout; its gradient is added to `grad`."""
    arrays = world_of("small").arrays
    player = Player(arrays, weights, np.zeros(0) if grad is None else grad, new_scratch())
    key = np.uint64(rollout_key(np.uint64(5), 0, place, 0))
    return episode(player, place, key, 0.0 if grad is None else 1.0, new_trace(arrays)).log_chance


@given(st.integers(0, 439))
@settings(max_examples=15)
def test_gradient_against_finite_differences(place):
    weights, grad = learner().adam.weights, np.zeros(FEATURES + 1)
    log_chance(weights, place, grad)
    for f in np.argsort(-np.abs(grad[:-1]))[::40][:6]:
        step = np.zeros(FEATURES + 1)
        step[f] = 1e-5
        slope = (log_chance(weights + step, place) - log_chance(weights - step, place)) / 2e-5
        assert slope == pytest.approx(grad[f], abs=1e-5)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_advantages_are_normalised_by_group(rewards):
    gains = advantages(np.array(rewards))
    for row, rewards_of_group in zip(gains, rewards, strict=True):
        if len(set(rewards_of_group)) == 1:
            assert (row == 0).all()
        else:
            assert row.mean() == pytest.approx(0, abs=1e-12)
            assert row.std() == pytest.approx(1)


def test_flat_groups_move_nothing():
    one = learner("small-broken")
    broken = [t.spec.key for t in one.world.tasks[:320] if not t.solvable]
    before = one.adam.weights.copy()
    groups = one.rollouts(broken[:10], 0)
    assert {r for g in groups for r in g.rewards} == {0.0}
    assert one.update() == (10, 0, 0.0)
    assert np.array_equal(one.adam.weights, before)


@given(st.lists(st.integers(0, 319), min_size=1, max_size=4, unique=True), st.integers(0, 3))
def test_rollouts_do_not_depend_on_the_batch(chosen, step):
    batch = [keys()[i] for i in chosen]
    together = learner().rollouts(batch, step)
    one = learner()
    one.rollouts(keys()[:3], step)
    apart = [one.rollouts([key], step)[0] for key in reversed(batch)]
    assert together == apart[::-1]


def test_a_saved_learner_carries_on():
    unbroken, first = learner(run_seed=3), learner(run_seed=3)
    for step in range(4):
        unbroken.rollouts(keys()[:16], step)
        unbroken.update()
    for step in range(2):
        first.rollouts(keys()[:16], step)
        first.update()
    second = learner(run_seed=3)
    second.load_state_dict(first.state_dict())
    for step in range(2, 4):
        second.rollouts(keys()[:16], step)
        second.update()
    assert np.array_equal(unbroken.adam.weights, second.adam.weights)
    assert unbroken.evaluate() == second.evaluate()
    with pytest.raises(ContractError):
        learner(run_seed=4).load_state_dict(first.state_dict())


def test_only_named_groups_are_trained_on():
    both, named = learner(), learner()
    both.rollouts(keys()[:4], 0)
    named.rollouts(keys()[:4], 0)
    extra = named.rollouts(keys()[4:8], 0)
    both.update()
    named.update({f"0/{key}" for key in keys()[:4]})
    assert np.array_equal(both.adam.weights, named.adam.weights)
    assert named.transcripts(extra[0])
    named.rollouts(keys()[:1], 1)
    with pytest.raises(ContractError):
        named.transcripts(extra[0])
    with pytest.raises(UnknownTaskError):
        named.rollouts(["retail-00::h0000"], 1)


def test_transcripts_are_messages_of_the_same_rollouts():
    one = learner()
    groups = one.rollouts(keys()[::40], 0)
    for group in groups:
        rollouts = one.transcripts(group)
        assert tuple(r.reward for r in rollouts) == group.rewards
        assert tuple(tuple(c.name for c in r.calls) for r in rollouts) == group.calls
        assert group.cost is not None
        assert sum(len(r.calls) for r in rollouts) == group.cost.tool_calls
        for rollout in rollouts:
            check_messages(one.world, rollout)


def check_messages(world: World, rollout: Rollout) -> None:
    """User, assistant with a call, tool answer, ..., assistant; arguments are those the tool documents."""
    tools = world.tasks[world.places[f"{rollout.env}::{rollout.task}"]].spec.tools
    parameters = {tool.name: set(tool.parameters) for tool in tools}
    assert rollout.messages[0].role == "user"
    assert rollout.messages[-1].role == "assistant"
    for message, answer in zip(rollout.messages, rollout.messages[1:], strict=False):
        for call in message.calls:
            assert set(json.loads(call.arguments)) == parameters[call.name]
            assert answer.role == "tool"
            assert json.loads(answer.content)["result"]


def test_graded_rewards_are_shares_of_turns():
    one = learner("small-graded")
    places = [p for p in range(320) if one.world.arrays.turns[p] == 3][:12]
    groups = one.rollouts([one.world.tasks[p].spec.key for p in places], 0)
    assert {round(3 * r) for g in groups for r in g.rewards} >= {0, 1}
    assert {r for g in groups for r in g.rewards} <= {0.0, 1 / 3, 2 / 3, 1.0}


def test_flaky_tools_fail_now_and_then():
    one = learner("small-flaky")
    flaky = {env.name for env in one.world.environments if env.flaky}
    groups = one.rollouts(list(one.world.places)[::10], 0)
    said = {g.env: 0 for g in groups}
    for group in groups:
        said[group.env] += sum("SERVER_ERROR" in m.content for r in one.transcripts(group) for m in r.messages)
    assert {env for env, count in said.items() if count} <= flaky
    assert sum(said.values())


def test_it_learns_and_runs_repeat():
    def run() -> list[float]:
        curve = train(learner(), make_scheduler("uniform", CONFIG), steps=40, batch_size=8, evaluated=(0, 40))
        assert (curve.rollouts, len(curve.flat)) == (40 * 8 * 8, 40)
        assert 0 < curve.tasks_seen <= 320
        return [*curve.macro.values(), curve.area(), curve.tool_calls]

    first = run()
    assert first == run()
    assert first[1] > first[0] + 0.05


class Loaded:
    """A scheduler whose batches are given."""

    fills_batch = True

    def __init__(self, batches: list[list[str]], trust: SimpleNamespace | None = None) -> None:
        self.batches, self.asked, self.trust = batches, [], trust

    def register(self, tasks: list) -> None:
        pass

    def ask(self, n: int, *, step: int, policy_version: str) -> SimpleNamespace:
        self.asked.append((n, step, policy_version))
        keys = self.batches.pop(0)[:n] if self.batches else []
        return SimpleNamespace(picks=[SimpleNamespace(key=key) for key in keys], trust=self.trust)

    def observe(self, results: list) -> None:
        pass


def mixed_and_flat() -> tuple[list[str], list[str]]:
    """Tasks whose first groups are mixed, and tasks that nobody can solve."""
    one = learner("small-broken")
    groups = one.rollouts(keys(), 0)
    mixed = [g.key for g in groups if len(set(g.rewards)) > 1]
    return mixed, [t.spec.key for t in one.world.tasks[:320] if not t.solvable]


def test_a_filled_batch_is_trained_on_once_it_is_full():
    mixed, flat = mixed_and_flat()
    one = learner("small-broken")
    scheduler = Loaded([[mixed[0], *flat[:2]], [*mixed[1:3], flat[2]], [mixed[3], *flat[3:5]]])
    curve = train(one, scheduler, steps=4, batch_size=3, evaluated=(0, 1, 2, 4))
    assert scheduler.asked[:3] == [(3, 0, "0"), (3, 0, "0"), (3, 1, "1")]
    assert (curve.flat[:2], curve.rollouts) == ((2 / 3, 1 / 3), 9 * 8)
    assert curve.macro[0] == curve.macro[1] != curve.macro[2]  # the first update comes with the second round

    same = learner("small-broken")
    same.rollouts(mixed[:3], 0)
    same.update()
    assert curve.macro[2] == same.evaluate()[0]
    # all rounds of a step together are one update, and a scheduler with nothing left ends the run
    assert curve.updates == 2
    assert list(curve.macro) == [0, 1, 2, 4]


@pytest.mark.parametrize(("within", "cross"), [(0.1, 0.0), (0.0, 0.05)])
def test_trusted_relations_are_told_apart(within, cross):
    scheduler = Loaded([keys()[:2]], SimpleNamespace(tau_within=within, tau_cross=cross))
    curve = train(learner(), scheduler, steps=1, batch_size=2, evaluated=())
    assert (curve.trusted_within, curve.trusted_cross) == (float(within > 0), float(cross > 0))


def test_a_batch_that_never_fills_ends_after_its_rounds():
    _, flat = mixed_and_flat()
    one = learner("small-broken")
    scheduler = Loaded([flat[k : k + 2] for k in range(0, 40, 2)])
    before = one.adam.weights.copy()
    curve = train(one, scheduler, steps=12, batch_size=2, evaluated=(12,))
    assert [step for _, step, _ in scheduler.asked] == [0] * FILLING_ROUNDS + [1] * (12 - FILLING_ROUNDS)
    assert (curve.updates, curve.rollouts) == (0, 12 * 2 * 8)
    assert np.array_equal(one.adam.weights, before)


def test_what_rollouts_share_changes_nothing():
    """A group rolled out together is the same as its rollouts one by one, and as under a memory that is always full."""
    world, weights = world_of("small"), learner().adam.weights
    tasks = np.arange(0, 320, 16)
    right, counts = learner().probe(tasks, 6)
    for forgetful in (False, True):
        player = Player(world.arrays, weights, np.zeros(0), new_scratch())
        for b, task in enumerate(tasks.tolist()):
            for g in range(6):
                forget(player.scratch)
                if forgetful:
                    player.scratch.moments[:] = 1 << 60  # as if all places were taken
                key = np.uint64(rollout_key(learner()._seed(PROBE), 0, task, g))
                end = episode(player, task, key, 0.0, new_trace(world.arrays))
                assert (end.right, end.calls, end.turns) == (right[b, g], *counts[b, g])


def test_adam_is_the_published_rule():
    rng = np.random.default_rng(0)
    start = rng.normal(size=FEATURES + 1)
    one = Adam(start)
    mean, square, weights = np.zeros(FEATURES + 1), np.zeros(FEATURES + 1), start.copy()
    for step in (1, 2, 3):
        gradient = rng.normal(size=FEATURES + 1) * (rng.random(FEATURES + 1) < 0.1)
        gradient[FEATURES] = 0.0
        one.step(gradient.copy())
        mean += (1 - 0.9) * (gradient - mean)
        square += (1 - 0.99) * (gradient * gradient - square)
        weights += 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    assert np.array_equal(one.weights, weights)


def test_compiling_does_without_a_folder_to_keep_code_in(monkeypatch):
    def njit(cache: bool = False):
        def compile_it(function):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return function

        return compile_it

    monkeypatch.setattr("envsched_core.testbed.draws.numba.njit", njit)
    assert compiled(len) is len


def test_oracles_find_mixed_groups():
    flat = {}
    for name in ("uniform", "oracle", "oracle-top"):
        one = learner()
        scheduler = make_scheduler(name, CONFIG) if name == "uniform" else make_oracle(name, CONFIG, one)
        flat[name] = np.mean(train(one, scheduler, steps=12, batch_size=8, evaluated=()).flat)
    assert flat["uniform"] > flat["oracle"] + 0.1 > flat["oracle-top"]
    with pytest.raises(ConfigError):
        make_oracle("orakel", CONFIG, learner())


def cross_correlation(name: str) -> float:
    """Over tasks: success beside its environment's, against that of the same operations in other environments."""
    one = learner(name)
    rng = np.random.default_rng(0)
    for step in range(10):
        one.rollouts([one.world.tasks[i].spec.key for i in rng.permutation(4096)[:32]], step)
        one.update()
    arrays, count = one.world.arrays, 4096
    right, _ = one.probe(np.arange(count), 8)
    success = (right == arrays.turns[:count, None]).mean(axis=1)
    env = arrays.env[:count]
    beside = success - (np.bincount(env, success) / np.bincount(env))[env]
    patterns = [tuple(t.asks[: t.turns, 0]) for t in one.world.tasks[:count]]
    number = {p: k for k, p in enumerate(sorted(set(patterns)))}
    pattern = np.array([number[p] for p in patterns])
    total = np.zeros((len(number), len(one.world.environments), 2))
    np.add.at(total, (pattern, env), np.stack([beside, np.ones(count)], axis=1))
    others = total.sum(axis=1)[pattern] - total[pattern, env]
    told = others[:, 1] > 0
    predicted = others[told, 0] / others[told, 1]
    return float(np.corrcoef(predicted, beside[told])[0, 1])


def test_transfer_is_planted_in_x0_and_absent_in_x1():
    assert cross_correlation("X0") > 0.4
    assert abs(cross_correlation("X1")) < 0.1
    one = learner("X1")
    right, _ = one.probe(np.arange(4096), 4)
    assert right.mean(axis=1).std() > 0.25, "there is something to predict"


def test_trust_in_the_cross_relation_is_found_where_it_is_planted_and_nowhere_else():
    def trusted(world, scheduler):
        asked = make_scheduler(scheduler, Config(batch_size=32))
        return train(learner(world), asked, steps=40, batch_size=32, evaluated=())

    assert trusted("X0", "envsched").trusted_cross > 0.7
    assert trusted("X0", "envsched-shuffled-cross").trusted_cross < 0.3
    assert trusted("X1", "envsched").trusted_cross < 0.3
    uniform = trusted("X0", "uniform")
    assert uniform.trusted_cross == uniform.trusted_within == 0.0


DIGEST = """
import numpy as np
from envsched_core.testbed import Learner, make_world
from envsched_core.testbed.policy import FEATURES, initial_weights
np.seterr(over="ignore")
one = Learner(make_world("small"), weights=initial_weights(), group_size=2)
groups = one.rollouts(list(one.world.places)[::80], 0)
one.update()
print([g.rewards for g in groups], [g.calls for g in groups], round(float(np.abs(one.adam.weights).sum()), 6))
"""


def test_compiled_code_does_what_its_source_says():
    """Also where numba kept the machine code of a function whose callees changed: it looks at one file alone."""
    root = Path(__file__).resolve().parent.parent
    said = []
    for off in ("0", "1"):
        env = {**os.environ, "NUMBA_DISABLE_JIT": off, "PYTHONPATH": str(root)}
        result = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, env=env)
        said.append(result.stdout)
    assert said[0] == said[1] != ""


def test_an_untrained_policy_knows_nothing_of_any_environment():
    weights = initial_weights()
    assert np.count_nonzero(weights) < 50
    assert weights[FEATURES] == 0
