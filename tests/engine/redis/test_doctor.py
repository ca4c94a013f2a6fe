"""The findings of `examine` on a Redis server: each line, on a server in that state."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.proxy import Proxy
from tests.redis_server import RedisServer, documented_rights, free_port, private_server
from tests.worker.yard import until
from windlass.engine.contract import Finding, Grade
from windlass.engine.redis import doctor, keys
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.url import RedisAddress, read_address
from windlass.engine.server_times import examine_round_trip
from windlass.errors import EngineUnavailable


@pytest.fixture(scope="module")
def bare() -> Iterator[RedisServer]:
    """A server whose settings tests change and restore, so that it is started only once."""
    server = private_server()
    yield server
    server.end()


def full_url(server: RedisServer, **options: object) -> str:
    """A URL with a user that may read the server's settings."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"redis://127.0.0.1:{server.port}/0?{query}"


def found(engine: RedisEngine) -> dict[str, Finding]:
    findings = engine.examine()
    by_subject = {finding.subject: finding for finding in findings}
    assert len(by_subject) == len(findings)
    return by_subject


@contextmanager
def setting(server: RedisServer, name: str, value: str) -> Iterator[None]:
    before = server.tell("CONFIG", "GET", name).split(b"\r\n")[-2].decode()
    assert server.tell("CONFIG", "SET", name, value) == b"+OK\r\n"
    yield
    server.tell("CONFIG", "SET", name, before or '""')


# ------------------------------------------------------------------------------------ the server


def test_every_line_is_there_and_nothing_is_made(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    url = server.url(partitions=2)
    assert list(found(open_redis(url))) == [
        *("version", "eviction", "persistence", "role", "memory", "connections", "partitions"),
        *("rights", "access", "clock", "round trip"),
    ]
    namespace = read_address(url).namespace
    assert server.tell("EXISTS", keys.key(namespace, 0, "meta")) == b":0\r\n"


@pytest.mark.parametrize(
    ("version", "grade"),
    [
        ("6.0.16", Grade.PROBLEM),
        ("6.2.19", Grade.ADVICE),
        ("6.2.20", Grade.OK),
        ("7.0.15", Grade.ADVICE),
        ("7.4.6", Grade.OK),
        ("8.2.1", Grade.ADVICE),
        ("8.4.0", Grade.OK),
    ],
)
def test_the_version(version: str, grade: Grade) -> None:
    finding = doctor._version({"redis_version": version}, RedisAddress(host="h"))
    assert finding.grade is grade
    assert version in finding.text


def test_the_version_of_valkey_is_its_own() -> None:
    for version, grade in (("8.1.3", Grade.ADVICE), ("8.1.4", Grade.OK)):
        info = {"redis_version": "7.2.4", "valkey_version": version}
        finding = doctor._version(info, RedisAddress(host="h"))
        assert finding.grade is grade
        assert f"Valkey {version}" in finding.text


def test_eviction(bare: RedisServer, open_redis: OpenRedis) -> None:
    assert found(open_redis(full_url(bare)))["eviction"].grade is Grade.OK
    with setting(bare, "maxmemory-policy", "volatile-lru"):
        assert found(open_redis(full_url(bare)))["eviction"].grade is Grade.OK
    with setting(bare, "maxmemory-policy", "allkeys-lru"):
        refused = found(open_redis(full_url(bare)))["eviction"]
        accepted = found(open_redis(full_url(bare, allow_eviction=1)))["eviction"]
    assert refused.grade is Grade.PROBLEM
    assert "drops keys" in refused.text
    assert accepted.grade is Grade.ADVICE
    assert "accepted by allow_eviction=1" in accepted.text


@pytest.mark.parametrize(
    ("name", "value", "grade", "words"),
    [
        ("appendfsync", "always", Grade.OK, "survive a crash of the server and a power failure"),
        ("appendfsync", "everysec", Grade.ADVICE, "up to about 2 s of confirmed jobs are lost"),
        ("appendfsync", "no", Grade.ADVICE, "in the last 30 s or so"),
        ("appendonly", "no", Grade.PROBLEM, "jobs confirmed since the last snapshot are lost"),
    ],
)
def test_persistence(
    bare: RedisServer, open_redis: OpenRedis, name: str, value: str, grade: Grade, words: str
) -> None:
    with setting(bare, name, value):
        finding = found(open_redis(full_url(bare)))["persistence"]
    assert finding.grade is grade
    assert words in finding.text


def test_a_snapshot_that_failed(own_server: RedisServer, open_redis: OpenRedis) -> None:
    (own_server.folder / "dump.rdb").mkdir()  # blocks the file of that name
    own_server.tell("BGSAVE")
    until(lambda: b"bgsave_status:err" in own_server.tell("INFO", "persistence"), "it fails")
    finding = found(open_redis(full_url(own_server)))["persistence"]
    assert finding.grade is Grade.PROBLEM
    assert "snapshot failed" in finding.text


def test_a_replica(own_server: RedisServer, open_redis: OpenRedis) -> None:
    assert found(open_redis(full_url(own_server)))["role"].text == "primary, 0 replicas"
    own_server.tell("REPLICAOF", "127.0.0.1", "1")
    finding = found(open_redis(full_url(own_server)))["role"]
    assert finding.grade is Grade.PROBLEM
    assert "replica of 127.0.0.1:1" in finding.text


def test_memory(bare: RedisServer, open_redis: OpenRedis) -> None:
    def graded(limit: str) -> Grade:
        with setting(bare, "maxmemory", limit):
            return found(open_redis(full_url(bare)))["memory"].grade

    (used,) = re.findall(rb"used_memory:(\d+)", bare.tell("INFO", "memory"))
    assert graded("0") is Grade.OK
    assert graded(str(int(used) * 10)) is Grade.OK
    assert graded(str(int(int(used) * 1.2))) is Grade.ADVICE
    assert graded("1000") is Grade.PROBLEM


def test_connections(bare: RedisServer, open_redis: OpenRedis) -> None:
    assert found(open_redis(full_url(bare)))["connections"].grade is Grade.OK
    with setting(bare, "maxclients", "10"):
        idle = [socket.create_connection(("127.0.0.1", bare.port)) for _ in range(8)]
        finding = found(open_redis(full_url(bare)))["connections"]
        for connection in idle:
            connection.close()
    assert finding.grade is Grade.ADVICE
    assert "of 10 in use" in finding.text


# --------------------------------------------------------------------------------- the namespace


def test_partitions(server: RedisServer, open_redis: OpenRedis) -> None:
    url = server.url(partitions=4)
    engine = open_redis(url)
    assert "not used yet; its first use fixes 4" in found(engine)["partitions"].text
    engine.put([new_job()])
    text = found(engine)["partitions"].text
    assert re.search(r"has 4, in format 4; before [-0-9]+ [:0-9]+ UTC nothing was stored", text)
    other = found(open_redis(url.replace("partitions=4", "partitions=2")))["partitions"]
    assert other.grade is Grade.PROBLEM
    assert "write ?partitions=4 in the url" in other.text


def test_the_documented_rights_are_enough(own_server: RedisServer, open_redis: OpenRedis) -> None:
    url = own_server.url(namespace="windlass")
    findings = found(open_redis(url))
    assert findings["rights"] == Finding(
        Grade.OK, "rights", "the user windlass has all rights that are needed"
    )
    assert findings["persistence"].grade is Grade.ADVICE
    assert "may not ask for" in findings["persistence"].text
    for less, missing in (
        ("-hrandfield", "HRANDFIELD"),
        ("-evalsha", "'evalsha'"),
        ("resetchannels", "PUBLISH windlass:wake:doctor, SUBSCRIBE windlass:wake:doctor"),
    ):
        own_server.add_user("windlass", *documented_rights("windlass"), less)
        finding = found(open_redis(url))["rights"]
        assert finding.grade is Grade.PROBLEM
        assert missing in finding.text, less


def test_keys_of_others_are_no_place(own_server: RedisServer, open_redis: OpenRedis) -> None:
    own_server.add_user("other", "on", ">secret", "~other:*", "&*", "+@all")
    engine = open_redis(own_server.url_for("other"))
    finding = found(engine)["rights"]
    assert finding.grade is Grade.PROBLEM
    assert "refused a command" in finding.text


# -------------------------------------------------------------------------------- the connection


@pytest.mark.parametrize(
    ("url", "grade", "words"),
    [
        ("unix:///run/redis.sock", Grade.OK, "socket"),
        ("redis://localhost", Grade.OK, "on this machine"),
        ("redis://[::1]", Grade.OK, "on this machine"),
        ("rediss://:secret@10.0.0.7", Grade.OK, "encrypted, with a password"),
        ("redis://:secret@10.0.0.7", Grade.ADVICE, "not encrypted"),
        ("rediss://10.0.0.7", Grade.ADVICE, "every client that reaches it can run your tasks"),
    ],
)
def test_access(url: str, grade: Grade, words: str) -> None:
    finding = doctor._access(read_address(url))
    assert finding.grade is grade
    assert words in finding.text


@pytest.mark.parametrize(("offset_ms", "word"), [(5_000, "ahead of"), (-5_000, "behind")])
def test_a_clock_that_differs(
    server: RedisServer, open_redis: OpenRedis, offset_ms: int, word: str
) -> None:
    engine = open_redis(server.url())
    assert found(engine)["clock"].grade is Grade.OK
    engine.clock_offset_ms = offset_ms
    finding = found(engine)["clock"]
    assert finding.grade is Grade.ADVICE
    assert f"5.0 s {word} ours" in finding.text


def test_a_long_way(server: RedisServer, open_redis: OpenRedis) -> None:
    assert examine_round_trip(1.5) == Finding(Grade.OK, "round trip", "1.50 ms")
    with Proxy(server.port) as proxy:
        proxy.delay(0.01)
        finding = found(open_redis(server.url(port=proxy.port)))["round trip"]
    assert finding.grade is Grade.ADVICE
    assert "Move the server closer" in finding.text


def test_a_server_that_is_away_raises(open_redis: OpenRedis) -> None:
    engine = open_redis(f"redis://127.0.0.1:{free_port()}/0", timeout_ms=200)
    with pytest.raises(EngineUnavailable):
        engine.examine()
