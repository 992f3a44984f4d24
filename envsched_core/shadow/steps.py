"""Shadow: what is new in a log becomes steps on record, each with what would have been picked."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from envsched_core.baselines import NAMES, make_scheduler
from envsched_core.config import config_from
from envsched_core.errors import ConfigError, LogFormatError, StoreError
from envsched_core.importers import Drop, ImportOptions
from envsched_core.importers.base import Context, Listed, Notes, Row, RowError
from envsched_core.importers.catalogue import read_catalogue, read_join
from envsched_core.importers.fields import checked_mapping
from envsched_core.importers.formats import reader_of
from envsched_core.importers.growing import GrowingLog, Part
from envsched_core.importers.sources import find_inputs
from envsched_core.live.session import LiveSession, manifest_of
from envsched_core.live.sink import Sink
from envsched_core.records import Decision, GroupResult, Rollout
from envsched_core.replay import AuditStep, RecordedPool, config_for
from envsched_core.replay.audit import compare
from envsched_core.store import Manifest, RunReader, RunWriter, new_manifest, read_manifest

from .progress import Progress, read_progress, write_progress
from .waiting import Key, Position, Taken, Waiting

__all__ = ["NOT_ROLLED_OUT", "Shadow", "ShadowPlan", "ShadowStep"]

NOT_ROLLED_OUT = "shadow: not rolled out"
CHUNK = 64
"""Groups that are a step in a log without steps."""


class ShadowPlan(msgspec.Struct, frozen=True):
    """Who is asked, and how."""

    scheduler: str | None = None
    """None = envsched, or who was asked before in the same folder."""
    batch_size: int | None = None
    """Picks that quotas are shares of; None = as many as the first step has groups."""
    group_size: int | None = None
    """Rollouts of a group; None = the commonest in the first step."""
    keep_rollouts: bool = True
    settings: dict[str, Any] = {}
    """Further knobs."""


class ShadowStep(AuditStep, frozen=True, kw_only=True):
    """One step of the log beside what would have been picked."""

    new_tasks: int
    """Tasks that the log showed for the first time."""
    rows: int
    """Rows read so far."""
    dropped: int
    """Rows so far that could not be used."""
    late: int
    """Rows so far that came when their group was on record already."""


def _relative(paths: Sequence[Path], out: Path) -> str:
    """The log as run.json names it."""
    return ", ".join(os.path.relpath(path, out) for path in paths)


class Shadow:
    """Follows one log into one run folder; what happens when is follow.py's."""

    def __init__(
        self, paths: Sequence[Path], out: Path, options: ImportOptions | None = None, plan: ShadowPlan | None = None
    ) -> None:
        """Start in a new folder, or go on in one that a shadow run was written to.

        Raises:
            StoreError: `out` holds something else. LockedError: another process writes it.
            ConfigError: a scheduler, format, field or knob is unknown. LogFormatError: a task list cannot be read.
        """
        self.out, self.plan = out, plan or ShadowPlan()
        self.options = options or ImportOptions()
        self.problems: list[str] = []
        """Why a file could not be read or a step was left to wait, each once."""
        self.session: LiveSession | None = None
        self._check()
        mapping = checked_mapping(self.options.mapping)
        join = read_join(*self.options.join, mapping) if self.options.join is not None else None
        self._context = Context(self.options, Notes(), join)
        self._catalogue = read_catalogue(self.options.tasks, self.options.tools, self.options.env, mapping)
        self._waiting = Waiting(self._keep if self.plan.keep_rollouts else None)
        self._listed: set[str] = set()
        """Environments whose listed tasks are known to the scheduler."""
        self._lists: set[str] = set()
        """Files that list tasks: read again by the next process, which knows of none."""
        self._unfinished: Decision | None = None
        self._read = 0
        """Rows read, those counted by an earlier process too."""
        self._decided = 0
        """Steps on record."""
        self._doubted: set[int] = set()
        self._writer = self._open(paths)
        found = read_progress(out) if self.session else Progress()
        self.counts: Counter[str] = Counter(found.counts)
        """rows, dropped, late, groups, late_groups; implausible: rollouts left out for their step."""
        self.log = GrowingLog(paths, self.options, found.files)
        self.stopping = Event()
        """Set it, from a signal handler or another thread, to end a read; then close."""

    def _check(self) -> None:
        """Refuse wrong names before anything is written."""
        if self.plan.scheduler not in (None, *NAMES):
            raise ConfigError(f"unknown scheduler '{self.plan.scheduler}'; known: {', '.join(NAMES)}")
        config_from(self.plan.settings)
        if self.options.format is not None:
            reader_of(self.options.format)

    def _open(self, paths: Sequence[Path]) -> RunWriter | None:
        """The run folder; with a session already when a scheduler has been asked in it."""
        if not (self.out / "run.json").is_file():
            source = {"path": _relative(paths, self.out)}
            return RunWriter.create(self.out, new_manifest(self.out.resolve().name, "shadow", source=source))
        manifest = read_manifest(self.out)
        if manifest.kind != "shadow":
            raise StoreError(f"{self.out} holds a run of kind {manifest.kind}, not a shadow run; choose another folder")
        self._same(manifest, _relative(paths, self.out))
        if not manifest.scheduler:
            return RunWriter.resume(self.out)
        self.session = LiveSession.resume(self.out)
        self._listed = set(self.session.scheduler.catalogue.env_names)
        self._unfinished = self._interrupted()
        return None

    def _same(self, manifest: Manifest, log: str) -> None:
        """Refuse to go on with something else than was begun."""
        plan, before = self.plan, str(manifest.source.get("path", log))
        more = set(before.split(", ")) <= set(log.split(", "))  # files may be added, as by a shell's pattern
        given = [("LOG", before if more else log, before)]
        if manifest.scheduler:
            given += [("--scheduler", str(plan.scheduler or manifest.scheduler), manifest.scheduler)]
            given += [("--batch-size", str(plan.batch_size or manifest.batch_size), str(manifest.batch_size))]
        for name, now, was in given:
            if now != was:
                raise ConfigError(
                    f"{self.out} was begun with {name} {was}, not {now}; leave that as it was, or choose another folder"
                )

    def _interrupted(self) -> Decision | None:
        """The last decision, when what was really rolled out is not all on record."""
        found = self.session.resumed if self.session else None
        if found is None or found.decision is None:
            return None
        done = {step for step, data in found.notes if "shadow" in data}
        self._decided = len(done)
        return None if found.decision.step in done else found.decision

    def close(self) -> None:
        """Say how far every file was taken, and give the run folder free; what waits is read again next time."""
        self._save()
        if self.session is not None:
            self.session.close()
        if self._writer is not None:
            self._writer.close()

    # ------------------------------------------------------------------ reading

    def read(self, *, final: bool = False) -> bool:
        """Take in what is new; whether there was anything. `final`: the log is finished.

        Raises:
            LogFormatError: the only file there is cannot be read, at the first look.
        """
        before = self._read
        for part in self.log.parts(final=final):
            try:
                self._part(part)
            except LogFormatError as error:
                if not self.counts["rows"] and len(self.log.files) == 1:
                    raise
                self._tell(f"passed over: {error}")
        for copy, original in self.log.copies.items():
            self._tell(f"passed over: {copy} is a copy of {original} so far; its rows are not read twice")
        return self._read > before

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def nothing_readable(self) -> LogFormatError | None:
        """Why no row could be read at all; None when there were some, or only such rows are missing."""
        if self._read or self.session is not None:
            return None
        try:
            find_inputs(self.log.paths, self.options, Notes())
        except LogFormatError as error:
            return error
        return None

    def _part(self, part: Part) -> None:
        source, rows, offset = part.source, 0, part.source.done
        try:
            for item in reader_of(part.format).read(source, self._context):
                if self.stopping.is_set():
                    return
                here, offset = offset, source.done
                rows += 1
                if isinstance(item, Listed):
                    self._catalogue.add(item.task)
                    self._lists.add(part.file.mark.label)
                    continue
                if rows <= part.skip:
                    continue
                self._read += 1
                mark, reached = part.file.mark, rows if part.file.whole else offset
                fresh, mark.counted = reached > mark.counted, max(reached, mark.counted)
                what = "dropped"
                if isinstance(item, Drop):
                    self._tell(f"dropped rows: {item.reason}")
                else:
                    what = self._row(item, mark.label, Position(here, item.place.line - 1, rows - 1))
                if fresh:  # not counted by an earlier process that left it waiting
                    self.counts.update(["rows", what] if what else ["rows"])
        except LogFormatError:
            if rows:
                part.taken(rows)
            raise
        part.taken(rows)

    def _row(self, row: Row, file: str, position: Position) -> str:
        """Let a row wait; else what it counts as."""
        try:
            if not self._waiting.is_new(row, self._seen()):
                return "late"
            self._waiting.add(row, file, position)
        except RowError as error:
            self._tell(f"dropped rows: {error}")
            return "dropped"
        return ""

    def _seen(self) -> dict[str, int]:
        """Ids of the groups that are on record."""
        return self.session.scheduler.ledger.seen if self.session else {}

    def _keep(self, rollouts: list[Rollout]) -> list[int]:
        if self._writer is not None:
            return self._writer.add_rollouts(rollouts)
        sink = self.session.sink if self.session else None
        return sink.add_rollouts(rollouts) if sink else []

    # ------------------------------------------------------------------ steps

    def settle(self, *, everything: bool = False, finished: bool = False) -> Iterator[ShadowStep]:
        """Decide on the steps that are over; with `everything`, on all that wait, until `stopping` is set.

        A step that is not plausible goes on waiting; when the log is `finished`, it is left out.
        """
        waiting, left = self._waiting, self._unfinished
        if left is not None and len(self._on_record(left.step)) >= left.asked:
            yield from self._finish_interrupted()
        now, doubtful = self._now(), self._doubtful(finished=finished)
        steps = [step for step in waiting.steps() if step not in doubtful]
        newest = max([*steps, *([] if now is None else [now])], default=0)
        for step in steps:
            if self.stopping.is_set():
                return
            if everything or step < newest:
                yield from self._step(waiting.take([step]), step)
        size = self.plan.batch_size or CHUNK
        loose = waiting.loose(0 if everything else self.plan.group_size or 1 << 62)
        while loose and (everything or len(loose) >= size) and not self.stopping.is_set():
            chunk: list[Key] = [*loose[: self._room(size)]]
            loose = loose[len(chunk) :]
            now = self._now()
            yield from self._step(waiting.take(chunk), 0 if now is None else now + (self._unfinished is None))

    def _doubtful(self, *, finished: bool) -> set[int]:
        """Steps that wait for another group or a neighbour, told once; dropped when the log is finished."""
        now = self._now()
        found = self._waiting.doubtful(self._decided, now)
        for step in sorted(found - self._doubted):
            self._tell(
                f"step {step:,} is far above all others and has one group: it waits for a second group or a step near "
                "it, and is left out if none comes"
            )
        self._doubted |= found
        if finished:
            self.counts["implausible"] += sum(self._waiting.drop(step) for step in found)
        return found

    def _now(self) -> int | None:
        scheduler = self.session.scheduler if self.session else None
        return scheduler.step if scheduler and scheduler.started else None

    def _room(self, size: int) -> int:
        """Groups that the next chunk has: as many as an interrupted step still lacks."""
        if self._unfinished is None:
            return size
        return max(self._unfinished.asked - len(self._on_record(self._unfinished.step)), 1)

    def _step(self, taken: Taken, step: int) -> Iterator[ShadowStep]:
        """One step: ask, tell what was rolled out, give back the rest; a step that is over takes late groups only."""
        results = [r if r.step is not None else msgspec.structs.replace(r, step=step) for r in taken.results]
        session = self.session = self.session or self._begin(taken, results)
        new, left = self._register(taken, session), self._unfinished
        if left is not None and step == left.step:
            self._unfinished = None
            yield self._finish(session, left, self._on_record(step), results, new)
            return
        yield from self._finish_interrupted()
        now = self._now()
        if now is not None and step <= now:
            self.counts["late_groups"] += len(results)
            session.observe(results)
            self._save()
            return
        session.ask(len(results), step=step)
        if session.decision is not None:
            yield self._finish(session, session.decision, [], results, new)

    def _finish_interrupted(self) -> Iterator[ShadowStep]:
        """The step that a kill interrupted ends with what is on record."""
        left, self._unfinished = self._unfinished, None
        if left is not None and self.session is not None:
            yield self._finish(self.session, left, self._on_record(left.step), [], 0)

    def _finish(
        self, session: LiveSession, decision: Decision, earlier: list[GroupResult], results: list[GroupResult], new: int
    ) -> ShadowStep:
        scheduler = session.scheduler
        still_open = session.open_picks()
        picks = {pick.key: pick.pick_id for pick in decision.picks if pick.pick_id in still_open}
        answered = [msgspec.structs.replace(r, pick_id=picks.pop(r.key, None)) for r in results]
        scores = scheduler.scores()
        session.observe(answered)
        session.release(list(picks.values()), NOT_ROLLED_OUT)
        found = compare(decision, scores, [*earlier, *answered], scheduler.catalogue.index, scheduler.config)
        self.counts["groups"] += len(answered)
        counts = {name: self.counts[name] for name in ("rows", "dropped", "late")}
        step = ShadowStep(**msgspec.structs.asdict(found), new_tasks=new, **counts)
        session.note(decision.step, {"shadow": msgspec.to_builtins(step)})
        self._decided += 1
        self._save()
        return step

    def _on_record(self, step: int) -> list[GroupResult]:
        events = (event for event, *_ in RunReader(self.out).events() if event.kind == "observed")
        return [event.data for event in events if event.data.step == step]

    def _begin(self, taken: Taken, results: list[GroupResult]) -> LiveSession:
        """The scheduler, once the first step shows how large groups and batches are."""
        if self._writer is None:
            raise StoreError(f"{self.out} is closed; follow the log again")
        plan, writer = self.plan, self._writer
        given = {"batch_size": plan.batch_size or len(results), "group_size": plan.group_size}
        settings = {**{name: value for name, value in given.items() if value is not None}, **plan.settings}
        pool = RecordedPool(self.out, writer.manifest, tuple(taken.tasks), tuple(results))
        scheduler = make_scheduler(plan.scheduler or "envsched", config_for(pool, settings, preset="training"))
        said = manifest_of(self.out, scheduler)
        facts = {name: getattr(said, name) for name in ("scheduler", "config", "seed", "batch_size", "reward_ranges")}
        notes = self._context.notes
        writer.update_manifest(**facts, notes=(*filter(None, [notes.kept_only]), *notes.lines()))
        self._writer = None
        return LiveSession(scheduler, Sink(writer))

    def _register(self, taken: Taken, session: LiveSession) -> int:
        """Make tasks known that the log shows for the first time, and those listed for its new environments."""
        known = session.scheduler.catalogue.index
        shown = {task.key: (task, text) for task, text in zip(taken.tasks, taken.text_known, strict=True)}
        fresh = [
            msgspec.structs.replace(self._catalogue.fill(task, text_known=text), draws=None)
            for key, (task, text) in shown.items()
            if key not in known
        ]
        joined = {task.env for task in fresh} - self._listed
        self._listed |= joined
        rolled = [(task.env, task.task) for task in fresh if task.env in joined]
        others = [msgspec.structs.replace(task, draws=None) for task in self._catalogue.without_rollouts(rolled)]
        session.register([*fresh, *(task for task in others if task.key not in known)])
        return len(fresh)

    def _save(self) -> None:
        """Say how far every file was taken: never beyond a row that waits."""
        session = self.session
        if session is not None and session.sink is not None and session.sink.works:
            with suppress(StoreError):  # the older file stands: more is read again, nothing counts twice
                write_progress(self.out, self.log.files, self._first, self.counts)

    def _first(self, file: str) -> Position | None:
        """Where the next process begins to read a file, if not behind what was read."""
        return Position(0, 0, 0) if file in self._lists else self._waiting.first(file)
