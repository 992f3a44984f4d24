"""Rows -> groups, streaming: in memory stay about 40 bytes a rollout and 500 a group.

The rule: rows of one environment and task with the same group id are one group; without group ids, the rows
of the same step; without steps, all rows of the same policy version. A group belongs to one step in any case,
so group ids that start again at every step do no harm. Rows of a group need not be adjacent.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envsched_core.records import Cost, GroupResult, Place, TaskSpec, Tool, ToolCall, task_key

from .base import Row, RowError
from .blocks import Block
from .catalogue import TEXT_LIMIT
from .messages import assistant_turns

__all__ = ["MAX_GROUP", "Groups", "Joined", "Joins", "Order", "group_id_of"]

MAX_GROUP = 16_384
"""Rollouts of one group that are taken; more means that the group or step column was not found."""

FULL = f"more than {MAX_GROUP:,} rollouts in one group: name the group or step with --map"
NAN = float("nan")
REMEMBERED = 8_192
"""Rows' keys whose group is remembered; rows of a group mostly stand together."""
NO_STEP = np.iinfo(np.int64).max
Ints = NDArray[np.int64]
Key = tuple[str, str, str | None, int | None, str | None]
"""Environment, task, group, step and policy version of a row."""


class Joined(NamedTuple):
    """Where a row went."""

    group_id: str
    first: int
    """0-based position in its group of the row's first rollout."""


class Joins(NamedTuple):
    """Where the rows of a block went."""

    group_ids: list[str]
    first: list[int]
    """0-based position of each in its group."""


class Order(NamedTuple):
    """The rollouts of a log sorted by group, repeats left out."""

    rollouts: Ints
    """Row numbers, group after group, log order inside a group."""
    ends: Ints
    """Where each group [M] ends in `rollouts`."""
    repeats: Ints
    """Row numbers of rollouts that repeat an earlier one."""


class Names:
    """Values -> small numbers in order of first sight; each value is kept once."""

    def __init__(self) -> None:
        """Starts empty."""
        self.index: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        """The number of `value`."""
        found = self.index.get(value)
        if found is None:
            found = self.index[value] = len(self.index)
        return found


class Groups:
    """All rollouts of a log in columns, and the groups and tasks that they belong to."""

    def __init__(self) -> None:
        """Starts empty."""
        self.tasks: list[TaskSpec] = []
        self.text_known: list[bool] = []
        """Whether a task list's text may be put to each task."""
        self._task_index: dict[tuple[str, str], int] = {}
        self._task_prompt = array("q")
        self._task_group = array("i")
        """The first group of each task."""
        self._tools: dict[tuple[Tool, ...], tuple[Tool, ...]] = {}
        self._files, self._policies, self._sequences = Names(), Names(), Names()
        # one entry a rollout
        self.reward, self.group = array("d"), array("i")
        self.file, self.line = array("i"), array("I")
        self.offset, self.mark, self.calls = array("q"), array("q"), array("i")
        # one entry a group
        self._ids: dict[str, int] = {}
        self._recent: dict[Key, tuple[str, int, int]] = {}
        """Key of a row -> id, number and task of its group, for the last groups."""
        self.task, self.policy, self.trained = array("i"), array("i"), array("b")
        self.step, self._prompt, self.count = array("q"), array("q"), array("i")
        self._answer, self.conflict = array("q"), array("b")
        """0 where all rows of the group agree, 1 where prompts differ, 2 where only expected answers do."""
        self.costs = tuple(array("d") for _ in Cost.__struct_fields__)
        self.changed_prompts: set[int] = set()
        """Tasks that had another prompt in a later group."""

    def __len__(self) -> int:
        """M, the number of groups."""
        return len(self.task)

    def add(self, row: Row) -> Joined:
        """Take in a row.

        Raises:
            RowError: its group is full.
        """
        key = (row.env, row.task, row.group, row.step, row.policy_version)
        group_id, group, task = self._recent.get(key) or self._find(row, key)
        first = self.count[group]
        if first + len(row.rewards) > MAX_GROUP:
            raise RowError(FULL)
        if row.text or row.tools or row.answer or not self.text_known[task]:
            self._told(row, group, task)
        self._join(row, group)
        self._rollouts(row, group)
        return Joined(group_id, first)

    def add_block(self, block: Block) -> Joins | None:
        """Take in a block; None, its rows to be added one by one, when one of its groups may become full."""
        keys = zip(block["env"], block["task"], block["group"], block["step"], block["policy_version"], strict=True)
        recent = self._recent.get  # `_find` may clear it, but makes no new one
        found = [recent(key) or self._find(block.row(index), key) for index, key in enumerate(keys)]
        group_ids, groups, tasks = map(list, zip(*found, strict=True))
        counts, first = self.count, []
        if max(counts[group] for group in set(groups)) + len(block) > MAX_GROUP:
            return None
        for group in groups:
            first.append(counts[group])
            counts[group] += 1
        if "text" in block.columns or "tools" in block.columns or not all(map(self.text_known.__getitem__, set(tasks))):
            last = None
            for index, told in enumerate(zip(groups, tasks, block["text"], block["tools"], strict=True)):
                if told != last:
                    self._told(block.row(index), *told[:2])
                last = told
        if "trained" in block.columns:
            for group, trained in zip(groups, block["trained"], strict=True):
                self.trained[group] = max(self.trained[group], -1 if trained is None else int(trained))
        self._block_costs(block, groups)
        self._block_rollouts(block, groups)
        return Joins(group_ids, first)

    def _block_costs(self, block: Block, groups: list[int]) -> None:
        """Add the costs of a block's rows to their groups."""
        turns, calls = block["turns"], block["tool_calls"]
        if "messages" in block.columns:
            both = zip(turns, block["messages"], strict=True)
            turns = [assistant_turns(said) if n is None and said else n for n, said in both]
        if "calls" in block.columns:
            both = zip(calls, block["calls"], strict=True)
            calls = [len(made) if n is None and made is not None else n for n, made in both]
        rows = np.array(groups)
        for column, amounts in zip(self.costs, (block["tokens"], block["seconds"], turns, calls), strict=True):
            np.add.at(np.asarray(column), rows, np.array(amounts, dtype=float))  # None = NaN; one by one, in order

    def _block_rollouts(self, block: Block, groups: list[int]) -> None:
        """Add a block's rollouts to the columns."""
        paths: dict[int, int] = {}  # calls are often the very same object
        for calls in block["calls"]:
            if id(calls) not in paths:
                paths[id(calls)] = self._path(calls)
        self.reward.frombytes(np.array(block.reward, dtype=float).tobytes())
        self.group.extend(groups)
        self.file.extend([self._files(block.file)] * len(block))
        self.line.extend(block.line)
        self.mark.extend(block["mark"])
        self.calls.extend([paths[id(calls)] for calls in block["calls"]])

    def _path(self, calls: tuple[ToolCall, ...] | None) -> int:
        """The number of a sequence of calls; -1 where the log does not say."""
        return -1 if calls is None else self._sequences(tuple([call.name for call in calls]))

    def _find(self, row: Row, key: Key) -> tuple[str, int, int]:
        """A row's group, opened if it is new: its id, its number, that of its task.

        Raises:
            RowError: it could only be full.
        """
        if len(row.rewards) > MAX_GROUP:
            raise RowError(FULL)
        prompt = hash(row.text) if row.text else 0
        group_id = group_id_of(row)
        group = self._ids.get(group_id, -1)
        task = self._task(row, prompt)
        if group < 0:
            group = self._open(row, task, group_id, prompt)
        if len(self._recent) >= REMEMBERED:
            self._recent.clear()
        found = self._recent[key] = group_id, group, task
        return found

    def _told(self, row: Row, group: int, task: int) -> None:
        """Whether a row agrees with its group and task on what was asked, and what it adds to the task."""
        prompt = hash(row.text) if row.text else 0
        self._fill(task, row, prompt)
        elsewhere = group != self._task_group[task]
        if elsewhere and prompt and self._task_prompt[task] and prompt != self._task_prompt[task]:
            self.changed_prompts.add(task)
        if prompt and self._prompt[group] and prompt != self._prompt[group]:
            self.conflict[group] = 1
        elif row.answer and self.conflict[group] == 0 and hash(row.answer) != self._answer[group]:
            self.conflict[group] = 2

    def ids(self, groups: Sequence[int]) -> list[str]:
        """Ids of some groups."""
        ids = list(self._ids)
        return [ids[group] for group in groups]

    def draws(self) -> list[int]:
        """Recorded groups of every task."""
        return list(map(int, np.bincount(np.asarray(self.task, dtype=np.int64), minlength=len(self.tasks))))

    def policy_versions(self) -> int:
        """How many policy versions the log names."""
        return len(self._policies.index.keys() - {None})

    def step_span(self) -> tuple[int, int] | None:
        """First and last step, None when the log has none."""
        steps = np.asarray(self.step)
        steps = steps[steps != NO_STEP]
        return (int(steps.min()), int(steps.max())) if len(steps) else None

    def keep(self, offsets: list[int]) -> None:
        """Byte offsets of the next rollouts in the run folder."""
        self.offset.extend(offsets)

    def _task(self, row: Row, prompt: int) -> int:
        """The row's task."""
        index = self._task_index.setdefault((row.env, row.task), len(self.tasks))
        if index == len(self.tasks):
            self.tasks.append(self._spec(row))
            self.text_known.append(row.text_known)
            self._task_prompt.append(prompt)
            self._task_group.append(len(self))
        return index

    def _fill(self, task: int, row: Row, prompt: int) -> None:
        """Add what earlier rows of a task left open."""
        known = self.tasks[task]
        if (row.text and not known.text) or (row.tools and not known.tools):
            more = self._spec(row)
            self.tasks[task] = TaskSpec(
                known.env,
                known.task,
                known.text or more.text,
                known.tools or more.tools,
                known.state or more.state,
                known.verifier or more.verifier,
                more.calls if known.calls is None else known.calls,
            )
            self._task_prompt[task] = self._task_prompt[task] or prompt
        self.text_known[task] |= row.text_known

    def _spec(self, row: Row) -> TaskSpec:
        """A task as one row shows it; equal tool lists are kept once."""
        tools = self._tools.setdefault(row.tools, row.tools)
        return TaskSpec(row.env, row.task, row.text[:TEXT_LIMIT], tools, row.state, row.verifier, row.reference)

    def _open(self, row: Row, task: int, group_id: str, prompt: int) -> int:
        """Start a group."""
        group = self._ids[group_id] = len(self.task)
        self.task.append(task)
        self.policy.append(self._policies(row.policy_version))
        self.step.append(NO_STEP if row.step is None else row.step)
        self.trained.append(-1)
        self._prompt.append(prompt)
        self._answer.append(hash(row.answer) if row.answer else 0)
        self.conflict.append(0)
        self.count.append(0)
        for column in self.costs:
            column.append(0.0)
        return group

    def _join(self, row: Row, group: int) -> None:
        """Add a row's totals to its group; a cost that one row does not tell is unknown for the group."""
        self.count[group] += len(row.rewards)
        if row.trained is not None:
            self.trained[group] = max(self.trained[group], int(row.trained))
        turns, calls = row.turns, row.tool_calls
        if turns is None and row.messages:
            turns = assistant_turns(row.messages)
        if calls is None and row.calls is not None:
            calls = len(row.calls)
        tokens, seconds, all_turns, all_calls = self.costs
        tokens[group] += NAN if row.tokens is None else row.tokens
        seconds[group] += NAN if row.seconds is None else row.seconds
        all_turns[group] += NAN if turns is None else turns
        all_calls[group] += NAN if calls is None else calls

    def _rollouts(self, row: Row, group: int) -> None:
        """Add a row's rollouts to the columns."""
        calls = self._path(row.calls)
        file, line = self._files(row.place.file), row.place.line
        mark = row.mark
        for reward in row.rewards:
            self.reward.append(NAN if reward is None else reward)
            self.group.append(group)
            self.file.append(file)
            self.line.append(line)
            self.mark.append(mark)
            self.calls.append(calls)

    def order(self) -> Order:
        """Sort the rollouts by group and set repeats apart."""
        group, mark = np.asarray(self.group), np.asarray(self.mark)  # views: nothing is copied
        repeats = _repeats(group, mark)
        kept = np.ones(len(group), dtype=bool)
        kept[repeats] = False
        rows = np.flatnonzero(kept)
        rows = rows[np.argsort(group[rows], kind="stable")]
        return Order(rows, np.cumsum(np.bincount(group[rows], minlength=len(self))), repeats)

    def results(self, order: Order) -> Iterator[GroupResult]:
        """Every group by step, then in log order; groups without step come last."""
        ids, ends = list(self._ids), [*order.ends.tolist(), 0]  # the last stands before the first
        names = list(self._files.index), list(self._policies.index), list(self._sequences.index)
        for group in np.argsort(np.asarray(self.step), kind="stable").tolist():
            rows = order.rollouts[ends[group - 1] : ends[group]].tolist()
            yield self._result(ids[group], group, rows, names)

    def _result(self, group_id: str, group: int, rows: list[int], names: tuple[list[Any], ...]) -> GroupResult:
        """One group as the rest of the project knows it."""
        files, policies, sequences = names
        rewards = tuple([reward for reward in _taken(self.reward, rows) if reward == reward])
        missing = len(rows) - len(rewards)
        status: Literal["ok", "partial", "error"] = "ok" if not missing else "partial" if rewards else "error"
        spec, step, trained = self.tasks[self.task[group]], self.step[group], self.trained[group]
        calls = _taken(self.calls, rows)
        paths = [sequences[call] if call >= 0 else () for call in calls] if max(calls) >= 0 else []
        places = map(Place, map(files.__getitem__, _taken(self.file, rows)), _taken(self.line, rows))
        return GroupResult(
            group_id,
            spec.env,
            spec.task,
            rewards,
            step=None if step == NO_STEP else step,
            missing=missing,
            status=status,
            policy_version=policies[self.policy[group]],
            trained=None if trained < 0 else bool(trained),
            cost=self._cost(group),
            calls=tuple(paths),
            places=tuple(places),
            offsets=tuple(_taken(self.offset, rows)) if self.offset else (),
        )

    def _cost(self, group: int) -> Cost | None:
        """The group's cost, None when the log tells none of it."""
        amounts = [column[group] for column in self.costs]
        if all(amount != amount for amount in amounts):  # NaN
            return None
        return Cost(*[amount if amount == amount else None for amount in amounts])


def _taken(column: array[Any], rows: list[int]) -> list[Any]:
    """The values of some rows; those of a group mostly stand together."""
    first, last = rows[0], rows[-1]
    if last - first + 1 == len(rows):  # rows of a group are in log order
        return column[first : last + 1].tolist()
    return [column[row] for row in rows]


def group_id_of(row: Row) -> str:
    """The group of a row by the rule in the module's head; unique in the log."""
    key = task_key(row.env, row.task)
    if "#" in key or "%23" in key:  # a task named a#b must not run into group b of task a
        key = key.replace("%", "%25").replace("#", "%23")
    if row.group is not None:
        return f"{key}#{row.group}" if row.step is None else f"{key}#{row.step}/{row.group}"
    if row.step is not None:
        return f"{key}#step {row.step}"
    return f"{key}#{row.policy_version}" if row.policy_version is not None else key


def _repeats(group: NDArray[np.int32], mark: Ints) -> Ints:
    """Rows with a mark that an earlier row of the same group has."""
    named = np.flatnonzero(mark)
    if not len(named):
        return named
    by = named[np.lexsort((named, mark[named], group[named]))]
    same = (mark[by][1:] == mark[by][:-1]) & (group[by][1:] == group[by][:-1])
    return np.sort(by[1:][same])
