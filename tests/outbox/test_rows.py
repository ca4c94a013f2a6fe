"""The rows of an outbox on both kinds of databases: relays share them, and settle each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.outbox.databases import RIGHTS, Shop, migrate, postgres_shop, sqlite_shop
from tests.postgres_server import OWNER, WORKER, shared_server
from tests.proxy import Proxy
from tests.worker.yard import until
from windlass import EngineError, EngineUnavailable, FormatTooNew
from windlass.engine.contract import BATCH_BYTES, NewJob
from windlass.outbox import postgresql, sqlite
from windlass.outbox.connect import open_outbox
from windlass.outbox.producer import Outbox
from windlass.outbox.rows import OutboxRow, OutboxRows, Postponed
from windlass.outbox.tables import full_sql
from windlass.outbox.url import OutboxUrl

Bodies = Sequence[bytes]


def insert(shop: Shop, ids: Sequence[str], payload: bytes = b"") -> None:
    """Commit jobs, by the statements of producers."""
    jobs = [NewJob(id, "send", "default", payload) for id in ids]
    with shop.connection() as connection:
        for statement in Outbox(shop.url).put_within(jobs):
            run(connection, statement.sql, statement.values)
        connection.commit()


def run(connection: Any, sql: str, values: Sequence[Any]) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute(sql.replace("$", "?"), values)
    else:
        psycopg.RawCursor(connection).execute(sql.encode(), values)


def ids_of(rows: OutboxRows, limit: int = 500, most_bytes: int = BATCH_BYTES) -> list[str]:
    return [row.id for row in rows.take(limit, most_bytes)]


@pytest.fixture
def other(shop: Shop) -> Iterator[OutboxRows]:
    """The rows of another relay."""
    rows = open_outbox(shop.url)
    yield rows
    rows.close()


# ------------------------------------------------------------------------------------------- taking


def test_rows_are_taken_in_order(shop: Shop, rows: OutboxRows) -> None:
    ids = [f"job-{number % 7}-{number}" for number in range(250)]
    insert(shop, ids)
    taken = rows.take(500, BATCH_BYTES)
    assert [row.id for row in taken] == ids
    assert all(row.tries == 0 and 0 <= row.age_ms < 60_000 for row in taken)
    rows.settle([row.position for row in taken], [])
    assert shop.waiting() == []
    assert rows.take(500, BATCH_BYTES) == []


def test_a_batch_has_a_limit(shop: Shop, rows: OutboxRows) -> None:
    insert(shop, ["a", "b", "c"])
    assert ids_of(rows, limit=2) == ["a", "b"]


def test_a_batch_has_few_bytes(shop: Shop, rows: OutboxRows) -> None:
    """Only the bodies that fit are read, and a single larger one."""
    insert(shop, ["large", "b", "c"], b"x" * 1_000)
    first = rows.take(500, 100)
    assert [row.id for row in first] == ["large"]
    rows.settle([first[0].position], [])
    assert ids_of(rows, most_bytes=10_000) == ["b", "c"]


def test_relays_have_different_rows(shop: Shop, rows: OutboxRows, other: OutboxRows) -> None:
    insert(shop, ["a", "b", "c"])
    mine = rows.take(2, BATCH_BYTES)
    assert [row.id for row in mine] == ["a", "b"]
    theirs = other.take(500, BATCH_BYTES)
    assert [row.id for row in theirs] == ["c"]
    other.settle([theirs[0].position], [])
    assert other.take(500, BATCH_BYTES) == []
    rows.settle([row.position for row in mine], [])
    assert shop.waiting() == []


def test_a_relay_that_gets_no_row_leaves_no_transaction_open() -> None:
    shop = postgres_shop()
    insert(shop, ["a"])
    asked = (
        "SELECT state FROM pg_stat_activity WHERE application_name = 'windlass outbox' "
        "AND datname = current_database() ORDER BY state"
    )
    with closing(open_outbox(shop.url)) as one, closing(open_outbox(shop.url)) as two:
        assert (ids_of(one), ids_of(two)) == (["a"], [])
        with shop.connection() as connection:
            states = connection.execute(asked).fetchall()
    assert states == [("idle",), ("idle in transaction",)]


def test_rows_given_back_are_free_at_once(shop: Shop, rows: OutboxRows, other: OutboxRows) -> None:
    insert(shop, ["a", "b"])
    assert ids_of(rows) == ["a", "b"]
    rows.give_back()
    assert ids_of(other) == ["a", "b"]


def test_what_is_not_committed_is_not_there(shop: Shop, rows: OutboxRows) -> None:
    with shop.connection() as connection:
        (statement,) = Outbox(shop.url).put_within([NewJob("a", "send", "default", b"")])
        run(connection, statement.sql, statement.values)
        assert rows.take(500, BATCH_BYTES) == []
        connection.rollback()
    assert rows.take(500, BATCH_BYTES) == []


def test_a_position_is_never_used_twice(shop: Shop, rows: OutboxRows, other: OutboxRows) -> None:
    """A relay that was stopped deletes by positions that it took long ago."""
    insert(shop, ["a"])
    (row,) = rows.take(500, BATCH_BYTES)
    rows.settle([row.position], [])
    insert(shop, ["b"])
    other.take(500, BATCH_BYTES)
    other.settle([row.position], [])
    assert shop.waiting() == ["b"]


def test_a_taken_row_does_not_block_its_database(shop: Shop, rows: OutboxRows) -> None:
    """The engine may answer slowly while a relay has rows: the shop writes meanwhile."""
    insert(shop, ["a"])
    assert ids_of(rows) == ["a"]
    with shop.connection() as connection:
        connection.execute("INSERT INTO orders VALUES ('1')")
        connection.commit()


# ------------------------------------------------------------------------------------------- leases


def test_the_rows_of_a_dead_relay_are_free(
    shop: Shop, rows: OutboxRows, other: OutboxRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL at once, on SQLite after a lease."""
    monkeypatch.setattr(sqlite, "LEASE_MS", 50)
    insert(shop, ["a"])
    assert ids_of(rows) == ["a"]
    rows.close()
    until(lambda: ids_of(other) == ["a"], "the end of the lease")


def test_the_rows_of_a_stopped_relay_are_free_after_a_lease(
    shop: Shop, rows: OutboxRows, other: OutboxRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may continue later: its rows are settled twice, which is harmless."""
    for module in (sqlite, postgresql):
        monkeypatch.setattr(module, "LEASE_MS", 50)
    insert(shop, ["a"])
    (row,) = rows.take(500, BATCH_BYTES)
    until(lambda: ids_of(other) == ["a"], "the end of the lease")
    other.settle([row.position], [])
    if shop.is_sqlite:
        rows.settle([row.position], [])
    else:
        with pytest.raises(EngineUnavailable):
            rows.settle([row.position], [])
    assert shop.waiting() == []


# ---------------------------------------------------------------------------------------- postponed


def test_a_postponed_row_comes_back_after_its_delay(shop: Shop, rows: OutboxRows) -> None:
    insert(shop, ["bad", "good"])
    bad, good = rows.take(500, BATCH_BYTES)
    rows.settle([good.position], [Postponed(bad.position, 50, "no\0 room")])
    until(lambda: found_bad(rows), "the end of the delay")


def found_bad(rows: OutboxRows) -> bool:
    return [(row.id, row.tries) for row in rows.take(500, BATCH_BYTES)] == [("bad", 1)]


def postpone(rows: OutboxRows, row: OutboxRow, delay_ms: int) -> None:
    rows.settle([], [Postponed(row.position, delay_ms, "no")])


def test_due_rows_are_in_order_with_others(shop: Shop, rows: OutboxRows) -> None:
    insert(shop, ["a", "b"])
    (row,) = rows.take(1, BATCH_BYTES)
    postpone(rows, row, 0)
    assert ids_of(rows) == ["a", "b"]


def test_relays_have_different_due_rows(shop: Shop, rows: OutboxRows, other: OutboxRows) -> None:
    insert(shop, ["a"])
    (row,) = rows.take(500, BATCH_BYTES)
    postpone(rows, row, 0)
    assert ids_of(rows) == ["a"]
    assert ids_of(other) == []


def test_postponed_rows_block_no_others(shop: Shop, rows: OutboxRows) -> None:
    insert(shop, [f"bad-{number}" for number in range(10)])
    bad = rows.take(500, BATCH_BYTES)
    rows.settle([], [Postponed(row.position, 3_600_000, "no") for row in bad])
    insert(shop, ["good"])
    assert ids_of(rows, limit=5) == ["good"]


def test_the_state(shop: Shop, rows: OutboxRows) -> None:
    state = rows.state()
    assert (state.waiting, state.oldest_ms, state.refused, state.first_refused) == (0, 0, 0, None)
    insert(shop, ["bad", "good", "other"])
    bad, good, third = rows.take(500, BATCH_BYTES)
    rows.settle([third.position], [Postponed(bad.position, 3_600_000, "no room")])
    age(shop, good.position)
    state = rows.state()
    assert state.waiting == 2
    assert state.refused == 1
    assert state.first_refused is not None
    assert (state.first_refused.id, state.first_refused.tries) == ("bad", 1)
    assert state.first_refused.error == "no room"
    assert 60_000 <= state.oldest_ms < 120_000


def age(shop: Shop, position: int) -> None:
    """Let a row be a minute older, and free, also of its lease on SQLite."""
    table = "windlass_outbox_jobs" if shop.is_sqlite else "windlass_outbox.jobs"
    with shop.connection() as connection:
        connection.execute(
            f"UPDATE {table} SET created_ms = created_ms - 60000, due_ms = 0 "  # noqa: S608  # our own names
            f"WHERE position = {position}"
        )
        connection.commit()


# --------------------------------------------------------------------------------------- the tables


@pytest.fixture(params=["postgresql", "sqlite"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A shop without the tables."""
    if request.param == "sqlite":
        return sqlite_shop(tmp_path, is_migrated=False)
    return postgres_shop(is_migrated=False)


def as_owner(shop: Shop) -> Shop:
    return Shop(shop.url.url.replace(f"//{WORKER}@", f"//{OWNER}@"), shop.connect)


def test_no_tables(bare: Shop) -> None:
    with closing(open_outbox(bare.url)) as rows:
        for call in (rows.check_format, lambda: rows.take(1, 1), rows.state):
            with pytest.raises(EngineError, match=r"found none\. Run `windlass migrate` once"):
                call()


def test_migration_is_repeatable(bare: Shop) -> None:
    assert [migrate(as_owner(bare)) for _ in range(2)] == [1, 1]
    insert(as_owner_connecting(bare), ["a"])
    with closing(open_outbox(as_owner(bare).url)) as rows:
        rows.check_format()
        assert ids_of(rows) == ["a"]


def test_programs_may_migrate_at_once(bare: Shop) -> None:
    """At the start of a deployment."""
    owned = as_owner(bare)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(migrate, [owned] * 4)) == [1] * 4


def as_owner_connecting(shop: Shop) -> Shop:
    owned = as_owner(shop)
    if shop.is_sqlite:
        return owned
    return Shop(owned.url.url, lambda: psycopg.connect(owned.url.url))


def test_each_namespace_has_its_own_outbox(bare: Shop) -> None:
    owned = as_owner_connecting(bare)
    mail = Shop(f"{owned.url.url}?namespace=mail", owned.connect)
    for shop in (owned, mail):
        migrate(shop)
    insert(mail, ["a"])
    assert (owned.waiting(), mail.waiting()) == ([], ["a"])
    with closing(open_outbox(mail.url)) as rows:
        assert ids_of(rows) == ["a"]


def test_a_newer_format_is_refused(shop: Shop) -> None:
    table = "windlass_outbox_format" if shop.is_sqlite else "windlass_outbox.format"
    statement = f"INSERT INTO {table} VALUES (2)"  # noqa: S608  # our own names
    if shop.is_sqlite:
        with shop.connection() as connection:
            connection.execute(statement)
            connection.commit()
    else:
        database = shop.url.location.rpartition("/")[2]
        with shared_server().connect(database, OWNER) as connection:
            connection.execute(statement)
    with closing(open_outbox(shop.url)) as rows:
        for call in (rows.check_format, rows.migrate):
            with pytest.raises(FormatTooNew, match=r"format 2.*knows 1\. Upgrade"):
                call()


def test_the_printed_sql_is_that_of_the_migration(bare: Shop) -> None:
    owned = as_owner_connecting(bare)
    with owned.connection() as connection:
        if bare.is_sqlite:
            connection.executescript(full_sql(bare.url))
        else:
            connection.execute(full_sql(bare.url))
        connection.commit()
    with closing(open_outbox(owned.url)) as rows:
        rows.check_format()
        assert rows.migrate() == 1


def test_a_role_without_rights() -> None:
    shop = postgres_shop()
    database = shop.url.location.rpartition("/")[2]
    with shared_server().connect(database, OWNER) as connection:
        connection.execute(f"REVOKE ALL ON windlass_outbox.jobs FROM {WORKER}")
    with closing(open_outbox(shop.url)) as rows:
        with pytest.raises(EngineError, match=r"lacks a right.*guide on transactions"):
            rows.take(1, 1)
        with shared_server().connect(database, OWNER) as connection:
            connection.execute(RIGHTS)
        assert rows.take(1, 1) == []


# ------------------------------------------------------------------------------------------ outages


def test_a_server_that_comes_back() -> None:
    shop = postgres_shop()
    insert(shop, ["a"])
    server = shared_server()
    with Proxy(server.port) as proxy:
        url = shop.url.url.replace(f":{server.port}/", f":{proxy.port}/")
        with closing(open_outbox(OutboxUrl(url))) as rows:
            assert ids_of(rows) == ["a"]
            rows.give_back()
            proxy.refuse()
            proxy.reset()
            with pytest.raises(EngineUnavailable, match="did not answer"):
                rows.take(1, 1)
            proxy.heal()
            assert ids_of(rows) == ["a"]


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    shop = sqlite_shop(tmp_path)
    insert(shop, ["old"])
    with closing(open_outbox(shop.url)) as rows:
        assert rows.state().waiting == 1
        (tmp_path / "shop.db").rename(tmp_path / "old.db")
        for end in ("-wal", "-shm"):
            (tmp_path / f"shop.db{end}").unlink(missing_ok=True)
        with pytest.raises(EngineUnavailable, match=r"There is no database .*shop\.db"):
            rows.state()
        assert not (tmp_path / "shop.db").exists()
        sqlite_shop(tmp_path)
        insert(shop, ["new", "newer"])
        assert ids_of(rows) == ["new", "newer"]


def test_a_writer_that_holds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TIMEOUT_S", 0.1)
    shop = sqlite_shop(tmp_path)
    insert(shop, ["a"])
    with closing(open_outbox(shop.url)) as rows, shop.connection() as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(EngineUnavailable, match="database is locked"):
            rows.take(1, 1)
        connection.rollback()
        assert ids_of(rows) == ["a"]


def test_an_idle_relay_takes_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each worker would stop the writers of the shop every second."""
    monkeypatch.setattr(sqlite, "TIMEOUT_S", 0.1)
    shop = sqlite_shop(tmp_path)
    with closing(open_outbox(shop.url)) as rows, shop.connection() as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert rows.take(1, 1) == []
