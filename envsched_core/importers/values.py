"""Untrusted values of a log -> the types of records.py; each function says what it takes and what it refuses.

Strings that hold numbers, lists or objects count as what they hold, because CSV knows nothing else.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .files import decode

__all__ = [
    "LISTS",
    "Given",
    "Memo",
    "RowError",
    "flag",
    "floats",
    "hashed",
    "is_missing",
    "name",
    "names",
    "number",
    "parted",
    "plausible",
    "printable",
    "prompt",
    "restored",
    "reward",
    "structured",
    "text",
    "whole",
]

MISSING = {"", "nan", "null", "none", "na", "n/a", "-"}
YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
NUMBERS = (float, int)
LISTS = (list, tuple)
LARGEST = 2.0**1023
"""Whole numbers from here on do not fit a float."""
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that would move a terminal's cursor or turn its text round."""
LONGEST_NAME = 256
"""Characters of the longest id kept as it is; a longer one (a prompt) becomes a hash."""
LARGEST_REWARD = 1e100
"""A reward beyond it is a number that went wrong: its square would leave the floats."""


class Given(str):
    """A name that could not be kept as the log has it; as_rows tells of it and hands on a plain string."""

    __slots__ = ("given",)
    given: str
    """What the log says."""


class RowError(ValueError):
    """A row cannot be used; the text is the reason shown in the report."""


def structured(value: Any) -> Any:
    """A string that holds a JSON list or object, decoded; anything else unchanged."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return decode(value.encode())
        except ValueError:
            return value
    return value


def is_missing(value: Any) -> bool:
    """Whether a value says that there is none: null, NaN, empty, or a word for it."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or value != value  # only NaN differs from itself


def reward(value: Any) -> float | None:
    """A reward; None (missing) for null, NaN, infinite and empty.

    Raises:
        RowError: for what is neither a number nor missing.
    """
    if isinstance(value, float):
        return plausible(value) if math.isfinite(value) else None
    if is_missing(value):
        return None
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return float(value.strip().lower() == "true")
    if isinstance(value, dict):
        raise RowError("reward is an object of parts: choose one with --map reward=COLUMN.PART")
    if isinstance(value, LISTS):
        raise RowError("reward is a list of lists")
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        raise RowError("reward is not a number") from None
    return plausible(score) if math.isfinite(score) else None


def plausible(score: float) -> float:
    """A reward that statistics can be made of.

    Raises:
        RowError: it is beyond 1e100.
    """
    if abs(score) > LARGEST_REWARD:
        raise RowError("not a plausible reward (beyond 1e100)")
    return score


def number(value: Any) -> float | None:
    """A cost, at least 0; None for anything else."""
    if type(value) is bool:
        return None
    try:
        amount = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return amount if 0 <= amount <= LARGEST_REWARD else None


def floats(value: Any) -> dict[str, float]:
    """The finite numbers of an object by name, ``{"name": {"score": x}}`` included."""
    value = structured(value)
    found: dict[str, float] = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        inner = item.get("score") if type(item) is dict else item
        if isinstance(inner, NUMBERS) and -LARGEST < inner < LARGEST:
            found[key if type(key) is str else str(key)] = float(inner)
    return found


def whole(value: Any, what: str) -> int | None:
    """A whole number of at least 0, None when empty.

    Raises:
        RowError: for anything else.
    """
    if type(value) is int and 0 <= value < 2**53:
        return value
    if is_missing(value):
        return None
    try:
        amount = float(value)
    except (TypeError, ValueError, OverflowError):
        raise RowError(f"{what} is not a whole number") from None
    if not amount.is_integer() or not 0 <= amount < 2**53:
        raise RowError(f"{what} is not a whole number of at least 0")
    return int(amount)


def flag(value: Any) -> bool | None:
    """A yes or no; None when the log does not say."""
    if isinstance(value, str):
        return YES_NO.get(value.strip().lower())
    return bool(value) if isinstance(value, NUMBERS) and value == value else None


def name(value: Any) -> str | None:
    """An id as text, None when empty; an object or an overlong text becomes a hash of its content.

    Blanks around it do not count. A text that must be changed comes back as a `Given`, different for different texts.
    """
    if isinstance(value, str):
        spelled = value.strip()
    elif value is None or value != value:
        return None
    elif isinstance(value, list | tuple | dict):
        return hashed(msgspec.json.encode(value).decode())
    else:
        spelled = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if len(spelled) > LONGEST_NAME:
        return _given(hashed(spelled), spelled)
    shown = printable(spelled)
    return told_apart(shown, spelled) if shown != spelled else spelled or None


class Memo:
    """`name` for values that come again and again, as ids do."""

    def __init__(self, most: int = 65_536) -> None:
        """At most `most` names are remembered."""
        self.most = most
        self._known: dict[str, str | None] = {}

    def __call__(self, value: Any) -> str | None:
        """The name of a value."""
        if type(value) is int and -(2**63) < value < 2**63:
            return str(value)
        if type(value) is not str:
            return name(value)
        found = self._known.get(value)
        if found is None:
            found = name(value)
            if len(self._known) < self.most and len(value) <= LONGEST_NAME:  # prompts that are ids would fill memory
                self._known[value] = found
        return found


def told_apart(shown: str, given: str) -> Given:
    """A name that stands for `given`, with a hash of that: what looks the same may not become the same."""
    return _given(f"{shown}~{hashed(given)[:8]}", given)


def _given(name: str, given: str) -> Given:
    made = Given(name)
    made.given = given
    return made


def parted(env: str) -> str:
    """An environment's name that can be told from the task in ENV::TASK."""
    if "::" not in env and not env.endswith(":"):
        return env
    return told_apart(re.sub(":{2,}", ":", env), env.given if isinstance(env, Given) else env)


def restored(found: str, mended: Iterable[tuple[str, str]]) -> str:
    """A name told apart by its text before the reading of its file mended that; `mended` has (after, before)."""
    return next((told_apart(found, before) for after, before in mended if name(after) == found), found)


def printable(name: str) -> str:
    """A name that a terminal can show; log text is untrusted."""
    return name if name.isprintable() else CONTROLS.sub("\ufffd", name)


def hashed(content: str) -> str:
    """A short stable name for a long text."""
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def names(value: Any) -> tuple[str, ...]:
    """A list of names: a list, JSON, or text with commas or blanks; objects give their name or function."""
    value = structured(value)
    if isinstance(value, str):
        value = value.replace(",", " ").replace(";", " ").split()
    if isinstance(value, dict):
        value = list(value)
    return tuple(filter(None, map(_one_name, value if isinstance(value, Iterable) else ())))


def _one_name(item: Any) -> str:
    """The name of a tool call, table or tool."""
    item = structured(item)
    if isinstance(item, dict):
        inner = item.get("function")
        item = item.get("name") or (inner.get("name") if isinstance(inner, dict) else inner)
    return item.split("(", 1)[0].strip() if isinstance(item, str) else ""


def text(value: Any) -> str:
    """Plain text of a message's content: a string, or the text parts of a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return text(value.get("text") or value.get("content"))
    if isinstance(value, LISTS):
        return "\n".join(filter(None, map(text, value)))
    return "" if value is None else str(value)


def prompt(value: Any) -> str:
    """What a task asks: text, or the messages but for the system's (all tasks share that one)."""
    value = structured(value)
    if isinstance(value, LISTS):
        asked = [item for item in value if not (isinstance(item, dict) and item.get("role") == "system")]
        return text(asked or value)
    return text(value)
