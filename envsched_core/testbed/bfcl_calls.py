"""BFCL-v3 multi-turn, carried out: its own API classes and checkers, and calls parsed here.

The package `bfcl-eval` (Apache-2.0) ships stateful API classes, their scenarios and the checkers of states
and responses. Its own executor evaluates strings; ours takes a call apart into a public method's name and
literal arguments, and calls that, so nothing that is not a literal can run. Import this module only where
`bfcl-eval` is installed (`pip install --no-deps bfcl-eval`, with `mpmath`).
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

from envsched_core.errors import LogFormatError

__all__ = ["Call", "Instances", "carry_out", "is_right", "load_instances", "parse_call"]

Instances = dict[str, Any]
"""API objects by class name."""


class Call(NamedTuple):
    """A call taken apart."""

    name: str
    positional: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    text: str

    @property
    def literals(self) -> list[str]:
        """Its arguments as lower-case texts, lists opened up."""
        out: list[str] = []
        for value in [*self.positional, *(value for _, value in self.named)]:
            out += [str(v).lower() for v in (value if isinstance(value, list | tuple) else [value])]
        return out


def parse_call(text: str) -> Call:
    """Take apart ``name(literal, key=literal)``.

    Raises:
        LogFormatError: it is anything else.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError("not a call of a plain name")
        positional = tuple(ast.literal_eval(argument) for argument in node.args)
        named = tuple((keyword.arg or "", ast.literal_eval(keyword.value)) for keyword in node.keywords)
    except (SyntaxError, ValueError) as error:
        raise LogFormatError(f"not a call with literal arguments: {text[:80]!r} ({error})") from error
    return Call(node.func.id, positional, named, text)


def load_instances(classes: Sequence[str], scenario: Mapping[str, Any]) -> Instances:
    """Fresh API objects in the state that a scenario gives them."""
    out: Instances = {}
    for name in classes:
        out[name] = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in STATELESS_CLASSES:
            out[name]._load_scenario(copy.deepcopy(scenario.get(name, {})), long_context=False)
    return out


def carry_out(instances: Instances, call: Call) -> str:
    """Make one call; the answer as the benchmark writes it, an error as text."""
    methods = [getattr(one, call.name, None) for one in instances.values() if not call.name.startswith("_")]
    method = next((m for m in methods if inspect.ismethod(m)), None)
    if method is None:
        return f"Error during execution: no tool {call.name}"
    try:
        answer = method(*copy.deepcopy(call.positional), **copy.deepcopy(dict(call.named)))
    except Exception as error:  # whatever the benchmark's API raises is what the agent is told
        return f"Error during execution: {error}"
    if isinstance(answer, dict):
        try:
            return json.dumps(answer)
        except TypeError:
            return str(answer)
    return str(answer)


def is_right(ours: Instances, answers: list[str], theirs: Instances, expected: list[str]) -> bool:
    """The benchmark's two checks: every API's state, and every expected answer among ours."""
    states: bool = state_checker(ours, theirs)["valid"]
    return states and bool(response_checker(answers, expected, 0)["valid"])
