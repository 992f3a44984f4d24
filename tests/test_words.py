from __future__ import annotations

import math

import pandas as pd
import pytest

from envsched_core.explanation import SOURCE_WORDS, TERM_WORDS
from envsched_core.views import OUTCOME_CODES

words = pytest.importorskip("envsched_dashboard.words")


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA])
def test_missing_is_never_zero(missing):
    assert words.number(missing) == words.percent(missing) == words.count(missing) == words.signed(missing) == "n/a"


def test_numbers_have_their_digits():
    assert words.variance(0.062345) == "0.0623"
    assert words.percent(0.3242) == "32%"
    assert words.count(12345) == "12,345"
    assert words.signed(-0.5) == "-0.5"
    assert (words.number(4979.6), words.number(12.345)) == ("4,980", "12.3")


@pytest.mark.parametrize(
    ("seconds", "said"), [(3.2, "3 s ago"), (61, "1 min ago"), (7300, "2 h ago"), (90_000, "1 d ago")]
)
def test_age(seconds, said):
    assert words.age(seconds) == said


def test_every_outcome_of_the_core_has_a_sign_and_words():
    assert set(words.OUTCOMES) == set(OUTCOME_CODES)
    assert len({sign for sign, _ in words.OUTCOMES.values()}) == len(words.OUTCOMES)
    assert words.outcome("new_code") == "new code"
    assert words.outcome(None) == "not on record"


def test_terms_and_sources_are_called_as_in_the_verdict():
    assert all(words.term(name) == said for name, said in TERM_WORDS.items())
    assert all(words.source(name) == said for name, said in SOURCE_WORDS.items())
    assert tuple(SOURCE_WORDS) == words.SOURCES
    assert (words.term("new_term"), words.source("new_source"), words.term("tie_break")) == (
        "new term", "new source", "tie-break",
    )  # fmt: skip


def test_reasons_carry_their_numbers():
    assert words.reason("quota_full", '{"quota_limit": 16.0, "quota_used": 16.0}').endswith("(16 of 16)")
    assert words.reason("too_similar", '{"similar_to": "e::1", "similarity": 0.93}').endswith("e::1 (0.93)")
    assert words.reason("below_cutoff", '{"margin": -0.25}').endswith("by 0.25")
    assert words.reason("below_cutoff", '{"margin": -2e-12}').endswith(" tied; lots were drawn")
    assert words.reason("selected", '{"how": "pinned"}').endswith("(pinned)")
    assert words.reason("selected", '{"how": "score"}') == words.outcome("selected")


def test_the_overview_sentence_in_each_state():
    known = {"wasted": 24, "rollouts": 92, "picks": 32, "waiting": 8}
    sentence = words.overview_sentence(share=0.3, uniform=0.2, **known)
    assert "30%" in sentence
    assert "1.50 times the 20%" in sentence
    assert "24 of 92 rollouts" in sentence
    assert "uniform" not in words.overview_sentence(share=0.3, uniform=None, **known)
    assert words.overview_sentence(share=None, uniform=None, **known).startswith("32 picks wait")


def test_a_cut_is_never_silent():
    assert words.size_note(200, 98_412, "tasks") == "Showing 200 of 98,412 tasks."
    assert words.size_note(5, 5, "tasks") == "All 5 tasks."
    assert words.size_note(1, 1, "tasks of the environment, most visited first") == "The only task of the environment."


def test_a_task_that_could_not_be_picked_has_no_rank():
    sentence = words.standing_sentence(rank=0, score=0.9, cutoff=0.4, code="unavailable", eligible=10)
    assert sentence == "Not available: no rank (it could not be picked), score 0.9 against a cut-off of 0.4."
    tied = words.standing_sentence(rank=3, score=0.4, cutoff=0.4, code="below_cutoff", eligible=10)
    assert tied.startswith("Tied; lots were drawn: rank 3 of 10, score 0.4 ")
    spent = words.standing_sentence(rank=0, score=0.9, cutoff=0.4, code="unavailable", eligible=10, spent=True)
    assert "could not be picked, since all its recorded groups had been drawn" in spent


def test_one_is_not_in_the_plural():
    sentence = words.batch_sentence(step=3, picks=1, envs=1, draws=0, bound=1, mixed=1, answered=1)
    assert sentence == (
        "Step 3 picked 1 task from 1 environment; 1 environment quota turned candidates away; 1 of 1 observed group "
        "had mixed rewards."
    )
    assert words.several(2, "pick waits", "picks wait") == "2 picks wait"


def test_what_picks_were_worth_is_split_into_exploitation_and_coverage():
    totals = {"exploitation_variance": 0.6, "uncertainty": 0.2, "coverage_task": 0.2, "similarity_penalty": -0.1}
    assert words.worth_sentence(totals) == "Exploitation 80%, coverage 20%; similarity took off 10%."
    assert words.worth_sentence({**totals, "cost": 0.04}).endswith("; similarity took off 10%; low cost added 4%.")
    assert words.worth_sentence({**totals, "cost": -0.3}).endswith("; similarity took off 10%; high cost took off 30%.")
    assert words.worth_sentence({**totals, "draw": 0.04}).endswith("; the draw added 4%.")
    assert words.worth_sentence({**totals, "draw": -0.04}).endswith("; the draw took off 4%.")
    assert words.worth_sentence({}) == "No term of the score was positive."
