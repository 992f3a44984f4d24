"""Likelihoods as products are those of log-gammas, graded or whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from envsched_core.prediction import MOST_COUNTED, beta_binomial

totals = st.integers(0, MOST_COUNTED + 4).map(float) | st.floats(0.0, 20.0)


@given(st.lists(st.tuples(totals, totals), min_size=1, max_size=8), st.integers(0, 1000))
def test_products_are_what_log_gammas_say(groups, seed) -> None:
    success, failure = np.array(groups).T
    a, b = np.random.default_rng(seed).gamma(1.0, size=(2, 3, len(groups))) + 1e-9
    wanted = special.betaln(a + success, b + failure) - special.betaln(a, b)
    assert beta_binomial(a, a + b, success, failure) == pytest.approx(wanted, abs=1e-9)
