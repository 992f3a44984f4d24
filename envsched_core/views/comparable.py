"""Whether two runs can be compared as schedulers: what must be the same, and what a reader must bear in mind.

A difference between two runs speaks of their schedulers when both chose from the same tasks, the same number a step,
out of the same recorded rewards or the same training. Where one of these differs the word is "not comparable".
"""

from __future__ import annotations

from typing import Literal

import msgspec
import pandas as pd

from .run_view import RunView
from .summary import visits

__all__ = ["Comparability", "comparability"]

ONE_SEED = "each run is one seed: an interval here is over steps, and says nothing of what another seed would give"


class Comparability(msgspec.Struct, frozen=True):
    """What two runs have in common."""

    word: Literal["comparable", "comparable with care", "not comparable"]
    against: tuple[str, ...]
    """What makes them not comparable: pool, batch or source differ. Untrusted text where it names runs."""
    care: tuple[str, ...]
    """What differs beside that."""
    limits: tuple[str, ...]
    """What no pair of runs can tell."""


def comparability(a: RunView, b: RunView) -> Comparability:
    """How far differences between runs `a` and `b` may be read as differences between their schedulers."""
    against = [*_pool(a, b), *_batch(a, b), *_source(a, b)]
    care = _care(a, b)
    word: Literal["comparable", "comparable with care", "not comparable"] = "comparable"
    if against or care:
        word = "not comparable" if against else "comparable with care"
    return Comparability(word, tuple(against), tuple(care), (ONE_SEED,))


def _pool(a: RunView, b: RunView) -> list[str]:
    left, right = (set(_keys(view.query("SELECT env, task FROM tasks"))) for view in (a, b))
    if left == right:
        return []
    return [f"different pools: A has {len(left):,} tasks, B {len(right):,}, and {len(left & right):,} are in both"]


def _keys(table: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(table["env"], table["task"], strict=True))


def _batch(a: RunView, b: RunView) -> list[str]:
    sizes = [_usual_batch(view) for view in (a, b)]
    if None in sizes or sizes[0] == sizes[1]:
        return []
    return [f"different batches: A takes {sizes[0]:,} tasks a step, B {sizes[1]:,}"]


def _usual_batch(view: RunView) -> int | None:
    """What the run was started with, else the median of tasks a step; None for a run without steps."""
    if view.manifest.batch_size:
        return view.manifest.batch_size
    found = view.row(f"SELECT median(n) n FROM (SELECT count(*) n FROM {visits(view)} GROUP BY step)")["n"]
    return None if found is None else int(found)


def _source(a: RunView, b: RunView) -> list[str]:
    """Replays must draw from one log; a log and its replay hold the same rewards."""
    one, other = _origin(a), _origin(b)
    if one == other:
        return []
    if "" in (one, other):
        return [f"different sources: {_said('A', a)}, {_said('B', b)}"]
    names = [str(view.manifest.source.get("run_id", view.manifest.run_id)) for view in (a, b)]
    return [f"different sources: A is made from {names[0]}, B from {names[1]}"]


def _origin(view: RunView) -> str:
    """What names the rewards a run draws from: the log's digest; empty where a trainer gave them."""
    manifest = view.manifest
    if manifest.kind == "import":
        return manifest.digest
    return str(manifest.source.get("digest", "")) if manifest.kind in ("replay", "audit") else ""


def _said(side: str, view: RunView) -> str:
    return f"{side} holds the rewards of {'a recorded log' if _origin(view) else 'its own training'}"


def _care(a: RunView, b: RunView) -> list[str]:
    one, other = a.manifest, b.manifest
    out = []
    if one.kind != other.kind:
        out.append(f"A is of kind {one.kind}, B of kind {other.kind}")
    if one.simulated != other.simulated:
        out.append("the rewards of one run are simulated, those of the other are not")
    ranges = [{env: tuple(pair) for env, pair in manifest.reward_ranges.items()} for manifest in (one, other)]
    if ranges[0] != ranges[1]:
        out.append("their reward ranges differ, so that variances and means are mapped differently")
    if one.seed != other.seed:
        out.append(f"their seeds differ ({one.seed} and {other.seed}): part of any difference is chance")
    sizes = [_group_size(view) for view in (a, b)]
    if None not in sizes and sizes[0] != sizes[1]:
        out.append(
            f"their groups differ in size ({sizes[0]} and {sizes[1]} rollouts): larger ones are mixed more often"
        )
    steps = [len(view.steps()) for view in (a, b)]
    if steps[0] != steps[1]:
        out.append(f"A has {steps[0]:,} steps, B {steps[1]:,}: totals are of different lengths")
    if one.kind == other.kind == "live":
        out.append("each run trained a policy of its own: from the first update on their tasks differ in difficulty")
    return out


def _group_size(view: RunView) -> int | None:
    """The usual number of rollouts in a group."""
    found = view.row("SELECT mode(scored + missing) n FROM groups")["n"]
    return None if found is None else int(found)
