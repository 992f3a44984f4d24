import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from envsched_core.evaluate import (
    Spent,
    auc,
    effective_number,
    flat_share,
    gini,
    informative_share,
    mean,
    over_runs,
    paired_bootstrap,
    rate_bootstrap,
    ratio_bootstrap,
    resampled_mean,
    resampled_ranks,
    resampled_rate,
    spearman,
    unit_weights,
    weighted_auc,
    weighted_spearman,
)

counts = st.lists(st.integers(0, 1000), min_size=1, max_size=30)
values = st.lists(st.floats(-1, 1), min_size=1, max_size=30)


@given(st.lists(st.booleans(), min_size=1))
def test_flat_and_informative_are_complements_for_equal_groups(mixed):
    assert flat_share(mixed, [8] * len(mixed)) == pytest.approx(1 - informative_share(mixed))


def test_flat_share_counts_what_the_groups_cost():
    assert flat_share([True, False], [1, 3]) == 0.75


@pytest.mark.parametrize("score", [informative_share, gini, mean])
def test_nothing_has_no_score(score):
    assert math.isnan(score([]))
    assert math.isnan(flat_share([], []))


@given(counts)
def test_gini_is_bounded_and_scale_free(x):
    assert -1e-12 <= gini(x) <= (len(x) - 1) / len(x) + 1e-12
    assert gini([3 * c for c in x]) == pytest.approx(gini(x))


@given(counts)
def test_gini_is_half_the_relative_mean_difference(x):
    total = sum(x)
    naive = sum(abs(a - b) for a in x for b in x) / (2 * len(x) * total) if total else 0.0
    assert gini(x) == pytest.approx(naive)


@given(counts)
def test_effective_number_lies_between_one_and_the_used_items(x):
    used = sum(c > 0 for c in x)
    assert min(1, used) - 1e-9 <= effective_number(x) <= used + 1e-9


@given(st.integers(1, 50), st.integers(1, 9))
def test_equal_use_is_fully_effective(n, each):
    assert effective_number([each] * n) == pytest.approx(n)


@given(values, st.integers(0, 5))
def test_bootstrap_holds_its_mean_and_repeats_itself(differences, seed):
    interval = paired_bootstrap(differences, seed=seed)
    assert interval.low - 1e-9 <= interval.mean <= interval.high + 1e-9
    assert interval == paired_bootstrap(differences, seed=seed)


@given(values, st.floats(-5, 5))
def test_bootstrap_moves_with_its_data(differences, shift):
    before = paired_bootstrap(differences, seed=1)
    after = paired_bootstrap([d + shift for d in differences], seed=1)
    assert after == pytest.approx([b + shift for b in before], abs=1e-9)


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(60):
        low, high = paired_bootstrap(rng.normal(0.3, 1, size=60).tolist(), seed=trial)[1:]
        hits += low <= 0.3 <= high
    assert 50 <= hits <= 60


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 5)), min_size=1, max_size=20))
def test_ratio_is_the_ratio_of_sums(pairs):
    top, bottom = zip(*pairs, strict=True)
    interval = ratio_bootstrap(top, bottom, seed=0)
    assert interval.mean == pytest.approx(sum(top) / sum(bottom))
    assert interval.low - 1e-9 <= interval.mean <= interval.high + 1e-9


def test_ratio_refuses_unequal_lengths_and_has_no_score_without_a_base():
    with pytest.raises(ValueError, match="2 numerators against 1"):
        ratio_bootstrap([1, 2], [1], seed=0)
    assert math.isnan(ratio_bootstrap([0, 0], [0, 0], seed=0).mean)


def replay(counted):
    return Spent(range(len(counted)), counted, [1.0] * len(counted))


def test_rate_ratio_of_a_replay_with_itself_is_exactly_one():
    same = [replay([1.0, 0.0, 1.0, 1.0])]
    assert rate_bootstrap(same, same, seed=0) == (1, 1, 1)


def test_replaying_a_log_again_does_not_narrow_what_it_says_of_tasks():
    def width(groups, replays):
        ours, theirs = replay([0.0, 1.0] * groups), replay([1.0] * 2 * groups)
        interval = rate_bootstrap([ours] * replays, [theirs] * replays, seed=0)
        return interval.high - interval.low

    assert width(5, 20) == pytest.approx(width(5, 1), rel=0.3)
    assert width(5, 1) > 2 * width(100, 1)


def test_rates_need_pairs():
    with pytest.raises(ValueError, match="1 replays against 0"):
        rate_bootstrap([replay([1.0])], [], seed=0)


ties = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=30)


@given(ties)
def test_rank_scores_agree_with_naive_ones_and_weights_are_repeats(rows):
    x, y, times = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    again = np.repeat(np.arange(len(x)), times.astype(int))
    weights = times.astype(np.float32)[None, :]
    assert weighted_spearman(x, y, weights)[0] == pytest.approx(spearman(x[again], y[again]), nan_ok=True)
    assert weighted_auc(x, (y > 2).astype(float), weights)[0] == pytest.approx(auc(x[again], y[again] > 2), nan_ok=True)
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    else:
        assert math.isnan(spearman(x, y))
    pairs = x[y > 2][:, None] - x[y <= 2][None, :]
    naive = np.mean((pairs > 0) + 0.5 * (pairs == 0)) if pairs.size else math.nan
    assert auc(x, y > 2) == pytest.approx(naive, nan_ok=True)


def test_nothing_has_no_rank_score():
    none, weights = np.zeros(0), unit_weights(3, seed=0)
    assert math.isnan(spearman(none, none))
    assert math.isnan(auc(none, none > 0))
    assert math.isnan(resampled_mean(none, np.zeros(0, dtype=int), weights).value)


def test_units_are_drawn_the_same_way_for_every_score_of_a_run():
    weights = unit_weights(40, seed=3)
    units = list(range(40))
    good, bad = (Spent(units, [float(i < n) for i in units], [1.0] * 40) for n in (30, 10))
    ours, theirs = (resampled_rate([one, one], weights, seed=0) for one in (good, bad))
    assert (ours.value, theirs.value) == (0.75, 0.25)
    gain = over_runs([ours], [theirs], seed=0)
    assert gain.mean == 0.5
    assert 0.3 < gain.low < 0.5 < gain.high < 0.7
    assert over_runs([ours, theirs], [ours, theirs], seed=0) == (0.0, 0.0, 0.0)
    whole = resampled_mean(np.array(good.counted), np.array(units), weights)
    assert whole.drawn == pytest.approx(ours.drawn)
    ranks = resampled_ranks(weighted_spearman, np.arange(40.0), np.arange(40.0) ** 2, np.array(units), weights)
    assert ranks.value == pytest.approx(1.0)
    assert ranks.drawn == pytest.approx(np.ones(len(weights)))


def test_an_interval_over_runs_widens_with_what_differs_between_them():
    weights = unit_weights(50, seed=0)
    rates = [resampled_rate([Spent(range(50), [rate] * 50, [1.0] * 50)], weights, seed=0) for rate in (0.1, 0.9)]
    assert over_runs(rates[:1], seed=0) == pytest.approx((0.1, 0.1, 0.1))
    both = over_runs(rates, seed=0)
    assert both.mean == pytest.approx(0.5)
    assert (both.low, both.high) == pytest.approx((0.1, 0.9))
