"""Scores that list only the failures: a summary on the first line, then one line for each wrong answer.

BFCL and ACEBench keep results and scores in two trees of the same shape (`result/...` and `score/...`). A result
whose id the score file does not list is right. ACEBench numbers the failures of its agent tasks by their line
(from 0) and not by id, so both are looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envsched_core.records import ToolCall

from .files import Head, Source, records
from .values import name, text

__all__ = ["Scores", "call_texts", "is_score", "path_of", "score_file_of", "written_calls"]

SUMMARY = {"correct_count", "total_count"}
TREE = re.compile(r"^results?(?=$|_)")
"""A folder of the results tree, whose twin among the scores has the other word."""
NEXT_CALL = re.compile(r"\)\s*,\s*(?=[A-Za-z_][\w.]*\()")
CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\((.*)", re.DOTALL)


class Scores:
    """One score file: which results failed, and why."""

    def __init__(self, path: Path) -> None:
        """Read the file; what cannot be read in it is counted in `unread`."""
        self.path = path
        self.correct: int | None = None
        """Right answers by the file's own summary."""
        self.total: int | None = None
        self.failed: dict[str, str] = {}
        """Id, or number of the line, -> what was wrong."""
        self.unread = 0
        for record in records(Source(path), "jsonl"):
            if record.problem:
                self.unread += 1
            elif record.value.keys() >= SUMMARY:
                self.correct, self.total = (_count(record.value[key]) for key in ("correct_count", "total_count"))
            else:
                self._fail(record.value)

    def _fail(self, record: Mapping[str, Any]) -> None:
        found = record.get("id")
        key = name(found)
        if key is None or record.get("valid") is True:
            return
        kind = record.get("error_type") or _kind(record.get("error"))
        self.failed[f"#{key}" if isinstance(found, int) else key] = text(kind) or "wrong"

    def reason(self, task: str, line: int) -> str | None:
        """Why the result of a task, on this line (from 1) of its file, is wrong; None = it is right."""
        return self.failed.get(task, self.failed.get(f"#{line - 1}"))

    def remarks(self, label: str, results: int) -> Iterator[str]:
        """Where the summary, the failures listed and the results do not go together."""
        file = self.path.name
        if self.unread:
            yield f"{label}: {self.unread:,} lines of {file} cannot be read; results they list count as right"
        if self.correct is None or self.total is None:
            yield f"{label}: {file} has no summary line to check the join by"
            return
        if self.total - self.correct != len(self.failed):
            yield (
                f"{label}: {file} counts {self.total - self.correct:,} wrong answers and lists {len(self.failed):,}: "
                "rewards of the others may be wrong"
            )
        if self.total != results:
            yield f"{label}: {file} scores {self.total:,} results, the result file has {results:,}"


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _kind(error: Any) -> Any:
    """The kind of an error that is an object, or a list of texts."""
    return error.get("error_type") or error.get("error_message") if isinstance(error, Mapping) else error


def is_score(head: Head) -> bool:
    """Whether a file begins with a summary of scores."""
    return head.kind in ("jsonl", "object") and head.first.keys() >= SUMMARY


def score_file_of(results: Path) -> Path | None:
    """The score file of a result file: beside it, or in the twin tree (`result` -> `score` in the folders' names)."""
    twin = results.name.replace("_result.json", "_score.json")
    if twin == results.name:
        return None
    folders = [TREE.sub("score", part) for part in results.parent.parts]
    candidates = (results.with_name(twin), Path(*folders, twin) if folders else results.with_name(twin))
    return next((path for path in candidates if path.is_file()), None)


def path_of(calls: Any) -> tuple[str, ...]:
    """Names of calls written as texts, nested lists (turns) included."""
    return tuple(call.name for written in call_texts(calls) for call in written_calls(written))


def call_texts(value: Any) -> Iterator[str]:
    """Every text in nested lists, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from call_texts(item)


def written_calls(written: str) -> tuple[ToolCall, ...]:
    """Calls of a text such as ``[first(a='x'), second(b=1)]``; a class before the name is left out."""
    body = written.strip().removeprefix("[").removesuffix("]")
    found = [CALL.fullmatch(part.strip()) for part in NEXT_CALL.split(body)]
    return tuple(
        ToolCall(match.group(1).rpartition(".")[2], match.group(2).rstrip().removesuffix(")"))
        for match in found
        if match is not None
    )
