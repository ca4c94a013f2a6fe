"""Faults between an engine and its server, made by a proxy: every call ends in time, with success
or as unavailable, and the next one finds consistent data."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Final

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.proxy import Proxy, Side, Then
from tests.redis_server import RedisServer, private_server
from tests.soon import is_once
from tests.worker.yard import until
from windlass import EngineUnavailable, Windlass
from windlass.core.ids import new_id
from windlass.engine.contract import (
    Beat,
    NewJob,
    Placed,
    Plan,
    PutCode,
    QueueChange,
    Waiter,
)
from windlass.engine.redis import wakeup
from windlass.engine.redis.client import pool as pool_module
from windlass.engine.redis.client import server as server_module
from windlass.engine.redis.client.pool import MOST_CALLS
from windlass.engine.redis.client.scripts import pack
from windlass.engine.redis.keys import key
from windlass.errors import EngineError
from windlass.testing.contract.world import claim_jobs

OUTAGES: Final[dict[str, Callable[[Proxy], None]]] = {
    "refused": Proxy.refuse,
    "frozen": Proxy.freeze,
    "vanished": Proxy.vanish,
}


def seconds_of(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


# ---------------------------------------------------------------------------------- deadlines


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("is_warm", [True, False], ids=["connected", "not connected"])
def test_a_call_in_an_outage_fails_in_its_time(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, outage: str, is_warm: bool
) -> None:
    engine = open_redis(server.url(port=proxy.port), timeout_ms=400)
    if is_warm:
        engine.put([new_job()])
    OUTAGES[outage](proxy)
    started = time.monotonic()
    with pytest.raises(EngineUnavailable, match="Check that it runs and can be reached"):
        engine.put([new_job(1)])
    assert 0.1 < time.monotonic() - started < 3.0
    proxy.heal()
    assert engine.put([new_job(1)])[0].code is PutCode.CREATED


@pytest.mark.parametrize("way", ["enqueue", "aenqueue"])
@pytest.mark.parametrize(
    ("outage", "is_warm", "note"),
    [
        (Proxy.refuse, False, "Job {id} was not stored"),
        (Proxy.freeze, True, "Job {id} may or may not have been stored"),
    ],
    ids=["never sent", "sent"],
)
def test_an_enqueue_in_an_outage_says_what_is_known(
    server: RedisServer,
    proxy: Proxy,
    outage: Callable[[Proxy], None],
    is_warm: bool,
    note: str,
    way: str,
) -> None:
    with Windlass(server.url(port=proxy.port), enqueue_timeout=0.4) as app:
        task = app.task(name="nothing")(nothing)
        if is_warm:
            for _ in range(2):  # the first may send scripts, after which the next sets up again
                task.enqueue()
        outage(proxy)
        with pytest.raises(EngineUnavailable) as caught:
            task.enqueue() if way == "enqueue" else asyncio.run(task.aenqueue())
        [told] = caught.value.__notes__
        assert re.match(note.format(id="[0-9a-z]{26}"), told)
        assert caught.value.unsent is not is_warm
        proxy.heal()


def test_a_call_on_connections_that_break_may_have_been_sent(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """The server may have executed the call before the connection broke."""
    engine = open_redis(server.url(port=proxy.port), timeout_ms=400)
    for number in range(2):  # the first may send scripts, after which the next sets up again
        engine.put([new_job(number)])
    proxy.wear_out(1)
    with pytest.raises(EngineUnavailable, match="reset by peer") as caught:
        engine.put([new_job(2)])
    assert not caught.value.unsent


def test_a_call_before_which_the_setup_fails_was_not_sent(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    engine = open_redis(server.url(port=proxy.port), timeout_ms=400)
    proxy.cut(Side.REPLIES, len(b"+OK\r\n"), Then.FREEZE)  # after the reply to the login
    with pytest.raises(EngineUnavailable, match="Timeout") as caught:
        engine.put([new_job()])
    assert caught.value.unsent


def test_a_put_that_stored_some_of_its_jobs_was_sent(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue with settings takes a second call, before which the connections are refused. The
    first call stores the jobs of partitions without such a queue."""
    monkeypatch.setattr(pool_module, "IDLE_AFTER_S", 0.0)
    engine = open_redis(server.url(port=proxy.port, partitions=2), timeout_ms=400)
    engine.change_queue("small", QueueChange(max_waiting=10))
    put_any = engine._put_any

    def put_refused(jobs: Sequence[NewJob]) -> list[Placed]:
        proxy.refuse()
        until(lambda: proxy.living == 0, "the end of its connections")
        return put_any(jobs)

    monkeypatch.setattr(engine, "_put_any", put_refused)
    first, second = new_id(0, partition=0), new_id(0, partition=1)
    for queue, is_stored in {"small": False, "other": True}.items():
        jobs = [new_job(id=first, queue=queue), new_job(id=second, queue="small")]
        with pytest.raises(EngineUnavailable, match="Connection refused") as caught:
            engine.put(jobs)
        assert caught.value.unsent is not is_stored
        proxy.heal()
        assert (engine.get([first]) != [None]) is is_stored


def test_a_server_that_answered_is_not_suspected_of_tls(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """Each connection breaks after the reply to its login."""
    engine = open_redis(server.url(port=proxy.port), timeout_ms=400)
    proxy.wear_out(60)
    with pytest.raises(EngineUnavailable, match="reset by peer") as caught:
        engine.put([new_job()])
    assert "rediss://" not in str(caught.value)


@pytest.mark.parametrize("way", ["enqueue", "aenqueue"])
def test_an_enqueue_that_every_connection_refuses_was_not_sent(
    server: RedisServer, proxy: Proxy, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the process has connections from before the outage."""
    monkeypatch.setattr(pool_module, "IDLE_AFTER_S", 0.0)
    with Windlass(server.url(port=proxy.port), enqueue_timeout=0.4) as app:
        task = app.task(name="nothing")(nothing)
        task.enqueue()
        proxy.refuse()
        until(lambda: proxy.living == 0, "the end of its connections")
        with pytest.raises(EngineUnavailable, match="Connection refused") as caught:
            task.enqueue() if way == "enqueue" else asyncio.run(task.aenqueue())
        assert caught.value.unsent
        assert re.match("Job [0-9a-z]{26} was not stored", caught.value.__notes__[0])
        proxy.heal()


def test_an_enqueue_in_an_outage_fails_after_five_seconds(server: RedisServer) -> None:
    """With the default settings of an app; all outages at once, to save time."""

    def measure(app: Windlass) -> float:
        task = app.task(name="task")(nothing)
        started = time.monotonic()
        with pytest.raises(EngineUnavailable, match=r"did not answer for .* Check that it runs"):
            task.enqueue()
        return time.monotonic() - started

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        measured = []
        for outage in OUTAGES.values():
            for is_warm in (True, False):
                proxy = stack.enter_context(Proxy(server.port))
                app = stack.enter_context(Windlass(server.url(port=proxy.port)))
                if is_warm:
                    app.engine.stats()
                outage(proxy)
                measured.append(pool.submit(measure, app))
        assert all(4.0 < seconds.result() < 9.0 for seconds in measured), measured


def nothing() -> None:
    """A task."""


def test_one_outage_after_another_shares_the_time(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """The server refuses connections for most of the time, then accepts one and does not answer: in
    the handshake, because the url names a database."""
    url = server.url(port=proxy.port).replace("/0?", "/3?")
    engine = open_redis(url, timeout_ms=1_500)
    proxy.refuse()
    freezing = threading.Timer(1.0, proxy.freeze)
    freezing.start()
    started = time.monotonic()
    with pytest.raises(EngineUnavailable):
        engine.put([new_job()])
    assert 1.1 < time.monotonic() - started < 2.4  # otherwise 2.5 s
    freezing.join()


def test_opening_a_server_shares_the_time_of_the_call(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """The call itself is the third round trip of 0.3 s, and there is time for two."""
    open_redis(server.url()).put([new_job()])  # from here on the server has the scripts
    engine = open_redis(server.url(port=proxy.port), timeout_ms=750)
    proxy.delay(0.15)
    started = time.monotonic()
    with pytest.raises(EngineUnavailable):
        engine.put([new_job()])
    assert time.monotonic() - started < 3.0


def test_a_caller_without_an_answer_connects_again(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """Before the kernel retries for the first time, after a second."""

    def is_answered_soon() -> bool:
        engine = open_redis(server.url(port=proxy.port), timeout_ms=1_200)
        proxy.vanish()
        healing = threading.Timer(0.1, proxy.heal)
        healing.start()
        try:
            return seconds_of(lambda: engine.put([new_job()])) < 0.9
        except EngineUnavailable:
            return False
        finally:
            healing.join()

    assert is_once(is_answered_soon)


@pytest.mark.parametrize("after_bytes", [0, 1, 3])
def test_a_connection_that_was_cut_without_a_word_costs_half_the_time(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, after_bytes: int
) -> None:
    engine = open_redis(server.url(port=proxy.port), timeout_ms=2_000)
    for _ in range(2):
        engine.put([new_job()])
    proxy.cut(Side.REPLIES, after_bytes, Then.HOLD)
    seconds = seconds_of(lambda: engine.put([new_job(1)]))
    assert proxy.cuts == 1
    assert 0.8 < seconds < 2.0
    assert engine.stats().totals == {"enqueued": 2}


def test_replies_that_come_slowly_share_the_time(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """Each of four replies comes within the timeout of a call, but not all of them together."""
    engine = open_redis(server.url(port=proxy.port, partitions=4), timeout_ms=600)
    beats = [Beat(session="unknown")]
    for _ in range(2):
        engine.beat(beats)
    proxy.drip(len(b"*1\r\n*1\r\n:1\r\n"), 0.2)
    started = time.monotonic()
    with pytest.raises(EngineUnavailable):
        engine.beat(beats)
    assert time.monotonic() - started < 3.0


def test_a_reply_that_comes_byte_by_byte_is_given_up(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """Each byte comes within the timeout of a step; only whole pieces count as progress."""
    engine = open_redis(server.url(port=proxy.port), timeout_ms=600)
    for _ in range(2):
        engine.put([new_job()])
    proxy.drip(1, 0.1)
    started = time.monotonic()
    with pytest.raises(EngineUnavailable):
        engine.get(["job-000000"])
    assert time.monotonic() - started < 2.0


# -------------------------------------------------------------------------------- connections


def test_replies_that_were_under_way_are_taken_for_no_others(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Four calls go out together; the first reply is an error, and the others still come."""
    engine = open_redis(own_server.url(namespace="damaged", partitions=4))
    engine.put([new_job(number) for number in range(12)])
    for _ in range(2):
        engine.stats()
    damaged = key("damaged", 0, "total")
    own_server.tell("RENAME", damaged, "aside")
    own_server.tell("SET", damaged, "nonsense")
    for _ in range(5):
        with pytest.raises(EngineError, match="WRONGTYPE"):
            engine.stats()
    own_server.tell("DEL", damaged)
    own_server.tell("RENAME", "aside", damaged)
    for number in range(12):
        [record] = engine.get([f"job-{number:06d}"])
        assert record is not None
        assert record.id == f"job-{number:06d}"
    assert engine.stats().totals == {"enqueued": 12}


def test_a_process_has_at_most_four_connections(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """Two engine objects, as in a worker's child, and many threads; one thread waits for work.
    Every reply is delayed, so that there are always more calls than connections."""
    url = server.url(port=proxy.port)
    first, second = open_redis(url), open_redis(url)
    proxy.delay(0.01)
    is_over = threading.Event()

    def load(number: int) -> None:
        engine = (first, second)[number % 2]
        while not is_over.is_set():
            engine.put([new_job(number)])
            if number == 0:
                engine.wait([Waiter("worker", Plan(queues=("none",)))], 500)

    with ThreadPoolExecutor(12) as callers:
        loads = [callers.submit(load, number) for number in range(12)]
        try:
            until(lambda: proxy.living >= MOST_CALLS + 1, "all that it may open are open")
            assert {proxy.living for _ in _moments(0.5)} == {MOST_CALLS + 1}
        finally:
            is_over.set()
    for each in loads:
        each.result()


def _moments(seconds: float) -> Iterator[float]:
    """Yield now, and every few milliseconds until the end."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        yield now
        time.sleep(0.002)


def test_a_call_that_gets_no_turn_was_not_sent(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(server.url(), timeout_ms=100)
    engine.put([new_job()])
    pool = engine._server._pool
    links = [pool.acquire(0) for _ in range(MOST_CALLS)]
    with pytest.raises(EngineUnavailable, match="connections of this process are busy") as caught:
        engine.put([new_job(1)])
    assert caught.value.unsent
    for link in links:
        pool.release(link)
    assert engine.put([new_job(1)])[0].code is PutCode.CREATED


def test_broken_connections_are_replaced_at_once(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All open connections have broken; after the first, none of the others is tried."""
    for name in ("_FIRST_PAUSE_S", "_MOST_PAUSE_S"):
        monkeypatch.setattr(server_module, name, 4.0)
    engine = open_redis(server.url(port=proxy.port), timeout_ms=10_000)
    engine.put([new_job()])
    proxy.delay(0.02)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: engine.put([new_job()]), range(MOST_CALLS)))
    proxy.heal()
    assert proxy.living == MOST_CALLS
    proxy.reset()
    assert seconds_of(lambda: engine.put([new_job()])) < 3.5  # without a pause


# ------------------------------------------------------------------------------ transient errors


def test_a_server_that_is_loading_is_waited_for(open_redis: OpenRedis) -> None:
    own_server = private_server(
        *("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"),
        *("--rdbcompression", "no"),
    )
    try:
        engine = open_redis(own_server.url(partitions=4), timeout_ms=20_000)
        engine.put([new_job(number, payload=b"x" * 1_000) for number in range(20)])
        own_server.tell("BGREWRITEAOF")  # the server only answers while it loads a snapshot
        until(lambda: b"aof_rewrite_in_progress:0" in persistence_of(own_server), "a snapshot")
        own_server.kill()
        starting = threading.Thread(target=own_server.start)
        starting.start()
        until(lambda: is_loading(own_server), "a server that loads")
        assert len(claim_jobs(engine, "worker", "nonce", Plan(), 100).claims) == 20
        starting.join()
        assert engine.check() == []
    finally:
        own_server.end()


def persistence_of(server: RedisServer) -> bytes:
    return server.tell("INFO", "persistence")


def is_loading(server: RedisServer) -> bool:
    try:
        return server.tell("PING").startswith(b"-LOADING")
    except OSError:
        return False


@pytest.mark.parametrize(
    ("command", "undo", "advice"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "Give the address of the primary"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "raise maxmemory"),
    ],
)
def test_the_error_says_what_helps(
    own_server: RedisServer, open_redis: OpenRedis, command: str, undo: str, advice: str
) -> None:
    engine = open_redis(own_server.url(), timeout_ms=1_000)
    engine.put([new_job()])
    own_server.tell(*command.split())
    with pytest.raises(EngineUnavailable, match=f"did no work for .* {advice}"):
        engine.put([new_job(1)])
    own_server.tell(*undo.split())
    assert engine.put([new_job(1)])[0].code is PutCode.CREATED


def test_a_script_of_another_client_that_runs_for_long(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    own_server.tell("CONFIG", "SET", "lua-time-limit", "10")
    engine = open_redis(own_server.url(), timeout_ms=1_000)
    engine.put([new_job()])
    with socket.create_connection(("127.0.0.1", own_server.port)) as other_client:
        other_client.sendall(pack(b"EVAL", b"while true do end", b"0"))
        until(lambda: own_server.tell("PING").startswith(b"-BUSY"), "a server that is busy")
        with pytest.raises(EngineUnavailable, match=r"did no work for .* SCRIPT KILL"):
            engine.put([new_job(1)])
        own_server.tell("SCRIPT", "KILL")
    assert engine.put([new_job(1)])[0].code is PutCode.CREATED
    assert engine.stats().totals == {"enqueued": 2}


def test_a_server_that_was_emptied_is_prepared_again_even_if_the_first_try_fails(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    with Proxy(own_server.port) as proxy:
        url = own_server.url(port=proxy.port, namespace="emptied")
        engine = open_redis(url, timeout_ms=1_000)
        for _ in range(2):  # a script that the server does not have also sets it up again
            engine.put([new_job()])
        own_server.tell("FLUSHALL")
        own_server.tell("SCRIPT", "FLUSH")
        engine.put([new_job()])  # this call detects that the server has lost its scripts
        proxy.refuse()
        with pytest.raises(EngineUnavailable):
            engine.stats()
        proxy.heal()
        engine.stats()
    assert own_server.tell("EXISTS", key("emptied", 0, "parked")) == b":1\r\n"


# ----------------------------------------------------------------------------------- wake-ups


def test_a_waiter_whose_connection_was_cut_silently_hears_again(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "PULSE_S", 0.1)
    waiter = open_redis(server.url(port=proxy.port, namespace="deaf"))
    producer = open_redis(server.url(namespace="deaf"))
    registered, numbers = key("deaf", 0, "waiters"), count()
    waiters = [Waiter("worker", Plan(queues=("q",)))]

    def wake(*, is_swallowed: bool = False) -> float:
        """How long the woken waiter has slept."""
        waiter.wait([], 0)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(seconds_of, lambda: waiter.wait(waiters, 10_000))
            until(lambda: server.tell("HLEN", registered) == b":2\r\n", "a registration")
            if is_swallowed:
                proxy.swallow_reply(Then.HOLD)
            producer.put([new_job(number := next(numbers))])
            taken = waiting.result()
        nonce = f"nonce-{number:04}"
        claim_jobs(producer, "other", nonce, Plan(), 10)
        return taken

    floor_s = wakeup.RENEW_S
    assert is_once(lambda: wake() < 0.5 * floor_s)
    assert wake(is_swallowed=True) > 0.5 * floor_s
    assert proxy.cuts == 1
    waiter.wait(waiters, 150)
    assert is_once(lambda: wake() < 0.5 * floor_s)


def test_a_frozen_server_holds_up_a_waiter_for_the_time_of_a_call(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    engine = open_redis(server.url(port=proxy.port), timeout_ms=1_000)
    waiters = [Waiter("worker", Plan())]
    engine.wait(waiters, 10)
    proxy.freeze()
    engine.wait(waiters, 2_000)  # until the registration has to be renewed
    with pytest.raises(EngineUnavailable):
        engine.wait(waiters, 2_000)
    proxy.heal()
    assert is_once(lambda: seconds_of(lambda: engine.wait(waiters, 10)) < 1.0)
