"""The reading loop: files -> rows -> groups, and the run folder that an import writes."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec

from envsched_core.baselines import make_scheduler
from envsched_core.errors import LogFormatError
from envsched_core.limits import ROWS
from envsched_core.records import GroupResult, Rollout, TaskSpec
from envsched_core.store import RunWriter, new_manifest

from .base import Context, Drop, ImportOptions, Listed, Notes, Row, RowError
from .blocks import Block, block_rollouts
from .catalogue import read_catalogue, read_join
from .fields import checked_mapping
from .files import Source
from .formats import read_in_blocks
from .grouping import Groups, Joined
from .report import Facts, ImportReport, Tally, build_report, changed_names, several_policies
from .sources import Input, find_inputs
from .values import LONGEST_NAME

__all__ = ["Imported", "Progress", "Sink", "import_log", "import_run", "rollouts_of"]

Progress = Callable[[int, int], None]
"""Called now and then with the bytes read and the bytes in all."""

Kept = Callable[[], Iterable[Rollout]]
"""Makes the rollouts of a row, or of a block of rows, that found its group."""

Sink = Callable[[Iterable[Rollout]], list[int]]
"""Keeps rollouts, which it draws one by one, and returns the byte offset of each."""

ROWS_A_REPORT, ROLLOUTS_A_CALL, TASKS_A_CALL, GROUPS_A_CALL = 1_000, 4_096, 10_000, 256


class Imported:
    """A log that was read: its tasks, its groups and the report on it. Messages are not in it."""

    def __init__(self, reading: _Reading) -> None:
        """Use `import_log`."""
        self._groups, self._order = reading.groups, reading.groups.order()
        self.files = [item.source.path for item in reading.inputs]
        self.tasks: list[TaskSpec] = reading.tasks()
        """Tasks in order of first rollout, `draws` being their recorded groups; then those only listed (0).

        Of a log that only lists tasks, these, without a limit on draws."""
        listed = len(self.tasks) - len(reading.groups.tasks)
        self.report: ImportReport = build_report(reading.tally, self._groups, self._order, reading.facts(listed))

    def groups(self) -> Iterator[GroupResult]:
        """Every group by step, then in log order; groups without a step come last."""
        return self._groups.results(self._order)


class _Reading:
    """One pass over the files of a log."""

    def __init__(self, paths: Sequence[Path], options: ImportOptions, progress: Progress | None) -> None:
        self.notes = Notes()
        self.inputs: list[Input] = find_inputs(paths, options, self.notes)
        mapping = checked_mapping(options.mapping)
        self.catalogue = read_catalogue(options.tasks, options.tools, options.env, mapping)
        join = read_join(*options.join, mapping) if options.join is not None else None
        self.context = Context(options, self.notes, join)
        self.progress = progress
        self.groups, self.tally = Groups(), Tally()
        self.unreadable: LogFormatError | None = None
        """What was wrong with the first file of a folder that could not be read."""
        self.changed: dict[str, str] = {}
        """Names that had to be changed: as they are now -> as the log has them (its first characters)."""

    def rows(self) -> Iterator[Kept]:
        """Every usable row or block of rows, once it has found its group."""
        total = sum(item.source.size for item in self.inputs)
        before, most, told = 0, ROWS.now(), 0
        for source, format in self.inputs:
            for item in self._items(source, format):
                if isinstance(item, Listed):
                    self.catalogue.add(item.task)
                    self.tally.listed += 1
                    continue
                self.tally.rows += len(item) if isinstance(item, Block) else 1
                if self.tally.rows > most:
                    raise LogFormatError(f"more than {most:,} rows so far, {ROWS.remedy()}", file=source.label)
                if self.progress is not None and self.tally.rows - told >= ROWS_A_REPORT:
                    told = self.tally.rows
                    self.progress(before + source.done, total)
                yield from self._joined(item)
            before += source.size
        if self.progress is not None:
            self.progress(total, total)
        if not len(self.groups):
            if self.tally.listed and self.tally.rows == self.tally.drops.total():
                return  # a catalogue
            raise self._nothing()
        part = self.context.options.reward
        if part is not None and all(reward != reward for reward in self.groups.reward):  # all NaN
            raise LogFormatError(f"no row has a reward part or column '{part}'", file=self.inputs[0].source.label)

    def _joined(self, item: Row | Block | Drop) -> Iterator[Kept]:
        """What came of a row or block."""
        if isinstance(item, Drop):
            self.tally.drop(item)
            return
        if isinstance(item, Block):
            joins = self.groups.add_block(item)
            if joins is not None:
                yield partial(block_rollouts, item, *joins)
                return
            for index in range(len(item)):
                yield from self._joined(item.row(index))
            return
        try:
            joined = self.groups.add(item)
        except RowError as error:
            self.tally.drop(Drop(item.place.file, item.place.line, str(error)))
            return
        if item.changed:
            self._tell_changed(item)
        yield partial(rollouts_of, item, joined)

    def _tell_changed(self, row: Row) -> None:
        for given, name in row.changed:
            self.changed.setdefault(name, given[: LONGEST_NAME + 1])

    def _items(self, source: Source, format: str) -> Iterator[Row | Block | Drop | Listed]:
        """What a reader finds in a file; one of a folder that it cannot read is passed over and told.

        Raises:
            LogFormatError: the file cannot be read, and was named itself or is the only one.
        """
        try:
            yield from read_in_blocks(format, source, self.context)
        except LogFormatError as error:
            if "/" not in source.label or len(self.inputs) == 1:
                raise
            self.unreadable = self.unreadable or error
            self.notes.add(f"passed over {error}")

    def rollouts(self) -> Iterator[Rollout]:
        """Every rollout as the log told it."""
        for kept in self.rows():
            yield from kept()

    def tasks(self) -> list[TaskSpec]:
        """The catalogue: what the log showed, filled in from the task list and the tools file."""
        known = zip(self.groups.tasks, self.groups.text_known, self.groups.draws(), strict=True)
        rolled = [
            msgspec.structs.replace(self.catalogue.fill(task, text_known=text_known), draws=draws)
            for task, text_known, draws in known
        ]
        listed = self.catalogue.without_rollouts((task.env, task.task) for task in rolled)
        return rolled + listed if rolled else [msgspec.structs.replace(task, draws=None) for task in listed]

    def facts(self, listed: int) -> Facts:
        """What the report says besides numbers."""
        if self.catalogue.tasks and self.groups.tasks:
            self._tell_catalogue(listed)
        join = self.context.join
        for what, passed in ("--tasks", self.catalogue.passed), ("--join", join.passed if join else Counter[str]()):
            for why, times in passed.items():
                if times:
                    self.notes.add(f"{times:,} records of the {what} file were not used: {why}")
        for sentence in (*changed_names(self.changed), *several_policies(self.groups, len(self.inputs))):
            self.notes.add(sentence)
        formats = dict.fromkeys(item.format for item in self.inputs)
        environments = len({env for env, _ in self.catalogue.tasks})
        labels = tuple(item.source.label for item in self.inputs)
        return Facts(tuple(formats), labels, listed, environments, self.notes.kept_only, self.notes.lines())

    def _tell_catalogue(self, listed: int) -> None:
        """How the task list and the rollouts fit; `listed` of its tasks joined the catalogue without any."""
        matched = sum(self.catalogue.describes(task.env, task.task) for task in self.groups.tasks)
        if matched or self.context.options.tasks is not None:
            self.notes.add(f"the task list describes {matched:,} of the log's {len(self.groups.tasks):,} tasks")
        if listed:
            self.notes.add(f"{listed:,} tasks of the task list have no rollouts here: known, but not to be replayed")
        if elsewhere := self.catalogue.elsewhere({task.env for task in self.groups.tasks}):
            self.notes.add(f"{elsewhere:,} listed tasks are of environments without any rollout: left out")

    def _nothing(self) -> LogFormatError:
        """What to say when no row was of use."""
        if self.unreadable is not None and not self.tally.rows:
            return self.unreadable
        if not self.tally.first:
            said = "; ".join(["holds no rows", *self.notes.lines()[:3]])
            return LogFormatError(said, file=self.inputs[0].source.label)
        first, reasons = self.tally.first[0], ", ".join(f"{n} x {r}" for r, n in self.tally.drops.most_common(3))
        message = f"no usable row in {self.tally.rows:,}: {reasons}; --map FIELD=COLUMN names the columns"
        return LogFormatError(message, file=first.file, line=first.line)


def rollouts_of(row: Row, joined: Joined) -> list[Rollout]:
    """The rollouts of a row; what a row says of a whole group is not said of its rollouts."""
    single = len(row.rewards) == 1
    return [
        Rollout(
            joined.group_id,
            row.env,
            row.task,
            index,
            reward,
            reward_parts=row.parts if single else {},
            messages=row.messages,
            calls=row.calls or (),
            tokens=row.tokens if single else None,
            seconds=row.seconds if single else None,
            status=row.status,
            place=row.place,
        )
        for index, reward in enumerate(row.rewards, joined.first)
    ]


def import_log(
    paths: Sequence[Path],
    options: ImportOptions | None = None,
    *,
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read a log; rollouts go to `sink` as they are read and are not kept otherwise.

    Raises:
        LogFormatError: a file cannot be read, a needed column is missing, or no row is of use.
        ConfigError: a format or field is named that does not exist.
    """
    reading = _Reading(paths, options or ImportOptions(), progress)
    if sink is None:
        for _ in reading.rows():
            pass
    else:
        rollouts = reading.rollouts()
        while offsets := sink(islice(rollouts, ROLLOUTS_A_CALL)):
            reading.groups.keep(offsets)
    return Imported(reading)


def import_run(
    paths: Sequence[Path], out: Path, options: ImportOptions | None = None, progress: Progress | None = None
) -> ImportReport:
    """Read a log into a new run folder; a failed import leaves no folder behind.

    Raises:
        StoreError: `out` holds something already. LogFormatError, ConfigError: as `import_log`.
    """
    options = options or ImportOptions()
    with RunWriter.create(out, new_manifest(out.resolve().name, "import")) as writer:
        try:
            imported = import_log(
                paths, options, sink=writer.add_rollouts if options.keep_rollouts else None, progress=progress
            )
            _write(imported, writer)
        except BaseException:  # whatever happened, half an import must not look like a run
            shutil.rmtree(out, ignore_errors=True)
            raise
    return imported.report


def _write(imported: Imported, writer: RunWriter) -> None:
    """Catalogue, groups and manifest of an import."""
    for start in range(0, len(imported.tasks), TASKS_A_CALL):
        writer.add_tasks(imported.tasks[start : start + TASKS_A_CALL])
    if not imported.report.groups:
        _draw(imported.tasks, writer)
    for step, results in groupby(imported.groups(), key=lambda result: result.step):
        while some := list(islice(results, GROUPS_A_CALL)):
            writer.observed(some, step)
    report = imported.report
    ranges, observed = report.manifest_ranges()
    writer.update_manifest(
        source=_provenance(imported.files, report.files),
        reward_ranges=ranges,
        ranges_observed=observed,
        report=msgspec.to_builtins(report),
        notes=tuple(report.warnings()),
    )


def _draw(tasks: Sequence[TaskSpec], writer: RunWriter) -> None:
    """The graph of a catalogue without rollouts: as the scheduler of a run on it would begin."""
    scheduler = make_scheduler("envsched")
    scheduler.register(tasks)
    if scheduler.graph is not None:
        writer.add_graph(scheduler.graph, None)


def _provenance(paths: Sequence[Path], labels: Sequence[str]) -> dict[str, Any]:
    """What the run was made from: every file with its size and digest (as `sha256sum` prints it)."""
    files = []
    for path, label in zip(paths, labels, strict=True):
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        files.append({"path": label, "bytes": path.stat().st_size, "digest": digest})
    whole = hashlib.blake2b("".join(str(file["digest"]) for file in files).encode(), digest_size=16).hexdigest()
    return {"path": labels[0] if len(labels) == 1 else f"{len(labels)} files", "digest": whole, "files": files}
