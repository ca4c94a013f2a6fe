"""Long polls: requests that wait for a job, without a thread each.

1. One thread of the instance waits in the engine for all polls. Polls with the same plan are one
   group, and the engine knows one waiter per group.
2. A wake-up of a group wakes its first poll, which claims for its own session. The thread does not
   wait for the group until that claim has ended: a group makes one claim at a time.
3. A claim that got as many jobs as it may take wakes the next poll, and so does a poll that has
   left before its claim: no wake-up is lost. A claim that got nothing after a wake-up of the engine
   makes the group back off, longer each time, so that no fault makes the instance spin.
4. Every few seconds one poll claims without a wake-up, whatever the number of polls. The engine
   polls as well, so only latency depends on wake-ups.
5. `drain` ends all polls at once.

The event loop owns all state but `_waiters`, which it shares with the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import count
from logging import getLogger
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from windlass.engine.contract import Capability, Engine, EngineOptions, Plan, Waiter
from windlass.engine.url import open_engine
from windlass.errors import EngineError, EngineUnavailable
from windlass.http.problems import Problem, ProblemType
from windlass.worker.fetch.round_trip import Backoff

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.http.gateway import Gateway

log: Final = getLogger("windlass.http")

#: How long one call of the engine waits, in milliseconds.
WAIT_MS: Final = 1_000
#: How often one poll claims without a wake-up, in seconds.
FALLBACK_S: Final = 5.0
#: The back-off of a group after a claim that got nothing, in seconds: at first, and at most.
FIRST_BACKOFF_S: Final = 0.02
MOST_BACKOFF_S: Final = 1.0
#: How long the end of the thread may take, in seconds.
STOP_S: Final = 5.0


class ClaimResult(Enum):
    """What the claim after a wake-up got."""

    MORE = "more"  # as many jobs as it may take: there may be more
    SOME = "some"
    NOTHING = "nothing"


class Poll:
    """One waiting request."""

    def __init__(self, polls: LongPolls, groups: Sequence[_Group]) -> None:
        self._polls = polls
        self.groups = groups
        self.woken_by: _Group | None = None
        self._is_over = False  # the client has left
        self._wake: asyncio.Future[bool] | None = None

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a wake-up. False after the time-out, or when the poll must end."""
        if self._is_over or self._polls.is_ended or timeout_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        timer = loop.call_later(timeout_s, self.resolve, False)
        self._polls.add_waiting(self)
        try:
            return await self._wake
        finally:
            timer.cancel()
            self._polls.remove_waiting(self)

    def resolve(self, is_woken: bool) -> None:
        """End the wait: with a wake-up, or without one."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(is_woken)

    def end(self) -> None:
        """End the wait, because the client has left."""
        self._is_over = True
        self.resolve(False)

    def settle(self, result: ClaimResult) -> None:
        """Report what the claim after a wake-up got."""
        group, self.woken_by = self.woken_by, None
        if group is not None:
            self._polls.settle(group, result)

    def leave(self) -> None:
        """End the poll. If it has not claimed, its wake-up goes to the next poll."""
        self.settle(ClaimResult.MORE)
        self._polls.leave(self)


class _Group:
    """Polls with the same plan."""

    def __init__(self, plan: Plan, session: str) -> None:
        self.plan = plan
        self.waiter = Waiter(session, plan)
        self.members = 0  # polls that wait or claim
        self.waiting: dict[Poll, None] = {}  # waiting polls, in the order of their arrival
        self.is_claiming = False
        self.is_chained = False  # the claim follows another one, and not a wake-up of the engine
        self.backoff = Backoff(FIRST_BACKOFF_S, MOST_BACKOFF_S)
        self.backoff_timer: asyncio.TimerHandle | None = None

    @property
    def should_wait(self) -> bool:
        """Whether the engine should wake this group."""
        return bool(self.waiting) and not self.is_claiming and self.backoff_timer is None


class LongPolls:
    """All long polls of an instance."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._name = f"gateway.{token_hex(8)}"
        self._numbers = count(1)
        self._groups: dict[Plan, _Group] = {}
        self._sessions: dict[str, _Group] = {}  # by the session of its waiter
        self._polls: set[Poll] = set()
        self._lock = Lock()
        self._waiters: dict[str, Waiter] = {}  # by their session
        self._thread: _WaiterThread | None = None
        self._fallback: asyncio.TimerHandle | None = None
        self._drain_watch: asyncio.Task[None] | None = None
        self.is_ended = False

    @property
    def number(self) -> int:
        return len(self._polls)

    @property
    def is_full(self) -> bool:
        """Whether no more polls may wait."""
        return len(self._polls) >= self._gateway.options.max_waiters

    @property
    def engine_error(self) -> EngineUnavailable | None:
        """The error while the engine does not answer the waiting thread."""
        return None if self._thread is None else self._thread.engine_error

    def enter(self, plans: Iterable[Plan]) -> Poll:
        """Begin a poll for jobs of any of these plans."""
        if self.is_full:
            most = self._gateway.options.max_waiters
            raise Problem(
                ProblemType.OVERLOADED,
                f"{most} long polls wait at this instance, which is its limit. Send the request "
                "again later, or to another instance.",
            )
        self._start()
        poll = Poll(self, [self._group_of(plan) for plan in plans])
        self._polls.add(poll)
        return poll

    def leave(self, poll: Poll) -> None:
        if poll not in self._polls:
            return
        self._polls.remove(poll)
        for group in poll.groups:
            group.members -= 1
            if not group.members:
                self._drop(group)

    def end(self) -> None:
        """End all polls, and admit no more waits."""
        self.is_ended = True
        for poll in list(self._polls):
            poll.resolve(False)
        if self._fallback is not None:
            self._fallback.cancel()

    def close(self) -> None:
        """End the thread. Called after `end`, by any thread."""
        if self._thread is not None:
            self._thread.stop()

    # ------------------------------------------------------------------------------ waiting polls

    def add_waiting(self, poll: Poll) -> None:
        for group in poll.groups:
            group.waiting[poll] = None
            self._refresh(group)

    def remove_waiting(self, poll: Poll) -> None:
        for group in poll.groups:
            if poll in group.waiting:
                del group.waiting[poll]
                self._refresh(group)

    def wake(self, session: str) -> None:
        """Let the first poll of a group claim."""
        group = self._sessions.get(session)
        if group is not None and group.should_wait:
            self._wake_next(group)

    def settle(self, group: _Group, result: ClaimResult) -> None:
        group.is_claiming = False
        if result is not ClaimResult.NOTHING:
            group.backoff.reset()
            if result is ClaimResult.MORE and group.waiting:
                self._wake_next(group, is_chained=True)
        elif not group.is_chained:
            self._back_off(group)
        self._refresh(group)

    def _wake_next(self, group: _Group, *, is_chained: bool = False) -> None:
        poll = next(iter(group.waiting))
        group.is_claiming, group.is_chained = True, is_chained
        poll.woken_by = group
        self.remove_waiting(poll)
        self._refresh(group)
        poll.resolve(True)

    def _back_off(self, group: _Group) -> None:
        loop = asyncio.get_running_loop()
        group.backoff_timer = loop.call_later(group.backoff.next_s(), self._end_backoff, group)

    def _end_backoff(self, group: _Group) -> None:
        group.backoff_timer = None
        self._refresh(group)

    def _wake_fallback(self) -> None:
        """Let one poll claim without a wake-up, of another group each time."""
        self._fallback = asyncio.get_running_loop().call_later(FALLBACK_S, self._wake_fallback)
        for group in list(self._groups.values()):
            if group.should_wait:
                self._groups[group.plan] = self._groups.pop(group.plan)  # to the end
                self._wake_next(group)
                return

    def _group_of(self, plan: Plan) -> _Group:
        group = self._groups.get(plan)
        if group is None:
            group = _Group(plan, f"{self._name}.{next(self._numbers)}")
            self._groups[plan] = group
            self._sessions[group.waiter.session] = group
        group.members += 1
        return group

    def _drop(self, group: _Group) -> None:
        if group.backoff_timer is not None:
            group.backoff_timer.cancel()
            group.backoff_timer = None
        del self._groups[group.plan]
        del self._sessions[group.waiter.session]
        self._refresh(group)

    def _refresh(self, group: _Group) -> None:
        """Tell the thread whether to wait for a group."""
        session = group.waiter.session
        with self._lock:
            if group.should_wait == (session in self._waiters):
                return
            if group.should_wait:
                self._waiters[session] = group.waiter
            else:
                del self._waiters[session]
        if self._thread is not None:
            self._thread.nudge()

    # ----------------------------------------------------------------------------- the background

    def _start(self) -> None:
        if self._thread is not None:
            return
        loop = asyncio.get_running_loop()
        self._thread = _WaiterThread(self, loop, *_engine_of(self._gateway.app))
        self._thread.start()
        self._gateway.on_close(self.close)
        self._drain_watch = loop.create_task(self._watch_drain())
        self._fallback = loop.call_later(FALLBACK_S, self._wake_fallback)

    async def _watch_drain(self) -> None:
        await self._gateway.until_draining()
        self.end()

    def take_waiters(self) -> list[Waiter]:
        """The waiters of all idle groups. Called by the thread."""
        with self._lock:
            return list(self._waiters.values())

    def take_woken(self, sessions: Sequence[str]) -> None:
        """Note woken groups at once: the event loop gets to them a moment later, and the engine
        would wake them again until then. Called by the thread."""
        with self._lock:
            for session in sessions:
                self._waiters.pop(session, None)

    def wake_all(self, sessions: Sequence[str]) -> None:
        """Wake the groups that the engine has woken."""
        for session in sessions:
            self.wake(session)
            group = self._sessions.get(session)
            if group is not None:  # also when no poll was left to wake
                self._refresh(group)


class _WaiterThread:
    """The thread that waits in the engine."""

    def __init__(
        self, polls: LongPolls, loop: asyncio.AbstractEventLoop, engine: Engine, is_own: bool
    ) -> None:
        self._polls = polls
        self._loop = loop
        self._engine = engine
        self._is_own = is_own
        self._lock = Lock()
        self._has_ended = False
        self._is_stopping = Event()
        self._has_changed = Event()
        self.engine_error: EngineUnavailable | None = None
        self._thread = Thread(target=self._run, name="windlass-long-polls", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self.nudge()
        self._thread.join(STOP_S)

    def nudge(self) -> None:
        """Let the thread read the waiters again. After its end do nothing: the descriptor of the
        engine may be reused."""
        self._has_changed.set()
        with self._lock:
            if not self._has_ended:
                self._engine.nudge()

    def _run(self) -> None:
        backoff = Backoff(0.05, 1.0)
        while not self._is_stopping.is_set():
            try:
                self._wait()
                backoff.reset()
                self.engine_error = None
                continue
            except EngineUnavailable as error:
                if self.engine_error is None:
                    log.warning("lost connection to engine, long polls wait: %s", error)
                self.engine_error = error
            except Exception:
                log.exception("waiting for jobs failed, trying again")
            self._is_stopping.wait(backoff.next_s())
        self._end()

    def _wait(self) -> None:
        self._has_changed.clear()
        waiters = self._polls.take_waiters()
        woken = self._engine.wait(waiters, WAIT_MS if waiters else 0)
        sessions = [wake_up.session for wake_up in woken]
        if sessions:
            self._polls.take_woken(sessions)
            with suppress(RuntimeError):  # the event loop has been closed
                self._loop.call_soon_threadsafe(self._polls.wake_all, sessions)
        elif not waiters:
            self._has_changed.wait()

    def _end(self) -> None:
        with suppress(EngineError):  # then the registration expires
            self._engine.wait([], 0)
        with self._lock:
            self._has_ended = True
        if self._is_own:
            self._engine.shutdown()


def _engine_of(app: Windlass) -> tuple[Engine, bool]:
    """An engine object for the thread, and whether it is its own: only one thread may wait with an
    object. An engine in memory has only one object."""
    engine = app.engine
    if app.is_in_sandbox or Capability.MANY_PROCESSES not in engine.capabilities:
        return engine, False
    settings = app.settings
    options = EngineOptions(
        lease_ms=settings.lease_ms,
        dead_ttl_ms=settings.dead_ttl_ms,
        timeout_ms=settings.enqueue_timeout_ms,
        has_own_connections=True,
    )
    own = open_engine(settings.url, options)
    own.clock_offset_ms = engine.clock_offset_ms
    return own, True
