"""The thread of a child that looks after the others, once or twice a second.

1. It notes in shared memory that this process runs Python, and how many jobs have ended in it.
2. It tells the supervisor of a fetcher that stands still (`fetch_watchdog`).
3. It names what blocks the event loop (`loop_watch`).
4. It reports each job that runs for very long without a time-out, once.
5. It has free slots made use of when the fetcher waits for the engine and cannot.

What it finds counts only if it came to look in time itself: when another thread kept the
interpreter, or the whole process stood still, the others had no chance to go on either.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from logging import getLogger
from threading import Event, Thread
from time import monotonic

from windlass.core.durations import describe_ms
from windlass.worker.child.fetch_watchdog import FetchWatchdog
from windlass.worker.child.loop_watchdog import LoopWatchdog
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.run.slot_queue import SlotQueue, Started
from windlass.worker.run.timeouts import Limits

log = getLogger("windlass.worker")

#: How often to look, in seconds, while jobs run, and while there are none.
LOOK_S = 0.5
IDLE_S = 1.0
#: Whoever comes to look this much too late, in seconds, was kept from it.
LATE_S = 0.25
#: A job without a time-out that runs for longer than this, in seconds, is reported.
LONG_S = 3600.0


class Watchdog:
    """Made on the event loop that it watches. `on_wedged` is told where the fetcher stands still."""

    def __init__(
        self,
        slot_queue: SlotQueue,
        limits: Limits,
        table: SlotTable,
        loop: LoopWatchdog,
        fetcher: FetchWatchdog,
        on_wedged: Callable[[str], None],
    ) -> None:
        self._slot_queue = slot_queue
        self._limits = limits
        self._table = table
        self._loop = loop
        self._fetcher = fetcher
        self._on_wedged = on_wedged
        self._stopping = Event()
        self._told: list[Started] = []  # of the runs that go on, those that were reported

    def start(self) -> None:
        """The supervisor knows of this thread only when it has looked once: a child that could not
        start it is not reproached with that."""
        try:
            Thread(target=self._run, name="watch", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            log.error("the thread that watches over this child could not be started: %s", error)

    def stop(self) -> None:
        """Before the fetcher ends as it should."""
        self._stopping.set()

    def _run(self) -> None:
        wait_s = 0.0
        while True:
            began_at = monotonic()
            if self._stopping.wait(wait_s):
                return
            waited_s = monotonic() - began_at
            try:
                self.look(waited_s, is_punctual=waited_s < wait_s + LATE_S)
            except Exception:
                log.exception("the watch over this child failed, and looks again")
            wait_s = LOOK_S if self._slot_queue.busy() else IDLE_S

    def look(self, waited_s: float, *, is_punctual: bool) -> None:
        self._table.note_pulse(monotonic(), self._slot_queue.ended)
        wedged = self._fetcher.look(waited_s, is_punctual=is_punctual)
        if wedged is not None and not self._stopping.is_set():
            self._on_wedged(wedged)  # before anything is logged: that may be what is stuck
        self._loop.look(is_punctual=is_punctual)
        self._slot_queue.press()
        self._report_long()

    def _report_long(self) -> None:
        now = monotonic()
        long = [run for run in self._slot_queue.started() if now - run.since > LONG_S]
        for run in long:
            if not self._limits.has_end(run.slot) and not any(run is told for told in self._told):
                self._report(run, now - run.since)
        self._told = long

    def _report(self, run: Started, ran_s: float) -> None:
        since = datetime.now(UTC) - timedelta(seconds=ran_s)
        log.warning(
            "job %s of task %s has been running for longer than %s without a time-out, since %s",
            run.claim.id,
            run.claim.task,
            describe_ms(round(LONG_S * 1000)),
            since.isoformat(timespec="seconds"),
        )
