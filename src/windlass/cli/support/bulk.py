"""Change many jobs step by step, with progress and a clean stop.

On a terminal there is a progress bar, elsewhere a line every few seconds. The first Ctrl-C lets the
current step end, so that the number of changed jobs is exact; the second one ends the program.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final, NamedTuple

from windlass.cli.support.output import say
from windlass.dead_letters import Changed, RetryStep

#: How often a line is printed without a terminal, in seconds.
LINE_S: Final = 5.0

Show = Callable[[Changed], None]


class BulkResult(NamedTuple):
    changed: Changed
    was_stopped: bool


def run(verb: str, steps: Iterable[RetryStep], show: Show) -> BulkResult:
    """Run all steps with their pauses. After an error, print how many jobs were changed."""
    changed = Changed()
    with _stopping() as stop:
        try:
            for step in steps:
                changed = step.changed
                show(changed)
                if stop.wait(step.pause_s):
                    return BulkResult(changed, True)
        except BaseException:
            say(f"{changed.done:,} were {verb} before this error.")
            raise
    return BulkResult(changed, False)


@contextmanager
def _stopping() -> Iterator[Event]:
    stop = Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def showing(doing: str, total: int) -> Iterator[Show]:
    """Show progress: a bar on a terminal, else a line every few seconds."""
    from rich.console import Console
    from rich.progress import Progress

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield _lines(doing, total)
        return
    with Progress(transient=True, console=screen) as bar:
        going = bar.add_task(doing, total=total)
        yield lambda changed: bar.update(going, completed=_seen(changed))


def _lines(doing: str, total: int) -> Show:
    told_at = time.monotonic()

    def show(changed: Changed) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= LINE_S:
            told_at = time.monotonic()
            say(f"{doing}: {_seen(changed):,} of {total:,}")

    return show


def _seen(changed: Changed) -> int:
    return changed.done + changed.duplicates + changed.left
