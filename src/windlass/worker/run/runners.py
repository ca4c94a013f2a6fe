"""The two runners of a child: threads for plain functions, the event loop for coroutines.

Both do the same for each job: take it from the line, note it in the slot table just before its
code runs, run it, report the outcome, take the next. They differ in how they are woken and in what
calls the function. Whatever happens, a job that was taken ends in an outcome and its slot is freed:
nobody else would do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial
from logging import DEBUG, getLogger
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from time import monotonic, sleep

from windlass.engine.contract import Outcome
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.run.interrupts import LoopGuard, ThreadGuard
from windlass.worker.run.pipeline import Execution, Run
from windlass.worker.run.prefetch import Prefetch
from windlass.worker.run.slot_queue import Kind, SlotQueue, Started
from windlass.worker.run.timeouts import Limits

log = getLogger("windlass.worker")

Report = Callable[[Outcome], None]

_FORSAKEN = "an exception that was sent into its thread kept the job from being run or reported"


class Runner:
    """What both runners share: how a job ends, and what follows it."""

    kind: Kind

    def __init__(
        self,
        slot_queue: SlotQueue,
        table: SlotTable,
        limits: Limits,
        execution: Execution,
        prefetch: Prefetch,
        report: Report,
    ) -> None:
        self._slot_queue = slot_queue
        self._table = table
        self._limits = limits
        self._execution = execution
        self._record_pace = prefetch.record
        self._report = report
        # Looked at once: a line for each job that ended is much at hundreds a second.
        self._tell_end = tell_end if log.isEnabledFor(DEBUG) else None
        slot_queue.serve(self.kind, self.hint)

    def hint(self, count: int) -> None:
        """That many claims may be startable. Called from any thread."""
        raise NotImplementedError  # each kind of runner is woken in its own way

    def close(self) -> None:
        """Let go of what waits for jobs: there will be no more."""

    def _end(self, started: Started, outcome: Outcome) -> Started | None:
        """The slot is freed before the report: the fetcher then fills it in the same round trip."""
        self._limits.end(started.slot)
        self._table.vacate(started.slot)
        now = monotonic()
        self._record_pace(now - started.since)
        if self._tell_end is not None:
            self._tell_end(started, outcome, now - started.since)
        following = self._slot_queue.follow(self.kind, started, now)
        self._report(outcome)
        return following


def tell_end(started: Started, outcome: Outcome, seconds: float) -> None:
    claim = started.claim
    with suppress(BaseException):  # a handler of the app may be what fails
        log.debug(
            "job %s of task %s ended as %s in attempt %d after %d ms",
            claim.id,
            claim.task,
            type(outcome).__name__.lower(),
            claim.counters.attempt,
            round(seconds * 1000),
        )


class ThreadRunner(Runner):
    """Runs plain functions, each in one of as many threads as there are slots."""

    kind = Kind.THREAD

    def __init__(
        self,
        slot_queue: SlotQueue,
        table: SlotTable,
        limits: Limits,
        execution: Execution,
        prefetch: Prefetch,
        report: Report,
    ) -> None:
        self._hints: SimpleQueue[None] = SimpleQueue()
        self._threads = 0
        self._starting = Lock()
        self._is_short_of_threads = False
        self._is_closed = False
        super().__init__(slot_queue, table, limits, execution, prefetch, report)

    def hint(self, count: int) -> None:
        with self._starting:
            wanted = min(self._slot_queue.slots, self._slot_queue.busy() + count)
            while self._threads < wanted and self._start_thread():
                self._threads += 1
        for _ in range(count):
            self._hints.put(None)
        # Whoever was woken needs the interpreter. With plenty to do, the fetcher needs it more: the
        # engine would stand still meanwhile.
        if not self._slot_queue.has_plenty():
            sleep(0)

    def close(self) -> None:
        self._is_closed = True
        for _ in range(self._threads):
            self._hints.put(None)

    def _start_thread(self) -> bool:
        """When the system refuses, those that are there do the work. Without any the claims are
        handed back after a moment, and the next ones ask for a thread again."""
        try:
            Thread(target=self._serve, name=f"slot-{self._threads + 1}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if not self._is_short_of_threads:
                log.error("a thread for jobs could not be started, and is tried again: %s", error)
            self._is_short_of_threads = True
            return False
        self._is_short_of_threads = False
        return True

    def _serve(self) -> None:
        guard, owner, is_whole = ThreadGuard(), get_ident(), True
        try:
            while not self._is_closed:
                # Some tasks have exceptions sent into their own thread, which may arrive late.
                with suppress(BaseException):
                    if not is_whole:
                        self._end_forsaken(guard, owner)
                    is_whole = False
                    self._hints.get()
                    self._serve_line(guard, self._slot_queue.begin(self.kind, owner))
                    is_whole = True
        finally:
            with self._starting:
                self._threads -= 1

    def _end_forsaken(self, guard: ThreadGuard, owner: int) -> None:
        """An exception may have come when the line had given a job to this thread, and the thread
        did not have it yet: then nobody else ends it."""
        for started in self._slot_queue.started():
            if started.owner == owner:
                outcome = self._execution.conclude_escape(started.claim, RuntimeError(_FORSAKEN))
                self._serve_line(guard, self._end(started, outcome))

    def _serve_line(self, guard: ThreadGuard, started: Started | None) -> None:
        while started is not None:
            try:
                # An empty set of context variables: what one job sets, the next never sees.
                outcome = Variables().run(self._run, started, guard)
            except BaseException as error:  # noqa: BLE001  # the slot must be freed
                outcome = self._execution.conclude_escape(started.claim, error)
            started = self._end(started, outcome)

    def _run(self, started: Started, guard: ThreadGuard) -> Outcome:
        run = self._execution.prepare(started.claim, started.task)
        if not isinstance(run, Run):
            return run
        self._table.occupy(started.slot, run.claim.id)
        guard.begin(run.context)
        self._limits.begin(started.slot, run, guard, started.since)
        return self._execution.run(run, guard)


class LoopRunner(Runner):
    """Runs coroutines on the event loop of the thread in which it was made."""

    kind = Kind.LOOP

    def __init__(
        self,
        slot_queue: SlotQueue,
        table: SlotTable,
        limits: Limits,
        execution: Execution,
        prefetch: Prefetch,
        report: Report,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_called = False
        # By slot. The loop keeps weak references only, and would let a waiting task be collected.
        self._tasks: list[asyncio.Task[Outcome] | None] = [None] * slot_queue.slots
        self._guards = [LoopGuard(self._loop) for _ in range(slot_queue.slots)]
        super().__init__(slot_queue, table, limits, execution, prefetch, report)

    def hint(self, count: int) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._begin_one)

    def _begin_one(self) -> None:
        """Start one, then come back behind its first step: if that step blocks the loop, the
        claims behind it have not started and can be taken back."""
        self._is_called = False
        started = self._slot_queue.begin(self.kind)
        if started is not None:
            self._start(started)
            self._is_called = True
            self._loop.call_soon(self._begin_one)

    def _start(self, started: Started) -> None:
        # Not by the loop: it would ask a task factory of the app, which may do anything.
        task = asyncio.Task(self._run(started), loop=self._loop, context=Variables())
        self._tasks[started.slot] = task
        task.add_done_callback(partial(self._conclude, started))

    async def _run(self, started: Started) -> Outcome:
        try:
            run = self._execution.prepare(started.claim, started.task)
            if not isinstance(run, Run):
                return run
            self._table.occupy(started.slot, run.claim.id)
            guard = self._guards[started.slot]
            guard.begin(run.context)
            self._limits.begin(started.slot, run, guard, started.since)
            return await self._execution.run_async(run)
        except BaseException as error:  # noqa: BLE001  # SystemExit would leave the loop
            return self._execution.conclude_escape(started.claim, error)

    def _conclude(self, started: Started, task: asyncio.Task[Outcome]) -> None:
        """A callback and not the end of `_run`: a task that another one cancels before its first
        step never enters it."""
        self._tasks[started.slot] = None
        self._guards[started.slot].end()
        try:
            outcome = task.result()
        except BaseException as error:  # noqa: BLE001  # the slot must be freed
            outcome = self._execution.conclude_escape(started.claim, error)
        following = self._end(started, outcome)
        if following is not None:
            self._start(following)
