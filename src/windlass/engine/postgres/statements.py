"""The SQL of this engine, for one schema, and how to run it.

Statements have numbered parameters, $1 and so on, as PostgreSQL itself has them, and name the
schema as `windlass`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import psycopg

from windlass.engine.postgres.pipeline import Pipeline, Reply
from windlass.engine.sql.statements import Row, Statements, list_migrations, read_statements

_PACKAGE: Final = Path(__file__).parent
_SCHEMA: Final = re.compile(r"\bwindlass\.")

#: A connection with rows as tuples.
Connection = psycopg.Connection[Row]


@cache
def statements_for(schema: str) -> Mapping[str, bytes]:
    """Statement name -> text without comments, for the tables of one schema."""
    statements = read_statements(_PACKAGE / "sql")
    return {name: in_schema(text, schema).encode() for name, text in statements.items()}


def quote_schema(schema: str) -> str:
    """Return the name of a schema as SQL takes it, also one that is a key word, such as `user`."""
    return f'"{schema}"'


def in_schema(text: str, schema: str) -> str:
    """Name the tables of a text with their schema, which the search path of a user may not have."""
    return _SCHEMA.sub(f"{quote_schema(schema)}.", text)


def migrations() -> Iterator[tuple[int, str]]:
    """List every migration as (version, text), oldest first."""
    return list_migrations(_PACKAGE / "migrations")


def pack_numbers(values: Iterable[int | None]) -> str:
    """Write numbers as an array, which a statement casts. The driver would choose a type for each
    array by its values, so that the server plans the statement again."""
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def _without_nul(value: Any) -> Any:
    """Replace NUL by a character that is in no name, so that nothing is found under the text."""
    if isinstance(value, str):
        return value.replace("\0", "\ufdd0")
    return [_without_nul(one) for one in value] if isinstance(value, list | tuple) else value


_ESCAPED: Final = re.compile("\1[\1\2]")


def unescape(stored: str) -> str:
    """Return the key from the text that `escape` made."""
    return _ESCAPED.sub(lambda found: "\0" if found[0] == "\1\1" else "\1", stored)


def escape(key: str) -> str:
    """Return a key without NUL, which PostgreSQL cannot store; different keys stay different."""
    if "\0" not in key and "\1" not in key:
        return key
    return key.replace("\1", "\1\2").replace("\0", "\1\1")


class PostgresStatements(Statements):
    """Runs the statements of this engine: those without rows are sent together with the next one
    that returns some."""

    def __init__(self, pipeline: Pipeline, schema: str, *, prepare: bool) -> None:
        self.pipeline = pipeline
        self.schema = schema
        self.prepare = prepare
        self._sql = statements_for(schema)

    def start(self, name: str, *values: Any) -> Reply:
        """Send a statement with the next ones; fetch its rows later."""
        text = self._sql[name]
        try:
            return self.pipeline.send(text, values, prepare=self.prepare)
        except psycopg.DataError:  # a text has NUL, which no stored text has
            return self.pipeline.send(text, _without_nul(values), prepare=self.prepare)

    def start_text(self, text: str, values: Sequence[Any] = ()) -> Reply:
        """The same for a statement that the server plans for its values, and only once."""
        return self.pipeline.send(in_schema(text, self.schema).encode(), values, prepare=False)

    def later(self, name: str, *values: Any) -> Callable[[], list[Row]]:
        """Send a statement with the next ones, and return a function that waits for its rows."""
        return partial(self.fetch, self.start(name, *values))

    def rows(self, name: str, *values: Any) -> list[Row]:
        return self.fetch(self.start(name, *values))

    def fetch(self, reply: Reply) -> list[Row]:
        """Wait for the rows of a statement. After the sync the server knows that the transaction is
        idle, and ends it in time if this process was stopped."""
        if not reply.has_come:
            self.flush()
        return reply.rows()

    def run(self, name: str, *values: Any) -> None:
        self.start(name, *values)

    def change(self, name: str, *values: Any) -> int:
        reply = self.start(name, *values)
        self.flush()
        return reply.changed

    def rows_of_slot(self, name: str, slot: int, *values: Any) -> list[Row]:
        """Run a statement of the ring for one of its partitions; return its rows, if it has any."""
        text = self._sql[name].replace(b"ended_0", b"ended_%d" % slot)
        return self.fetch(self.pipeline.send(text, values, prepare=False))

    def flush(self) -> None:
        """Wait until all statements so far have run."""
        self.pipeline.sync()

    def array(self, values: Sequence[Any]) -> list[Any] | str:
        return pack_numbers(values) if values and isinstance(values[0], int) else list(values)

    def read_key(self, stored: str) -> str:
        return unescape(stored)

    def unpack(self, stored: list[str]) -> tuple[str, ...]:
        return tuple(stored)
