"""The peers do what their names say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scheduler_checks import drive, invented_tasks, outcome, picked

from envsched_core.baselines import NAMES, REFERENCES, expand, make_scheduler
from envsched_core.baselines.ablations import CHANGES
from envsched_core.config import Config, config_from
from envsched_core.errors import ConfigError
from envsched_core.records import GroupResult, TaskSpec


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ConfigError, match="empirical-bayes"):
        make_scheduler("magic")
    with pytest.raises(ConfigError, match="did you mean 'mopps'"):
        make_scheduler("mops")
    with pytest.raises(ConfigError, match="true variance"):
        make_scheduler("oracle")


@pytest.mark.parametrize("name", NAMES)
def test_a_scheduler_bears_its_name(name: str) -> None:
    assert make_scheduler(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_the_config_on_record_makes_the_same_scheduler(name: str) -> None:
    config = make_scheduler(name, config_from({"seed": 3})).config
    assert make_scheduler(name, config).config == config


def test_groups_and_lists_expand() -> None:
    assert expand("peers")[:2] == ("envsched", "uniform")
    assert expand("peers")[-1] == "oracle"
    assert not any(name.startswith(("envsched-", "dapo-")) for name in expand("peers"))
    assert set(expand("all")) == {*NAMES, *REFERENCES}
    assert expand(" sec, uniform,sec ") == ("sec", "uniform")
    assert expand("envsched-no-cross,peers") == ("envsched-no-cross", *expand("peers"))


@pytest.mark.parametrize(
    ("names", "said"),
    [("", "no scheduler named"), (" , ", "no scheduler named"), ("peer", "'peers'"), ("dum,uniform", "'dump'")],
)
def test_wrong_lists_are_told(names: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        expand(names)


def test_two_fill_their_batch() -> None:
    assert {name for name in NAMES if make_scheduler(name).fills_batch} == {"dapo", "dapo-envsched"}


def test_dapo_chooses_as_uniform_and_as_envsched() -> None:
    for name, other in (("dapo", "uniform"), ("dapo-envsched", "envsched")):
        one, two = (make_scheduler(n, config_from({"batch_size": 8})) for n in (name, other))
        for scheduler in (one, two):
            scheduler.register(invented_tasks())
        assert picked(drive(one, 3)) == picked(drive(two, 3))


def test_what_is_asked_again_in_a_step_is_new() -> None:
    scheduler = make_scheduler("dapo-envsched", config_from({"batch_size": 8}))
    scheduler.register(invented_tasks())
    asked: list[str] = []
    for _ in range(5):  # 36 tasks: the fifth round finds four left
        decision = scheduler.ask(8, step=0)
        scheduler.observe(outcome(decision))
        asked += [p.key for p in decision.picks]
    assert len(asked) == len(set(asked)) == 36


@pytest.mark.parametrize("name", CHANGES)
def test_an_ablation_differs_from_envsched_by_its_knobs_alone(name: str) -> None:
    config = make_scheduler(name).config
    changed = {k for k in Config.__struct_fields__ if getattr(config, k) != getattr(Config(), k)}
    assert changed <= set(CHANGES[name])
    assert changed


def test_without_coverage_or_penalty_their_terms_are_gone() -> None:
    def terms(name: str) -> set[str]:
        scheduler = make_scheduler(name, config_from({"batch_size": 12}))
        scheduler.register(invented_tasks())
        return {t for d in drive(scheduler, 3, n=12) for c in d.candidates for t, value in c.terms.items() if value}

    everything = terms("envsched")
    assert everything - terms("envsched-no-coverage") == {t for t in everything if t.startswith("coverage")}
    assert everything - terms("envsched-no-penalty") == {"similarity_penalty"}
    assert terms("envsched-exploit-only") <= {"exploitation_variance", "exploitation_usable", "tie_break"}


@pytest.mark.parametrize("relation", ["within", "cross"])
def test_without_a_relation_it_has_no_share(relation: str) -> None:
    scheduler = make_scheduler(f"envsched-no-{relation}", config_from({"batch_size": 8, "refresh_groups": 16}))
    scheduler.register(invented_tasks())
    shares = [c.shares[relation] for d in drive(scheduler, 5) for c in d.candidates]
    assert not any(shares)


def test_uniform_draws_every_task_alike() -> None:
    scheduler = make_scheduler("uniform", config_from({"batch_size": 4}))
    scheduler.register([TaskSpec("e", f"t{i}") for i in range(8)])
    counts: Counter[str] = Counter()
    for step in range(1000):
        for pick in scheduler.ask(4, step=step).picks:
            counts[pick.key] += 1
            scheduler.release([pick.pick_id], "test")
    # 500 expected each, sd 16: five sds leave no room for a wrong draw and none for a flaky test.
    assert all(abs(counts[f"e::t{i}"] - 500) < 80 for i in range(8))


def test_round_robin_takes_turns() -> None:
    scheduler = make_scheduler("round-robin", config_from({"batch_size": 6}))
    scheduler.register(invented_tasks(8))
    decisions = drive(scheduler, 4, n=6)
    for decision in decisions:
        assert set(Counter(p.env for p in decision.picks).values()) == {2}
    assert len({p.key for d in decisions for p in d.picks}) == 24


def test_empirical_bayes_takes_the_best_environment_first() -> None:
    scheduler = make_scheduler("empirical-bayes", config_from({"batch_size": 8, "max_share": 0.5}))
    scheduler.register([TaskSpec(f"e{e}", f"t{i}") for e in range(4) for i in range(20)])
    rng = np.random.default_rng(0)
    for e, p in enumerate((0.02, 0.5, 0.98, 0.99)):
        for i in range(10):
            rewards = tuple((rng.random(8) < p).astype(float))
            scheduler.observe([GroupResult(f"{e}.{i}", f"e{e}", f"t{i}", rewards, step=0)])
    decision = scheduler.ask(8, step=1)
    assert Counter(p.env for p in decision.picks)["e1"] == 4
    assert {name for c in decision.candidates for name in c.terms} <= {
        "exploitation_variance",
        "exploitation_usable",
        "uncertainty",
        "coverage_task",
        "tie_break",
    }
