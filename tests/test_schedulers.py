"""Every scheduler keeps every law of scheduler_checks.py."""

from __future__ import annotations

import pytest
from scheduler_checks import CHECKS, Make, invented_tasks

from envsched_core.baselines import NAMES, make_scheduler
from envsched_core.baselines.ablations import ABLATIONS
from envsched_core.config import PRESETS, config_from

CROSSED = [(name, preset) for name in NAMES for preset in PRESETS if name not in ABLATIONS or preset == "training"]
"""Ablations are EnvSched's code under other knobs: one preset is enough for them."""


@pytest.mark.parametrize(("name", "preset"), CROSSED)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_law(name: str, preset: str, check: Make) -> None:
    def make(tasks=None, **changes):
        values = {"batch_size": 8, "group_size": 4, "refresh_groups": 20, **PRESETS[preset], **changes}
        scheduler = make_scheduler(name, config_from(values))
        scheduler.register(invented_tasks() if tasks is None else tasks)
        return scheduler

    check(make)
