"""Which job runs in which slot of a child, for how long it may, and how it is told to stop.

1. A run with a time-out is noted in shared memory with the moment at which it is to be ended by
   force, and with what becomes of its job then: the supervisor does that, also when this process
   cannot do anything any more.
2. A thread, started when there is something to wait for, interrupts runs whose time is over.
3. The supervisor has runs interrupted whose jobs were cancelled.

A run without a time-out costs two stores and no more.
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


class Stint(NamedTuple):
    """One run with a limit."""

    run: Run
    guard: Guard
    ends_at: float  # when it is interrupted


class Limits:
    """`begin` and `end` are called by the slots, the others from any thread. `on_first` is called
    before the code of the first job that the supervisor has to look after."""

    def __init__(
        self, table: SlotTable, kill_after_ms: int, on_first: Callable[[], None], *, is_solo: bool
    ) -> None:
        self._table = table
        self._kill_after_s = kill_after_ms / 1000
        self._on_first = on_first
        self._is_solo = is_solo
        self._runs: list[Run | None] = [None] * table.slots
        self._guards: list[Guard | None] = [None] * table.slots
        self._limited: list[Stint | None] = [None] * table.slots
        self._generations = count(1)
        self._starting = Lock()
        self._is_watching = False
        self._wakes_at = NEVER
        self._wake = Event()
        self._is_closed = False

    def begin(self, slot: int, run: Run, guard: Guard, since: float) -> None:
        """Just before the code of a job. Whoever takes this run for that of another guard does no
        harm: guards know their own."""
        self._guards[slot] = guard
        self._runs[slot] = run
        if run.timeout_ms or self._is_solo:
            self._limit(slot, run, guard, since)

    def _limit(self, slot: int, run: Run, guard: Guard, since: float) -> None:
        ends_at = since + run.timeout_ms / 1000 if run.timeout_ms else NEVER
        stint = Stint(run, guard, ends_at)
        self._table.limit(slot, self._limit_of(stint))
        self._limited[slot] = stint
        if not self._is_watching:
            self._start()
        if ends_at < self._wakes_at:
            self._wake.set()

    def end(self, slot: int) -> None:
        """Its code has ended."""
        self._runs[slot] = None
        if self._limited[slot] is not None:
            self._limited[slot] = None
            self._table.lift(slot)

    def has_end(self, slot: int) -> bool:
        """Whether the run in a slot has a time-out."""
        stint = self._limited[slot]
        return stint is not None and stint.run.timeout_ms > 0

    def cancel(self, ids: Collection[str]) -> None:
        """Interrupt the runs of these jobs."""
        for run, guard in zip(self._runs, self._guards, strict=True):
            if run is not None and guard is not None and run.claim.id in ids:
                guard.interrupt(run.context, Interruption.CANCELLED)

    def note_loss(self) -> None:
        """What runs has been given to others. It is not interrupted, and can learn of it."""
        for run in self._runs:
            if run is not None and run.context.interruption is None:
                run.context.interruption = Interruption.LOST

    def close(self) -> None:
        """Interrupt nothing more: there will be no more runs."""
        self._is_closed = True
        self._wake.set()

    def _limit_of(self, stint: Stint) -> Limit:
        run = stint.run
        return Limit(
            generation=next(self._generations),
            ends_at=stint.ends_at + self._kill_after_s,
            timeout_ms=run.timeout_ms,
            delay_ms=run.delay_if_killed_ms,
            id=run.claim.id,
            token=run.claim.token,
        )

    # ------------------------------------------------------------------------------ the thread

    def _start(self) -> None:
        with self._starting:
            if not self._is_watching:
                self._on_first()
                # Without a thread the supervisor still ends what has gone too far, and the next
                # job tries again.
                with suppress(RuntimeError, MemoryError):
                    Thread(target=self._watch, name="time-outs", daemon=True).start()
                    self._is_watching = True

    def _watch(self) -> None:
        told: list[Stint | None] = [None] * len(self._limited)
        while True:
            self._wake.clear()
            if self._is_closed:  # looked at after the clearing, lest the wake-up be lost
                return
            # Before the look: whoever begins from now on wakes this thread, unless the look sees
            # it or the wait below ends in time for it.
            self._wakes_at = NEVER
            now, wakes_at = monotonic(), NEVER
            for slot, stint in enumerate(self._limited):
                if stint is None or told[slot] is stint:
                    continue
                if stint.ends_at <= now:
                    told[slot] = stint
                    stint.guard.interrupt(stint.run.context, Interruption.TIMED_OUT)
                else:
                    wakes_at = min(wakes_at, stint.ends_at)
            self._wakes_at = wakes_at
            self._wake.wait(None if wakes_at == NEVER else wakes_at - now)
