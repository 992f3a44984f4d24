"""How a map of the graph looks: its tables to what the component draws; pure, and without any HTML of a log.

Colours keep their meaning over all steps: every scale is fixed, its legend stands on the page, and grey is what is
not known. Relations differ by dash, picks and choices by their rings, so that nothing is told by colour alone.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import words
from .charts import AMBER, BLUE, GREEN, GREY, VERMILION
from .graph_colours import STATE, STATE_SHAPES, VARIANCE, fills
from .loading import EnvironmentMap, GraphMap

__all__ = ["Look", "environment_data", "short", "task_data"]

RELATION_COLOURS = {"within": GREY, "cross": VERMILION}
MANY = 400
"""Edges beyond which they are drawn thinner."""
LABELLED = 40
"""Nodes up to which every one carries its name; beyond it only what was asked for."""
SCREEN = (620.0, 520.0)
"""Pixels across and down that a whole map is drawn in."""
LETTER = 0.55
"""Width of a letter as a part of the height of the font."""
PICKED = ("selected", "uniform_draw")


class Look(NamedTuple):
    """What the page chose."""

    shape: str
    """Names the map: while it stays the same, positions and view stay."""
    color: str = VARIANCE
    steps: tuple[int, int] = (0, 0)
    """First and last step of the run: the ends of the scale of steps."""
    selected: int | None = None
    edge: str | None = None
    """Two nodes, `12-57`, the lower first."""
    matches: frozenset[int] | None = None
    """Nodes that the search found; None = there is none."""
    faint: frozenset[int] = frozenset()
    """Nodes that the page's filters turn away."""
    flow: pd.DataFrame | None = None
    """Columns source, key, share: evidence into the selected task."""
    look: int = 0
    """Grows whenever a task was chosen from a list, so that the map brings it into sight."""
    around: bool = False
    """The map is one task's: edges that do not touch it are faint."""


def _rows(table: pd.DataFrame) -> list[Any]:
    """The rows with None for what is not known; by whole columns, since texts come one by one slowly."""
    row: Any = namedtuple("row", [str(name) for name in table])  # type: ignore[misc]  # as itertuples does
    return [row(*values) for values in zip(*(_plain(table[name]) for name in table), strict=True)]


def _plain(column: pd.Series[Any]) -> list[Any]:
    values = np.array(column.to_numpy(dtype=object))
    values[column.isna().to_numpy()] = None
    out: list[Any] = values.tolist()
    return out


def _unit(nodes: pd.DataFrame) -> float:
    """Units of the canvas that one pixel shows when the whole map is in view."""
    if nodes.empty:
        return 1.0
    spans = [float(nodes[axis].max() - nodes[axis].min()) + 120.0 for axis in ("x", "y")]
    return max(spans[0] / SCREEN[0], spans[1] / SCREEN[1], 0.6)


def short(text: str, most: int = 24) -> str:
    """A text cut to fit beside a node."""
    return text if len(text) <= most else text[: most - 1] + "…"


# ---------------------------------------------------------------------- tasks


def task_data(found: GraphMap, look: Look) -> dict[str, Any]:
    """What the component draws of a map of tasks."""
    nodes, edges = found.nodes, found.edges
    near = _near(edges, look)
    middle = nodes[nodes["centre"]]["env"].iloc[0] if nodes["centre"].any() else ""
    lone = nodes[nodes["centre"]]["env"].nunique() == 1
    named = lone and (look.around or int((nodes["env"] == middle).sum()) <= LABELLED)
    arrows = _arrows(found, look)
    carried = {(min(a["from"], a["to"]), max(a["from"], a["to"])) for a in arrows}
    drawn = [row for row in _rows(edges) if (min(row.source, row.target), max(row.source, row.target)) not in carried]
    return {
        "shape": look.shape,
        "unit": round(_unit(nodes), 3),
        "ring": 4 if len(nodes) <= MANY else 2.5,
        "nodes": _nodes(nodes, look, near, middle if lone else None, named=named),
        "edges": _edges(drawn, look),
        "flow": arrows,
        "captions": [] if look.around else _captions(nodes),
        "selected": look.selected,
        "look": look.look,
        "selectedEdge": look.edge,
        "alt": f"Map of {len(nodes)} tasks and {len(edges)} edges, tasks coloured by {look.color}; the "
        "tables below hold the same.",
    }


def _near(edges: pd.DataFrame, look: Look) -> set[int] | None:
    """The selected task and who is tied to it; None when none is selected."""
    if look.selected is None:
        return None
    ends = edges[(edges["source"] == look.selected) | (edges["target"] == look.selected)]
    return {look.selected, *ends["source"], *ends["target"]}


def _nodes(
    nodes: pd.DataFrame, look: Look, near: set[int] | None, middle: str | None, *, named: bool
) -> dict[str, list[Any]]:
    ids, keys, envs = (_plain(nodes[name]) for name in ("node", "key", "env"))
    chosen = [node == look.selected for node in ids]
    matched = [look.matches is not None and node in look.matches for node in ids]
    picked = nodes["outcome"].isin(PICKED).tolist()
    home = [middle is None or env == middle for env in envs]
    names = [task if own else key for task, key, own in zip(_plain(nodes["task"]), keys, home, strict=True)]
    unit, given = _unit(nodes), _given(look)
    font = 10.0 * unit if look.around else 11.0
    small = round(min(max(6.0 * unit, 9.0), 21.0), 1)
    forms = (
        [STATE_SHAPES.get(state, "dot") for state in nodes["state"]]
        if look.color == STATE
        else ["dot" if own else "square" for own in home]
    )
    return {
        "id": ids,
        "x": nodes["x"].round(1).tolist(),
        "y": nodes["y"].round(1).tolist(),
        "label": [
            short(name) + given.get(key, "")
            if this or hit or key in given
            else short(name, 12)
            if named and own and (near is None or node in near)
            else ""
            for node, key, name, this, hit, own in zip(ids, keys, names, chosen, matched, home, strict=True)
        ],
        "font": [
            round(11.0 * unit if this or hit or key in given else font, 1)
            for key, this, hit in zip(keys, chosen, matched, strict=True)
        ],
        "title": [_node_title(row) for row in _rows(nodes)],
        "fill": fills(nodes, look.color, look.steps),
        "ring": [
            VERMILION if this else AMBER if hit else BLUE if pick else ""
            for this, hit, pick in zip(chosen, matched, picked, strict=True)
        ],
        "size": [small * (1.4 if this else 1.15 if hit else 1.0) for this, hit in zip(chosen, matched, strict=True)],
        "shape": forms,
        "faint": [_is_faint(node, look, near, around=look.around) for node in ids],
    }


def _given(look: Look) -> dict[str, str]:
    """The share of the prediction that each neighbour gave, to stand under its name."""
    if look.flow is None or look.selected is None:
        return {}
    rows = look.flow[look.flow["source"].isin(["within", "cross"]) & (look.flow["key"] != "")]
    return {row.key: f"\n{row.share:.1%}" for row in _rows(rows)}


def _is_faint(node: int, look: Look, near: set[int] | None, *, around: bool) -> bool:
    if node == look.selected:
        return False
    if node in look.faint or (look.matches is not None and node not in look.matches):
        return True
    return near is not None and not around and node not in near


def _node_title(row: Any) -> str:
    seen = f"{words.several(row.groups, 'group')} observed"
    if row.groups and not pd.isna(row.last_step):
        seen += f", last at step {int(row.last_step)}"
    state = row.state if isinstance(row.state, str) else "not on record"
    return (
        f"{short(str(row.key), 120)}\npredicted variance {words.variance(row.variance)}, rank {words.count(row.rank)}\n"
        f"{words.outcome(row.outcome)}; evidence: {state}\n{seen}; {words.several(row.ties, 'edge')}"
    )


def _edges(drawn: list[Any], look: Look) -> dict[str, list[Any]]:
    ids = [_edge_id(row.source, row.target) for row in drawn]
    many = len(drawn) > MANY
    thin, rest, other = (0.45, 0.4, 0.06) if many else (1.0, 0.75, 0.15)
    own = [look.selected is None or look.selected in (row.source, row.target) for row in drawn]
    return {
        "id": ids,
        "from": [int(row.source) for row in drawn],
        "to": [int(row.target) for row in drawn],
        "cross": [row.relation == "cross" for row in drawn],
        "width": [
            6.0 if name == look.edge else round(thin * (0.5 + 2.5 * float(row.weight)), 2)
            for name, row in zip(ids, drawn, strict=True)
        ],
        "opacity": [
            1.0 if name == look.edge or (mine and look.selected is not None) else rest if mine else other
            for name, mine in zip(ids, own, strict=True)
        ],
        "colour": [RELATION_COLOURS[row.relation] for row in drawn],
        "title": [_edge_title(row) for row in drawn],
    }


def _edge_id(one: int, other: int) -> str:
    return f"{min(one, other)}-{max(one, other)}"


def _edge_title(row: Any) -> str:
    return f"{'across' if row.relation == 'cross' else 'within'}, weight {row.weight:.2f}\n{row.parts}"


def _arrows(found: GraphMap, look: Look) -> list[dict[str, Any]]:
    """Evidence that neighbours on the map gave to the selected task."""
    if look.flow is None or look.selected is None:
        return []
    nodes: Mapping[str, int] = dict(zip(found.nodes["key"], found.nodes["node"].astype(int), strict=True))
    rows = look.flow[look.flow["source"].isin(["within", "cross"]) & look.flow["key"].isin(nodes.keys())]
    return [
        {
            "from": nodes[row.key],
            "to": look.selected,
            "cross": row.source == "cross",
            "colour": GREEN,
            "width": round(1.5 + 8.0 * float(row.share) ** 0.5, 2),
            "title": f"{row.share:.1%} of the predicted mean came from here\nedge weight {row.weight:.2f}, "
            f"mean reward {row.mean:.2f} over {row.rollouts:.1f} rollouts (aged)",
        }
        for row in _rows(rows)
    ]


def _captions(nodes: pd.DataFrame) -> list[dict[str, Any]]:
    """The name of every environment above its disc: readable at once where discs leave the room, else on zooming in."""
    found, unit, crowded = [], _unit(nodes), nodes["env"].nunique() > 12
    for env, group in nodes.groupby("env", sort=False):
        text = short(str(env), 28)
        wide = 1.25 * float(group["x"].max() - group["x"].min()) + 110.0
        size = min(12.0 * unit, wide / (LETTER * max(len(text), 6))) if crowded else 12.0 * unit
        middle = 0.5 * float(group["x"].max() + group["x"].min())
        top = float(group["y"].min()) - 24.0 - size
        found.append({"text": text, "x": round(middle, 1), "y": round(top, 1), "size": round(size, 1)})
    return found


# ---------------------------------------------------------------------- environments


def environment_data(found: EnvironmentMap, look: Look) -> dict[str, Any]:
    """What the component draws of a map of environments."""
    nodes, edges = found.nodes, found.edges
    most = float(edges["edges"].max()) if len(edges) else 1.0
    thin, rest = (0.4, 0.3) if len(edges) > MANY else (1.0, 0.5)
    ids = [int(node) for node in nodes["node"]]
    return {
        "shape": look.shape,
        "unit": round(_unit(nodes), 3),
        "ring": 4,
        "nodes": {
            "id": ids,
            "x": nodes["x"].round(1).tolist(),
            "y": nodes["y"].round(1).tolist(),
            "label": [short(env, 14) for env in nodes["env"]],
            "font": [round(max(10.5 * _unit(nodes), 16.0), 1) if len(nodes) <= LABELLED else 16.0] * len(nodes),
            "title": [_environment_title(row) for row in _rows(nodes)],
            "fill": fills(nodes, look.color, look.steps),
            "ring": [AMBER if _hit(look, i) else BLUE if n else "" for i, n in zip(ids, nodes["picks"], strict=True)],
            "size": np.clip(10.0 + 3.0 * np.sqrt(nodes["tasks"]), 16.0, 46.0).round(1).tolist(),
            "shape": [STATE_SHAPES.get(s, "dot") if look.color == STATE else "dot" for s in nodes["state"]],
            "faint": [i in look.faint or (look.matches is not None and i not in look.matches) for i in ids],
        },
        "edges": {
            "id": [_edge_id(a, b) for a, b in zip(edges["source"], edges["target"], strict=True)],
            "from": edges["source"].astype(int).tolist(),
            "to": edges["target"].astype(int).tolist(),
            "cross": [True] * len(edges),
            "width": (thin * (0.5 + 5.5 * np.sqrt(edges["edges"] / most))).round(2).tolist(),
            "opacity": [1.0 if _edge_id(r.source, r.target) == look.edge else rest for r in _rows(edges)],
            "colour": [VERMILION] * len(edges),
            "title": [f"{words.several(r.edges, 'cross edge')}, mean weight {r.weight:.2f}" for r in _rows(edges)],
        },
        "flow": [],
        "captions": [],
        "selected": None,
        "look": 0,
        "selectedEdge": look.edge,
        "alt": f"Map of {len(nodes)} environments and {len(edges)} pairs tied by cross edges, coloured by "
        f"{look.color}; the tables below hold the same.",
    }


def _hit(look: Look, node: int) -> bool:
    return look.matches is not None and node in look.matches


def _environment_title(row: Any) -> str:
    return (
        f"{short(str(row.env), 120)}\n{words.several(row.tasks, 'task')}, {row.seen} of them observed, "
        f"{words.several(row.groups, 'group')}\n"
        f"mean predicted variance {words.variance(row.variance)}; {row.picks} picked at this step\n"
        f"{words.several(row.within, 'edge')} within, {row.cross} across"
    )
