"""A log on its whole way: import, assess, pool replay, and the read models of the Decision page."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from envsched_core import views
from envsched_core.bench.assess import Assessment, assess
from envsched_core.config import Config
from envsched_core.importers import ImportOptions, ImportReport, import_run
from envsched_core.records import Rollout
from envsched_core.replay import replay_pool
from envsched_core.views.run_view import RunView

__all__ = ["Way", "whole_way"]


class Way(NamedTuple):
    """What was seen on the way."""

    report: ImportReport
    assessment: Assessment
    verdict: str
    """The sentence on the first task that was picked."""
    rollouts: list[Rollout]
    """Those of the group that this pick revealed."""


def whole_way(log: Path, folder: Path, **options: object) -> Way:
    """Take a log from its files to the page that explains a pick and shows its rollouts."""
    report = import_run([log], folder / "log", ImportOptions(**options))  # type: ignore[arg-type]
    assessment, _ = assess([folder / "log"], seeds=1)
    replay_pool(folder / "log", folder / "replay", scheduler="envsched", config=Config(batch_size=2), steps=3)
    view = RunView(folder / "replay")
    view.poll()
    env, task = view.query("SELECT env, task FROM outcomes WHERE ended = 'observed' AND step = 0").iloc[0]
    explained = views.explained(view, 0, f"{env}::{task}")
    assert explained.source == "recorded"
    seen = views.afterwards(view, f"{env}::{task}", 0)
    return Way(report, assessment, explained.verdict, views.group_rollouts(view, int(seen["number"].iloc[0])))
