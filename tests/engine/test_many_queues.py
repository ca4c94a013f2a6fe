"""The cost of a claim does not grow with the number of queues, that of a check only in proportion.
The tests count work instead of time: commands of a Redis server, steps of the virtual machine of
SQLite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import apsw
import pytest

from tests.engine.conftest import OpenRedis
from tests.redis_server import RedisServer
from windlass.core.queues.labels import line_of
from windlass.core.states import State
from windlass.engine.contract import Claim, Engine, EngineOptions, NewJob, Plan, QueueChange, Waiter
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.testing.contract.world import claim_jobs

QUEUES = 10_000
ANY = Plan()
LIMIT = 100
#: The most commands, or hundreds of steps, for each job of a claim.
PER_JOB = 12
#: The same, for each queue of a check.
PER_QUEUE = 25


class Place:
    """An engine, and the work that it has done so far."""

    def __init__(self, engine: Engine, worked: Callable[[], int], partitions: int) -> None:
        self.engine = engine
        self.worked = worked
        self.partitions = partitions
        self._nonces = (f"{number:032x}" for number in count(1))

    def put(self, lines: Sequence[str], priority: int = 0) -> list[str]:
        jobs = [
            NewJob(
                id=self.engine.new_id("t", line, None),
                task="t",
                queue=line,
                payload=b"x",
                priority=priority,
            )
            for line in lines
        ]
        for at in range(0, len(jobs), 500):
            self.engine.put(jobs[at : at + 500])
        return [job.id for job in jobs]

    def claim(self, limit: int = LIMIT, plan: Plan = ANY) -> Sequence[Claim]:
        """Claim, and check that the work is bounded by the number of jobs."""
        before = self.worked()
        claims = claim_jobs(self.engine, "s", next(self._nonces), plan, limit).claims
        work = self.worked() - before
        assert work < PER_JOB * len(claims) + 250 * self.partitions, f"{work} for {len(claims)}"
        return claims

    def check(self) -> list[str]:
        """Check, and check that the work is bounded by the number of queues."""
        before = self.worked()
        problems = self.engine.check()
        work = self.worked() - before
        assert work < PER_QUEUE * QUEUES, f"{work} for {QUEUES} queues"
        return problems


@pytest.fixture(params=["sqlite", "redis", pytest.param("redis-4", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "sqlite":
        found: Place = request.getfixturevalue("sqlite_place")
        return found
    server: RedisServer = request.getfixturevalue("server")
    open_redis: OpenRedis = request.getfixturevalue("open_redis")
    partitions = 4 if request.param == "redis-4" else 1
    url = server.url(partitions=partitions)

    def commands() -> int:
        told = server.tell("INFO", "commandstats")
        return sum(map(int, re.findall(rb"calls=(\d+)", told)))

    return Place(open_redis(url, timeout_ms=30_000), commands, partitions)


@pytest.fixture
def sqlite_place(path: Path) -> Iterator[Place]:
    hundreds = 0

    def step() -> bool:
        nonlocal hundreds
        hundreds += 1
        return False  # continue

    def watch(connection: apsw.Connection) -> None:
        connection.set_progress_handler(step, 100)

    apsw.connection_hooks.append(watch)
    engine = SQLiteEngine(path, EngineOptions(), durability="normal")
    yield Place(engine, lambda: hundreds, 1)
    engine.shutdown()
    apsw.connection_hooks.remove(watch)


def test_one_job_in_each_of_many_queues(place: Place) -> None:
    ids = place.put([f"q{number}" for number in range(QUEUES)])
    assert len(place.claim(1)) == 1
    first, second = place.claim(), place.claim()
    assert len(first) == len(second) == LIMIT
    if place.partitions == 1:
        assert [claim.id for claim in (*first, *second)] == ids[1 : 2 * LIMIT + 1]
    place.engine.wait([Waiter("worker", Plan())], 0)
    assert place.check() == []


def test_many_queues_that_age(place: Place) -> None:
    for number in range(500):
        place.engine.change_queue(f"q{number}", QueueChange(ageing_ms=60_000))
    ids = place.put([f"q{number}" for number in range(QUEUES)])
    claims = place.claim()
    assert len(claims) == LIMIT
    if place.partitions == 1:
        assert [claim.id for claim in claims] == ids[:LIMIT]
    assert place.check() == []


def test_many_paused_queues_in_front(place: Place) -> None:
    names = [f"q{number}" for number in range(500)]
    place.put(names, priority=1)
    for name in names:
        place.engine.change_queue(name, QueueChange(paused=True))
    place.put([f"z{number}" for number in range(LIMIT)])
    claims = place.claim(LIMIT // 2)
    assert len(claims) == LIMIT // 2
    assert {claim.queue[0] for claim in claims} == {"z"}
    for name in names:
        place.engine.change_queue(name, QueueChange(paused=False))
    served = [claim.queue[0] for claim in place.claim()]
    assert "q" in served
    assert place.partitions > 1 or "z" not in served
    assert place.check() == []


@pytest.mark.parametrize("labels", [pytest.param((), marks=pytest.mark.slow), ("cpu", "large")])
def test_many_lines_for_other_workers_in_front(place: Place, labels: tuple[str, ...]) -> None:
    foreign = [line_of(f"q{number}", [f"gpu{number % 500}"]) for number in range(QUEUES // 2)]
    foreign += [line_of(f"q{number}", ["cpu", "huge"]) for number in range(QUEUES // 2)]
    place.put(foreign, priority=1)
    own = place.put([line_of(f"z{number}", labels) for number in range(LIMIT)])
    claims = place.claim(plan=Plan(labels=labels))
    assert {claim.id for claim in claims} <= set(own)
    assert len(claims) >= LIMIT // place.partitions
    assert not place.claim(plan=Plan(labels=("none",), queues=("other",)))
    assert place.check() == []


def test_stats_of_many_queues_come_in_bites(server: RedisServer, open_redis: OpenRedis) -> None:
    """No script runs for long, and the sum is right."""
    place = Place(open_redis(server.url(), timeout_ms=30_000), lambda: 0, 1)
    place.put([f"q{number}" for number in range(QUEUES)])
    place.put(["q7"] * 3)
    server.tell("CONFIG", "RESETSTAT")
    stats = place.engine.stats()
    assert stats.queues["q7"] == {State.READY: 4}
    assert sum(states[State.READY] for states in stats.queues.values()) == QUEUES + 3
    assert len(stats.oldest_ready_ms) == QUEUES
    assert stats.totals["enqueued"] == QUEUES + 3
    told = server.tell("INFO", "commandstats")
    calls = {
        name.decode(): int(number)
        for name, number in re.findall(rb"cmdstat_(\w+):calls=(\d+)", told)
    }
    scripts = calls.get("evalsha", 0) + calls.get("eval", 0)
    assert calls["zrangebylex"] / scripts < 250
    assert "hgetall" not in calls or calls["hgetall"] == 1  # the totals
