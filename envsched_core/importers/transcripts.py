"""Text that a trainer decoded from tokens -> messages, tool calls and tools, as far as it shows them.

Chat templates put each message under a line with its role; with the special tokens removed, that line is all that
is left of them (``system``, ``user``, ``assistant``, ``tool``). Calls stand in ``<tool_call>`` tags, or, where these
were special tokens, as lines that are one JSON object of name and arguments. Tools stand in ``<tools>`` tags.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from envsched_core.records import Message, Tool, ToolCall

from .files import decode
from .messages import calls_from, tools_from

__all__ = ["asked_of", "calls_in", "spoken", "tools_in"]

ROLES = {"system", "user", "assistant", "tool"}
LONGEST_HEAD = 32
"""Characters of a line that may be no more than a role; a longer one is not looked at."""
TAGGED_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
TAGGED_TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)
BARE_CALL = re.compile(r'^\s*(\{\s*"name"\s*:.*\})\s*$', re.MULTILINE)
CALL_KEYS = {"name", "arguments", "parameters"}


def spoken(text: str, role: str) -> tuple[Message, ...]:
    """The messages of a decoded text; one of `role` when it does not begin with a line that names a role."""
    return _prompt_messages(text) if role == "user" else _messages(text, role)


@lru_cache(maxsize=8)
def _prompt_messages(text: str) -> tuple[Message, ...]:
    """The messages of a prompt, which comes once with every rollout of a group."""
    return _messages(text, "user")


def _messages(text: str, role: str) -> tuple[Message, ...]:
    parts = _parts(text)
    if not parts:
        return (_message(role, text),) if text.strip() else ()
    return tuple([_message(*part) for part in parts if part[1]])


@lru_cache(maxsize=8)
def asked_of(text: str) -> str:
    """What a decoded prompt asks: all but the system's part, which the tasks of an environment share."""
    asked = [said for role, said in _parts(text) if role != "system" and said]
    return "\n".join(asked) or text


def calls_in(text: str) -> tuple[ToolCall, ...]:
    """Tool calls written in a text, in order."""
    tagged = TAGGED_CALL.findall(text) if "<tool_call>" in text else []
    found = tagged or (BARE_CALL.findall(text) if '"name"' in text else [])
    if not found:
        return ()
    return calls_from([call for call in map(_object, found) if call])


def tools_in(text: str) -> tuple[Tool, ...]:
    """Tools documented in a text."""
    found = TAGGED_TOOLS.search(text) if "<tools>" in text else None
    if found is None:
        return ()
    body = found.group(1)
    lines = [body] if body.startswith("[") else body.splitlines()
    return tools_from([item for line in lines for item in _listed(line)])


def _parts(text: str) -> tuple[tuple[str, str], ...]:
    """(role, text) of a text that begins with a line that names a role."""
    start = text.lstrip()
    if start[:LONGEST_HEAD].partition("\n")[0].rstrip(" \t") not in ROLES:
        return ()
    lines = start.split("\n")
    heads = [k for k, line in enumerate(lines) if len(line) < LONGEST_HEAD and line.rstrip(" \t") in ROLES]
    ends = [*heads[1:], len(lines)]
    return tuple((lines[k].strip(), "\n".join(lines[k + 1 : end]).strip()) for k, end in zip(heads, ends, strict=True))


def _message(role: str, text: str) -> Message:
    return Message(role, text, calls_in(text) if role == "assistant" else ())


def _object(text: str) -> str:
    """The text of a call when it is one, else nothing."""
    try:
        value = decode(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return ""
    return text if isinstance(value, dict) and "name" in value and value.keys() <= CALL_KEYS else ""


def _listed(text: str) -> list[object]:
    """The documents on a line of a tools block."""
    try:
        value = msgspec.json.decode(text.strip().encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else [value]
