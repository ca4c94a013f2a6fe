"""Groups of dead jobs next to processes of an earlier version, which know none."""

from __future__ import annotations

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.core.states import Reason
from windlass.engine.contract import MIN_RECORD_MS, Buried, Filter, Plan
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.keys import key
from windlass.testing.contract.world import claim_jobs

NAMESPACE = "groups"
DAY_MS = 24 * 60 * 60 * 1000
JOBS = 450  # more than two batches of maintenance


@pytest.fixture
def engine(own_server: RedisServer, open_redis: OpenRedis) -> RedisEngine:
    return open_redis(own_server.url(namespace=NAMESPACE))


def bury(engine: RedisEngine, number: int = JOBS) -> list[str]:
    engine.put([new_job(1_000 * number + at) for at in range(number)])
    nonce = f"nonce-{number:03}"
    claims = claim_jobs(engine, "host.1.ab@v1", nonce, Plan(), number).claims
    engine.finish(
        [
            Buried(
                id=one.id,
                token=one.token,
                reason=Reason.EXHAUSTED,
                error=b"",
                fingerprint="aa",
            )
            for one in claims
        ]
    )
    return [claim.id for claim in claims]


def tend_all(engine: RedisEngine) -> int:
    calls = 1
    while engine.tend().more:
        calls += 1
    return calls


def test_deaths_of_an_earlier_version_are_put_into_groups(
    own_server: RedisServer, engine: RedisEngine
) -> None:
    """The fingerprints of these records are lost here, as an earlier version stores none; each call
    does a bounded part."""
    bury(engine)
    for name in ("deaths", "dead_groups"):
        own_server.tell("DEL", key(NAMESPACE, 0, name))
        own_server.tell("ZADD", key(NAMESPACE, 0, name), "0", '""')
    assert engine.dead_tallies().tallies == ()
    assert tend_all(engine) == 4
    (found,) = engine.dead_tallies().tallies
    assert (found.fingerprint, found.release, found.number) == ("aa", "v1", JOBS)
    assert engine.check() == []


def test_jobs_that_an_earlier_version_removed_leave_their_group(
    own_server: RedisServer, engine: RedisEngine
) -> None:
    """An entry of a job that is gone stays in the way of nothing, and maintenance removes it."""
    ids = bury(engine, 2)
    group = r"aa\x00v1\x00q\x00t"
    ghost = rf'"{group}\x00000000ghost"'
    own_server.tell("ZADD", key(NAMESPACE, 0, "deaths"), "0", ghost)
    own_server.tell("ZADD", key(NAMESPACE, 0, "dead_groups"), "3", f'"{group}"')
    listed = engine.find(Filter(fingerprint="aa"), None, 10)
    assert {record.id for record in listed.records} == set(ids)
    tend_all(engine)
    assert [one.number for one in engine.dead_tallies().tallies] == [2]
    assert engine.check() == []


def test_deaths_and_revivals_of_an_earlier_version_do_not_hide_each_other(
    own_server: RedisServer, engine: RedisEngine
) -> None:
    """One job that it ends and one that it revives leave the numbers of entries equal."""
    bury(engine, 2)
    group = r"aa\x00v1\x00q\x00t"
    deaths = key(NAMESPACE, 0, "deaths")
    own_server.tell("ZREMRANGEBYRANK", deaths, "1", "1")
    own_server.tell("ZADD", deaths, "0", rf'"{group}\x00000000ghost"')
    assert engine.check() != []
    tend_all(engine)
    engine.clock_offset_ms += DAY_MS
    for _ in range(2):
        tend_all(engine)
    assert [one.number for one in engine.dead_tallies().tallies] == [2]
    assert engine.check() == []


def test_a_difference_that_stays_does_not_keep_maintenance_busy(
    own_server: RedisServer, engine: RedisEngine
) -> None:
    bury(engine, 1)
    own_server.tell("ZADD", key(NAMESPACE, 0, "dead"), "9000000000000", "ghost")
    assert tend_all(engine) == 2
    assert tend_all(engine) == 1
    engine.clock_offset_ms += MIN_RECORD_MS
    assert tend_all(engine) == 2


def commands(server: RedisServer) -> int:
    (line,) = [
        line
        for line in server.tell("INFO", "stats").decode().splitlines()
        if line.startswith("total_commands_processed:")
    ]
    return int(line.partition(":")[2])


def test_a_list_of_groups_takes_as_many_commands_for_many_jobs(
    own_server: RedisServer, engine: RedisEngine
) -> None:
    """Also a page of the jobs of a group."""

    def read() -> None:
        engine.dead_tallies()
        engine.dead_tallies(["aa"])
        engine.find(Filter(fingerprint="aa"), None, 1)

    def cost() -> int:
        before = commands(own_server)
        read()
        return commands(own_server) - before

    bury(engine, 3)
    few = min(cost() for _ in range(3))  # until the server knows the scripts
    bury(engine)
    assert engine.dead_tallies().tallies[0].number == JOBS + 3
    assert min(cost() for _ in range(3)) == few
