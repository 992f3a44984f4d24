"""A small policy over BFCL's candidate calls, trained like ToolWorld's: the same contract as `loop.Learner`.

    P(call | state) = softmax over the candidates and DONE of the summed weights of their features

Features: tool x word of the message, how many of a call's arguments the message names, what was called
last and whether it failed, whether the call was made before. A turn ends with DONE or after `CALLS` calls; the
reward is the benchmark's own verdict on states and responses. Tasks are nearly deterministic: this shows
that a real benchmark's environments are driven end to end, not which scheduler is better.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envsched_core.errors import ContractError, UnknownTaskError
from envsched_core.keyed import mix, name_hash, unit
from envsched_core.records import Cost, GroupResult, Message, Rollout, TaskSpec, ToolCall

from .bfcl_calls import carry_out, is_right
from .bfcl_world import BfclTask, BfclWorld
from .loop import Update, advantages
from .optimiser import Adam
from .policy import FEATURES, Floats
from .tools import Ints

__all__ = ["BfclLearner"]

CALLS = 8
"""Most calls of a turn."""
KEPT_OUTCOMES = 50_000
"""Outcomes of call sequences that are remembered: the APIs are deterministic."""
TRAINING, HELD_OUT = 1, 2


class Static(NamedTuple):
    """What holds for a task at every call."""

    fixed: list[Ints]
    """Active features of each candidate and DONE."""
    names: list[str]


class Played(NamedTuple):
    """One rollout."""

    chosen: tuple[int, ...]
    """Places of the calls made, in order."""
    answers: tuple[str, ...]
    reward: float


class BfclLearner:
    """A policy that learns in the benchmark."""

    def __init__(self, world: BfclWorld, *, run_seed: int = 0, group_size: int = 8) -> None:
        """Starts untrained."""
        self.world = world
        self.run_seed = run_seed
        self.group_size = group_size
        self.adam = Adam(np.zeros(FEATURES + 1))
        self._static: dict[int, Static] = {}
        self._outcomes: dict[tuple[int, tuple[int, ...]], tuple[tuple[str, ...], float]] = {}
        self._open: dict[str, tuple[int, int, list[Played]]] = {}
        self._trained = True

    @property
    def specs(self) -> list[TaskSpec]:
        """The training tasks as a scheduler may know them."""
        return self.world.specs

    @property
    def policy_version(self) -> str:
        """How many updates the policy has had."""
        return str(self.adam.steps)

    # ------------------------------------------------------------------ the contract of a learner

    def rollouts(self, keys: Sequence[str], step: int) -> list[GroupResult]:
        """Roll out each training task `group_size` times.

        Raises:
            UnknownTaskError: a key is no training task.
        """
        unknown = [key for key in keys if key not in self.world.places]
        if unknown:
            raise UnknownTaskError(f"world bfcl has no training task {unknown[0]}")
        if self._trained:
            self._open, self._trained = {}, False
        out = []
        for key in keys:
            place = self.world.places[key]
            played = [self._play(place, TRAINING, step, g) for g in range(self.group_size)]
            group = f"{step}/{key}"
            self._open[group] = (place, step, played)
            out.append(self._group(group, place, step, played))
        return out

    def update(self, only: Collection[str] | None = None) -> Update:
        """One GRPO step on the groups rolled out since the last one, or on those named."""
        grad, informative = np.zeros(FEATURES + 1), 0
        groups = {} if self._trained else {g: v for g, v in self._open.items() if only is None or g in only}
        for place, _, played in groups.values():
            gains = advantages(np.array([[p.reward for p in played]]))[0]
            informative += bool(gains.any())
            for gain, rollout in zip(gains.tolist(), played, strict=True):
                if gain:
                    self._add_gradient(place, rollout, gain, grad)
        grad /= max(len(groups) * self.group_size, 1)
        self.adam.step(grad)
        self._trained = True
        return Update(len(groups), informative, float(np.sqrt(np.square(grad).sum())))

    def transcripts(self, group: GroupResult) -> list[Rollout]:
        """The rollouts of a group as messages.

        Raises:
            ContractError: the group is not among the latest.
        """
        if group.group_id not in self._open:
            raise ContractError(f"group {group.group_id} is not among the latest rollouts")
        place, _, played = self._open[group.group_id]
        task = self.world.tasks[place]
        return [_transcript(task, group.group_id, g, rollout) for g, rollout in enumerate(played)]

    def evaluate(self) -> tuple[float, float]:
        """Held-out success: mean over environments of their means, and mean over tasks."""
        places = range(self.world.training, len(self.world.tasks))
        by_env: dict[str, list[float]] = {}
        for place in places:
            by_env.setdefault(self.world.tasks[place].spec.env, []).append(self._play(place, HELD_OUT, 0, 0).reward)
        macro = float(np.mean([np.mean(rewards) for rewards in by_env.values()]))
        return macro, float(np.mean([r for rewards in by_env.values() for r in rewards]))

    def state_dict(self) -> dict[str, Any]:
        """Everything between two steps."""
        return {"format": 1, "run_seed": self.run_seed, "policy": self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Carry on from a saved state.

        Raises:
            ContractError: the state is of another format or run seed.
        """
        if int(state["format"]) != 1 or int(state["run_seed"]) != self.run_seed:
            raise ContractError(f"learner state of format {state['format']}, run seed {state['run_seed']} does not fit")
        self.adam.load_state_dict(state["policy"])
        self._open, self._trained = {}, True

    # ------------------------------------------------------------------ the policy

    def _play(self, place: int, stream: int, step: int, rollout: int) -> Played:
        """One rollout, keyed by what it is for."""
        world = np.array([name_hash(f"bfcl-{self.world.seed}")], np.uint64)
        key = mix(world, self.run_seed, stream, step, place, rollout)
        chosen: tuple[int, ...] = ()
        for call in range(CALLS):
            chance, _ = self._chances(place, chosen)
            draw = unit(mix(key, call))[0]
            picked = min(int(np.searchsorted(np.cumsum(chance), draw, side="right")), len(chance) - 1)
            if picked == len(chance) - 1:
                break
            chosen = (*chosen, picked)
        return Played(chosen, *self._outcome(place, chosen))

    def _chances(self, place: int, chosen: tuple[int, ...]) -> tuple[Floats, list[Ints]]:
        """Chance of each candidate and DONE after some calls, with their active features."""
        static = self._features(place)
        answers = self._outcome(place, chosen)[0]
        last = static.names[chosen[-1]] if chosen else "start"
        failed = bool(answers) and "error" in answers[-1].lower()
        columns = []
        for i, (name, fixed) in enumerate(zip(static.names, static.fixed, strict=True)):
            moment = [f"after {last} {name}", f"{failed} {name}", f"made {i in chosen}", f"calls {len(chosen)} {name}"]
            columns.append(np.concatenate([fixed, [_feature(text) for text in moment]]))
        scores = np.array([self.adam.weights[c].sum() for c in columns])
        chance = np.exp(scores - scores.max())
        return chance / chance.sum(), columns

    def _features(self, place: int) -> Static:
        """Features of a task's candidates that hold at every call; DONE comes last."""
        if place not in self._static:
            task = self.world.tasks[place]
            names = [*(call.name for call in task.candidates), "<done>"]
            literals = [*(call.literals for call in task.candidates), []]
            self._static[place] = Static(
                [_fixed(task, name, values) for name, values in zip(names, literals, strict=True)], names
            )
        return self._static[place]

    def _add_gradient(self, place: int, rollout: Played, gain: float, grad: Floats) -> None:
        """Add `gain` times the gradient of a rollout's log chance."""
        for k in range(min(len(rollout.chosen) + 1, CALLS)):
            chance, columns = self._chances(place, rollout.chosen[:k])
            picked = rollout.chosen[k] if k < len(rollout.chosen) else len(chance) - 1
            for i, active in enumerate(columns):
                np.add.at(grad, active, gain * (float(i == picked) - chance[i]))

    def _outcome(self, place: int, chosen: tuple[int, ...]) -> tuple[tuple[str, ...], float]:
        """What a sequence of calls answers, and the benchmark's verdict on it."""
        if (place, chosen) not in self._outcomes:
            if len(self._outcomes) >= KEPT_OUTCOMES:
                self._outcomes.clear()
            task = self.world.tasks[place]
            now = copy.deepcopy(task.start)
            answers = [carry_out(now, task.candidates[i]) for i in chosen]
            right = is_right(now, answers, task.finish, list(task.answers))
            self._outcomes[place, chosen] = tuple(answers), float(right)
        return self._outcomes[place, chosen]

    def _group(self, group: str, place: int, step: int, played: list[Played]) -> GroupResult:
        spec, names = self.world.tasks[place].spec, self._features(place).names
        made = sum(len(p.chosen) for p in played)
        return GroupResult(
            group,
            spec.env,
            spec.task,
            tuple(p.reward for p in played),
            step=step,
            policy_version=self.policy_version,
            cost=Cost(turns=float(len(played)), tool_calls=float(made)),
            calls=tuple(tuple(names[i] for i in p.chosen) for p in played),
        )


def _feature(text: str) -> int:
    return name_hash(text) % FEATURES


def _fixed(task: BfclTask, name: str, literals: list[str]) -> Ints:
    """Features of one candidate that hold for the whole turn."""
    message = task.spec.text.lower()
    named = sum(value in message for value in literals)
    texts = [f"tool {name}", f"named {named} of {len(literals)}", f"named all {named == len(literals)} {name}"]
    return np.array([_feature(t) for t in [*texts, *(f"{name} x {word}" for word in task.words[:40])]], dtype=np.int64)


def _transcript(task: BfclTask, group: str, index: int, rollout: Played) -> Rollout:
    messages = [Message("user", task.spec.text)]
    for i, answer in zip(rollout.chosen, rollout.answers, strict=True):
        call = task.candidates[i]
        arguments = call.text[len(call.name) :]
        messages += [Message("assistant", calls=(ToolCall(call.name, arguments),)), Message("tool", answer)]
    messages.append(Message("assistant", "That is done."))
    calls = tuple(call for message in messages for call in message.calls)
    spec = task.spec
    return Rollout(group, spec.env, spec.task, index, rollout.reward, messages=tuple(messages), calls=calls)
