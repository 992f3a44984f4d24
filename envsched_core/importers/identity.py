"""Which environment and task a row is of, where its log does not say or the user knows better.

In this order: a column that `--map` names, the join file, the first pattern (`--env-rule`) that is found in the
prompt or the path; then what the log itself says; then `--env`, and the reader's own name for the environment; for
the task, a hash of the prompt. A reader makes one `Identity` for a file and hands it to `as_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envsched_core.errors import ConfigError

from .base import Context, Row, RowError
from .catalogue import Join
from .fields import checked_mapping
from .files import Source
from .values import hashed, name

__all__ = ["Identity"]

NUMBERED = re.compile(r"/[a-z_]*\d+$")
"""The last folder of a path, when it is one of many."""
REMEMBERED = 100_000
"""Prompts whose environment by pattern is remembered."""


class Identity:
    """Names environment and task of the rows of one file."""

    def __init__(self, source: Source, context: Context, default: str = "") -> None:
        """`default`: the environment's name when nothing tells it; empty = such rows are dropped.

        Raises:
            ConfigError: a pattern cannot be read.
        """
        self._notes, self._default = context.notes, default
        # said once for a folder with a file, or a numbered folder, a step
        self._label = NUMBERED.sub("", source.label.rpartition("/")[0] or source.label)
        self._env, self._join = context.options.env, context.join
        mapping = checked_mapping(context.options.mapping)
        self._mapped = {field: tuple(mapping[field].split(".")) for field in ("env", "task") if field in mapping}
        rules = [(env, given.removeprefix("path:"), given) for env, given in context.options.env_rules]
        compiled = [(env, _compiled(pattern), given != pattern) for env, pattern, given in rules]
        by_path = (_expanded(env, found.search(str(source.path))) for env, found, path in compiled if path)
        self._by_path = next(filter(None, by_path), "")
        self._rules = [(env, pattern) for env, pattern, path in compiled if not path]
        self._has_rules = bool(rules)
        self._by_prompt: dict[int, str] = {}
        self._hashed = "", ""
        """The last prompt whose hash named a task, and that hash."""
        self._plain = not (self._mapped or self._join or rules)

    def __call__(self, row: Row, record: Mapping[str, Any]) -> None:
        """Fill in environment and task of a row.

        Raises:
            RowError: nothing tells them.
        """
        if not self._plain:
            self._by_rules(row, record)
        if not row.env:
            row.env = self._env or self._unnamed()
        if not row.task:
            row.task = self._of_prompt(row)

    def _by_rules(self, row: Row, record: Mapping[str, Any]) -> None:
        """What the user said goes before what the log says."""
        if self._join is not None:
            self._joined(row, record, self._join)
        elif env := self._ruled(row):
            row.env = env
        for field, path in self._mapped.items():
            if (found := name(_at(record, path))) is not None:
                setattr(row, field, found)

    def _joined(self, row: Row, record: Mapping[str, Any], join: Join) -> None:
        """Take in what the join file says of a row."""
        key = name(_at(record, tuple(join.column.split("."))))
        found = join.rows.get(str(key)) if key is not None else None
        env = found[0] if found else ""
        row.env = env or self._ruled(row) or row.env
        if found is None:
            why = "are not in the join file" if key is not None else f"have no column '{join.column}' to join by"
            self._notes.count(f"{self._label}:", f"rows {why} (--join)")
            return
        _, task, known = found
        row.task = task or row.task or str(key)
        row.text, row.tools = row.text or known.text, row.tools or known.tools
        row.state, row.verifier = row.state or known.state, row.verifier or known.verifier
        row.reference = known.calls if row.reference is None else row.reference

    def _ruled(self, row: Row) -> str:
        """The environment by a pattern; empty when none is found."""
        env = self._by_path or self._matched(row.text)
        if not env and self._has_rules:
            self._notes.count(f"{self._label}:", "rows fit no --env-rule")
        return env

    def _matched(self, text: str) -> str:
        """The environment whose pattern is found in a prompt."""
        if not self._rules or not text:
            return ""
        key = hash(text)
        env = self._by_prompt.get(key)
        if env is None:
            env = next(filter(None, (_expanded(env, found.search(text)) for env, found in self._rules)), "")
            if len(self._by_prompt) < REMEMBERED:
                self._by_prompt[key] = env
        return env

    def _unnamed(self) -> str:
        if not self._default:
            raise RowError("no environment")
        remedy = "--env NAME, --env-rule NAME=PATTERN or --join COLUMN=FILE names it"
        self._notes.add(f"{self._label}: nothing tells the environment; it is called {self._default} ({remedy})")
        return self._default

    def _of_prompt(self, row: Row) -> str:
        if not row.text:
            raise RowError("no task")
        self._notes.add(f"{self._label}: rows name no task; a hash of the prompt stands for it")
        if row.text != self._hashed[0]:  # the rows of a group mostly stand together
            self._hashed = row.text, hashed(row.text)
        return self._hashed[1]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"--env-rule: {pattern!r} is no pattern ({error})") from None


def _expanded(env: str, found: re.Match[str] | None) -> str:
    """The environment's name with the pattern's groups in it."""
    if found is None:
        return ""
    try:
        return name(found.expand(env)) or ""
    except (re.error, IndexError) as error:
        raise ConfigError(f"--env-rule: {env!r} does not fit its pattern ({error})") from None


def _at(record: Any, path: tuple[str, ...]) -> Any:
    """A value in a record, on its way through objects; None when it is not there."""
    whole = ".".join(path)
    if isinstance(record, Mapping) and whole in record:
        return record[whole]
    for part in path:
        record = record.get(part) if isinstance(record, Mapping) else None
    return record
