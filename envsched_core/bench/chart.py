"""Learning curves as one SVG file: lines with their intervals, a legend, nothing to load and nothing to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Point", "curves_svg", "ticks"]

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 64, 210, 48, 52
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#a6761d")
"""Okabe and Ito's, which colour-blind people tell apart; dashes tell them apart without colour."""
DASHES = ("", "7 3", "2 2", "9 3 2 3", "4 4", "12 4", "1 3", "6 2 1 2")


class Point(NamedTuple):
    """One point of a curve and its interval."""

    x: float
    y: float
    low: float
    high: float


class _Frame(NamedTuple):
    """Data coordinates -> pixels."""

    right: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * value / self.right, 1)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)


def curves_svg(curves: Mapping[str, Sequence[Point]], *, title: str, x_label: str, y_label: str) -> str:
    """All curves by name; finite points only, x >= 0."""
    points = [point for curve in curves.values() for point in curve]
    low, high = min(p.low for p in points), max(p.high for p in points)
    margin = max(0.05 * (high - low), 0.005)
    frame = _Frame(max(max(p.x for p in points), 1.0), low - margin, high + margin)
    ends = "; ".join(f"{name} {curve[-1].y:.3f}" for name, curve in curves.items() if curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title><desc>{escape(f'{y_label} by {x_label}; at the end: {ends}')}</desc>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="26" font-size="15" fill="#222222">{escape(title)}</text>',
        *_axes(frame, x_label, y_label),
    ]
    styles = [_style(i) for i in range(len(curves))]
    apart = min(20.0, (HEIGHT - TOP) / max(len(curves), 1))
    drawn = [(name, curve, *style) for (name, curve), style in zip(curves.items(), styles, strict=True)]
    parts += [_band(frame, curve, colour) for _, curve, colour, _ in drawn]
    parts += [_line(frame, curve, colour, dash) for _, curve, colour, dash in drawn]
    parts += [_key(TOP + 10 + apart * i, name, colour, dash) for i, (name, _, colour, dash) in enumerate(drawn)]
    return "\n".join([*parts, "</svg>", ""])


def ticks(low: float, high: float) -> list[float]:
    """About six round numbers in an interval."""
    rough = (high - low) / 6
    scale = 10.0 ** (len(f"{int(rough)}") - 1) if rough >= 1 else 1.0
    while scale > rough:
        scale /= 10
    step = next(scale * m for m in (1, 2, 5, 10) if scale * m >= rough)
    first = int(low // step) + (low % step > 0)
    return [round(k * step, 10) for k in range(first, int(high // step) + 1)]


def _axes(frame: _Frame, x_label: str, y_label: str) -> list[str]:
    base, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in ticks(frame.bottom, frame.top):
        y = frame.y(value)
        parts.append(f'<line x1="{LEFT}" x2="{end}" y1="{y}" y2="{y}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444444">{value:g}</text>')
    for value in ticks(0.0, frame.right):
        parts.append(f'<text x="{frame.x(value)}" y="{base + 18}" text-anchor="middle" fill="#444444">{value:g}</text>')
    middle = (TOP + base) / 2
    parts.append(f'<line x1="{LEFT}" x2="{end}" y1="{base}" y2="{base}" stroke="#444444"/>')
    parts.append(f'<text x="{(LEFT + end) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="rotate(-90 16 {middle})"'
    parts.append(f'<text x="16" y="{middle}" text-anchor="middle" {turned}>{escape(y_label)}</text>')
    return parts


def _band(frame: _Frame, curve: Sequence[Point], colour: str) -> str:
    there = [f"{frame.x(p.x)},{frame.y(p.high)}" for p in curve]
    back = [f"{frame.x(p.x)},{frame.y(p.low)}" for p in reversed(curve)]
    return f'<polygon points="{" ".join(there + back)}" fill="{colour}" fill-opacity="0.10"/>'


def _line(frame: _Frame, curve: Sequence[Point], colour: str, dash: str) -> str:
    points = " ".join(f"{frame.x(p.x)},{frame.y(p.y)}" for p in curve)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'


def _style(place: int) -> tuple[str, str]:
    """Colour and dashes; 64 curves differ in one of them."""
    return COLOURS[place % len(COLOURS)], DASHES[(place + place // len(COLOURS)) % len(DASHES)]


def _key(y: float, name: str, colour: str, dash: str) -> str:
    x, y = WIDTH - RIGHT + 16, round(y, 1)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    line = f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"{dashed}/>'
    return f'{line}<text x="{x + 34}" y="{y + 4}" fill="#222222">{escape(name)}</text>'
