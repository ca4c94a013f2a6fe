"""Make and migrate the tables: forward only, in one transaction, under a lock that all processes
share.

1. `stored_format` reads the format of a schema, and `refuse_format` refuses one that this version
   cannot use.
2. `prepare` makes the tables where there are none. It leaves an older format alone: a worker that
   starts must not lock out those that still run.
3. `upgrade` applies the missing migrations, and `migration_sql` prints them for other tools.
4. `check_server` refuses a server, or a user, with which no tables can be made.

Each transaction reads the row of `meta` first, and so locks this table until its end. A migration
locks `meta` against all others: transactions that have begun end before the migration, and later
ones find the new format.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, NoReturn

from psycopg import errors

from windlass.engine.contract import EngineSpace
from windlass.engine.postgres.connections import Connections, DeadlineConnection
from windlass.engine.postgres.statements import Connection, in_schema, migrations, quote_schema
from windlass.engine.postgres.transaction import lock_number
from windlass.errors import EngineError, EngineUnavailable, FormatTooNew

NEWEST_FORMAT: Final = max(number for number, _ in migrations())
#: The first version with everything that the migrations use, as a number and in words.
OLDEST_SERVER: Final = (130_000, "13")
#: How long one transaction of an upgrade may take.
_LONGEST_S: Final = 3_600
#: How long a migration waits for a table. Other transactions wait behind it.
_LOCK_S: Final = 3
#: How long to repeat an upgrade whose tables are locked by others.
_PATIENCE_S: Final = 60

_FORMAT: Final = "SELECT format FROM windlass.meta WHERE one = 1"
_HAS_META: Final = """
SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname = 'meta'
"""
_FACTS: Final = """
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
       current_setting('server_encoding'), current_user::text, current_database()::text,
       found.oid IS NOT NULL,
       CASE WHEN found.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
            ELSE has_schema_privilege(found.oid, 'CREATE, USAGE') END
FROM (SELECT (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)) AS found (oid)
"""
#: Begins a script: one migration at a time.
_WAIT_FOR_OTHERS: Final = """
SELECT pg_advisory_xact_lock({lock});
SET LOCAL lock_timeout = '{seconds}s';
"""
_LOCK_OUT: Final = """
LOCK TABLE windlass.meta IN ACCESS EXCLUSIVE MODE;
DO $$ BEGIN
    IF (SELECT format FROM windlass.meta WHERE one = 1) <> {after} THEN
        RAISE EXCEPTION 'windlass.meta has another format than {after}: print this script again';
    END IF;
END $$;
"""
_NOTE_FORMAT: Final = "UPDATE windlass.meta SET format = {number} WHERE one = 1;\n"


# ----------------------------------------------------------------------------------------- format


def stored_format(connection: Connection, schema: str) -> int:
    """Return the format of a schema; 0 if it has no tables of windlass."""
    if connection.execute(_HAS_META, [schema]).fetchone() is None:
        return 0
    try:
        found = connection.execute(in_schema(_FORMAT, schema).encode()).fetchone()
    except errors.UndefinedColumn as error:
        raise of_another_program(schema) from error
    if found is None:
        raise of_empty_meta(schema)
    return int(found[0])


def refuse_format(number: int, schema: str) -> NoReturn:
    if number > NEWEST_FORMAT:
        raise FormatTooNew(
            f"The schema {schema} was written by a newer windlass (format {number}; this one knows "
            f"up to {NEWEST_FORMAT}). Upgrade windlass here, or give another schema in the url."
        )
    raise EngineError(
        f"The schema {schema} has format {number}, and this windlass needs format {NEWEST_FORMAT}. "
        "Stop the workers of the older version, and run `windlass migrate` as the owner of the "
        "tables."
    )


def of_another_program(schema: str) -> EngineError:
    return EngineError(
        f"The schema {schema} has tables of another program, whose names windlass uses. Give "
        "windlass a schema of its own in the url: ?schema=windlass"
    )


def of_empty_meta(schema: str) -> EngineError:
    return EngineError(
        f"The table {schema}.meta is empty, and no job can be used without its row. Restore the "
        "schema from a backup, or drop it to begin with an empty one."
    )


# ------------------------------------------------------------------------------------- migrations


def prepare(connection: Connection, schema: str) -> int:
    """Make the tables if there are none, and return the format. Refuse another format."""
    number = stored_format(connection, schema)
    if number == 0:
        _apply(connection, schema, may_upgrade=False)
    elif number != NEWEST_FORMAT:
        refuse_format(number, schema)
    return NEWEST_FORMAT


def upgrade(connections: Connections, schema: str) -> int:
    """Apply the missing migrations; return their number. If another transaction, such as a backup,
    has locked a table, try again later: meanwhile other transactions run."""

    def work(connection: DeadlineConnection) -> int:
        connection.deadline = time.monotonic() + _LONGEST_S
        return _apply(connection, schema, may_upgrade=True)

    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return connections.run(work)
        except EngineUnavailable as error:
            is_locked = isinstance(error.__cause__, errors.LockNotAvailable)
            if not is_locked or time.monotonic() > give_up_at:
                raise


def _apply(connection: Connection, schema: str, *, may_upgrade: bool) -> int:
    """Apply the missing migrations; return their number. A process that comes second waits for the
    first, and then finds nothing to do."""
    try:
        with connection.transaction():
            if may_upgrade:
                connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SET LOCAL lock_timeout = 0")
            lock = lock_number(schema, "migrate")
            connection.execute("SELECT pg_advisory_xact_lock($1)", [lock])
            number = stored_format(connection, schema)
            if number > NEWEST_FORMAT or (0 < number < NEWEST_FORMAT and not may_upgrade):
                refuse_format(number, schema)
            if number == NEWEST_FORMAT:
                return 0
            has_schema = number > 0 or check_server(connection, schema).has_schema
            # The server itself splits the text into statements.
            script = _script(schema, number, has_schema=has_schema)
            connection.execute(script.encode(), prepare=False)
    except errors.DuplicateTable as error:
        raise of_another_program(schema) from error
    return NEWEST_FORMAT - number


def _script(schema: str, after: int, *, has_schema: bool) -> str:
    """The statements that bring a schema forward from a format, inside a transaction."""
    lock = lock_number(schema, "migrate")
    parts = [_WAIT_FOR_OTHERS.format(lock=lock, seconds=_LOCK_S)]
    if after:
        parts.append(_LOCK_OUT.format(after=after))
    elif not has_schema:
        parts.append(f"\nCREATE SCHEMA IF NOT EXISTS {quote_schema(schema)};\n")
    for number, text in migrations():
        if number > after:
            parts += ["\n", text, _NOTE_FORMAT.format(number=number)]
    return in_schema("".join(parts), schema)


def migration_sql(schema: str, after: int) -> str:
    """Return the migrations after a format as a script for other tools; "" if there are none."""
    if after >= NEWEST_FORMAT:
        return ""
    return (
        f"-- Brings the schema {schema} of windlass from format {after} to {NEWEST_FORMAT}. For a "
        "tool that begins a\n-- transaction by itself, leave out BEGIN and COMMIT.\n"
        f"BEGIN;\n{_script(schema, after, has_schema=False)}\nCOMMIT;\n"
    )


# ------------------------------------------------------------------------------------- the server


class ServerFacts(NamedTuple):
    """What a server and a user must have so that tables can be made."""

    version: int
    version_text: str
    encoding: str
    role: str
    database: str
    has_schema: bool
    may_create: bool  # the schema, or tables in it


def read_facts(connection: Connection, schema: str) -> ServerFacts:
    ((*values,),) = connection.execute(_FACTS, [schema]).fetchall()
    return ServerFacts(*values)


def check_server(connection: Connection, schema: str) -> ServerFacts:
    """Refuse a server on which no tables can be made."""
    facts = read_facts(connection, schema)
    why = why_too_old(facts) or why_wrong_encoding(facts) or why_no_tables(facts, schema)
    if why:
        raise EngineError(f"{why}.")
    return facts


def why_too_old(facts: ServerFacts) -> str:
    oldest, words = OLDEST_SERVER
    if facts.version >= oldest:
        return ""
    return f"PostgreSQL {facts.version_text} is too old: windlass needs {words} or newer"


def why_wrong_encoding(facts: ServerFacts) -> str:
    if facts.encoding == "UTF8":
        return ""
    return (
        f"The database {facts.database} has the encoding {facts.encoding}, in which most texts "
        "cannot be stored. Make one with `createdb --encoding=UTF8 --template=template0`"
    )


def why_no_tables(facts: ServerFacts, schema: str) -> str:
    if facts.may_create:
        return ""
    missing = (
        f"The schema {schema} has no tables of windlass in the database {facts.database}, and the "
        f"role {facts.role} may not create any there"
        if facts.has_schema
        else f"There is no schema {schema} in the database {facts.database}, and the role "
        f"{facts.role} may not create it"
    )
    return (
        f"{missing}. Run `windlass migrate` with a role that may; then `windlass doctor` prints "
        f"the GRANT statements for {facts.role}"
    )


def measure_space(connection: Connection) -> EngineSpace:
    """Measure the database; the server does not tell how large it may become."""
    (used,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
    return EngineSpace(int(used), 0)
