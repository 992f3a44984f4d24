"""Inspect evaluations: one `.json` object, or an `.eval` archive with a member for every sample (eval_archive.py).

The environment is the task of the evaluation, the task a sample's id, its group all epochs of it in one evaluation
(which keeps its `task_id` when it is retried, so that samples taken over are not counted twice). Scores are
numbers, booleans, or letters: C is 1, P 0.5, I and N 0. The first scorer's is the reward, `--reward` names another.
A scorer that gives several numbers at once has no reward until one of them is chosen. Without rollouts
(`--no-rollouts`) the summaries of an archive are enough, and its samples are not opened.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any
from zipfile import is_zipfile

from envsched_core.errors import LogFormatError
from envsched_core.records import Place

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .eval_archive import EvalArchive, opened_archive
from .files import Head, Record, Source, items_of, members_of
from .identity import Identity
from .messages import calls_of, messages_from, tools_from
from .values import name, number, plausible, printable, prompt, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "Inspect evaluations: .json, or .eval archives (zstd needs the extra inspect)"
CARRIES = Carries(
    env="yes",
    task="yes",
    group="yes",
    step="no",
    parts="yes",
    tools="some",
    calls="yes",
    messages="yes",
    cost="yes",
    policy="yes",
    every_group="yes",
    limits=(
        "the first scorer's value is the reward; one that gives several numbers needs --reward; tools only where the "
        "model's events were logged; with --no-rollouts only the summaries are read, which tell no calls"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

HEADERS = ("header.json", "_journal/start.json")
"""What stands for the whole evaluation: once it is finished, and from its start."""
SUMMARIES, JOURNAL = "summaries.json", "_journal/summaries/"
SAMPLE = re.compile(r"samples/.*_epoch_\d+\.json")
LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
ATTACHED = "attachment://"
USED = (
    *("id", "epoch", "uuid", "input", "choices", "target", "messages", "output", "scores", "score"),
    *("model_usage", "working_time", "total_time", "error", "limit"),
)
"""Members of a sample that are looked at, besides its events, which repeat every message many times."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether this is an evaluation's log, or an archive of one."""
    keys = set(head.keys)
    if head.kind == "zip":
        return bool(keys & set(HEADERS))
    return head.kind in ("object", "jsonl") and {"version", "eval", "status"} <= keys


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every sample of one evaluation."""
    if not source.size:
        raise LogFormatError("the file is empty", file=source.label)
    if is_zipfile(source.path):
        with opened_archive(source) as archive:
            evaluation = _Evaluation(_header(archive, source), source, context)
            yield from _rows(_samples(archive, evaluation, source), source, evaluation)
    else:  # the members before its samples; to look at the whole head again would take longer than they do
        header = members_of(source, frozenset(("status", "eval", "results")))
        if not isinstance(header.get("eval"), Mapping):
            raise LogFormatError("is no log of Inspect: it describes no evaluation", file=source.label)
        evaluation = _Evaluation(header, source, context)
        yield from _rows(items_of(source, "samples"), source, evaluation)
    source.done = source.size


def _rows(samples: Iterator[Record], source: Source, evaluation: _Evaluation) -> Iterator[Row | Drop]:
    yield from as_rows(samples, source, evaluation.row, Identity(source, evaluation.context, "inspect"))
    evaluation.remark()


def _header(archive: EvalArchive, source: Source) -> Mapping[str, Any]:
    """What an archive says of the whole evaluation.

    Raises:
        LogFormatError: nothing that can be read.
    """
    found = next((member for member in HEADERS if member in archive), None)
    if found is None:
        raise LogFormatError(f"is no log of Inspect: no {HEADERS[0]} in the archive", file=source.label)
    try:
        header = archive.decoded(found)
    except ValueError as error:
        raise LogFormatError(f"{found}: {error}", file=source.label) from None
    if not isinstance(header, Mapping) or not isinstance(header.get("eval"), Mapping):
        raise LogFormatError(f"{found} describes no evaluation", file=source.label)
    return header


def _samples(archive: EvalArchive, evaluation: _Evaluation, source: Source) -> Iterator[Record]:
    """Every sample of an archive: its own member, or its summary where that is enough or all that can be read."""
    if not evaluation.context.options.keep_rollouts and (found := list(_summaries(archive, evaluation))):
        evaluation.say(f"only the summaries of {len(found):,} samples were read: calls and tools are not in them")
        yield from (Record(number, value) for number, value in enumerate(found, 1))
        return
    wanted = [member for member in archive.names() if SAMPLE.fullmatch(member)]
    unread: dict[str, Record] = {}
    for position, member in enumerate(wanted, 1):
        source.done = source.size * position // (len(wanted) + 1)
        record = _record(archive, member, position)
        if record.problem:
            unread[member] = record
        else:
            yield record
    single = set(wanted) - unread.keys()
    rest = {_member_of(value): value for value in _summaries(archive, evaluation)}
    rest = {member: value for member, value in rest.items() if member not in single}
    if rest:
        failed = unread.get(next(iter(rest)))
        why = f": {failed.problem}" if failed else ""
        evaluation.say(f"{len(rest):,} samples have no member that can be read{why}; only their summaries were read")
    # beside whole samples an input that a summary cut short would look like another prompt
    short = {"input": None} if single else {}
    yield from (Record(number, value | short) for number, value in enumerate(rest.values(), len(wanted) + 1))
    yield from (record for member, record in unread.items() if member not in rest)


def _record(archive: EvalArchive, member: str, position: int) -> Record:
    """A sample's own member."""
    try:
        value = archive.decoded(member)
    except ValueError as error:
        return Record(position, None, str(error))
    return Record(position, value) if isinstance(value, dict) else Record(position, None, "not a JSON object")


def _member_of(summary: Mapping[str, Any]) -> str:
    """The name of the member that holds the sample of a summary."""
    return f"samples/{summary.get('id')}_epoch_{summary.get('epoch')}.json"


def _summaries(archive: EvalArchive, evaluation: _Evaluation) -> Iterator[dict[str, Any]]:
    """All summaries: those written at the end, else those of the journal."""
    journal = [member for member in archive.names() if member.startswith(JOURNAL)]
    for member in [SUMMARIES] if SUMMARIES in archive else journal:
        try:
            value = archive.decoded(member)
        except ValueError as error:
            evaluation.say(f"{member}: {error}")
            continue
        yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


class _Evaluation:
    """Turns the samples of one evaluation into `Row`s."""

    def __init__(self, header: Mapping[str, Any], source: Source, context: Context) -> None:
        about, results = header.get("eval"), header.get("results")
        about = about if isinstance(about, Mapping) else {}
        self.context, self.label, self.growing = context, source.label, source.growing
        self.chosen = context.options.reward
        self.env = name(about.get("task")) or ""
        self.model = name(about.get("model"))
        ids = (name(about.get(key)) for key in ("task_id", "eval_id", "run_id"))
        self.group = next(filter(None, ids), source.label)
        self.status = text(header.get("status"))
        self.planned = number(results.get("total_samples")) if isinstance(results, Mapping) else None
        self.rows = 0
        self.scorers: dict[str, None] = {}

    def say(self, sentence: str) -> None:
        """Put a remark into the report."""
        self.context.notes.add(f"{self.label}: {printable(sentence)}")

    def row(self, sample: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One sample in one epoch."""
        self.rows += 1
        task = name(sample.get("id"))
        if task is None:
            raise RowError("no id")
        sample = _resolved(sample)
        messages = messages_from([_plain(item) for item in sample.get("messages") or _output(sample)])
        scores = _scores(sample)
        parts = _parts(scores)
        self.scorers |= dict.fromkeys(scores)
        named = sample.get("uuid") or sample.get("epoch")
        return Row(
            place,
            self.env,
            task,
            (self._reward(scores, parts),),
            group=self.group,
            policy_version=self.model,
            mark=0 if named is None else hash(repr(named)) or 1,
            text=_asked(sample),
            answer=text(sample.get("target")),
            tools=tools_from(sample["tools"]),
            verifier=" + ".join(scores),
            parts=parts,
            messages=messages,
            calls=calls_of(messages) if messages else None,
            tokens=_tokens(sample.get("model_usage")),
            seconds=_first_number(sample, "working_time", "total_time"),
            status=_status(sample),
        )

    def _reward(self, scores: Mapping[str, Any], parts: Mapping[str, float]) -> float | None:
        """The reward of a sample, None when it was not scored.

        Raises:
            RowError: its first scorer gave several numbers, and none was chosen.
        """
        if self.chosen is not None:
            ends = [value for part, value in parts.items() if part.partition("/")[2] == self.chosen]
            return parts.get(self.chosen, ends[0] if len(ends) == 1 else None)
        first = next(iter(scores), None)
        if first is None or first in parts:
            return parts.get(first or "")
        value = scores[first]
        if isinstance(value, Mapping) and len(value) == 1:
            return next(iter(parts.values()), None)
        if isinstance(value, Mapping | list):
            shown = ", ".join([part for part in parts if part.startswith(f"{first}/")][:5])
            raise RowError(f"{first} gives no single score ({shown or 'a list'}): choose one with --reward NAME")
        return None

    def remark(self) -> None:
        """Say what the reward was taken to be, and whether samples are missing."""
        if self.chosen is None and len(self.scorers) > 1:
            first, *others = self.scorers
            self.say(f"the reward is {first}'s score; --reward names another ({', '.join(others[:5])})")
        if self.growing:
            return
        if self.status not in ("", "success"):
            self.say(f"the evaluation did not end well (status {self.status}): groups may be partial")
        elif self.planned is not None and self.planned > self.rows:
            self.say(f"{self.rows:,} samples, the evaluation had {int(self.planned):,}")


def _scores(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Value of every scorer; older logs have one score without a name."""
    scores = sample.get("scores")
    if not isinstance(scores, Mapping):
        scores = {"score": sample["score"]} if sample.get("score") is not None else {}
    return {str(scorer): _value(found) for scorer, found in scores.items()}


def _value(score: Any) -> Any:
    return score.get("value") if isinstance(score, Mapping) else score


def _parts(scores: Mapping[str, Any]) -> dict[str, float]:
    """Every number that scorers gave: `scorer`, or `scorer/key` of one that gave several."""
    parts: dict[str, float] = {}
    for scorer, value in scores.items():
        several = {f"{scorer}/{key}": item for key, item in value.items()} if isinstance(value, Mapping) else None
        for part, item in (several or {scorer: value}).items():
            if (score := _number(item)) is not None:
                parts[part] = score
    return parts


def _number(value: Any) -> float | None:
    """A score as a number; None when there is none (NaN means not scored)."""
    if isinstance(value, str):
        if (letter := LETTERS.get(value.strip().lower())) is not None:
            return letter
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return plausible(float(value))


def _asked(sample: Mapping[str, Any]) -> str:
    """What a sample asks, with the choices that it offers."""
    choices = sample.get("choices")
    return "\n".join(filter(None, [prompt(sample.get("input")), *map(text, choices or ())]))


def _output(sample: Mapping[str, Any]) -> list[Any]:
    """The model's last message, for a sample without a list of them."""
    output = sample.get("output")
    choices = output.get("choices") if isinstance(output, Mapping) else None
    return [choice["message"] for choice in choices[:1]] if isinstance(choices, list) else []


def _plain(message: Any) -> Any:
    """A message whose reasoning is readable text too, and with what a tool that failed said."""
    if not isinstance(message, Mapping):
        return message
    content, error = message.get("content"), message.get("error")
    content = [_reasoned(item) for item in content] if isinstance(content, list) else content
    if isinstance(error, Mapping):
        content = f"{text(content)}\nerror: {text(error.get('message') or error.get('type'))}".lstrip()
    return {**message, "content": content}


def _reasoned(item: Any) -> Any:
    found = item.get("reasoning") if isinstance(item, Mapping) else None
    return found if isinstance(found, str) else item


def _resolved(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is used of a sample, with its attached texts put back; older logs keep some of it under `transcript`."""
    older = sample.get("transcript")
    if isinstance(older, Mapping):
        sample = {"events": older.get("events"), "attachments": older.get("content"), **sample}
    attached = sample.get("attachments")
    used = {key: sample[key] for key in USED if key in sample} | {"tools": _offered(sample.get("events"))}
    if isinstance(attached, Mapping) and attached:
        used = {key: _with_attachments(value, attached) for key, value in used.items()}
    return used


def _with_attachments(value: Any, attached: Mapping[str, Any]) -> Any:
    """A value with long texts, which the log keeps once and refers to, put back."""
    if isinstance(value, str):
        return attached.get(value.removeprefix(ATTACHED), value) if value.startswith(ATTACHED) else value
    if isinstance(value, list):
        return [_with_attachments(item, attached) for item in value]
    if isinstance(value, Mapping):
        return {key: _with_attachments(item, attached) for key, item in value.items()}
    return value


def _offered(events: Any) -> Any:
    """Documents of the tools that the model was offered first."""
    asked = (event for event in events or () if isinstance(event, Mapping) and event.get("event") == "model")
    return next(filter(None, (event.get("tools") for event in asked)), ())


def _tokens(usage: Any) -> float | None:
    """Tokens that all models wrote."""
    used = usage.values() if isinstance(usage, Mapping) else ()
    found = [number(item.get("output_tokens")) for item in used if isinstance(item, Mapping)]
    known = [amount for amount in found if amount is not None]
    return sum(known) if known else None


def _first_number(sample: Mapping[str, Any], *keys: str) -> float | None:
    return next((found for key in keys if (found := number(sample.get(key))) is not None), None)


def _status(sample: Mapping[str, Any]) -> str:
    """The log's own word on how a sample ended."""
    error, limit = sample.get("error"), sample.get("limit")
    if error:
        return f"error: {text(error.get('message')) if isinstance(error, Mapping) else text(error)}"
    return f"limit: {text(limit.get('type')) if isinstance(limit, Mapping) else text(limit)}" if limit else ""
