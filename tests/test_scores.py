"""Scores: all tasks in blocks, a few, or one at a time come to the same numbers to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_selection import N, problem

from envsched_core.selection import Batch


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5]), st.integers(0, 12))
def test_one_task_scores_what_all_tasks_score(seed: int, temperature: float, picks: int) -> None:
    batch = Batch(problem(seed, temperature=temperature))
    batch.choose(picks)
    scores, gains = batch.scores(), batch.gains()
    assert np.array_equal(scores, batch.keys(gains))
    assert np.array_equal(scores[5:9], batch.scores_of(np.arange(5, 9)))
    terms_of = batch.terms_of(np.arange(N))
    for task in range(N):
        assert batch._gain_and_key(task) == (gains[task], scores[task])
    for task in set(range(N)) - set(batch.chosen):
        terms = terms_of[task]
        assert abs(sum(terms.values()) - scores[task]) < 1e-9
        assert ("similarity_penalty" in terms) is (task in batch.penalty)


def test_effects_are_the_same_step_by_step_and_at_once() -> None:
    batch = Batch(problem(2))
    batch.choose(12)
    assert batch.effect == batch._effects()
