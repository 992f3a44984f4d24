"""Colours of the Graph page: a fixed scale for each thing that nodes can be coloured by, and its legend; pure.

Colours keep their meaning over all steps, and grey is what is not known. The scales of numbers are cividis, which
the colour-blind read as well; evidence states differ by form too.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .charts import AMBER, BLUE, GREEN, GREY, PURPLE, VERMILION
from .loading import STATES

__all__ = ["COLOURS", "LAST", "OBSERVATIONS", "STATE", "STATE_SHAPES", "VARIANCE", "colours", "fills", "legend"]

VARIANCE, OBSERVATIONS, STATE, LAST = "predicted variance", "observations", "evidence state", "last step"
COLOURS = (VARIANCE, OBSERVATIONS, STATE, LAST)
"""What nodes can be coloured by."""
NOT_KNOWN = "#9AA1AB"
CIVIDIS = (
    *("#00224e", "#083370", "#35456c", "#4f576c", "#666970", "#7d7c78"),
    *("#948e77", "#aea371", "#c8b866", "#e5cf52", "#fee838"),
)
"""Eleven even steps of the cividis scale."""
GROUP_STEPS = (1, 2, 3, 5, 9, 17)
"""From how many observed groups a colour begins; the last has no end."""
STATE_COLOURS = dict(zip(STATES, (GREY, PURPLE, GREEN, BLUE), strict=True))
STATE_SHAPES = dict(zip(STATES, ("dot", "triangle", "diamond", "star"), strict=True))
"""Where nodes are coloured by state, it is told by their form too."""


def colours(values: NDArray[np.float64], low: float, high: float) -> list[str]:
    """A cividis colour per value in [`low`, `high`]; grey where it is not known."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in CIVIDIS], dtype=float)
    place = np.clip((np.nan_to_num(values) - low) / max(high - low, 1e-12), 0.0, 1.0) * (len(stops) - 1)
    first = np.minimum(place.astype(int), len(stops) - 2)
    mixed = stops[first] + (stops[first + 1] - stops[first]) * (place - first)[:, None]
    texts = [f"#{int(r):02x}{int(g):02x}{int(b):02x}" for r, g, b in mixed.round()]
    return [NOT_KNOWN if np.isnan(v) else text for v, text in zip(values, texts, strict=True)]


def _group_colours() -> list[str]:
    return colours(np.linspace(0.0, 1.0, len(GROUP_STEPS)), 0.0, 1.0)


def fills(nodes: pd.DataFrame, color: str, steps: tuple[int, int]) -> list[str]:
    """The colour of every node by its column variance, groups, state or last_step; `steps` are the run's ends."""
    if color == STATE:
        return [STATE_COLOURS.get(state, NOT_KNOWN) for state in nodes["state"].to_numpy(dtype=object)]
    if color == OBSERVATIONS:
        scale = [NOT_KNOWN, *_group_colours()]
        return [scale[i] for i in np.searchsorted(GROUP_STEPS, nodes["groups"].to_numpy(), side="right")]
    column, low, high = ("last_step", *steps) if color == LAST else ("variance", 0.0, 0.25)
    return colours(nodes[column].to_numpy(dtype=float, na_value=np.nan), low, high)


def legend(color: str, steps: tuple[int, int], *, environments: bool = False) -> str:
    """The legend as HTML; a fixed text of ours with numbers in it."""
    bar = f"linear-gradient(90deg, {', '.join(CIVIDIS)})"
    mean = "mean " if environments else ""
    if color == STATE:
        items = [_swatch(STATE_COLOURS[state], f"{_SIGNS[STATE_SHAPES[state]]} {state}") for state in STATES]
        items.append(_swatch(NOT_KNOWN, "not on record"))
    elif color == OBSERVATIONS:
        ends = [*(b - 1 for b in GROUP_STEPS[1:]), None]
        said = [f"{a}" if a == b else f"{a} to {b}" if b else f"{a} or more" for a, b in zip(GROUP_STEPS, ends)]  # noqa: B905
        items = [_swatch(NOT_KNOWN, "no group yet")]
        items += [_swatch(colour, text) for colour, text in zip(_group_colours(), said, strict=True)]
        items.append("groups observed before the step")
    elif color == LAST:
        items = [f"last observed at step {steps[0]} {_bar(bar)} {steps[1]}", _swatch(NOT_KNOWN, "never")]
    else:
        items = [f"{mean}predicted variance 0 {_bar(bar)} 0.25", _swatch(NOT_KNOWN, "not on record")]
    items += _marks(environments=environments)
    spans = "".join(f"<span>{item}</span>" for item in items)
    style = "display:flex;gap:.35rem 1.1rem;align-items:center;font-size:.82rem;flex-wrap:wrap"
    return f'<div style="{style}">{spans}</div>'


_SIGNS = {"dot": "●", "triangle": "▲", "diamond": "◆", "star": "★"}


def _bar(fill: str) -> str:
    style = "display:inline-block;width:110px;height:12px;vertical-align:middle;border-radius:3px"
    return f'<b style="{style};background:{fill}"></b>'


def _swatch(colour: str, text: str) -> str:
    style = "display:inline-block;width:12px;height:12px;vertical-align:middle;border-radius:3px"
    return f'<b style="{style};background:{colour}"></b> {text}'


def _marks(*, environments: bool) -> list[str]:
    def line(colour: str, kind: str) -> str:
        style = f"display:inline-block;width:30px;border-top:3px {kind} {colour};vertical-align:middle"
        return f'<b style="{style}"></b>'

    def ring(colour: str) -> str:
        style = f"display:inline-block;width:12px;height:12px;border-radius:50%;border:3px solid {colour}"
        return f'<b style="{style};vertical-align:middle"></b>'

    if environments:
        return [
            f"{line(VERMILION, 'dashed')} cross edges between their tasks, wider = more",
            f"{ring(BLUE)} picked from at this step", "size: number of tasks",
        ]  # fmt: skip
    return [
        f"{line(GREY, 'solid')} within the environment", f"{line(VERMILION, 'dashed')} across environments",
        f"{line(GREEN, 'solid')} evidence into the chosen task, with its share of the prediction "
        "(dashed: from another environment)",
        f"{ring(BLUE)} picked at this step", f"{ring(VERMILION)} chosen", f"{ring(AMBER)} found",
    ]  # fmt: skip
