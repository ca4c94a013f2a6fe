"""The two runners of a child: threads for plain functions, the event loop for coroutines.

Both do the same for each job: take it from the line, note it in the slot table just before its
code runs, run it, report the outcome, take the next. They differ in how they are woken and in what
calls the function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context as Variables
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic

from windlass.engine.contract import Outcome
from windlass.worker.execution import Execution, Run
from windlass.worker.line import Kind, Line, Started
from windlass.worker.pace import Pace
from windlass.worker.slots import SlotTable

Report = Callable[[Outcome], None]


class Runner:
    """What both runners share: how a job ends, and what follows it."""

    kind: Kind

    def __init__(
        self, line: Line, table: SlotTable, execution: Execution, pace: Pace, report: Report
    ) -> None:
        self._line = line
        self._table = table
        self._execution = execution
        self._record_pace = pace.record
        self._report = report
        line.serve(self.kind, self.hint)

    def hint(self, count: int) -> None:
        """That many claims may be startable. Called from any thread."""
        raise NotImplementedError

    def _end(self, started: Started, outcome: Outcome) -> Started | None:
        """The slot is freed before the report: the pump then fills it in the same round trip."""
        self._table.vacate(started.slot)
        now = monotonic()
        self._record_pace(now - started.since)
        following = self._line.follow(self.kind, started, now)
        self._report(outcome)
        return following


class ThreadRunner(Runner):
    """Runs plain functions, each in one of as many threads as there are slots."""

    kind = Kind.THREAD

    def __init__(
        self, line: Line, table: SlotTable, execution: Execution, pace: Pace, report: Report
    ) -> None:
        self._hints: SimpleQueue[None] = SimpleQueue()
        self._threads = 0
        self._starting = Lock()
        super().__init__(line, table, execution, pace, report)

    def hint(self, count: int) -> None:
        with self._starting:
            while self._threads < min(self._line.slots, self._line.busy() + count):
                self._threads += 1
                Thread(target=self._serve, name=f"slot-{self._threads}", daemon=True).start()
        for _ in range(count):
            self._hints.put(None)

    def _serve(self) -> None:
        while True:
            self._hints.get()
            started = self._line.begin(self.kind)
            while started is not None:
                # An empty set of context variables: what one job sets, the next never sees.
                outcome = Variables().run(self._run, started)
                started = self._end(started, outcome)

    def _run(self, started: Started) -> Outcome:
        run = self._execution.prepare(started.claim, started.task)
        if not isinstance(run, Run):
            return run
        self._table.occupy(started.slot, run.claim.id)
        return self._execution.run(run)


class LoopRunner(Runner):
    """Runs coroutines on the event loop of the thread in which it was made."""

    kind = Kind.LOOP

    def __init__(
        self, line: Line, table: SlotTable, execution: Execution, pace: Pace, report: Report
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_called = False
        # By slot. The loop keeps weak references only, and would let a waiting task be collected.
        self._tasks: list[asyncio.Task[None] | None] = [None] * line.slots
        super().__init__(line, table, execution, pace, report)

    def hint(self, count: int) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._begin_one)

    def _begin_one(self) -> None:
        """Start one, then come back behind its first step: if that step blocks the loop, the
        claims behind it have not started and can be taken back."""
        self._is_called = False
        started = self._line.begin(self.kind)
        if started is not None:
            self._start(started)
            self._is_called = True
            self._loop.call_soon(self._begin_one)

    def _start(self, started: Started) -> None:
        self._tasks[started.slot] = self._loop.create_task(
            self._serve(started), context=Variables()
        )

    async def _serve(self, started: Started) -> None:
        execution = self._execution
        run = execution.prepare(started.claim, started.task)
        if isinstance(run, Run):
            self._table.occupy(started.slot, run.claim.id)
            outcome = await execution.run_async(run)
        else:
            outcome = run
        self._tasks[started.slot] = None
        following = self._end(started, outcome)
        if following is not None:
            self._start(following)
