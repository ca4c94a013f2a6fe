"""A server whose memory is full: it accepts no new jobs, and everything else continues, even for a
process that connects only now."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer, private_server
from windlass.core.states import Reason
from windlass.engine.contract import (
    AuditEntry,
    Beat,
    Buried,
    CancelCode,
    ChangeCode,
    DocumentChange,
    Plan,
    QueueChange,
    Retried,
    SessionCommand,
    Succeeded,
    Verdict,
    Waiter,
)
from windlass.engine.redis.engine import RedisEngine
from windlass.errors import EngineUnavailable
from windlass.testing.contract.world import claim_jobs, retry_jobs

JOBS = [f"job-{number:06d}" for number in range(8)]
PARTITIONS = (1, 4)
MADE = DocumentChange(kind="kind", key="key", expected="", revision="1", body=b"body")
REMOVED = DocumentChange(kind="kind", key="key", expected="1", revision="2", body=None)


@pytest.fixture(scope="module")
def roomy() -> Iterator[RedisServer]:
    server = private_server("--appendfsync", "no")
    yield server
    server.end()


@pytest.fixture(params=PARTITIONS)
def url(request: pytest.FixtureRequest, roomy: RedisServer) -> str:
    return roomy.url(partitions=request.param)


@pytest.fixture
def fresh(roomy: RedisServer, url: str, open_redis: OpenRedis) -> Iterator[RedisEngine]:
    """A new engine on a full server with six waiting jobs, one dead job and one running job."""
    before = open_redis(url)
    before.put([new_job(number) for number in range(2)])
    first, second = claim_jobs(before, "gone", "nonce", Plan(), 2).claims
    buried = Buried(id=first.id, token=first.token, reason=Reason.EXHAUSTED, error=b"e")
    assert before.finish([buried]) == [Verdict.OK]
    before.put([new_job(number) for number in range(2, 8)])
    assert before.change_documents([MADE]) == [True]
    assert second.id in JOBS
    roomy.tell("CONFIG", "SET", "maxmemory", "1")
    yield open_redis(url, timeout_ms=1_000)
    roomy.tell("CONFIG", "SET", "maxmemory", "0")
    assert before.check() == []


def dead_job(engine: RedisEngine) -> str:
    (found,) = (record for record in engine.get(JOBS) if record and record.state.value == "dead")
    return found.id


def test_it_is_read(fresh: RedisEngine) -> None:
    counts = fresh.stats()
    assert counts.totals["enqueued"] == 8
    assert fresh.check() == []
    assert fresh.sessions()[0].session == "gone"
    assert fresh.examine()


def test_it_takes_in_nothing_new(fresh: RedisEngine) -> None:
    with pytest.raises(EngineUnavailable, match="raise maxmemory, or remove jobs") as caught:
        fresh.put([new_job(100)])
    assert caught.value.unsent  # a refused call changes nothing
    assert fresh.get(["job-000100"]) == [None]


def test_a_fresh_worker_works(fresh: RedisEngine) -> None:
    assert fresh.beat([Beat(session="new", info=b"here")])[0].alive
    claims = claim_jobs(fresh, "new", "nonce", Plan(), 3).claims
    assert len(claims) == 3
    one, two, three = ((claim.id, claim.token) for claim in claims)
    outcomes = (
        Succeeded(id=one[0], token=one[1], result=b"result", result_ttl_ms=60_000),
        Retried(id=two[0], token=two[1], delay_ms=10, error=b"e"),
        Buried(id=three[0], token=three[1], reason=Reason.EXHAUSTED, error=b"e"),
    )
    assert fresh.finish(outcomes) == [Verdict.OK] * 3
    assert claim_jobs(fresh, "new", "other", Plan(), 1).claims
    assert fresh.release("new", "other") == 1
    fresh.wait([Waiter("new", Plan(queues=("empty",)))], 1)
    assert fresh.close("new", [], "cause").released == 0
    fresh.tend(())


def purge(engine: RedisEngine) -> bool:
    removed, cursor = 0, None
    while True:
        emptied = engine.purge("q", cursor)
        removed, cursor = removed + emptied.number, emptied.cursor
        if cursor is None:
            return removed == 6


def pause(engine: RedisEngine) -> bool:
    engine.change_queue("q", QueueChange(paused=True))
    return not claim_jobs(engine, "new", "nonce", Plan(), 1).claims


def remove_document(engine: RedisEngine) -> bool:
    return engine.change_documents([REMOVED]) == [True] and not engine.list_documents("kind")


def note(engine: RedisEngine) -> bool:
    engine.add_audit([AuditEntry(id="a", body=b"removed a job")])
    return len(engine.list_audit()) == 1


#: An action of an operator -> whether it was done
DEEDS: dict[str, Callable[[RedisEngine], bool]] = {
    "purge": purge,
    "discard": lambda engine: engine.discard([dead_job(engine)]) == [ChangeCode.DONE],
    "retry": lambda engine: retry_jobs(engine, [dead_job(engine)]) == [ChangeCode.DONE],
    "cancel": lambda engine: CancelCode.CANCELLED in engine.cancel(JOBS),
    "pause": pause,
    "command": lambda engine: engine.command(["gone"], SessionCommand.STOP) == [True],
    "remove a document": remove_document,
    "note it": note,
}


@pytest.mark.parametrize("deed", DEEDS)
def test_an_operator_makes_room(fresh: RedisEngine, deed: str) -> None:
    assert DEEDS[deed](fresh)
