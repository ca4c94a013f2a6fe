"""Jobs are stored in the transaction of the caller, with every library."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from tests.client.connections.callers import ON_POSTGRESQL, ON_SQLITE, Caller, Place

each_on_postgresql = pytest.mark.parametrize("caller", ON_POSTGRESQL.values(), ids=ON_POSTGRESQL)
each_on_sqlite = pytest.mark.parametrize("caller", ON_SQLITE.values(), ids=ON_SQLITE)


def stored(place: Place) -> list[str]:
    """What another connection sees."""
    if place.url:
        with psycopg.connect(place.url) as connection:
            rows = connection.execute('SELECT id FROM notes ORDER BY id COLLATE "C"').fetchall()
    else:
        with closing(sqlite3.connect(place.file)) as other:
            rows = other.execute("SELECT id FROM notes ORDER BY id").fetchall()
    return [row[0] for row in rows]


@each_on_postgresql
def test_a_commit_stores_all_on_postgresql(caller: Caller, on_postgresql: Place) -> None:
    assert caller(on_postgresql, True) == ["one", "two"]
    assert stored(on_postgresql) == ["one", "own", "two"]


@each_on_postgresql
def test_a_rollback_stores_nothing_on_postgresql(caller: Caller, on_postgresql: Place) -> None:
    assert caller(on_postgresql, False) == ["one", "two"]
    assert stored(on_postgresql) == []


@each_on_sqlite
def test_a_commit_stores_all_on_sqlite(caller: Caller, on_sqlite: Place) -> None:
    assert caller(on_sqlite, True) == ["one", "two"]
    assert stored(on_sqlite) == ["one", "own", "two"]


@each_on_sqlite
def test_a_rollback_stores_nothing_on_sqlite(caller: Caller, on_sqlite: Place) -> None:
    assert caller(on_sqlite, False) == ["one", "two"]
    assert stored(on_sqlite) == []
