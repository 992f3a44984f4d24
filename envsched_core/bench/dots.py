"""Scores with their intervals as one SVG file: a row each, a dot, a line for the interval; nothing to load or run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

from envsched_core.evaluate import Interval

from .chart import ticks

__all__ = ["dots_svg"]

WIDTH, ROW = 860, 24
LEFT, RIGHT, TOP, BOTTOM = 220, 90, 48, 52


def dots_svg(rows: Mapping[str, Interval], *, title: str, x_label: str, marked: str) -> str:
    """All rows by name, top to bottom; a dashed line stands at the score of the row `marked`, if it is there.

    Rows without a finite score are named and left empty.
    """
    known = [one for one in rows.values() if one.mean == one.mean]  # NaN differs from itself
    ends = [end for one in known for end in one if end == end] or [0.0, 1.0]
    margin = max(0.05 * (max(ends) - min(ends)), 0.005)
    low, high = min(ends) - margin, max(ends) + margin
    bottom = TOP + ROW * len(rows)

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low), 1)

    told = "; ".join(f"{name} {one.mean:.3f}" for name, one in rows.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + BOTTOM}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title><desc>{escape(f'{x_label}: {told}')}</desc>",
        f'<rect width="{WIDTH}" height="{bottom + BOTTOM}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="15" fill="#222222">{escape(title)}</text>',
    ]
    for tick in ticks(low, high):
        parts.append(f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{TOP}" y2="{bottom}" stroke="#e6e6e6"/>')
        parts.append(f'<text x="{x(tick)}" y="{bottom + 18}" text-anchor="middle" fill="#444444">{tick:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle" fill="#222222">{escape(x_label)}</text>')
    if marked in rows and rows[marked] in known:
        place = x(rows[marked].mean)
        parts.append(
            f'<line x1="{place}" x2="{place}" y1="{TOP}" y2="{bottom}" stroke="#555555" stroke-dasharray="4 4"/>'
        )
    for place, (name, one) in enumerate(rows.items()):
        y = TOP + ROW * place + ROW / 2
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end" fill="#222222">{escape(name)}</text>')
        if one in known:
            parts += _dot(x, one, y, "#d55e00" if name == "envsched" else "#0072b2")
    return "\n".join([*parts, "</svg>", ""])


def _dot(x: Callable[[float], float], one: Interval, y: float, colour: str) -> list[str]:
    """The interval, if it has one, the dot, and the number beside it."""
    line = f'x1="{x(one.low)}" x2="{x(one.high)}" y1="{y}" y2="{y}"' if one.low == one.low else ""
    return [
        *([f'<line {line} stroke="{colour}" stroke-width="2"/>'] if line else []),
        f'<circle cx="{x(one.mean)}" cy="{y}" r="4" fill="{colour}"/>',
        f'<text x="{WIDTH - RIGHT + 16}" y="{y + 4}" fill="#222222">{one.mean:.3f}</text>',
    ]
