"""The ledger: every pick ends once, memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.ledger import Ledger


@pytest.fixture
def ledger() -> Ledger:
    out = Ledger(expire_after=2, dedupe_steps=3, cool_down=1)
    out.grow([None, 1, 2])
    return out


def test_draws_run_out_and_come_back_on_release(ledger: Ledger) -> None:
    (pick,) = ledger.pick([1], step=0, positions=[0])
    assert ledger.exhausted().tolist() == [False, True, False]
    ledger.close(pick, "released")
    assert not ledger.exhausted().any()
    ledger.close(*ledger.pick([1], step=1, positions=[0]), "observed")
    assert ledger.exhausted()[1]


def test_expiry_and_forgetting(ledger: Ledger) -> None:
    ledger.pick([0], step=0, positions=[0])
    ledger.first_time("a", 0)
    assert ledger.expire(2) == []
    assert [pick_id for pick_id, _ in ledger.expire(3)] == ["0.0"]
    assert not ledger.in_flight().any()
    ledger.expire(4)
    assert ledger.seen == {}


def test_resting(ledger: Ledger) -> None:
    assert ledger.pick([2, 0], step=5, positions=[0, 1]) == ["5.0", "5.1"]
    assert ledger.resting(6).tolist() == [True, False, True]
    assert not ledger.resting(7).any()


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["observed", "released", "expired"])), max_size=20))
def test_counts_add_up(ends: list[tuple[int, str]]) -> None:
    ledger = Ledger(expire_after=9, dedupe_steps=9, cool_down=0)
    ledger.grow([None] * 3)
    for step, (task, how) in enumerate(ends):
        if task not in ledger.by_task:
            ledger.pick([task], step, [0])
        elif how == "observed":
            ledger.close(ledger.by_task[task], how)
    c = ledger.counts
    assert c["asked"] == c["observed"] + c["released"] + c["expired"] + len(ledger.open)
