"""Large results over a slow link arrive in turn, also at a stop. A result that can never be stored
ends its own job and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy import Proxy, Side
from tests.redis_server import RedisServer, private_server, shared_server
from tests.worker.bulk import Bulk
from tests.worker.yard import Yard
from windlass.core.failures import FailureText
from windlass.core.states import Reason, State

#: What the link carries in a second. The engine of a worker waits for 5 s without progress.
SPEED = 4_000_000
MEGABYTE = 1_000_000

partitions = pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.slow)])


@pytest.fixture
def link() -> Iterator[Proxy]:
    with Proxy(shared_server().port) as link:
        yield link


@pytest.fixture
def bulk(tmp_path: Path, link: Proxy, partitions: int) -> Iterator[Bulk]:
    yard = Yard(tmp_path, "30s", "10s", 3, shared_server().url(partitions=partitions))
    yield Bulk(yard, link)
    yard.close()


@partitions
def test_large_results_arrive_over_a_slow_link(bulk: Bulk, link: Proxy) -> None:
    """All jobs end together. Reporting them takes longer than one call may go without progress."""
    report(bulk, link, 24)


@pytest.mark.slow
@partitions
def test_forty_results_of_a_megabyte_arrive_over_a_slow_link(bulk: Bulk, link: Proxy) -> None:
    report(bulk, link, 40)


def report(bulk: Bulk, link: Proxy, number: int) -> None:
    """In little more than the time that the link needs, and nothing twice."""
    bulk.enqueue(number, MEGABYTE)
    link.throttle(SPEED)
    worker = bulk.start(number)
    bulk.end_all(number)
    bulk.yard.await_count(State.SUCCEEDED, number)
    assert len(bulk.yard.events("start")) == number
    assert link.passed[Side.REQUESTS] < (number + 2) * MEGABYTE
    assert "lost connection to engine" not in worker.log()
    assert worker.stop() == 0


@pytest.mark.slow
@partitions
def test_large_results_arrive_at_a_stop_over_a_slow_link(bulk: Bulk, link: Proxy) -> None:
    jobs = bulk.enqueue(24, MEGABYTE)
    link.throttle(SPEED)
    worker = bulk.start(24)
    bulk.end_all(len(jobs))
    assert worker.stop() == 0
    assert bulk.yard.count(State.SUCCEEDED) == len(jobs)
    assert "could not report" not in worker.log()


@pytest.mark.parametrize("partitions", [1])
def test_what_cannot_be_reported_before_the_end_is_told(bulk: Bulk, link: Proxy) -> None:
    """The smallest first: what has no time to arrive are the largest."""
    small, large = bulk.enqueue(5, 10), bulk.enqueue(4, 4_000_000)
    link.throttle(SPEED / 2)
    worker = bulk.start(9, WINDLASS_SHUTDOWN_GRACE="100ms")
    bulk.end_all(9)
    assert worker.stop() == 0
    states = {job.id: bulk.yard.record(job).state for job in small + large}
    assert {states[job.id] for job in small} == {State.SUCCEEDED}
    unreported = [job.id for job in large if states[job.id] is State.READY]
    assert unreported
    told = f"could not report {len(unreported)} result"
    assert told in worker.log()
    assert all(job_id in worker.log().split(told)[1] for job_id in unreported)


@pytest.fixture
def small_server() -> Iterator[RedisServer]:
    """It takes no value of more than a megabyte."""
    server = private_server("--proto-max-bulk-len", "1mb")
    yield server
    server.end()


@partitions
def test_a_result_that_can_never_be_stored_ends_its_job_alone(
    small_server: RedisServer, tmp_path: Path, partitions: int
) -> None:
    yard = Yard(tmp_path, "30s", "10s", 3, small_server.url(partitions=partitions))
    with Proxy(small_server.port) as link:
        bulk = Bulk(yard, link)
        fitting = bulk.enqueue(6, 900_000)
        (large,) = bulk.enqueue(1, 2_000_000)
        worker = bulk.start(7)
        bulk.end_all(7)
        record = yard.await_state(large.id, State.DEAD)
        yard.await_count(State.SUCCEEDED, len(fitting))
        assert record.reason is Reason.BAD_RESULT
        (failure,) = record.failures
        text = FailureText.unpack(failure.error)
        assert text.type == "windlass.errors.PayloadTooLarge"
        assert "proto-max-bulk-len" in text.message
        assert len(yard.events("start")) == 7
        worker.await_log(f"the result of job {large.id} is too large for the engine")
        assert "lost connection to engine" not in worker.log()
        assert worker.stop() == 0
    yard.close()
