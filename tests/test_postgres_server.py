"""The PostgreSQL server, the databases and the PgBouncer of the tests do what they promise."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import psycopg
import pytest

from tests import postgres_server
from tests.pgbouncer import PgBouncer
from tests.postgres_databases import (
    DatabasePool,
    borrow_database,
    borrowed_databases,
    give_back_database,
)
from tests.postgres_server import (
    OWNER,
    PROJECT,
    WORKER,
    Connection,
    PostgresServer,
    private_server,
    shared_server,
)
from tests.redis_server import free_port
from tests.worker.yard import until

SCHEMA = """
CREATE SCHEMA windlass;
CREATE TABLE windlass.jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
CREATE TABLE windlass.runs (job bigint REFERENCES windlass.jobs);
INSERT INTO windlass.jobs (name) VALUES ('first');
GRANT USAGE ON SCHEMA windlass TO windlass_worker;
GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA windlass TO windlass_worker;
"""


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    own = private_server()
    yield own
    own.end()


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture
def pool(server: PostgresServer) -> Iterator[DatabasePool]:
    def prepare(name: str) -> None:
        with server.connect(name, OWNER) as connection:
            connection.execute(SCHEMA)

    pool = DatabasePool(server, prepare)
    yield pool
    pool.close()


def names(server: PostgresServer, database: str) -> list[str]:
    with server.connect(database) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM windlass.jobs").fetchall()]


def backend(connection: Connection) -> int:
    """The server process that answers."""
    [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    connection.commit()
    return int(pid)


# ------------------------------------------------------------------------------------- the server


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_committed_data_survives_a_restart(own_server: PostgresServer, how: str) -> None:
    with own_server.connect() as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS value")
        processes = [psutil.Process(own_server.pid), psutil.Process(backend(connection))]
        if how == "kill":
            own_server.kill()
            own_server.start()
        else:
            own_server.restart("fast" if how == "fast" else "immediate")
        assert not any(one.is_running() and one.status() != "zombie" for one in processes)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with own_server.connect() as connection:
        assert connection.execute("SELECT value FROM kept").fetchall() == [(1,)]


def test_a_frozen_server_answers_once_it_is_thawed(own_server: PostgresServer) -> None:
    with own_server.connect() as connection:
        own_server.freeze()
        connection.pgconn.send_query(b"SELECT 1")
        first = psutil.Process(own_server.pid)
        statuses = {process.status() for process in (first, *first.children())}
        assert statuses - {psutil.STATUS_ZOMBIE} == {psutil.STATUS_STOPPED}
        own_server.thaw()
        result = connection.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"1"
        assert connection.pgconn.get_result() is None


def test_only_on_request_does_it_wait_for_the_disk(own_server: PostgresServer) -> None:
    syncing = private_server(fsync=True, full_page_writes="off")
    try:
        for server, expected in ((own_server, "off"), (syncing, "on")):
            with server.connect() as connection:
                assert connection.execute("SHOW fsync").fetchall() == [(expected,)]
    finally:
        syncing.end()


def test_a_taken_port_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [other.getsockname()[1], free_port()]
        monkeypatch.setattr(postgres_server, "free_port", lambda: ports.pop(0))
        server = private_server()
    assert not ports
    server.end()
    assert not server.folder.exists()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
def test_it_ends_when_the_tests_are_killed() -> None:
    code = (
        "from tests.postgres_server import PostgresServer\n"
        "server = PostgresServer()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "input()\n"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tests.stdout is not None
    pid, folder = tests.stdout.readline().split()
    server = psutil.Process(int(pid))
    assert server.is_running()
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    until(
        lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE,
        "the end of the server",
    )
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, pytest.skip.Exception), ({"CI": "true"}, FileNotFoundError)],
)
def test_without_postgresql_tests_fail_only_in_continuous_integration(
    variables: dict[str, str], expected: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shutil, "which", lambda name, **options: None)
    with pytest.raises(BaseException, match="no PostgreSQL server here") as raised:
        private_server()
    assert raised.type is expected


# ------------------------------------------------------------------------------ users and databases


def test_both_urls_lead_to_the_database(server: PostgresServer) -> None:
    name = server.new_database()
    for url in (server.url(name), server.socket_url(name)):
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT current_database(), current_user").fetchall()
            assert found == [(name, WORKER)]
    assert server.url(name, schema="a b").endswith(f":{server.port}/{name}?schema=a%20b")
    server.drop_database(name)


def test_users_with_a_password_need_it(own_server: PostgresServer) -> None:
    own_server.add_user("careful", "right")
    with psycopg.connect(own_server.url("postgres", user="careful:right")) as connection:
        assert connection.info.user == "careful"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(own_server.url("postgres", user="careful:wrong"))


def test_text_does_not_sort_by_bytes(server: PostgresServer) -> None:
    with server.connect() as connection:
        if connection.info.server_version < 150_000:
            pytest.skip("PostgreSQL has its own order of a language since version 15")
        assert connection.execute("SELECT 'a' < 'B'").fetchall() == [(True,)]


def test_terminated_backends_are_gone(server: PostgresServer) -> None:
    name = server.new_database()
    with server.connect(name) as first, server.connect(name) as second:
        assert server.terminate_backends(name) == 2
        for connection in (first, second):
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
    server.drop_database(name)


# ------------------------------------------------------------------------------ borrowed databases


def test_a_borrowed_database_is_as_the_template(server: PostgresServer, pool: DatabasePool) -> None:
    name = pool.borrow()
    with server.connect(name, WORKER) as connection:
        connection.execute("INSERT INTO windlass.jobs (name) VALUES ('second')")
        connection.execute("INSERT INTO windlass.runs SELECT id FROM windlass.jobs")
    assert pool.borrow() != name
    pool.give_back(name)
    assert pool.borrow() == name
    assert names(server, name) == ["first"]
    with server.connect(name, WORKER) as connection:
        found = connection.execute("INSERT INTO windlass.jobs (name) VALUES ('x') RETURNING id")
        assert found.fetchall() == [(2,)]


def test_the_worker_may_change_no_table(server: PostgresServer, pool: DatabasePool) -> None:
    with (
        server.connect(pool.borrow(), WORKER) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TABLE windlass.more (id int)")


def test_a_transaction_that_was_left_behind_is_ended(
    server: PostgresServer, pool: DatabasePool
) -> None:
    name = pool.borrow()
    with server.connect(name) as left:
        left.execute("BEGIN; INSERT INTO windlass.jobs (name) VALUES ('late')")
        pool.give_back_all()
        assert pool.borrow() == name
        with pytest.raises(psycopg.OperationalError):
            left.execute("COMMIT")
    assert names(server, name) == ["first"]


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE windlass.more (id int)",
        "ALTER TABLE windlass.jobs DROP COLUMN name CASCADE",
        "REVOKE INSERT ON windlass.jobs FROM windlass_worker",
        "INSERT INTO windlass.jobs (name) SELECT repeat('x', 100) FROM generate_series(1, 10000)",
    ],
)
def test_a_database_that_cannot_be_restored_is_dropped(
    server: PostgresServer, pool: DatabasePool, change: str
) -> None:
    name = pool.borrow()
    with server.connect(name) as connection:
        connection.execute(change)
    pool.give_back(name)
    other = pool.borrow()
    assert other != name
    assert names(server, other) == ["first"]
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        server.connect(name)


@pytest.mark.parametrize("time", ["first", "second"])
def test_no_test_keeps_the_databases_of_another(server: PostgresServer, time: str) -> None:
    database = borrow_database()
    assert borrowed_databases() == [database]
    give_back_database(server.url(database))
    assert borrowed_databases() == []
    assert borrow_database() == database


# ---------------------------------------------------------------------------------------- PgBouncer


def test_clients_of_pgbouncer_share_a_connection_by_transaction(server: PostgresServer) -> None:
    name = server.new_database()
    bouncer = PgBouncer(server, default_pool_size="1")
    try:
        url = bouncer.url(name)
        with psycopg.connect(url) as first, psycopg.connect(url) as second:
            assert backend(first) == backend(second)
            bouncer.restart()
            with pytest.raises(psycopg.OperationalError):
                first.execute("SELECT 1")
        with psycopg.connect(url) as connection:
            assert backend(connection)
        modes = {row[0]: row[-1] for row in bouncer.tell("SHOW POOLS")}
        assert modes[name] == "transaction"
    finally:
        bouncer.end()
        server.drop_database(name)


def test_pgbouncer_does_not_run_without_its_port(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [other.getsockname()[1], free_port()]
        monkeypatch.setattr("tests.pgbouncer.free_port", lambda: ports.pop(0))
        bouncer = PgBouncer(server)
    assert not ports
    bouncer.end()
    assert not bouncer.folder.exists()
