"""Stored data: nothing past its retention, no empty key, and no more rights than documented."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.contract.variants import Variant
from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer, documented_rights
from tests.soon import TRIES, is_once
from windlass.engine.contract import (
    GONE_SESSION_MS,
    Beat,
    Engine,
    Plan,
    ScheduleChange,
    SessionCommand,
    UniqueKey,
    Waiter,
    WakeUp,
)
from windlass.engine.redis.keys import KINDS, KeyKind, key
from windlass.errors import EngineError
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.test_check import live_a_life
from windlass.testing.contract.world import World, claim_jobs

NAMESPACE = "keeping"


def size_of(server: RedisServer, partition: int, name: str) -> int:
    command = "HLEN" if KINDS[name] is KeyKind.HASH else "ZCARD"
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
        if name not in {"meta", "total", "document", "audit"}
    }
    assert set(sizes.values()) == {1}, sizes
    assert world.engine.check() == []
    variant.shutdown()


def test_no_command_of_a_dead_session_is_kept(own_server: RedisServer, tmp_path: Path) -> None:
    """One more comes from an older version, which ends sessions and leaves their commands."""
    variant = Variant("redis", tmp_path, own_server.url(namespace=NAMESPACE))
    world, name = World(variant), key(NAMESPACE, 0, "sessions")
    world.engine.beat([Beat(session="worker", info=b"me")])
    assert world.engine.command(["worker"], SessionCommand.STOP) == [True]
    assert size_of(own_server, 0, "sessions") == 4  # and the sentinel, a state and an info
    world.engine.close("worker", [], "ended")
    assert world.engine.command(["worker"], SessionCommand.STOP) == [False]
    assert size_of(own_server, 0, "sessions") == 2
    own_server.tell("HSET", name, r'"worker\x00command"', "stop")
    world.advance(GONE_SESSION_MS)
    world.engine.tend()
    assert size_of(own_server, 0, "sessions") == 1
    variant.shutdown()


def test_a_lost_member_is_found_by_the_check(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(server.url(namespace="damaged"))
    engine.put([new_job(number, payload=b"x" * 2_000) for number in range(3)])
    claim_jobs(engine, "worker", "nonce", Plan(), 1)
    engine.put([new_job(3, unique=UniqueKey(key="lost"))])
    assert engine.check() == []
    server.tell("HDEL", key("damaged", 0, "body"), "job-000001")
    standing = r"\x00\x00\x00d\x00\x00\x00\x00\x00\x00\x03"
    server.tell("ZREM", key("damaged", 0, "ready"), rf'"0q\x00{standing}job-000002"')
    server.tell("ZREM", key("damaged", 0, "lease"), "worker")
    server.tell("HINCRBY", key("damaged", 0, "count"), '"q\\x00ready"', "5")
    server.tell("ZREM", key("damaged", 0, "dead"), '""')
    server.tell("ZADD", key("damaged", 0, "unique"), "0", '"1:tkey\\x00job-000000"')
    server.tell("ZREM", key("damaged", 0, "unique"), '"1:tlost\\x00job-000003"')
    found = "\n".join(engine.check())
    for words in (
        "Job job-000001 has no body.",
        "Job job-000002 is ready (held: none), but not listed in ready.",
        "The counters say 9 jobs exist, but there are 4.",
        "session worker, which is unknown",
        "The set dead has lost its sentinel.",
        "A unique key leads to job job-000000, which has another one.",
        "holds the unique key lost, but that does not lead to it.",
    ):
        assert words in found


def test_a_damaged_schedule_is_found_by_the_check(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(server.url(namespace="timetable"))
    for name in ("a", "b", "c", "d"):
        made = ScheduleChange(
            name=name, expected="", revision="r", due_ms=1_000, note=b"n", body=b"body"
        )
        assert engine.change_schedules([made]) == [True]
    assert engine.check() == []
    server.tell("ZREM", key("timetable", 0, "schedule_due"), "a")
    server.tell("ZADD", key("timetable", 0, "schedule_due"), "5", "b")
    server.tell("HDEL", key("timetable", 0, "schedule"), "n:c")
    server.tell("ZREM", key("timetable", 0, "schedule_names"), "d")
    found = "\n".join(engine.check())
    for words in (
        "Schedule a is due at 1000, but listed for never.",
        "Schedule b is due at 1000, but listed for 5.",
        "Schedule c is listed, but not stored as a whole.",
        "3 schedules are listed, but they have 11 parts instead of three each.",
    ):
        assert words in found


numbers = count(2_000)


def put_soon(engine: Engine) -> None:
    time.sleep(0.1)  # nothing shows that the others are registered
    engine.put([new_job(next(numbers), queue="other")])


def await_a_job(waiting: Engine, putting: Engine) -> None:
    """Wait once under a nonce that is released, and once under one that gets a job."""
    plan = Plan(queues=("awaited",))
    putting.beat([Beat(session="waiter", info=b"it")])
    assert waiting.wait([Waiter("waiter", plan, "nonce-1")], 10) == []
    assert not claim_jobs(waiting, "waiter", "nonce-1", plan, 1, is_last=True).claims
    waiters = [Waiter("waiter", plan, "nonce-2")]
    assert waiting.wait(waiters, 10) == []
    putting.put([new_job(1000, queue="awaited")])
    assert [wake_up.session for wake_up in waiting.wait(waiters, 400)] == ["waiter"]
    assert claim_jobs(waiting, "waiter", "nonce-2", plan, 1, is_last=True).claims


def is_woken(waiting: Engine, putting: Engine) -> bool:
    with ThreadPoolExecutor() as pool:
        soon = pool.submit(put_soon, putting)
        started = time.monotonic()
        woken: list[WakeUp] = []
        while not woken:
            woken = waiting.wait([Waiter("worker", Plan(queues=("other",)))], 20_000)
        took_s = time.monotonic() - started
        soon.result()
    return took_s < 0.45  # otherwise it has only polled


def live_with_a_waiter(url: str, folder: Path, tries: int = 1) -> None:
    """Run all operations of an engine; one engine waits while another puts a job."""
    variant = Variant("redis", folder, url)
    try:
        world = World(variant)
        live_a_life(world)
        large = world.put(payload=b"x" * 10_000, queue="large")
        assert [claim.id for claim in world.claim("large", queues=("large",)).claims] == [large]
        world.engine.discard(world.ids())
        world.everything()
        assert world.engine.check() == []
        walk = world.engine.repair(change=True)
        while walk.cursor is not None:
            walk = world.engine.repair(walk.cursor, change=True)
        world.engine.beat([Beat(session=f"many-{number}", info=b"it") for number in range(501)])
        seen = world.engine.introductions("many-")
        assert seen.cursor is not None
        world.engine.introductions("many-", seen.cursor)
        waiting, putting = variant.open(), variant.open()
        assert is_once(partial(is_woken, waiting, putting), tries)
        await_a_job(waiting, putting)
    finally:
        variant.shutdown()


def refused_by(server: RedisServer) -> set[bytes]:
    """What a server has refused since the last call: commands, keys and channels. The driver's own
    introduction to newer servers is left out."""
    log = server.tell("ACL", "LOG")
    server.tell("ACL", "LOG", "RESET")
    return set(re.findall(rb"object\r\n\$\d+\r\n(.*)\r\n", log)) - {b"client|setinfo"}


def test_a_life_needs_every_documented_right(own_server: RedisServer, tmp_path: Path) -> None:
    """Without one of them, the server refuses something. All other tests show that they suffice."""
    rights = documented_rights("windlass")
    url = own_server.url_for("limited", 1)
    own_server.add_user("limited", *rights)
    live_with_a_waiter(url, tmp_path, TRIES)
    assert refused_by(own_server) == set()
    for right in (right for right in rights if right[0] in "~&+"):
        own_server.tell("FLUSHALL")
        own_server.tell("SCRIPT", "FLUSH")
        own_server.add_user("limited", *(other for other in rights if other != right))
        with contextlib.suppress(EngineError, AssertionError):
            live_with_a_waiter(url, tmp_path)
        refused = refused_by(own_server)
        assert refused, f"{right} is not needed"
        assert right[0] != "+" or refused == {right[1:].encode()}


def test_the_rights_end_at_the_namespace(own_server: RedisServer, open_redis: OpenRedis) -> None:
    mine = own_server.url(namespace="mine")
    open_redis(mine).put([new_job()])
    for other in ("minerals", "other"):
        with pytest.raises(EngineError, match=r"refused a command.*Check the rights"):
            open_redis(mine.replace("namespace=mine", f"namespace={other}")).stats()


def test_work_is_found_without_any_wake_up(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """Without the permission to publish or subscribe: only speed depends on it."""
    own_server.add_user("deaf", "on", ">secret", "~*", "+@all", "resetchannels")
    url = own_server.url_for("deaf")
    waiting, putting = open_redis(url), open_redis(url)
    waiters = [Waiter("worker", Plan())]
    waiting.wait(waiters, 0)
    producer = threading.Timer(0.1, putting.put, ([new_job()],))
    producer.start()
    found: list[str] = []
    deadline = time.monotonic() + 10
    while not found and time.monotonic() < deadline:
        waiting.wait(waiters, 10_000)
        found = [claim.id for claim in claim_jobs(waiting, "worker", "nonce", Plan(), 1).claims]
    producer.join()
    assert found == ["job-000000"]
    assert putting.check() == []
