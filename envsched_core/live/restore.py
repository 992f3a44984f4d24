"""A recorded run -> a scheduler that stands where it stopped: the newest good snapshot, then the events after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from envsched_core.errors import StoreError
from envsched_core.records import Decision, Pick
from envsched_core.replay.rederive import Calls
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunReader, load_state

from .intake import attempt

__all__ = ["SNAPSHOT_FORMAT", "Resumed", "restore"]

SNAPSHOT_FORMAT = 1


class Resumed(NamedTuple):
    """What a resumed session found."""

    snapshot: int | None
    """Step before which the snapshot in use was made; None = from the first event."""
    trainer: Mapping[str, Any] | None
    """What the trainer had put beside that snapshot."""
    asked: dict[int, tuple[Pick, ...]]
    """Picks by step, of the steps asked for since the snapshot."""
    decision: Decision | None
    """The last decision since the snapshot."""
    observed: frozenset[str]
    """Ids of the groups observed since the snapshot."""
    notes: tuple[tuple[int | None, dict[str, Any]], ...]
    """Step and data of the notes written since the snapshot."""


class Restored(NamedTuple):
    """A scheduler, and what is known of its run."""

    scheduler: EnvSched
    tasks: int
    """Lines of the catalogue."""
    asked_here: int
    """Picks asked for at the step that the scheduler stands at."""
    resumed: Resumed


def restore(reader: RunReader) -> Restored:
    """The scheduler of a run as it stood after the last event.

    Raises:
        StoreError: the events do not lead to the decisions on record (another version, or a damaged run).
    """
    for step in reversed(reader.state_steps()):
        found, _ = attempt(_from_snapshot, reader, step)
        if found is not None:  # else the events rebuild what a damaged snapshot held
            return found
    return _catch_up(Calls(reader), reader, {"offset": 0, "asked_here": 0, "trainer": None}, None)


def _from_snapshot(reader: RunReader, step: int) -> Restored | None:
    """None for a snapshot of another format, or of events that are not there; a damaged one may raise anything."""
    state = load_state(reader.path, step)
    if state["format"] != SNAPSHOT_FORMAT or state["offset"] > reader.size():
        return None
    calls = Calls(reader)
    calls.load(state["scheduler"], state["tasks"])
    return _catch_up(calls, reader, state, step)


def _catch_up(calls: Calls, reader: RunReader, state: Mapping[str, Any], snapshot: int | None) -> Restored:
    """Repeat the events behind a snapshot."""
    asked: dict[int, tuple[Pick, ...]] = {}
    observed: set[str] = set()
    notes = []
    decision: Decision | None = None
    asked_here = int(state["asked_here"])
    for located in reader.events(state["offset"]):
        event = located.event
        before = calls.scheduler.step
        derived = calls.apply(event)
        if derived is not None:
            decision = _same(event.data, derived, reader)
            asked_here = len(derived.picks) + (asked_here if derived.step == before else 0)
            asked[derived.step] = asked.get(derived.step, ()) + derived.picks
        elif event.kind == "observed":
            observed.add(event.data.group_id)
        elif event.kind == "note":
            notes.append((event.step, event.data))
    found = Resumed(snapshot, state["trainer"], asked, decision, frozenset(observed), tuple(notes))
    return Restored(calls.scheduler, len(reader.tasks()), asked_here, found)


def _same(recorded: Decision, derived: Decision, reader: RunReader) -> Decision:
    if derived.picks != recorded.picks and reader.problems:
        lost = reader.problems[0]
        raise StoreError(
            f"{reader.path}: {lost.segment}:{lost.line} cannot be read, and without it step {recorded.step} comes out "
            "differently; put back a copy of the file, or start a new run"
        )
    if derived.picks != recorded.picks:
        raise StoreError(
            f"{reader.path}: step {recorded.step} comes out differently here; resume with {reader.manifest.writer}, "
            "which wrote it, or start a new run (`envsched verify` says what differs)"
        )
    return recorded
