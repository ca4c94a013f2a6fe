"""The waiter of a worker: one thread that waits in the engine for all of its idle children.

1. An idle child reports that it is idle, with a nonce if a put may claim under it for the child.
2. The waiter waits for all idle children at once, with one call of the engine that is renewed about
   once a second.
3. The waiter wakes a child on its socket, with the job if one was handed off. The child reports
   again when it is idle.
4. The supervisor waits too, for jobs that must run alone, and starts a child for them.
5. Every few seconds the waiter wakes one idle child. That child adopts jobs that were put aside,
   and finds jobs after a lost wake-up.
6. While the worker is quiet, the waiter waits for no child, so that other workers get the wake-ups.
7. After each reply of the engine the waiter notes the time in the shared memory of the idle
   children. A child that finds no note for a while claims by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from threading import Event, Lock, Thread
from time import monotonic
from typing import Protocol

from windlass.engine.contract import Engine, Plan, Waiter, WakeUp
from windlass.errors import EngineError, EngineUnavailable
from windlass.worker.fetch.round_trip import Backoff
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import LOOK, WakeSender
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: How long one call of the engine waits, in seconds.
WAIT_S = 1.0
#: How often to wake one idle child without a known job, in seconds.
REMIND_S = 5.0
#: How long the supervisor does not wait after finding jobs that must run alone, in seconds.
SUSPECTS_S = 1.0
#: The session under which the supervisor waits.
SUPERVISOR = ""


class IdleChild(Protocol):
    """A child that can be idle."""

    table: SlotTable
    wakes: WakeSender

    def is_running(self) -> bool: ...


class WorkerWaiter:
    """Wait for jobs on behalf of idle children. `suspects` is the plan of the supervisor's own
    wait. Without a plan the supervisor does not wait, and `on_suspects` is never called."""

    def __init__(
        self,
        engine: Engine,
        suspects: Plan | None = None,
        on_suspects: Callable[[], None] | None = None,
        *,
        ends_engine: bool = True,
    ) -> None:
        self._engine = engine
        self._suspects = suspects
        self._on_suspects = on_suspects
        self._ends_engine = ends_engine
        self._lock = Lock()
        self._idle: dict[str, tuple[IdleChild, Waiter]] = {}  # by session
        self._suspects_at = 0.0
        self._remind_at = 0.0
        self._is_quiet = False
        self._is_stopping = False
        self._has_ended = False
        self._is_refused = False  # the refusal was logged
        self._retrying = Event()  # set to end the back-off
        self._thread = Thread(target=self._run, name="waiter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._is_stopping = True
        self._retrying.set()
        self._nudge()
        self._thread.join(timeout_s)

    def rest(self, child: IdleChild, waiter: Waiter) -> None:
        """Wait on behalf of an idle child. Thread-safe, as is `leave`."""
        with self._lock:
            self._idle[waiter.session] = (child, waiter)
        self._nudge()

    def leave(self, session: str) -> None:
        """Stop waiting for a child that is busy or gone."""
        with self._lock:
            is_known = self._idle.pop(session, None) is not None
        if is_known:
            self._nudge()

    def set_quiet(self, is_quiet: bool) -> None:
        """Wait for no jobs while the worker is quiet. Thread-safe."""
        self._is_quiet = is_quiet
        self._nudge()

    def _nudge(self) -> None:
        """End the wait in the engine. After the end do nothing: its descriptor may be reused."""
        with self._lock:
            if not self._has_ended:
                self._engine.nudge()

    # ---------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        trouble = Backoff(0.05, 1.0)
        while not self._is_stopping:
            try:
                self._wait()
                trouble.reset()
                self._is_refused = False
                continue
            except EngineUnavailable as error:  # the children log the outage
                log.debug(LogEvent.WAITER_ENGINE_AWAY, error)
            except EngineError as error:
                if not self._is_refused:
                    log.warning(LogEvent.WAITER_REFUSED, error)
                self._is_refused = True
            except Exception:
                log.exception(LogEvent.WAITER_FAILED)
            self._retrying.wait(trouble.next_s())
        self._end()

    def _wait(self) -> None:
        waiters = self._waiters()
        woken = self._engine.wait(waiters, round(WAIT_S * 1000))
        plans = {waiter.session: waiter.plan for waiter in waiters} if woken else {}
        for wake_up in woken:
            self._wake(wake_up, plans.get(wake_up.session))
        now = monotonic()
        with self._lock:
            idle = list(self._idle.values())
        for child, _ in idle:
            child.table.note_wait(now)
        self._remind(idle, now)

    def _waiters(self) -> list[Waiter]:
        """Return the waits of idle children. Children stopped by a signal cannot run jobs."""
        if self._is_quiet:
            return []
        with self._lock:
            idle = list(self._idle.values())
        waiters = [waiter for child, waiter in idle if child.is_running()]
        if self._suspects is not None and monotonic() >= self._suspects_at:
            waiters.insert(0, Waiter(SUPERVISOR, self._suspects))
        return waiters

    def _wake(self, wake_up: WakeUp, plan: Plan | None) -> None:
        """Wake a child. If that child is gone or busy, wake another child with the same plan."""
        with self._lock:
            found = self._idle.pop(wake_up.session, None)
            if found is None and not wake_up.handed:
                found = self._pop_with(plan)
        if found is not None:
            found[0].wakes.send(wake_up.handed or LOOK)
        elif wake_up.session == SUPERVISOR and self._on_suspects is not None:
            self._suspects_at = monotonic() + SUSPECTS_S
            self._on_suspects()

    def _pop_with(self, plan: Plan | None) -> tuple[IdleChild, Waiter] | None:
        for session, (child, waiter) in self._idle.items():
            if waiter.plan == plan and child.is_running():
                return self._idle.pop(session)
        return None

    def _remind(self, idle: list[tuple[IdleChild, Waiter]], now: float) -> None:
        if idle and now >= self._remind_at and not self._is_quiet:
            self._remind_at = now + REMIND_S
            self._wake(WakeUp(idle[0][1].session), None)

    def _end(self) -> None:
        """Cancel the wait in the engine."""
        with suppress(EngineError):  # then the registration expires
            self._engine.wait([], 0)
        with self._lock:
            self._has_ended = True
        if self._ends_engine:
            self._engine.shutdown()
