"""Evidence of many candidates at once is what the predictor says of each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from plain_evidence import speakers
from scheduler_checks import drive, invented_tasks

from envsched_core.baselines import make_scheduler
from envsched_core.config import config_from
from envsched_core.evidence import evidence_of


def test_the_strongest_speak_first_and_nobody_is_left_out() -> None:
    scheduler = make_scheduler("envsched", config_from({"batch_size": 8, "refresh_groups": 16, "learn_trust": False}))
    scheduler.register(invented_tasks())
    drive(scheduler, 4)
    scheduler.ask(1, step=5)
    predictor, catalogue = scheduler.predictor, scheduler.catalogue
    tasks = np.arange(len(catalogue))[::-1]
    totals, most = predictor.predict(tasks).n.tolist(), np.arange(len(tasks)) % 12 + 1
    found = evidence_of(predictor, catalogue, tasks, most, totals)
    assert {e.relation for some in found for e in some} == {"own", "within", "cross"}
    for task, limit, total, some in zip(tasks.tolist(), most.tolist(), totals, found, strict=True):
        relations, others, weights, counts = speakers(predictor, task)
        order = [int(k) for k in np.lexsort((others, -counts)) if counts[k] > 0][:limit]
        assert [e.relation for e in some] == [relations[k] for k in order]
        assert [f"{e.env}::{e.task}" for e in some] == [catalogue.tasks[others[k]].key for k in order]
        assert [e.weight for e in some] == pytest.approx([weights[k] for k in order], abs=1e-11)
        assert [e.share for e in some] == pytest.approx([counts[k] / total for k in order], abs=1e-11)


def test_no_candidates_no_evidence() -> None:
    scheduler = make_scheduler("envsched", config_from({}))
    scheduler.register(invented_tasks())
    nobody = np.zeros(0, dtype=np.int64)
    assert evidence_of(scheduler.predictor, scheduler.catalogue, nobody, nobody, []) == []
