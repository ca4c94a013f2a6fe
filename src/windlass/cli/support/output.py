"""The output of commands: tables for people, JSON for programs, and exit codes.

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
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from windlass.cli.support.wording import age, clock
from windlass.core.states import State
from windlass.engine.contract import Grade
from windlass.errors import (
    AnnotationError,
    AppNotFound,
    EncodeError,
    EngineUnavailable,
    IncludeFailed,
    InvalidTask,
    SettingError,
    WindlassError,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

FAILED: Final = 1
USAGE: Final = 2
ENGINE_AWAY: Final = 3
USAGE_ERRORS: Final = (
    *(AnnotationError, AppNotFound, EncodeError, IncludeFailed, InvalidTask, SettingError),
)
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
#: The smallest width of the last column, where long text is wrapped on a terminal.
_LEAST_WIDTH: Final = 24
#: The number of blanks between two columns.
_GAP: Final = 2


def console() -> Console:
    """Create a console for one use, because tests and pipes replace standard output."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def is_on_terminal(out: Console) -> bool:
    """Return whether lines must fit a terminal. `Console.is_terminal` is also true when colours are
    forced."""
    return out.file.isatty()


def tell(text: str, *, err: bool = False) -> None:
    """Print a line of data."""
    click.echo(printable(text), err=err)


def say(text: str) -> None:
    """Print a message to standard error."""
    tell(text, err=True)


def exit_code_for(error: WindlassError) -> int:
    if isinstance(error, EngineUnavailable):
        return ENGINE_AWAY
    return USAGE if isinstance(error, USAGE_ERRORS) else FAILED


def ask(question: str, refusal: str) -> None:
    """Ask for a confirmation. On a no, or without a terminal, fail with the text `refusal`."""
    try:
        agreed = click.confirm(printable(question), err=True)
    except click.Abort:  # no terminal
        agreed = False
        click.echo(err=True)
    if not agreed:
        raise click.ClickException(refusal)


def report(value: Any, sentence: str, as_json: bool, *, err: bool = False) -> None:
    """Print the outcome of a command: the value as JSON, or the sentence."""
    if as_json:
        print_json(value)
    else:
        tell(sentence, err=err)


def print_list(
    found: Sequence[T],
    describe: Callable[[Sequence[T]], Any],
    columns: Sequence[str],
    row: Callable[[T], Sequence[object]],
    *,
    none: str,
    as_json: bool,
    limit: int | None = None,
) -> None:
    """Print a list, as the JSON of `describe` or as a table. Say if there are more than `limit`."""
    shown = found[:limit]
    if as_json:
        print_json(describe(shown))
    elif shown:
        print_table(columns, map(row, shown))
    else:
        say(none)
    if limit is not None and len(found) > limit:
        these = "this one" if limit == 1 else f"these {limit:,}"
        say(f"There are more than {these}: give a larger --limit to see them.")


def print_json(value: Any) -> None:
    """Print one JSON document; non-ASCII text stays readable."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    text = msgspec.json.format(encoded, indent=2).decode()
    click.echo("".join(char if _is_harmless(char) else _escaped(char) for char in text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a line for each row. A column name with the prefix `>` is for numbers.

    No text is ever cut. On a terminal the last column is wrapped, if the others then fit."""
    cells = [[_one_line(value) for value in row] for row in rows]
    table = new_table(columns)
    table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
    for row in cells:
        table.add_row(*row)
    out = console()
    table.width = _width(out, columns, cells)
    print_trimmed(out, table)


def new_table(columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if is_number else "left", no_wrap=True)
    return table


def table_width(lines: Sequence[Sequence[object]]) -> int:
    """The width of a table of short texts in which no cell is cut. The first line has the names."""
    widths = [max(map(_length, column)) for column in zip(*lines, strict=True)]
    return sum(widths) + _GAP * (len(widths) - 1)


def _length(value: object) -> int:
    return len(f"{value:,}" if isinstance(value, int) else str(value))


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
    """Print names and values, one pair per line, without empty values. Ages count from `now`."""
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
def progress(
    doing: str, total: int | None = None, elsewhere: Callable[[int], None] = lambda _number: None
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a bar on a terminal. Without a terminal, yield `elsewhere`."""
    from rich.console import Console
    from rich.progress import Progress

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield elsewhere
        return
    with Progress(transient=True, console=screen) as bar:
        going = bar.add_task(doing, total=total)
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
    """Return the JSON escape of a character; two escapes if beyond 16 bits."""
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
        return Text(f"{clock(value)} ({age(value, now)})")
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}")
    return Text(printable(str(value)))
