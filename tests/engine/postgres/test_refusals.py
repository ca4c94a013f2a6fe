"""What a caller is told when a server, a pooler or the driver refuses a connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables, without_tables
from tests.pgbouncer import PgBouncer
from tests.postgres_server import OWNER, private_server
from windlass.engine.postgres.pipeline import Pipeline
from windlass.errors import EngineError, EngineUnavailable


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@contextmanager
def pooled(database: Database) -> Iterator[PgBouncer]:
    pooler = PgBouncer(database.server)
    try:
        yield pooler
    finally:
        database.close()
        pooler.end()


def refusal(database: Database, url: str) -> str:
    with pytest.raises(EngineError) as refused:
        database.open_url(url, timeout_ms=300).is_used()
    return str(refused.value)


def test_an_unknown_option(database: Database) -> None:
    text = refusal(database, database.server.url(database.name, shema="jobs"))
    assert text.endswith("those of libpq, found shema. Did you mean schema?")
    text = refusal(database, database.server.url(database.name, colour="red"))
    assert text.endswith("those of libpq, found colour.")


def test_a_url_that_the_driver_cannot_read(database: Database) -> None:
    text = refusal(database, "postgresql://127.0.0.1/%zz")
    assert text.startswith("The driver cannot read the url of 127.0.0.1/%zz (invalid percent")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("/test_", "/absent_"), r'refused the connection \(database "absent_\d+" does not'),
        (("//.*@", "//stranger@"), r'\(role "stranger" does not exist\)\. Create it first'),
        ((r":\d+/", ":70000/"), r'\(invalid port number: "70000"\)\. Correct the port'),
        ((r":\d+/", ":x/"), r"invalid integer value .*\. Correct the number in the url"),
    ],
)
def test_a_refused_connection(database: Database, change: tuple[str, str], words: str) -> None:
    url = re.sub(*change, database.server.url(database.name), count=1)
    assert re.search(words, refusal(database, url))


def test_a_server_without_free_connections() -> None:
    server = private_server(max_connections="5", superuser_reserved_connections="1")
    with ExitStack() as stack:
        stack.callback(server.end)
        database = stack.enter_context(without_tables(server))
        others = [stack.enter_context(server.connect(user=OWNER)) for _ in range(4)]
        text = refusal(database, server.url(database.name))
        assert len(others) == 4
    assert "did no work" in text
    assert "The server has no free connections: raise max_connections" in text


def test_a_server_without_room_for_locks() -> None:
    server = private_server(max_connections="5", max_locks_per_transaction="10")
    with ExitStack() as stack:
        stack.callback(server.end)
        database = stack.enter_context(without_tables(server))
        database.open(user=OWNER).stats()  # makes the tables, which takes long on a busy machine
        database.close()
        engine = database.open(user=OWNER, timeout_ms=300)
        engine.stats()  # connects
        holder = stack.enter_context(server.connect(user=OWNER))
        with pytest.raises(psycopg.errors.OutOfMemory):
            holder.execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 100000) AS n")
        jobs = [new_job(number, idempotency_key=f"{number}") for number in range(500)]
        with pytest.raises(EngineUnavailable, match="raise max_locks_per") as refused:
            engine.put(jobs)
        database.close()  # a new connection has no room either
        with pytest.raises(EngineUnavailable, match="raise max_locks_per"):
            database.open(user=OWNER, timeout_ms=300).stats()
    assert refused.value.unsent


def test_a_pooler_that_the_url_does_not_name(database: Database) -> None:
    with pooled(database) as pooler:
        url = pooler.url(database.name)
        first = database.open_url(url)
        first.stats()
        with pytest.raises(EngineError, match=r"Add pooler=transaction to the url\.$"):
            database.open_url(url).stats()


def test_a_database_that_a_pooler_does_not_know(database: Database) -> None:
    with pooled(database) as pooler:
        text = refusal(database, pooler.url("absent", pooler="transaction"))
    assert "refused the connection" in text
    assert "correct the url" in text


def test_a_right_that_is_missing(database: Database) -> None:
    database.execute("REVOKE SELECT ON windlass.meta FROM windlass_worker")
    engine = database.open()
    with pytest.raises(EngineError, match="`windlass doctor` prints the GRANT statements"):
        engine.stats()


def test_a_read_only_server_stores_nothing(database: Database) -> None:
    with read_only(database), pytest.raises(EngineUnavailable, match="is read-only") as refused:
        database.open(timeout_ms=300).put([new_job(1)])
    assert refused.value.unsent


def test_a_commit_without_a_reply_may_have_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a repeat of the call meets a read-only server, perhaps after a failover."""
    engine = database.open(timeout_ms=300)
    engine.put([new_job(1)])
    attempts = []
    sync = Pipeline.sync

    def lose_first(pipeline: Pipeline) -> None:
        attempts.append(pipeline)
        if len(attempts) > 1:
            return sync(pipeline)
        pipeline.connection.is_used = True
        pipeline.abandon()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(Pipeline, "sync", lose_first)
    with read_only(database), pytest.raises(EngineUnavailable, match="is read-only") as refused:
        engine.put([new_job(2)])
    assert not refused.value.unsent


@contextmanager
def read_only(database: Database) -> Iterator[None]:
    """Let transactions on new connections be read-only, as those of a standby are."""
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        database.execute(
            "SET default_transaction_read_only = off",
            f"ALTER DATABASE {database.name} RESET default_transaction_read_only",
        )


def test_a_server_that_is_away_has_the_words_of_the_driver(database: Database) -> None:
    url = "postgresql://127.0.0.1:1/shop"
    with pytest.raises(EngineUnavailable, match=r"s \(Connection refused\)\. Check that it runs"):
        database.open_url(url, timeout_ms=300).is_used()
