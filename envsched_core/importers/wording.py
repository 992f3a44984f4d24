"""An import report in plain lines, for a terminal or a page; no markup, log text only as it stands in names."""

from __future__ import annotations

from envsched_core.explanation import several

from .report import ImportReport
from .statistics import RewardRange

__all__ = ["report_lines"]

MOST_ENVIRONMENTS = 12


def report_lines(report: ImportReport) -> list[str]:
    """The report, most important first."""
    if not report.groups:
        return [*_catalogue(report), *_remarks(report)]
    return [*_rows(report), *_groups(report), *_rewards(report), *_remarks(report)]


def _catalogue(report: ImportReport) -> list[str]:
    """What there is to say of a log that only lists tasks."""
    files = report.files[0] if len(report.files) == 1 else f"{len(report.files)} files"
    found = f"{several(report.listed_tasks, 'task')} of {several(report.environments, 'environment')}, no rollouts"
    return [f"{files} ({', '.join(report.formats)}): a catalogue of {found}", *_dropped(report)]


def _rows(report: ImportReport) -> list[str]:
    files = report.files[0] if len(report.files) == 1 else f"{len(report.files)} files"
    counts = f"{several(report.rows, 'row')}, {report.kept:,} kept, {report.dropped:,} dropped"
    return [f"{files} ({', '.join(report.formats)}): {counts}", *_dropped(report)]


def _dropped(report: ImportReport) -> list[str]:
    lines = [f"  dropped {count:,}: {reason}" for reason, count in report.drop_reasons.items()]
    return lines + [f"    {drop.file}:{drop.line}: {drop.reason}" for drop in report.first_drops]


def _groups(report: ImportReport) -> list[str]:
    sizes = ", ".join(f"{count:,} of {size}" for size, count in report.group_sizes[:8])
    sizes += ", ..." if len(report.group_sizes) > 8 else ""
    lines = [
        f"{several(report.environments, 'environment')}, {several(report.tasks, 'task')}, "
        f"{several(report.rollouts, 'rollout')}"
        + (f" ({report.missing:,} without a usable reward)" if report.missing else ""),
        f"{several(report.groups, 'group')} ({sizes}); usual size {report.usual_size}, "
        f"{report.partial_groups:,} partial",
    ]
    if report.flat_groups is not None and report.flat_rollouts is not None:
        lines.append(
            f"zero variance: {report.flat_groups:.1%} of the {several(report.comparable_groups, 'group')} with two or "
            f"more rewards, {report.flat_rollouts:.1%} of their rollouts"
        )
    if report.steps is not None:
        lines.append(f"steps {report.steps[0]} to {report.steps[1]}")
    if report.repeats:
        lines.append(f"{several(report.repeats, 'rollout')} left out as repeats of earlier ones")
    return lines


def _rewards(report: ImportReport) -> list[str]:
    lines = [_range(item) for item in report.rewards[:MOST_ENVIRONMENTS]]
    more = len(report.rewards) - MOST_ENVIRONMENTS
    return lines + ([f"  and {several(more, 'more environment')}"] if more > 0 else [])


def _range(item: RewardRange) -> str:
    if item.low is None:
        return f"  {item.env}: no reward"
    span = f"{item.low:g} to {item.high:g}"
    return f"  {item.env}: rewards {span} ({item.kind}), mean {item.mean:.3f}, {several(item.rollouts, 'rollout')}"


def _remarks(report: ImportReport) -> list[str]:
    lines = [f"warning: {text}" for text in report.warnings()]
    lines += [f"  different prompts: {group}" for group in report.first_conflicts]
    return lines + [f"note: {text}" for text in report.notes]
