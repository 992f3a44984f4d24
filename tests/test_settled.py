"""How tasks stand against a batch: what is worked out for a few is what a pass over all would say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_selection import N, problem

from envsched_core.records import OUTCOME_CODES
from envsched_core.selection import Batch
from envsched_core.settled import CODE, Settled

EVERYONE = np.arange(N)


def settled(seed: int, picks: int, temperature: float = 0.0, in_flight: tuple[int, ...] = ()) -> Settled:
    batch = Batch(problem(seed, temperature=temperature, limit=2))
    scores = [pick.score for pick in batch.choose(picks) if pick.how == "score"]
    return Settled(batch, 0, min(scores, default=None), in_flight)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(0, 12), st.sampled_from([0.0, 0.5]), st.integers(0, N))
def test_the_nearest_are_the_best_of_all(seed: int, picks: int, temperature: float, most: int) -> None:
    found = settled(seed, picks, temperature)
    batch = found.batch
    height = batch.scores() + [batch.penalty.get(task, 0.0) for task in range(N)]
    order = np.lexsort((EVERYONE, -np.where(batch.eligible, height, -np.inf)))
    assert found.nearest(most).tolist() == order[: min(most, batch.eligible.sum())].tolist()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(0, 12), st.sampled_from([0.0, 0.5]))
def test_every_task_has_one_outcome(seed: int, picks: int, temperature: float) -> None:
    found = settled(seed, picks, temperature, in_flight=(1, 7))
    batch, outcomes = found.batch, found.all_outcomes()
    assert np.array_equal(outcomes, found.outcomes(EVERYONE))
    counted = np.bincount(outcomes, minlength=len(OUTCOME_CODES))
    assert found.counts() == {name: n for name, n in zip(OUTCOME_CODES, counted.tolist(), strict=True) if n}
    assert set(np.flatnonzero(outcomes == CODE["selected"])) == set(batch.chosen)
    assert np.array_equal(found.keys(EVERYONE), batch.scores())
    over = outcomes == CODE["quota_full"]
    assert (batch.used >= batch.limit)[batch.problem.env[over]].all()
    assert found.cutoff is None or (batch.scores()[over] >= found.cutoff).all()


def test_a_batch_that_goes_on_changes_nothing_that_was_settled() -> None:
    found = settled(3, 6)
    before, nearest, keys = found.all_outcomes(), found.nearest(9), found.keys(EVERYONE)
    found.batch.choose(4)
    found.batch.drop(next(iter(found.batch.chosen)))
    assert np.array_equal(found.all_outcomes(), before)
    assert np.array_equal(found.nearest(9), nearest)
    assert np.array_equal(found.keys(EVERYONE), keys)


def test_ranks_are_those_before_any_pick() -> None:
    found = settled(5, 8)
    eligible, first = found.batch.problem.eligible, found.batch.initial
    wanted = [1 + int((first[eligible] > first[task]).sum()) if eligible[task] else 0 for task in range(N)]
    assert found.ranks(EVERYONE).tolist() == wanted
