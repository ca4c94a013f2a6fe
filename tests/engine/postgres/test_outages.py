"""What a caller sees of a connection that breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.proxy import Proxy


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
