"""The watchdog of a child: a thread that checks the other threads once or twice a second.

1. It notes in shared memory that this process runs Python, and how many jobs have ended in it.
2. It reports a stuck fetcher to the supervisor (`fetch_watchdog`).
3. It logs the job that blocks the event loop (`loop_watchdog`).
4. It logs each job that runs for very long without a time-out, once.
5. It wakes runners for free slots while the fetcher waits for the engine.

A finding counts only if the watchdog itself ran on time: when another thread held the interpreter,
or the whole process was stopped, the other threads could not make progress either.
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
from windlass.worker.logs.events import LogEvent
from windlass.worker.run.slot_queue import SlotQueue, Started
from windlass.worker.run.timeouts import Limits

log = getLogger("windlass.worker")

#: How often to look, in seconds, while jobs run, and while there are none.
LOOK_S = 0.5
IDLE_S = 1.0
#: A look that comes this much too late, in seconds, is not on time.
LATE_S = 0.25
#: A job without a time-out that runs for longer than this, in seconds, is logged.
LONG_S = 3600.0


class Watchdog:
    """Created on the event loop that it watches. `on_wedged` gets where the fetcher is stuck."""

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
        self._logged: list[Started] = []  # long runs that were logged

    def start(self) -> None:
        """Start the thread. Without it the supervisor sees no pulse of this child, and does not
        check the child."""
        try:
            Thread(target=self._run, name="watch", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            log.error(LogEvent.WATCH_NOT_STARTED, error)

    def stop(self) -> None:
        """Stop, before the fetcher ends as planned."""
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
                log.exception(LogEvent.WATCH_FAILED)
            wait_s = LOOK_S if self._slot_queue.busy() else IDLE_S

    def look(self, waited_s: float, *, is_punctual: bool) -> None:
        self._table.note_pulse(monotonic(), self._slot_queue.ended)
        wedged = self._fetcher.look(waited_s, is_punctual=is_punctual)
        if wedged is not None and not self._stopping.is_set():
            self._on_wedged(wedged)  # before any log line: logging itself may be stuck
        self._loop.look(is_punctual=is_punctual)
        self._slot_queue.press()
        self._report_long()

    def _report_long(self) -> None:
        now = monotonic()
        long = [run for run in self._slot_queue.started() if now - run.since > LONG_S]
        for run in long:
            if not self._limits.has_end(run.slot) and not any(
                run is logged for logged in self._logged
            ):
                self._report(run, now - run.since)
        self._logged = long

    def _report(self, run: Started, ran_s: float) -> None:
        since = datetime.now(UTC) - timedelta(seconds=ran_s)
        log.warning(
            LogEvent.JOB_RUNS_LONG,
            run.claim.id,
            run.claim.task,
            describe_ms(round(LONG_S * 1000)),
            since.isoformat(timespec="seconds"),
        )
