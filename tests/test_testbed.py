from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the testbed needs the extra `train`")

from envsched_core.errors import ConfigError
from envsched_core.testbed import WORLDS, World, make_world
from envsched_core.testbed.environments import NEEDED
from envsched_core.testbed.specs import VARIANTS, world_spec
from envsched_core.testbed.tasks import reference_calls
from envsched_core.testbed.tools import FIND, GET, HELP, LINK, OP, VALUE, end_turn, execute, new_database, start_turn
from envsched_core.testbed.words import VALUES_EACH

places = st.integers(0, 439)


@lru_cache
def small() -> World:
    return make_world("small")


def carry_out(world: World, place: int, *, leave_out: int = -1, wrong_value: bool = False) -> int:
    """Turns that end right when the reference calls are made, less one of the first turn's or with a wrong value."""
    task, env = world.tasks[place], world.environments[world.arrays.env[place]]
    base, expected = new_database(task.start), new_database(task.start)
    for turn in range(task.turns):
        ask = task.asks[turn].copy()
        start_turn(base, expected, ask)
        ask[VALUE] = (ask[VALUE] + wrong_value) % VALUES_EACH
        calls = reference_calls(env, ask, first=turn == 0)
        for k, (tool, item, other, value) in enumerate(calls):
            if not (turn == 0 and k == leave_out % len(calls) and leave_out >= 0):
                execute(base, env.flags, env.table[tool], item, other, value)
        if not end_turn(base, expected):
            return turn
    return task.turns


def test_a_world_is_its_name_and_seed():
    again, other = make_world("small"), make_world("small", 1)
    assert again.specs == small().specs != other.specs
    assert all(np.array_equal(a, b) for a, b in zip(again.arrays, small().arrays, strict=True))


@given(places)
def test_the_verifier_accepts_the_reference_solution(place):
    assert carry_out(small(), place) == small().tasks[place].turns


@given(places, st.integers(0, 5))
def test_no_call_of_the_reference_solution_can_be_left_out(place, call):
    assert carry_out(small(), place, leave_out=call) == 0


@given(places)
def test_the_verifier_sees_a_wrong_value(place):
    ops = set(small().tasks[place].asks[: small().tasks[place].turns, OP].tolist())
    writes_a_value = bool(ops & {2, 3})
    assert (carry_out(small(), place, wrong_value=True) < small().tasks[place].turns) == writes_a_value


@given(places, st.data())
def test_reads_never_change_the_database(place, data):
    env, task = small().environments[small().arrays.env[place]], small().tasks[place]
    base = new_database(task.start)
    rows = base.rows.copy()
    for tool in env.table[:-1]:
        if tool[OP] in (FIND, GET, HELP, *NEEDED):
            execute(base, env.flags, tool, data.draw(st.integers(-1, 5)), -1, 0)
    assert np.array_equal(base.rows, rows)


def test_a_scheduler_is_told_no_flags():
    specs = small().specs
    assert len(specs) == len({spec.key for spec in specs}) == 320
    assert {spec.calls for spec in specs} == {None}
    for op, bit in NEEDED.items():
        has_tool = [op in env.table[:, OP] for env in small().environments]
        needs_it = [bool(env.flags >> bit & 1) for env in small().environments]
        assert all(h or not n for h, n in zip(has_tool, needs_it, strict=True))
        assert sum(has_tool) > sum(needs_it), "without decoys the tool list would give the flag away"


def test_templates_break_in_every_environment_and_paths_tell_the_writes_alone():
    world = make_world("X0")
    held_out, verdicts = world.tasks[world.spec.tasks :], {}
    for task in world.tasks[: world.spec.tasks]:
        verdicts.setdefault(tuple(task.asks[: task.turns, OP]), set()).add(task.solvable)
    assert all(len(found) == 1 for found in verdicts.values())
    broken = np.mean([found == {False} for found in verdicts.values()])
    assert 0.35 < broken < 0.65, f"{broken:.0%} of {len(verdicts)} templates"
    assert all(task.solvable for task in held_out)
    assert len(verdicts) > 50
    by_counts: dict[tuple, set] = {}
    for operations, found in verdicts.items():
        by_counts.setdefault(tuple(sorted(operations)), set()).update(found)
    assert {False, True} in by_counts.values(), "the order decides"
    other = make_world("X0", 1)
    there = {tuple(t.asks[: t.turns, OP]): {t.solvable} for t in other.tasks[: other.spec.tasks]}
    assert any(there[operations] != verdicts[operations] for operations in there.keys() & verdicts)
    for place in range(0, world.spec.tasks, 97):
        task, env = world.tasks[place], world.environments[world.arrays.env[place]]
        tools = {tool.name: row for tool, row in zip(env.tools, env.table, strict=False)}
        told = [tools[name][[OP, 2, 4]].tolist() for name in task.spec.calls]
        assert told == task.asks[: task.turns][:, [0, 2, 4]].tolist(), "the writes in order, and nothing for the flags"
    assert all(task.spec.calls is None for task in small().tasks)


def test_environments_are_as_the_spec_says():
    world = make_world("M")
    tools = [len(env.tools) for env in world.environments]
    assert 10 <= min(tools) <= max(tools) <= 28
    sizes = np.sort(np.bincount(world.arrays.env[:4096]))[::-1]
    assert sizes.sum() == 4096
    assert sizes[0] > 20 * sizes[-1] > 0
    assert set(np.bincount(world.arrays.env[4096:])) == {4}
    flags = Counter(env.flags.bit_count() for env in world.environments)
    assert set(flags) == {0, 1, 2, 3, 4}
    assert all(len(np.unique(task.start[:, 0])) == len(world.environments[e].entities) for task, e in _pairs(world))
    assert all((task.start[:, LINK] == -1).all() for task, _ in _pairs(world))


def _pairs(world: World):
    return zip(world.tasks[:200], world.arrays.env[:200], strict=True)


def test_variants_are_changes_of_a_world():
    assert world_spec("M-flaky-graded") == WORLDS["M"]._replace(flaky_share=0.25, graded=True)
    assert {world_spec(f"H-{name}") for name in VARIANTS} - {WORLDS["H"]}
    hard = [env.flags.bit_count() for env in make_world("small-bimodal").environments]
    assert set(hard) <= {0, 1, 3, 4}
    with pytest.raises(ConfigError, match="worlds: M, E"):
        make_world("Q")
    with pytest.raises(ConfigError, match="did you mean 'flaky'"):
        make_world("M-flakey")
