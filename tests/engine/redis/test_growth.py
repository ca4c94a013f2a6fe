"""Stored data is removed after its retention time, in bounded batches, and frees its memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.page import Figure, read_results
from tests.docs.pages import DOCS, read
from tests.engine.conftest import OpenRedis
from tests.redis_server import RedisServer, documented_rights, private_server
from windlass import Windlass
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    BITE,
    GONE_SESSION_MS,
    IDEMPOTENCY_MS,
    Beat,
    Buried,
    ChangeCode,
    Claim,
    Closed,
    EngineOptions,
    Filter,
    NewJob,
    NewStep,
    Outcome,
    Plan,
    Progressed,
    Retried,
    Step,
    Succeeded,
    batches,
)
from windlass.engine.redis import encode
from windlass.engine.redis.dispatch import CHUNK
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.keys import KINDS, KeyKind, key
from windlass.testing.contract.machine import all_keys
from windlass.testing.contract.world import StandingStill, claim_jobs

PAGE = DOCS / "internals" / "redis.md"
NAMESPACE = "growth"
START_MS = 1_800_000_000_000
LEASE_MS = 2_000  # the lease of engines that the fixture opens
#: Longer than any retention time.
KEEP_MS = 2 * max(EngineOptions().dead_ttl_ms, IDEMPOTENCY_MS, GONE_SESSION_MS)
#: A call of a small task, as it is stored.
CALL = b'{"v":1,"task":"shop.tasks.resize","args":["cat.jpg",[100,200]],"kwargs":{}}'
#: The job of `python -m benchmarks stored`, as it is stored.
MEASURED_TASK = "benchmarks.tasks.nothing"
MEASURED_CALL = b'{"args":[12345]}'
#: These keys keep something for longer: sequence and format, the totals, and the history.
GROWN = {"meta", "total", "history"}


@pytest.fixture
def lean_server() -> Iterator[RedisServer]:
    """A server with nothing else in its memory."""
    server = private_server("--appendonly", "no")
    yield server
    server.end()


class Place:
    """An engine whose clock stands still, and measurements of its server."""

    def __init__(self, server: RedisServer, open_redis: OpenRedis, partitions: int = 1) -> None:
        self.server = server
        self.engine: RedisEngine = open_redis(
            server.url(namespace=NAMESPACE, partitions=partitions), timeout_ms=10_000
        )
        self._partitions = range(partitions)
        self._nonces = (f"{number:032x}" for number in count(1))
        self.now_ms = START_MS
        self.pass_time(0)
        self.engine.stats()

    def pass_time(self, by_ms: int) -> None:
        """Move the clock in steps that do not look like an outage."""
        end_ms = self.now_ms + by_ms
        while self.now_ms < end_ms and by_ms <= 10 * LEASE_MS:
            self.now_ms += LEASE_MS // 2
            self.engine.clock_offset_ms = StandingStill(self.now_ms)
            self.engine.beat([Beat(session="bystander")])
        self.now_ms = end_ms
        self.engine.clock_offset_ms = StandingStill(end_ms)

    # ------------------------------------------------------------------------ what is stored

    def bytes_stored(self) -> int:
        """The bytes of all keys, without the server's own memory."""
        return sum(self._ask("MEMORY", "USAGE", name, "SAMPLES", "0") for _, name in self._keys())

    def bytes_used(self) -> int:
        info = self.server.tell("INFO", "memory")
        (used,) = re.findall(rb"^used_memory:(\d+)", info, re.MULTILINE)
        return int(used)

    def left_over(self) -> dict[str, int]:
        """The keys with more than the sentinel."""
        sizes = {
            name: self._ask("HLEN" if KINDS[kind] is KeyKind.HASH else "ZCARD", name)
            for kind, name in self._keys()
            if kind not in GROWN
        }
        return {name: size for name, size in sizes.items() if size != 1}

    def number_of_keys(self) -> int:
        return self._ask("DBSIZE")

    def _keys(self) -> list[tuple[str, str]]:
        return [(name, key(NAMESPACE, n, name)) for n in self._partitions for name in KINDS]

    def _ask(self, *words: str) -> int:
        return int(self.server.tell(*words).removeprefix(b":"))

    # ------------------------------------------------------------------------------ the load

    def put(self, number: int, **fields: Any) -> list[str]:
        jobs = [self._new(fields) for _ in range(number)]
        for at in range(0, number, CHUNK):
            self.engine.put(jobs[at : at + CHUNK])
        return [job.id for job in jobs]

    def _new(self, fields: dict[str, Any]) -> NewJob:
        given = {"task": "shop.tasks.resize", "queue": "default", "payload": CALL, **fields}
        names = (given["task"], given["queue"], given.get("idempotency_key"))
        return NewJob(id=self.engine.new_id(*names), **given)

    def claim(self, session: str, number: int) -> Sequence[Claim]:
        claims: list[Claim] = []
        while len(claims) < number:
            limit = min(CHUNK, number - len(claims))
            batch = claim_jobs(self.engine, session, next(self._nonces), Plan(), limit)
            assert batch.claims
            claims += batch.claims
        return claims

    def succeed(self, claims: Sequence[Claim], result: bytes = b'["cat-100.jpg"]') -> None:
        self.engine.finish([_succeeded(claim, result) for claim in claims])

    def tend(self) -> None:
        """Run all batches of maintenance."""
        while (tended := self.engine.tend()).more:
            assert max(tended.purged, tended.reaped) <= BITE * len(self._partitions)


def _succeeded(claim: Claim, result: bytes) -> Outcome:
    return Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=3_600_000)


def run_generation(place: Place, number: int) -> None:
    """Run this many jobs with each outcome; their sessions end in each way."""
    one = f"one-{next(place._nonces)}"
    place.put(number)
    place.succeed(place.claim(one, number))
    place.put(number)
    for claim in place.claim(one, number):
        id, token = claim.id, claim.token
        progress = Progressed(id=id, token=token, progress=b"half")
        steps = [Step("charge", b"receipt"), Step("mail", b"")]
        place.engine.put_steps([NewStep(id=id, token=token, step=step) for step in steps])
        retried = Retried(id=id, token=token, delay_ms=1, error=b"boom" * 20)
        place.engine.finish([progress, retried])
    place.pass_time(1)
    died = [
        Buried(id=claim.id, token=claim.token, reason=Reason.EXHAUSTED, error=b"boom" * 20)
        for claim in place.claim(one, number)
    ]
    place.engine.finish(died)
    place.engine.cancel(place.put(number, run_in_ms=1_000))
    place.put(number, expires_in_ms=0)
    claim_jobs(place.engine, one, next(place._nonces), Plan(), 1)  # expires one batch
    for at in range(number):
        place.put(1, idempotency_key=f"key-{at}")
    put_back(place)
    place.claim(one, number // 2)
    place.engine.close(one, [], "ended")
    other = f"other-{next(place._nonces)}"
    place.claim(other, number // 2)
    place.pass_time(2 * LEASE_MS)
    place.tend()
    place.engine.cancel(
        [record.id for record in place.engine.find(Filter(), limit=10 * number).records]
    )


def put_back(place: Place) -> None:
    """Remove jobs that wait and dead ones, and put their copies and the keys in their place."""
    engine = place.engine
    found = [
        copy
        for state in (State.READY, State.DEAD)
        for record in engine.find(Filter(state=state), limit=CHUNK).records
        for copy in engine.read_copies([record.id])
        if copy is not None
    ]
    ids = [copy.record.id for copy in found]
    keys = all_keys(engine)
    keys.append(replace(keys[0], key="of a job that is gone", id="gone"))
    engine.cancel(ids)
    assert set(engine.discard(ids)) == {ChangeCode.DONE}
    for _ in range(2):
        for some in batches(found, lambda copy: copy.size):
            engine.put_copies(some)
        engine.put_keys(keys)
    engine.cancel(ids[:9])
    engine.discard(ids[:9])


@pytest.mark.parametrize("partitions", [1, 4])
def test_memory_returns_to_its_baseline(
    lean_server: RedisServer, open_redis: OpenRedis, partitions: int
) -> None:
    place = Place(lean_server, open_redis, partitions)
    empty, grown, used = place.bytes_stored(), 0, []
    for _ in range(3):
        run_generation(place, 300)
        grown = place.bytes_stored() - empty
        assert grown > 300 * 4 * 500
        place.pass_time(KEEP_MS)
        place.tend()
        assert place.left_over() == {}
        assert place.number_of_keys() == len(KINDS) * partitions
        # Redis shrinks the tables of a key as the key is used, not at once.
        assert place.bytes_stored() - empty < grown / 8
        used.append(place.bytes_used())
    assert used[2] - used[1] < grown / 8  # the server's own memory varies
    assert place.engine.sessions() == []
    assert place.engine.check() == []


def test_a_session_that_holds_many_jobs_ends_in_bites(
    lean_server: RedisServer, open_redis: OpenRedis
) -> None:
    """The first batch charges the suspects, and the session is gone from then on."""
    place = Place(lean_server, open_redis)
    ids = place.put(2 * CHUNK + 100)
    place.claim("worker", len(ids))
    asked = encode.of_texts(("worker", "suspect", "killed", *ids[-2:]))
    assert place.engine._broadcast("close", asked) == [[2, CHUNK, 1]]
    assert claim_jobs(place.engine, "worker", next(place._nonces), Plan(), 1).gone
    assert place.engine.close("worker", ids[-2:], "killed") == Closed(released=CHUNK + 98)
    assert place.engine.stats().queues == {"default": {State.READY: len(ids)}}
    assert place.engine.check() == []


def test_many_silent_sessions_end_in_bites(lean_server: RedisServer, open_redis: OpenRedis) -> None:
    place = Place(lean_server, open_redis)
    for number in range(BITE + 50):
        place.engine.release(f"session-{number}", next(place._nonces))
    place.pass_time(2 * LEASE_MS)
    assert len(place.engine.sessions()) == BITE + 50
    assert place.engine.tend().more
    assert len(place.engine.sessions()) == 50
    assert not place.engine.tend().more
    assert place.engine.sessions() == []


def test_the_bytes_of_a_job_are_those_of_the_figures(
    lean_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Other numbers of jobs, and other versions and allocators of Redis, need a little more or
    less. After a larger difference, run `make bench`, or find out what a job needs now."""
    place = Place(lean_server, open_redis)
    number, empty = 5_000, place.bytes_used()
    place.put(number, task=MEASURED_TASK, payload=MEASURED_CALL)
    queued = (place.bytes_used() - empty) / number
    for _ in range(number // CHUNK):
        place.succeed(place.claim("host.1234.0123456789abcdef", CHUNK), b"null")
    finished = (place.bytes_used() - empty) / number
    print(f"bytes of a job: {queued:.0f} queued, {finished:.0f} finished")
    told = {figure.name: figure.value for figure in redis_figures()}
    assert queued == pytest.approx(told["stored for a queued job"], rel=0.1)
    assert finished == pytest.approx(told["stored for a finished job"], rel=0.1)


def test_the_page_tells_of_the_job_that_is_measured() -> None:
    with Windlass("sqlite:///:memory:") as app:
        job = app.task(name=MEASURED_TASK)(measured).enqueue(12345)
        (record,) = app.engine.get([job.id])
    assert record is not None
    assert record.payload == MEASURED_CALL
    assert f"whose call takes {len(MEASURED_CALL)} bytes" in read(PAGE).replace("\n", " ")


def measured(number: int) -> None:
    """The task of the benchmark, which is not imported: the import would look for its URL."""


def redis_figures() -> list[Figure]:
    return [figure for figure in read_results().figures if figure.setting == "redis everysec"]


def test_no_client_may_search_all_keys() -> None:
    """All tests run with only these permissions, so that no test can search all keys. To walk the
    fields of one key in batches is allowed."""
    rights = {right.removeprefix("+") for right in documented_rights("windlass")}
    assert "evalsha" in rights
    assert rights.isdisjoint({"keys", "scan", "sscan", "zscan", "randomkey", "sort"})
    assert not any(right.startswith("@") for right in rights)
