"""Wake-ups for callers that wait for results.

`Job.result` and `Job.aresult` enter a `ResultWaiter`, poll the job through `watch`, and wait in
their thread or on their event loop. The engine calls `notify` with the id of a job that may have
ended. `notify` wakes all callers that wait for this job, and they poll again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from windlass.engine import fork_safety

if TYPE_CHECKING:
    from windlass.app import Windlass
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
        """Read the state of jobs, and subscribe to wake-ups when they end."""
        return engine.watch(ids, self.notify)

    def notify(self, job_id: str) -> None:
        """Wake all callers that wait for a job that may have ended."""
        if job_id in self._wakers:
            with self._lock:
                wakers = list(self._wakers.get(job_id, ()))
            for wake in wakers:
                wake()

    def waiter(self, job_id: str) -> ResultWaiter:
        return ResultWaiter(self, job_id)

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
        """Do nothing: waiting callers stay in the parent."""

    def after_fork_in_parent(self) -> None:
        """Do nothing: the parent is unchanged."""

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._wakers = {}


class ResultWaiter:
    """Context manager for one thread or one coroutine that waits for one job."""

    def __init__(self, waiters: ResultWaiters, job_id: str) -> None:
        self._waiters = waiters
        self._job_id = job_id
        self._woken = threading.Event()
        self._wake_loop: Callable[[], object] | None = None
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._waiters.add(self._job_id, self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters.remove(self._job_id, self._wake)

    def _wake(self) -> None:
        self._woken.set()
        if self._wake_loop is not None:
            with suppress(RuntimeError):  # a closed loop has no coroutine left
                self._wake_loop()

    def listen(self) -> None:
        """Start to receive wake-ups. Call before a poll: the job may end right after the poll."""
        self._woken.clear()

    def wait(self, seconds: float) -> Self:
        """Return the step that waits at most `seconds` for a wake-up."""
        self._seconds = seconds
        return self

    def run(self, _app: Windlass) -> None:
        end = time.monotonic() + self._seconds
        while (left := end - time.monotonic()) > 0 and not self._woken.wait(min(left, STEP_S)):
            continue

    async def arun(self, _app: Windlass) -> None:
        import asyncio  # slow to import, and the caller has imported it already

        woken = asyncio.Event()
        self._wake_loop = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
        if not self._woken.is_set():  # a wake-up from now on reaches the loop
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await woken.wait()
