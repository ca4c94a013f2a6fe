"""Open the outbox that a url names. Only the driver of its database is imported."""

from __future__ import annotations

from windlass.core import install_command
from windlass.engine.contract import Dialect
from windlass.errors import EngineError
from windlass.outbox.rows import OutboxRows
from windlass.outbox.url import OutboxUrl


def open_outbox(url: OutboxUrl) -> OutboxRows:
    """Make the object for an outbox; it connects at its first use."""
    if url.dialect is Dialect.SQLITE:
        from windlass.outbox.sqlite import SqliteOutbox

        return SqliteOutbox(url)
    try:
        from windlass.outbox.postgresql import PostgresOutbox
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise EngineError(
            f"The outbox in {url.location} needs the PostgreSQL driver, which is not installed "
            f"here. Install it with: {install_command('postgres')}",
            location=url.location,
        ) from error
    return PostgresOutbox(url)
