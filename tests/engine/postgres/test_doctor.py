"""The findings of `examine` on a PostgreSQL server: each line, on a server in that state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables, without_tables
from tests.engine.postgres.replica import Replica
from tests.pgbouncer import PgBouncer
from tests.postgres_databases import RIGHTS
from tests.postgres_server import (
    OWNER,
    SUPERUSER,
    WORKER,
    PostgresServer,
    private_server,
    shared_server,
)
from tests.proxy import Proxy
from tests.redis_server import free_port
from tests.worker.yard import until
from windlass.engine.contract import EngineOptions, Finding, Grade
from windlass.engine.postgres import doctor, migrate
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.url import read_address
from windlass.engine.url import open_engine
from windlass.errors import EngineUnavailable

StartServer = Callable[..., PostgresServer]


@pytest.fixture(scope="module")
def safe() -> Iterator[PostgresServer]:
    """A server whose settings are those of a careful operator."""
    server = private_server(fsync=True, autovacuum="on", max_prepared_transactions="5")
    yield server
    server.end()


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    with ExitStack() as stack:

        def start(*, fsync: bool = True, **settings: str) -> PostgresServer:
            server = private_server(fsync=fsync, **{"autovacuum": "on", **settings})
            stack.callback(server.end)
            return server

        yield start


@pytest.fixture
def empty() -> Iterator[Database]:
    """A database without tables on the shared server."""
    with without_tables(shared_server()) as database:
        yield database


@pytest.fixture
def database() -> Iterator[Database]:
    """A database with tables on the shared server, which is not safe."""
    with with_tables() as database:
        yield database


def make_tables(database: Database) -> PostgresEngine:
    """Make the tables and grant the rights; return an engine with these."""
    database.open(OWNER).migrate()
    database.execute(RIGHTS)
    return database.open()


def found(engine: PostgresEngine) -> dict[str, Finding]:
    findings = engine.examine()
    by_subject = {finding.subject: finding for finding in findings}
    assert len(by_subject) == len(findings)
    return by_subject


def test_every_line_is_there_and_nothing_is_made(safe: PostgresServer) -> None:
    with without_tables(safe) as database:
        engine = database.open(OWNER)
        subjects = [
            *("version", "encoding", "role", "durability", "tables", "autovacuum", "dead rows"),
            *("transactions", "connections", "access", "wake-ups", "clock", "round trip", "size"),
        ]
        assert list(found(engine)) == subjects
        assert not engine.is_used()
        findings = found(make_tables(database))
        subjects.insert(subjects.index("tables") + 1, "rights")
        assert list(findings) == subjects
        quiet = findings.keys() - {"round trip"}  # this depends on the machine
        assert {findings[subject].grade for subject in quiet} == {Grade.OK}


# ------------------------------------------------------------------------------------ the server


@pytest.mark.parametrize(
    ("version", "grade"),
    [
        (120_022, Grade.PROBLEM),
        (130_000, Grade.ADVICE),
        (140_022, Grade.ADVICE),
        (150_000, Grade.OK),
        (180_003, Grade.OK),
    ],
)
def test_the_version(version: int, grade: Grade) -> None:
    facts = migrate.ServerFacts(version, "x.y", "UTF8", "r", "d", has_schema=True, may_create=True)
    finding = doctor._version(facts)
    assert finding.grade is grade
    assert "PostgreSQL x.y" in finding.text


def test_the_encoding() -> None:
    server = shared_server()
    with server.connect() as connection:
        connection.execute(
            "CREATE DATABASE latin_2 ENCODING 'LATIN2' TEMPLATE template0 "
            "LOCALE_PROVIDER libc LOCALE 'C'"
        )
    try:
        with Database(server, "latin_2") as latin:
            finding = found(latin.open())["encoding"]
    finally:
        server.drop_database("latin_2")
    assert finding.grade is Grade.PROBLEM
    assert "latin_2 has the encoding LATIN2" in finding.text


def test_a_standby(start_server: StartServer) -> None:
    """It takes no writes, and what its queries need stays on the primary."""
    primary = start_server()
    with without_tables(primary) as database:
        engine = make_tables(database)
        assert found(engine)["role"].text == "primary, 0 standbys"
        replica = Replica(primary)
        try:
            with Database(replica, database.name) as copy:
                finding = found(copy.open())["role"]
                assert finding.grade is Grade.PROBLEM
                assert finding.text.startswith("a standby server, which takes no writes.")
                assert copy.open().check() == []
            assert found(engine)["role"].text == "primary, 1 standby"
            _hold_rows_on_the_replica(replica, database)
        finally:
            replica.end()


def _hold_rows_on_the_replica(replica: PostgresServer, database: Database) -> None:
    """A long query there keeps rows here, also after the end of the replica."""
    engine = database.open(SUPERUSER)
    reader = replica.connect(database.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "OLD_TRANSACTIONS", 3)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM windlass.jobs")
        database.execute(*["SELECT pg_current_xact_id()"] * 5)
        text = until(lambda: _advice(engine, "transactions"), "the standby reports it")
        assert re.match(r"(the replication slot replica|the standby) .* transactions ago", text)
        replica.kill()
        reader.close()
        until(
            lambda: _advice(engine, "transactions").startswith("the replication slot replica"),
            "only its slot is left",
        )
        text = _advice(engine, "transactions")
    assert "Drop it if it is unused: SELECT pg_drop_replication_slot('replica')" in text


def _advice(engine: PostgresEngine, subject: str) -> str:
    finding = found(engine)[subject]
    return finding.text if finding.grade is Grade.ADVICE else ""


def test_a_database_that_is_read_only(database: Database) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    try:
        finding = found(database.open())["role"]
    finally:
        database.execute(
            "SET default_transaction_read_only = off",
            f"ALTER DATABASE {database.name} RESET default_transaction_read_only",
        )
    assert finding.grade is Grade.PROBLEM
    assert "default_transaction_read_only is on" in finding.text


def test_durability(safe: PostgresServer) -> None:
    with without_tables(safe) as database:
        engine = make_tables(database)
        assert found(engine)["durability"] == Finding(
            Grade.OK, "durability", "a commit is on the disk (synchronous_commit on)"
        )
        with safe.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'other'")
            connection.execute("SELECT pg_reload_conf()")
            standby = "a commit is on the disks of this server and a standby"
            until(lambda: standby in found(engine)["durability"].text, "it is set")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            until(lambda: standby not in found(engine)["durability"].text, "it is reset")
        database.execute(
            f"ALTER ROLE {WORKER} IN DATABASE {database.name} SET synchronous_commit = off"
        )
        finding = found(database.open())["durability"]
        assert finding.grade is Grade.ADVICE
        assert finding.text.startswith("synchronous_commit is off: a crash of the server loses")
        database.execute("ALTER TABLE windlass.ended_1 SET UNLOGGED")
        finding = found(database.open())["durability"]
        assert finding.grade is Grade.PROBLEM
        assert finding.text.startswith(
            "ended_1 is unlogged: a crash of the server empties it. Run "
        )
        assert "ALTER TABLE windlass.ended_1 SET LOGGED. synchronous_commit is off" in finding.text


def test_writes_that_are_not_safe(start_server: StartServer) -> None:
    with without_tables(start_server(full_page_writes="off")) as database:
        finding = found(database.open())["durability"]
        assert finding.grade is Grade.ADVICE
        assert finding.text.startswith("full_page_writes is off: a crash of the machine can")
    with without_tables(start_server(fsync=False)) as database:
        finding = found(database.open())["durability"]
        assert finding.grade is Grade.PROBLEM
        assert finding.text.startswith("fsync is off: a crash of the machine can destroy")


# ------------------------------------------------------------------------------------ the tables


def test_tables_that_are_not_made_yet(empty: Database) -> None:
    finding = found(empty.open(OWNER))["tables"]
    assert finding.grade is Grade.OK
    assert "has none yet: the first use makes them" in finding.text
    finding = found(empty.open())["tables"]
    assert finding.grade is Grade.PROBLEM
    assert f"the role {WORKER} may not create it" in finding.text


def test_tables_of_another_program(empty: Database) -> None:
    empty.execute("CREATE SCHEMA windlass", "CREATE TABLE windlass.jobs (n integer)")
    finding = found(empty.open(OWNER))["tables"]
    assert finding.grade is Grade.PROBLEM
    assert finding.text.startswith("The schema windlass has tables of another program")


def test_the_format(database: Database) -> None:
    engine = database.open()
    assert "which this version reads" in found(engine)["tables"].text
    for change, words in (
        ("UPDATE windlass.meta SET format = format + 1", "written by a newer windlass"),
        ("UPDATE windlass.meta SET format = format - 2", "run `windlass migrate` as the owner"),
        ("DELETE FROM windlass.meta", "The table windlass.meta is empty"),
    ):
        database.execute(change)
        finding = found(engine)["tables"]
        assert finding.grade is Grade.PROBLEM
        assert words in finding.text


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        ("DROP INDEX windlass.jobs_ready", "jobs_ready"),
        (
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'windlass.jobs_due'::regclass",
            "jobs_due",
        ),
        ("DROP TABLE windlass.audit", "audit"),
        ("DROP TABLE windlass.ended_2", "ended_2"),
        ("DROP SEQUENCE windlass.numbers CASCADE", "numbers"),
    ],
)
def test_parts_that_are_missing(empty: Database, damage: str, name: str) -> None:
    engine = make_tables(empty)
    empty.execute(damage)
    finding = found(engine)["tables"]
    assert finding.grade is Grade.PROBLEM
    assert finding.text.startswith(f"missing or not valid: {name}. `windlass migrate --sql")


@pytest.mark.parametrize(
    ("less", "missing"),
    [
        ("DELETE ON windlass.jobs", "DELETE on jobs"),
        ("INSERT, UPDATE ON windlass.deltas", "INSERT on deltas; UPDATE on deltas"),
        ("TRUNCATE ON windlass.ended_3", "TRUNCATE on ended_3"),
        ("USAGE ON SEQUENCE windlass.numbers", "USAGE on numbers"),
        ("USAGE ON SCHEMA windlass", "USAGE on the schema windlass"),
        ("TRUNCATE ON ALL TABLES IN SCHEMA windlass", "TRUNCATE on 8 tables or sequences"),
    ],
)
def test_rights(database: Database, less: str, missing: str) -> None:
    database.execute(f"REVOKE {less} FROM {WORKER}")
    try:
        finding = found(database.open())["rights"]
    finally:
        database.execute(RIGHTS)
    assert finding.grade is Grade.PROBLEM
    assert finding.text.startswith(f"the role {WORKER} has no right to {missing}. As the owner")
    shown = finding.text.partition("run: ")[2].split("; ")
    assert shown == [line.rstrip(";") for line in RIGHTS.splitlines()]


def test_rights_that_are_not_needed(database: Database) -> None:
    """Tables of other programs may be in the schema, and no job needs to empty other tables."""
    database.execute(
        f"REVOKE TRUNCATE ON windlass.jobs FROM {WORKER}",
        "CREATE TABLE windlass.other (n serial PRIMARY KEY)",
    )
    findings = found(database.open())
    assert findings["rights"].text == f"the role {WORKER} has all rights that are needed"
    assert findings["tables"].grade is Grade.OK


# ----------------------------------------------------------------------- what makes claims slow


def test_autovacuum(safe: PostgresServer) -> None:
    with without_tables(safe) as database:
        engine = make_tables(database)
        assert found(engine)["autovacuum"].text == "on"
        database.execute("ALTER TABLE windlass.jobs SET (autovacuum_enabled = off)")
        finding = found(engine)["autovacuum"]
        assert finding.grade is Grade.ADVICE
        assert finding.text.startswith("autovacuum of jobs is off:")
        database.execute(f"ALTER DATABASE {database.name} SET track_counts = off")
        assert "track_counts and autovacuum of jobs is off" in _advice(
            database.open(), "autovacuum"
        )


def test_autovacuum_of_the_server(database: Database) -> None:
    assert _advice(database.open(), "autovacuum").startswith("autovacuum is off:")


def test_dead_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MANY_DEAD", 50)
    engine = database.open()
    ids = [f"job-{number:06d}" for number in range(60)]
    engine.put([new_job(number) for number in range(100)])
    engine.cancel(ids)
    engine.discard(ids)
    text = until(lambda: _advice(engine, "dead rows"), "the server has counted them")
    assert re.match(r"\w+ has [\d,]+, and [\d,]+ live ones: claims read past them", text)
    assert re.search(r"then VACUUM windlass\.\w+$", text)


def test_old_transactions(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = database.open()
    assert found(engine)["transactions"].text == "none is older than 5m"
    monkeypatch.setattr(doctor, "OLD_S", 0)
    with database.server.connect(database.name, WORKER) as forgotten:
        forgotten.execute("SET application_name = 'report'")
        forgotten.execute("BEGIN; SELECT pg_current_xact_id()")
        text = until(lambda: _advice(engine, "transactions"), "a second is over")
        pid = forgotten.info.backend_pid
        assert text.startswith(
            f"process {pid} of {WORKER} (report, idle in transaction) began 1s ago: old versions"
        )
        assert text.endswith(f"End it: SELECT pg_terminate_backend({pid})")
        with database.server.connect(database.name, WORKER) as second:
            second.execute("BEGIN; SELECT pg_current_xact_id()")
            until(lambda: ", and 1 other are old too" in _advice(engine, "transactions"), "both")


def test_old_transactions_of_others(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server hides since when they run, but not which rows they need."""
    monkeypatch.setattr(doctor, "OLD_S", 0)
    monkeypatch.setattr(doctor, "OLD_TRANSACTIONS", 5)
    engine = database.open()
    with database.server.connect(database.name) as forgotten:
        forgotten.execute("BEGIN; SELECT pg_current_xact_id()")
        assert _advice(engine, "transactions") == ""
        text = found(engine)["transactions"].text
        assert text.startswith(f"none is older than 0s, as far as {WORKER} can see: the age of 1 ")
        assert text.endswith(f"GRANT pg_read_all_stats TO {WORKER} shows it")
        database.execute(*["SELECT pg_current_xact_id()"] * 9)
        text = _advice(engine, "transactions")
    assert re.search(r"^process \d+ of postgres .* began \d+ transactions ago", text)


def test_prepared_transactions(safe: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "OLD_S", 0)
    with without_tables(safe) as database:
        engine = make_tables(database)
        database.execute("BEGIN; CREATE TABLE x (); PREPARE TRANSACTION 'it''s'")
        text = until(lambda: _advice(engine, "transactions"), "a second is over")
        database.execute("ROLLBACK PREPARED 'it''s'")
    assert text.startswith("the prepared transaction it's of postgres began")
    assert text.endswith("End it: ROLLBACK PREPARED 'it''s'")


# -------------------------------------------------------------------------------- the connection


def test_connections(start_server: StartServer) -> None:
    server = start_server(max_connections="13")
    with without_tables(server) as database, ExitStack() as stack:
        engine = database.open()
        assert re.fullmatch(r"\d of 10 in use", found(engine)["connections"].text)
        for _ in range(7):
            stack.enter_context(server.connect())
        text = until(lambda: _advice(engine, "connections"), "the server has counted them")
    assert "of 10 in use, and the server refuses others beyond the limit" in text


@pytest.mark.parametrize(
    ("host", "encrypted", "verified", "grade", "words"),
    [
        ("/run/postgresql", False, False, Grade.OK, "socket"),
        ("localhost", False, False, Grade.OK, "on this machine"),
        ("::1", False, False, Grade.OK, "on this machine"),
        ("db.example", True, True, Grade.OK, "encrypted, with a verified server"),
        ("10.0.0.7", False, False, Grade.ADVICE, "not encrypted"),
        ("10.0.0.7", True, False, Grade.ADVICE, "any server may pose as this one"),
    ],
)
def test_access(host: str, encrypted: bool, verified: bool, grade: Grade, words: str) -> None:
    finding = doctor.examine_access(host, is_encrypted=encrypted, is_verified=verified)
    assert finding.grade is grade
    assert words in finding.text


def test_access_by_a_socket(database: Database) -> None:
    engine = database.open_url(database.server.socket_url(database.name))
    assert found(engine)["access"].text == "through a socket on this machine"


def test_wakeups_through_a_pooler(database: Database, safe: PostgresServer) -> None:
    server = database.server

    def examine(**options: str) -> Finding:
        options = {"user": WORKER, **options}
        return found(database.open_url(pooler.url(database.name, **options)))["wake-ups"]

    assert found(database.open())["wake-ups"].text == "notifications of the server"
    with ExitStack() as stack:
        pooler = PgBouncer(server)
        stack.callback(pooler.end)
        stack.callback(database.close)
        undeclared = examine()
        assert undeclared.grade is Grade.PROBLEM
        assert undeclared.text.endswith("Add pooler=transaction to the url")
        polling = examine(pooler="transaction")
        assert polling.grade is Grade.ADVICE
        assert "Add listen=HOST:PORT" in polling.text
        for port, grade, words in (
            (server.port, Grade.OK, "notifications of the server, around the pooler"),
            (pooler.port, Grade.ADVICE, "listen= leads to a pooler"),
            (free_port(), Grade.ADVICE, "does not answer"),
            (safe.port, Grade.ADVICE, "does not answer"),  # it has no database of this name
        ):
            there = examine(pooler="transaction", listen=f"127.0.0.1:{port}")
            assert there.grade is grade
            assert words in there.text
        with safe.connect() as connection:
            connection.execute(f"CREATE DATABASE {database.name}")
        stack.callback(safe.drop_database, database.name)
        there = examine(pooler="transaction", listen=f"127.0.0.1:{safe.port}")
        assert there.grade is Grade.ADVICE
        assert there.text.startswith("listen= is another server than that of the pooler")


def test_wakeups_through_a_pooler_in_session_mode(database: Database) -> None:
    pooler = PgBouncer(database.server, pool_mode="session")
    try:
        finding = found(database.open_url(pooler.url(database.name)))["wake-ups"]
    finally:
        database.close()
        pooler.end()
    assert finding.grade is Grade.OK
    assert finding.text == "notifications, through a pooler in session mode"


@pytest.mark.parametrize(("offset_ms", "word"), [(5_000, "ahead of"), (-5_000, "behind")])
def test_a_clock_that_differs(database: Database, offset_ms: int, word: str) -> None:
    engine = database.open()
    assert found(engine)["clock"].grade is Grade.OK
    engine.clock_offset_ms = offset_ms
    finding = found(engine)["clock"]
    assert finding.grade is Grade.ADVICE
    assert f"5.0 s {word} ours" in finding.text


def test_a_long_way(database: Database) -> None:
    with Proxy(database.server.port) as proxy:
        proxy.delay(0.01)
        url = database.server.url(database.name, port=proxy.port)
        finding = found(database.open_url(url, timeout_ms=20_000))["round trip"]
        database.close()
    assert finding.grade is Grade.ADVICE
    assert "Move the server closer" in finding.text


def test_size(database: Database) -> None:
    engine = database.open()
    engine.put([new_job(number, payload=bytes(5_000)) for number in range(100)])
    finding = found(engine)["size"]
    assert finding.grade is Grade.OK
    assert re.fullmatch(r"[\d.]+ [kM]B: (\w+ \d+ kB, ){2}\w+ \d+ kB", finding.text)


def test_a_server_that_is_away_raises() -> None:
    url = f"postgresql://127.0.0.1:{free_port()}/x"
    engine = PostgresEngine(read_address(url), EngineOptions(timeout_ms=200))
    with pytest.raises(EngineUnavailable):
        engine.examine()


def test_a_login_that_is_refused(database: Database) -> None:
    url = database.server.url(database.name, user="stranger")
    engine = open_engine(url, EngineOptions())
    [finding] = engine.examine()
    assert (finding.grade, finding.subject) == (Grade.PROBLEM, "connection")
    assert "refused the connection" in finding.text
