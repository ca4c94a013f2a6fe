"""Claims that wait in the server: they are made without the waiter, once, and by whatever way."""

from __future__ import annotations

import os
import re
import threading
import time

from tests.engines.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.core.states import State
from windlass.engine.contract import Batch, Claim, Plan
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
    assert waiting.await_claim("worker", "nonce-1", Plan(), 1, 200) == Batch()
    started = time.monotonic()
    assert waiting.await_claim("worker", "nonce-2", Plan(), 1, 200) == Batch()
    assert time.monotonic() - started > 0.19  # it does not spin
    timer = threading.Timer(0.05, putting.put, ([new_job()],))
    timer.start()
    started = time.monotonic()
    assert [claim.id for claim in ask(waiting, "nonce-3")] == [JOB]
    assert time.monotonic() - started < 0.4, "the ring went to a claim that does not wait"
    timer.join()


def test_a_claim_that_comes_too_late_leases_nothing(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """The waiter has given up, and the server gets the claim that was sent ahead after all."""
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    handing_over = waiting._handing_over.get()
    late = waiting._claiming.call("worker", "nonce-1", Plan(), 1)
    assert waiting.claim("worker", "nonce-1", Plan(), 1) == Batch()
    putting.put([new_job()])
    waiting._server.run([late], waiting._server.deadline())
    assert state_of(putting) is State.READY
    assert handing_over.sent == "nonce-1"
    assert [claim.token for claim in ask(waiting, "nonce-2")] == ["nonce-2"]


def test_without_the_right_to_unblock_nothing_is_lost(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    own_server.add_user("firm", "on", ">secret", "~*", "&*", "+@all", "-client|unblock")
    waiting, putting = (
        open_redis(own_server.url_for("firm")),
        open_redis(own_server.url_for("firm")),
    )
    for number in range(3):
        arm(waiting, f"nonce-{number}")
        assert waiting.claim("worker", f"nonce-{number}", Plan(), 1) == Batch()
    putting.put([new_job()])
    assert [claim.id for claim in ask(waiting, "nonce-9")] == [JOB]


def test_a_database_that_was_emptied_is_prepared_again(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    own_server.tell("FLUSHALL")
    assert ask(waiting) == []  # the group is gone with the stream
    waiting._hand_over_from = 0.0
    arm(waiting, "nonce-2")
    putting.put([new_job()])
    await_state(putting, State.RUNNING)


def test_rings_are_not_taken_by_those_who_run_jobs_alone(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    url = own_server.url(namespace=NAMESPACE)
    alone, waiting, putting = (open_redis(url) for _ in range(3))
    alone.await_claim("solo", "nonce", Plan(suspects=True), 1, 1)
    time.sleep(0.005)  # the list knows milliseconds
    arm(waiting)
    putting.put([new_job()])
    await_state(putting, State.RUNNING)


def test_descriptors_may_be_many(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """A `select` refuses those from 1024 on."""
    many = [os.dup(0) for _ in range(1100)]
    try:
        waiting, putting = open_two(own_server, open_redis)
        arm(waiting)
        waiting.wait(Plan(), 1)
        putting.put([new_job()])
        assert [claim.id for claim in ask(waiting)] == [JOB]
    finally:
        for descriptor in many:
            os.close(descriptor)
