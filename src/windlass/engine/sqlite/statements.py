"""The SQL of this engine, and how to run it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from windlass.engine.sql.statements import Row, Statements, list_migrations, read_statements

_PACKAGE: Final = Path(__file__).parent

_decode_texts: Final = msgspec.json.Decoder(tuple[str, ...]).decode

#: Statement name -> text without comments.
SQL: Final = read_statements(_PACKAGE / "sql")


def migrations() -> Iterator[tuple[int, str]]:
    """List every migration as (version, text), oldest first."""
    return list_migrations(_PACKAGE / "migrations")


def as_array(values: Sequence[Any]) -> str:
    """Pack values into one parameter for `json_each`. A batch is a single statement, because each
    step of a statement releases the GIL to the threads of running jobs and waits to get it back."""
    return msgspec.json.encode(values).decode()


def repeat_values(statement: str, times: int) -> str:
    """Let an `INSERT` of one row insert several; the parameters of all rows are one sequence."""
    before, values, after = re.split(r"(?<=VALUES )(\(.*\))", statement)
    width = max(int(number) for number in re.findall(r"\?(\d+)", values))
    copies = [_shift_parameters(values, at * width) for at in range(times)]
    return f"{before}{', '.join(copies)}{after}"


def _shift_parameters(text: str, by: int) -> str:
    return re.sub(r"\?(\d+)", lambda found: f"?{int(found[1]) + by}", text)


def rows(connection: apsw.Connection, name: str, *values: Any) -> list[Row]:
    """Run a statement to its end and return its rows."""
    return list(connection.execute(SQL[name], values))


def first(connection: apsw.Connection, name: str, *values: Any) -> Any:
    """Return the first column of the first row of a statement, or None."""
    found = rows(connection, name, *values)
    return found[0][0] if found else None


class SQLiteStatements(Statements):
    """Runs the statements of this engine on a connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def rows(self, name: str, *values: Any) -> list[Row]:
        return list(self.connection.execute(SQL[name], values))

    def run(self, name: str, *values: Any) -> None:
        self.connection.execute(SQL[name], values)

    def change(self, name: str, *values: Any) -> int:
        self.connection.execute(SQL[name], values)
        return self.connection.changes()

    def array(self, values: Sequence[Any]) -> str:
        return as_array(values)

    def unpack(self, stored: str) -> tuple[str, ...]:
        return _decode_texts(stored)
