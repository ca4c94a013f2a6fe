"""Time-outs and cancellation of the jobs that run in the slots of a child.

1. The child notes a run with a time-out in shared memory: when to end the run by force, and with
   which outcome. The supervisor enforces this, also when the child hangs.
2. A thread, started with the first time-out, interrupts runs that exceed their time-out.
3. The supervisor requests the interrupt of jobs that were cancelled.

A run without a time-out costs only two stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

from windlass.core.signals import Interruption
from windlass.worker.ipc.shared_memory import NEVER, Limit, SlotTable
from windlass.worker.run.interrupts import Guard
from windlass.worker.run.pipeline import Run


class LimitedRun(NamedTuple):
    """One run with a limit."""

    run: Run
    guard: Guard
    ends_at: float  # when it is interrupted


class Limits:
    """Time-outs of the running jobs. Slots call `begin` and `end`; any thread may call other
    methods. `on_first` is called before the first job that the supervisor has to watch."""

    def __init__(
        self, table: SlotTable, kill_after_ms: int, on_first: Callable[[], None], *, is_solo: bool
    ) -> None:
        self._table = table
        self._kill_after_s = kill_after_ms / 1000
        self._on_first = on_first
        self._is_solo = is_solo
        self._runs: list[Run | None] = [None] * table.slots
        self._guards: list[Guard | None] = [None] * table.slots
        self._limited: list[LimitedRun | None] = [None] * table.slots
        self._generations = count(1)
        self._starting = Lock()
        self._is_watching = False
        self._wakes_at = NEVER
        self._wake = Event()
        self._is_closed = False

    def begin(self, slot: int, run: Run, guard: Guard, since: float) -> None:
        """Note a run just before its code starts. `cancel` may see the new run with the guard of
        the previous run. That is harmless, because a guard interrupts only its own run."""
        self._guards[slot] = guard
        self._runs[slot] = run
        if run.timeout_ms or self._is_solo:
            self._limit(slot, run, guard, since)

    def _limit(self, slot: int, run: Run, guard: Guard, since: float) -> None:
        ends_at = since + run.timeout_ms / 1000 if run.timeout_ms else NEVER
        limit = Limit(
            generation=next(self._generations),
            ends_at=ends_at + self._kill_after_s,
            timeout_ms=run.timeout_ms,
            delay_ms=run.delay_if_killed_ms,
            id=run.claim.id,
            token=run.claim.token,
        )
        self._table.limit(slot, limit)
        self._limited[slot] = LimitedRun(run, guard, ends_at)
        if not self._is_watching:
            self._start()
        if ends_at < self._wakes_at:
            self._wake.set()

    def end(self, slot: int) -> None:
        """Forget the run of a slot: its code has ended."""
        self._runs[slot] = None
        if self._limited[slot] is not None:
            self._limited[slot] = None
            self._table.lift(slot)

    def has_end(self, slot: int) -> bool:
        """Return whether the run in a slot has a time-out."""
        limited = self._limited[slot]
        return limited is not None and limited.run.timeout_ms > 0

    def cancel(self, ids: Collection[str]) -> None:
        """Interrupt the runs of these jobs."""
        for run, guard in zip(self._runs, self._guards, strict=True):
            if run is not None and guard is not None and run.claim.id in ids:
                guard.interrupt(run.context, Interruption.CANCELLED)

    def note_loss(self) -> None:
        """Note in all contexts that the jobs were reassigned. The runs are not interrupted."""
        for run in self._runs:
            if run is not None and run.context.interruption is None:
                run.context.interruption = Interruption.LOST

    def close(self) -> None:
        """End the thread after the last run."""
        self._is_closed = True
        self._wake.set()

    # ------------------------------------------------------------------------------ the thread

    def _start(self) -> None:
        with self._starting:
            if not self._is_watching:
                self._on_first()
                # Without the thread the supervisor still ends overdue runs, and the next job tries
                # to start the thread again.
                with suppress(RuntimeError, MemoryError):
                    Thread(target=self._watch, name="time-outs", daemon=True).start()
                    self._is_watching = True

    def _watch(self) -> None:
        interrupted: list[LimitedRun | None] = [None] * len(self._limited)
        while True:
            self._wake.clear()
            if self._is_closed:  # read after `clear`: otherwise a wake-up could be lost
                return
            # Reset before the scan: a run that begins from now on wakes this thread, unless the
            # scan sees that run, or the wait below ends in time for it.
            self._wakes_at = NEVER
            now, wakes_at = monotonic(), NEVER
            for slot, limited in enumerate(self._limited):
                if limited is None or interrupted[slot] is limited:
                    continue
                if limited.ends_at <= now:
                    interrupted[slot] = limited
                    limited.guard.interrupt(limited.run.context, Interruption.TIMED_OUT)
                else:
                    wakes_at = min(wakes_at, limited.ends_at)
            self._wakes_at = wakes_at
            self._wake.wait(None if wakes_at == NEVER else wakes_at - now)
