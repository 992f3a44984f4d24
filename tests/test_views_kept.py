from __future__ import annotations

import numpy as np
import pytest
from small_run import write_run

from envsched_core import views
from envsched_core.views.kept import Kept, Past


def test_what_was_made_is_made_again_only_for_another_key():
    kept, made = Kept(), []
    for key in (1, 1, 2, 2, 1):
        assert kept.of("a", key, lambda key=key: made.append(key) or key * 10) == key * 10
    assert made == [1, 2, 1]
    assert kept.of("b", 1, lambda: 5) == 5


def test_the_past_is_kept_as_far_as_there_is_room():
    past = Past[str](room=10)
    for step, size in ((0, 4), (1, 4), (0, 4), (2, 4), (3, 11)):
        past.put(step, f"scores {step}", size)
        assert past.get(step) == (f"scores {step}" if size <= 10 else None)
        assert (past.get(0) is None) == (step >= 2)
    past.put(4, "scores 4", 10)
    assert [past.get(step) for step in range(5)] == [None, None, None, None, "scores 4"]


def test_scores_of_past_steps_are_read_once_and_those_of_the_last_anew(tmp_path):
    view = views.RunView(write_run(tmp_path / "run"))
    view.poll()
    past, last = view.scores(0), view.scores(3)
    assert past is not None
    assert view.scores(0) is past
    assert view.scores(3) is not last


@pytest.mark.parametrize("window", [0, 2])
def test_a_filter_looks_at_the_same_draws_as_the_whole(tmp_path, window):
    view = views.RunView(write_run(tmp_path / "run"))
    view.poll()
    whole = views.visit_balance(view, window)
    views.visit_balance(view, window, ("env0",))
    again = views.visit_balance(view, window, tuple(view.env_names()))
    assert again.table.equals(whole.table)
    draws = view.kept.of("uniform draws", (view.version, again.simulated), pytest.fail)
    assert (np.diff(draws.sum(axis=1), axis=1) == draws.sum(axis=1)[0, 0]).all()  # as many a step, wherever they fall
