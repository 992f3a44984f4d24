"""The worlds by name: what each is made of, as plain numbers.

A variant is a reference world with a few numbers changed, written ``M-flaky``; several may follow
each other (``H-base0-graded``).
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from envsched_core.errors import ConfigError

__all__ = ["FLAGS", "VARIANTS", "WORLDS", "WorldSpec", "base_spec", "world_spec"]

FLAGS = ("authentication", "read_first", "locks", "confirmation", "hidden_ids")
"""The hidden flags in bit order."""


class WorldSpec(NamedTuple):
    """What a world is drawn from."""

    environments: int = 256
    tasks: int = 4096
    """Training tasks."""
    held_out: int = 1024
    turns: tuple[float, ...] = (0.30, 0.30, 0.25, 0.15)
    """Chance of 1 to 4 turns."""
    flags: tuple[float, ...] = (0.10, 0.20, 0.25, 0.25, 0.20)
    """Chance of 0 to 4 hidden flags."""
    jargon: tuple[float, float, float] = (0.35, 0.10, 0.10)
    """Chance that an API's verb, entity or attribute is a word of its own."""
    base_steps: int = 20
    """Training steps of the base policy on the easier world."""
    graded: bool = False
    """Reward: share of turns right instead of 0 or 1."""
    flaky_share: float = 0.0
    """Share of environments whose tools fail now and then."""
    flaky_rate: float = 0.15
    """Chance that a call of such an environment fails."""
    broken: float = 0.0
    """Share of training tasks that no rollout can solve."""
    broken_templates: float = 0.0
    """Chance that no rollout can solve the training tasks of a template (operations in order), in any environment."""
    paths: bool = False
    """Whether the catalogue tells which writes a task asks for, as benchmarks with reference actions do."""
    bimodal: bool = False
    """Half of the environments very easy, half very hard."""
    size_power: float = 0.7
    """Tasks of the k-th largest environment are in proportion to k^-size_power."""
    local_features: bool = True
    """Whether the policy has features of single environments: the larger of two capacities."""
    shared_flags: int = -1
    """The flags of every environment as a bit mask; -1 = drawn for each."""
    own_verbs: bool = True
    """Whether APIs differ in their verbs."""
    writes: tuple[str, ...] = ("create", "update", "delete", "assign")
    """What users ask for."""
    decoys: float = 0.25
    """Chance that an API has a LOGIN, UNLOCK or CONFIRM that it does not need."""


M = WorldSpec()
H = M._replace(turns=(0.10, 0.20, 0.30, 0.40), flags=(0.02, 0.08, 0.20, 0.30, 0.40), base_steps=10)

WORLDS: dict[str, WorldSpec] = {
    "M": M,
    "E": M._replace(
        environments=200,
        tasks=5000,
        held_out=600,
        turns=(0.20, 0.25, 0.30, 0.25),
        flags=(0.05, 0.15, 0.25, 0.25, 0.30),
        jargon=(0.6, 0.0, 0.0),
    ),
    "H": H,
    "F": M._replace(jargon=(0.35, 0.35, 0.35)),
    "X0": M._replace(
        jargon=(0.0, 0.0, 0.0),
        shared_flags=0b01001,
        own_verbs=False,
        local_features=False,
        writes=("create", "update", "delete"),
        broken_templates=0.5,
        paths=True,
    ),
    "X1": M._replace(
        jargon=(1.0, 0.0, 0.0),
        turns=(1.0, 0.0, 0.0, 0.0),
        flags=(0.3, 0.4, 0.3, 0.0, 0.0),
        writes=("update",),
    ),
    "small": M._replace(environments=24, tasks=320, held_out=120),
}
"""The reference worlds. X0: transfer across environments is planted (tasks are made from templates that all
environments share, about half of which are broken everywhere: what one environment shows of a template holds in all.
Words name the operations, but it is their order that is broken or not, of which a linear model of words sees a part;
verbs and flags are one set, and no feature is of a single environment). X1: it is absent (every API has verbs of its
own, and all tasks are of one pattern, a single update: beside the overall mean an environment tells nothing of
another)."""

VARIANTS: dict[str, dict[str, object]] = {
    "graded": {"graded": True},
    "revisits": {"tasks": 1380},
    "bimodal": {"bimodal": True},
    "flaky": {"flaky_share": 0.25},
    "broken": {"broken": 0.3},
    "narrow": {"local_features": False},
    "base0": {"base_steps": 0},
    "base10": {"base_steps": 10},
    "base20": {"base_steps": 20},
    "base40": {"base_steps": 40},
}
"""Changes by name."""


def world_spec(name: str) -> WorldSpec:
    """The spec of a world, variants after hyphens.

    Raises:
        ConfigError: unknown world or variant.
    """
    world, *variants = name.split("-")
    known = [*WORLDS, *VARIANTS]
    for part, there in [(world, world in WORLDS), *((v, v in VARIANTS) for v in variants)]:
        if not there:
            near = difflib.get_close_matches(part, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(
                f"unknown world '{name}'{hint}; worlds: {', '.join(WORLDS)}; variants: {', '.join(VARIANTS)}"
            )
    spec = WORLDS[world]
    for variant in variants:
        spec = spec._replace(**VARIANTS[variant])  # type: ignore[arg-type]  # values are of the fields' types
    return spec


def base_spec(local_features: bool) -> WorldSpec:
    """The easier world a base policy is trained on; it shares words with the others, and no environment."""
    return WorldSpec(
        environments=64,
        tasks=512,
        held_out=0,
        turns=(0.7, 0.3, 0.0, 0.0),
        flags=(0.4, 0.4, 0.2, 0.0, 0.0),
        jargon=(0.0, 0.0, 0.0),
        local_features=local_features,
    )
