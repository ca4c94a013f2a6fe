"""Heartbeats of a busy worker over slow links, with real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy import Proxy
from tests.redis_server import RedisServer, private_server
from tests.worker.yard import Yard, until
from windlass.app import Windlass
from windlass.core.states import Reason, State
from windlass.engine.contract import Buried, Filter, Plan
from windlass.testing.contract.world import claim_jobs

MEGABYTE = 1_000_000
#: 4 MB a second, for each connection.
PIECE_BYTES, EVERY_S = 40_000, 0.01
DAY_MS = 24 * 60 * 60 * 1000
LEASE_S = 2


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = private_server()
    yield server
    server.end()


def bury_letters(url: str, number: int) -> None:
    """Dead letters of a megabyte each, whose time has passed."""
    app = Windlass(url, lease=LEASE_S, dead_ttl="1d")
    engine = app.engine
    engine.clock_offset_ms = -30 * DAY_MS
    task = app.task(name="gone", queue="letters")(_do_nothing)
    for count in range(number):
        task.enqueue("x" * MEGABYTE)
        (claim,) = claim_jobs(
            engine, "past", f"nonce-{count:06}", Plan(queues=("letters",)), 1
        ).claims
        engine.finish([Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"")])
    engine.close("past", (), "the end")
    app.close()


def _do_nothing(text: str) -> None: ...


@pytest.mark.parametrize("number", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_beats_go_on_while_large_dead_letters_are_swept(
    server: RedisServer, tmp_path: Path, partitions: int, number: int
) -> None:
    url = f"{server.url(namespace='letters')}&partitions={partitions}"
    bury_letters(url, number)
    yard = Yard(tmp_path, f"{LEASE_S}s", "1s", 3, url)
    engine = yard.app.engine
    with Proxy(server.port) as proxy:
        proxy.drip(PIECE_BYTES, EVERY_S)
        job = yard.plain("long", "sleep:600")
        worker = yard.start(url=url.replace(f":{server.port}/", f":{proxy.port}/"))
        yard.await_start("long")

        def is_swept() -> bool:
            engine.tend(())  # it takes back what silent sessions hold, and sweeps no dead letter
            time.sleep(LEASE_S / 10)
            return len(engine.find(Filter(state=State.DEAD)).records) <= 4

        until(is_swept, f"the sweep of {number} MB", 20 + number)
        assert (yard.record(job).state, yard.record(job).counters.losses) == (State.RUNNING, 0)
        assert " expired" not in worker.log()
    yard.close()
    assert len(yard.events("start", "long")) == 1
