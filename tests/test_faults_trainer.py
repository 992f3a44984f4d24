"""What a trainer may do wrong, in any order: nothing is raised into its loop, all is counted, told and on record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_checks import asked_lines, counted
from scheduler_checks import invented_tasks
from soak import soak

from envsched_core import views
from envsched_core.config import config_from
from envsched_core.errors import ContractError
from envsched_core.live import LiveSession
from envsched_core.records import Pick, TaskSpec
from envsched_core.replay import verify
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunReader, check_chain
from envsched_core.views.counters import meaning

pytestmark = pytest.mark.faults
Tally = Callable[..., None]
CONFIG = config_from(
    {"batch_size": 4, "group_size": 4, "refresh_groups": 12, "expire_after": 3, "dedupe_steps": 40,
     "reward_ranges": {"shop": (0.0, 1.0)}}
)  # fmt: skip
LATE = 50

ACTS = (
    *("step", "answer", "late", "never", "twice", "unknown task", "unknown pick", "not finite", "out of range"),
    *("empty", "group size", "joined", "renamed", "restart", "release twice", "reason", "no mapping", "step back"),
    *("bad step", "bad count", "future", "huge reward"),
)


class Trainer:
    """A loop around one session that does as it is told, and keeps its own count of what should be counted."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.live = LiveSession.create(run, "envsched", CONFIG, snapshot_every=5)
        self.live.register(invented_tasks(4))
        self.step = self.new = 0
        self.open: list[Pick] = []
        self.answered: list[dict[str, Any]] = []
        self.due: Counter[str] = Counter()
        """Least values of counters."""

    def do(self, act: str, size: int) -> None:
        """One act; `size` in [0, 9]."""
        getattr(self, "_" + act.replace(" ", "_"))(size)

    def take(self) -> Pick:
        """An open pick: the oldest, else one of a new step."""
        while not self.open:
            self._step(2)
            if not self.open:  # everything is open or exhausted
                self._renamed(1)
        return self.open.pop(0)

    def give(self, result: Any, *counters: str) -> None:
        """Observe; every counter named grows by one."""
        self.live.observe(result)
        self.due.update(counters)

    def _step(self, size: int) -> None:
        self.step += 1
        picks = self.live.ask(1 + size % 4, step=self.step)
        waiting = self.live.open_picks()
        self.open = [pick for pick in self.open if pick.pick_id in waiting] + list(picks)

    def _answer(self, size: int) -> None:
        pick = self.take()
        result = {"pick_id": pick.pick_id, "env": pick.env, "task": pick.task, "rewards": [0.0, size / 9]}
        self.give(result, "groups/observed")
        self.answered.append(result)

    def _late(self, size: int) -> None:
        pick = self.take()
        self.step += LATE
        self._step(size)
        self.give({"pick_id": pick.pick_id, "rewards": [1.0, 0.0]}, "session/late_result", "picks/expired")
        self.due["observe/too_old"] += 1  # dedupe_steps lie below

    def _never(self, size: int) -> None:
        self.take()
        for _ in range(5):
            self._step(0)
        self.due["picks/expired"] += 1

    def _twice(self, size: int) -> None:
        self._answer(size)
        self.give(self.answered[-1], "session/duplicate_result", "picks/duplicate")

    def _unknown_task(self, size: int) -> None:
        self.new += 1
        self.give(
            {"env": "shop", "task": f"no{size}", "group_id": f"u{self.new}", "rewards": [1]}, "observe/unknown_task"
        )

    def _unknown_pick(self, size: int) -> None:
        self.new += 1
        result = {"pick_id": f"x{self.new}", "env": "shop", "task": "t0", "rewards": [1, 0]}
        self.give(result, "session/unknown_pick_result", "groups/observed")

    def _not_finite(self, size: int) -> None:
        bad = (math.nan, math.inf, -math.inf, None, "x")[size % 5]
        self.give({"pick_id": self.take().pick_id, "rewards": [bad, 1.0]}, "rewards/missing", "session/partial_result")

    def _huge_reward(self, size: int) -> None:
        pick = self.take()
        self.give({"pick_id": pick.pick_id, "rewards": [1e300, 1.0]}, "rewards/missing", "groups/observed")

    def _out_of_range(self, size: int) -> None:
        self.new += 1
        result = {"env": "shop", "task": "t1", "group_id": f"r{self.new}", "rewards": [2.0 + size, 0.0]}
        self.give(result, "groups/observed")
        self._step(0)  # taken in when a later step is asked for
        self.due["rewards/clipped"] += 1

    def _empty(self, size: int) -> None:
        self.give({"pick_id": self.take().pick_id, "rewards": []}, "groups/empty")

    def _group_size(self, size: int) -> None:
        self.give(
            {"pick_id": self.take().pick_id, "rewards": [float(k % 2) for k in range(1 + 7 * size)]}, "groups/observed"
        )

    def _joined(self, size: int) -> None:
        self.new += 1
        self.live.register([TaskSpec(f"env{size}", f"new{self.new}-{k}", text="new") for k in range(size)])

    def _renamed(self, size: int) -> None:
        """The same tasks under other names, in a catalogue that no longer names the old ones."""
        self._restart(size)
        self.new += 1
        self.live.register([TaskSpec("bank", f"{self.new}-t{k}", text="renamed") for k in range(size)])

    def _restart(self, size: int) -> None:
        self.live.close()
        self.live = LiveSession.resume(self.run, snapshot_every=5)
        self.live.register(invented_tasks(4)[: 2 * size])  # some are named no more
        self.open, self.step = [], self.step + 1
        while self.live.scheduler.step < self.step:  # picks without an answer are given back first
            self.open += self.live.ask(9, step=self.step)

    def _release_twice(self, size: int) -> None:
        pick = self.take()
        for _ in range(2):
            self.live.release(pick, "stale")
        self.due.update(["picks/released", "picks/released_unknown", "released/stale"])

    def _reason(self, size: int) -> None:
        self.new += 1
        self.live.release(self.take(), f"error {self.new}: " + "x" * 200 * size)
        self.due["picks/released"] += 1

    def _no_mapping(self, size: int) -> None:
        self.give((7, "text", object(), [{}], {"rewards": 1})[size % 5], "session/bad_result")

    def _step_back(self, size: int) -> None:
        self._step(0)
        self.open += self.live.ask(1, step=self.step - 1)
        self.due["session/step_back"] += 1

    def _bad_step(self, size: int) -> None:
        self.open += self.live.ask(1, step=(None, "x", math.nan, 2.5, 2**70)[size % 5])
        self.due["session/bad_step"] += 1

    def _bad_count(self, size: int) -> None:
        assert self.live.ask((None, -1, "x", 1.5, math.inf)[size % 5], step=self.step) == ()
        self.due["session/bad_count"] += 1

    def _future(self, size: int) -> None:
        pick = self.take()
        self.give({"pick_id": pick.pick_id, "rewards": [0, 1], "step": 10**9}, "groups/observed")


def test_no_misbehaviour_reaches_the_loop_and_all_of_it_is_counted(
    tmp_path_factory: pytest.TempPathFactory, tally: Tally
) -> None:
    done: Counter[str] = Counter()

    @settings(max_examples=20, derandomize=True)
    @given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), min_size=8, max_size=30))
    def law(acts: list[tuple[str, int]]) -> None:
        trainer = Trainer(tmp_path_factory.mktemp("trainer") / "run")
        for act, size in acts:
            trainer.do(act, size)
            done[act] += 1
        found = trainer.live.metrics()
        assert found.get("session/failed_call", 0) == 0
        assert [name for name in ("sink/failures", "sink/lost", "sink/unwritable", "sink/waiting") if found[name]] == []
        short = {name: (found.get(name, 0), least) for name, least in trainer.due.items() if found.get(name, 0) < least}
        assert short == {}
        ends = ("picks/observed", "picks/released", "picks/expired", "picks/open")
        assert found.get("picks/asked", 0) == sum(found.get(name, 0) for name in ends)
        trainer.live.close()
        assert verify(trainer.run).ok
        assert check_chain(trainer.run) == []
        shown = views.session_counts(opened(trainer.run)).table
        assert dict(zip(shown["name"], shown["count"], strict=True)) == trainer.live.metrics()
        assert [name for name in shown["name"] if not meaning(name)] == []

    law()
    assert set(done) == set(ACTS)
    for act, times in done.items():
        tally(f"trainer: {act}", times)


def opened(run: Path) -> views.RunView:
    view = views.RunView(run)
    view.poll()
    return view


def test_a_call_that_is_wrong_itself_is_told_to_the_one_who_made_it() -> None:
    scheduler = EnvSched(CONFIG)
    scheduler.register(invented_tasks(2))
    scheduler.ask(1, step=3)
    for n, step in ((-1, 3), (1, 2), ("x", 3), (1, None)):
        with pytest.raises(ContractError, match="ask"):
            scheduler.ask(n, step=step)  # type: ignore[arg-type]


def test_asks_while_no_task_is_available_give_none(tmp_path: Path, tally: Tally) -> None:
    with LiveSession.create(tmp_path / "run", "envsched", CONFIG) as live:
        assert live.ask(4, step=0) == ()
        live.register([TaskSpec("shop", f"t{k}", draws=1) for k in range(3)])
        picks = [pick for step in range(4) for pick in live.ask(4, step=step)]
        assert len(picks) == 3
        for pick in picks:
            live.observe({"pick_id": pick.pick_id, "rewards": [0, 1]})
        assert [live.ask(4, step=step) for step in range(4, 8)] == [()] * 4
        assert counted(live, "session/failed_call", "picks/observed") == [0, 3]
    assert verify(tmp_path / "run").ok
    tally("ask while no task is available", 8)


def test_tasks_that_vanish_or_change_their_names_are_counted(tally: Tally) -> None:
    tasks = invented_tasks(4)
    before = EnvSched(CONFIG)
    before.register(tasks)
    picks = before.ask(4, step=0).picks
    after = EnvSched(CONFIG)
    renamed = [TaskSpec(task.env, f"{task.task}-v2", task.text) for task in tasks[6:]]
    after.register(tasks[:6] + renamed)
    after.load_state_dict(before.state_dict())
    found = after.metrics()
    assert (found["state/tasks_vanished"], found["state/tasks_joined"]) == (6, 6)
    gone = [pick for pick in picks if pick.key not in {task.key for task in tasks[:6]}]
    assert found.get("picks/released", 0) == len(gone)
    assert len(after.ask(4, step=1).picks) == 4
    tally("tasks removed and renamed between restarts", 12)


def test_many_tasks_may_join_in_mid_run(tmp_path: Path, tally: Tally) -> None:
    many = 100_000
    settings_ = config_from({"batch_size": 4, "group_size": 4})
    with LiveSession.create(tmp_path / "run", "envsched", settings_) as live:
        live.register(invented_tasks(4))
        first = live.ask(2, step=0)
        live.register([TaskSpec(f"env{k % 50}", f"t{k}", text=f"kind {k % 7}") for k in range(many)])
        both = first + live.ask(2, step=0)
        for pick in both:
            live.observe({"pick_id": pick.pick_id, "rewards": [0, 1]})
        assert len(live.ask(4, step=1)) == 4
        assert counted(live, "tasks/registered", "picks/observed", "session/failed_call") == [many + 12, 4, 0]
    assert len(asked_lines(tmp_path / "run")) == 3
    tally("tasks that join in mid-run", many)


def test_reasons_of_release_do_not_fill_the_memory() -> None:
    scheduler = EnvSched(CONFIG)
    scheduler.register(invented_tasks(4))
    for step in range(120):
        (pick,) = scheduler.ask(1, step=step).picks
        scheduler.release([pick.pick_id], f"error {step} " + "x" * 1000)
    named = [name for name in scheduler.counts if name.startswith("released/")]
    assert len(named) == 51
    assert scheduler.counts["released/other"] == 70
    assert max(map(len, named)) < 100


def test_a_long_run_keeps_its_memory(tmp_path: Path, tally: Tally) -> None:
    quarters = list(soak(tmp_path / "run", steps=2000, tasks=100, batch=2))
    objects = [quarter.objects for quarter in quarters[1:]]
    assert max(objects) < 1.02 * min(objects)
    assert quarters[-1].resident < quarters[1].resident + 20 * 2**20
    reader = RunReader(tmp_path / "run")
    assert sum(event.event.kind == "asked" for event in reader.events()) == 2000
    assert (reader.problems, check_chain(tmp_path / "run")) == ([], [])
    tally("steps of a long run", 2000)
