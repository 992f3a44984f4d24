"""The verdict on a log: how much of it was wasted, what EnvSched would have avoided, and how sure that is.

The log's groups are replayed as a pool (replay/) under uniform, empirical Bayes and EnvSched, with several
seeds. "Wasted" are rollouts (or tokens, or seconds) in groups whose rewards are all equal. Exact on the log;
it says nothing about how another choice would have changed the policy. Where a log cannot answer, the
verdict is that it cannot tell, and why.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.errors import LogFormatError
from envsched_core.evaluate import Interval, Spent, rate_bootstrap, ratio_bootstrap
from envsched_core.importers import ImportOptions, ImportReport, import_run
from envsched_core.importers.sources import is_run_folder
from envsched_core.records import GroupResult
from envsched_core.replay import RecordedPool, config_for, drive, is_mixed, load_pool
from envsched_core.replay.journal import Journal

__all__ = ["SCHEDULERS", "Assessment", "Saving", "assess", "assess_pool", "pool_of"]

SCHEDULERS = ("envsched", "empirical-bayes", "uniform")
UNITS: dict[str, Callable[[GroupResult], float | None]] = {
    "rollout": lambda group: float(len(group.rewards) + group.missing),
    "token": lambda group: group.cost.tokens if group.cost else None,
    "second": lambda group: group.cost.seconds if group.cost else None,
}
FEWEST_GROUPS = 16
"""Below this many groups with two or more rewards there is nothing to compare."""
WORTH = 0.05
"""Avoiding less than this share of the waste is not worth a change."""

Verdict = Literal["worth it", "not worth it", "cannot tell"]


class Saving(msgspec.Struct, frozen=True):
    """What one scheduler spent in the replay, counted in one unit."""

    scheduler: str
    unit: str
    """rollout, token or second."""
    wasted: float
    """Share spent on groups with equal rewards; mean over seeds."""
    avoided: Interval
    """Share of uniform's waste that was avoided: 1 - wasted / uniform's wasted; 95 % interval."""
    yield_ratio: Interval
    """Mixed groups per unit spent, over uniform's; 95 % interval."""


class Assessment(msgspec.Struct, frozen=True):
    """The verdict on a log."""

    verdict: Verdict
    sentence: str
    flat: Interval
    """Share of the log's rollouts in groups with equal rewards, among groups with two or more rewards."""
    groups: int
    comparable_groups: int
    """Groups with two or more rewards."""
    tasks: int
    environments: int
    rollouts: int
    savings: tuple[Saving, ...]
    """By unit, then scheduler; only units that every group of the log has. Empty when nothing was replayed."""
    seeds: int
    batch_size: int
    steps: int
    preset: str
    caveats: tuple[str, ...]


def assess(
    paths: Sequence[Path],
    options: ImportOptions | None = None,
    *,
    seeds: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Assessment, ImportReport | None]:
    """Import a log for the while (or take one run folder as it is) and judge it.

    `seeds`: replays of each scheduler; None = 5, or 3 where each is so long that more add little.

    Raises:
        LogFormatError: the log cannot be read. StoreError: the run folder holds no groups.
    """
    with tempfile.TemporaryDirectory() as folder:
        pool, report = pool_of(paths, options, Path(folder))
        return assess_pool(pool, seeds=seeds, progress=progress), report


def pool_of(
    paths: Sequence[Path], options: ImportOptions | None, folder: Path
) -> tuple[RecordedPool, ImportReport | None]:
    """The recorded pool of a run folder, or of a log imported into `folder`; with the report of that import."""
    if len(paths) == 1 and is_run_folder(paths[0]):
        return load_pool(paths[0]), None
    without_messages = msgspec.structs.replace(options or ImportOptions(), keep_rollouts=False)
    report = import_run(paths, folder / "log", without_messages)
    if not report.groups:
        raise LogFormatError("lists tasks and holds no rollouts: there is nothing to assess", file=str(paths[0]))
    return load_pool(folder / "log"), report


def assess_pool(
    pool: RecordedPool, *, seeds: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Assessment:
    """Judge recorded groups; those with fewer than two rewards cannot show anything and are left out, and told."""
    groups = tuple(group for group in pool.groups if len(group.rewards) > 1)
    batch_size, steps = _extent(len(groups))
    seeds = seeds or (5 if len(groups) <= 1000 else 3)
    config = config_for(pool, {"batch_size": batch_size})
    flat = _flat(groups, config)
    reason = _unanswerable(pool, len(groups))
    savings: tuple[Saving, ...] = ()
    if not reason:
        comparable = pool._replace(groups=groups)
        savings = _savings(comparable, _replays(comparable, config, seeds, steps, progress), config)
    verdict, sentence = _judge(flat, savings) if savings else ("cannot tell", reason)
    return Assessment(
        verdict=verdict,
        sentence=f"{verdict.capitalize()}: {sentence}",
        flat=flat,
        groups=len(pool.groups),
        comparable_groups=len(groups),
        tasks=len(pool.tasks),
        environments=len({task.env for task in pool.tasks}),
        rollouts=sum(len(group.rewards) + group.missing for group in pool.groups),
        savings=savings,
        seeds=seeds if savings else 0,
        batch_size=batch_size,
        steps=steps,
        preset="replay",
        caveats=(*_caveats(pool, len(groups), savings), *pool.manifest.notes),
    )


def _extent(groups: int) -> tuple[int, int]:
    """Batch size and steps: an eighth of the pool a step, at most 64, until half the pool or 20 steps are reached.

    Beyond half of the pool every scheduler is driven to what the others left over.
    """
    batch_size = max(1, min(64, groups // 8))
    return batch_size, max(1, min(20, groups // (2 * batch_size)))


def _unanswerable(pool: RecordedPool, comparable: int) -> str:
    """Why this log cannot tell; empty when it can."""
    if comparable < FEWEST_GROUPS:
        return (
            f"only {comparable} of {len(pool.groups)} groups have two or more rewards, and at least {FEWEST_GROUPS} "
            "are needed; a log with repeated rollouts of each task can tell."
        )
    if pool.manifest.report.get("kept_only"):
        return (
            "the log seems to hold only groups with mixed rewards, so what was wasted is not in it; "
            "log groups before they are filtered."
        )
    return ""


def _flat(groups: Sequence[GroupResult], config: Config) -> Interval:
    """Share of rollouts in flat groups; groups are resampled."""
    sizes = [float(len(group.rewards)) for group in groups]
    wasted = [0.0 if is_mixed(group, config) else size for group, size in zip(groups, sizes, strict=True)]
    return ratio_bootstrap(wasted, sizes, seed=0)


Replays = dict[str, list[list[GroupResult]]]
"""Scheduler -> seed -> the groups it drew."""


def _replays(
    pool: RecordedPool, config: Config, seeds: int, steps: int, progress: Callable[[int, int], None] | None
) -> Replays:
    """Replay the pool under every scheduler with every seed."""
    replays: Replays = {name: [] for name in SCHEDULERS}
    for seed in range(seeds):
        for name in SCHEDULERS:
            journal = Journal(make_scheduler(name, msgspec.structs.replace(config, seed=seed)))
            replays[name].append([g for step in drive(pool, journal, steps=steps) for g in step.results])
            if progress:
                progress(sum(map(len, replays.values())), seeds * len(SCHEDULERS))
    return replays


def _savings(pool: RecordedPool, replays: Replays, config: Config) -> tuple[Saving, ...]:
    """Every scheduler in every unit that the log has for all its groups."""
    known = [unit for unit, amount in UNITS.items() if all((amount(group) or 0) > 0 for group in pool.groups)]
    index = {task.key: i for i, task in enumerate(pool.tasks)}
    return tuple(_saving(name, unit, replays, index, config) for unit in known for name in SCHEDULERS)


def _saving(name: str, unit: str, replays: Replays, index: dict[str, int], config: Config) -> Saving:
    wasted = {side: [_spent(g, unit, index, config, mixed=False) for g in replays[side]] for side in (name, "uniform")}
    useful = {side: [_spent(g, unit, index, config, mixed=True) for g in replays[side]] for side in (name, "uniform")}
    kept = rate_bootstrap(wasted[name], wasted["uniform"], seed=0)
    return Saving(
        scheduler=name,
        unit=unit,
        wasted=sum(replay.rate for replay in wasted[name]) / len(wasted[name]),
        avoided=Interval(1 - kept.mean, 1 - kept.high, 1 - kept.low),
        yield_ratio=rate_bootstrap(useful[name], useful["uniform"], seed=0),
    )


def _spent(groups: Sequence[GroupResult], unit: str, index: dict[str, int], config: Config, *, mixed: bool) -> Spent:
    """What a replay spent, counting the mixed groups themselves or the amounts that flat ones took."""
    amounts = [UNITS[unit](group) or 0.0 for group in groups]
    flags = [is_mixed(group, config) for group in groups]
    counted = [float(flag) for flag in flags] if mixed else [a * (not f) for a, f in zip(amounts, flags, strict=True)]
    return Spent([index[group.key] for group in groups], counted, amounts)


def _judge(flat: Interval, savings: Sequence[Saving]) -> tuple[Verdict, str]:
    """The verdict from the savings per rollout, in one sentence."""
    ours, bayes = (next(s for s in savings if s.scheduler == name) for name in SCHEDULERS[:2])
    lead = f"{flat.mean:.0%} of the rollouts went into groups with equal rewards"
    if math.isnan(ours.avoided.mean):
        return "not worth it", f"{lead}, and uniform picking wasted nothing in the replay."
    low, high = ours.avoided.low, ours.avoided.high
    avoided = (
        f"{lead}; of what uniform picking wastes EnvSched would have avoided {ours.avoided.mean:.0%} "
        f"(95 % interval {low:.0%} to {high:.0%}), empirical Bayes {bayes.avoided.mean:.0%}"
    )
    if low >= WORTH:
        return "worth it", f"{avoided}; even the low end is above {WORTH:.0%}."
    if high < WORTH:
        return "not worth it", f"{avoided}; even the high end is below {WORTH:.0%}."
    if low > 0:
        return "worth it", f"{avoided}; surely more than 0, but it may be little."
    return "cannot tell", f"{avoided}; the interval holds 0 as well as more than {WORTH:.0%}."


def _caveats(pool: RecordedPool, comparable: int, savings: Sequence[Saving]) -> list[str]:
    """What the numbers do not say, and where a gain per rollout is a loss elsewhere."""
    lines = ["replayed on recorded groups: exact on the log, silent on how the choice would have changed the policy"]
    if comparable < len(pool.groups):
        lines.append(
            f"{len(pool.groups) - comparable} of {len(pool.groups)} groups have fewer than two rewards: left out"
        )
    if savings and len({group.key for group in pool.groups}) == len(pool.groups):
        lines.append("every task has one group: its own history could not help, only that of other tasks")
    if savings and savings[1].avoided.mean >= savings[0].avoided.mean:
        lines.append("empirical Bayes does as well: the graph adds nothing on this log")
    lines += [_loss(s) for s in savings if s.scheduler == "envsched" and s.yield_ratio.high < 1]
    return lines


def _loss(saving: Saving) -> str:
    times = f"{saving.yield_ratio.mean:.2f} times as many mixed groups per {saving.unit} as uniform"
    return f"EnvSched finds {times}: a loss per {saving.unit}"
