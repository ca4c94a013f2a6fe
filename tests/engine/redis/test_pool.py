"""The connection pool: limits, order, and that no interrupt loses a connection."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from tests.worker.yard import until
from windlass.engine.contract import Beat, EngineOptions, PutCode
from windlass.engine.redis.client.pool import MOST_CALLS, Pool, TimeBudget
from windlass.engine.redis.client.scripts import pack
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.url import read_address
from windlass.errors import EngineUnavailable


def test_who_gets_no_turn_says_why(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(server.url(), timeout_ms=200)
    engine.put([new_job()])
    pool = engine._server._pool
    for _ in range(2):  # the second time, all connections are free again
        links = [pool.acquire(0) for _ in range(MOST_CALLS)]
        with pytest.raises(EngineUnavailable, match="all 3 connections of this process are busy"):
            engine.put([new_job(1)])
        for link in links:
            pool.release(link)
        assert engine.put([new_job(1)])[0].code is PutCode.CREATED


def test_connections_of_its_own_wait_for_no_other_call(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    """Heartbeats are sent while all connections of the process are busy, over one connection."""
    url = server.url()
    engine = open_redis(url, timeout_ms=2_000)
    engine.put([new_job()])
    options = EngineOptions(timeout_ms=2_000, has_own_connections=True)
    apart = RedisEngine(read_address(url), options)
    pool = engine._server._pool
    links = [pool.acquire(0) for _ in range(MOST_CALLS)]
    for _ in range(3):
        assert [pulse.alive for pulse in apart.beat([Beat(session="session")])] == [True]
    assert len(apart._server._pool._idle) == 1
    for link in links:
        pool.release(link)
    apart.shutdown()


def test_a_connection_tells_whether_the_server_has_answered(server: RedisServer) -> None:
    """The reply to the login counts."""
    pool = Pool(read_address(f"redis://127.0.0.1:{server.port}/0"))
    link = pool.connect(2)
    assert not link.has_answered
    link.send([pack(b"TIME")], 2, budget := TimeBudget(pool, 0, 2))
    link.read(budget)
    assert link.has_answered
    link.disconnect()
    link = Pool(read_address(server.url())).connect(2)
    assert link.has_answered
    link.disconnect()


def test_turns_come_in_the_order_of_asking(server: RedisServer, open_redis: OpenRedis) -> None:
    """Otherwise a caller in a loop would take each connection before the waiter is awake."""
    engine = open_redis(server.url(), timeout_ms=20_000)
    engine.put([new_job()])
    pool = engine._server._pool
    links = [pool.acquire(0) for _ in range(MOST_CALLS)]
    assert links[0] is not None
    links[0].was_idle = True
    with ThreadPoolExecutor(2) as waiters:
        first = waiters.submit(pool.acquire, 20)
        until(lambda: len(pool._waiting) == 1, "the first waits")
        second = waiters.submit(pool.acquire, 20)
        until(lambda: len(pool._waiting) == 2, "the second waits")
        pool.release(links[0])
        with pytest.raises(TimeoutError, match="are busy"):
            pool.acquire(0)
        assert first.result(20) is links[0]
        assert not links[0].was_idle
        assert not second.done()
        pool.release(links[1])
        assert second.result(20) is links[1]
    for _ in range(2):  # the second time, all connections are free again
        for link in links:
            pool.release(link)
        links = [pool.acquire(0) for _ in range(MOST_CALLS)]
    for link in links:
        pool.release(link)


def test_a_waiter_that_is_interrupted_takes_no_turn(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    pool = open_redis(server.url())._server._pool
    links = [pool.acquire(0) for _ in range(MOST_CALLS)]

    def interrupt() -> None:
        until(lambda: pool._waiting, "a caller waits")
        signal.pthread_kill(main.ident or 0, signal.SIGINT)

    main = threading.current_thread()
    interrupting = threading.Thread(target=interrupt)
    # A shell that runs the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            pool.acquire(20)
        interrupting.join()
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(2):  # the second time, all connections are free again
        for link in links:
            pool.release(link)
        links = [pool.acquire(0) for _ in range(MOST_CALLS)]
    for link in links:
        pool.release(link)


class Interrupted(BaseException):
    """An exception that a signal handler raises."""


#: Signal handlers run after calls and at the beginning of functions, and not between two lines
#: without a call. The pool cannot handle one at the very beginning of `release`.
NEVER_BEFORE = (
    "with ",
    "try:",
    "is_ended, ",
    "is_ended = ",
    "is_begun = ",
    "request.is_granted = ",
)


class Interrupter:
    """Raise before one of the pool's lines that a call reaches, other than those where no signal is
    handled or nothing was begun."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.was_met = False
        self._lines = inspect.getsource(sys.modules[Pool.__module__]).splitlines()

    def run(self, call: Callable[[], object]) -> None:
        sys.settrace(self._enter)
        try:
            call()
        except (Interrupted, TimeoutError):
            pass
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        is_pool = frame.f_globals["__name__"] == Pool.__module__
        return self._step if is_pool and not self.was_met else None

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        line = self._lines[frame.f_lineno - 1].strip()
        if event == "line" and not line.startswith(NEVER_BEFORE):
            self.number -= 1
            if self.number < 0 and not self.was_met:
                self.was_met = True
                raise Interrupted
        return self._step


class UnconnectedLink:
    was_idle = False

    def has_ended(self) -> bool:
        """Asked only on a slow machine, where the link was idle for a moment."""
        return False

    def disconnect(self) -> None:
        """There is nothing to close."""


def new_pool() -> Pool:
    """A pool with an idle connection."""
    pool = Pool(read_address("redis://127.0.0.1:1/0"))
    link: Any = UnconnectedLink()
    pool.acquire(0)
    pool.release(link)
    return pool


def begin_and_end(pool: Pool, interrupter: Interrupter) -> None:
    interrupter.run(lambda: pool.release(pool.acquire(0)))


def time_out(pool: Pool, interrupter: Interrupter) -> None:
    links = [pool.acquire(0) for _ in range(MOST_CALLS)]
    interrupter.run(lambda: pool.acquire(0))
    for link in links:
        pool.release(link)


def hand_over(pool: Pool, interrupter: Interrupter) -> None:
    first, *others = [pool.acquire(0) for _ in range(MOST_CALLS)]
    waiter = threading.Thread(target=lambda: pool.release(pool.acquire(20)))
    waiter.start()
    until(lambda: pool._waiting, "a caller waits")
    interrupter.run(lambda: pool.release(first))
    waiter.join()
    for link in others:
        pool.release(link)


@pytest.mark.parametrize(("scene", "least"), [(begin_and_end, 15), (time_out, 8), (hand_over, 7)])
def test_no_turn_is_lost_wherever_a_signal_interrupts(
    scene: Callable[[Pool, Interrupter], None], least: int
) -> None:
    for number in range(100):
        pool, interrupter = new_pool(), Interrupter(number)
        scene(pool, interrupter)
        assert (pool._free, len(pool._waiting)) == (MOST_CALLS, 0), number
        assert not pool._lock.locked()
        if not interrupter.was_met:
            break
    assert least <= number < 99  # this many lines were tried, and then all
