"""Draw docs/_static/trace.svg: `python tools/draw_trace.py`, or with `--run` from a new run.

1. `--run` starts a real worker with the app in `traced_shop.py`, places an order, and saves the
   spans in `tools/trace_spans.json`: names, parents, links, and times in milliseconds.
2. The picture has a row for each span, below its parent, with a bar for its time. A dashed arrow is
   a link.

A test compares the picture with what this module draws, and the saved spans with those of a new
run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import msgspec

PROJECT = Path(__file__).parent.parent
SPANS = Path(__file__).parent / "trace_spans.json"
TARGET = PROJECT / "docs" / "_static" / "trace.svg"
#: How long a run may take, in seconds, and how many spans it has.
PATIENCE_S = 30.0
COUNT = 9

WIDTH, ROW, TOP, BARS, MARGIN = 860, 34, 40, 330, 16
STYLE = """
    text { font: 14px system-ui, sans-serif; fill: #1f2937; }
    .note { font-size: 12px; fill: #4b5563; }
    .grid { stroke: #e2e8f0; stroke-width: 1; }
    .branch { stroke: #94a3b8; stroke-width: 1.5; fill: none; }
    .internal, .server { fill: #e2e8f0; stroke: #94a3b8; }
    .producer { fill: #e0f2fe; stroke: #0284c7; }
    .consumer { fill: #dcfce7; stroke: #16a34a; }
    .failed { fill: #fee2e2; stroke: #dc2626; }
    .link { stroke: #7c3aed; stroke-width: 1.5; fill: none; stroke-dasharray: 5 4;
      marker-end: url(#head); }
"""
MARKER = """<marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">
      <path d="M0,0 L8,4 L0,8 z" fill="#7c3aed"/>
    </marker>"""


class SpanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Parent and links are positions in the list of spans."""

    name: str
    kind: str
    parent: int | None
    links: list[int]
    start_ms: int
    end_ms: int
    is_failed: bool
    note: str  # the attempt and the type of its error


# ------------------------------------------------------------------------------------- the real run


def collect() -> list[SpanRow]:
    """Run the app with a real worker, and return its spans by their start."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spans.jsonl"
        environment = {
            **os.environ,
            "WINDLASS_URL": f"sqlite:///{folder}/jobs.db",
            "TRACED_SHOP_SPANS": str(file),
        }
        command = [sys.executable, "-m", "windlass", "worker", "tools.traced_shop:app", "-p", "1"]
        worker = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            _await_ready(worker)
            subprocess.run(
                [sys.executable, "-m", "tools.traced_shop"],
                cwd=PROJECT,
                env=environment,
                check=True,
            )
            _await_spans(file)
        finally:
            worker.terminate()
            worker.communicate(timeout=PATIENCE_S)
        return to_rows([json.loads(line) for line in file.read_text("utf-8").splitlines()])


def _await_ready(worker: subprocess.Popen[str]) -> None:
    assert worker.stderr is not None
    for line in worker.stderr:
        if " ready: " in line:
            return
    raise RuntimeError(f"the worker ended with {worker.wait()} before it was ready")


def _await_spans(file: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not file.exists() or len(file.read_text("utf-8").splitlines()) < COUNT:
        if time.monotonic() > end:
            raise TimeoutError(f"expected {COUNT} spans within {PATIENCE_S:g} s in {file}")
        time.sleep(0.02)


def to_rows(spans: Sequence[dict[str, Any]]) -> list[SpanRow]:
    """Spans as OpenTelemetry writes them, by their start, with positions instead of ids. Of two
    that start at once, the one that ends later is the parent."""
    by_end = sorted(spans, key=lambda span: str(span["end_time"]), reverse=True)
    ordered = sorted(by_end, key=lambda span: str(span["start_time"]))
    positions = {span["context"]["span_id"]: number for number, span in enumerate(ordered)}
    zero = _ms(ordered[0]["start_time"])
    return [
        SpanRow(
            name=span["name"],
            kind=span["kind"].rpartition(".")[2].lower(),
            parent=positions.get(span["parent_id"]),
            links=[positions[link["context"]["span_id"]] for link in span["links"]],
            start_ms=_ms(span["start_time"]) - zero,
            end_ms=_ms(span["end_time"]) - zero,
            is_failed=span["status"]["status_code"] == "ERROR",
            note=_note_of(span["attributes"]),
        )
        for span in ordered
    ]


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _note_of(attributes: dict[str, Any]) -> str:
    attempt = attributes.get("windlass.attempt")
    parts = ["" if attempt is None else f"attempt {attempt}", attributes.get("error.type", "")]
    return ", ".join(filter(None, parts))


def shape(rows: Sequence[SpanRow]) -> list[tuple[object, ...]]:
    """Everything but the times."""
    return [(row.name, row.kind, row.parent, row.links, row.is_failed, row.note) for row in rows]


# ------------------------------------------------------------------------------------- the picture


def draw(rows: Sequence[SpanRow]) -> str:
    order = list(_by_tree(rows, None, 0))
    line = {number: at for at, (number, _) in enumerate(order)}
    height = TOP + ROW * len(rows) + MARGIN
    longest = max(row.end_ms for row in rows)
    parts = [*_grid(longest, height)]
    for at, (number, depth) in enumerate(order):
        row = rows[number]
        parts += _branch(at, depth, None if row.parent is None else line[row.parent])
        parts += _bar(row, at, depth, longest)
    for number, row in enumerate(rows):
        parts += [_link(rows[to], line[to], row, line[number], longest) for to in row.links]
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"  <title>The spans of an order, its enqueue, two attempts, and a second job</title>\n"
        f"  <style>{STYLE}  </style>\n  <defs>{MARKER}</defs>\n"
        f'  <rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n  {body}\n</svg>\n'
    )


def _by_tree(rows: Sequence[SpanRow], parent: int | None, depth: int) -> Iterator[tuple[int, int]]:
    for number, row in enumerate(rows):
        if row.parent == parent:
            yield number, depth
            yield from _by_tree(rows, number, depth + 1)


def _x(at_ms: int, longest: int) -> int:
    return BARS + round((WIDTH - 2 * MARGIN - BARS) * at_ms / longest)


def _grid(longest: int, height: int) -> Iterator[str]:
    for at_ms in range(0, longest + 1, 100):
        x = _x(at_ms, longest)
        yield f'<path class="grid" d="M{x},{TOP - 8} V{height - MARGIN}"/>'
        yield f'<text class="note" x="{x}" y="{TOP - 16}" text-anchor="middle">{at_ms} ms</text>'


def _branch(at: int, depth: int, parent: int | None) -> list[str]:
    if parent is None:
        return []
    x, y, from_y = MARGIN + 18 * depth - 10, TOP + ROW * at + 12, TOP + ROW * parent + 22
    return [f'<path class="branch" d="M{x},{from_y} V{y} H{x + 8}"/>']


def _bar(row: SpanRow, at: int, depth: int, longest: int) -> list[str]:
    y, x = TOP + ROW * at, _x(row.start_ms, longest)
    width = max(4, _x(row.end_ms, longest) - x)
    kind = "failed" if row.is_failed else row.kind
    is_right = x + width + 8 * len(row.note) < WIDTH
    side = f'x="{x + width + 6}"' if is_right else f'x="{x - 6}" text-anchor="end"'
    label = f'<text x="{MARGIN + 18 * depth}" y="{y + 17}">{escape(row.name)}</text>'
    bar = f'<rect class="{kind}" x="{x}" y="{y + 3}" width="{width}" height="18" rx="4"/>'
    note = f'<text class="note" {side} y="{y + 17}">{escape(row.note)}</text>'
    return [label, bar, *([note] if row.note else [])]


def _link(to: SpanRow, to_at: int, row: SpanRow, at: int, longest: int) -> str:
    x, y = _x(row.start_ms, longest), TOP + ROW * at + 12
    to_x, to_y = _x(to.end_ms, longest), TOP + ROW * to_at + 24
    bend = f"C{x - 50},{y} {to_x - 10},{to_y + 40} {to_x - 10},{to_y}"
    word = f'<text class="note" x="{(x + to_x) // 2 + 20}" y="{y - 14}">link</text>'
    return f'<path class="link" d="M{x},{y} {bend}"/>{word}'


def load() -> list[SpanRow]:
    return msgspec.json.decode(SPANS.read_bytes(), type=list[SpanRow])


def main() -> None:
    if "--run" in sys.argv[1:]:
        data = msgspec.json.format(msgspec.json.encode(collect()), indent=2)
        SPANS.write_bytes(data + b"\n")
    TARGET.write_text(draw(load()), encoding="utf-8")


if __name__ == "__main__":
    main()
