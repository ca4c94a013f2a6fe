"""Draw docs/_static/architecture.svg: `python tools/draw_architecture.py`.

The picture has three columns: producers, the engine, and a worker with its processes. A test
compares the file with what this module draws.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

TARGET = Path(__file__).parent.parent / "docs" / "_static" / "architecture.svg"
WIDTH, HEIGHT = 860, 340
STYLE = """
    text { font: 14px system-ui, sans-serif; fill: #1f2937; }
    .title { font-weight: 600; }
    .note { font-size: 12px; fill: #4b5563; }
    .box { fill: #ffffff; stroke: #94a3b8; stroke-width: 1.5; }
    .group { fill: #f1f5f9; stroke: #cbd5e1; stroke-width: 1.5; }
    .engine { fill: #e0f2fe; stroke: #0284c7; stroke-width: 1.5; }
    .arrow { stroke: #475569; stroke-width: 1.5; fill: none; marker-end: url(#head); }
    .both { marker-start: url(#tail); }
"""
MARKERS = """<marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">
      <path d="M0,0 L8,4 L0,8 z" fill="#475569"/>
    </marker>
    <marker id="tail" markerWidth="9" markerHeight="9" refX="0" refY="4" orient="auto">
      <path d="M8,0 L0,4 L8,8 z" fill="#475569"/>
    </marker>"""


def box(kind: str, x: int, y: int, width: int, height: int, *lines: str) -> list[str]:
    """A rectangle with a title and notes below it."""
    parts = [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>']
    for number, line in enumerate(lines):
        style = "note" if number else "title"
        place = f'x="{x + 12}" y="{y + 24 + 18 * number}"'
        parts.append(f'<text class="{style}" {place}>{escape(line)}</text>')
    return parts


def arrow(x: int, y: int, to_x: int, to_y: int, text: str, *, both: bool = False) -> list[str]:
    kind = "arrow both" if both else "arrow"
    label = f'x="{(x + to_x) // 2}" y="{(y + to_y) // 2 - 8}" text-anchor="middle"'
    return [
        f'<path class="{kind}" d="M{x},{y} L{to_x},{to_y}"/>',
        f'<text class="note" {label}>{escape(text)}</text>',
    ]


def draw() -> str:
    parts = [
        *box("box", 16, 60, 176, 82, "Your program", "task.enqueue(...)", "job.result()"),
        *box(
            "box",
            16,
            190,
            176,
            82,
            "windlass commands",
            "status, top, dead, queue,",
            "doctor, check",
        ),
        *box("engine", 300, 60, 170, 212, "Engine", "SQLite file", "Redis or Valkey"),
        *(
            f'<text class="note" x="312" y="{y}">{text}</text>'
            for y, text in (
                (150, "jobs, results, retries,"),
                (168, "schedules, dead letters,"),
                (186, "leases, fencing tokens"),
            )
        ),
        *box("group", 580, 16, 264, 308, "Worker"),
        *box(
            "box",
            596,
            54,
            232,
            88,
            "Supervisor process",
            "heartbeat, waiter, maintenance,",
            "never imports your code",
        ),
        *box(
            "box",
            596,
            190,
            232,
            118,
            "Child processes",
            "fetch: claim and report",
            "run: threads for functions,",
            "an event loop for coroutines",
        ),
        *arrow(192, 100, 300, 100, "put, wake", both=False),
        *arrow(192, 230, 300, 230, "read, change", both=False),
        *arrow(470, 100, 596, 100, "beats, wake-ups", both=True),
        *arrow(470, 240, 596, 240, "claim, finish", both=True),
        *arrow(712, 142, 712, 190, "", both=True),
    ]
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Producers put jobs into an engine; a worker claims and runs them.">\n'
        f"  <style>{STYLE}  </style>\n  <defs>\n    {MARKERS}\n  </defs>\n"
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n  {body}\n</svg>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET.name}\n")
