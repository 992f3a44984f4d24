"""What a trainer may hand to a LiveSession by accident: nothing raises, all of it is counted."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from live_checks import CONFIG, asked_lines, counted, session

from envsched_core.live import LiveSession
from envsched_core.live.intake import as_list, group_from, whole
from envsched_core.records import Cost, GroupResult, Message, Pick, Rollout, TaskSpec
from envsched_core.replay import verify
from envsched_core.store import RunReader


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_whole_numbers_or_none(value):
    number = whole(value)
    assert number is None or (number == value and abs(number) < 2**53)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rewards", "env", "x"]), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(GroupResult.__struct_fields__), JSON))
def test_any_mapping_becomes_a_valid_group_or_none(item):
    picks = {"0.0": Pick("0.0", "shop", "t1", 0)}
    found = group_from(item, picks)
    if found is not None:
        assert msgspec.json.decode(msgspec.json.encode(found[0]), type=GroupResult) == found[0]
        assert all(np.isfinite(found[0].rewards))


def test_whole_records_pass_unchanged():
    group = GroupResult("g", "e", "t", (0.5,), step=3, cost=Cost(tokens=2.0), calls=(("a", "b"),), trained=True)
    assert group_from(group, {}) == (group, True)
    assert [as_list(x) for x in (None, "a", group, ("a", "b"), 3)] == [[], ["a"], [group], ["a", "b"], [3]]


def raising(*_):
    raise RuntimeError("no")


class Odd:
    __str__ = __float__ = __index__ = __int__ = __eq__ = raising
    __hash__ = None


def breaking_off(*items):
    yield from items
    raising()


def test_text_that_cannot_be_written_is_mended_at_intake(tmp_path):
    bad, mended = "a\ud800b", "a\ufffdb"
    with LiveSession.create(tmp_path / "run", "envsched", CONFIG) as live:
        live.register([TaskSpec(bad, bad, text=bad, calls=(bad,))])
        (pick,) = live.ask(1, step=0, policy_version=bad)
        assert (pick.env, pick.task) == (mended, mended)
        rollouts = [Rollout(bad, bad, bad, 0, 1.0, messages=(Message("user", bad),))]
        live.observe(GroupResult(bad, bad, bad, (0.0, 1.0), policy_version=bad, calls=((bad,),)), rollouts)
        live.release(bad, bad)
        live.note(0, {bad: [bad]})
        assert counted(live, "sink/unwritable", "sink/failures", "sink/lost", "picks/observed") == [0, 0, 0, 1]
    events = {e.event.kind: e.event.data for e in RunReader(tmp_path / "run").events()}
    assert events["note"] == {mended: [mended]}
    assert (events["observed"].group_id, len(events["observed"].offsets)) == (mended, 1)
    assert verify(tmp_path / "run").ok


def test_specs_of_the_wrong_types_are_converted_or_passed_over(tmp_path):
    with LiveSession.create(tmp_path / "run", "envsched", CONFIG) as live:
        live.register(TaskSpec("shop", 3))
        live.register([TaskSpec(np.str_("shop"), np.str_("4")), TaskSpec(7, np.int64(5), text=5)])
        live.register(
            [TaskSpec("a::b", "t"), None, TaskSpec("shop", None), TaskSpec("s", "t", tools=3), TaskSpec("", "t")]
        )
        live.register([TaskSpec("s", "t", draws=2**70), TaskSpec("s", "t", draws=-1), 5, TaskSpec("s", Odd())])
        assert list(live.scheduler.catalogue.index) == ["shop::3", "shop::4", "7::5"]
        assert counted(live, "session/bad_task") == [9]
        assert len(live.ask(3, step=0)) == 3
        live.observe({"env": "shop", "task": 3, "group_id": 1, "rewards": [0, 1]})
        live.observe(GroupResult("g", 7, 5, (1.0,)))
        assert counted(live, "picks/observed", "session/bad_result") == [2, 0]
    assert verify(tmp_path / "run").ok


def test_nothing_raises_into_the_loop(tmp_path, monkeypatch):
    with session(tmp_path / "run", extra=raising) as live:
        live.register(None)
        live.register(breaking_off())
        one, two, three = live.ask(3, step=0, policy_version=Odd())
        live.observe(breaking_off({"pick_id": one.pick_id, "rewards": [1, Odd()]}), rollouts=None)
        live.observe({"pick_id": two.pick_id, "rewards": [0], "cost": Odd()}, rollouts=[3, "x"])
        live.observe([{"pick_id": Odd(), "rewards": [1]}, {"env": Odd(), "task": Odd(), "rewards": [1]}], 5)
        live.release([Odd(), None, three], Odd())
        for data in ([1], None, "x", 3):
            live.note(0, data)
        assert [live.save(step) for step in ("x", None, Odd(), 1)] == [False] * 4
        names = ("broken_iterable", "bad_rollout", "bad_result", "bad_release", "bad_note", "bad_step", "extra_failed")
        assert counted(live, *(f"session/{name}" for name in names)) == [2, 2, 2, 2, 4, 3, 1]
        monkeypatch.setattr(live.scheduler, "release", raising)
        live.release(three, "stale")
        assert live.counts["failed_call"] == 1
    assert verify(tmp_path / "run").ok


def test_a_note_of_no_step_is_put_at_the_current_one(tmp_path):
    with session(tmp_path / "run") as live:
        live.ask(1, step=2)
        for step in ("x", 10**30, None, 1):
            live.note(step, {})
    assert [e.event.step for e in RunReader(tmp_path / "run").events() if e.event.kind == "note"] == [2, 2, None, 1]
    assert verify(tmp_path / "run").ok


def test_a_short_answer_to_an_ended_pick_is_evidence(tmp_path):
    with session(tmp_path / "run") as live:
        kept, stale, lost = live.ask(3, step=0)
        live.release(stale, "stale")
        for step in range(1, 4):
            live.ask(1, step=step)
        live.observe({"pick_id": kept.pick_id, "rewards": [0, 1]})
    with LiveSession.resume(tmp_path / "run") as live:
        for pick in (kept, stale, stale, lost):
            live.observe({"pick_id": pick.pick_id, "rewards": [0, 1]})
        assert counted(live, *(f"session/{name}_result" for name in ("late", "duplicate", "bad"))) == [3, 2, 0]
        assert counted(live, "groups/observed") == [3]
    assert verify(tmp_path / "run").ok


def test_a_count_that_is_none_puts_no_decision_on_record(tmp_path):
    with session(tmp_path / "run") as live:
        for n in ("4", True, float("inf"), None, -1, 2.5, Odd(), np.True_):
            assert live.ask(n, step=0) == ()
        assert not live.scheduler.started
        assert [len(live.ask(n, step=0)) for n in (2.0, np.float32(1), np.int8(1))] == [2, 1, 1]
        assert counted(live, "session/bad_count") == [8]
    assert len(asked_lines(tmp_path / "run")) == 3
