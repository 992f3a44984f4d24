"""verl dumps: a folder of `{step}.jsonl`, one rollout a line with input, output, gts, score and step.

The older trainer names no group: rows of one prompt at one step are one. The newer one (V1) gives each row a
`uid` = draw, session and output number: the draw is the group, and of a session that wrote several rows, all with
the final reward, the last one counts. Neither names the environment or the task by itself: those come from extras
of the reward function (`env_id`, `task_id`, or mapped ones), the join file, a pattern or `--env`, and the task at
last from a hash of the prompt without its system part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import msgspec

from envsched_core.records import Place, Tool

from .base import Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .fields import FIELDS
from .files import Head, Source, records
from .identity import Identity
from .packed import TORN
from .transcripts import asked_of, calls_in, spoken, tools_in
from .values import floats, name, reward, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "verl dumps: a folder of {step}.jsonl with input, output, gts, score (both trainers; extras are reward parts)"
CARRIES = Carries(
    env="some",
    task="some",
    group="some",
    step="yes",
    parts="some",
    tools="some",
    calls="some",
    messages="yes",
    cost="no",
    policy="no",
    every_group="some",
    limits=(
        "no environment: map an extra, join a file or give a rule; filtered groups are missing when the trainer "
        "filters; calls and tools only where the decoded text shows them; V1 train dumps drop the reward's extras"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("input", "output", "score")

UID = re.compile(r"(.+)_(\d{1,9})_(\d{1,9})")
"""Draw, session, output number."""
BASE = {"input", "output", "gts", "score", "step", "uid", "request_id"}
"""Columns that the trainer itself writes."""
OWN = BASE | {
    column for field in ("env", "task", "group", "rollout", "step", "policy_version") for column in FIELDS[field]
}
"""Columns that are no part of the reward, even when they hold numbers."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether rows hold input, output and score as verl writes them."""
    keys = set(head.keys)
    return head.kind == "jsonl" and set(NEEDS) <= keys and ("gts" in keys or {"step", "uid"} <= keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every rollout of one file."""
    dump = _Dump(source, context)
    yield from as_rows(records(source, "jsonl"), source, dump.row, Identity(source, context, "verl"))


class _Uid(msgspec.Struct):
    """The only field that the first pass looks at."""

    uid: Any = None


class _Dump:
    """Turns the rows of one file into `Row`s."""

    def __init__(self, source: Source, context: Context) -> None:
        self.reward = context.options.reward
        folder = PurePosixPath(source.label).parent
        self.folder = str(folder) if folder.name else None
        found = re.search(r"(\d{1,15})\.jsonl", source.label)
        self.step = int(found.group(1)) if found else None
        self.source = source
        self.tools: dict[str, tuple[Tool, ...]] = {}

    def row(self, record: Mapping[str, Any], place: Place, mark: int) -> Row:
        """One rollout."""
        asked, said = text(record.get("input")), text(record.get("output"))
        if not asked:
            raise RowError("no input")
        draw, numbered = self._draw(record.get("uid"))
        step = whole(record.get("step"), "step")
        extras = record.keys() - BASE
        parts = floats({key: value for key, value in record.items() if key not in OWN}) if extras else {}
        answer = spoken(said, "assistant")
        calls = tuple([call for message in answer for call in message.calls])
        if not calls and [message.role for message in answer] != ["assistant"]:  # in it, calls were looked for
            calls = calls_in(said)
        return Row(
            place,
            _named(record, "env") if extras else "",
            _named(record, "task") if extras else "",
            (reward(record.get("score") if self.reward in (None, "score") else parts.get(self.reward or "")),),
            group=draw or self.folder,
            step=self.step if step is None else step,
            mark=mark if numbered or record.get("request_id") is not None else 0,
            text=asked_of(asked),
            answer=text(record.get("gts")),
            tools=self._tools(asked),
            verifier=" + ".join(sorted(parts.keys() - {"reward"})),
            parts=parts,
            messages=spoken(asked, "user") + answer,
            calls=calls or None,
            turns=float(sum(message.role == "assistant" for message in answer)),
        )

    @cached_property
    def last(self) -> dict[tuple[str, str], int]:
        """The highest output number of each session that wrote more than one row; the whole file is read for it."""
        return _last_outputs(self.source)

    def _draw(self, uid: Any) -> tuple[str | None, bool]:
        """The draw that a `uid` names, and whether it names the rollout too.

        Raises:
            RowError: a later row of the session stands for it.
        """
        spelled = name(uid)
        found = UID.fullmatch(spelled) if spelled else None
        if found is None:
            return spelled, False
        draw, session, output = found.group(1), found.group(2), int(found.group(3))
        if output < self.last.get((draw, session), output):
            raise RowError("an earlier output of a session of several; the last one counts")
        return draw, True

    def _tools(self, asked: str) -> tuple[Tool, ...]:
        """Tools that the prompt documents; read once for all prompts with the same text up to their end."""
        end = asked.find("</tools>")
        if end < 0:
            return ()
        block = asked[max(0, asked.find("<tools>")) : end + len("</tools>")]
        if block not in self.tools:
            self.tools = {block: tools_in(block)}  # the last one only: prompts of one kind come in runs
        return self.tools[block]


def _named(record: Mapping[str, Any], field: str) -> str:
    """Environment or task in an extra with a usual name; empty when there is none."""
    there = [column for column in FIELDS[field] if column in record]
    return next((found for column in there if (found := name(record[column]))), "")


def _last_outputs(source: Source) -> dict[tuple[str, str], int]:
    """The highest output number of each session that wrote more than one row."""
    done, source.done = source.done, source.start
    last: dict[tuple[str, str], int] = {}
    decoder = msgspec.json.Decoder(_Uid)
    with suppress(*TORN):  # reading says that the packed file ends early
        for _, line in source.lines():
            if line is None or b'"uid"' not in line:
                continue
            try:
                uid = decoder.decode(line).uid
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # reading drops this row and says so
            found = UID.fullmatch(uid) if isinstance(uid, str) else None
            if found:
                session = (found.group(1), found.group(2))
                last[session] = max(last.get(session, 0), int(found.group(3)))
    source.done = done
    return {session: number for session, number in last.items() if number}
