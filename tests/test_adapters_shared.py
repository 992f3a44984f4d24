"""Desk, slots, groups and reading: what all adapters stand on."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from adapter_checks import BATCH, CONFIG, GROUP, at_desk, close, killed, observed, on_the_page, picks, rewards, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from envsched_core.adapters.desk import harmless, open_desk
from envsched_core.adapters.groups import Groups, Open, of_tag
from envsched_core.adapters.reading import cost_of, number, task_of, tasks_of, text_in, weighted
from envsched_core.adapters.scheduled import Passes, Scheduled
from envsched_core.adapters.slots import Slots
from envsched_core.errors import ConfigError, ContractError
from envsched_core.records import TaskSpec

ROOT = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------- groups


@given(st.permutations([(g, k) for g in "abc" for k in range(3)]), st.integers(0, 9))
def test_groups_come_out_whole_whatever_the_order_and_the_rest_come_out_short(order, lost):
    out = []
    groups = Groups(3, out.extend, patience=1)
    for g, k in order[: 9 - lost]:
        groups.add(Open(g, "e", g, 0, g), float(k), rollout=k)
        groups.add(Open(g, "e", g, 0, g), 5.0, rollout=k)  # a worker that was restarted says it twice
    assert all(None not in result["rewards"] for result in out)
    groups.turn(1)
    complete = len(out)
    groups.turn(2)
    seen = [g for g, _ in order[: 9 - lost]]
    assert (complete, len(out)) == (sum(seen.count(g) == 3 for g in "abc"), len(set(seen)))
    told = {(r["group_id"], x) for r in out for x in r["rewards"] if x is not None}
    assert told == {(g, float(k)) for g, k in order[: 9 - lost]}
    assert all(len(r["rewards"]) == 3 for r in out)


def test_a_reward_after_its_group_was_delivered_is_late():
    out = []
    groups = Groups(2, out.extend, patience=1)
    for _ in range(3):
        groups.add(Open("g", "e", "t"), 1.0)
    assert (len(out), groups.waiting, groups.counts["late_reward"]) == (1, 0, 1)
    groups.turn(7)
    groups.add(Open("h", "e", "t"), 1.0)  # of no step: of this one
    groups.turn(8)
    assert groups.waiting == 1


def test_a_short_group_ends_its_pick_before_it_expires(tmp_path):
    slots = Slots(at_desk(tmp_path / "run"), tasks_of(rows()))
    slots.report(slots.at(0).group_id, 1.0)
    for step in range(1, 5):
        slots.at(step * BATCH)
    metrics = slots.metrics()
    assert (metrics["picks/observed"], metrics["adapter/short_group"], metrics["rewards/missing"]) == (1, 1, GROUP - 1)
    assert metrics["picks/expired"] == 2 * BATCH - 1
    close(tmp_path / "run")


def test_a_tag_survives_being_carried_as_plain_data():
    of = Open("3/1", "shop", "t1", 3, "3/1")
    assert of_tag({**of.tag(), "more": 1}) == of
    assert of_tag(None) is of_tag("3/1") is of_tag({"group_id": 3}) is None


# ---------------------------------------------------------------- slots


@settings(max_examples=10)
@given(st.permutations(range(5 * BATCH)))
def test_what_an_index_stands_for_does_not_depend_on_the_order_of_fetching(tmp_path_factory, order):
    folder = tmp_path_factory.mktemp("order")
    in_order = Slots(at_desk(folder / "one"), tasks_of(rows()))
    shuffled = Slots(at_desk(folder / "two"), tasks_of(rows()))
    in_order.at(0), shuffled.at(0)
    one = [in_order.at(k) for k in range(5 * BATCH)]
    two = {k: shuffled.at(k) for k in order}
    close(folder / "one"), close(folder / "two")
    assert [two[k] for k in range(5 * BATCH)] == one
    assert len({slot.pick_id for slot in one}) == 5 * BATCH


def test_indices_stand_for_the_same_after_a_kill_and_go_on_as_they_would_have(tmp_path):
    slots = Slots(at_desk(tmp_path / "run"), tasks_of(rows()))
    before = [slots.at(k) for k in range(3 * BATCH)]  # the last batch is prefetched
    slots.observe([slot.result(rewards(slot.task)) for slot in before[: 2 * BATCH]])
    again = Slots(at_desk(killed(tmp_path / "run", tmp_path / "again")), tasks_of(rows()))
    assert [again.at(k) for k in (9, 0, 11)] == [before[k] for k in (9, 0, 11)]
    for each in (slots, again):
        each.observe([slot.result(rewards(slot.task)) for slot in before])  # two thirds of it twice
    after = [[each.at(k) for k in range(2 * BATCH, 5 * BATCH)] for each in (slots, again)]
    assert after[0] == after[1]
    assert after[0][:BATCH] == before[2 * BATCH :]
    assert again.metrics()["picks/duplicate"] == 2 * BATCH
    close(tmp_path / "run"), close(tmp_path / "again")
    assert picks(tmp_path / "run") == picks(tmp_path / "again")


def test_a_trainer_is_always_given_something(tmp_path):
    slots = Slots(at_desk(tmp_path / "run"), tasks_of(rows(3)))
    found = [slots.at(k) for k in range(2 * BATCH)]
    assert [slot.pick_id is None for slot in found] == [False] * 3 + [True] * 5
    assert len({slot.group_id for slot in found}) == 2 * BATCH
    slots.observe([slot.result(rewards(slot.task)) for slot in found])
    slots.at(2 * BATCH)
    assert slots.metrics()["groups/observed"] == 2 * BATCH
    close(tmp_path / "run")


def test_pulls_share_a_step_and_go_back_with_the_trainer(tmp_path):
    slots = Slots(at_desk(tmp_path / "run"), tasks_of(rows()))
    first = slots.pull(3, step=0) + slots.pull(2, step=0)
    saved = slots.state_dict()
    second = slots.pull(4, step=1)
    assert [slot.step for slot in (*first, *second)] == [0] * 5 + [1] * 4
    slots.load_state_dict(saved)
    assert slots.pull(4, step=1) == second
    slots.back_to(1)
    assert slots.pull(2, step=1) + slots.pull(2, step=1) == second
    assert slots.pull(1, step=0)[0].step == 1  # a step gone by is not decided on again
    close(tmp_path / "run")


def test_pulls_after_a_kill_begin_with_what_had_no_answer(tmp_path):
    slots = Slots(at_desk(tmp_path / "run"), tasks_of(rows()))
    first = slots.pull(BATCH, step=0)
    slots.observe([slot.result(rewards(slot.task)) for slot in first[1:3]])
    again = Slots(at_desk(killed(tmp_path / "run", tmp_path / "again")), tasks_of(rows()))
    assert again.still_open() == [first[0], first[3]]
    assert again.pull(2, step=0) == [first[0], first[3]]
    assert again.pull(1, step=0)[0].step == 1  # the interrupted step has its batch
    close(tmp_path / "run"), close(tmp_path / "again")


@pytest.mark.parametrize("at", [0, 4, 8, 20, 24, 28])
def test_a_data_set_read_over_and_over_goes_on_in_its_pass(tmp_path, at):
    length = 6 * BATCH
    passes = Passes(Slots(at_desk(tmp_path / "run"), tasks_of(rows())), 25)
    assert passes.length == length
    numbers = [passes.slot(k % length) for k in range(at)]
    assert [(slot.step, slot.place) for slot in numbers] == [divmod(k, BATCH) for k in range(at)]
    again = Passes(Slots(at_desk(killed(tmp_path / "run", tmp_path / "again")), tasks_of(rows())), 25)
    for k in range(at, at + length + 1):
        slot = again.slot(k % length)
        assert (slot.step, slot.place) == divmod(k, BATCH)
    close(tmp_path / "run"), close(tmp_path / "again")


# ---------------------------------------------------------------- the desk


def test_one_folder_is_one_desk_and_resumes(tmp_path):
    desk = at_desk(tmp_path / "run")
    assert at_desk(tmp_path / "run") is desk
    assert (desk.batch_size, desk.group_size) == (BATCH, GROUP)
    desk.register(tasks_of(rows()))
    (pick,) = desk.ask(1, step=0)
    desk.report(Open("x", pick.env, pick.task, 0, pick.pick_id), 1.0)
    desk.close()
    assert observed(tmp_path / "run")[pick.pick_id].missing == GROUP - 1  # at the end it is observed as far as it is
    back = open_desk(tmp_path / "run")
    assert (back is desk, back.batch_size, on_the_page(tmp_path / "run", 0)) == (False, BATCH, 1)
    back.close()
    with pytest.raises(ConfigError):
        open_desk(tmp_path / "other", {"batch": 3})


def test_tasks_that_came_and_went_over_a_restart_are_told_and_not_picked(tmp_path, caplog):
    tasks = tasks_of(rows())
    slots = Slots(at_desk(tmp_path / "run", {**CONFIG, "batch_size": 8}), tasks)
    first = [slots.at(k) for k in range(8)]
    again = killed(tmp_path / "run", tmp_path / "again")
    close(tmp_path / "run")
    left = [task for task in tasks if task.key != first[0].key][:12]
    slots = Slots(at_desk(again), [*left, TaskSpec("new", "t99")])
    assert slots.changed.appeared == ("new::t99",)
    assert set(slots.changed.vanished) == {t.key for t in tasks} - {t.key for t in left}
    assert "1 appeared, 12 vanished" in caplog.text
    later = {slots.at(k).key for k in range(8, 40)}
    assert later <= {"new::t99", *(task.key for task in left)}
    assert slots.at(0).pick_id is None  # its task is gone: a stand-in, and the pick was given back
    assert slots.metrics()["released/vanished"] >= 1
    close(again)
    back = Slots(at_desk(again), tasks)
    assert back.changed == (tuple(slots.changed.vanished), ("new::t99",))
    assert {back.at(k).key for k in range(40, 60)} & set(slots.changed.vanished)
    close(again)


def test_a_hook_that_fails_is_counted_and_never_raises(tmp_path, caplog):
    @harmless(lambda: 7)
    def hook(value):
        return 1 / value

    assert [hook(0), hook(1), hook(0)] == [7, 1.0, 7]
    assert caplog.text.count("training goes on") == 1
    desk = at_desk(tmp_path / "run")
    assert [value for name, value in desk.metrics().items() if name.endswith("hook")] == [2.0]
    desk.close()


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("given", "found"),
    [
        *((value, 1.0) for value in (1, True, 1.0, np.float32(1), np.array(1.0), [0.25, 0.75], np.array([[0, 1]]))),
        *((value, None) for value in (None, "1", {}, [], float("nan"), float("inf"), [None], [1, "x"], object())),
    ],
)
def test_rewards_of_any_shape(given, found):
    assert number(given) == found


def test_rewards_of_several_functions_are_summed_where_they_apply():
    assert weighted([1.0, None, 0.5], [2.0, 1.0, 4.0]) == 4.0
    assert weighted([None, float("nan")]) is None
    assert weighted([1.0, 2.0]) == 3.0


def test_rows_are_tasks_under_the_names_in_use():
    assert task_of(rows()[3], 3) == TaskSpec("bank", "t3", text="Refund order 3 of the bank.")
    assert task_of({"prompt": "2+2?"}, 7) == TaskSpec("default", "7", text="2+2?")
    tools = [{"type": "function", "function": {"name": "refund", "description": "Refund it"}}, "lookup"]
    assert [t.name for t in task_of({"env": "a::b", "id": 3, "tools": tools}, 0).tools] == ["refund", "lookup"]
    assert task_of({"env": "a::b", "id": 3}, 0).key == "a:b::3"
    twins = tasks_of([{"env": "e", "id": 1}, {"env": "e", "id": 1}, {"env": "e", "id": 2}])
    assert [task.task for task in twins] == ["1#0", "1#1", "2"]
    assert text_in([{"content": [{"type": "text", "text": "x"}]}, {"content": "y"}]) == "y"
    named = tasks_of(rows(2), lambda row, place: TaskSpec("mine", f"{place}"))
    assert [task.key for task in named] == ["mine::0", "mine::1"]


def test_rows_of_one_name_keep_all_that_was_told_of_them():
    told = TaskSpec("a", "t", text="x", verifier="exact", calls=("find",))
    first, second = tasks_of([1, 2], lambda row, place: told)
    assert (first.task, second.task) == ("t#0", "t#1")
    assert (first.verifier, second.calls) == ("exact", ("find",))


def test_a_cost_that_is_not_known_of_every_rollout_is_not_known():
    assert cost_of(tokens=[1, 2.0], seconds=[1.0, None], turns=[]) == {"tokens": 3.0}


def test_importing_the_adapters_imports_no_trainer():
    banned = ["ray", "torch", "trl", "transformers", "accelerate", "verl", "slime", "skyrl", "tinker_cookbook", "art"]
    code = f"import envsched_core.adapters, sys; print([m for m in {[*banned, 'verifiers']} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_what_the_readme_imports_is_there():
    text = (ROOT / "envsched_core" / "adapters" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    found = [node for block in blocks for node in ast.walk(compile(block, "README", "exec", flags))]
    ours = [n for n in found if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("envsched_core")]
    names = [(node.module or "", alias.name) for node in ours for alias in node.names]
    assert len(names) >= 14
    assert all(hasattr(importlib.import_module(module), name) for module, name in names)


def test_an_adapter_without_a_run_says_so():
    with pytest.raises(ContractError, match="set run"):
        Scheduled.open_slots(rows())
