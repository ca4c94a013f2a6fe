"""A namespace that was set up before its format had all of today's keys: opening it adds them."""

from __future__ import annotations

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer, documented_rights
from windlass.core.history import MINUTE_MS, WIDTH
from windlass.engine.contract import (
    AuditEntry,
    Beat,
    DocumentChange,
    Measure,
    NewStep,
    Plan,
    Step,
    StepCode,
    Succeeded,
    Verdict,
)
from windlass.engine.redis import setup
from windlass.engine.redis.keys import key
from windlass.engine.redis.partitions import SHARED
from windlass.errors import EngineError, EngineUnavailable
from windlass.testing.contract.world import claim_jobs

#: Keys that were added to format 4.
ADDED = ("document", "audit", "history", "deaths", "dead_groups", "steps")
NAMESPACE = "earlier"
MADE = DocumentChange(kind="kind", key="key", expected="", revision="1", body=b"body")
STEP = Step("charge", b"receipt")
MEASURE = Measure(queue="q", task="t", counts=(1,) * WIDTH)
REMOVED = DocumentChange(kind="kind", key="key", expected="1", revision="2", body=None)


@pytest.fixture(params=[1, 4])
def url(request: pytest.FixtureRequest, own_server: RedisServer, open_redis: OpenRedis) -> str:
    """A namespace with a job, without the added keys."""
    url = own_server.url(namespace=NAMESPACE, partitions=request.param)
    before = open_redis(url)
    before.put([new_job()])
    for _ in range(2):  # then all scripts are known, and no call opens again
        assert before.check() == []
    for partition in range(request.param):
        for name in ADDED:
            own_server.tell("DEL", key(NAMESPACE, partition, name))
    assert len(before.check()) == len(ADDED) * request.param
    return url


def sizes(server: RedisServer, name: str, partitions: int = 1) -> set[bytes]:
    numbers = range(partitions)
    return {server.tell("ZCARD", key(NAMESPACE, partition, name)) for partition in numbers}


def test_the_first_call_adds_keys(url: str, own_server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(url)
    partitions = engine._partitions.number
    assert len(engine.stats().queues) == 1
    for name in ADDED:
        assert sizes(own_server, name, partitions) == {b":1\r\n"}  # the sentinel
    assert engine.check() == []
    assert engine.change_documents([MADE]) == [True]
    engine.add_audit([AuditEntry(id="a", body=b"entry")])
    assert [one.key for one in engine.list_documents("kind")] == ["key"]
    assert [one.id for one in engine.list_audit()] == ["a"]
    (claim,) = claim_jobs(engine, "worker", "nonce", Plan(), 1).claims
    new = NewStep(id=claim.id, token=claim.token, step=STEP)
    assert engine.put_steps([new]) == [StepCode.STORED]
    assert engine.read_steps(claim.id, claim.token) == (STEP,)
    engine.record("worker", 1, [MEASURE])
    assert len(engine.history(2 * MINUTE_MS).measures) == 1
    stored = own_server.tell("HGET", key(NAMESPACE, SHARED, "meta"), "format")
    assert stored == b"$1\r\n%d\r\n" % setup.FORMAT


def test_the_key_stays_when_the_last_document_is_removed(
    url: str, own_server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(url)
    engine.change_documents([MADE])
    engine.change_documents([REMOVED])
    assert sizes(own_server, "document") == {b":1\r\n"}


def test_a_full_server_stays_usable_without_them(
    url: str, own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """The keys are added when there is room."""
    own_server.tell("CONFIG", "SET", "maxmemory", "1")
    engine = open_redis(url, timeout_ms=1_000)
    assert engine.beat([Beat(session="worker", info=b"me")])[0].alive
    (claim,) = claim_jobs(engine, "worker", "nonce", Plan(), 1).claims
    assert engine.finish([Succeeded(id=claim.id, token=claim.token)]) == [Verdict.OK]
    with pytest.raises(EngineUnavailable, match="raise maxmemory"):
        engine.change_documents([MADE])
    with pytest.raises(EngineUnavailable, match="raise maxmemory"):
        engine.record("worker", 1, [MEASURE])
    own_server.tell("CONFIG", "SET", "maxmemory", "0")
    assert open_redis(url).check() == []


def test_a_new_namespace_without_the_rights_to_set_it_up_is_refused(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Even for a first call that only reads: no key may be left without its sentinel."""
    rights = [right for right in documented_rights("windlass") if right != "+zadd"]
    own_server.add_user("limited", *rights)
    with pytest.raises(EngineError, match="Check the rights"):
        open_redis(own_server.url_for("limited")).stats()
    assert own_server.tell("HEXISTS", key("windlass", 0, "meta"), "format") == b":0\r\n"


def test_a_new_namespace_on_a_full_server_is_refused(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    own_server.tell("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(EngineUnavailable, match="raise maxmemory"):
        open_redis(own_server.url(namespace="new"), timeout_ms=500).stats()
    assert own_server.tell("DBSIZE") == b":0\r\n"
