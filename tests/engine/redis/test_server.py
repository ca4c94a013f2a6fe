"""Faults of a server: it loses scripts, closes connections, freezes, restarts, refuses."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.connection import UnixDomainSocketConnection

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.engine.contract import Placed, Plan, PutCode, Succeeded, Verdict, Waiter
from windlass.engine.redis.client import pool as pool_module
from windlass.engine.redis.client.pool import LEAST_S, Link, Pool, TimeBudget
from windlass.engine.redis.keys import KINDS, key
from windlass.engine.redis.url import RedisAddress
from windlass.errors import EngineError, EngineUnavailable
from windlass.testing.contract.world import claim_jobs

JOB = "job-000000"
#: The driver's connections, which have no type hints.
DRIVER: Any = UnixDomainSocketConnection


def test_a_password_that_is_asked_for_later_on(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Redis refuses long commands without a login before it examines anything else."""
    engine = open_redis(f"redis://127.0.0.1:{own_server.port}/0")
    for nonce in ("1", "2", "3"):  # until the server has the script, and the engine knows that
        claim_jobs(engine, "worker", nonce, Plan(), 1)
    own_server.tell("CONFIG", "SET", "requirepass", "secret")
    own_server.tell("AUTH", "secret\r\nCLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(EngineError, match=r"asks for a password .* and there is none in"):
        claim_jobs(engine, "worker", "4", Plan(), 1)


def test_a_server_that_forgot_its_scripts(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(own_server.url(partitions=4))
    engine.put([new_job(number) for number in range(20)])
    own_server.tell("SCRIPT", "FLUSH")
    assert len(claim_jobs(engine, "worker", "nonce", Plan(), 100).claims) == 20
    assert engine.check() == []


def test_connections_that_were_closed(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(own_server.url())
    for number in range(20):
        own_server.tell("CLIENT", "KILL", "TYPE", "normal")
        assert engine.put([new_job(number)])[0].code is PutCode.CREATED
    assert engine.stats().totals == {"enqueued": 20}


def test_a_connection_that_was_closed_here(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(server.url())
    engine.put([new_job()])
    for link, _ in engine._server._pool._idle:
        link.disconnect()
    assert engine.put([new_job(1)])[0].code is PutCode.CREATED


def budget(seconds: float) -> TimeBudget:
    return TimeBudget(Pool(RedisAddress()), 0.0, seconds)


def driver_on(socket: socket.socket) -> Any:
    """A connection of the driver that has this socket."""
    driver = DRIVER(protocol=2)
    driver._sock = socket
    driver._parser.on_connect(driver)
    return driver


def send(driver: Any, commands: list[bytes], seconds: float) -> None:
    Link(driver).send(commands, seconds, budget(seconds))


def read(driver: Any) -> object:
    return Link(driver).read(budget(LEAST_S))


def by_driver(driver: Any, commands: list[bytes], seconds: float) -> None:
    driver._sock.settimeout(seconds)
    driver.send_packed_command(commands, check_health=False)


def failed_send(way: Callable[..., None], *, is_closed: bool) -> tuple[type[Exception], str]:
    here, there = socket.socketpair()
    with here, there:
        if is_closed:
            there.close()
        with pytest.raises(redis.RedisError) as caught:
            way(driver_on(here), [b"x" * 10_000_000], LEAST_S)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "full"])
def test_what_cannot_be_sent_is_told_in_the_words_of_the_driver(is_closed: bool) -> None:
    expected = failed_send(by_driver, is_closed=is_closed)
    assert failed_send(send, is_closed=is_closed) == expected


def failed_read(way: Callable[[Any], object], ending: bytes | None) -> tuple[type[Exception], str]:
    """The error when these bytes come, when the other side closes, or when nothing comes."""
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(0.01)
        if ending is not None:
            there.sendall(ending)
            there.close()
        with pytest.raises(redis.RedisError) as caught:
            way(driver_on(here))
    return caught.type, str(caught.value)


@pytest.mark.parametrize(
    "ending",
    [None, b"", b"$5\r\nab", b"nonsense\r\n", b"-ERR max number of clients reached\r\n"],
    ids=["nothing", "closed", "cut", "nonsense", "turned away"],
)
def test_what_cannot_be_read_is_told_in_the_words_of_the_driver(ending: bytes | None) -> None:
    expected = failed_read(lambda driver: driver.read_response(), ending)
    assert failed_read(read, ending) == expected


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("READONLY", redis.exceptions.ReadOnlyError),
        ("OOM", redis.exceptions.OutOfMemoryError),
        ("MISCONF", redis.exceptions.ResponseError),
    ],
)
def test_an_error_in_a_script_of_an_older_server_is_that_of_its_command(
    word: str, kind: type[Exception]
) -> None:
    """With the texts of Redis 6.2.14."""
    where = f"(call to f_{'a8' * 20}): @user_script:411: @user_script: 411"
    here, there = socket.socketpair()
    with here, there:
        there.sendall(f"-ERR Error running script {where}: -{word} It's said why.\r\n".encode())
        there.sendall(f"-ERR Error running script {where}: bad argument: -1\r\n".encode())
        link = Link(driver_on(here))
        met: Any = link.read(budget(LEAST_S))
        other: Any = link.read(budget(LEAST_S))
    assert type(met) is kind
    assert str(met).endswith("It's said why.")
    assert ("MISCONF" in str(met)) == (word == "MISCONF")  # if its class does not show it
    assert "bad argument: -1" in str(other)


@pytest.mark.parametrize(
    "reply",
    [
        b"-NOSCRIPT No matching script\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-WRONGPASS invalid username-password pair\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-ERR something else\r\n",
    ],
)
def test_errors_of_the_server_are_those_of_the_driver(reply: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(reply)
        with pytest.raises(redis.RedisError) as expected:
            driver_on(here).read_response()
    here, there = socket.socketpair()
    with here, there:
        there.sendall(reply)
        try:
            given = read(driver_on(here))
        except redis.ConnectionError as error:
            given = error
    assert (type(given), str(given)) == (expected.type, str(expected.value))


def number_of_questions(server: RedisServer, action: Callable[[], object]) -> int:
    """How often the server was asked for the time during this, by scripts and otherwise."""
    server.tell("CONFIG", "RESETSTAT")
    action()
    told = server.tell("INFO", "commandstats")
    return int(re.findall(rb"cmdstat_time:calls=(\d+)", told)[0])


@pytest.mark.parametrize(
    ("rested_s", "jobs", "size", "expected"),
    [(0.0, 1, 10, 2), (60.0, 1, 10, 1), (0.0, 1, 100_000, 1), (0.0, 9, 10, 2)],
    ids=["rested", "in a hurry", "much to copy", "several jobs"],
)
def test_a_put_on_an_idle_connection_first_asks_for_the_time(
    own_server: RedisServer,
    open_redis: OpenRedis,
    monkeypatch: pytest.MonkeyPatch,
    rested_s: float,
    jobs: int,
    size: int,
    expected: int,
) -> None:
    """So the server writes to a waiter first."""
    monkeypatch.setattr(pool_module, "IDLE_AFTER_S", rested_s)
    engine = open_redis(own_server.url())
    for _ in range(3):  # until the server has the scripts, and the engine knows that
        engine.put([new_job()])
        engine.put([new_job(payload=b"x" * 2_000)])
        engine.get([JOB])
    news = [new_job(number, payload=b"x" * size) for number in range(1, 1 + jobs)]
    assert number_of_questions(own_server, lambda: engine.put(news)) == expected
    assert number_of_questions(own_server, lambda: engine.get([JOB])) == 1
    assert engine.stats().totals == {"enqueued": 1 + jobs}


def test_a_server_that_is_not_there(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(own_server.url(), timeout_ms=600)
    engine.put([new_job()])
    own_server.kill()
    started = time.monotonic()
    with pytest.raises(EngineUnavailable, match=f"127.0.0.1:{own_server.port}") as caught:
        engine.get([JOB])
    assert 0.1 < time.monotonic() - started < 3.0
    assert caught.value.location == engine.location
    assert caught.value.seconds is not None
    own_server.start()
    assert engine.get([JOB]) != [None]


def test_a_restart_is_outlasted(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(own_server.url(), timeout_ms=10_000)
    engine.put([new_job()])
    own_server.kill()
    restart = threading.Timer(0.3, own_server.start)
    restart.start()
    assert [claim.id for claim in claim_jobs(engine, "worker", "nonce", Plan(), 1).claims] == [JOB]
    restart.join()


def test_a_frozen_server_costs_the_time_of_one_call(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(own_server.url(), timeout_ms=600)
    engine.put([new_job()])
    own_server.freeze()
    for _ in range(2):  # on a pooled connection, and on a new one
        started = time.monotonic()
        with pytest.raises(EngineUnavailable):
            engine.put([new_job(1)])
        assert 0.5 < time.monotonic() - started < 3.0
    own_server.thaw()
    assert engine.put([new_job(1)]) == [Placed("job-000001", PutCode.CREATED)]
    assert engine.stats().totals == {"enqueued": 2}


def test_no_reply_is_taken_for_another(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """The reply to a call that timed out comes on a connection that is not used any more."""
    engine = open_redis(own_server.url(), timeout_ms=600)
    claim_jobs(engine, "worker", "early", Plan(), 1)
    for _ in range(2):  # so that the server has all scripts
        engine.put([new_job()])
    own_server.freeze()
    with pytest.raises(EngineUnavailable):
        claim_jobs(engine, "worker", "first", Plan(), 1)
    own_server.thaw()
    assert engine.sessions()[0].session == "worker"
    assert [claim.id for claim in claim_jobs(engine, "worker", "first", Plan(), 1).claims] == [JOB]
    assert engine.finish([Succeeded(id=JOB, token="first")]) == [Verdict.OK]


def test_a_replica_that_takes_no_writes(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(own_server.url(), timeout_ms=5_000)
    engine.put([new_job()])
    own_server.tell("REPLICAOF", "127.0.0.1", "1")
    promote = threading.Timer(0.3, own_server.tell, ("REPLICAOF", "NO", "ONE"))
    promote.start()
    assert engine.put([new_job(1)])[0].code is PutCode.CREATED
    promote.join()


def test_a_full_memory_changes_nothing(own_server: RedisServer, open_redis: OpenRedis) -> None:
    url = own_server.url()
    patient, hasty = open_redis(url, timeout_ms=20_000), open_redis(url, timeout_ms=1_000)
    patient.put([new_job()])
    hasty.stats()  # so that only the refusal counts towards its timeout
    own_server.tell("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(EngineUnavailable, match="maxmemory"):
        hasty.put([new_job(1)])
    own_server.tell("CONFIG", "SET", "maxmemory", "0")
    assert patient.check() == []
    assert patient.get(["job-000001"]) == [None]


def test_a_wrong_password_is_told_at_once(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(own_server.url().replace("redis://", "redis://:wrong@"), timeout_ms=5_000)
    own_server.tell("CONFIG", "SET", "requirepass", "right")
    started = time.monotonic()
    with pytest.raises(EngineError, match="refused the login") as caught:
        engine.stats()
    assert not isinstance(caught.value, EngineUnavailable)
    assert time.monotonic() - started < 2.0
    assert "wrong" not in str(caught.value)


def test_a_forked_child_has_connections_of_its_own(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(server.url())
    engine.put([new_job()])
    child = os.fork()
    if child == 0:
        try:
            engine.put([new_job(1)])
            engine.wait([Waiter("worker", Plan())], 10)
        except BaseException:  # noqa: BLE001  # told by the exit code, and never to pytest
            os._exit(1)
        os._exit(0)
    for _ in range(50):
        assert engine.get([JOB]) != [None]
    assert os.waitpid(child, 0)[1] == 0
    assert engine.stats().totals == {"enqueued": 2}


# ------------------------------------------------------------------------------ a loss of all data


def empty(server: RedisServer) -> None:
    """Remove all data. Scripts stay, so that no call fails."""
    assert server.tell("FLUSHALL") == b"+OK\r\n"


LOSSES = {"restarted": RedisServer.restart_empty, "emptied": empty}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_server_without_its_data_is_known_by_every_engine(
    own_server: RedisServer, open_redis: OpenRedis, partitions: int, loss: str
) -> None:
    url = own_server.url(namespace="lost", partitions=partitions)
    first, second = open_redis(url, timeout_ms=5_000), open_redis(url, timeout_ms=5_000)
    first.put([new_job()])
    assert not first.tend().emptied
    assert not second.tend().emptied
    LOSSES[loss](own_server)
    found = [[engine.tend().emptied for _ in range(3)] for engine in (first, second)]
    assert [one.count(True) for one in found] == [1, 1]  # each reports it once
    assert first.get([JOB]) == [None]
    assert first.put([new_job()])[0].code is PutCode.CREATED
    assert first.check() == []
    for partition in range(partitions):  # `check` does not look for missing sentinels
        for name, kind in KINDS.items():
            exists = own_server.tell("EXISTS", key("lost", partition, name))
            assert exists == b":1\r\n", (partition, name, kind)


def test_a_server_that_kept_its_data_is_not_taken_for_another(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(own_server.url(), timeout_ms=5_000)
    engine.put([new_job()])
    own_server.kill()
    own_server.start()
    assert not any(engine.tend().emptied for _ in range(3))
    own_server.tell("SCRIPT", "FLUSH")
    assert not any(engine.tend().emptied for _ in range(3))
