"""How the command line prints: tables for people, JSON for programs, one look for all commands.

Data goes to standard output, everything else to standard error, so that pipes stay clean. Colours
appear on terminals only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from windlass.core.durations import describe_ms
from windlass.core.states import State

#: One colour per state, everywhere.
STATE_STYLES = {
    State.WAITING: "dim",
    State.SCHEDULED: "cyan",
    State.READY: "blue",
    State.RUNNING: "yellow",
    State.RETRYING: "magenta",
    State.SUCCEEDED: "green",
    State.DEAD: "red",
    State.CANCELLED: "dim",
}


def console() -> Console:
    """Made anew for every use, because tests and pipes replace standard output."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A sentence for people, beside the data."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """One JSON document; text that is not ASCII stays readable."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    click.echo(msgspec.json.format(encoded, indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console().print(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values of one thing, one a line; what is not known is left out."""
    known = [(name, value) for name, value in fields if value not in (None, "")]
    width = max((len(name) for name, _ in known), default=0)
    out = console()
    for name, value in known:
        lines = str(_cell(value)).splitlines() or [""]
        out.print(f"[bold]{name.ljust(width)}[/]  {lines[0]}")
        for line in lines[1:]:
            out.print(f"{' ' * width}  {line}")


def printable(text: str) -> str:
    """Stored text that cannot move the cursor, colour the terminal or forge a line."""
    return "".join(
        char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text
    )


def age(instant: datetime | None) -> str:
    """How long ago, or how far ahead, in the two largest units."""
    if instant is None:
        return ""
    distance_ms = int((datetime.now(UTC) - instant).total_seconds() * 1000)
    rounded = describe_ms(_rounded(abs(distance_ms)))
    return f"in {rounded}" if distance_ms < 0 else f"{rounded} ago"


def _rounded(ms: int) -> int:
    for unit in (3_600_000, 60_000, 1_000):
        if ms >= unit * 10:
            return ms // unit * unit
    return ms


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, State):
        return f"[{STATE_STYLES[value]}]{value}[/]"
    if isinstance(value, datetime):
        return f"{value.astimezone().isoformat(sep=' ', timespec='milliseconds')} ({age(value)})"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(printable(str(value)))
