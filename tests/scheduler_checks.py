"""The laws of the contract, each a function of a scheduler factory; test_schedulers.py crosses them with every name.

A law takes `make` (a function of config changes that returns a fresh scheduler with the tasks registered)
and raises AssertionError where it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import msgspec
import numpy as np
import pytest

from envsched_core.errors import ContractError, UnknownTaskError
from envsched_core.records import Cost, Decision, GroupResult, TaskSpec, Tool
from envsched_core.scheduler import EnvSched

Make = Callable[..., EnvSched]

TOOLS = {
    "shop": (Tool("get_order"), Tool("update_order"), Tool("refund_payment")),
    "bank": (Tool("get_account"), Tool("transfer_money"), Tool("send_message")),
    "files": (Tool("list_files"), Tool("delete_file"), Tool("move_file")),
}
WORDS = ("return", "refund", "order", "late", "broken", "shirt", "account", "money", "friend", "send", "file", "old")


def invented_tasks(per_env: int = 12) -> list[TaskSpec]:
    """Tasks of three environments with texts, tools and call paths."""
    rng = np.random.default_rng(7)
    tasks = []
    for env, tools in TOOLS.items():
        for i in range(per_env):
            calls = tuple(str(c) for c in rng.choice([t.name for t in tools], size=1 + i % 3))
            text = " ".join(rng.choice(WORDS, size=6))
            tasks.append(TaskSpec(env, f"t{i}", text=text, tools=tools, state=(env,), verifier="db", calls=calls))
    return tasks


def outcome(decision: Decision, *, scale: float = 1.0, shift: float = 0.0, size: int = 4) -> list[GroupResult]:
    """A result for every pick; rewards and cost depend on the task alone."""
    results = []
    for pick in decision.picks:
        ability = (int(pick.task[1:]) * 37 % 11) / 10
        rewards = tuple(shift + scale * float(ability > (k + 0.5) / size) for k in range(size))
        cost = Cost(tool_calls=float(size * (1 + int(pick.task[1:]) % 5)))
        results.append(GroupResult(f"{pick.pick_id}", pick.env, pick.task, rewards, step=decision.step, cost=cost))
    return results


def drive(scheduler: EnvSched, steps: int, *, first: int = 0, n: int = 8, **reward: float) -> list[Decision]:
    """Ask and observe for some steps."""
    decisions = []
    for step in range(first, first + steps):
        decisions.append(scheduler.ask(n, step=step))
        scheduler.observe(outcome(decisions[-1], **reward))
    return decisions


def encoded(decisions: Sequence[Decision]) -> list[bytes]:
    """What is compared byte for byte."""
    return [msgspec.json.encode(d) for d in decisions]


def picked(decisions: Sequence[Decision]) -> list[list[str]]:
    """Keys in pick order."""
    return [[p.key for p in d.picks] for d in decisions]


def statistics(scheduler: EnvSched) -> list[bytes]:
    """Everything evidence lives in."""
    state = scheduler.predictor.state_dict()
    arrays = [*state["moments"].values(), *state["spread"].values(), state["loglik"]]
    return [np.asarray(a).tobytes() for a in arrays]


def check_same_calls_same_decisions(make: Make) -> None:
    """Same tasks, config, seed and calls: byte-identical decisions."""
    assert encoded(drive(make(), 4)) == encoded(drive(make(), 4))


def check_asking_changes_no_statistic(make: Make) -> None:
    """Only the ledger of open picks moves."""
    scheduler = make()
    drive(scheduler, 2)
    scheduler.ask(2, step=2)
    before = statistics(scheduler)
    scheduler.ask(3, step=2)
    assert statistics(scheduler) == before


def check_order_within_a_step(make: Make) -> None:
    """Results of one step may come in any order."""
    seen = []
    for order in list(permutations(range(4)))[::5]:
        scheduler = make()
        results = outcome(scheduler.ask(4, step=0))
        for i in order:
            scheduler.observe([results[i]])
        seen.append(encoded([scheduler.ask(8, step=1)]))
    assert all(s == seen[0] for s in seen)


def check_twice_counts_once(make: Make) -> None:
    """The same group id observed again, now or later, changes nothing but a counter."""
    once, twice = make(), make()
    for scheduler in (once, twice):
        first = outcome(scheduler.ask(8, step=0))
        scheduler.observe(first)
        if scheduler is twice:
            scheduler.observe(first)
        scheduler.ask(8, step=1)
        if scheduler is twice:
            scheduler.observe(first)
    assert encoded([once.ask(8, step=2)]) == encoded([twice.ask(8, step=2)])
    assert twice.metrics()["picks/duplicate"] == 16


def check_unasked_results_are_accepted(make: Make) -> None:
    """Evidence may come from elsewhere; unknown tasks are counted and passed over."""
    scheduler = make()
    scheduler.observe([GroupResult("x", "shop", "t3", (1.0, 0.0), step=0), GroupResult("y", "no", "t", (1.0,))])
    scheduler.ask(4, step=1)
    assert scheduler.predictor.moments.groups.sum() == 1
    assert scheduler.metrics()["observe/unasked"] == 1
    assert scheduler.metrics()["observe/unknown_task"] == 1


def check_n_asks_of_one(make: Make) -> None:
    """One ask of n and n asks of one give the same picks with the same terms."""
    whole, single = make(), make()
    for scheduler in (whole, single):
        drive(scheduler, 2)
    together = whole.ask(8, step=2)
    apart = [single.ask(1, step=2) for _ in range(8)]
    wanted = [(c.key, c.terms, c.score) for c in together.candidates if c.kept_as == "pick"]
    assert [(c.key, c.terms, c.score) for d in apart for c in d.candidates if c.kept_as == "pick"] == wanted


def check_save_and_load(make: Make) -> None:
    """A loaded scheduler goes on as the saved one would have, between steps and in the middle of one."""
    for mid_step in (False, True):
        saved, loaded = make(), make()
        drive(saved, 3)
        if mid_step:
            saved.ask(3, step=3)
        loaded.load_state_dict(saved.state_dict())
        assert encoded([saved.ask(5, step=3)]) == encoded([loaded.ask(5, step=3)])
        assert encoded(drive(saved, 3, first=4)) == encoded(drive(loaded, 3, first=4))


def check_affine_rewards(make: Make) -> None:
    """Rewards on another declared scale, mapped the same: the same picks, terms to 1e-9."""
    plain = drive(make(), 4)
    ranges = {env: (-3.0, 7.0) for env in TOOLS}
    scaled = drive(make(reward_ranges=ranges), 4, scale=10.0, shift=-3.0)
    assert picked(plain) == picked(scaled)
    for one, other in zip(plain, scaled, strict=True):
        for a, b in zip(one.candidates, other.candidates, strict=True):
            assert all(abs(a.terms[t] - b.terms[t]) < 1e-9 for t in a.terms)


def check_memory_is_bounded(make: Make) -> None:
    """A stream ten times longer holds no more."""
    sizes = []
    for steps in (20, 200):
        scheduler = make(dedupe_steps=10, expire_after=5)
        for step in range(steps):
            decision = scheduler.ask(4, step=step)
            scheduler.observe(outcome(decision)[:3])  # one of four never answers
        held = (scheduler.ledger.open, scheduler.ledger.seen, scheduler._decisions, scheduler._pending)
        sizes.append([len(h) for h in held] + [sum(map(len, scheduler.traces.calls.values()))])
    assert all(late <= early + 8 for early, late in zip(*sizes, strict=True))


def check_shares_and_terms(make: Make) -> None:
    """Shares are a split, terms sum to the score, predictions lie where they must."""
    for decision in drive(make(), 4):
        for c in decision.candidates:
            assert min(c.shares.values()) >= 0
            assert abs(sum(c.shares.values()) - 1) < 1e-9
            assert abs(sum(c.terms.values()) - c.score) < 1e-9
            assert 0 <= c.low <= c.high <= 1
            assert 0 < c.mean < 1
            if min(c.mean, 1 - c.mean) * c.rollouts >= 0.5:  # the mean of a Beta more skewed lies where few draws do
                assert c.low <= c.mean <= c.high
            assert 0 <= c.variance <= 0.25
            assert 0 <= c.usable <= 1


def check_quotas(make: Make) -> None:
    """No environment takes more than its share, unless that is on record."""
    for share in (0.34, 0.5):
        scheduler = make(max_share=share, batch_size=8)
        limit = int(np.ceil(scheduler.config.max_share * 8))
        for decision in drive(scheduler, 4):
            relaxed = {r.env for r in decision.relaxed if r.kind == "quota"}
            assert all(q.used <= q.limit <= limit or q.env in relaxed for q in decision.quotas)
            assert len(decision.picks) == len({p.key for p in decision.picks}) == 8


def check_every_pick_ends_once(make: Make) -> None:
    """Asked = observed + released + expired + open."""
    scheduler = make(expire_after=2)
    for step in range(8):
        decision = scheduler.ask(6, step=step)
        scheduler.observe(outcome(decision)[:3])
        scheduler.release([decision.picks[3].pick_id, "nonsense"], "stale")
    m = scheduler.metrics()
    assert m["picks/asked"] == m["picks/observed"] + m["picks/released"] + m["picks/expired"] + m["picks/open"]
    assert m["picks/released_unknown"] == 8


def check_open_picks_are_not_asked_again(make: Make) -> None:
    """A task in flight is left alone until its pick ends."""
    scheduler = make()
    first = {p.key for p in scheduler.ask(8, step=0).picks}
    second = scheduler.ask(8, step=1)
    assert not first & {p.key for p in second.picks}
    assert second.counts["in_flight"] == 8


def check_bad_results_do_not_raise(make: Make) -> None:
    """NaN, infinite, empty and out-of-range rewards are counted, never an exception."""
    scheduler = make(reward_ranges={"shop": (0.0, 1.0)})
    scheduler.ask(4, step=0)
    bad = [(float("nan"), 1.0), (float("inf"),), (), (5.0, -2.0), (0.5,), (None, "x"), (1e308, -1e308), (10**400, 0)]
    scheduler.observe(GroupResult(f"g{i}", "shop", f"t{i}", rewards) for i, rewards in enumerate(bad))
    malformed = [GroupResult(None, "shop", "t1", (1.0,)), "no result", GroupResult("h", "shop", "t1", None)]
    scheduler.observe([*malformed, GroupResult("k", "shop", "t1", (1.0,), step=10**30)])
    scheduler.observe([GroupResult("m", "shop", "t1", (1.0,), missing=10**400)])
    scheduler.ask(4, step=np.int64(1))
    m = scheduler.metrics()
    assert m["rewards/missing"] > 1e15
    assert (m["groups/empty"], m["rewards/clipped"]) == (4, 2)
    assert m["observe/malformed"] == 4


def check_a_slip_in_the_pick_id_ends_no_other_pick(make: Make) -> None:
    """A result answers its own task's pick, whatever id it names."""
    scheduler = make()
    one, other = scheduler.ask(2, step=0).picks
    scheduler.observe([GroupResult("g", one.env, one.task, (1.0, 0.0), pick_id=other.pick_id)])
    assert list(scheduler.ledger.open) == [other.pick_id]
    assert scheduler.metrics()["observe/other_pick"] == 1


def check_wrong_calls_are_told(make: Make) -> None:
    """A step in the past, a negative or broken count: an error that says so, and nothing changes."""
    scheduler = make()
    scheduler.ask(1, step=5)
    before = statistics(scheduler)
    for n, step in ((1, 4), (-1, 6), (1, 6.5), (1, "x"), (1, None), (1, 2**60)):
        with pytest.raises(ContractError):
            scheduler.ask(n, step=step)
    assert statistics(scheduler) == before


def check_loading_over_another_catalogue_in_mid_step(make: Make) -> None:
    """Tasks that joined while a step was open: its picks are kept, its pick ids are not given twice."""
    saved = make()
    first = saved.ask(2, step=0)
    loaded = make(tasks=[TaskSpec("new", "t0"), *invented_tasks()])
    loaded.load_state_dict(saved.state_dict())
    second = loaded.ask(2, step=0)
    both = [*first.picks, *second.picks]
    assert len({p.pick_id for p in both}) == len({p.key for p in both}) == 4
    assert len(loaded.ledger.open) == len(loaded.ledger.by_task) == 4


def check_other_grids_are_refused_other_weights_are_not(make: Make) -> None:
    """What the sums are laid out by cannot change over a restart; weights can."""
    saved = make()
    saved.ask(2, step=0)
    other = make(weight_uncertainty=0.7, batch_size=6)
    other.load_state_dict(saved.state_dict())
    assert len(other.ask(2, step=0).picks) == 2
    with pytest.raises(ContractError, match="half_lives"):
        make(half_lives=(0.0, 3.0, 9.0)).load_state_dict(saved.state_dict())
    with pytest.raises(ContractError, match="format"):
        make().load_state_dict({})
    for number, said in ((1, "older"), (99, "newer")):
        with pytest.raises(ContractError, match=f"format {number} is {said}"):
            make().load_state_dict({**saved.state_dict(), "format": number})


def check_explain_after_news(make: Make) -> None:
    """Explaining the latest step works after its results came and after tasks joined."""
    scheduler = make()
    first = scheduler.ask(2, step=0)
    scheduler.ask(2, step=1)
    scheduler.observe(outcome(first))
    for task in scheduler.catalogue.index:
        assert scheduler.explain(1, task).verdict
    scheduler.register([TaskSpec("new", "t0")])
    with pytest.raises(UnknownTaskError):
        scheduler.explain(1, "new::t0")
    assert scheduler.scores() is None


def check_nothing_left(make: Make) -> None:
    """A pool that is empty or runs dry gives fewer picks and says so; tasks may join in mid-step."""
    empty = make(tasks=[])
    assert not empty.ask(3, step=0).picks
    empty.register(invented_tasks())
    assert len(empty.ask(3, step=0).picks) == 3
    scheduler = make(tasks=[TaskSpec("shop", f"t{i}", draws=1) for i in range(5)])
    assert len(scheduler.ask(3, step=0).picks) == 3
    decision = scheduler.ask(8, step=1)
    assert len(decision.picks) == 2
    assert decision.relaxed[-1].kind == "shortfall"


def check_extreme_knobs_keep_scores_finite(make: Make) -> None:
    """The largest exponents and draw that a config takes, over many visits of few tasks."""
    extreme = {"weight_environment": 10.0, "weight_pattern": 10.0, "weight_task": 10.0, "temperature": 10.0}
    scheduler = make(**extreme, coverage_half_life=0.0, batch_size=4)
    for step in range(40):
        decision = scheduler.ask(4, step=step)
        assert all(np.isfinite([c.score, *c.terms.values()]).all() for c in decision.candidates)
        scheduler.observe(outcome(decision))


CHECKS = [value for name, value in sorted(globals().items()) if name.startswith("check_")]
