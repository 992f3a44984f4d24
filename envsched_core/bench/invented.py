"""Invented catalogues of any size: environments with tools, and tasks that are variations of a few templates each.

A template is a text and a call path; its path plays one of a pool of role patterns that environments share, popular
ones more often, so that both relations find something. Only sizes and shapes are meant to be like real catalogues;
nothing here says how well a scheduler chooses. Drawn by (seed, environment), so that any part can be made alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envsched_core.keyed import mix, name_hash, unit
from envsched_core.records import GroupResult, Pick, TaskSpec, Tool
from envsched_core.similarity import ROLES

__all__ = ["invented_environment", "invented_results", "invented_tasks", "role_patterns"]

TEMPLATES, TOOLS, LONGEST_PATH = 12, len(ROLES), 7
PATTERNS, POPULARITY = 4, 0.8
"""Role patterns per environment in the pool that all share; the p-th is used with a chance like p ** -POPULARITY."""
SYLLABLES = (
    "ba be bi bo da de di do fa fe ga ge ka ke ki ko la le li lo ma me mi mo na ne ra re ri ro sa se ta te to".split()
)
VERBS = {role: verbs.split() for role, verbs in ROLES.items()}
ABILITY, REWARD, PATH = 40, 41, 42  # keys of a task's success rate, its rewards and its observed path


def invented_tasks(tasks: int, environments: int, seed: int) -> list[TaskSpec]:
    """`tasks` tasks, evenly over `environments`."""
    pool = role_patterns(environments, seed)
    size, rest = divmod(tasks, environments)
    out: list[TaskSpec] = []
    for e in range(environments):
        out += invented_environment(f"env{e}", size + (e < rest), pool, np.random.default_rng([seed, e]))
    return out


def role_patterns(environments: int, seed: int) -> list[tuple[str, ...]]:
    """The pool of role patterns of 1 to LONGEST_PATH calls, the most popular first."""
    rng, roles = np.random.default_rng(seed), list(ROLES)
    sizes = rng.integers(1, LONGEST_PATH + 1, size=PATTERNS * environments)
    return [tuple(roles[i] for i in rng.integers(len(roles), size=size)) for size in sizes]


def invented_environment(
    env: str, tasks: int, pool: Sequence[tuple[str, ...]], rng: np.random.Generator, first: int = 0
) -> list[TaskSpec]:
    """Tasks of one environment, numbered from `first`; every other environment has reference paths."""
    words = np.array([_word(number) for number in rng.integers(100_000, size=160)])
    roles = list(ROLES)
    tools = {role: f"{rng.choice(VERBS[role])}_{words[i]}" for i, role in enumerate(roles)}
    documented = tuple(Tool(name, " ".join(rng.choice(words, 5)), (str(words[0]),)) for name in tools.values())
    chance = np.arange(1, len(pool) + 1) ** -POPULARITY
    paths = [pool[i] for i in rng.choice(len(pool), size=TEMPLATES, p=chance / chance.sum())]
    skeletons = [" ".join(rng.choice(words, 9)) for _ in range(TEMPLATES)]
    template, slots = rng.integers(TEMPLATES, size=tasks), rng.choice(words, (tasks, 5))
    again, known = rng.random(tasks) < 0.2, bool(rng.random() < 0.5)
    out = []
    for i, (t, slot, repeat) in enumerate(zip(template.tolist(), slots.tolist(), again.tolist(), strict=True)):
        path = tuple(tools[role] for role in paths[t])
        calls = (*path, path[i % len(path)]) if repeat else path
        text = f"{skeletons[t]} {' '.join(slot)} {i % 97}"
        out.append(TaskSpec(env, f"t{first + i}", text, documented, (env,), "state", calls if known else None))
    return out


def invented_results(picks: Sequence[Pick], specs: Sequence[TaskSpec], step: int, group_size: int) -> list[GroupResult]:
    """Binary rewards at a success rate of each task's own; tasks without a reference path show calls."""
    hashes = np.array([name_hash(pick.key) for pick in picks], dtype=np.uint64)
    rate = unit(mix(hashes, ABILITY))
    drawn = np.stack([unit(mix(hashes, REWARD, step, i)) for i in range(group_size)], axis=1)
    rewards = (drawn < rate[:, None]).astype(float).tolist()
    first = (mix(hashes, PATH) % np.uint64(TOOLS)).tolist()
    out = []
    for pick, spec, given, start in zip(picks, specs, rewards, first, strict=True):
        path = tuple(tool.name for tool in spec.tools[start : start + 3])
        calls = () if spec.calls else (path,) * group_size
        out.append(GroupResult(pick.pick_id, pick.env, pick.task, tuple(given), step=step, calls=calls))
    return out


def _word(number: int) -> str:
    """A pronounceable word for each number."""
    out = ""
    while number or not out:
        number, syllable = divmod(int(number), len(SYLLABLES))
        out += SYLLABLES[syllable]
    return out
