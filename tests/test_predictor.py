"""Prediction: the identities of the head of predictor.py, held to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_evidence import speakers
from scheduler_checks import drive, invented_tasks
from scipy import integrate, stats

from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.predictor import SHARES, Prediction
from envsched_core.records import GroupResult, TaskSpec

pseudo = st.floats(0.05, 200)


def single(a: float, b: float, phi: float = 1.0) -> Prediction:
    return Prediction(np.array([a]), np.array([a + b]), np.array([phi]), np.ones(1))


@given(pseudo, pseudo)
def test_variance_and_sd_are_those_of_a_beta(a: float, b: float) -> None:
    n = a + b
    e_pq = a * b / (n * (n + 1))
    prediction = single(a, b)
    assert prediction.variance[0] == pytest.approx(e_pq, rel=1e-12)
    mean, variance = stats.beta.stats(a, b)
    assert prediction.variance[0] == pytest.approx(mean * (1 - mean) - variance, rel=1e-6)
    assert 0 <= prediction.sd[0] <= 0.125 + 1e-12


def test_sd_against_integration() -> None:
    a, b = 2.5, 4.0
    second, _ = integrate.quad(lambda p: (p * (1 - p)) ** 2 * stats.beta.pdf(p, a, b), 0, 1)
    first, _ = integrate.quad(lambda p: p * (1 - p) * stats.beta.pdf(p, a, b), 0, 1)
    assert single(a, b).sd[0] == pytest.approx(np.sqrt(second - first**2), rel=1e-9)


def test_usable_is_the_chance_of_a_mixed_group() -> None:
    a, b, g = 1.3, 0.8, 4
    mixed, _ = integrate.quad(lambda p: (1 - p**g - (1 - p) ** g) * stats.beta.pdf(p, a, b), 0, 1)
    assert single(a, b).usable(g)[0] == pytest.approx(mixed, rel=1e-6)


@pytest.fixture
def driven():
    scheduler = make_scheduler("envsched", config_from({"batch_size": 8, "refresh_groups": 16, "learn_trust": False}))
    scheduler.register(invented_tasks())
    drive(scheduler, 4)
    scheduler.ask(1, step=5)
    return scheduler


def test_shares_make_up_the_mean(driven) -> None:
    predictor, n = driven.predictor, len(driven.catalogue)
    sources = predictor.sources(np.arange(n))
    prediction = predictor.predict()
    assert np.allclose(sources.sum(axis=1), prediction.n, rtol=1e-12)
    assert sources.shape == (n, len(SHARES))
    assert sources.min() >= 0


def test_the_mean_is_the_mean_of_its_sources(driven) -> None:
    """Every source has its own mean; weighted by their shares they are the prediction."""
    predictor, m = driven.predictor, driven.predictor.moments
    p, tasks = predictor.point, np.arange(len(driven.catalogue))
    assert p.features_share == 0.5
    whole = predictor.environments(p.h)

    def ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
        return np.divide(total, count, out=np.zeros_like(total), where=count > 0)

    means = np.column_stack(
        [
            ratio(m.s[p.h], m.n[p.h]),
            ratio(predictor.spread["ws"][p.h], predictor.spread["wn"][p.h]),
            ratio(predictor.spread["xs"][p.h], predictor.spread["xn"][p.h]),
            whole.mean[m.env],
            predictor.regression.predict_all(p.h),
            np.full(len(tasks), whole.overall),
        ]
    )
    sources = predictor.sources(tasks)
    shares = sources / sources.sum(axis=1, keepdims=True)
    assert (shares[:, SHARES.index("features")] > 0).all()
    assert (shares * means).sum(axis=1) == pytest.approx(predictor.predict().mean, rel=1e-12)


def test_trust_tells_what_features_are_worth(driven) -> None:
    predictor = driven.predictor
    trust = predictor.trust()
    without = [k for k, point in enumerate(predictor.points) if point.features_share == 0]
    assert trust.features_share == predictor.point.features_share
    assert trust.loglik_no_features == predictor.loglik[without].max()


def test_neighbours_add_up_to_their_sources(driven) -> None:
    predictor = driven.predictor
    for task in range(len(driven.catalogue)):
        relations, _, _, counts = speakers(predictor, task)
        for k, relation in enumerate(("own", "within", "cross")):
            total = counts[[r == relation for r in relations]].sum()
            assert total == pytest.approx(predictor.sources(np.array([task]))[0, k], rel=1e-12, abs=1e-12)


def test_propagated_sums_equal_a_full_pass(driven) -> None:
    predictor = driven.predictor
    incremental = {name: array.copy() for name, array in predictor.spread.items()}
    predictor.remap()
    for name, array in predictor.spread.items():
        assert np.allclose(array, incremental[name], rtol=1e-12)


def test_without_is_a_subtraction(driven) -> None:
    """Taking a task's rollouts out of the sums by hand gives what `without` gives."""
    predictor, moments = driven.predictor, driven.predictor.moments
    task, h = 1, driven.predictor.point.h
    source = int(np.flatnonzero(moments.n[h] > 0)[0])
    kept = moments.concentration, moments.dispersion
    frozen = moments.concentration(h), moments.dispersion(h)
    expected = predictor.without(task, source)
    n, s = moments.n[h][source], moments.s[h][source]
    env = moments.env[source]
    moments.env_n[h][env] -= n
    moments.env_s[h][env] -= s
    moments.n[h][source] = moments.s[h][source] = 0.0
    predictor.remap()
    moments.concentration, moments.dispersion = lambda h: frozen[0], lambda h: frozen[1]
    found = predictor.predict(np.array([task]))
    moments.concentration, moments.dispersion = kept
    assert found.n[0] == pytest.approx(expected.n[0], rel=1e-12)
    assert found.a[0] == pytest.approx(expected.a[0], rel=1e-12)


@pytest.mark.parametrize(("world", "trusted"), [("families", True), ("coins", False)])
def test_trust_in_neighbours_is_learned(world: str, trusted: bool) -> None:
    """Where like texts have like success the within relation is found; where success is a coin flip it goes to 0."""
    rng = np.random.default_rng(3)
    families = ("refund the broken blue shirt", "move every old file away")
    tasks = [TaskSpec(f"e{e}", f"t{i}", text=f"{families[i % 2]} {i}", draws=1) for e in range(4) for i in range(40)]
    scheduler = make_scheduler("envsched", config_from({"batch_size": 16, "refresh_groups": 0}))
    scheduler.register(tasks)
    for step in range(8):
        for pick in scheduler.ask(16, step=step).picks:
            easy = int(pick.task[1:]) % 2 if world == "families" else rng.random() < 0.5
            rewards = tuple(float(rng.random() < (0.9 if easy else 0.1)) for _ in range(8))
            scheduler.observe([GroupResult(pick.pick_id, pick.env, pick.task, rewards, step=step)])
    scheduler.ask(1, step=8)
    trust = scheduler.predictor.trust()
    assert (trust.tau_within > 0) is trusted
    assert (trust.loglik > trust.loglik_no_within + 10) is trusted


@pytest.mark.parametrize("unit", ["concentration", "rollout"])
def test_predictions_are_those_of_the_formula(unit: str) -> None:
    """Two tasks alike in one environment: n^ and the mean by hand, neighbours in either unit."""
    fixed = {"half_lives": (0.0,), "kappa_env_grid": (2.0,), "tau_within_grid": (0.3,), "tau_cross_grid": (0.0,)}
    config = config_from({**fixed, "features_share_grid": (0.0,), "neighbours_unit": unit, "kappa_global": 0.1})
    scheduler = make_scheduler("envsched", config)
    scheduler.register([TaskSpec("shop", f"t{i}", text=f"refund order {i}") for i in range(2)])
    scheduler.observe([GroupResult("g", "shop", "t0", (1.0, 0.0, 1.0, 1.0), step=0)])
    scheduler.ask(1, step=1)
    weight = float(scheduler.graph.within[[1], [0]][0])
    k = scheduler.predictor.environments(0).concentration[0]
    near = 0.3 * weight * (k if unit == "concentration" else 1.0)
    overall = (3 + 1) / (4 + 2)
    environment = (3 + 2 * overall) / (4 + 2)
    n = 4 * near + 2 * k + 0.1
    told = scheduler.predictor.predict(np.array([1]))
    assert told.n == pytest.approx([n], rel=1e-9)
    assert told.a == pytest.approx([3 * near + 2 * k * environment + 0.1 * overall], rel=1e-9)


@pytest.mark.parametrize("order", [(1.0, 0.5, 0.0), (0.0, 0.5, 1.0)])
def test_of_trusts_that_explain_the_first_groups_equally_well_the_first_is_taken(order: tuple[float, ...]) -> None:
    """Predicted from nothing, groups speak for a weight of the environment only: flat ones for a small one."""
    config = config_from({"batch_size": 16, "features_share_grid": order, "tau_within_grid": (0.3, 0.0, 0.1, 1.0)})
    scheduler = make_scheduler("envsched", config)
    scheduler.register(invented_tasks())
    predictor = scheduler.predictor
    for pick in scheduler.ask(16, step=0).picks:
        scheduler.observe([GroupResult(pick.pick_id, pick.env, pick.task, (1.0,) * 8, step=0)])
    assert predictor.point == (0, 1.0, 0.5, 0.1, 0.05)
    scheduler.ask(1, step=1)
    alike = [score for p, score in zip(predictor.points, predictor.loglik, strict=True) if p[:2] == (0, 0.5)]
    assert np.ptp(alike) < 1e-9
    assert predictor.point == (0, 0.5, order[0], 0.3, 0.0)


def test_a_wider_reward_range_moves_what_features_expect_with_the_mean() -> None:
    scheduler = make_scheduler("envsched", config_from({"batch_size": 8, "group_size": 4}))
    scheduler.register(invented_tasks())
    drive(scheduler, 6)
    predictor, env = scheduler.predictor, scheduler.catalogue.env_index["shop"]
    regression = predictor.regression
    drift = scheduler.traces.drift.copy()
    tasks = np.flatnonzero(scheduler.catalogue.env == env)
    scheduler.ask(1, step=6)  # all of it is taken in
    before = [regression.predict(tasks)[h].mean() for h in range(2)]
    scheduler.observe([GroupResult("outlier", "shop", "t0", (10.0,), step=6)])
    scheduler.ask(1, step=7)
    assert scheduler.metrics()["rewards/ranges_widened"] == 1
    for h in range(2):
        assert regression.predict(tasks)[h].mean() < 0.4 * before[h]
    others = tasks[1:]
    assert np.abs(scheduler.traces.drift[others]).max() <= np.abs(drift[others]).max() / 10 + 1e-12
