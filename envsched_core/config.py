"""Every knob of a scheduler, in one frozen record.

Each field states its unit and range (enforced when a config is read) and its default. Unknown keys are
refused by name. `PRESETS` and the scheduler names of baselines.py are nothing but changes to this record.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from .errors import ConfigError

__all__ = ["PRESETS", "Config", "Knob", "config_from", "digest", "knobs"]

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Meta(ge=0.0)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All knobs of a scheduler."""

    # the batch
    batch_size: Annotated[
        Positive, Meta(description="picks in one step, over all its asks; quotas are shares of it")
    ] = 64
    group_size: Annotated[
        Positive, Meta(description="rollouts in a group (G); used for the chance that a group is mixed")
    ] = 8
    seed: Annotated[Count, Meta(description="seed of every draw and tie-break")] = 0

    # what a pick is worth
    weight_variance: Annotated[
        NonNegative, Meta(description="weight of the predicted reward variance, over its largest value 1/4")
    ] = 1.0
    weight_uncertainty: Annotated[
        NonNegative, Meta(description="weight of the variance prediction's standard deviation, over 1/4")
    ] = 0.3
    weight_environment: Annotated[NonNegative, Meta(description="weight of environment coverage")] = 0.05
    weight_pattern: Annotated[NonNegative, Meta(description="weight of interaction-pattern coverage")] = 0.02
    weight_task: Annotated[
        NonNegative, Meta(description="weight of task coverage: favours tasks not rolled out lately")
    ] = 0.05
    weight_similarity: Annotated[
        NonNegative, Meta(description="weight of the similarity penalty between tasks of one batch")
    ] = 0.1
    coverage_half_life: Annotated[
        NonNegative, Meta(description="steps after which a past visit counts half for coverage; 0 = never ages")
    ] = 20.0
    temperature: Annotated[NonNegative, Meta(description="scale of the Gumbel draw over log scores; 0 = greedy")] = 0.5
    uniform_share: Annotated[Share, Meta(description="share of the batch drawn uniformly from what remains")] = 0.05

    # quotas and availability
    max_share: Annotated[
        Share,
        Meta(description="largest share of a batch that one environment may take; at least one pick and an even split"),
    ] = 0.25
    max_shares: Annotated[dict[str, Share], Meta(description="the same for single environments, by name")] = {}
    min_shares: Annotated[
        dict[str, Share], Meta(description="smallest share of a batch for single environments, by name")
    ] = {}
    cool_down: Annotated[Count, Meta(description="steps a task rests after a pick")] = 0
    expire_after: Annotated[Positive, Meta(description="steps after which an open pick without result is given up")] = (
        50
    )
    dedupe_steps: Annotated[
        Positive,
        Meta(description="steps for which group ids are remembered, so that a group observed twice counts once"),
    ] = 1000
    pin_tasks: Annotated[
        tuple[str, ...], Meta(description="ENV::TASK keys picked first whenever they can be picked")
    ] = ()
    pin_environments: Annotated[
        tuple[str, ...], Meta(description="environments that get at least one pick a step")
    ] = ()
    exclude_tasks: Annotated[tuple[str, ...], Meta(description="ENV::TASK keys never picked")] = ()
    exclude_environments: Annotated[tuple[str, ...], Meta(description="environments never picked from")] = ()

    # rewards
    reward_ranges: Annotated[
        dict[str, tuple[float, float]],
        Meta(
            description="declared (lowest, highest) reward of an environment; else [0, 1], widened by what is observed"
        ),
    ] = {}
    min_std: Annotated[
        NonNegative,
        Meta(description="a group whose reward standard deviation is at most this is flat; in reward units"),
    ] = 0.0
    min_range: Annotated[
        NonNegative, Meta(description="a group whose rewards span at most this is flat; in reward units")
    ] = 1e-9

    # prediction
    half_lives: Annotated[
        tuple[NonNegative, ...],
        Meta(description="steps after which a rollout counts half: the values trust is learned over; 0 = never ages"),
    ] = (0.0, 20.0)
    kappa_env_grid: Annotated[
        tuple[Annotated[float, Meta(gt=0.0)], ...],
        Meta(
            description="environment mean's pseudo-rollouts, as multiples of its concentration: the values trust is learned over"
        ),
    ] = (0.5, 1.0, 2.0, 4.0)
    tau_within_grid: Annotated[
        tuple[NonNegative, ...],
        Meta(description="weight of within-environment neighbours: the values trust is learned over"),
    ] = (0.0, 0.1, 0.3, 1.0)
    tau_cross_grid: Annotated[
        tuple[NonNegative, ...],
        Meta(description="weight of cross-environment neighbours: the values trust is learned over"),
    ] = (0.0, 0.05, 0.2)
    kappa_global: Annotated[
        Annotated[float, Meta(gt=0.0)], Meta(description="pseudo-rollouts of the mean over everything")
    ] = 0.1
    trust_half_life: Annotated[
        NonNegative, Meta(description="steps after which a predictive score counts half; 0 = never ages")
    ] = 20.0
    trust_margin: Annotated[
        NonNegative, Meta(description="nats by which another trust must be better before it is taken")
    ] = 0.5
    learn_trust: Annotated[bool, Meta(description="false keeps the middle of each grid")] = True

    # graph
    neighbours: Annotated[
        Positive, Meta(description="edges kept per task and relation (K); in-degree is capped at 4 K")
    ] = 8
    min_weight: Annotated[Share, Meta(description="edges lighter than this are dropped")] = 0.05
    patterns: Annotated[Positive, Meta(description="most interaction patterns (P)")] = 16
    refresh_groups: Annotated[
        Count,
        Meta(
            description="newly observed groups after which the cross relation is rebuilt from what they showed; 0 = never"
        ),
    ] = 512

    # what is written down
    near_misses: Annotated[Share, Meta(description="near misses on record per pick")] = 1.0
    sample: Annotated[Share, Meta(description="randomly sampled other tasks on record per pick")] = 0.5


PRESETS: dict[str, dict[str, Any]] = {
    "training": {},
    "replay": {"temperature": 0.0, "uniform_share": 0.0},
}
"""`training` is for a learning policy; `replay` (no draw, no uniform share) for pool-replay comparisons."""


def config_from(values: Mapping[str, Any], base: Config | None = None) -> Config:
    """Build a config from plain values laid over `base` (the defaults when None).

    Raises:
        ConfigError: for an unknown key (with the nearest known one), a wrong type or a value out of range.
    """
    known = Config.__struct_fields__
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "; `envsched config` lists all"
            raise ConfigError(f"unknown config key '{key}'{hint}")
    merged = {**msgspec.to_builtins(base or Config()), **values}
    try:
        return msgspec.convert(merged, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"config: {error}; `envsched config` shows each range") from error


class Knob(NamedTuple):
    """What `envsched config` shows of one field."""

    name: str
    default: Any
    range: str
    doc: str


def knobs() -> list[Knob]:
    """Every field of `Config` in order, with default, range and meaning."""
    schema = msgspec.json.schema(Config)["$defs"]["Config"]["properties"]
    defaults = msgspec.to_builtins(Config())
    return [Knob(name, defaults[name], _range(field), field["description"]) for name, field in schema.items()]


def _range(field: dict[str, Any]) -> str:
    """The bounds of one field, from its JSON schema."""
    inner = field.get("items") or field.get("additionalProperties") or field
    signs = {"minimum": ">= ", "exclusiveMinimum": "> ", "maximum": "<= "}
    bounds = [f"{sign}{inner[key]:g}" for key, sign in signs.items() if isinstance(inner, dict) and key in inner]
    return ", ".join(bounds) or str(field.get("type", "any"))


def digest(config: Config) -> str:
    """16 hex digits that name a config (BLAKE2b of its canonical JSON)."""
    canonical = msgspec.json.encode(msgspec.to_builtins(config), order="sorted")
    return hashlib.blake2b(canonical, digest_size=8).hexdigest()
