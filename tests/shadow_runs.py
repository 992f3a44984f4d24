"""What the tests of shadow mode share: rows of a log, a shadow run driven look by look, and what it must come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envsched_core.importers import ImportOptions, import_run
from envsched_core.replay import verify
from envsched_core.shadow import Shadow, ShadowPlan, ShadowStep
from envsched_core.store import RunReader


def rows(step: int | None, *, tasks: range = range(4), size: int = 4, env: str = "shop") -> list[dict[str, Any]]:
    """Rows of one step, the rollouts of a task together."""
    out = []
    for task in tasks:
        for k in range(size):
            row = {"env": env, "task_id": f"t{task}", "prompt": f"do {task}", "reward": float(k * 3 < task * size)}
            out.append(row if step is None else {**row, "step": step})
    return out


def lines(found: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in found)


def append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


class Following:
    """A shadow run that a test drives look by look."""

    def __init__(self, log: Path, run: Path, plan: ShadowPlan | None = None, **options: Any) -> None:
        self.log, self.run, self.plan, self.options = log, run, plan, ImportOptions(**options)
        self.shadow = Shadow([log], run, self.options, plan)

    def look(self, *, everything: bool = False, final: bool = False) -> list[ShadowStep]:
        self.shadow.read(final=final)
        return list(self.shadow.settle(everything=everything))

    def restart(self, *, kill: bool = False) -> None:
        """A clean stop, or the end of a process that could say nothing more."""
        if kill:
            (self.shadow.session.sink if self.shadow.session else self.shadow._writer).close()
        else:
            self.shadow.close()
        self.shadow = Shadow([self.log], self.run, self.options, self.plan)

    def groups(self) -> list[Any]:
        return [e.event.data for e in RunReader(self.run).events() if e.event.kind == "observed"]


def matches_import(following: Following, tmp_path: Path, log: Path, **options: Any) -> None:
    """The groups on record are those that an import of the finished log finds, and the run verifies."""
    import_run([log], tmp_path / "imported", ImportOptions(**options))
    imported = [e.event.data for e in RunReader(tmp_path / "imported").events() if e.event.kind == "observed"]
    facts = [{(g.group_id, g.rewards, g.step, g.places) for g in found} for found in (following.groups(), imported)]
    assert facts[0] == facts[1]
    following.shadow.close()
    assert verify(following.run).ok
