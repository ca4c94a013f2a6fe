"""The output of the demo: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from windlass.cli.support.output import STATE_STYLES
from windlass.core.states import State
from windlass.engine.contract import Stats

_SHOWN: Final = (
    State.SCHEDULED,
    State.READY,
    State.RUNNING,
    State.RETRYING,
    State.SUCCEEDED,
    State.DEAD,
)
#: How often to print a line without a terminal, in seconds.
_PLAIN_S: Final = 1.0


class Screen:
    """The screen of the demo: events so far, and current states of the jobs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._printed = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def note(self, sentence: str) -> None:
        """Print a permanent line."""
        elapsed = f"{self._elapsed_s():5.1f} s"
        self._console.print(Text.assemble((elapsed, "dim"), f"  {sentence}"))

    def show(self, stats: Stats, ended: int, total: int) -> None:
        if self._console.is_terminal:
            self._live.update(_picture(stats, ended, total), refresh=True)
        elif self._elapsed_s() - self._printed >= _PLAIN_S:
            self._printed = self._elapsed_s()
            self.note(f"{ended} of {total} jobs have ended")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started


def _picture(stats: Stats, ended: int, total: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("queue")
    for state in _SHOWN:
        table.add_column(state, justify="right", style=STATE_STYLES[state], min_width=9)
    for queue, counts in sorted(stats.queues.items()):
        table.add_row(queue, *(str(counts.get(state, "")) for state in _SHOWN))
    bar = Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(total=total, completed=ended, width=60), f"{ended} of {total}")
    return Group(Text(), bar, Text(), table, Text())
