"""Databases with the table `notes`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.client.connections.callers import Notes, Place
from tests.postgres_server import OWNER, WORKER, shared_server
from windlass.engine.contract import Dialect


@pytest.fixture(scope="session")
def notes_database() -> str:
    server = shared_server()
    name = server.new_database()
    with server.connect(name, OWNER) as connection:
        connection.execute("CREATE TABLE notes (id text PRIMARY KEY, body bytea)")
        connection.execute(f"GRANT ALL ON notes TO {WORKER}")
    return name


@pytest.fixture
def on_postgresql(notes_database: str) -> Place:
    server = shared_server()
    with server.connect(notes_database) as connection:
        connection.execute("TRUNCATE notes")
    return Place(server.url(notes_database), Path(), Notes(Dialect.POSTGRESQL))


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, body BLOB)")
    return Place("", file, Notes(Dialect.SQLITE))
