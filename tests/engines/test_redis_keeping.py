"""What is stored: nothing that should be gone, nothing empty, no more rights than are told of."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from tests.contract.test_check import live_a_life
from tests.contract.variants import OPTIONS, Variant
from tests.contract.world import World
from tests.engines.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from windlass.engine.contract import Plan
from windlass.engine.redis.keys import KINDS, Kind, key

PROJECT = Path(__file__).parent.parent.parent
NAMESPACE = "keeping"


def size_of(server: RedisServer, partition: int, name: str) -> int:
    command = "HLEN" if KINDS[name] is Kind.HASH else "ZCARD"
    reply = server.tell(command, key(NAMESPACE, partition, name))
    return int(reply.removeprefix(b":"))


@pytest.mark.parametrize("partitions", [1, 4])
def test_nothing_but_sentinels_is_left_when_all_was_kept_long_enough(
    own_server: RedisServer, tmp_path: Path, partitions: int
) -> None:
    url = own_server.url(namespace=NAMESPACE, partitions=partitions)
    variant = Variant("redis" if partitions == 1 else "redis-4", tmp_path, url)
    world = World(variant)
    live_a_life(world)
    world.engine.cancel(world.ids())
    world.engine.close("worker-of-none", [], "ended")
    world.let_expire()
    world.advance(10 * OPTIONS.dead_ttl_ms)
    while world.engine.tend().more:
        pass
    sizes = {
        (partition, name): size_of(own_server, partition, name)
        for partition in range(partitions)
        for name in KINDS
        if name not in {"meta", "total"}
    }
    assert set(sizes.values()) == {1}, sizes
    assert world.engine.check() == []
    variant.shutdown()


def test_a_lost_member_is_found_by_the_check(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(server.url(namespace="damaged"))
    engine.put([new_job(number) for number in range(3)])
    engine.claim("worker", "nonce", Plan(), 1)
    assert engine.check() == []
    server.tell("HDEL", "{damaged:p0}:body", "job-000001")
    server.tell("ZREM", "{damaged:p0}:ids", "job-000002")
    server.tell("ZREM", "{damaged:p0}:lease", "worker")
    server.tell("HINCRBY", "{damaged:p0}:count", '"q\\x00ready"', "5")
    server.tell("ZREM", "{damaged:p0}:dead", '""')
    found = "\n".join(engine.check())
    for words in (
        "Job job-000001 has no body.",
        "The counters say 8 jobs are listed, but there are 2.",
        "session worker, which is unknown",
        "The set dead has lost its sentinel.",
    ):
        assert words in found


def test_the_rights_that_are_told_of_suffice(own_server: RedisServer, tmp_path: Path) -> None:
    page = (PROJECT / "docs/internals/redis.md").read_text()
    (command,) = re.findall(r"^ACL SETUSER .*$", page, re.MULTILINE)
    assert own_server.tell(*command.split()) == b"+OK\r\n"
    url = own_server.url(namespace="windlass").replace("redis://", "redis://windlass:secret@")
    variant = Variant("redis", tmp_path, url)
    world = World(variant)
    live_a_life(world)
    assert world.engine.check() == []
    waiting, putting = variant.open(), variant.open()
    producer = threading.Timer(0.1, putting.put, ([new_job(queue="other")],))
    producer.start()
    started = time.monotonic()
    waiting.wait(Plan(queues=("other",)), 20_000)
    assert time.monotonic() - started < 0.45, "it was woken, and did not only look"
    producer.join()
    variant.shutdown()


def test_work_is_found_without_any_wake_up(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """Nobody may publish or subscribe: nothing but speed depends on it."""
    rights = ("~*", "+@all", "resetchannels")
    own_server.tell("ACL", "SETUSER", "deaf", "on", ">secret", *rights)
    url = own_server.url().replace("redis://", "redis://deaf:secret@")
    waiting, putting = open_redis(url), open_redis(url)
    waiting.wait(Plan(), 0)
    producer = threading.Timer(0.1, putting.put, ([new_job()],))
    producer.start()
    found: list[str] = []
    deadline = time.monotonic() + 10
    while not found and time.monotonic() < deadline:
        waiting.wait(Plan(), 10_000)
        found = [claim.id for claim in waiting.claim("worker", "nonce", Plan(), 1).claims]
    producer.join()
    assert found == ["job-000000"]
    assert putting.check() == []
