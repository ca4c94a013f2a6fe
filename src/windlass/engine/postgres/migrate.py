"""Migrations of a schema: forward only, one transaction, under a lock that all processes share.

1. `stored_format` reads the format of a schema, and `refuse_format` refuses one that this version
   cannot use.
2. `migrate` applies the missing migrations, and `migration_sql` prints them for other tools.
"""

from __future__ import annotations

from typing import Final, NoReturn

from windlass.engine.contract import EngineSpace
from windlass.engine.postgres.statements import Connection, in_schema, migrations
from windlass.engine.postgres.transaction import lock_number
from windlass.errors import EngineError, FormatTooNew

NEWEST_FORMAT: Final = max(number for number, _ in migrations())


def stored_format(connection: Connection, schema: str) -> int:
    """Return the format of a schema; 0 if it has no tables of windlass."""
    found = connection.execute("SELECT to_regclass($1)", [f"{schema}.meta"]).fetchone()
    if found is None or found[0] is None:
        return 0
    (number,) = connection.execute(
        in_schema("SELECT format FROM windlass.meta WHERE one = 1", schema).encode()
    ).fetchone() or (0,)
    return int(number)


def refuse_format(number: int, schema: str) -> NoReturn:
    if number > NEWEST_FORMAT:
        raise FormatTooNew(
            f"The schema {schema} was written by a newer windlass (format {number}; this one knows "
            f"up to {NEWEST_FORMAT}). Upgrade windlass here, or give another schema in the url."
        )
    raise EngineError(
        f"The schema {schema} has format {number}, and this windlass needs format {NEWEST_FORMAT}. "
        "Run `windlass migrate` with a role that may change the schema."
    )


def migrate(connection: Connection, schema: str) -> int:
    """Apply the missing migrations, and return the format."""
    if stored_format(connection, schema) == NEWEST_FORMAT:
        return NEWEST_FORMAT
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock($1)", [lock_number(schema, "migrate")])
        number = stored_format(connection, schema)
        if number > NEWEST_FORMAT:
            refuse_format(number, schema)
        if number == 0:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        for step, text in migrations():
            if step > number:
                for statement in _statements(in_schema(text, schema)):
                    connection.execute(statement.encode())
    return NEWEST_FORMAT


def migration_sql(schema: str, after: int) -> str:
    """Return the migrations after a format as a script for other tools."""
    steps = [in_schema(text, schema) for number, text in migrations() if number > after]
    create = f"CREATE SCHEMA IF NOT EXISTS {schema};\n\n" if after == 0 else ""
    return f"BEGIN;\n\n{create}{''.join(steps)}\nCOMMIT;\n" if steps else ""


def _statements(text: str) -> list[str]:
    """Split a migration into statements, which the driver sends one by one."""
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    joined = "\n".join(lines) + "\n"
    return [part.strip() for part in joined.split(";\n") if part.strip()]


def measure_space(connection: Connection) -> EngineSpace:
    """Measure the database; the server does not tell how large it may become."""
    (used,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
    return EngineSpace(int(used), 0)
