"""Where jobs run that are drained: here, or on the event loop that is running.

Both take the same steps as the runners of a worker (an empty set of context variables, a guard that
the time-out goes through, the execution itself) and differ in what a worker has for each kind of
task, a thread or an event loop:

1. `HereStage`, for `drain`: plain functions run in the calling thread, where a test has what
   belongs to a thread, as the connection of its database; coroutines on a loop of its own. No loop
   runs around a plain function, as none does in a worker.
2. `LoopStage`, for `adrain`: coroutines run on the loop of the test, where its connections are;
   plain functions in a thread, for no function may see a running loop around it.

The work between two jobs is written once, as a coroutine. On a `HereStage` it never waits, and
`complete` runs it to its end without a loop.
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
        """Something that needs the event loop."""

    async def run(self, execution: Execution, claim: Claim, task: Task[..., Any]) -> Outcome:
        """A job."""


class HereStage:
    """To be closed at the end."""

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
            # Not awaited directly: a job that is cancelled ends in an outcome like any other, and
            # then nobody would know that whoever drains was cancelled.
            if not run.done():
                run.cancel()
                await asyncio.wait([run])
        return run.result()


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that waits for nothing."""
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
    """Interrupt the run when its time is over, by a real clock."""
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
