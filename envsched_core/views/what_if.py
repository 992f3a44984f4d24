"""What-if as tables: one recorded step decided again. Here, unlike in other read models, decisions are computed.

`Moments` keeps the schedulers that stand before the steps last asked for, so that a changed weight costs one decision
and not the run up to it. Texts in the tables come from logs and are untrusted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import pandas as pd

from envsched_core.errors import ContractError, DamagedError, UnknownTaskError
from envsched_core.records import Decision
from envsched_core.replay.pool import Progress
from envsched_core.replay.smallest import Smallest, smallest_change
from envsched_core.replay.walk import Walk
from envsched_core.replay.what_if import Setting, WhatIf, settings_of, what_if

from .run_view import RunView

__all__ = ["Moments", "Rearranged", "Setting", "Smallest", "what_if_settings"]

WALKS = 2
"""Runs of which a scheduler is kept."""
ANSWERS = 16
"""Answers that are kept: a page is drawn again and again with the same question."""

T = TypeVar("T")


class Rearranged(msgspec.Struct, frozen=True):
    """One step under the run's settings (before) and under changed ones (after); both computed again."""

    step: int
    changes: pd.DataFrame
    """Columns: setting, was, here; texts."""
    moves: pd.DataFrame
    """One row a task that enters or leaves. Columns: change (enters, leaves), env, task; and, each with _before and
    _after: position (1-based among the step's picks; NaN = not picked), outcome (code), score (at the moment of
    picking, or against the finished batch), cutoff, why (one sentence)."""
    terms: pd.DataFrame
    """What their scores are made of. Columns: change, env, task, term, before, after, difference (score units; a term
    that one side has not is 0)."""
    environments: pd.DataFrame
    """Picks by environment. Columns: env, before, after, difference, limit_before, limit_after (NaN where no quota is
    on record)."""
    stay: int
    """Picks of both."""
    picks: tuple[int, int]
    """Before and after."""
    fault: str
    """Why `before` is not the recorded batch; empty when it is, to 1e-9."""
    notes: tuple[str, ...]


def what_if_settings(view: RunView, step: int) -> tuple[Setting, ...]:
    """What may be changed at a step, with the values in use; nothing is computed.

    Raises:
        UnknownTaskError: nothing was asked for at that step. ConfigError: the run's scheduler is not known here.
    """
    decisions = view.decisions(step)
    if not decisions:
        raise UnknownTaskError(f"{view.name}: no task was asked for at step {step}")
    return settings_of(view.manifest, decisions[-1])


class Moments:
    """Schedulers that stand before a step, by run; one caller at a time."""

    def __init__(self) -> None:
        """None are kept yet."""
        self._lock = threading.Lock()
        self._walks: OrderedDict[tuple[str, str], Walk] = OrderedDict()
        self._answers: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def what_if(
        self, view: RunView, step: int, settings: Mapping[str, Any], progress: Progress | None = None
    ) -> Rearranged:
        """A step under changed settings; slow at the first time, when the calls before it are repeated.

        Raises:
            UnknownTaskError: nothing was asked for at that step. ConfigError: a setting cannot be changed so.
        """
        asked = msgspec.json.encode(dict(settings), order="sorted")

        def answer(walk: Walk) -> Rearranged:
            return _tables(what_if(walk.to(step, progress), settings))

        return self._answer(view, step, asked, answer)

    def smallest_change(self, view: RunView, step: int, key: str, progress: Progress | None = None) -> Smallest:
        """The smallest change of each setting that would have picked task `key`.

        Raises:
            UnknownTaskError: nothing was asked for at that step, or there was no such task.
        """
        settings = what_if_settings(view, step)

        def answer(walk: Walk) -> Smallest:
            return smallest_change(walk.to(step, progress), key, settings, progress)

        return self._answer(view, step, key, answer)

    def _answer(self, view: RunView, step: int, asked: bytes | str, answer: Callable[[Walk], T]) -> T:
        """What was answered before, as long as the step has had no further ask and the run was not made anew."""
        name = (str(view.path), f"{view.manifest.created} {view.manifest.digest}")
        asks = view.row("SELECT count(*) n FROM decisions WHERE step = ?", [step])["n"]
        with self._lock:
            try:
                found = self._answers.pop((name, step, asks, asked), None) or answer(self._walk(view, name))
            except (ContractError, DamagedError):  # it may have stopped half way through a call
                self._walks.pop(name, None)
                raise
            self._answers[name, step, asks, asked] = found
            while len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
            return cast("T", found)

    def _walk(self, view: RunView, name: tuple[str, str]) -> Walk:
        walk = self._walks.pop(name, None) or Walk(view.path)
        self._walks[name] = walk
        while len(self._walks) > WALKS:
            self._walks.popitem(last=False)
        return walk


def _tables(found: WhatIf) -> Rearranged:
    return Rearranged(
        step=found.step,
        changes=pd.DataFrame(
            [(name, _text(was), _text(now)) for name, (was, now) in found.changes.items()],
            columns=["setting", "was", "here"],
        ),
        moves=_moves(found),
        terms=_terms(found),
        environments=_environments(found),
        stay=found.stay,
        picks=(_count(found.before), _count(found.after)),
        fault=found.fault,
        notes=found.notes,
    )


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count(decisions: tuple[Decision, ...]) -> int:
    return sum(len(decision.picks) for decision in decisions)


MOVES = ["change", "env", "task", *(f"{name}_{side}" for name in ("position", "outcome", "score", "cutoff", "why")
                                    for side in ("before", "after"))]  # fmt: skip


def _moves(found: WhatIf) -> pd.DataFrame:
    rows = []
    for move in found.moves:
        row: dict[str, Any] = {"change": move.change, "env": move.before.env, "task": move.before.task}
        for side, told in (("before", move.before), ("after", move.after)):
            place = told.candidate.position
            row[f"position_{side}"] = np.nan if place is None else place + 1.0
            row[f"outcome_{side}"], row[f"score_{side}"] = told.candidate.outcome, told.candidate.score
            row[f"cutoff_{side}"] = np.nan if told.cutoff is None else told.cutoff
            row[f"why_{side}"] = told.verdict
        rows.append(row)
    return pd.DataFrame(rows, columns=MOVES)


def _terms(found: WhatIf) -> pd.DataFrame:
    rows = []
    for move in found.moves:
        before, after = move.before.candidate.terms, move.after.candidate.terms
        for term in dict.fromkeys([*before, *after]):
            pair = before.get(term, 0.0), after.get(term, 0.0)
            rows.append((move.change, move.before.env, move.before.task, term, *pair, pair[1] - pair[0]))
    return pd.DataFrame(rows, columns=["change", "env", "task", "term", "before", "after", "difference"])


def _environments(found: WhatIf) -> pd.DataFrame:
    columns = {}
    for side, decisions in (("before", found.before), ("after", found.after)):
        picks = pd.Series([pick.env for decision in decisions for pick in decision.picks], dtype=object).value_counts()
        # The last ask of a step has the quotas of the whole step.
        limits = {quota.env: float(quota.limit) for quota in decisions[-1].quotas}
        columns[side], columns[f"limit_{side}"] = picks.astype(float), pd.Series(limits, dtype=float)
    table = pd.DataFrame(columns).rename_axis("env").reset_index()
    table[["before", "after"]] = table[["before", "after"]].fillna(0.0)
    table["difference"] = table["after"] - table["before"]
    table = table[["env", "before", "after", "difference", "limit_before", "limit_after"]]
    order = table["difference"].abs().mul(-1)
    return table.assign(order=order).sort_values(["order", "env"]).drop(columns="order").reset_index(drop=True)
