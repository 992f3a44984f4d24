"""BFCL-v3 multi-turn as a world: 60 environments (category x class set), every turn with calls a task.

A task starts where the reference calls of the turns before it lead. Scenarios are split into training and
held-out ones, a fifth held out. An agent chooses among candidate calls: those of the turn and distractors from
other scenarios of the same classes; which are which is known to the checker alone, and to no scheduler.
"""

from __future__ import annotations

import copy
import json
import pkgutil
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from envsched_core.errors import ConfigError
from envsched_core.keyed import name_hash
from envsched_core.records import TaskSpec, Tool

from .bfcl_calls import Call, Instances, carry_out, load_instances, parse_call

__all__ = ["BfclTask", "BfclWorld", "make_bfcl_world"]

CATEGORIES = ("base", "miss_func", "miss_param")
DISTRACTORS = 12
DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}


class BfclTask(NamedTuple):
    """One turn of one scenario."""

    spec: TaskSpec
    words: tuple[str, ...]
    """Words of the user's message."""
    candidates: tuple[Call, ...]
    reference: tuple[Call, ...]
    """Known to the checker alone."""
    start: Instances
    """API objects before the turn; copied for every rollout."""
    finish: Instances
    """API objects after the reference calls."""
    answers: tuple[str, ...]
    """What the reference calls answer."""


class BfclWorld(NamedTuple):
    """The benchmark as a world."""

    name: str
    seed: int
    tasks: tuple[BfclTask, ...]
    """Training tasks, then held-out ones."""
    training: int
    places: dict[str, int]
    """Place of a training task by ``ENV::TASK``."""

    @property
    def specs(self) -> list[TaskSpec]:
        """The training tasks as a scheduler may know them."""
        return [task.spec for task in self.tasks[: self.training]]


class _Turn(NamedTuple):
    """One turn as the data has it."""

    env: str
    entry: str
    scenario: int
    number: int
    text: str
    classes: tuple[str, ...]
    calls: tuple[Call, ...]
    start: Instances
    finish: Instances
    answers: tuple[str, ...]


def make_bfcl_world(seed: int = 0) -> BfclWorld:
    """The benchmark's multi-turn tasks; `seed` splits scenarios and draws distractors.

    Raises:
        ConfigError: the package's data is not there.
    """
    turns = [turn for category in CATEGORIES for turn in _turns(category)]
    out = _held_out(turns, seed)
    pools: dict[tuple[str, ...], dict[str, tuple[int, Call]]] = {}
    for turn in turns:
        pools.setdefault(turn.classes, {}).update({call.text: (turn.scenario, call) for call in turn.calls})
    documents = {name: _document(name) for name in sorted({c for turn in turns for c in turn.classes})}
    ordered = sorted(turns, key=lambda turn: turn.scenario in out)
    tasks = tuple(_task(turn, pools[turn.classes], documents, seed) for turn in ordered)
    training = sum(turn.scenario not in out for turn in turns)
    places = {task.spec.key: i for i, task in enumerate(tasks[:training])}
    return BfclWorld("bfcl", seed, tasks, training, places)


def _held_out(turns: list[_Turn], seed: int) -> set[int]:
    """A fifth of the scenarios of every class set, at least one where it has two."""
    scenarios: dict[tuple[str, ...], dict[int, None]] = {}
    for turn in turns:
        scenarios.setdefault(turn.classes, {})[turn.scenario] = None
    rng = np.random.default_rng((seed, 1))
    out: set[int] = set()
    for known in scenarios.values():
        count = max(len(known) // 5, int(len(known) > 1))
        out |= set(rng.permutation(list(known))[:count].tolist())
    return out


def _lines(path: str) -> Iterator[dict[str, Any]]:
    data = pkgutil.get_data("bfcl_eval", path)
    if data is None:
        raise ConfigError(f"bfcl-eval has no {path}; install it with `pip install --no-deps bfcl-eval mpmath`")
    return (json.loads(line) for line in data.decode("utf-8").splitlines() if line.strip())


def _turns(category: str) -> Iterator[_Turn]:
    """Every turn of a category that has reference calls, with the API objects around it."""
    name = f"BFCL_v4_multi_turn_{category}.json"
    reference = {line["id"]: line["ground_truth"] for line in _lines(f"data/possible_answer/{name}")}
    for entry in _lines(f"data/{name}"):
        classes = tuple(sorted(entry["involved_classes"]))
        env = f"{category}-{'+'.join(classes)}"
        scenario = int(entry["id"].rsplit("_", 1)[1])
        now = load_instances(classes, entry["initial_config"])
        for number, (messages, texts) in enumerate(zip(entry["question"], reference[entry["id"]], strict=True)):
            calls = tuple(parse_call(text) for text in texts)
            start = copy.deepcopy(now)
            answers = tuple(carry_out(now, call) for call in calls)
            text = " ".join(message["content"] for message in messages if message["role"] == "user")
            if calls and text:
                finish = copy.deepcopy(now)
                yield _Turn(env, entry["id"], scenario, number, text, classes, calls, start, finish, answers)


def _document(name: str) -> tuple[Tool, ...]:
    """The tools of a class as the benchmark documents them."""
    tools = []
    for line in _lines(f"data/multi_turn_func_doc/{DOCUMENTS[name]}.json"):
        described = str(line["description"]).rsplit("Tool description: ", 1)[-1]
        tools.append(Tool(line["name"], described, tuple(line["parameters"]["properties"])))
    return tuple(tools)


def _task(
    turn: _Turn, pool: dict[str, tuple[int, Call]], documents: dict[str, tuple[Tool, ...]], seed: int
) -> BfclTask:
    tools = tuple(tool for name in turn.classes for tool in documents[name])
    spec = TaskSpec(turn.env, f"{turn.entry}-{turn.number}", turn.text, tools, turn.classes, "bfcl_state_and_response")
    rng = np.random.default_rng((seed, name_hash(spec.key)))
    mine = {call.text: call for call in turn.calls}
    others = [call for text, (scenario, call) in pool.items() if text not in mine and scenario != turn.scenario]
    drawn = [others[i] for i in rng.permutation(len(others))[:DISTRACTORS]]
    candidates = [*mine.values(), *drawn]
    shuffled = tuple(candidates[i] for i in rng.permutation(len(candidates)))
    words = tuple(dict.fromkeys(re.findall(r"[a-z0-9_]+", turn.text.lower())))
    return BfclTask(spec, words, shuffled, turn.calls, turn.start, turn.finish, turn.answers)
