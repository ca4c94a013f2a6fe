"""The callers of one app that wait for jobs to end.

`Job.result` and its twin for coroutines enter a `ThreadWaiter` or a `LoopWaiter` here, look at the
job through `watch`, and wait to be woken. The engine calls `notify` with the id of a job that may
have ended, which wakes all callers that wait for it: they look again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from windlass.engine import fork_safety

if TYPE_CHECKING:
    from windlass.engine.contract import Engine, JobEnd

#: A thread that waits runs a step of Python at least this often, in seconds: an interruption of the
#: task that waits arrives between two steps.
STEP_S: Final = 0.1


class ResultWaiters:
    """Safe to use from many threads and loops. A forked child begins without waiters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: dict[str, list[Callable[[], None]]] = {}
        fork_safety.watch(self)

    def watch(self, engine: Engine, ids: Sequence[str]) -> Sequence[JobEnd | None]:
        """Look at jobs, and hear of their ends from then on."""
        return engine.watch(ids, self.notify)

    def notify(self, job_id: str) -> None:
        """A job may have ended."""
        if job_id in self._wakers:
            with self._lock:
                wakers = list(self._wakers.get(job_id, ()))
            for wake in wakers:
                wake()

    def in_thread(self, job_id: str) -> ThreadWaiter:
        return ThreadWaiter(self, job_id)

    def in_loop(self, job_id: str) -> LoopWaiter:
        return LoopWaiter(self, job_id)

    def add(self, job_id: str, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wakers.setdefault(job_id, []).append(wake)

    def remove(self, job_id: str, wake: Callable[[], None]) -> None:
        with self._lock:
            wakers = self._wakers.get(job_id, [])
            if wake in wakers:
                wakers.remove(wake)
            if not wakers:
                self._wakers.pop(job_id, None)

    def before_fork(self) -> None:
        """Nothing: what is under way is the parent's."""

    def after_fork_in_parent(self) -> None:
        """Nothing has changed."""

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._wakers = {}


class ThreadWaiter:
    """A context manager: one thread that waits for one job."""

    def __init__(self, waiters: ResultWaiters, job_id: str) -> None:
        self._waiters = waiters
        self._job_id = job_id
        self._woken = threading.Event()

    def __enter__(self) -> Self:
        self._waiters.add(self._job_id, self._woken.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters.remove(self._job_id, self._woken.set)

    def listen(self) -> None:
        """From now on be woken: called before a look, so that no end falls in between."""
        self._woken.clear()

    def wait(self, seconds: float) -> None:
        """Until woken, or for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._woken.wait(min(left, STEP_S)):
            continue


class LoopWaiter:
    """A context manager: one coroutine that waits for one job."""

    def __init__(self, waiters: ResultWaiters, job_id: str) -> None:
        import asyncio  # slow to import, and here already loaded by the coroutine that waits

        self._waiters = waiters
        self._job_id = job_id
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        self._waiters.add(self._job_id, self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters.remove(self._job_id, self._wake)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # a loop that is closed has no coroutine left
            self._loop.call_soon_threadsafe(self._woken.set)

    def listen(self) -> None:
        """From now on be woken: called before a look, so that no end falls in between."""
        self._woken.clear()

    async def wait(self, seconds: float) -> None:
        """Until woken, or for so long."""
        import asyncio  # as above

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
