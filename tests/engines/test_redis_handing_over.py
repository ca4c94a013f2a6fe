"""Claims that wait in the server: they are made without the waiter, once, and by whatever way."""

from __future__ import annotations

import re
import time

from tests.engines.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.core.states import State
from windlass.engine.contract import Claim, Plan
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.pool import MOST_CALLS

JOB = "job-000000"
NAMESPACE = "waiting"


def open_two(server: RedisServer, open_redis: OpenRedis) -> tuple[RedisEngine, RedisEngine]:
    url = server.url(namespace=NAMESPACE)
    return open_redis(url), open_redis(url)


def arm(engine: RedisEngine, nonce: str = "nonce-1") -> None:
    assert engine.await_claim("worker", nonce, Plan(), 1, 1) is None


def ask(engine: RedisEngine, nonce: str = "nonce-1") -> list[Claim]:
    batch = engine.await_claim("worker", nonce, Plan(), 1, 5_000)
    assert batch is not None
    return list(batch.claims)


def state_of(engine: RedisEngine, job_id: str = JOB) -> State:
    [record] = engine.get([job_id])
    assert record is not None
    return record.state


def await_state(engine: RedisEngine, state: State) -> None:
    deadline = time.monotonic() + 5
    while state_of(engine) is not state:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_it_is_made_before_the_waiter_looks_again(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job(), new_job(1)])
    await_state(putting, State.RUNNING)
    assert state_of(putting, "job-000001") is State.READY
    assert [claim.id for claim in ask(waiting)] == [JOB]
    assert putting.check() == []


def test_rings_go_to_those_who_wait_the_longest_first(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    first, second, putting = (open_redis(own_server.url(namespace=NAMESPACE)) for _ in range(3))
    for number, waiting in enumerate((first, second)):
        waiting.await_claim(f"worker-{number}", "nonce", Plan(), 1, 1)
        time.sleep(0.005)  # the list knows milliseconds
    putting.put([new_job()])
    batch = first.await_claim("worker-0", "nonce", Plan(), 1, 5_000)
    assert batch is not None
    assert [claim.id for claim in batch.claims] == [JOB]
    putting.put([new_job(1)])  # the first is off the list, so this is for the second
    batch = second.await_claim("worker-1", "nonce", Plan(), 1, 5_000)
    assert batch is not None
    assert [claim.id for claim in batch.claims] == ["job-000001"]


def test_the_connection_breaks_before_the_ring(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting = open_redis(own_server.url(namespace=NAMESPACE))
    arm(waiting)
    own_server.tell("CLIENT", "KILL", "TYPE", "normal")
    open_redis(own_server.url(namespace=NAMESPACE)).put([new_job()])
    assert [claim.id for claim in ask(waiting)] == [JOB]
    assert waiting.check() == []


def test_the_reply_is_lost(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job(), new_job(1)])
    await_state(putting, State.RUNNING)
    own_server.tell("CLIENT", "KILL", "TYPE", "normal")
    assert [claim.id for claim in ask(waiting)] == [JOB]
    assert putting.stats().totals == {"enqueued": 2}  # nothing was lost or given back on the way
    assert state_of(putting, "job-000001") is State.READY


def test_what_it_got_is_given_back(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job()])
    await_state(putting, State.RUNNING)
    assert waiting.release("worker", "nonce-1") == 1
    assert state_of(putting) is State.READY
    assert putting.claim("other", "nonce", Plan(), 1).claims


def test_one_that_is_given_back_is_never_made(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    waiting.release("worker", "nonce-1")
    putting.put([new_job()])
    arm_again = waiting.await_claim("worker", "nonce-2", Plan(), 1, 5_000)
    assert arm_again is not None
    assert [claim.token for claim in arm_again.claims] == ["nonce-2"]


def test_a_server_that_restarts_under_it(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting = open_redis(own_server.url(namespace=NAMESPACE), timeout_ms=10_000)
    arm(waiting)
    own_server.kill()
    own_server.start()
    open_redis(own_server.url(namespace=NAMESPACE)).put([new_job()])
    assert [claim.id for claim in ask(waiting)] == [JOB]


def test_a_process_has_one_connection_to_be_woken_by(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(own_server.url(namespace=NAMESPACE))
    for number in range(3):
        engine.wait(Plan(), 1)
        arm(engine, f"nonce-{2 * number}")
        engine.claim("worker", f"nonce-{2 * number}", Plan(), 1)
    listed = own_server.tell("CLIENT", "LIST")
    others = re.findall(rb"cmd=(\S+)", listed)
    assert len(others) - 1 <= MOST_CALLS + 1, others  # one is that of the test


def test_without_the_right_to_block_it_waits_and_claims(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    own_server.add_user("plain", "on", ">secret", "~*", "&*", "+@all", "-xreadgroup")
    url = own_server.url_for("plain")
    waiting, putting = open_redis(url), open_redis(url)
    started = time.monotonic()
    arm(waiting)
    assert waiting.await_claim("worker", "nonce-1", Plan(), 1, 200) is None
    assert time.monotonic() - started > 0.19  # it does not spin
    putting.put([new_job()])
    assert [claim.id for claim in ask(waiting)] == [JOB]
