"""Chat messages, tool calls and tool documents in the shapes that logs use.

Calls: OpenAI function form, ``{"name", "arguments" | "kwargs" | ...}``, JSON strings of either inside a list
(verifiers), plain names, ``name(arguments)``. Tools: OpenAI function form, plain, MCP and Anthropic schemas.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from envsched_core.records import Message, Tool, ToolCall

from .values import LISTS, names, structured, text

__all__ = ["assistant_turns", "calls_from", "calls_of", "messages_from", "tools_from"]

ARGUMENTS = ("arguments", "kwargs", "args", "input", "parameters")
SCHEMAS = ("parameters", "input_schema", "inputSchema")


def calls_from(value: Any) -> tuple[ToolCall, ...]:
    """Tool calls in order; what is no call is left out."""
    value = structured(value)
    if isinstance(value, LISTS):
        if value and set(map(type, value)) == {str}:
            return _spelled(tuple(value))
        return tuple(call for call in map(_call, value) if call is not None)
    return tuple(ToolCall(name) for name in names(value)) if isinstance(value, str) else ()


@lru_cache(maxsize=4096)  # the same few paths come again and again
def _spelled(calls: tuple[str, ...]) -> tuple[ToolCall, ...]:
    """Calls that are given as text each."""
    return tuple(call for call in map(_call, calls) if call is not None)


def _call(item: Any) -> ToolCall | None:
    """One tool call of any known shape."""
    if isinstance(item, str) and item.isidentifier():
        return ToolCall(item)
    item = structured(item)
    if isinstance(item, str):
        name, _, arguments = item.partition("(")
        return ToolCall(name.strip(), arguments.removesuffix(")")) if name.strip() else None
    if not isinstance(item, dict):
        return None
    inner = item.get("function")
    body = inner if isinstance(inner, dict) else item
    called = body.get("name") or (inner if isinstance(inner, str) else None) or body.get("tool")
    if not isinstance(called, str):
        return None
    arguments = next((body[key] for key in ARGUMENTS if body.get(key) is not None), "")
    return ToolCall(called, arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode())


def messages_from(value: Any) -> tuple[Message, ...]:
    """Messages of a transcript; plain text is one answer of the assistant."""
    value = structured(value)
    if isinstance(value, str):
        return (Message("assistant", value),) if value else ()
    if isinstance(value, dict):
        value = value.get("messages")
    return tuple(map(_message, value)) if isinstance(value, LISTS) else ()


def _message(item: Any) -> Message:
    """One message; an entry that is no object is shown as text."""
    if not isinstance(item, dict):
        return Message("unknown", text(item))
    called = item.get("tool_calls") or ([item["function_call"]] if item.get("function_call") else ())
    return Message(str(item.get("role") or "unknown"), text(item.get("content")), calls_from(called))


def calls_of(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    """All calls of a transcript in order."""
    return tuple(call for message in messages for call in message.calls)


def assistant_turns(messages: tuple[Message, ...]) -> int:
    """How many messages the policy wrote."""
    return sum(message.role == "assistant" for message in messages)


def tools_from(value: Any) -> tuple[Tool, ...]:
    """Documented tools: a list of documents or names, or an object name -> schema."""
    value = structured(value)
    if isinstance(value, str):
        return tuple(Tool(name) for name in names(value))
    if isinstance(value, dict):
        value = [{"name": key, "parameters": schema} for key, schema in value.items()]
    found = [tool for tool in map(_tool, value if isinstance(value, LISTS) else ()) if tool is not None]
    return tuple({tool.name: tool for tool in found}.values())


def _tool(item: Any) -> Tool | None:
    """One tool document of any known shape."""
    item = structured(item)
    if isinstance(item, str):
        return Tool(item) if item else None
    if not isinstance(item, dict):
        return None
    inner = item.get("function")
    body = inner if isinstance(inner, dict) else item
    if not isinstance(body.get("name"), str) or not body["name"]:
        return None
    schema = next((body[key] for key in SCHEMAS if body.get(key)), ())
    return Tool(body["name"], text(body.get("description")), _parameters(schema))


def _parameters(schema: Any) -> tuple[str, ...]:
    """Names of the parameters: a JSON schema's properties, or a plain list."""
    if isinstance(schema, dict):
        schema = schema.get("properties", schema)
        return tuple(map(str, schema)) if isinstance(schema, dict) else ()
    return names(schema)
