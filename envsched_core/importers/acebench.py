"""ACEBench: results joined with scores, and its data files as a catalogue.

`data_{category}_result.json` holds one line a task; its reward is 1 unless the score file of the same name lists the
task, by id or (agent tasks) by its line. Agent tasks also have a graded part `process`: how many milestones the
calls reached in their order, the best of several lists. It is counted here, because the benchmark's own file of it
keeps the last list's number and not the best. The environment is the set of API classes, or the category.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envsched_core.errors import LogFormatError
from envsched_core.records import Message, Place, TaskSpec

from .base import Carries, Context, Drop, ImportOptions, Listed, Row, RowError, as_listed, as_rows
from .failures import Scores, is_score, path_of, score_file_of, written_calls
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import tools_from
from .values import name, names, prompt, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "reached", "read"]

ABOUT = "ACEBench: data_*_result.json joined with data_*_score.json; its data files alone are a catalogue"
CARRIES = Carries(
    env="some",
    task="yes",
    group="no",
    step="no",
    parts="some",
    tools="some",
    calls="yes",
    messages="some",
    cost="no",
    policy="yes",
    every_group="yes",
    limits=(
        "one sample a task: groups are several runs of one model; texts, tools and milestones need the data files; of "
        "agent tasks the calls are logged, not what was said"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

ID = re.compile(r"((?:agent|normal|special)_[A-Za-z_]*?)_\d")
FILE = re.compile(r"(?:.*_)?data_((?:agent|normal|special)_\w+?)(_result)?\.json")
LANGUAGES = {"result_en", "result_zh", "score_en", "score_zh"}
PLACES = ("", "data_all/data_en", "data_all/data_zh", "data_en", "data_zh")
"""Where the data stands, seen from the folder of a run or one above it."""
LEVELS = 6


class _Task(NamedTuple):
    """A task of a data file."""

    line: int
    spec: TaskSpec
    milestones: tuple[tuple[str, ...], ...]
    """Lists of call texts; empty when the task has none."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether this is a file of ACEBench: results, scores, tasks or answers."""
    if head.kind not in ("jsonl", "object"):
        return False
    if is_score(head):
        return FILE.fullmatch(head.path.name.replace("_score.json", ".json")) is not None
    if _is_process(head):
        return True
    own = ID.match(str(head.first.get("id"))) is not None
    return own and bool({"result", "question", "ground_truth"} & set(head.keys))


def _is_process(head: Head) -> bool:
    """Whether every record is one imperfect case under its name."""
    return bool(head.keys) and head.path.name.endswith("_process.json") and all(map(ID.match, head.keys))


def read(source: Source, context: Context) -> Iterator[Row | Drop | Listed]:
    """Every result, or every task of a data file; scores and answers are read with the files that they belong to."""
    head = head_of(source.path)
    if not claims(head, context.options):
        raise LogFormatError("is no file of ACEBench: neither results nor scores, tasks or answers", file=source.label)
    if is_score(head):
        context.notes.add("files of scores are read with the results that they are of")
    elif _is_process(head):
        context.notes.add("the benchmark's own counts of milestones are left aside: they are counted again here")
    elif "result" in head.keys:
        run = _Run(source, context)
        yield from as_rows(records(source, "jsonl"), source, run.row, Identity(source, context))
        yield from (Listed(Place(str(run.data), task.line), task.spec) for task in run.tasks.values())
        run.remark()
    elif "question" in head.keys:
        yield from _listed(source, _tasks_of(source.path))
    else:
        data = _questions_of(source.path)
        known = _tasks_of(data) if data is not None else {}
        bare = {task: _bare(task, answer) for task, answer in _answers(source.path).items()}
        yield from _listed(source, bare | known)


def reached(milestones: Sequence[str], calls: Sequence[str]) -> float:
    """Share of milestones that stand in the calls in their order, up to the first that does not; 1 without any."""
    position = found = 0
    for milestone in milestones:
        try:
            position = calls.index(milestone, position) + 1
        except ValueError:
            break
        found += 1
    return found / len(milestones) if milestones else 1.0


def _listed(source: Source, tasks: Mapping[str, _Task]) -> Iterator[Drop | Listed]:
    """Every task of a data file, and the lines that cannot be read."""

    def listed(record: Mapping[str, Any]) -> Iterator[TaskSpec]:
        task = name(record.get("id"))
        if task is None:
            raise RowError("no id")
        yield tasks[task].spec

    yield from as_listed(records(source, "jsonl"), source, listed)


def _tasks_of(path: Path) -> dict[str, _Task]:
    """Task id -> task, of a data file and the answers to it."""
    answers = _answers(_answers_file(path))
    found: dict[str, _Task] = {}
    for record in records(Source(path), "jsonl"):
        task = None if record.problem else name(record.value.get("id"))
        if task is not None:
            answer = answers.get(task, (0, (), ()))
            found.setdefault(task, _Task(record.line, _spec(record.value, task, answer[1]), answer[2]))
    return found


def _spec(record: Mapping[str, Any], task: str, calls: tuple[str, ...]) -> TaskSpec:
    """One task."""
    classes = tuple(sorted(set(names(record.get("involved_classes")))))
    category = _category_of(task)
    tools = tools_from(record.get("function"))
    known = {tool.name for tool in tools}
    # a function that is called twice is numbered in the answers
    path = tuple(call if call in known else re.sub(r"_\d+$", "", call) for call in calls)
    return TaskSpec(
        "+".join(classes) or category,
        task,
        prompt(record.get("question")),
        tools,
        classes,
        _checker_of(category),
        path or None,
    )


def _bare(task: str, answer: tuple[int, tuple[str, ...], tuple[tuple[str, ...], ...]]) -> _Task:
    """A task of which only the answer is known."""
    category = _category_of(task)
    return _Task(answer[0], TaskSpec(category, task, verifier=_checker_of(category), calls=answer[1]), answer[2])


def _category_of(task: str) -> str:
    """The category in a task's id."""
    found = ID.match(task)
    return found.group(1) if found else "ACEBench"


def _checker_of(category: str) -> str:
    """What the reward of a category checks."""
    return "end state" if category.startswith("agent") else "words" if category.startswith("special") else "calls"


def _answers(path: Path | None) -> dict[str, tuple[int, tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Task id -> line, names of the reference calls, and lists of milestones."""
    if path is None:
        return {}
    found = {}
    for record in records(Source(path), "jsonl"):
        task = None if record.problem else name(record.value.get("id"))
        if task is not None:
            stones = _milestones(record.value.get("mile_stone"))
            calls = path_of(list(stones[0])) if stones else _functions(record.value.get("ground_truth"))
            found[str(task)] = (record.line, calls, stones)
    return found


def _milestones(value: Any) -> tuple[tuple[str, ...], ...]:
    """The lists of milestones: one list of texts, or several."""
    if not isinstance(value, list) or not value:
        return ()
    lists = value if isinstance(value[0], list) else [value]
    return tuple(
        tuple(stone.strip() for stone in stones if isinstance(stone, str))
        for stones in lists
        if isinstance(stones, list)
    )


def _functions(answer: Any) -> tuple[str, ...]:
    """Functions that an answer calls: an object by function, the first of a list of such."""
    if isinstance(answer, list):
        answer = next((item for item in answer if isinstance(item, dict)), None)
    return tuple(map(str, answer)) if isinstance(answer, dict) else ()


def _answers_file(data: Path) -> Path | None:
    """The answers to a data file: under the same name in `possible_answer`, or beside it with that in the name."""
    category = FILE.fullmatch(data.name)
    beside = data.parent.glob(f"*possible_answer*data_{category.group(1)}.json") if category else ()
    return next(
        (path for path in (data.parent / "possible_answer" / data.name, *sorted(beside)) if path.is_file()), None
    )


def _questions_of(answers: Path) -> Path | None:
    """The data file that an answer file belongs to."""
    category = FILE.fullmatch(answers.name)
    if category is None:
        return None
    wanted = f"data_{category.group(1)}.json"
    near = [answers.parent.parent / answers.name, *sorted(answers.parent.glob(f"*{wanted}"))]
    return next((path for path in near if path.is_file() and "question" in head_of(path).keys), None)


def _data_file_of(results: Path) -> Path | None:
    """The tasks of a result file, in a folder above it; of two languages that of the results' tree."""
    wanted = results.name.replace("_result.json", ".json")
    other = "data_zh" if "result_en" in results.parts else "data_en" if "result_zh" in results.parts else "?"
    for folder in list(results.parents)[:LEVELS]:
        for place in PLACES:
            path = folder / place / wanted
            if other not in place and path != results and path.is_file():
                return path
    return None


class _Run:
    """One result file with its scores and tasks."""

    def __init__(self, source: Source, context: Context) -> None:
        self.label, self.notes, self.part = source.label, context.notes, context.options.reward
        folders = [part for part in source.path.parent.parts if part not in LANGUAGES]
        self.model = name(folders[-1]) if folders else None
        scores = score_file_of(source.path)
        self.scores = Scores(scores) if scores is not None else None
        self.data = _data_file_of(source.path)
        self.tasks = _tasks_of(self.data) if self.data is not None else {}
        self.rows = 0
        if scores is None:
            self.notes.add(f"{source.label}: no score file beside it or in a score folder: its rewards are missing")

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One result."""
        task = name(record.get("id"))
        if task is None:
            raise RowError("no id")
        self.rows += 1
        known = self.tasks.get(task)
        spec = known.spec if known else _bare(task, (0, (), ())).spec
        wrong = self.scores.reason(task, place.line) if self.scores is not None else None
        written = record.get("process")
        steps = [step for step in written if isinstance(step, str)] if isinstance(written, list) else []
        result = record.get("result")
        answered = "" if steps or not isinstance(result, str) else result
        messages = tuple(Message("assistant", "", written_calls(step)) for step in steps)
        called = written_calls(answered) if answered.lstrip().startswith("[") else ()
        parts = self._parts(steps, known, wrong)
        asked = (Message("user", spec.text),) if spec.text else ()
        return Row(
            place,
            spec.env,
            task,
            (parts.get(self.part or "valid"),),
            policy_version=self.model,
            text=spec.text,
            tools=spec.tools,
            state=spec.state,
            verifier=spec.verifier,
            reference=spec.calls if known else None,
            parts=parts,
            messages=asked + (messages or (Message("assistant", answered or text(result), called),)),
            calls=tuple(call for message in messages for call in message.calls) or called,
            status=wrong or "",
        )

    def _parts(self, steps: list[str], known: _Task | None, wrong: str | None) -> dict[str, float]:
        """`valid` (0 or 1, when scored) and `process` (0 to 1, of tasks with milestones; 1 when the end is right)."""
        parts = {} if self.scores is None else {"valid": float(wrong is None)}
        if known is not None and known.milestones:
            calls = [step.strip() for step in steps]
            done = max(reached(stones, calls) for stones in known.milestones)
            parts["process"] = 1.0 if parts.get("valid") == 1.0 else done
        return parts

    def remark(self) -> None:
        """Say how well results, scores and tasks go together."""
        for sentence in self.scores.remarks(self.label, self.rows) if self.scores is not None else ():
            self.notes.add(sentence)
        if not self.tasks:
            self.notes.add(
                f"{self.label}: no data file above it: the environment is the category, texts, tools and milestones "
                "are unknown (import a folder that holds the results, the scores and ACEBench's data)"
            )
