"""Makes a frozen run folder: `python tests/frozen_run.py tests/formats/run_1`.

A run of the current format, with a snapshot in its middle, and beside it what the scheduler decided next
(`next.json`). Frozen, it says what later versions must still read, verify and go on with. Make one anew only when the
format's number rises, and keep the old one.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from envsched_core.config import Config, config_from
from envsched_core.live import LiveSession
from envsched_core.records import Cost, GroupResult, Pick, TaskSpec, Tool

STEPS, SIZE, GROUP = 6, 4, 4
CONFIG = config_from({"batch_size": SIZE, "group_size": GROUP, "refresh_groups": 8, "seed": 3, "sample": 0.5})
VERBS = {"find": "search_{}", "cancel": "delete_{}", "change": "update_{}"}


def tasks() -> list[TaskSpec]:
    """Three environments of six tasks with tools; the last environment has reference calls."""
    out = []
    for env in ("shop", "bank", "clinic"):
        noun = {"shop": "order", "bank": "card", "clinic": "visit"}[env]
        tools = tuple(Tool(name.format(noun), f"{verb.capitalize()} a {noun}.") for verb, name in VERBS.items())
        for k in range(6):
            verb = list(VERBS)[k % 3]
            calls = (VERBS[verb].format(noun),) if env == "clinic" else ()
            text = f"Please {verb} {noun} number {k}."
            out.append(TaskSpec(env, f"{verb}-{k}", text=text, tools=tools, calls=calls, verifier="state"))
    return out


def answer(pick: Pick, step: int) -> GroupResult:
    """What the invented policy makes of a pick: it gets better, and some tasks stay flat."""
    hard = (sum(map(ord, pick.env + pick.task)) % 7) / 6
    rewards = tuple(float((k + 0.5) / GROUP < 1 - hard + 0.05 * step) for k in range(GROUP))
    path = ("search_order", "update_order") if pick.env == "shop" else ()
    return GroupResult(
        f"{step}-{pick.env}-{pick.task}",
        pick.env,
        pick.task,
        rewards,
        step=step,
        pick_id=pick.pick_id,
        cost=Cost(tokens=100.0 + step, tool_calls=float(len(path))),
        calls=(path,) * GROUP,
    )


def play(live: LiveSession, steps: range) -> None:
    """The trainer's loop."""
    for step in steps:
        live.observe([answer(pick, step) for pick in live.ask(SIZE, step=step, policy_version=f"v{step}")])


def next_decision(live: LiveSession) -> bytes:
    """What is decided at the step after the last."""
    live.ask(SIZE, step=STEPS)
    return msgspec.json.format(msgspec.json.encode(live.decision), indent=1)


def make(folder: Path, config: Config = CONFIG) -> None:
    """Write the run, and what comes next, into `folder`."""
    with LiveSession.create(folder, "envsched", config, snapshot_every=3) as live:
        live.register(tasks())
        play(live, range(STEPS))
    copy = folder.with_name(folder.name + "-copy")
    shutil.copytree(folder, copy)
    with LiveSession.resume(copy) as live:
        (folder / "next.json").write_bytes(next_decision(live) + b"\n")
    shutil.rmtree(copy)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
