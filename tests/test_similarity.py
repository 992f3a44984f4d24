"""Features: roles by verb, similarities that split into their parts."""

from __future__ import annotations

import numpy as np
import pytest
from scheduler_checks import invented_tasks

from envsched_core.records import Tool
from envsched_core.similarity import WITHIN_WEIGHTS, call_roles, combine, pattern_name, role_of, within_blocks


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("get_order_details", "look_up"),
        ("searchDirectFlight", "search"),
        ("book_reservation", "create"),
        ("cancel_pending_order", "delete"),
        ("updateReservationBaggages", "update"),
        ("transfer_to_human_agents", "move"),
        ("send_certificate", "message"),
        ("calculate", "compute"),
        ("xyzzy", "other"),
    ],
)
def test_roles(name: str, role: str) -> None:
    assert role_of(name) == role


def test_a_description_speaks_where_the_name_does_not() -> None:
    assert call_roles(["xyzzy"], [Tool("xyzzy", "Deletes a file.")]) == ("delete",)


def test_pattern_names_fold_repeats() -> None:
    assert pattern_name(("look_up", "look_up", "pay")) == "look up > pay"
    assert pattern_name(()) == "no call"


def test_parts_sum_to_the_cosine() -> None:
    tasks = [t for t in invented_tasks() if t.env == "shop"]
    joined, parts = combine(within_blocks(tasks), WITHIN_WEIGHTS)
    whole = (joined @ joined.T).toarray()
    assert np.allclose(np.sum([(p @ p.T).toarray() for p in parts.values()], axis=0), whole)
    assert np.allclose(np.diag(whole), 1.0)
    assert whole.min() >= 0
