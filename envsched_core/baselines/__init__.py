"""The peers of EnvSched behind the same protocol, its ablations and placebos, by name.

    peer           what a peer has: memory that grows with the catalogue, draws by turns
    counting       uniform, round-robin, empirical-bayes, dapo, dapo-envsched
    bandits        dump, sec                          arms are environments
    pools          difficulty-pool, greso             what the latest groups of a task were
    tracking       mopps, dps                         a belief about each task, followed over time
    replaying      level-replay, learnability         a buffer of what paid, mixed with what is new
    ablations      envsched-no-..., envsched-shuffled-..., envsched-per-cost: changes of the config, nothing else

They share availability, ledger and records, so a comparison compares the choice and nothing else. Where a
peer predicts nothing, the prediction on record is the environment-level estimate; it had no part in the choice.
The references `oracle` and `oracle-top` must see the true variance: benches make them (testbed/oracle.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from envsched_core.config import Config
from envsched_core.errors import ConfigError
from envsched_core.scheduler import EnvSched

from .ablations import ABLATIONS
from .bandits import Dump, Sec
from .counting import FILLING_ROUNDS, RoundRobin, dapo, dapo_envsched, empirical_bayes, uniform
from .peer import BARE, Peer
from .pools import DifficultyPool, Greso
from .replaying import Learnability, LevelReplay
from .tracking import Dps, Mopps

__all__ = [
    "FILLING_ROUNDS",
    "GROUPS",
    "NAMES",
    "REFERENCES",
    "DifficultyPool",
    "Dps",
    "Dump",
    "Greso",
    "Learnability",
    "LevelReplay",
    "Mopps",
    "Peer",
    "RoundRobin",
    "Sec",
    "expand",
    "make_scheduler",
    "one_ask_a_step",
]

PEERS: dict[str, Callable[[Config], EnvSched]] = {
    "uniform": uniform,
    "round-robin": RoundRobin,
    "empirical-bayes": empirical_bayes,
    "mopps": Mopps,
    "dump": Dump,
    "sec": Sec,
    "difficulty-pool": DifficultyPool,
    "greso": Greso,
    "dps": Dps,
    "level-replay": LevelReplay,
    "learnability": Learnability,
    "dapo": dapo,
}

NAMES: dict[str, Callable[[Config], EnvSched]] = {
    "envsched": EnvSched,
    **PEERS,
    "dapo-envsched": dapo_envsched,
    **ABLATIONS,
}
"""Every scheduler by the name used on the command line and in run folders."""

REFERENCES: dict[str, dict[str, Any]] = {
    "oracle": {**BARE, "temperature": 1.0},  # gain x exp(Gumbel): a draw in proportion to the gain
    "oracle-top": {name: value for name, value in BARE.items() if name != "max_share"},
}
"""Limits that a comparison is read against, and their knobs: in proportion to the true variance, and the top of it
under the quota."""

GROUPS: dict[str, tuple[str, ...]] = {
    "peers": ("envsched", *PEERS, "oracle"),
    "all": (*NAMES, *REFERENCES),
}
"""Names that stand for several."""


def expand(names: str) -> tuple[str, ...]:
    """The schedulers that a comma list of names and groups means, each once, in the order given.

    References are among them: what can know the true variance makes them, all others by `make_scheduler`.

    Raises:
        ConfigError: a name is unknown (with the nearest known one), or there is none.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        known = ", ".join((*GROUPS, *GROUPS["all"]))
        raise ConfigError(f"no scheduler named; give a comma list of: {known}")
    out: dict[str, None] = {}
    for name in wanted:
        if name not in GROUPS and name not in GROUPS["all"]:
            raise ConfigError(_unknown(name, (*GROUPS, *GROUPS["all"])))
        out.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return tuple(out)


def make_scheduler(name: str, config: Config | None = None) -> EnvSched:
    """A fresh scheduler by name.

    Raises:
        ConfigError: no scheduler has that name, or it needs to see the true variance.
    """
    if name in REFERENCES:
        raise ConfigError(f"'{name}' is a reference that must see the true variance; only benches can make it")
    if name not in NAMES:
        raise ConfigError(_unknown(name, tuple(NAMES)))
    return NAMES[name](config or Config())


def _unknown(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"unknown scheduler '{name}'{hint}; known: {', '.join(known)}"


def one_ask_a_step(name: str, config: Config | None = None) -> EnvSched:
    """The same for a loop that asks once a step, which is no loop for a scheduler that fills its batches.

    Raises:
        ConfigError: no scheduler has that name, or it fills its batches.
    """
    scheduler = make_scheduler(name, config)
    if scheduler.fills_batch:
        raise ConfigError(f"'{name}' fills its batches, which only `envsched bench` does; choose another scheduler")
    return scheduler
