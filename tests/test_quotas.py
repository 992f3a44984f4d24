"""Quotas follow the catalogue: an even split at least, floors and shares by name, kept until environments join."""

from __future__ import annotations

from envsched_core.catalogue import Catalogue
from envsched_core.config import config_from
from envsched_core.records import TaskSpec
from envsched_core.scheduler.quotas import Quotas


def test_shares_floors_and_environments_that_join() -> None:
    config = config_from(
        {
            "batch_size": 8,
            "max_share": 0.25,
            "max_shares": {"a": 0.0},
            "min_shares": {"b": 0.5},
            "pin_environments": ["c"],
        }
    )
    catalogue = Catalogue()
    quotas = Quotas(config, catalogue)
    catalogue.add([TaskSpec("a", "0"), TaskSpec("b", "0")])
    assert quotas.limits(8).tolist() == [0, 4]
    assert quotas.floors().tolist() == [0, 4]
    catalogue.add([TaskSpec(name, "0") for name in "cdef"])
    assert quotas.limits(8).tolist() == [0, 4, 2, 2, 2, 2]
    assert quotas.limits(16).tolist() == [0, 4, 4, 4, 4, 4]
    assert quotas.floors().tolist() == [0, 4, 1, 0, 0, 0]
