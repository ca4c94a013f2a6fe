"""The watchdog of a child: a thread that checks the other threads once or twice a second.

1. It notes in shared memory that this process runs Python, and how many jobs have ended in it.
2. It reports a stuck fetcher to the supervisor (`FetchWatchdog`).
3. It logs the job that blocks the event loop (`LoopWatchdog`).
4. It logs each job that runs for very long without a time-out, once.
5. It wakes runners for free slots while the fetcher waits for the engine.
6. It logs the number of successes that had no line (`EndLog`).

A finding counts only if the watchdog itself ran on time: when another thread held the interpreter,
or the whole process was stopped, the other threads could not make progress either.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from datetime import UTC, datetime, timedelta
from logging import getLogger
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic, sleep
from types import FrameType
from typing import NamedTuple, Protocol

import windlass.engine
from windlass.context import running
from windlass.core.durations import describe_ms
from windlass.worker.logs.events import LogEvent
from windlass.worker.run.end_log import EndLog
from windlass.worker.run.slot_queue import SlotQueue, Started
from windlass.worker.run.timeouts import Limits

log = getLogger("windlass.worker")

#: How often to check, in seconds, while jobs run, and without jobs.
LOOK_S = 0.5
IDLE_S = 1.0
#: A check that comes this many seconds too late is not on time.
LATE_S = 0.25
#: A job without a time-out that runs for longer than this, in seconds, is logged.
LONG_S = 3600.0
#: The time between the two inspections of a step of the event loop, in seconds.
CONFIRM_S = 0.2
#: How long a fetcher that could make progress may be stuck, in seconds.
WEDGED_S = 60.0

#: The asyncio function that runs every step of a loop.
_STEP = asyncio.Handle._run.__code__
_ENGINES = str(Path(windlass.engine.__file__).parent)


class Watchdog:
    """Checks the threads of a child. Create it on the event loop to watch. `on_wedged` gets the
    position of a stuck fetcher."""

    def __init__(
        self,
        slot_queue: SlotQueue,
        limits: Limits,
        loop: LoopWatchdog,
        fetcher: FetchWatchdog,
        end_log: EndLog,
        on_wedged: Callable[[str], None],
    ) -> None:
        self._slot_queue = slot_queue
        self._limits = limits
        self._table = slot_queue.lease.table
        self._loop = loop
        self._fetcher = fetcher
        self._end_log = end_log
        self._on_wedged = on_wedged
        self._stopping = Event()
        self._logged: list[Started] = []  # long runs that were logged

    def start(self) -> None:
        """Start the thread. If that fails, the supervisor sees no pulse of this child, and does not
        check the child."""
        try:
            Thread(target=self._run, name="watch", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            log.error(LogEvent.WATCH_NOT_STARTED, error)

    def stop(self) -> None:
        """Stop the checks, before the fetcher ends as planned."""
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
        self._end_log.flush(monotonic())

    def _report_long(self) -> None:
        now = monotonic()
        long = [run for run in self._slot_queue.started() if now - run.since > LONG_S]
        for run in long:
            is_logged = any(run is logged for logged in self._logged)
            if not is_logged and not self._limits.has_end(run.slot):
                since = datetime.now(UTC) - timedelta(seconds=now - run.since)
                log.warning(
                    LogEvent.JOB_RUNS_LONG,
                    run.claim.id,
                    run.claim.task,
                    describe_ms(round(LONG_S * 1000)),
                    since.isoformat(timespec="seconds"),
                )
        self._logged = long


class LoopStep(NamedTuple):
    """The current step of the loop."""

    frame: FrameType  # of `Handle._run`
    inner: FrameType  # the innermost frame


class LoopWatchdog:
    """Find the job that blocks the event loop, and where in its code.

    1. Each check schedules a callback on the loop.
    2. If the callback has not run at the next check, the watchdog inspects the current step of the
       loop twice. A busy loop is in another step by the second time: then no job blocks it.
    3. The context variables of the step identify the job, also for a coroutine that the job has
       started. The block is logged once, until the loop has run a callback again.

    A step that holds the GIL cannot be seen from inside the process: the supervisor reports it.
    Created on the loop that it watches; another thread calls `look`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._asked_at = monotonic()
        self._is_answered = True
        self._is_reported = False

    def look(self, *, is_punctual: bool) -> None:
        if self._is_answered:
            self._is_reported = False
            self._ask()
        elif is_punctual and not self._is_reported:
            self._is_reported = self._log_block()

    def _ask(self) -> None:
        self._is_answered = False
        self._asked_at = monotonic()
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._is_answered = True

    def _log_block(self) -> bool:
        """Log the job that blocks the loop. Return whether a job blocks it."""
        before = self._step()
        if before is None:
            return False
        sleep(CONFIRM_S)
        step = self._step()
        if step is None or step.frame is not before.frame:
            return False
        log.warning(
            LogEvent.LOOP_BLOCKED,
            _name_job(step),
            round(monotonic() - self._asked_at, 1),
            _stack(step),
        )
        return True

    def _step(self) -> LoopStep | None:
        inner = sys._current_frames().get(self._thread)
        frame = inner
        while frame is not None and frame.f_code is not _STEP:
            frame = frame.f_back
        return None if frame is None or inner is None else LoopStep(frame, inner)


def _name_job(step: LoopStep) -> str:
    handle = step.frame.f_locals.get("self")
    variables = getattr(handle, "_context", None)
    context = variables.get(running) if isinstance(variables, Variables) else None
    return f"job {context.job_id} of task {context.task}" if context else "code of no job"


def _stack(step: LoopStep) -> str:
    """Describe the stack inside asyncio, without values, because those may be arguments."""
    inside = []
    for frame, line in traceback.walk_stack(step.inner):
        if frame is step.frame:
            break
        inside.append((frame, line))
    lines = traceback.StackSummary.extract(reversed(inside)).format()
    return "\n" + "".join(lines).rstrip()


class RoundCounter(Protocol):
    """A fetcher that counts its rounds."""

    rounds: int


class FetchWatchdog:
    """Find a fetcher that makes no progress.

    A stuck fetcher reports nothing, while heartbeats of the supervisor keep its jobs leased
    forever. The fetcher is wedged when its thread has ended, or when it has made no round for
    `WEDGED_S` although it could have. It could have if the watchdog ran on time at each check, so
    that the interpreter was free, and if the fetcher was in no call of the engine. During an outage
    a call may take long, and the jobs survive that."""

    def __init__(self, thread: Thread, fetcher: RoundCounter) -> None:
        self._thread = thread
        self._fetcher = fetcher
        self._seen = -1
        self._stood_s = 0.0
        self._is_reported = False

    def look(self, waited_s: float, *, is_punctual: bool) -> str | None:
        """Return where the fetcher is stuck, once; None otherwise."""
        if self._is_reported:
            return None
        is_dead = not self._thread.is_alive()
        frame = self._frame()
        rounds = self._fetcher.rounds
        if rounds != self._seen or not is_punctual or _is_in_engine(frame):
            self._seen = rounds
            self._stood_s = 0.0
        else:
            self._stood_s += waited_s
        self._is_reported = is_dead or self._stood_s > WEDGED_S
        return _describe(frame) if self._is_reported else None

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._thread.ident or 0)


def _is_in_engine(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_ENGINES):
            return True
        frame = frame.f_back
    return False


def _describe(frame: FrameType | None) -> str:
    if frame is None:
        return "its fetcher thread has ended"
    return "its fetcher is stuck in\n" + "".join(traceback.format_stack(frame)).rstrip()
