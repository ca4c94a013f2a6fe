"""Draw bar charts as SVG: one bar per system, best first, with the range of all rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

import msgspec

from benchmarks.page import shown

WIDTH: Final = 860
_ROW: Final = 26
_TOP: Final = 52
_LABELS: Final = 210
_VALUES: Final = 110
_STYLE: Final = """
    text { font: 14px system-ui, sans-serif; fill: #1f2937; }
    .title { font-weight: 600; }
    .note { font-size: 12px; fill: #4b5563; }
    .ours { fill: #0284c7; }
    .bar { fill: #cbd5e1; }
    .range { stroke: #475569; stroke-width: 1.5; }
"""


class Bar(msgspec.Struct, frozen=True):
    """A system in a chart: its median and its range."""

    label: str
    value: float
    least: float
    most: float
    is_ours: bool


def draw(title: str, note: str, bars: Sequence[Bar]) -> str:
    """A chart with linear lengths from zero."""
    height = _TOP + _ROW * len(bars) + 12
    largest = max((bar.most for bar in bars), default=0) or 1
    scale = (WIDTH - _LABELS - _VALUES) / largest
    rows = [part for number, bar in enumerate(bars) for part in _row(number, bar, scale)]
    body = "\n  ".join([*_heading(title, note), *rows])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">\n  <style>{_STYLE}  </style>\n'
        f'  <rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n  {body}\n</svg>\n'
    )


def _heading(title: str, note: str) -> list[str]:
    return [
        f'<text class="title" x="16" y="24">{escape(title)}</text>',
        f'<text class="note" x="16" y="42">{escape(note)}</text>',
    ]


def _row(number: int, bar: Bar, scale: float) -> list[str]:
    y = _TOP + _ROW * number
    middle = y + 10
    weight = "title" if bar.is_ours else "label"
    least, most = _LABELS + bar.least * scale, _LABELS + bar.most * scale
    label = f'x="{_LABELS - 10}" y="{y + 15}" text-anchor="end"'
    size = f'width="{max(bar.value * scale, 1):.1f}" height="18"'
    return [
        f'<text class="{weight}" {label}>{escape(bar.label)}</text>',
        f'<rect class="{"ours" if bar.is_ours else "bar"}" x="{_LABELS}" y="{y + 1}" {size}/>',
        f'<path class="range" d="M{least:.1f},{middle} L{most:.1f},{middle}"/>',
        f'<text class="note" x="{most + 8:.1f}" y="{y + 15}">{shown(bar.value)}</text>',
    ]
