"""Line charts as SVG, with a logarithmic x axis, on a white ground for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 720
_HEIGHT: Final = 340
_LEFT: Final = 76
_RIGHT: Final = 190
_TOP: Final = 44
_BOTTOM: Final = 44
_COLOURS: Final = ("#0284c7", "#dc2626", "#16a34a", "#9333ea", "#d97706", "#475569")
_STYLE: Final = """  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2937; }
    .title { font-size: 15px; font-weight: 600; }
    .note { font-size: 12px; fill: #4b5563; }
    .grid { stroke: #e2e8f0; stroke-width: 1; }
    .line { fill: none; stroke-width: 2; }
  </style>"""

Series = Mapping[str, Sequence[tuple[float, float]]]


def draw(title: str, unit: str, series: Series) -> str:
    """Draw lines of (size, value) under their names."""
    points = [point for line in series.values() for point in line]
    low = math.log10(min(x for x, _ in points))
    high = max(math.log10(max(x for x, _ in points)), low + 1)
    top = nice_ceiling(max(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        across = (math.log10(x) - low) / (high - low)
        return round(_LEFT + across * wide, 1), round(_HEIGHT - _BOTTOM - y / top * tall, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">',
        _STYLE,
        f'  <rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'  <text class="title" x="16" y="26">{escape(title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        x, y = at(10**low, value)
        parts.append(f'  <path class="grid" d="M{x},{y} H{_WIDTH - _RIGHT}"/>')
        parts.append(
            f'  <text class="note" x="{x - 8}" y="{y + 4}" text-anchor="end">{short(value)}</text>'
        )
    for power in range(math.ceil(low), math.floor(high) + 1):
        x, y = at(10**power, 0)
        parts.append(
            f'  <text class="note" x="{x}" y="{y + 20}" text-anchor="middle">'
            f"{short(10**power)}</text>"
        )
    parts.append(f'  <text class="note" x="16" y="{_HEIGHT - 8}">{escape(unit)}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [at(*point) for point in sorted(line)]
        path = " L".join(f"{x},{y}" for x, y in places)
        parts.append(f'  <path class="line" stroke="{colour}" d="M{path}"/>')
        parts += [f'  <circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        y = _TOP + 18 * number
        parts.append(f'  <circle cx="{_WIDTH - _RIGHT + 20}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'  <text x="{_WIDTH - _RIGHT + 30}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def nice_ceiling(value: float) -> float:
    """Return the next round number: 1, 2, 4 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(factor * power for factor in (1, 2, 4, 8, 10) if factor * power >= value)


def short(value: float) -> str:
    """Write a number for an axis: 1 k, 2.5 M."""
    for least, letter in ((1e6, " M"), (1e3, " k")):
        if value >= least:
            return f"{value / least:g}{letter}"
    return f"{value:g}"
