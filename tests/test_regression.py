"""Regression: the mode is the mode, order does not matter, it forgets, and nothing makes it run away."""

from __future__ import annotations

import numpy as np
import pytest
from scheduler_checks import drive, invented_tasks
from scipy.special import expit

from envsched_core.baselines import make_scheduler
from envsched_core.catalogue import Catalogue
from envsched_core.config import config_from
from envsched_core.records import GroupResult, TaskSpec
from envsched_core.regression import PRECISION, PRECISION_OF_ALL, Regression


def regression_of(tasks: list[TaskSpec], half_lives: tuple[float, ...] = (0.0, 5.0)) -> Regression:
    catalogue, regression = Catalogue(), Regression(half_lives)
    catalogue.add(tasks)
    regression.grow(catalogue)
    return regression


def batch(seed: int, size: int, most: float = 8.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tasks [B], mean rewards [B], counts [2, B]."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 36, size), rng.integers(0, 5, size) / 4.0, rng.uniform(0.5, most, (2, size))


@pytest.mark.parametrize("size", [1, 2, 5, 16, 40])
@pytest.mark.parametrize("seed", [0, 33, 34, 35])
def test_the_gradient_vanishes_at_the_mode(seed: int, size: int) -> None:
    regression = regression_of(invented_tasks())
    regression.observe(*batch(seed + 1, 12))
    regression.advance(3)
    before, precision = regression.mean.copy(), regression.precision.copy()
    tasks, means, counts = batch(seed, size)
    regression.observe(tasks, means, counts)
    rows = regression.features.rows(tasks)
    for h in range(2):
        chance = expit(rows @ regression.mean[h])
        gradient = rows.T @ (counts[h] * (means - chance)) - precision[h] * (regression.mean[h] - before[h])
        assert np.abs(gradient).max() < 1e-6
        curvature = precision[h] + rows.power(2).T @ (counts[h] * chance * (1 - chance))
        assert regression.precision[h] == pytest.approx(curvature, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_groups_in_a_batch_does_not_matter(seed: int) -> None:
    tasks, means, counts = batch(seed, 24)
    order = np.random.default_rng(seed).permutation(24)
    one, other = regression_of(invented_tasks()), regression_of(invented_tasks())
    one.observe(tasks, means, counts)
    other.observe(tasks[order], means[order], counts[:, order])
    assert np.abs(one.mean - other.mean).max() < 1e-9
    assert np.abs(one.precision - other.precision).max() < 1e-9


def test_precision_decays_to_its_first_value_and_means_stay() -> None:
    regression = regression_of(invented_tasks())
    regression.observe(*batch(2, 30))
    mean, precision = regression.mean.copy(), regression.precision.copy()
    regression.advance(5)
    first = np.full(precision.shape[1], PRECISION)
    first[0] = PRECISION_OF_ALL
    assert np.array_equal(regression.precision[0], precision[0])  # this one never forgets
    assert regression.precision[1] == pytest.approx(first + 0.5 * (precision[1] - first))
    regression.advance(5_000)
    assert regression.precision[1] == pytest.approx(first)
    assert np.array_equal(regression.mean, mean)
    regression.advance(10)  # a step in the past
    assert regression.now == 5_000


def test_a_surprise_after_certainty_is_no_runaway() -> None:
    """All right for long, then all wrong: undamped Newton steps would leap from bound to bound for ever."""
    regression = regression_of(invented_tasks())
    for _ in range(30):
        regression.observe(np.arange(36), np.ones(36), np.full((2, 36), 8.0))
    before = regression.predict_all(0).copy()
    tasks, counts = np.arange(12), np.full((2, 12), 8.0)
    mean, precision = regression.mean[0].copy(), regression.precision[0].copy()
    regression.observe(tasks, np.zeros(12), counts)
    rows = regression.features.rows(tasks)
    pull = rows.T @ (-counts[0] * expit(rows @ regression.mean[0]))
    assert np.abs(pull - precision * (regression.mean[0] - mean)).max() < 1e-6
    after = regression.predict_all(0)
    assert (after[:12] < before[:12]).all()


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("count", [1.0, 1e4, 1e9])
def test_nothing_runs_away(reward: float, count: float) -> None:
    regression = regression_of(invented_tasks())
    for step in range(10):
        regression.advance(step)
        regression.observe(np.arange(36), np.full(36, reward), np.full((2, 36), count))
    for h in range(2):
        found = regression.predict_all(h)
        assert np.isfinite(found).all()
        assert np.abs(found - reward).max() < 0.2
    assert np.isfinite(regression.mean).all()
    assert (regression.precision > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_extreme_and_contrary_rewards_give_finite_numbers(seed: int) -> None:
    regression = regression_of(invented_tasks())
    rng = np.random.default_rng(seed)
    for _ in range(4):
        tasks = rng.integers(0, 36, 50)
        regression.observe(tasks, rng.integers(0, 2, 50).astype(float), 10.0 ** rng.uniform(-3, 6, (2, 50)))
    assert np.isfinite(regression.mean).all()
    assert np.isfinite(regression.precision).all()
    assert ((regression.predict_all(0) >= 0) & (regression.predict_all(0) <= 1)).all()


def test_growing_keeps_predictions() -> None:
    tasks = invented_tasks()
    catalogue, regression = Catalogue(), Regression((0.0, 5.0))
    catalogue.add(tasks)
    regression.grow(catalogue)
    regression.observe(*batch(4, 40))
    before = [regression.predict(np.arange(36))[h] for h in range(2)]
    catalogue.add([TaskSpec("new", f"t{i}", text="refund the order") for i in range(5)])
    regression.grow(catalogue)
    for h in range(2):
        assert np.array_equal(regression.predict(np.arange(36))[h], before[h])
        assert regression.predict_all(h)[:36] == pytest.approx(before[h], abs=1e-6)
        assert len(regression.predict_all(h)) == 41


def test_state_moves_with_its_environments() -> None:
    """Environments may vanish, join and change places; what all tasks share stays as learned."""
    tasks = invented_tasks()
    saved = regression_of(tasks)
    saved.observe(*batch(5, 40))
    saved.advance(7)
    same = regression_of(tasks)
    same.load_state_dict(saved.state_dict(), np.arange(3))
    assert np.array_equal(same.mean, saved.mean)
    assert np.array_equal(same.precision, saved.precision)
    assert same.now == 7
    kept = [task for task in tasks if task.env != "shop"]
    other = regression_of([TaskSpec("new", "t0", text="refund"), *reversed(kept)])
    other.load_state_dict(saved.state_dict(), np.array([-1, 2, 1]))  # shop is gone; new, files, bank are here
    old = np.array([i for i, task in enumerate(tasks) if task.env != "shop"])[::-1]
    for h in range(2):
        assert other.predict(1 + np.arange(24))[h] == pytest.approx(saved.predict(old)[h], abs=1e-12)


def test_parts_sum_to_the_logit() -> None:
    regression = regression_of(invented_tasks())
    regression.observe(*batch(6, 40))
    tasks = np.array([0, 17, 35])
    assert expit(regression.split(1, tasks).sum(axis=1)) == pytest.approx(regression.predict(tasks)[1], abs=1e-12)


def test_a_word_that_decides_is_found_where_the_mean_knows_nothing() -> None:
    """Half the tasks of every environment hold a word that makes them hard: predict tasks that were never seen."""
    rng = np.random.default_rng(1)
    hard = rng.random(300) < 0.5
    texts = [f"book a flight {'with three stopovers' if h else 'to ' + 'abcde'[i % 5]}" for i, h in enumerate(hard)]
    tasks = [TaskSpec(f"e{i % 3}", f"t{i}", text=text) for i, text in enumerate(texts)]
    truth = np.where(hard, 0.15, 0.85)
    regression = regression_of(tasks)
    seen = np.arange(0, 120)
    for step in range(4):
        part = seen[step::4]
        regression.advance(step)
        regression.observe(part, rng.binomial(8, truth[part]) / 8, np.full((2, len(part)), 4.0))
    unseen = np.arange(120, 300)
    error = np.abs(regression.predict(unseen)[0] - truth[unseen]).mean()
    by_environment = np.abs(truth[seen].mean() - truth[unseen]).mean()
    assert error < 0.4 * by_environment


def test_the_scheduler_trusts_features_that_predict_and_no_others() -> None:
    for planted in (True, False):
        rng = np.random.default_rng(3)
        words = ["easy", "tangled"]
        tasks = [TaskSpec(f"e{i % 4}", f"t{i}", text=f"{words[i // 4 % 2]} case {i}", draws=1) for i in range(160)]
        changes = {"batch_size": 16, "tau_within_grid": (0.0,), "tau_cross_grid": (0.0,)}
        scheduler = make_scheduler("envsched", config_from({**changes, "refresh_groups": 0}))
        scheduler.register(tasks)
        for step in range(8):
            results = []
            for pick in scheduler.ask(16, step=step).picks:
                good = int(pick.task[1:]) // 4 % 2 == 0 if planted else rng.random() < 0.5
                rewards = tuple(float(rng.random() < (0.9 if good else 0.1)) for _ in range(8))
                results.append(GroupResult(pick.pick_id, pick.env, pick.task, rewards, step=step))
            scheduler.observe(results)
        scheduler.ask(1, step=8)
        trust = scheduler.predictor.trust()
        assert (trust.features_share > 0 and trust.loglik > trust.loglik_no_features + 10) is planted


def test_without_the_knob_there_is_no_regression() -> None:
    scheduler = make_scheduler("envsched", config_from({"batch_size": 8, "features_share_grid": (0.0,)}))
    scheduler.register(invented_tasks())
    (*_, last) = drive(scheduler, 3)
    assert scheduler.predictor.regression is None
    assert all(c.shares["features"] == 0 and "logit_words" not in c.details for c in last.candidates)
