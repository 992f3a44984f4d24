"""What a live session has counted, each counter with what it means: the little that no event tells, and the rest."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from envsched_core.errors import StoreError
from envsched_core.store import read_counters

from .log_check import counted
from .run_view import RunView

__all__ = ["Counted", "session_counts"]

MEANINGS = {
    "costs/": "groups by how their cost was told",
    "environments/registered": "environments of the catalogue",
    "graph/version": "graph in use; 0 = none",
    "groups/empty": "groups without a usable reward; no evidence",
    "groups/flat": "groups whose rewards all came out the same",
    "groups/mixed": "groups whose rewards differ",
    "groups/observed": "groups taken in",
    "observe/malformed": "results that are none, or lack what they must have; passed over",
    "observe/other_pick": "results that name a pick of another task, or one that has ended; evidence all the same",
    "observe/too_old": "results older than groups are remembered for; left out",
    "observe/unasked": "results of tasks without an open pick; evidence all the same",
    "observe/unknown_task": "results of tasks that are not in the catalogue; left out",
    "picks/asked": "picks given out",
    "picks/duplicate": "groups that came again; counted once",
    "picks/expired": "picks whose result never came in time; their quota was freed",
    "picks/expired_unknown": "expired picks that were not open",
    "picks/observed": "picks that ended with a result",
    "picks/observed_unknown": "results of picks that were not open",
    "picks/open": "picks that wait for their result",
    "picks/released": "picks given back without a result, those of tasks that vanished among them",
    "picks/released_unknown": "picks given back that were not open; passed over",
    "released/": "picks given back, by reason",
    "results/pending": "results that are taken in when the next step is asked for",
    "rewards/clipped": "rewards outside the declared range; moved into it",
    "rewards/missing": "rewards that are missing or no finite number; left out",
    "rewards/ranges_widened": "environments whose undeclared range was widened by what came in",
    "rollouts/observed": "rollouts taken in",
    "session/bad_count": "asks for a count that is none; nothing was asked for",
    "session/bad_note": "notes that are no mapping; left out",
    "session/bad_release": "releases of what has no pick id; passed over",
    "session/bad_result": "results that name no task or hold no rewards; passed over",
    "session/bad_rollout": "rollouts that cannot be written; left out",
    "session/bad_step": "steps that are no whole number; taken as the current one",
    "session/bad_task": "tasks without a name or with a field of no use; passed over",
    "session/broken_iterable": "lists that broke off with an error; what came before was taken",
    "session/duplicate_result": "results of ended picks that had come before; counted once",
    "session/extra_failed": "snapshots not kept because the trainer's own part failed",
    "session/failed_call": "calls that failed inside; the run went on",
    "session/field_dropped": "results of which a field was of no use; the rest was taken",
    "session/given_back": "picks of before a restart that were given out again",
    "session/late_result": "results of picks that had ended; evidence all the same",
    "session/partial_result": "results with rewards missing; the others were taken",
    "session/step_back": "steps before the current one; taken as the current one",
    "session/unknown_pick_result": "results that name a pick nobody asked for; evidence all the same",
    "sink/failures": "writes that failed (a full disk, a folder that is gone)",
    "sink/gone": "1 when the run folder was removed",
    "sink/lost": "writes that are not on record and never will be",
    "sink/unwritable": "things left out for what they held",
    "sink/waiting": "events not on disk yet",
    "state/tasks_joined": "tasks that were new when a saved state was loaded",
    "state/tasks_vanished": "tasks of a saved state that are no more",
    "tasks/registered": "tasks of the catalogue",
    "tasks/seen": "tasks with evidence of their own",
    "trust/": "how far the prediction trusts its sources; no counter",
}
"""By name, or by what a family of names begins with."""


class Counted(NamedTuple):
    """What a session or its scheduler said that it had counted."""

    step: int | None
    """The step it stood at; None when nothing was said."""
    table: pd.DataFrame
    """Columns: name (as in `metrics`; untrusted), count, meaning (empty for a name that is not known here)."""


def session_counts(view: RunView) -> Counted:
    """The latest counters of a run: its session's, else those of its newest snapshot; no rows without both.

    Never cached: they may change without an event.
    """
    try:
        told = read_counters(view.path)
    except StoreError:  # as good as none
        told = None
    if told is not None:
        step, rows = told.step, sorted(told.counts.items())
    else:
        step, found = counted(view)
        rows = [(str(name), float(count)) for name, count in found.itertuples(index=False)]
    table = pd.DataFrame([(name, count, meaning(name)) for name, count in rows], columns=["name", "count", "meaning"])
    return Counted(step, table)


def meaning(name: str) -> str:
    """What a counter means; empty when that is not known here."""
    family = f"{name.partition('/')[0]}/"
    return MEANINGS.get(name) or MEANINGS.get(family, "")
