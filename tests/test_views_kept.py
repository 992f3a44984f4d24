from __future__ import annotations

import numpy as np
import pytest
from small_run import write_run

from envsched_core import views
from envsched_core.views.kept import Kept


def test_what_was_made_is_made_again_only_for_another_key():
    kept, made = Kept(), []
    for key in (1, 1, 2, 2, 1):
        assert kept.of("a", key, lambda key=key: made.append(key) or key * 10) == key * 10
    assert made == [1, 2, 1]
    assert kept.of("b", 1, lambda: 5) == 5


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
