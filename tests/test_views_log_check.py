from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import catalogue, opened, write_log, write_run
from store_runs import decision

from envsched_core import views
from envsched_core.live import LiveSession
from envsched_core.records import Event, GroupResult
from envsched_core.store import RunWriter, new_manifest
from envsched_core.views.log_check import counted
from envsched_core.views.pick_ends import PickEnds

SEGMENT = "events/seg-000000.jsonl"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("check") / "demo", last_open=True)


@pytest.fixture
def copy(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def status(found: views.LogCheck) -> dict[str, str]:
    return dict(zip(found.rules["rule"], found.rules["status"], strict=True))


def test_a_sound_run_holds_and_says_how_far_it_is(run):
    told: list[float] = []
    found = views.check_log(opened(run), lambda share, what: told.append(share))
    said = status(found)
    assert found.whole
    assert said.pop("every pick has ended") == "noted"
    assert said.pop("what expires was asked for") == "nothing to check"
    assert set(said.values()) == {"holds"}
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert (len(found.problems), len(found.gaps)) == (0, 0)
    assert dict(zip(found.kinds["kind"], found.kinds["events"], strict=True))["asked"] == 4
    assert found.segments["last"].iloc[0] == found.events - 1
    assert found.waits.to_numpy().tolist() == [[0, 23]]


def test_a_changed_line_breaks_the_chain_where_it_stands(copy):
    lines = (copy / SEGMENT).read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"kind":"observed"' in line)
    lines[at] = lines[at].replace(b'"missing":0', b'"missing":1').replace(b'"tokens":400.0', b'"tokens":401.0')
    (copy / SEGMENT).write_bytes(b"".join(lines))
    found = views.check_log(opened(copy))
    assert not found.whole
    assert status(found)["hash chain: every line is as it was written"] == "broken"
    problem = found.problems.iloc[0]
    assert (problem["file"], problem["line"], problem["offset"]) == (SEGMENT, at + 1, sum(map(len, lines[:at])))


def test_a_line_that_is_gone_leaves_a_gap(copy):
    lines = (copy / SEGMENT).read_bytes().splitlines(keepends=True)
    (copy / SEGMENT).write_bytes(b"".join([*lines[:4], *lines[6:]]))
    found = views.check_log(opened(copy))
    assert found.gaps[["line", "after", "event", "missing"]].to_numpy().tolist() == [[5, 3, 6, 2]]
    assert status(found)["event numbers go on by one"] == "broken"


def test_an_unreadable_line_and_a_torn_tail(copy):
    lines = (copy / SEGMENT).read_bytes().splitlines(keepends=True)
    (copy / SEGMENT).write_bytes(b"".join([*lines[:4], b"\x00\xff\n", *lines[4:], b'{"v":1']))
    found = views.check_log(opened(copy))
    said = status(found)
    assert (said["every line can be read"], said["the last line is whole"]) == ("broken", "noted")
    assert (SEGMENT, 5) in list(zip(found.problems["file"], found.problems["line"], strict=True))
    assert found.segments["lines"].iloc[0] == found.segments["events"].iloc[0] + 1


def test_changed_files_beside_the_events(copy):
    text = (copy / "tasks.jsonl").read_text(encoding="utf-8")
    (copy / "tasks.jsonl").write_text(text.replace("flight 5", "flight 6"), encoding="utf-8")
    (copy / "scores" / "1.npz").write_bytes(b"")
    found = views.check_log(opened(copy))
    said = status(found)
    assert said["digests of manifest, catalogue and graphs"] == "broken"
    assert said["scores of every task fit the catalogue"] == "broken"
    assert found.problems["file"].tolist() == ["tasks.jsonl"]


def test_steps_that_go_back_are_broken_for_decisions_and_noted_for_results(tmp_path):
    with RunWriter.create(tmp_path / "r", new_manifest("r", "replay", scheduler="envsched")) as writer:
        writer.add_tasks(catalogue(envs=1))
        writer.asked(decision(5))
        writer.observed([GroupResult("a", "env0", "task-1", (1.0,), step=5)], 5)
        writer.observed([GroupResult("b", "env0", "task-1", (1.0,), step=4)], 4)
    said = status(views.check_log(opened(tmp_path / "r")))
    assert said["decisions come in the order of their steps"] == "holds"
    assert said["results come in the order of their steps"] == "noted"
    with RunWriter.resume(tmp_path / "r") as writer:
        writer.asked(decision(3))
    found = views.check_log(opened(tmp_path / "r"))
    said = status(found)
    assert said["decisions come in the order of their steps"] == "broken"
    assert said["every pick has an id of its own"] == "broken"
    assert "step 3 after step 5" in " ".join(found.rules["first"])


def test_logs_without_decisions_have_nothing_to_check_of_picks(tmp_path):
    found = views.check_log(opened(write_log(tmp_path / "log")))
    assert status(found)["every pick ends once"] == "nothing to check"
    assert (found.whole, found.counters_step, len(found.counters)) == (True, None, 0)


def test_the_schedulers_own_counts_come_from_the_newest_sound_snapshot(tmp_path):
    with LiveSession.create(tmp_path / "live", snapshot_every=1) as session:
        session.register(catalogue(envs=2))
        for step in range(3):
            picks = session.ask(2, step=step)
            session.observe([{"pick_id": pick.pick_id, "rewards": [0.0, 1.0]} for pick in picks])
    view = opened(tmp_path / "live")
    newest = view.reader.state_steps()[-1]
    step, table = counted(view)
    counts = dict(zip(table["name"], table["count"], strict=True))
    assert (step, counts["groups/observed"], counts["rewards/clipped"]) == (newest, 2 * newest, 0)
    (tmp_path / "live" / "state" / f"{newest}.npz").write_bytes(b"torn")
    assert counted(view)[0] != newest


def test_every_decision_is_derived_again(run, copy):
    told: list[str] = []
    found = views.verify_run(opened(run), lambda share, what: told.append(what))
    assert (found.ok, found.decisions, len(found.problems)) == (True, 4, 0)
    assert told
    lines = (copy / SEGMENT).read_bytes()
    (copy / SEGMENT).write_bytes(lines.replace(b'"score":', b'"score":1', 1))
    bad = views.verify_run(opened(copy))
    assert bad.ok is False
    assert bad.problems["file"].iloc[0] == SEGMENT


def test_a_run_that_cannot_be_derived_says_why(run, tmp_path):
    with RunWriter.create(tmp_path / "r", new_manifest("r", "replay", scheduler="no such scheduler")) as writer:
        writer.add_tasks(catalogue(envs=1))
    found = views.verify_run(opened(tmp_path / "r"))
    assert found.ok is None
    assert "no such scheduler" in found.said


def event(kind: str, step: int | None, data: object) -> Event:
    return Event(0, kind, step, data, "")


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("asked"), st.integers(1, 3)),
        st.tuples(st.just("observed"), st.integers(0, 12)),
        st.tuples(st.just("released"), st.integers(0, 12)),
    ),
    max_size=25,
)


@given(CALLS)
def test_every_pick_is_open_or_has_ended_once(calls):
    ends, total = PickEnds(), 0
    for number, (kind, n) in enumerate(calls):
        if kind == "asked":
            found = decision(number, picks=n)
            renamed = [{**c, "pick_id": f"p{total + i}"} for i, c in enumerate(_plain(found))]
            ends.take(event("asked", number, _with(found, renamed)))
            total += n
        elif kind == "observed":
            ends.take(event("observed", number, GroupResult(f"g{number}", "shop", "t0", (1.0,), pick_id=f"p{n}")))
        else:
            ends.take(event("released", number, {"pick_ids": [f"p{n}"], "reason": "stale"}))
    assert ends.asked == total == len(ends.open) + len(ends._ended)
    assert not set(ends.open) & ends._ended
    assert sum(ends.waits.values()) <= ends.results
    assert ends.same_id == 0
    assert all(wait >= 0 for wait in ends.waits)


def _plain(found) -> list[dict]:
    return [{name: getattr(c, name) for name in c.__struct_fields__} for c in found.candidates]


def _with(found, candidates: list[dict]):
    kind = type(found.candidates[0])
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    return type(found)(**{**fields, "candidates": tuple(kind(**c) for c in candidates)})


def test_odd_ends_are_told_apart():
    ends = PickEnds()
    ends.take(event("asked", 0, decision(0, picks=2)))
    ends.take(event("observed", 1, GroupResult("a", "shop", "t0", (1.0,), pick_id="p0")))
    ends.take(event("observed", 2, GroupResult("b", "shop", "t0", (1.0,), pick_id="p0")))
    ends.take(event("observed", 2, GroupResult("b", "shop", "t0", (1.0,), pick_id="p0")))
    ends.take(event("released", 2, {"pick_ids": ["p0", "never"], "reason": ""}))
    ends.take(event("released", 2, {"pick_ids": "p1"}))
    assert (ends.again, ends.unknown, ends.results, list(ends.open)) == (2, 1, 2, ["p1"])
    assert ends.first == {"same_id": "", "again": "p0", "never_asked": "", "unknown": "never"}
    assert dict(ends.waits) == {1: 1}
