"""Making the tables, and bringing them forward: forward only, at once, and fenced by the format."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from psycopg.errors import RaiseException

from tests.docs.pages import DOCS, blocks
from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables, without_tables
from tests.pgbouncer import PgBouncer
from tests.postgres_databases import RIGHTS
from tests.postgres_server import (
    OWNER,
    SUPERUSER,
    WORKER,
    Connection,
    find_program,
    shared_server,
)
from tests.worker.yard import until
from windlass.engine.contract import Engine, Grade, Plan, Succeeded, Verdict
from windlass.engine.postgres import migrate
from windlass.engine.postgres.migrate import ServerFacts
from windlass.engine.postgres.statements import migrations
from windlass.engine.postgres.transaction import lock_number
from windlass.errors import EngineError, EngineUnavailable, FormatTooNew
from windlass.testing.contract.world import claim_jobs

T = TypeVar("T")
FORMAT = migrate.NEWEST_FORMAT
#: A migration whose text misleads a program that splits at semicolons, or cuts off comments.
NEXT = """
-- It's a comment; with a quote and a semicolon.
CREATE TABLE windlass.notes (
    note text NOT NULL DEFAULT 'a -- b; c',  -- not a comment inside; a comment behind
    "odd; name" integer
);
INSERT INTO windlass.notes VALUES ('semi;
colon; -- and more', 1), ('it''s', 2);
/* a block; of
   two lines; */
CREATE FUNCTION windlass.noted() RETURNS bigint LANGUAGE sql AS $body$
    SELECT count(*) FROM windlass.notes;
$body$;
ALTER TABLE windlass.jobs ADD COLUMN color text; CREATE INDEX jobs_color ON windlass.jobs (color);
"""


@pytest.fixture
def database() -> Iterator[Database]:
    """A database with the tables of this version."""
    with with_tables() as database:
        yield database


@pytest.fixture
def empty() -> Iterator[Database]:
    with without_tables(shared_server()) as database:
        yield database


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let this process be of a version with one more migration, until the end of the test."""

    def become_newer(text: str = NEXT) -> None:
        steps = [*migrations(), (FORMAT + 1, text)]
        monkeypatch.setattr("windlass.engine.postgres.migrate.migrations", lambda: iter(steps))
        monkeypatch.setattr(migrate, "NEWEST_FORMAT", FORMAT + 1)

    return become_newer


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let it be of this version again."""

    def become_older() -> None:
        monkeypatch.setattr("windlass.engine.postgres.migrate.migrations", migrations)
        monkeypatch.setattr(migrate, "NEWEST_FORMAT", FORMAT)

    return become_older


#: Everything that the catalog knows of the tables of a schema.
CATALOG = (
    """
    SELECT c.relname, c.relkind::text, c.relpersistence::text, c.reloptions::text,
           t.reloptions::text, pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid)
    FROM pg_class AS c LEFT JOIN pg_class AS t ON t.oid = c.reltoastrelid
    WHERE c.relnamespace = $1::regnamespace
    """,
    """
    SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           a.attidentity::text, a.attstorage::text, pg_get_expr(d.adbin, d.adrelid), l.collname
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    WHERE c.relnamespace = $1::regnamespace
    """,
    """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = $1::regnamespace
    """,
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1",
    "SELECT sequencename, data_type::text, start_value FROM pg_sequences WHERE schemaname = $1",
    "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = $1::regnamespace",
)


def catalog(database: Database, schema: str = "windlass") -> list[list[tuple[Any, ...]]]:
    """The tables of a schema, without its name."""
    with database.server.connect(database.name) as connection:
        found = [
            connection.execute(query.replace("$1", f"'{schema}'").encode()) for query in CATALOG
        ]
        lists = [sorted(map(repr, cursor.fetchall())) for cursor in found]
    assert all(lists[:4])
    named = re.compile(rf'(?:"{schema}"|{schema})\.')
    return [[(named.sub("windlass.", text),) for text in texts] for texts in lists]


def run_in_thread(work: Callable[[], T]) -> Callable[[], T]:
    """Start a function; the returned one waits for its value."""
    results: list[T | BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # for the thread that waits
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> T:
        thread.join()
        [value] = results
        if isinstance(value, BaseException):
            raise value
        return value

    return wait


def await_waiting(database: Database, number: int = 1) -> None:
    """Wait until this many transactions wait for a lock."""
    until(lambda: len(waiting(database)) >= number, "it waits")


def waiting(database: Database) -> list[tuple[Any, ...]]:
    return database.execute(
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )


# --------------------------------------------------------------------------------- the first use


def test_the_first_use_makes_the_tables(empty: Database) -> None:
    engine = empty.open(OWNER)
    assert not engine.is_used()
    engine.put([new_job()])
    assert engine.is_used()
    assert engine.migrate() == FORMAT
    assert engine.check() == []


def test_many_processes_may_be_the_first(empty: Database) -> None:
    """The later ones wait for the first, and find nothing to do."""
    engines = [empty.open(OWNER) for _ in range(6)]
    puts = [
        run_in_thread(lambda engine=engine, n=n: engine.put([new_job(n)]))  # type: ignore[misc]  # mypy infers no type for a default
        for n, engine in enumerate(engines)
    ]
    for put in puts:
        put()
    assert len(claim_jobs(engines[0], "s", "n", Plan(), 9).claims) == 6


def test_a_second_process_waits_and_finds_nothing_to_do(empty: Database) -> None:
    script = migrate.migration_sql("windlass", 0)
    with empty.server.connect(empty.name, OWNER) as other:
        other.execute(script.removesuffix("COMMIT;\n").encode())
        before = catalog_of_transaction(other)
        migrating = run_in_thread(empty.open(OWNER).migrate)
        await_waiting(empty)
        other.execute("COMMIT")
        assert migrating() == FORMAT
        assert catalog_of_transaction(other) == before


def catalog_of_transaction(connection: Connection) -> list[tuple[Any, ...]]:
    """The identity of the tables and of their row of bookkeeping."""
    return connection.execute(
        "SELECT 'windlass.jobs'::regclass::oid, identity FROM windlass.meta"
    ).fetchall()


def test_the_tables_are_in_their_own_schema(empty: Database) -> None:
    url = empty.server.url(empty.name, user=OWNER)
    shop = empty.open_url(f"{url}?schema=shop")
    other = empty.open_url(f"{url}?schema=other_1")
    shop.put([new_job(1)])
    assert not other.is_used()
    other.put([new_job(2)])
    assert [claim.id for claim in claim_jobs(shop, "s", "n", Plan(), 9).claims] == ["job-000001"]
    assert [claim.id for claim in claim_jobs(other, "s", "n", Plan(), 9).claims] == ["job-000002"]
    assert catalog(empty, "shop") == catalog(empty, "other_1")
    schemas = empty.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^info'")
    assert {name for (name,) in schemas} == {"public", "shop", "other_1"}


@pytest.mark.parametrize("schema", ["user", "order", "default"])
def test_a_schema_may_be_named_like_a_key_word(empty: Database, schema: str) -> None:
    owner = empty.open_url(empty.server.url(empty.name, user=OWNER, schema=schema))
    owner.put([new_job(1)])
    (claim,) = claim_jobs(owner, "s", "n", Plan(), 9).claims
    ended = Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=1_000)
    assert owner.finish([ended]) == [Verdict.OK]
    assert owner.check() == []
    worker = empty.open_url(empty.server.url(empty.name, user=WORKER, schema=schema))
    (finding,) = [one for one in worker.examine() if one.subject == "rights"]
    grants = finding.text.rpartition("run: ")[2]
    assert f'GRANT USAGE ON SCHEMA "{schema}" TO {WORKER};' in grants
    empty.execute(grants)
    (finding,) = [one for one in worker.examine() if one.subject == "rights"]
    assert finding.grade is Grade.OK


def test_a_pooler_may_be_between(empty: Database) -> None:
    pooler = PgBouncer(empty.server)
    try:
        engine = empty.open_url(pooler.url(empty.name, user=OWNER, pooler="transaction"))
        engine.put([new_job()])
        assert engine.migrate() == FORMAT
    finally:
        engine.shutdown()
        pooler.end()


# ---------------------------------------------------------------------------- users with few rights


def test_a_user_who_may_not_make_tables_is_told_what_to_run(empty: Database) -> None:
    engine = empty.open(WORKER)
    for call in (engine.migrate, engine.stats, lambda: engine.put([new_job()])):
        with pytest.raises(EngineError) as error:
            call()
        assert str(error.value) == (
            f"There is no schema windlass in the database {empty.name}, and the role {WORKER} may "
            "not create it. Run `windlass migrate` with a role that may; then `windlass doctor` "
            f"prints the GRANT statements for {WORKER}."
        )
    empty.execute("CREATE SCHEMA windlass")
    with pytest.raises(EngineError, match="has no tables of windlass in the database"):
        engine.migrate()
    assert not engine.is_used()


def test_a_user_may_own_a_schema_that_an_administrator_made(empty: Database) -> None:
    empty.execute(f"CREATE SCHEMA windlass AUTHORIZATION {WORKER}")
    empty.open(WORKER).put([new_job()])


def test_a_user_without_rights_to_the_tables_is_told(empty: Database) -> None:
    empty.open(OWNER).migrate()
    worker = empty.open(WORKER)
    with pytest.raises(EngineError, match=r"The role may not do this .* `windlass doctor` prints"):
        worker.put([new_job()])
    with pytest.raises(EngineError, match="The role may not do this"):
        worker.migrate()
    empty.execute(RIGHTS)
    worker.put([new_job()])
    assert worker.migrate() == FORMAT


def test_tables_of_another_program_are_left_alone(empty: Database) -> None:
    for table in ("jobs", "meta"):
        empty.execute(f"CREATE TABLE public.{table} (format integer)")
        url = f"{empty.server.url(empty.name, user='postgres')}?schema=public"
        engine = empty.open_url(url)
        with pytest.raises(EngineError, match="has tables of another program"):
            engine.put([new_job()])
        tables = empty.execute(
            "SELECT relname FROM pg_tables, pg_class WHERE tablename = relname "
            "AND schemaname = 'public'"
        )
        assert tables == [(table,)]
        empty.execute(f"DROP TABLE public.{table}")


# ------------------------------------------------------------------------------------ unfit servers


def test_an_encoding_without_most_texts_is_refused() -> None:
    server = shared_server()
    with server.connect() as connection:
        connection.execute(
            f"CREATE DATABASE latin OWNER {OWNER} ENCODING 'LATIN1' TEMPLATE template0 "
            "LOCALE_PROVIDER libc LOCALE 'C'"
        )
    try:
        with Database(server, "latin") as latin, pytest.raises(EngineError) as error:
            latin.open(OWNER).put([new_job()])
        assert str(error.value) == (
            "The database latin has the encoding LATIN1, in which most texts cannot be stored. "
            "Make one with `createdb --encoding=UTF8 --template=template0`."
        )
    finally:
        server.drop_database("latin")


@pytest.mark.parametrize(("version", "is_refused"), [(120_022, True), (130_000, False)])
def test_an_old_server_is_refused(version: int, is_refused: bool) -> None:
    facts = ServerFacts(version, "12.22", "UTF8", "r", "d", has_schema=True, may_create=True)
    told = migrate.why_too_old(facts)
    assert bool(told) is is_refused
    assert not told or told == "PostgreSQL 12.22 is too old: windlass needs 13 or newer"


# ------------------------------------------------------------------------------------- migrations


def test_steps_lead_to_the_same_tables_as_a_fresh_start(
    database: Database, empty: Database, newer: Callable[[], None]
) -> None:
    """From any format, and by any tool."""
    url = empty.server.url(empty.name, user=OWNER)
    empty.open_url(f"{url}?schema=by_script").put([new_job()])
    newer()
    fresh = empty.open(OWNER)
    fresh.put([new_job()])
    assert fresh.migrate_jobs().steps == 0
    stepwise = database.open(OWNER)
    assert stepwise.migrate_jobs().steps == 1
    assert stepwise.migrate_jobs().steps == 0
    script = migrate.migration_sql("by_script", FORMAT)
    empty.execute(script, f"SET ROLE {OWNER}", migrate.migration_sql("by_tool", 0))
    expected = catalog(empty)
    assert catalog(database) == expected
    assert catalog(empty, "by_script") == expected
    assert catalog(empty, "by_tool") == expected
    assert empty.execute("SELECT windlass.noted(), by_script.noted()") == [(2, 2)]
    for schema in ("windlass", "by_script", "by_tool"):
        engine = empty.open_url(f"{url}?schema={schema}")
        assert engine.migrate() == FORMAT + 1
        assert migrate.migration_sql(schema, FORMAT + 1) == ""
        engine.put([new_job(7)])
    notes = empty.execute("SELECT note FROM windlass.notes")
    assert notes == [("semi;\ncolon; -- and more",), ("it's",)]


def test_a_migration_happens_as_a_whole_or_not_at_all(
    database: Database, newer: Callable[[str], None]
) -> None:
    before = catalog(database)
    newer("CREATE TABLE windlass.half (); SELECT 'not a number'::integer;")
    with pytest.raises(EngineError, match="not a number"):
        database.open(OWNER).migrate_jobs()
    assert catalog(database) == before
    assert database.execute("SELECT format FROM windlass.meta") == [(FORMAT,)]


def test_a_script_of_another_format_changes_nothing(
    database: Database, newer: Callable[[], None]
) -> None:
    newer()
    script = migrate.migration_sql("windlass", FORMAT)
    database.execute(script)
    before = catalog(database)
    with pytest.raises(RaiseException, match=f"has another format than {FORMAT}: print this"):
        database.execute(script)
    assert catalog(database) == before


# ------------------------------------------------------------------------------------ other formats


def use(engine: Engine) -> Iterator[Callable[[], object]]:
    """Calls of each kind: those of the hot paths, reads, and changes."""
    yield lambda: engine.put([new_job(1)])
    yield lambda: engine.put([new_job(2, idempotency_key="k")])
    yield lambda: engine.turn("s", (), f"{1:032}", Plan(queues=("q",)), 1)
    yield lambda: engine.finish([])
    yield engine.stats
    yield engine.tend
    yield engine.check
    yield lambda: engine.cancel(["job-000000"])
    yield engine.migrate


def test_a_newer_format_is_refused_by_every_call(database: Database) -> None:
    """Also by those that had found their own format before."""
    engine = database.open()
    engine.put([new_job(0)])
    engine.stats()
    before = database.execute("SELECT * FROM windlass.jobs")
    database.execute("UPDATE windlass.meta SET format = format + 1")
    for number, call in enumerate(use(engine)):
        if number != 3:  # without outcomes, there is nothing to ask the server
            with pytest.raises(FormatTooNew, match="was written by a newer windlass"):
                call()
    with pytest.raises(FormatTooNew):
        engine.migrate_jobs()
    assert database.execute("SELECT * FROM windlass.jobs") == before
    assert database.execute("SELECT count(*) FROM windlass.sessions") == [(0,)]
    database.execute("UPDATE windlass.meta SET format = format - 1")
    engine.put([new_job(1)])


def test_an_older_format_is_left_to_the_command(
    database: Database, newer: Callable[[], None]
) -> None:
    """A worker that starts must not lock out those that still run."""
    newer()
    owner = database.open(OWNER)
    for number, call in enumerate(use(owner)):
        if number != 3:
            with pytest.raises(EngineError, match="run `windlass migrate` as the owner"):
                call()
    assert database.execute("SELECT format FROM windlass.meta") == [(FORMAT,)]
    with pytest.raises(EngineError, match="The role may not do this"):
        database.open(WORKER).migrate_jobs()
    assert owner.migrate_jobs().steps == 1
    owner.put([new_job()])


def test_processes_of_the_older_version_may_run_meanwhile(
    database: Database,
    newer: Callable[[], None],
    older: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they have begun takes effect, what they begin waits, and then has no effect."""
    engine, owner = database.open(), database.open(OWNER)
    make_tables, is_older = engine.migrate, threading.Event()

    def make_tables_when_older() -> int:  # this process has both versions in turn
        assert is_older.wait(30)
        return make_tables()

    monkeypatch.setattr(engine, "migrate", make_tables_when_older)
    engine.put([new_job(0)])
    begun, may_end = threading.Event(), threading.Event()

    def transaction(tx: Any) -> None:
        begun.set()
        assert may_end.wait(30)
        tx.run("add_audit", "entry", 1, b"")

    running = run_in_thread(lambda: engine._write(transaction))
    assert begun.wait(30)
    newer()
    migrating = run_in_thread(owner.migrate_jobs)
    await_waiting(database)
    older()
    later = run_in_thread(lambda: engine.put([new_job(1)]))
    await_waiting(database, 2)
    newer()  # for the rest of the migration
    may_end.set()
    running()
    assert migrating().steps == 1
    older()
    is_older.set()
    with pytest.raises(FormatTooNew):
        later()
    assert database.execute("SELECT id FROM windlass.audit") == [("entry",)]
    assert database.execute("SELECT id FROM windlass.jobs") == [("job-000000",)]


def test_a_migration_comes_back_later_to_a_locked_table(
    database: Database, newer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup locks all tables for long; what came behind the migration must not wait for it."""
    newer()
    monkeypatch.setattr(migrate, "_LOCK_S", 1)
    with database.server.connect(database.name) as backup:
        backup.execute("BEGIN; LOCK TABLE windlass.meta IN ACCESS SHARE MODE")
        monkeypatch.setattr(migrate, "_PATIENCE_S", 1.2)
        with pytest.raises(EngineUnavailable, match="holds a lock for long"):
            database.open(OWNER, timeout_ms=500).migrate_jobs()
        monkeypatch.setattr(migrate, "_PATIENCE_S", 60)
        migrating = run_in_thread(database.open(OWNER, timeout_ms=500).migrate_jobs)
        await_waiting(database)
        until(lambda: not waiting(database), "it gives up for a while")
        backup.execute("COMMIT")
    assert migrating().steps == 1


# -------------------------------------------------------------------------------------- damage


def test_a_dropped_schema_is_made_again(empty: Database) -> None:
    engine = empty.open(OWNER)
    engine.put([new_job(0)])
    empty.execute("DROP SCHEMA windlass CASCADE")
    engine.put([new_job(1)])
    assert engine.get(["job-000000"]) == [None]
    assert engine.tend().emptied
    assert not engine.tend().emptied


def test_missing_parts_of_a_schema_are_reported(database: Database) -> None:
    engine = database.open()
    engine.stats()
    database.execute("DROP TABLE windlass.audit")
    with pytest.raises(EngineError, match=r"Tables of the schema windlass have been .*audit"):
        engine.list_audit()
    database.execute("DELETE FROM windlass.meta")
    for call in (engine.stats, engine.migrate, engine.is_used):
        with pytest.raises(EngineError, match=re.escape("The table windlass.meta is empty")):
            call()


def test_a_lock_number_is_the_same_in_every_process() -> None:
    """Processes of different versions wait for each other."""
    assert lock_number("windlass", "migrate") == 4962323358639630072


def test_a_dump_can_be_restored(database: Database, empty: Database) -> None:
    """By the command of the documentation."""
    [command] = [
        block.text.split()
        for block in blocks(DOCS / "operations.md")
        if block.text.startswith("pg_dump ")
    ]
    engine = database.open()
    engine.put([new_job(number) for number in range(3)])
    engine.finish(
        [
            Succeeded(id=claim.id, token="n", result=b"1", result_ttl_ms=60_000)
            for claim in claim_jobs(engine, "s", "n", Plan(), 1).claims
        ]
    )
    dump = empty.server.folder / "windlass.dump"
    arguments = [f"--file={dump}" if word.startswith("--file=") else word for word in command[1:-1]]
    url = database.server.socket_url(database.name, user=SUPERUSER)
    subprocess.run([find_program("pg_dump"), *arguments, url], check=True)
    url = empty.server.socket_url(empty.name, user=SUPERUSER)
    subprocess.run([find_program("pg_restore"), "--dbname", url, dump], check=True)
    dump.unlink()
    restored = empty.open()
    assert restored.check() == []
    assert restored.stats().queues == engine.stats().queues
    restored.put([new_job(3)])
    claims = claim_jobs(restored, "other", "m", Plan(), 9).claims
    assert [claim.id for claim in claims] == ["job-000001", "job-000002", "job-000003"]
