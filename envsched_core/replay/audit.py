"""Audit: the log's own order, and what a scheduler would have picked at each step of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from envsched_core import evaluate
from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.records import Decision, GroupResult
from envsched_core.store import RunWriter, StepScores

from .journal import Journal
from .pool import (
    Clock,
    Progress,
    RecordedPool,
    config_for,
    is_mixed,
    load_pool,
    manifest_of,
    mapped_variance,
    no_clock,
    preset_of,
)

__all__ = ["AuditResult", "AuditStep", "compare", "replay_audit"]

NOT_ROLLED_OUT = "audit: not rolled out"


class AuditStep(msgspec.Struct, frozen=True):
    """One step: what the log trained on, and how it compares with what would have been picked."""

    step: int
    groups: int
    """Groups of the log at this step."""
    overlap: float | None
    """Share of the picks that the log really rolled out; None when nothing could be picked."""
    overlap_by_chance: float
    """The same for as many picks drawn uniformly from all tasks."""
    informative_share: float
    """Share of the log's groups with mixed rewards."""
    predicted_variance_picked: float | None
    """Mean predicted variance of the picks; None where the scheduler predicts nothing."""
    predicted_variance_trained: float | None
    """The same of the tasks that the log rolled out, predicted before their rewards were seen."""


class AuditResult(msgspec.Struct, frozen=True):
    """What an audit came to. No reward is invented: it compares choices and predictions, not outcomes."""

    scheduler: str
    preset: str
    steps: int
    steps_from: str
    """Where the steps come from: the log, or chunks of its groups in log order."""
    batch_size: int
    groups: int
    overlap: float | None
    overlap_by_chance: float | None
    informative_share: float | None
    """Share of the log's own groups with mixed rewards."""
    mean_variance: float | None
    """Of the log's own groups."""
    predicted_variance_picked: float | None
    predicted_variance_trained: float | None
    environments_covered: int
    rollouts_generated: int
    """Rollouts of the log; picks that it did not roll out add none."""
    seconds: float
    seed: int
    per_step: tuple[AuditStep, ...] = ()
    notes: tuple[str, ...] = ()


def replay_audit(
    source: Path | RecordedPool,
    out: Path | None = None,
    *,
    scheduler: str = "envsched",
    config: Config | None = None,
    steps: int | None = None,
    progress: Progress | None = None,
    clock: Clock = no_clock,
) -> AuditResult:
    """Go through a log in its own order, asking a scheduler before each step and then telling it what was rolled out.

    A batch is as large as the log's step. Without steps in the log, chunks of `config.batch_size` groups stand for
    them, and the result says so.

    Raises:
        StoreError: `source` holds no groups, or `out` is not empty. ConfigError: no such scheduler.
    """
    pool = source if isinstance(source, RecordedPool) else load_pool(source)
    config = config or config_for(pool, {})
    plan = _plan(pool, config, steps)
    chosen = make_scheduler(scheduler, msgspec.structs.replace(config, batch_size=plan.largest))
    if out is None:
        return _audit(plan, Journal(chosen), progress, clock)
    manifest = manifest_of(out, "audit", pool, chosen)
    manifest = msgspec.structs.replace(manifest, notes=(*manifest.notes, f"steps are {plan.steps_from}"))
    with RunWriter.create(out, manifest) as writer:
        writer.link_rollouts(pool.path)
        return _audit(plan, Journal(chosen, writer), progress, clock)


class _Plan(NamedTuple):
    """What is gone through."""

    pool: RecordedPool
    batches: list[tuple[int, list[GroupResult]]]
    """Step and what the log rolled out at it, in order."""
    steps_from: str
    preset: str

    @property
    def largest(self) -> int:
        """Groups of the largest step."""
        return max(len(batch) for _, batch in self.batches)


def _plan(pool: RecordedPool, config: Config, steps: int | None) -> _Plan:
    """The log's groups by step, and where the steps come from."""
    groups, size = pool.groups, config.batch_size
    if all(group.step is not None for group in groups):
        by_step: dict[int, list[GroupResult]] = {}
        for group in groups:
            by_step.setdefault(group.step or 0, []).append(group)
        batches = sorted(by_step.items())
        steps_from = "those of the log"
    else:
        batches = [(i // size, list(groups[i : i + size])) for i in range(0, len(groups), size)]
        steps_from = f"chunks of {size} groups in log order, since the log has none"
    return _Plan(pool, batches if steps is None else batches[:steps], steps_from, preset_of(config))


def _audit(plan: _Plan, journal: Journal, progress: Progress | None, clock: Clock) -> AuditResult:
    start = clock()
    journal.register([msgspec.structs.replace(task, draws=None) for task in plan.pool.tasks])
    index = {task.key: i for i, task in enumerate(plan.pool.tasks)}
    done: list[AuditStep] = []
    for step, batch in plan.batches:
        done.append(_step(journal, batch, step, index))
        if progress:
            progress(len(done), len(plan.batches))
    return _result(plan, journal, done, clock() - start)


def _step(journal: Journal, batch: list[GroupResult], step: int, index: dict[str, int]) -> AuditStep:
    """Ask, then tell what was rolled out, then give back the picks that were not."""
    config = journal.scheduler.config
    decision = journal.ask(len(batch), step)
    open_picks = {pick.key: pick.pick_id for pick in decision.picks}
    results = [msgspec.structs.replace(group, step=step, pick_id=open_picks.pop(group.key, None)) for group in batch]
    scores = journal.scheduler.scores()
    journal.observe(results, step)
    journal.release(list(open_picks.values()), NOT_ROLLED_OUT, step)
    audited = compare(decision, scores, results, index, config)
    if journal.writer:
        journal.writer.note(step, {"audit": msgspec.to_builtins(audited)})
    return audited


def compare(
    decision: Decision,
    scores: StepScores | None,
    trained: Sequence[GroupResult],
    index: Mapping[str, int],
    config: Config,
) -> AuditStep:
    """What was picked against what was trained on; `scores` are those of before its rewards were seen."""
    picked, keys = [pick.key for pick in decision.picks], [group.key for group in trained]
    return AuditStep(
        step=decision.step,
        groups=len(trained),
        overlap=evaluate.mean([float(key in set(keys)) for key in picked]) if picked else None,
        overlap_by_chance=len(set(keys)) / len(index),
        informative_share=evaluate.informative_share([is_mixed(group, config) for group in trained]),
        predicted_variance_picked=_predicted(decision, scores, picked, index),
        predicted_variance_trained=_predicted(decision, scores, keys, index),
    )


def _predicted(
    decision: Decision, scores: StepScores | None, keys: list[str], index: Mapping[str, int]
) -> float | None:
    """Mean predicted variance of tasks before the step."""
    if scores is None or decision.trust is None or not keys:
        return None
    return float(scores.variance[[index[key] for key in keys]].mean())


def _result(plan: _Plan, journal: Journal, done: list[AuditStep], seconds: float) -> AuditResult:
    config = journal.scheduler.config
    groups = [group for _, batch in plan.batches for group in batch]
    variances = [v for group in groups if (v := mapped_variance(group, config)) is not None]
    sizes = [step.groups for step in done]
    return AuditResult(
        scheduler=journal.scheduler.name,
        preset=plan.preset,
        steps=len(done),
        steps_from=plan.steps_from,
        batch_size=config.batch_size,
        groups=len(groups),
        overlap=_weighted([step.overlap for step in done], sizes),
        overlap_by_chance=_weighted([step.overlap_by_chance for step in done], sizes),
        informative_share=evaluate.informative_share([is_mixed(group, config) for group in groups]),
        mean_variance=evaluate.mean(variances) if variances else None,
        predicted_variance_picked=_weighted([step.predicted_variance_picked for step in done], sizes),
        predicted_variance_trained=_weighted([step.predicted_variance_trained for step in done], sizes),
        environments_covered=len({group.env for group in groups}),
        rollouts_generated=sum(len(group.rewards) + group.missing for group in groups),
        seconds=seconds,
        seed=config.seed,
        per_step=tuple(done),
        notes=plan.pool.manifest.notes,
    )


def _weighted(values: Sequence[float | None], sizes: Sequence[int]) -> float | None:
    """Mean over steps, weighted by their groups, of the steps that have a value; None when none has."""
    known = [(value, size) for value, size in zip(values, sizes, strict=True) if value is not None]
    return sum(value * size for value, size in known) / sum(size for _, size in known) if known else None
