"""ImportReport: what an import found, for people to judge a log by before they trust a replay of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from .base import Drop
from .grouping import Groups, Order
from .statistics import GroupStats, RewardRange, group_stats, only_mixed, reward_ranges
from .values import LONGEST_NAME

__all__ = ["Facts", "ImportReport", "Tally", "build_report", "changed_names", "several_policies"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST = 10
"""Examples that a report shows."""


class ImportReport(msgspec.Struct, frozen=True):
    """What an import found."""

    formats: tuple[str, ...]
    files: tuple[str, ...]
    """Files read, as places call them."""
    rows: int
    """Rows read; a row with a list of rewards is one row."""
    kept: int
    dropped: int
    drop_reasons: dict[str, int]
    """Reason -> rows, commonest first."""
    first_drops: tuple[Drop, ...]
    """The first ten."""
    environments: int
    tasks: int
    """Tasks with at least one rollout."""
    listed_tasks: int
    """Further tasks that only the task list knows; without any group, the log is a catalogue."""
    groups: int
    rollouts: int
    """Scored and missing."""
    missing: int
    """Rollouts without a usable reward."""
    group_sizes: tuple[tuple[int, int], ...]
    """(rollouts in a group, groups of that size), by size."""
    usual_size: int
    """The commonest size."""
    partial_groups: int
    """Groups smaller than is usual in their environment, or with missing rewards."""
    comparable_groups: int
    """Groups with two or more rewards: the base of the next shares."""
    flat_groups: float | None
    """Share of comparable groups whose rewards are all the same (zero variance); None without any."""
    flat_rollouts: float | None
    """Share of the comparable groups' rollouts that such groups took."""
    mean_reward: float | None
    """Over all scored rollouts, on the log's own scale."""
    mean_variance: float | None
    """Mean population variance of comparable groups, on the log's own scale."""
    rewards: tuple[RewardRange, ...]
    """By environment."""
    kept_only: bool
    """Whether the log is known, or seems, to hold only groups that a filter kept."""
    warning: str
    """What follows from that; empty otherwise."""
    prompt_conflicts: int
    """Groups whose rows show different prompts."""
    first_conflicts: tuple[str, ...]
    """Ids of the first ten."""
    answer_conflicts: int
    """Groups whose rows show one prompt but different expected answers."""
    changed_prompts: int
    """Tasks that show another prompt in another group."""
    repeats: int
    """Rollouts that repeat an earlier one of their group, left out."""
    steps: tuple[int, int] | None
    """First and last step; None when the log has none."""
    policy_versions: int
    notes: tuple[str, ...]

    def manifest_ranges(self) -> tuple[dict[str, tuple[float, float]], bool]:
        """Reward range per environment, and whether any is merely what was observed.

        An environment whose rewards all lie in [0, 1] is taken to have that range.
        """
        spans = [(item.env, item.low, item.high) for item in self.rewards]
        known = {env: (low, high) for env, low, high in spans if low is not None and high is not None}
        unit = (0.0, 1.0)
        found = {env: unit if low >= 0.0 and high <= 1.0 else (low, high) for env, (low, high) in known.items()}
        return found, any(span != unit for span in found.values())

    def warnings(self) -> list[str]:
        """Sentences that whoever reads numbers of this log should see."""
        said = [self.warning] if self.warning else []
        mixed = self.prompt_conflicts + self.answer_conflicts
        if mixed:
            answers = f" ({self.answer_conflicts:,} by their answers only)" if self.answer_conflicts else ""
            said.append(
                f"{mixed:,} of {self.groups:,} groups mix rollouts of different tasks, by their prompts{answers}: the "
                "log's ids do not tell its tasks apart, --map task_id=COLUMN names another column (prompt, answer)."
            )
        if self.changed_prompts:
            said.append(f"{self.changed_prompts:,} tasks show another prompt in another group; the first is kept.")
        if self.rows and not self.comparable_groups:
            said.append(
                "No group has two rewards: nothing can be said of within-task variance (is the task column right?)."
            )
        wide = [item.env for item in self.rewards if item.low is not None and (item.low < 0 or (item.high or 0) > 1)]
        if wide:
            names = ", ".join(wide[:5]) + (", ..." if len(wide) > 5 else "")
            said.append(f"Rewards leave [0, 1] in {names}: the observed range stands in for the declared one.")
        return said


class Tally:
    """What the reading loop counts."""

    def __init__(self) -> None:
        """Starts at nothing."""
        self.rows = 0
        self.listed = 0
        """Tasks that the log lists."""
        self.drops: Counter[str] = Counter()
        self.first: list[Drop] = []

    def drop(self, drop: Drop) -> None:
        """Count a dropped row."""
        self.drops[drop.reason] += 1
        if len(self.first) < FIRST:
            self.first.append(drop)


class Facts(NamedTuple):
    """What the report says that is not in the groups."""

    formats: Sequence[str]
    files: Sequence[str]
    listed_tasks: int
    listed_environments: int
    kept_only: str
    """Why the log is known to hold kept groups only; empty when nothing says so."""
    notes: Sequence[str]


def build_report(tally: Tally, groups: Groups, order: Order, facts: Facts) -> ImportReport:
    """Put the report together when all rows are in."""
    rewards = np.asarray(groups.reward)[order.rollouts]
    stats = group_stats(rewards, order.ends)
    env_index = {task.env: index for index, task in enumerate({task.env: task for task in groups.tasks}.values())}
    task_env = np.array([env_index[task.env] for task in groups.tasks], dtype=np.int64)
    group_env = task_env[np.asarray(groups.task)] if len(groups) else task_env
    env = np.repeat(group_env, stats.size)
    mixed = only_mixed(stats, group_env, env, rewards)
    conflicts = np.flatnonzero(np.asarray(groups.conflict) == 1).tolist()
    dropped = tally.drops.total()
    return ImportReport(
        formats=tuple(facts.formats),
        files=tuple(facts.files),
        rows=tally.rows,
        kept=tally.rows - dropped,
        dropped=dropped,
        drop_reasons=dict(tally.drops.most_common()),
        first_drops=tuple(tally.first),
        environments=len(env_index) or facts.listed_environments,
        tasks=len(groups.tasks),
        listed_tasks=facts.listed_tasks,
        groups=len(groups),
        rollouts=len(rewards),
        missing=int(np.isnan(rewards).sum()),
        **_sizes(stats, group_env),
        **_shares(stats),
        mean_reward=_mean(rewards[~np.isnan(rewards)]),
        rewards=tuple(reward_ranges(list(env_index), env, rewards)),
        kept_only=mixed or bool(facts.kept_only),
        warning=_bias_warning(int((stats.scored >= 2).sum()), facts.kept_only) if mixed or facts.kept_only else "",
        prompt_conflicts=len(conflicts),
        first_conflicts=tuple(groups.ids(conflicts[:FIRST])),
        answer_conflicts=groups.conflict.count(2),
        changed_prompts=len(groups.changed_prompts),
        repeats=len(order.repeats),
        steps=groups.step_span(),
        policy_versions=groups.policy_versions(),
        notes=tuple(facts.notes),
    )


def changed_names(changed: Mapping[str, str]) -> list[str]:
    """Notes on names that are not as the log has them: `changed` = name -> what the log has (its first characters)."""
    long = {name: given for name, given in changed.items() if len(given) > LONGEST_NAME}
    unfit = {name: given for name, given in changed.items() if name not in long}
    said = []
    if unfit:
        first = ", ".join(f"{_cut(given)} is {name}" for name, given in list(unfit.items())[:3])
        said.append(
            f"{len(unfit):,} names were changed, since they hold what no terminal or key can; a hash of the original "
            f"keeps them apart: {first}"
        )
    if long:
        first = ", ".join(f"{_cut(given)} is {name}" for name, given in list(long.items())[:3])
        said.append(f"{len(long):,} names are longer than {LONGEST_NAME} characters; a hash stands for each: {first}")
    return said


def _cut(given: str) -> str:
    return repr(given) if len(given) <= 40 else repr(given[:40]) + "..."


def several_policies(groups: Groups, files: int) -> list[str]:
    """A note when files of several policies became one pool."""
    policies = groups.policy_versions()
    if files < 2 or policies < 2 or groups.step_span() is not None:
        return []
    return [
        f"the {files} files hold groups of {policies} policies (models): a replay draws from all of them as if they "
        "were one; import and replay them one by one to learn about one policy"
    ]


def _sizes(stats: GroupStats, group_env: Ints) -> dict[str, Any]:
    """The fields of the report on group sizes."""
    sizes = Counter(stats.size.tolist())
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    partial = (stats.size < _usual(stats.size, group_env)) | (stats.scored < stats.size)
    return {"group_sizes": tuple(sorted(sizes.items())), "usual_size": usual, "partial_groups": int(partial.sum())}


def _usual(size: Ints, group_env: Ints) -> Ints:
    """The commonest size in the environment of each group [M]; the larger of two equally common ones."""
    usual = np.zeros(int(group_env.max(initial=-1)) + 1, dtype=np.int64)
    pairs = Counter(zip(group_env.tolist(), size.tolist(), strict=True))
    for (env, common), _ in sorted(pairs.items(), key=lambda item: (item[1], item[0][1])):
        usual[env] = common  # the commonest comes last
    return usual[group_env]


def _shares(stats: GroupStats) -> dict[str, Any]:
    """The fields of the report on groups with two or more rewards."""
    many = stats.scored >= 2
    return {
        "comparable_groups": int(many.sum()),
        "flat_groups": _mean(stats.flat[many].astype(float)),
        "flat_rollouts": _mean(np.repeat(stats.flat[many], stats.scored[many]).astype(float)),
        "mean_variance": _mean(stats.variance[many]),
    }


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _bias_warning(groups: int, reason: str) -> str:
    seems = (
        f"none of the {groups:,} groups with two or more rewards is flat: the log seems to hold only mixed groups, as "
        "trainers that filter write it"
    )
    return (
        f"{reason or seems}. Shares of flat groups, and savings replayed from it, then say nothing about the run it "
        "comes from; log the groups before the filter to learn more."
    )
