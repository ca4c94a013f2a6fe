"""Lists of bytes are sent as they are, and stored as they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.postgres.databases import Database
from tests.postgres_databases import borrow_database
from tests.postgres_server import shared_server
from tests.proxy import Proxy
from windlass.engine.contract import NewJob
from windlass.engine.postgres.blob_arrays import ListWriter

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bytea", [b"\x00\xff\\{}\",'"]),
        ("bytea", [b"", None, b"x" * 300]),
        ("bytea", [None, b"x"]),
        ("bytea", [None, None]),
        ("bytea", []),
        ("text", ["a", None, '"{\\}']),
        ("integer", [1, None, -1]),
    ],
    ids=str,
)
def test_a_list_arrives_as_it_is(kind: str, values: list[Any]) -> None:
    with shared_server().connect() as connection:
        connection.adapters.register_dumper(list, ListWriter)
        row = connection.execute(f"SELECT %s::{kind}[]".encode(), [values]).fetchone()
    assert row == (values,)


def test_a_call_takes_its_own_bytes_on_the_way() -> None:
    server = shared_server()
    database = Database(server, borrow_database())
    with Proxy(server.port) as link:
        engine = database.open_url(server.url(database.name, port=link.port), timeout_ms=2_000)
        engine.stats()
        link.wear_out(MEGABYTE + MEGABYTE // 4)  # each connection is cut after this many bytes
        job = NewJob(engine.new_id("task", "queue", None), "task", "queue", b"\xff" * MEGABYTE)
        assert [placed.id for placed in engine.put([job])] == [job.id]
        engine.shutdown()
