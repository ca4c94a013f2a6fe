"""Stages: run the jobs of a drain in the calling thread, or on the running event loop.

A stage runs a job like the runners of a worker: with an empty set of context variables and a guard
for the time-out. The stages differ in the thread or event loop of each kind of task:

1. `HereStage`, for `drain`: plain functions run in the calling thread, which has the thread-local
   objects of the test, such as its database connection. Coroutines run on a new loop. As in a
   worker, no loop runs in the thread of a plain function.
2. `LoopStage`, for `adrain`: coroutines run on the loop of the test, which has its connections.
   Plain functions run in another thread, because no loop may run in their thread.

Both stages share the coroutine that does the work between two jobs. On a `HereStage` this coroutine
never waits, and `complete` runs it to its end without a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context as Variables
from functools import partial
from threading import Timer
from typing import Any, Protocol, TypeVar

from windlass.core.signals import Interruption
from windlass.engine.contract import Claim, Outcome
from windlass.task import Task
from windlass.worker.run.interrupts import Guard, LoopGuard, ThreadGuard
from windlass.worker.run.pipeline import Execution, Run

T = TypeVar("T")


class Stage(Protocol):
    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine on the event loop."""

    async def run(self, execution: Execution, claim: Claim, task: Task[..., Any]) -> Outcome:
        """Run a claimed job, and return its outcome."""


class HereStage:
    """Stage that runs jobs in the calling thread. Close it at the end."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.get_loop().run_until_complete(coroutine)

    async def run(self, execution: Execution, claim: Claim, task: Task[..., Any]) -> Outcome:
        if not task.is_async:
            return Variables().run(_run_plain, execution, claim, task)
        loop = self._runner.get_loop()
        return loop.run_until_complete(_start(loop, execution, claim, task))

    def close(self) -> None:
        self._runner.close()


class LoopStage:
    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    async def run(self, execution: Execution, claim: Claim, task: Task[..., Any]) -> Outcome:
        loop = asyncio.get_running_loop()
        if not task.is_async:
            call = partial(Variables().run, _run_plain, execution, claim, task)
            return await loop.run_in_executor(None, call)
        run = _start(loop, execution, claim, task)
        try:
            await asyncio.wait([run])
        finally:
            # Not awaited directly: a cancelled job returns an outcome, so awaiting it would swallow
            # a cancellation of the drain itself.
            if not run.done():
                run.cancel()
                await asyncio.wait([run])
        return run.result()


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("nothing on this stage waits for a loop")


def _run_plain(execution: Execution, claim: Claim, task: Task[..., Any]) -> Outcome:
    run = execution.prepare(claim, task)
    if not isinstance(run, Run):
        return run
    guard = ThreadGuard()
    guard.begin(run.context)
    with _limited(run, guard):
        return execution.run(run, guard)


def _start(
    loop: asyncio.AbstractEventLoop, execution: Execution, claim: Claim, task: Task[..., Any]
) -> asyncio.Task[Outcome]:
    guard = LoopGuard(loop)

    async def body() -> Outcome:
        run = execution.prepare(claim, task)
        if not isinstance(run, Run):
            return run
        guard.begin(run.context)
        with _limited(run, guard):
            return await execution.run_async(run)

    return asyncio.Task(body(), loop=loop, context=Variables())


@contextmanager
def _limited(run: Run, guard: Guard) -> Iterator[None]:
    """Interrupt the run at its time-out, by the real clock."""
    if not run.timeout_ms:
        yield
        return
    timer = Timer(run.timeout_ms / 1000, guard.interrupt, (run.context, Interruption.TIMED_OUT))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
