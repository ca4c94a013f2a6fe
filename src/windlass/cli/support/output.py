"""The output of commands: tables for people, JSON for programs.

Data goes to standard output, everything else to standard error, so that pipes stay clean. Colours
appear on terminals only. Stored text is untrusted: it is never interpreted as markup, and control
characters are escaped.

rich is imported on use: it takes longer to load than most commands take to run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from windlass.cli.support.wording import age
from windlass.core.states import State
from windlass.engine.contract import Grade

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

#: One colour per state, in all commands.
STATE_STYLES: Final = {
    State.WAITING: "dim",
    State.SCHEDULED: "cyan",
    State.READY: "blue",
    State.RUNNING: "yellow",
    State.RETRYING: "magenta",
    State.SUCCEEDED: "green",
    State.DEAD: "red",
    State.CANCELLED: "dim",
}
GRADE_STYLES: Final = {Grade.OK: "green", Grade.ADVICE: "yellow", Grade.PROBLEM: "bold red"}
#: The smallest width of the last column, which is wrapped on a terminal.
_LEAST_WIDTH: Final = 24
#: Between two columns.
_GAP: Final = 2


def console() -> Console:
    """A new console for every use, because tests and pipes replace standard output."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def is_on_terminal(out: Console) -> bool:
    """Whether lines must fit a terminal. The console itself also says yes when colours are
    forced."""
    return out.file.isatty()


def tell(text: str, *, err: bool = False) -> None:
    """Print a line of data."""
    click.echo(printable(text), err=err)


def say(text: str) -> None:
    """Print a message to standard error."""
    tell(text, err=True)


def print_json(value: Any) -> None:
    """Print one JSON document; non-ASCII text stays readable."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    text = msgspec.json.format(encoded, indent=2).decode()
    click.echo("".join(char if _is_harmless(char) else _escaped(char) for char in text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a line for each row; a column name with the prefix `>` is for numbers.

    Nothing is ever cut. On a terminal the last column is wrapped if that makes the rest fit."""
    from rich.table import Table

    cells = [[_one_line(value) for value in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        justify: Any = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=justify, no_wrap=True)
    table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
    for row in cells:
        table.add_row(*row)
    out = console()
    table.width = _width(out, columns, cells)
    print_trimmed(out, table)


def _width(out: Console, columns: Sequence[str], cells: Sequence[Sequence[Text]]) -> int:
    from rich.text import Text

    names = [Text(column.lstrip(">")) for column in columns]
    widths: list[int] = [
        max(cell.cell_len for cell in column) for column in zip(names, *cells, strict=True)
    ]
    natural = sum(widths) + _GAP * (len(widths) - 1)
    if not is_on_terminal(out):
        return natural
    least = natural - widths[-1] + min(widths[-1], _LEAST_WIDTH)
    return min(natural, max(out.width, least))


def print_trimmed(out: Console, table: RenderableType) -> None:
    """Print without the trailing blanks of the last column."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=out.is_terminal)


def print_fields(fields: Iterable[tuple[str, object]], now: datetime | None = None) -> None:
    """Print names and values, one per line, without empty ones. Ages are relative to `now`."""
    from rich.text import Text

    known = [(name, value) for name, value in fields if value not in (None, "")]
    width = max((len(name) for name, _ in known), default=0)
    out, now = console(), now or datetime.now(UTC)
    for name, value in known:
        first, *others = _cell(value, now).split("\n") or [Text()]
        out.print(Text.assemble((name.ljust(width), "bold"), "  ", first))
        for line in others:
            out.print(Text.assemble(" " * width, "  ", line))


@contextmanager
def progress(doing: str) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal, and nothing elsewhere. For actions that print no lines."""
    from rich.console import Console
    from rich.progress import Progress

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda _number: None
        return
    with Progress(transient=True, console=screen) as bar:
        going = bar.add_task(doing, total=None)
        yield lambda number: bar.advance(going, number)


# ------------------------------------------------------------------------------------------ values


def printable(text: str) -> str:
    """Escape stored text, so that it cannot move the cursor, colour the terminal or forge a
    line."""
    return "".join(
        char if _is_harmless(char) else char.encode("unicode_escape").decode() for char in text
    )


def _is_harmless(char: str) -> bool:
    return char == "\n" or char.isprintable()


def _escaped(char: str) -> str:
    """A character as a JSON escape; one beyond 16 bits takes two."""
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _one_line(value: object) -> Text:
    from rich.text import Text

    cell = _cell(value)
    return Text("\\n").join(cell.split("\n")) if "\n" in cell.plain else cell


def _cell(value: object, now: datetime | None = None) -> Text:
    from rich.text import Text

    if value is None:
        return Text()
    if isinstance(value, State):
        return Text(str(value), style=STATE_STYLES[value])
    if isinstance(value, Grade):
        return Text(str(value), style=GRADE_STYLES[value])
    if isinstance(value, datetime):
        shown = value.astimezone().isoformat(sep=" ", timespec="milliseconds")
        return Text(f"{shown} ({age(value, now)})")
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}")
    return Text(printable(str(value)))
