"""Change many jobs step by step, with progress and a clean stop.

On a terminal there is a progress bar, elsewhere a line every few seconds. The first Ctrl-C lets the
current step end, so that the number of changed jobs is exact; the second Ctrl-C ends the program.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from types import FrameType
from typing import Final, NamedTuple

from windlass.cli.support.audit_trail import note
from windlass.cli.support.output import progress, say
from windlass.dead_letters import Changed, RetryStep

#: How often a line is printed without a terminal, in seconds.
LINE_S: Final = 5.0

Show = Callable[[int], None]  # called with the number of jobs of each step


class BulkResult(NamedTuple):
    changed: Changed
    was_stopped: bool


def run(verb: str, steps: Iterable[RetryStep], show: Show) -> BulkResult:
    """Run all steps with their pauses. After an error, print how many jobs were changed."""
    changed = Changed()
    with stopping() as stop:
        try:
            for step in steps:
                before, changed = changed, step.changed
                note(done=changed.done, refused=changed.duplicates + changed.left)
                show(_seen(changed) - _seen(before))
                if stop.wait(step.pause_s):
                    return BulkResult(changed, True)
        except BaseException:
            say(f"{changed.done:,} were {verb} before this error.")
            raise
    return BulkResult(changed, False)


@contextmanager
def stopping() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C sets. The second one ends the program."""
    stop = Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def showing(doing: str, total: int | None) -> AbstractContextManager[Show]:
    """Show progress: a bar on a terminal, else a line every few seconds."""
    told_at, seen = time.monotonic(), 0

    def show(number: int) -> None:
        nonlocal told_at, seen
        seen += number
        if time.monotonic() - told_at >= LINE_S:
            told_at = time.monotonic()
            say(f"{doing}: {seen:,}" + ("" if total is None else f" of {total:,}"))

    return progress(doing, total, show)


def _seen(changed: Changed) -> int:
    return changed.done + changed.duplicates + changed.left
