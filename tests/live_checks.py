"""What the tests of live sessions share: a session on an invented catalogue, and a trainer's loop around it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from scheduler_checks import invented_tasks

from envsched_core.config import config_from
from envsched_core.live import LiveSession
from envsched_core.records import Pick
from envsched_core.store import RunReader

CONFIG = config_from({"batch_size": 8, "group_size": 4, "refresh_groups": 20, "expire_after": 2})


def session(path: Path, name: str = "envsched", **more) -> LiveSession:
    made = LiveSession.create(path, name, CONFIG, **more)
    made.register(invented_tasks())
    return made


def reward(pick: Pick) -> list[float]:
    return [float((int(pick.task[1:]) * 37 % 11) / 10 > (k + 0.5) / 4) for k in range(4)]


def step_through(live: LiveSession, steps, *, singly: bool = False) -> None:
    for step in steps:
        for _ in range(8 if singly else 1):
            for pick in live.ask(1 if singly else 8, step=step):
                live.observe({"pick_id": pick.pick_id, "rewards": reward(pick)})


def asked_lines(path: Path) -> list[bytes]:
    return [msgspec.json.encode(e.event.data) for e in RunReader(path).events() if e.event.kind == "asked"]


def counted(live: LiveSession, *names: str) -> list[float]:
    found = live.metrics()
    return [found.get(name, 0.0) for name in names]
