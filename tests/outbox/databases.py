"""Databases of callers, with an outbox and a table of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.postgres_server import OWNER, WORKER, PostgresServer, shared_server
from windlass.outbox.connect import open_outbox
from windlass.outbox.url import OutboxUrl

#: What the guide says that the roles of an app need.
RIGHTS: Final = (
    f"GRANT USAGE ON SCHEMA windlass_outbox TO {WORKER};"
    f"GRANT SELECT ON windlass_outbox.format TO {WORKER};"
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON windlass_outbox.jobs TO {WORKER};"
)


class Shop:
    """The database of a shop: its url for `outbox`, and connections as the shop has them."""

    def __init__(self, url: str, connect: Callable[[], Any]) -> None:
        self.url = OutboxUrl(url)
        self.connect = connect

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection that is not committed at the end."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def waiting(self) -> list[str]:
        """The ids in the outbox."""
        with self.connection() as connection:
            table = f"{self.url.namespace}{'_' if self.is_sqlite else '.'}jobs"
            query = f"SELECT id FROM {table} ORDER BY position"  # noqa: S608  # our own names
            return [row[0] for row in connection.execute(query).fetchall()]

    @property
    def is_sqlite(self) -> bool:
        return self.url.url.startswith("sqlite")


def sqlite_shop(folder: Path, *, is_migrated: bool = True) -> Shop:
    file = folder / "shop.db"
    sqlite3.connect(file).close()
    shop = Shop(f"sqlite:///{file}", lambda: sqlite3.connect(file, timeout=30))
    with shop.connection() as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE orders (id TEXT)")
    if is_migrated:
        migrate(shop)
    return shop


def postgres_shop(server: PostgresServer | None = None, *, is_migrated: bool = True) -> Shop:
    server = server or shared_server()
    database = server.new_database()
    with server.connect(database, OWNER) as connection:
        connection.execute("CREATE TABLE orders (id text); GRANT ALL ON orders TO PUBLIC")
    url = server.url(database)
    shop = Shop(url, lambda: psycopg.connect(url))
    if is_migrated:
        migrate(Shop(server.url(database, user=OWNER), shop.connect))
        with server.connect(database, OWNER) as connection:
            connection.execute(RIGHTS)
    return shop


def migrate(shop: Shop) -> int:
    rows = open_outbox(shop.url)
    try:
        return rows.migrate()
    finally:
        rows.close()
