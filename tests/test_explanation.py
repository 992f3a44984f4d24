"""Sentences: every outcome has one, with its numbers."""

from __future__ import annotations

import msgspec
import pytest
from scheduler_checks import drive, invented_tasks, outcome

from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.errors import UnknownTaskError
from envsched_core.explanation import verdict
from envsched_core.records import TaskSpec


@pytest.fixture
def scheduler():
    values = {
        "batch_size": 6,
        "weight_similarity": 0.2,
        "uniform_share": 0.2,
        "max_share": 0.7,
        "exclude_tasks": ["shop::t0"],
    }
    out = make_scheduler("envsched", config_from(values))
    out.register([*invented_tasks(), TaskSpec("shop", "spent", draws=0)])
    return out


def test_every_candidate_has_a_sentence(scheduler) -> None:
    outcomes = set()
    for decision in drive(scheduler, 8, n=6):
        for c in decision.candidates:
            sentence = verdict(c, decision)
            assert sentence.startswith(c.key)
            assert f"step {decision.step}" in sentence
            assert "None" not in sentence
            outcomes.add(c.outcome)
    assert {"selected", "uniform_draw", "below_cutoff"} <= outcomes


def test_a_score_at_the_cutoff_is_tied(scheduler) -> None:
    decision = scheduler.ask(6, step=0)
    missed = next(c for c in decision.candidates if c.outcome == "below_cutoff")
    tied = msgspec.structs.replace(missed, score=decision.cutoff - 2e-12)
    assert "is tied with the cut-off; lots were drawn" in verdict(tied, decision)
    assert "tied" not in verdict(msgspec.structs.replace(missed, score=decision.cutoff - 2e-9), decision)


def test_why_not_for_any_task(scheduler) -> None:
    first = scheduler.ask(6, step=0)
    scheduler.observe(outcome(first)[:3])
    decision = scheduler.ask(6, step=1)
    flying = first.picks[4].key
    assert "no result yet" in scheduler.explain(1, flying).verdict
    assert "excluded" in scheduler.explain(1, "shop::t0").verdict
    assert "have been drawn" in scheduler.explain(1, "shop::spent").verdict
    for task in scheduler.catalogue.index:
        found = scheduler.explain(1, task)
        assert found.picked == (task in {p.key for p in decision.picks})
        assert abs(sum(found.candidate.terms.values()) - found.candidate.score) < 1e-9


def test_unknown_tasks_and_steps_are_told(scheduler) -> None:
    scheduler.ask(1, step=3)
    with pytest.raises(UnknownTaskError, match="ENV::TASK"):
        scheduler.explain(3, "nobody")
    with pytest.raises(UnknownTaskError, match="envsched explain RUN --step 1"):
        scheduler.explain(1, "shop::t1")
