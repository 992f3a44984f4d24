"""Every knob of a scheduler, in one frozen record.

Each field states its unit and range (enforced when a config is read) and its default. Unknown keys are
refused by name. `PRESETS` and the scheduler names of baselines.py are nothing but changes to this record.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from .errors import ConfigError

__all__ = ["PRESETS", "RULES_BEFORE", "Config", "Knob", "config_from", "digest", "knobs"]

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Meta(ge=0.0, le=1e6)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Strict = Annotated[float, Meta(gt=0.0, le=1e6)]
Exponent = Annotated[float, Meta(ge=0.0, le=10.0)]
"""More would leave the range of floating point on a long run."""
Grid = Annotated[tuple[NonNegative, ...], Meta(min_length=1)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All knobs of a scheduler."""

    # the batch
    batch_size: Positive = 64
    """picks in one step, over all its asks; quotas are shares of it"""
    group_size: Positive = 8
    """rollouts in a group (G); used for the chance that a group is mixed"""
    seed: Count = 0
    """seed of every draw and tie-break"""

    # what a pick is worth
    weight_variance: NonNegative = 0.25
    """weight of the predicted reward variance, over its largest value 1/4"""
    weight_usable: NonNegative = 1.0
    """weight of the chance that a group of `group_size` is mixed"""
    weight_uncertainty: NonNegative = 0.1
    """weight of the variance prediction's standard deviation, over 1/4"""
    weight_environment: Exponent = 1.0
    """exponent of environment coverage, ((1 + mean visits) / (1 + its visits)) ^ weight, a factor on the value"""
    weight_pattern: Exponent = 0.1
    """exponent of interaction-pattern coverage, of the same shape"""
    weight_task: Exponent = 1.0
    """exponent of task coverage, (1 / (1 + its visits)) ^ weight: favours tasks not rolled out lately"""
    weight_similarity: NonNegative = 0.1
    """weight of the similarity penalty between tasks of one batch"""
    cost: Literal["", "tokens", "seconds", "turns", "tool_calls"] = ""
    """the cost that values are counted per, by the factor (usual / expected cost) ^ `weight_cost`; empty = none"""
    weight_cost: Exponent = 1.0
    """exponent of that factor, which stays between 1/10 and 10"""
    coverage_half_life: NonNegative = 20.0
    """steps after which a past visit counts half for coverage; 0 = never ages"""
    temperature: Exponent = 0.1
    """scale of the Gumbel draw: the gain is multiplied by exp(temperature x Gumbel); 0 = greedy"""
    uniform_share: Share = 0.05
    """share of the batch drawn uniformly from what remains"""

    # quotas and availability
    max_share: Share = 0.25
    """largest share of a batch that one environment may take; at least one pick and an even split"""
    max_shares: dict[str, Share] = {}
    """the same for single environments, by name"""
    min_shares: dict[str, Share] = {}
    """smallest share of a batch for single environments, by name"""
    cool_down: Count = 0
    """steps a task rests after a pick"""
    expire_after: Positive = 50
    """steps after which an open pick without result is given up"""
    dedupe_steps: Positive = 1000
    """steps for which group ids are remembered, so that a group observed twice counts once"""
    pin_tasks: tuple[str, ...] = ()
    """ENV::TASK keys picked first whenever they can be picked"""
    pin_environments: tuple[str, ...] = ()
    """environments that get at least one pick a step"""
    exclude_tasks: tuple[str, ...] = ()
    """ENV::TASK keys never picked"""
    exclude_environments: tuple[str, ...] = ()
    """environments never picked from"""

    # rewards
    reward_ranges: dict[str, tuple[float, float]] = {}
    """declared (lowest, highest) reward of an environment; else [0, 1], widened by what is observed"""
    min_std: NonNegative = 0.0
    """a group whose reward standard deviation is at most this is flat; in reward units"""
    min_range: NonNegative = 1e-09
    """a group whose rewards span at most this is flat; in reward units"""

    # prediction
    # The groups of the first step were predicted from nothing: features and neighbours score alike on them, whatever
    # their weight, and the first value of each grid is taken: this order did best on recorded logs of four tried. Until
    # a group is seen the values in the middle hold: the environment's mean at its estimated concentration, times 1.
    half_lives: Grid = (0.0, 20.0)
    """steps after which a rollout counts half: the values trust is learned over; 0 = never ages"""
    kappa_env_grid: Annotated[tuple[Strict, ...], Meta(min_length=1)] = (2.0, 4.0, 1.0, 0.5)
    """weight of the environment's mean, in units of its concentration: the values trust is learned over"""
    features_share_grid: Annotated[tuple[Share, ...], Meta(min_length=1)] = (1.0, 0.5, 0.0)
    """part of the environment's weight for what features predict: trust is learned over these, ties take the first"""
    tau_within_grid: Grid = (0.3, 0.0, 0.1, 1.0)
    """weight of within-environment neighbours: trust is learned over these, ties take the first"""
    tau_cross_grid: Grid = (0.0, 0.05, 0.2)
    """weight of cross-environment neighbours: the values trust is learned over"""
    neighbours_unit: Literal["concentration", "rollout"] = "concentration"
    """what the weights of neighbours are in units of: the environment's concentration, as its mean's is; or rollouts"""
    kappa_global: Strict = 0.001
    """pseudo-rollouts of the mean over everything"""
    trust_half_life: NonNegative = 20.0
    """steps after which a predictive score counts half; 0 = never ages"""
    trust_margin: NonNegative = 0.5
    """nats by which another trust must be better before it is taken"""
    learn_trust: bool = True
    """false keeps the first half-life and, of each grid, the value in the middle as listed (the second of two)"""

    # graph
    neighbours: Positive = 8
    """edges kept per task and relation (K); in-degree is capped at 4 K"""
    min_weight: Share = 0.05
    """edges lighter than this are dropped"""
    patterns: Positive = 16
    """most interaction patterns (P)"""
    refresh_groups: Count = 512
    """newly observed groups, but at least a sixteenth of the tasks, after which the graph is rebuilt; 0 = never"""
    shuffle_within: bool = False
    """placebo: the tasks of each environment change places in the within relation"""
    shuffle_cross: bool = False
    """placebo: cross edges keep their weight and end at other tasks"""

    # what is written down
    near_misses: Share = 1.0
    """near misses on record per pick"""
    sample: Share = 0.5
    """randomly sampled other tasks on record per pick"""


PRESETS: dict[str, dict[str, Any]] = {
    "training": {},
    "replay": {"temperature": 0.0, "uniform_share": 0.0, "weight_environment": 0.5, "max_share": 0.5},
}
"""`training` is for a learning policy; `replay` for pool-replay comparisons: no draw, no uniform share, and a looser
quota, since no policy is there to be kept broad, and a quarter of a small batch is one pick."""


RULES_BEFORE: dict[str, Any] = {"neighbours_unit": "rollout"}
"""Knobs that are younger than some runs on record, at what was the rule before: records that lack them mean this."""


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
        config = msgspec.convert(merged, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"config: {error}; `envsched config` shows each range") from error
    for env, (low, high) in config.reward_ranges.items():
        if not -1e100 < low < high < 1e100:
            raise ConfigError(
                f"config: reward_ranges of '{env}' must be two numbers, the lower first; got {low}, {high}"
            )
    return config


class Knob(NamedTuple):
    """What `envsched config` shows of one field."""

    name: str
    default: Any
    range: str
    doc: str


def knobs() -> list[Knob]:
    """Every field of `Config` in order, with default, range and the line that stands under it."""
    (source,) = ast.parse(inspect.getsource(Config)).body
    body = source.body if isinstance(source, ast.ClassDef) else []
    docs = {
        field.target.id: ast.literal_eval(line.value)
        for field, line in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(line, ast.Expr)
    }
    schema = msgspec.json.schema(Config)["$defs"]["Config"]["properties"]
    defaults = msgspec.to_builtins(Config())
    return [Knob(name, defaults[name], _range(field), docs[name]) for name, field in schema.items()]


def _range(field: dict[str, Any]) -> str:
    """The bounds of one field, or the words it may be, from its JSON schema."""
    if "enum" in field:
        return " ".join(word or "''" for word in field["enum"])
    inner = field.get("items") or field.get("additionalProperties") or field
    signs = {"minimum": ">= ", "exclusiveMinimum": "> ", "maximum": "<= "}
    bounds = [f"{sign}{inner[key]:g}" for key, sign in signs.items() if isinstance(inner, dict) and key in inner]
    return ", ".join(bounds) or str(field.get("type", "any"))


def digest(config: Config) -> str:
    """16 hex digits that name a config (BLAKE2b of its canonical JSON).

    A younger knob at the rule before it is left out, so that configs of then keep their names.
    """
    values = msgspec.to_builtins(config)
    named = {key: value for key, value in values.items() if key not in RULES_BEFORE or value != RULES_BEFORE[key]}
    canonical = msgspec.json.encode(named, order="sorted")
    return hashlib.blake2b(canonical, digest_size=8).hexdigest()
