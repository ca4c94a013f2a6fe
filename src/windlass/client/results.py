"""Wake-ups for callers that wait for results.

`Job.result` and `Job.aresult` enter a `ThreadWaiter` or a `LoopWaiter`, poll the job through
`watch`, and wait. The engine calls `notify` with the id of a job that may have ended, which wakes
all callers that wait for it: they poll again.
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

#: A waiting thread runs Python bytecode at least this often, in seconds: an interruption of the
#: task arrives only between two bytecodes.
STEP_S: Final = 0.1


class ResultWaiters:
    """The waiting callers by job id. Safe for threads and event loops; empty in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: dict[str, list[Callable[[], None]]] = {}
        fork_safety.watch(self)

    def watch(self, engine: Engine, ids: Sequence[str]) -> Sequence[JobEnd | None]:
        """Read the state of jobs, and subscribe to their ends."""
        return engine.watch(ids, self.notify)

    def notify(self, job_id: str) -> None:
        """Wake the callers of a job that may have ended."""
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
        """Do nothing: calls in flight belong to the parent."""

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
        """Start to receive wake-ups: call it before a poll, or an end in between is missed."""
        self._woken.clear()

    def wait(self, seconds: float) -> None:
        """Wait for a wake-up, at most this long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._woken.wait(min(left, STEP_S)):
            continue


class LoopWaiter:
    """A context manager: one coroutine that waits for one job."""

    def __init__(self, waiters: ResultWaiters, job_id: str) -> None:
        import asyncio  # slow to import, and the caller has imported it already

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
        with suppress(RuntimeError):  # a closed loop has no coroutine left
            self._loop.call_soon_threadsafe(self._woken.set)

    def listen(self) -> None:
        """Start to receive wake-ups: call it before a poll, or an end in between is missed."""
        self._woken.clear()

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up, at most this long."""
        import asyncio  # as above

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
