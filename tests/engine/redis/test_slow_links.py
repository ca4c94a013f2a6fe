"""Large values over slow and broken links: a call continues while bytes move, fails in time when
they do not, and is split into smaller parts after repeated interruptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from threading import Thread

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.proxy import Proxy, Side, Then
from tests.redis_server import RedisServer, private_server
from tests.worker.yard import until
from windlass import EngineUnavailable, PayloadTooLarge, Windlass
from windlass.engine.contract import BATCH_BYTES, Plan, PutCode, Succeeded, Verdict
from windlass.engine.redis.client.pool import MOST_CALLS
from windlass.engine.redis.engine import RedisEngine
from windlass.testing.contract.world import claim_jobs

#: The bandwidth of a slow link per second, and how long an engine waits without progress.
SPEED = 2_000_000
PATIENCE_MS = 800
LARGE = b"x" * 3_000_000

partitions = pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.slow)])


def opened(
    open_redis: OpenRedis,
    server: RedisServer,
    proxy: Proxy,
    partitions: int,
    timeout_ms: int = PATIENCE_MS,
) -> RedisEngine:
    engine = open_redis(server.url(port=proxy.port, partitions=partitions), timeout_ms)
    engine.migrate()
    return engine


def put(engine: RedisEngine, number: int, payload: bytes = b"x") -> None:
    placed = engine.put([new_job(at, payload=payload) for at in range(number)])
    assert {one.code for one in placed} == {PutCode.CREATED}


def claim_all(engine: RedisEngine, number: int) -> dict[str, str]:
    """Claim all jobs; return their ids and tokens."""
    claimed: dict[str, str] = {}
    for at in range(number):
        batch = claim_jobs(engine, "worker", f"nonce-{at:04}", Plan(), 500)
        claimed.update((claim.id, claim.token) for claim in batch.claims)
        if len(claimed) == number:
            break
    assert len(claimed) == number
    return claimed


def successes(claimed: dict[str, str], result: bytes) -> list[Succeeded]:
    return [
        Succeeded(id=job_id, token=token, result=result, result_ttl_ms=60_000)
        for job_id, token in claimed.items()
    ]


@partitions
def test_a_large_value_may_take_longer_than_the_time_out(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, partitions: int
) -> None:
    """Sent, claimed and read: each way takes about twice the timeout of a call."""
    engine = opened(open_redis, server, proxy, partitions)
    proxy.throttle(SPEED)
    proxy.reset()  # a link has small buffers only from its beginning
    started = time.monotonic()
    put(engine, 1, LARGE)
    assert time.monotonic() - started > PATIENCE_MS / 1000
    started = time.monotonic()
    (claim,) = claim_jobs(engine, "worker", "nonce", Plan(), 10).claims
    assert time.monotonic() - started > PATIENCE_MS / 1000
    assert claim.payload == LARGE
    (record,) = engine.get([claim.id])
    assert record is not None
    assert record.payload == LARGE


@partitions
def test_many_results_may_take_longer_than_the_time_out(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, partitions: int
) -> None:
    engine = opened(open_redis, server, proxy, partitions)
    put(engine, 30)
    outcomes = successes(claim_all(engine, 30), b"r" * 200_000)
    proxy.throttle(SPEED)
    proxy.reset()
    assert engine.finish(outcomes) == [Verdict.OK] * 30
    assert proxy.passed[Side.REQUESTS] < 8_000_000  # nothing was sent twice


@partitions
def test_many_calls_may_take_longer_than_the_time_out(
    server: RedisServer, proxy: Proxy, partitions: int
) -> None:
    url = server.url(port=proxy.port, partitions=partitions)
    with Windlass(url, enqueue_timeout=PATIENCE_MS / 1000) as app:
        task = app.task(name="note")(note)
        app.engine.migrate()
        proxy.throttle(SPEED)
        proxy.reset()
        assert len(task.enqueue_many([("x" * 250_000,)] * 16)) == 16
        jobs = asyncio.run(task.aenqueue_many([("x" * 250_000,)] * 8))
        assert len(jobs) == 8
        assert app.engine.stats().totals["enqueued"] == 24


def note(text: str) -> None:
    """Never run."""


def test_a_small_call_waits_for_large_ones_that_move(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    """All connections of the process are busy for longer than the timeout of the small call."""
    engine = opened(open_redis, server, proxy, 1, 2 * PATIENCE_MS)
    proxy.throttle(SPEED)
    proxy.reset()
    threads = [
        Thread(target=engine.put, args=([new_job(at, payload=LARGE)],)) for at in range(MOST_CALLS)
    ]
    for thread in threads:
        thread.start()
    until(
        lambda: proxy.living == MOST_CALLS and proxy.passed[Side.REQUESTS] > 100_000,
        "a large call on each connection",
    )
    started = time.monotonic()
    engine.put([new_job(9)])
    assert time.monotonic() - started > 2 * PATIENCE_MS / 1000
    for thread in threads:
        thread.join()
    assert engine.stats().totals["enqueued"] == MOST_CALLS + 1


@pytest.mark.parametrize("then", [Then.HOLD, Then.FREEZE])
def test_a_link_that_stands_still_in_the_middle_is_given_up(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, then: Then
) -> None:
    """Then the engine tries a new connection: all bytes get through, or it stands still too."""
    engine = opened(open_redis, server, proxy, 1)
    proxy.throttle(SPEED)
    proxy.reset()
    engine.put([new_job(7)])
    proxy.cut(Side.REQUESTS, 1_000_000, then)
    started = time.monotonic()
    if then is Then.HOLD:
        put(engine, 1, LARGE)
    else:
        with pytest.raises(EngineUnavailable, match=r"did not answer for [0-2]\.\d s"):
            put(engine, 1, LARGE)
    assert 0.4 < time.monotonic() - started < 6.0
    proxy.heal()


def test_a_frozen_server_is_noticed_though_buffers_take_bytes(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(own_server.url(), timeout_ms=1_000)
    put(engine, 1)
    own_server.freeze()
    started = time.monotonic()
    with pytest.raises(EngineUnavailable):
        engine.put([new_job(at, payload=b"x" * 400_000) for at in range(10, 20)])
    assert 0.9 < time.monotonic() - started < 3.0
    own_server.thaw()


# -------------------------------------------------------------------------------------- halves


@partitions
def test_a_put_that_is_cut_off_again_and_again_is_made_in_halves(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, partitions: int
) -> None:
    engine = opened(open_redis, server, proxy, partitions)
    proxy.wear_out(500_000)
    proxy.reset()
    put(engine, 16, b"x" * 200_000)
    assert engine.stats().totals["enqueued"] == 16


@partitions
def test_a_turn_that_is_cut_off_again_and_again_is_made_in_halves(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis, partitions: int
) -> None:
    """The claim in the same call is made once."""
    engine = opened(open_redis, server, proxy, partitions)
    put(engine, 20)
    claimed = dict(list(claim_all(engine, 20).items())[:16])
    engine.put([new_job(99)])
    proxy.wear_out(500_000)
    proxy.reset()
    outcomes = successes(claimed, b"r" * 200_000)
    turn = engine.turn("worker", outcomes, "nonce-9999", Plan(), 10)
    assert Verdict.STALE not in turn.verdicts  # a repeat, if a reply was cut off
    assert [claim.id for claim in turn.batch.claims] == ["job-000099"]
    again = engine.turn("worker", outcomes, "nonce-9999", Plan(), 10)
    assert again.verdicts == (Verdict.REPEATED,) * 16
    assert again.batch.claims == turn.batch.claims
    proxy.heal()
    assert engine.check() == []


def test_one_value_that_is_cut_off_again_and_again_fails_in_its_time(
    server: RedisServer, proxy: Proxy, open_redis: OpenRedis
) -> None:
    engine = opened(open_redis, server, proxy, 1)
    proxy.wear_out(500_000)
    proxy.reset()
    started = time.monotonic()
    with pytest.raises(EngineUnavailable) as caught:
        put(engine, 1, LARGE)
    assert not caught.value.unsent
    assert time.monotonic() - started < 4.0


# ----------------------------------------------------------------------------- values too large


@pytest.fixture
def small_server() -> Iterator[RedisServer]:
    """A server that accepts no value of more than a megabyte."""
    server = private_server("--proto-max-bulk-len", "1mb")
    yield server
    server.end()


@partitions
def test_a_value_that_a_server_never_takes_is_no_outage(
    small_server: RedisServer, open_redis: OpenRedis, partitions: int
) -> None:
    engine = open_redis(small_server.url(partitions=partitions))
    put(engine, 3)
    with pytest.raises(PayloadTooLarge, match="proto-max-bulk-len"):
        engine.put([new_job(9, payload=b"x" * 3_000_000)])
    claimed = claim_all(engine, 3)
    with pytest.raises(PayloadTooLarge, match="proto-max-bulk-len"):
        engine.finish(successes(claimed, b"x" * 3_000_000))
    assert engine.finish(successes(claimed, b"x" * 1_000_000)) == [Verdict.OK] * 3


def test_a_put_of_more_than_a_batch_is_stored_in_several_steps(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(server.url())
    put(engine, 5, b"x" * (BATCH_BYTES // 2))
    assert len(claim_jobs(engine, "worker", "nonce", Plan(), 10).claims) == 2
