"""The record: what features say of a candidate stands beside it, where it was used."""

from __future__ import annotations

import numpy as np
import pytest
from scheduler_checks import drive, invented_tasks
from scipy.special import expit

from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.explanation import PART_WORDS, features_sentence, logit_parts, trust_sentence
from envsched_core.features import PARTS


def driven(**changes: object):
    scheduler = make_scheduler("envsched", config_from({"batch_size": 8, "learn_trust": False, **changes}))
    scheduler.register(invented_tasks())
    decisions = drive(scheduler, 4)
    return scheduler, scheduler.ask(8, step=4), decisions


@pytest.fixture(scope="module")
def recorded():
    return driven()


def test_parts_of_the_logit_are_on_record_for_picks_and_near_misses(recorded) -> None:
    scheduler, decision, _ = recorded
    regression, h = scheduler.predictor.regression, scheduler.predictor.point.h
    kinds = {c.kept_as for c in decision.candidates}
    assert kinds == {"pick", "near_miss", "sample"}
    for c in decision.candidates:
        parts = logit_parts(c)
        assert tuple(parts) == (() if c.kept_as == "sample" else PARTS)
        if parts:
            task = scheduler.catalogue.index[c.key]
            assert list(parts.values()) == pytest.approx(regression.split(h, np.array([task]))[0], abs=1e-11)
            assert expit(sum(parts.values())) == pytest.approx(regression.predict(np.array([task]))[h][0], abs=1e-9)


def test_nothing_is_recorded_of_features_that_were_not_used() -> None:
    _, decision, _ = driven(features_share_grid=(0.0,))
    assert not any(logit_parts(c) for c in decision.candidates)
    assert all(c.shares["features"] == 0 for c in decision.candidates)
    assert "features" not in trust_sentence(decision.trust)


def test_sentences_carry_the_numbers(recorded) -> None:
    _, decision, _ = recorded
    parts = {"everything": 0.0, "length": -1.25, "words": 0.5, "tools": 0.01, "environment": 0.75}
    sentence = features_sentence(parts)
    assert "mean reward of 0.50" in sentence
    assert "length of text and reference calls harder (-1.25), environment easier (+0.75), words" in sentence
    assert "tools easier" not in sentence
    assert "No feature says much" in features_sentence(dict.fromkeys(PARTS, 0.0))
    ahead = decision.trust.loglik - decision.trust.loglik_no_features
    assert f"50% of that for what features predict ({ahead:+.1f} nats" in trust_sentence(decision.trust)


def test_every_kind_of_feature_has_words() -> None:
    assert tuple(PART_WORDS) == PARTS
