"""The two runners of a child: threads for plain functions, the event loop for coroutines.

Both do the same for each job: take it from the slot queue, note it in the slot table just before
its code runs, run it, report the outcome, take the next job. They differ in their wake-up and in
how they call the function. After any error, the runner reports an outcome and frees the slot: no
other component would do so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial
from logging import getLogger
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from time import monotonic, sleep

from windlass.engine.contract import Outcome, Succeeded
from windlass.worker.logs.events import LogEvent
from windlass.worker.run.end_log import EndLog
from windlass.worker.run.interrupts import LoopGuard, ThreadGuard
from windlass.worker.run.measures import RunMeasures
from windlass.worker.run.pipeline import Execution, Run
from windlass.worker.run.slot_queue import JobKind, SlotQueue, Started
from windlass.worker.run.timeouts import Limits

log = getLogger("windlass.worker")

Report = Callable[[Outcome], None]

_ABANDONED = "an exception that was sent into its thread kept the job from being run or reported"


class Runner:
    """Base of both runners: end a job, and take the next one."""

    kind: JobKind

    def __init__(
        self,
        slot_queue: SlotQueue,
        limits: Limits,
        execution: Execution,
        report: Report,
        end_log: EndLog,
        measures: RunMeasures,
    ) -> None:
        self._slot_queue = slot_queue
        self._table = slot_queue.lease.table
        self._limits = limits
        self._execution = execution
        self._record_time = slot_queue.prefetch.record
        self._report = report
        self._ended = measures.ended
        self._end_log = end_log if end_log.is_enabled else None
        self._prepare()
        slot_queue.serve(self.kind, self.hint)

    def _prepare(self) -> None:
        """Create the attributes of a subclass."""
        raise NotImplementedError

    def hint(self, count: int) -> None:
        """Wake the runner: `count` claims may be able to start. Thread-safe."""
        raise NotImplementedError  # each subclass has its own

    def close(self) -> None:
        """End the threads that wait for jobs."""

    def _end(self, started: Started, outcome: Outcome) -> Started | None:
        """Free the slot, then report: so the fetcher refills the slot in the same round trip."""
        self._limits.end(started.slot)
        self._table.vacate(started.slot)
        now = monotonic()
        self._record_time(now - started.since)
        end_log = self._end_log
        if end_log is not None:
            if now < end_log.silent_until and type(outcome) is Succeeded:
                end_log.count()
            else:
                end_log.note(started.claim, outcome, started.since, now)
        self._ended[id(outcome)] = (started, now)
        following = self._slot_queue.follow(self.kind, started, now)
        self._report(outcome)
        return following


class ThreadRunner(Runner):
    """Run plain functions in threads, at most one thread for each slot."""

    kind = JobKind.THREAD

    def _prepare(self) -> None:
        self._hints: SimpleQueue[None] = SimpleQueue()
        self._threads = 0
        self._starting = Lock()
        self._is_short_of_threads = False
        self._is_closed = False

    def hint(self, count: int) -> None:
        with self._starting:
            wanted = min(self._slot_queue.slots, self._slot_queue.busy() + count)
            while self._threads < wanted and self._start_thread():
                self._threads += 1
        for _ in range(count):
            self._hints.put(None)
        # The woken thread needs the interpreter. While many claims wait, keep the interpreter for
        # the fetcher: otherwise the engine would be idle meanwhile.
        if not self._slot_queue.has_plenty():
            sleep(0)

    def close(self) -> None:
        self._is_closed = True
        for _ in range(self._threads):
            self._hints.put(None)

    def _start_thread(self) -> bool:
        """Start a thread. If the system refuses, existing threads do the work. Without any thread,
        the fetcher releases the claims, and the next claims try to start a thread again."""
        try:
            Thread(target=self._serve, name=f"slot-{self._threads + 1}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if not self._is_short_of_threads:
                log.error(LogEvent.THREAD_NOT_STARTED, error)
            self._is_short_of_threads = True
            return False
        self._is_short_of_threads = False
        return True

    def _serve(self) -> None:
        guard, owner, is_whole = ThreadGuard(), get_ident(), True
        try:
            while not self._is_closed:
                # A task may send an exception to its own thread, which may arrive after the job.
                with suppress(BaseException):
                    if not is_whole:
                        self._end_abandoned(guard, owner)
                    is_whole = False
                    self._hints.get()
                    self._serve_line(guard, self._slot_queue.begin(self.kind, owner))
                    is_whole = True
        finally:
            with self._starting:
                self._threads -= 1

    def _end_abandoned(self, guard: ThreadGuard, owner: int) -> None:
        """End a job that the slot queue gave to this thread just before a late exception hit. No
        other thread would end that job."""
        for started in self._slot_queue.started():
            if started.owner == owner:
                outcome = self._execution.conclude_escape(started.claim, RuntimeError(_ABANDONED))
                self._serve_line(guard, self._end(started, outcome))

    def _serve_line(self, guard: ThreadGuard, started: Started | None) -> None:
        while started is not None:
            try:
                # Empty context variables: a job never sees values that an earlier job has set.
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
    """Run coroutines on the event loop of the thread that creates this runner."""

    kind = JobKind.LOOP

    def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_called = False
        # Tasks by slot. The loop keeps weak references only: a waiting task could be collected.
        self._tasks: list[asyncio.Task[Outcome] | None] = [None] * self._slot_queue.slots
        self._guards = [LoopGuard(self._loop) for _ in range(self._slot_queue.slots)]

    def hint(self, count: int) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._begin_one)

    def _begin_one(self) -> None:
        """Start one coroutine, then return to the loop. If the first step blocks the loop, the
        next claims have not started and can be released."""
        self._is_called = False
        started = self._slot_queue.begin(self.kind)
        if started is not None:
            self._start(started)
            self._is_called = True
            self._loop.call_soon(self._begin_one)

    def _start(self, started: Started) -> None:
        # Avoid `loop.create_task`: a task factory of the app could do anything.
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
        """End a job. A callback of the task, because a task that is cancelled before its first step
        never enters `_run`."""
        self._tasks[started.slot] = None
        self._guards[started.slot].end()
        try:
            outcome = task.result()
        except BaseException as error:  # noqa: BLE001  # the slot must be freed
            outcome = self._execution.conclude_escape(started.claim, error)
        following = self._end(started, outcome)
        if following is not None:
            self._start(following)
