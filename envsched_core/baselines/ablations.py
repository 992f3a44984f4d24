"""EnvSched without one part, or with one part falsified: changes of the config and nothing else.

no-cross, no-within    the relation gives no evidence (its edges stay in the similarity penalty)
no-features            predictions without what features tell (regression.py)
shuffled-...           placebo: the relation's edges end at tasks drawn at random (placebo.py); where it does as
                       well as EnvSched, the relation adds nothing there
no-coverage, no-quota, no-penalty, fixed-trust    without that term, limit, penalty or learning
exploit-only           the prediction's value alone, greedily, under the quota
per-cost               not less but more: value per expected tool call, the cost that the testbed knows; with
                       `cost` = tokens or seconds EnvSched itself counts in what a log tells of those
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from envsched_core.config import Config, config_from
from envsched_core.scheduler import EnvSched

from .peer import GREEDY

__all__ = ["ABLATIONS", "CHANGES"]

NO_COVERAGE = {"weight_environment": 0.0, "weight_pattern": 0.0, "weight_task": 0.0}

CHANGES: dict[str, dict[str, Any]] = {
    "envsched-no-cross": {"tau_cross_grid": (0.0,)},
    "envsched-no-within": {"tau_within_grid": (0.0,)},
    "envsched-no-features": {"features_share_grid": (0.0,)},
    "envsched-shuffled-cross": {"shuffle_cross": True},
    "envsched-shuffled-within": {"shuffle_within": True},
    "envsched-no-coverage": NO_COVERAGE,
    "envsched-no-quota": {"max_share": 1.0, "max_shares": {}, "min_shares": {}},
    "envsched-no-penalty": {"weight_similarity": 0.0},
    "envsched-fixed-trust": {"learn_trust": False},
    "envsched-exploit-only": {**NO_COVERAGE, **GREEDY, "weight_uncertainty": 0.0, "weight_similarity": 0.0},
    "envsched-per-cost": {"cost": "tool_calls"},
}
"""Name -> knobs that differ from EnvSched's."""


def _changed(name: str, config: Config) -> EnvSched:
    return EnvSched(config_from(CHANGES[name], config), name=name)


ABLATIONS: dict[str, Callable[[Config], EnvSched]] = {name: partial(_changed, name) for name in CHANGES}
