"""A real server that refuses to work for a while: the call outlasts it, or gives advice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.engine.redis.slots import (
    EVERY_KEY,
    IN_CLUSTER_MODE,
    NAMESPACE,
    RESTING,
    SLOT,
    Pair,
    Snapshot,
)
from tests.redis_server import RedisServer, private_server
from tests.worker.yard import until
from windlass.engine.contract import PutCode
from windlass.errors import EngineUnavailable

#: How long a transient refusal lasts, in seconds.
LASTS_S = 0.3


@dataclass(frozen=True)
class Trouble:
    """A server, and how to make it refuse all work and accept it again."""

    url: str
    begin: Callable[[], None]
    end: Callable[[], None]


@contextmanager
def cannot_save() -> Iterator[Trouble]:
    """MISCONF: a folder blocks the file of its snapshot."""
    server = private_server("--save", "3600 1000")
    place = server.folder / "dump.rdb"

    def begin() -> None:
        place.mkdir()
        save(server, "err")

    def end() -> None:
        place.rmdir()
        save(server, "ok")

    yield Trouble(server.url(), begin, end)
    server.end()


def save(server: RedisServer, status: str) -> None:
    server.tell("BGSAVE")
    expected = f"rdb_last_bgsave_status:{status}".encode()
    until(lambda: expected in server.tell("INFO", "persistence"), f"a snapshot: {status}")


@contextmanager
def owns_no_slot() -> Iterator[Trouble]:
    """CLUSTERDOWN: no node serves the slot of the partition."""
    server = private_server(*IN_CLUSTER_MODE)

    def change(command: str, *slots: int) -> None:
        assert server.tell("CLUSTER", command, *map(str, slots)) == b"+OK\r\n"

    change("ADDSLOTSRANGE", 0, 16_383)
    until(lambda: b"cluster_state:ok" in server.tell("CLUSTER", "INFO"), "a cluster of one")
    url = server.url(namespace=NAMESPACE)
    yield Trouble(url, lambda: change("DELSLOTS", SLOT), lambda: change("ADDSLOTS", SLOT))
    server.end()


@contextmanager
def moves_its_slot() -> Iterator[Trouble]:
    """TRYAGAIN: one of the keys of a script is already on the other node."""
    pair = Pair()
    stored: list[Snapshot] = []

    def begin() -> None:
        stored.append(pair.source.snapshot())
        pair.begin(stored[0], EVERY_KEY - {"count"}, {"count"})

    def end() -> None:
        pair.target.do([RESTING])
        pair.source.place(stored[0], EVERY_KEY, RESTING)

    yield Trouble(pair.source.server.url(namespace=NAMESPACE), begin, end)
    pair.end()


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (cannot_save, r"\(MISCONF .*\)\. It cannot write to its disk"),
        (
            owns_no_slot,
            r"\(Hash slot not served\)\. Wait until the cluster has a new owner for these slots",
        ),
        (moves_its_slot, r"\(Multiple keys .*\)\. Wait until the slot has moved"),
    ],
    ids=["MISCONF", "CLUSTERDOWN", "TRYAGAIN"],
)
def test_a_refusal_is_outlasted_or_told_with_what_helps(
    open_redis: OpenRedis, trouble: Callable[[], AbstractContextManager[Trouble]], says: str
) -> None:
    with trouble() as server:
        patient = open_redis(server.url, timeout_ms=20_000)
        hasty = open_redis(server.url, timeout_ms=300)
        for engine in (patient, hasty):
            engine.put([new_job()])  # so that only the refusal counts towards its timeout
        server.begin()
        with pytest.raises(EngineUnavailable, match=f"did no work for .* s {says}"):
            hasty.put([new_job(1)])
        passing = threading.Timer(LASTS_S, server.end)
        started = time.monotonic()
        passing.start()
        assert patient.put([new_job(2)])[0].code is PutCode.CREATED
        assert time.monotonic() - started >= LASTS_S
        passing.join()
        assert hasty.get(["job-000001"]) == [None]
        assert patient.stats().totals == {"enqueued": 2}
        assert patient.check() == []
