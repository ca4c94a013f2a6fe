"""What a caller sees of a connection that breaks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.proxy import Proxy
from windlass.engine.sql.wakeup import ReadyLine


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


def test_a_broken_connection_is_replaced_without_a_warning_of_the_driver(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    server = database.server
    with Proxy(server.port) as proxy:
        url = server.url(database.name, port=proxy.port)
        engine = database.open_url(url)
        for number in range(2):
            engine.put([new_job()])  # a transaction that is sent as a whole
            proxy.reset()
            engine.put([new_job(idempotency_key=f"key-{number}")])  # and one with several replies
            proxy.reset()
        proxy.swallow_reply()
        engine.put([new_job(idempotency_key="later")])
    assert [record for record in caplog.records if record.name.startswith("psycopg")] == []


def test_a_put_does_not_wait_for_long_to_announce_its_jobs(database: Database) -> None:
    """All connections are busy, perhaps with calls that wait for a lock."""
    engine = database.open(timeout_ms=60_000)
    pool = engine._connections
    held = [pool._take(time.monotonic() + 60) for _ in range(pool._most)]
    began = time.monotonic()
    engine._wakeup.wake({ReadyLine("q"): 1})
    assert time.monotonic() - began < 20
    for connection in held:
        pool._discard(connection)


@pytest.mark.parametrize(("option", "idle_s"), [("", "30"), ("?keepalives_idle=7", "7")])
def test_idle_connections_are_probed(database: Database, option: str, idle_s: str) -> None:
    """A router on the way would forget them, and the next call would get no reply."""
    engine = database.open_url(database.server.url(database.name) + option)
    parameters = [engine._connections.run(lambda own: own.info.get_parameters())]
    with engine.transaction() as connection:
        parameters.append(connection.info.get_parameters())
    assert [one["keepalives_idle"] for one in parameters] == [idle_s] * 2
