"""Costs: the laws of the head of costs.py, and a scheduler that counts its values per cost."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_checks import encoded, invented_tasks, outcome, picked

from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.costs import MOST_FACTOR, Costs, ExpectedCost, told
from envsched_core.moments import Discount, Group
from envsched_core.records import Cost, GroupResult, TaskSpec

amounts = st.floats(1e-6, 1e6)
weights = st.floats(0.0, 4.0)
VALUE = ("exploitation_variance", "exploitation_usable", "uncertainty")


def make(cost: str = "tokens", tasks=None, **changes):
    values = {"batch_size": 8, "group_size": 4, "refresh_groups": 20, "cost": cost, **changes}
    scheduler = make_scheduler("envsched", config_from(values))
    scheduler.register(invented_tasks() if tasks is None else tasks)
    return scheduler


def costed(decision, price, name: str = "tokens"):
    """The results of a decision at a price of each task's number."""
    return [
        msgspec.structs.replace(result, cost=Cost(**{name: price(int(result.task[1:]))}))
        for result in outcome(decision)
    ]


def run(scheduler, price, steps: int = 5, first: int = 0, name: str = "tokens"):
    decisions = []
    for step in range(first, first + steps):
        decisions.append(scheduler.ask(8, step=step))
        scheduler.observe(costed(decisions[-1], price, name))
    return decisions


def uneven(task: int) -> float:
    return 10.0 * (1 + task * 7 % 5)


# ------------------------------------------------------------------ the factor


@given(st.lists(amounts, min_size=2, max_size=6), amounts, weights)
def test_the_factor_falls_with_the_cost_within_its_bounds(costs, usual: float, weight: float) -> None:
    factor = ExpectedCost(np.sort(costs), usual).factor(weight)
    assert np.all(np.diff(factor) <= 0)
    assert factor.min() >= 1 / MOST_FACTOR - 1e-12
    assert factor.max() <= MOST_FACTOR + 1e-12
    expected = np.clip((usual / np.sort(costs)) ** weight, 1 / MOST_FACTOR, MOST_FACTOR)
    assert np.allclose(factor, expected, rtol=1e-7)


@given(st.lists(amounts, min_size=1, max_size=6), amounts, amounts, weights)
def test_the_unit_of_the_cost_does_not_matter(costs, usual: float, unit: float, weight: float) -> None:
    one = ExpectedCost(np.array(costs), usual).factor(weight)
    other = ExpectedCost(unit * np.array(costs), unit * usual).factor(weight)
    assert np.allclose(one, other, rtol=1e-7)


@given(amounts, weights)
def test_the_usual_cost_is_worth_exactly_nothing(usual: float, weight: float) -> None:
    costs = usual * np.array([1.0, 1.0 + 1e-13, 1.0 - 1e-13])
    assert ExpectedCost(costs, usual).factor(weight).tolist() == [1.0, 1.0, 1.0]


def test_what_is_free_has_the_largest_factor_and_nothing_happens_where_all_is() -> None:
    assert ExpectedCost(np.array([0.0, 1.0]), 1.0).factor(1.0) == pytest.approx([MOST_FACTOR, 1.0])
    assert ExpectedCost(np.zeros(2), 0.0).factor(1.0).tolist() == [1.0, 1.0]


# ------------------------------------------------------------------ what is expected


@pytest.fixture(scope="module")
def registered():
    scheduler = make()
    assert scheduler.graph.within.nnz
    assert scheduler.graph.cross.nnz
    return scheduler


@given(st.data())
def test_expected_costs_lie_between_those_told_and_rise_with_a_tasks_own(registered, data) -> None:
    """Whatever the trust; and what a task costs more is expected of it, all else equal."""
    told_of = data.draw(st.lists(st.tuples(st.integers(0, 35), st.integers(1, 8), amounts), min_size=1, max_size=8))
    tau = data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1)))
    kappa = data.draw(st.floats(0.01, 10))

    def expected(amounts):
        groups = [
            Group(task, 0, size, 0.0, 0.0, 0.0, False, (), size, Cost(tokens=amount))
            for (task, size, _), amount in zip(told_of, amounts, strict=True)
        ]
        costs, env = Costs(registered.config), registered.catalogue.env
        costs.grow(env, 3, registered.graph)
        costs.observe(groups, Discount(registered.config.half_lives), registered.graph)
        return costs.expected(0, slice(None), 1.0, np.full(len(env), kappa), tau)

    cost = expected([amount for *_, amount in told_of])
    each = [registered.config.group_size * amount / size for _, size, amount in told_of]
    sizes = [size for _, size, _ in told_of]
    assert cost.usual == pytest.approx(np.average(each, weights=sizes))
    assert cost.group.min() >= min(each) * (1 - 1e-9)
    assert cost.group.max() <= max(each) * (1 + 1e-9)
    dearer = expected([2 * told_of[0][2], *(amount for *_, amount in told_of[1:])])
    assert dearer.group[told_of[0][0]] > cost.group[told_of[0][0]]


def test_expected_costs_are_those_of_the_formula() -> None:
    """Three tasks without any graph: own, environment's and overall cost by their pseudo-counts."""
    tasks = [TaskSpec("a", "t0"), TaskSpec("a", "t1"), TaskSpec("b", "t0")]
    scheduler = make(
        tasks=tasks,
        half_lives=(0.0,),
        tau_within_grid=(0.0,),
        tau_cross_grid=(0.0,),
        kappa_env_grid=(2.0,),
        kappa_global=0.1,
    )
    told_of = [("a", "t0", (1.0, 0.0), 30.0), ("b", "t0", (1.0, 0.0, 1.0, 1.0), 20.0)]
    scheduler.observe(
        GroupResult(f"g{k}", env, task, rewards, cost=Cost(tokens=amount))
        for k, (env, task, rewards, amount) in enumerate(told_of)
    )
    scheduler.observe([GroupResult("free", "a", "t1", (1.0, 0.0))])
    scheduler.ask(1, step=0)
    usual = 50 / 6
    a, b = (30 + 2 * usual) / (2 + 2), (20 + 2 * usual) / (4 + 2)
    ka, kb = 2.0 * scheduler.predictor.environments(0).concentration
    wanted = [
        (30 + ka * a + 0.1 * usual) / (2 + ka + 0.1),
        (ka * a + 0.1 * usual) / (ka + 0.1),
        (20 + kb * b + 0.1 * usual) / (4 + kb + 0.1),
    ]
    cost = scheduler.predictor.expected_cost()
    assert cost.group == pytest.approx([4 * amount for amount in wanted], rel=1e-12)
    assert cost.usual == pytest.approx(4 * usual, rel=1e-12)


def test_costs_of_failed_rollouts_count_as_rollouts() -> None:
    scheduler = make(tasks=[TaskSpec("a", "t0")])
    scheduler.observe([GroupResult("g", "a", "t0", (1.0, None), missing=2, cost=Cost(tokens=40.0))])
    scheduler.ask(1, step=0)
    assert scheduler.predictor.expected_cost().usual == pytest.approx(4 * 40 / 4)


def test_carried_costs_equal_a_full_pass_and_old_costs_fade_together() -> None:
    scheduler = make(half_lives=(0.0, 1.0))
    run(scheduler, uneven)
    scheduler.ask(1, step=5)
    costs = scheduler.predictor.costs
    incremental = {name: sums.copy() for name, sums in costs.spread.items()}
    costs.carry_all(scheduler.graph)
    assert all(np.allclose(sums, incremental[name], rtol=1e-12) for name, sums in costs.spread.items())
    assert costs.spread["wn"].any()
    before = costs.env_s[1].sum() / costs.env_n[1].sum()
    scheduler.ask(1, step=100)  # beyond 64 half-lives: all sums are scaled back
    assert costs.env_s[1].sum() / costs.env_n[1].sum() == pytest.approx(before, rel=1e-12)
    assert costs.env_n[1].sum() < 1e-9


# ------------------------------------------------------------------ what is picked


@given(st.floats(1e-3, 1e3))
@settings(max_examples=3)
def test_costs_in_another_unit_give_the_same_picks(unit: float) -> None:
    one, other = (run(make(), price, 3) for price in (uneven, lambda task: unit * uneven(task)))
    assert picked(one) == picked(other)
    for a, b in zip(one[-1].candidates, other[-1].candidates, strict=True):
        assert a.terms == pytest.approx(b.terms, abs=1e-8)


def test_equal_costs_change_no_choice() -> None:
    counted, plain = run(make(), lambda task: 12.3), run(make(""), lambda task: 12.3)
    assert picked(counted) == picked(plain)
    for one, other in zip(counted, plain, strict=True):
        for a, b in zip(one.candidates, other.candidates, strict=True):
            assert a.terms.get("cost", 0.0) == 0.0
            assert (a.key, a.score) == (b.key, b.score)


def test_where_no_cost_is_told_nothing_changes() -> None:
    """Not a term, not a number: the same record but for the config's name."""
    counted, plain = run(make("seconds"), uneven), run(make(""), uneven)
    wanted = [msgspec.structs.replace(d, config_digest="") for d in plain]
    assert encoded([msgspec.structs.replace(d, config_digest="") for d in counted]) == encoded(wanted)


def test_without_the_knob_nothing_is_kept() -> None:
    scheduler = make("")
    run(scheduler, uneven)
    assert scheduler.predictor.costs is None
    assert scheduler.predictor.expected_cost() is None
    assert scheduler.state_dict()["predictor"]["costs"] is None
    assert not [name for name in scheduler.metrics() if name.startswith("costs/")]


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
def test_the_term_is_the_value_per_cost_minus_the_value(weight: float) -> None:
    decisions = run(make(weight_cost=weight, weight_task=0.5), uneven)
    seen = 0
    for candidate in (c for decision in decisions[1:] for c in decision.candidates):
        assert sum(candidate.terms.values()) == pytest.approx(candidate.score, abs=1e-9)
        value = sum(candidate.terms.get(name, 0.0) for name in VALUE)
        times = candidate.details["usual_cost"] / candidate.details["expected_cost"]
        factor = min(max(times**weight, 1 / MOST_FACTOR), MOST_FACTOR)
        assert candidate.terms["cost"] == pytest.approx(value * (factor - 1), abs=1e-8)
        seen += candidate.terms["cost"] != 0
    assert seen > 20


@pytest.mark.parametrize("price_of_odd", [0.1, 10.0])
def test_what_costs_less_is_picked_more(price_of_odd: float) -> None:
    tasks = [TaskSpec(f"e{k}", f"t{k}") for k in range(16)]
    scheduler = make(tasks=tasks, batch_size=4, max_share=1.0)
    odd = 0
    for step in range(20):
        decision = scheduler.ask(4, step=step)
        odd += sum(int(pick.task[1:]) % 2 for pick in decision.picks)
        scheduler.observe(
            GroupResult(pick.pick_id, pick.env, pick.task, (1.0, 0.0), cost=Cost(tokens=price))
            for pick in decision.picks
            for price in [price_of_odd if int(pick.task[1:]) % 2 else 1.0]
        )
    assert (odd > 46) if price_of_odd < 1 else (odd < 34)


# ------------------------------------------------------------------ bad costs


@pytest.mark.parametrize(
    ("cost", "counted"),
    [
        (None, "missing"),
        (Cost(), "missing"),
        (Cost(seconds=3.0), "missing"),
        (Cost(tokens=0.0), "known"),
        (Cost(tokens=5), "known"),
        (Cost(tokens=np.float32(5.0)), "known"),
        (Cost(tokens=-1.0), "refused"),
        (Cost(tokens=float("nan")), "refused"),
        (Cost(tokens=float("inf")), "refused"),
        (Cost(tokens=1e308), "refused"),
        (Cost(tokens=10**400), "refused"),
        (Cost(tokens="many"), "refused"),
        ("cheap", "refused"),
    ],
)
def test_costs_of_any_kind_are_counted_and_never_raise(cost, counted: str) -> None:
    scheduler, loaded = make(), make()
    scheduler.observe([GroupResult("g", "shop", "t1", (1.0, 0.0), cost=cost)])
    assert scheduler.metrics()[f"costs/{counted}"] == 1
    loaded.load_state_dict(scheduler.state_dict())  # the result still waits to be taken in
    assert encoded([loaded.ask(4, step=0)]) == encoded([scheduler.ask(4, step=0)])
    known = scheduler.predictor.expected_cost() is not None
    assert known is (counted == "known")
    assert scheduler.predictor.moments.groups.sum() == 1


def test_a_cost_is_told_by_its_name() -> None:
    cost = Cost(tokens=1.0, seconds=-1.0)
    assert [told(cost, name) for name in ("tokens", "seconds", "turns")] == ["known", "refused", "missing"]
    assert told(None, "tokens") == "missing"


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("mid_step", [False, True])
def test_a_loaded_scheduler_goes_on_to_the_last_bit(mid_step: bool) -> None:
    saved, loaded = make(), make()
    run(saved, uneven)
    if mid_step:
        saved.ask(3, step=5)
    loaded.load_state_dict(saved.state_dict())
    assert encoded([saved.ask(3, step=5)]) == encoded([loaded.ask(3, step=5)])
    assert encoded(run(saved, uneven, first=6)) == encoded(run(loaded, uneven, first=6))
    for name in ("n", "s", "env_n", "env_s"):
        ours, theirs = getattr(saved.predictor.costs, name), getattr(loaded.predictor.costs, name)
        assert ours.tobytes() == theirs.tobytes()


def test_costs_are_kept_by_key_over_another_catalogue_and_dropped_with_their_name() -> None:
    saved = make()
    run(saved, uneven)
    saved.ask(1, step=5)
    grown = make(tasks=[TaskSpec("new", "t0"), *invented_tasks()[1:]])
    grown.load_state_dict(saved.state_dict())
    old, new = saved.predictor.costs, grown.predictor.costs
    assert new.n[:, 1:].tolist() == old.n[:, 1:].tolist()
    assert not new.n[:, 0].any()
    other = make("seconds")
    other.load_state_dict(saved.state_dict())
    assert other.predictor.expected_cost() is None
    without, late = make(""), make()
    without.load_state_dict(saved.state_dict())
    assert len(without.ask(2, step=6).picks) == 2
    late.load_state_dict(without.state_dict())  # saved without any
    assert late.predictor.expected_cost() is None


def test_tasks_that_join_are_expected_to_cost_what_their_environment_does() -> None:
    scheduler = make()
    run(scheduler, lambda task: 40.0)
    scheduler.register([TaskSpec("shop", "t99"), TaskSpec("new", "t0")])
    assert scheduler.predictor.expected_cost().group[-2:] == pytest.approx([40.0, 40.0], rel=1e-9)


# ------------------------------------------------------------------ by name


def test_per_cost_counts_tool_calls_and_peers_count_nothing() -> None:
    config = config_from({"cost": "tokens"})
    assert make_scheduler("envsched-per-cost", config).config.cost == "tool_calls"
    assert make_scheduler("envsched", config).config.cost == "tokens"
    assert {make_scheduler(name, config).config.cost for name in ("uniform", "round-robin", "empirical-bayes")} == {""}
    assert make_scheduler("mopps", config).config.cost == ""
    scheduler = make_scheduler("envsched-per-cost", config_from({"batch_size": 8, "group_size": 4}))
    scheduler.register(invented_tasks())
    decisions = run(scheduler, uneven, name="tool_calls")
    assert any(c.terms.get("cost") for c in decisions[-1].candidates)
