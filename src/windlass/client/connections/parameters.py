"""Statements with the parameter marks of other drivers.

The statements of the contract have `$1`, `$2` and so on, in any order and repeated. Drivers with
marks by position get the values again for each mark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from windlass.engine.contract import SqlStatement

_MARK: Final = re.compile(r"\$(\d+)|%")


def with_percent(statement: SqlStatement) -> tuple[str, tuple[Any, ...]]:
    """The statement with `%s` for each value, as psycopg2, Django and most of SQLAlchemy have it;
    a percent sign of the statement is doubled."""
    return _by_position(statement, "%s", "%%")


def with_question_marks(statement: SqlStatement) -> tuple[str, tuple[Any, ...]]:
    """The statement with `?` for each value, as sqlite3 has it."""
    return _by_position(statement, "?", "%")


def with_dollars(statement: SqlStatement) -> tuple[str, tuple[Any, ...]]:
    """The statement as it is, for asyncpg and raw cursors of psycopg."""
    return statement.sql, statement.values


def _by_position(statement: SqlStatement, mark: str, percent: str) -> tuple[str, tuple[Any, ...]]:
    sql, order = _convert(statement.sql, mark, percent)
    return sql, tuple(statement.values[at] for at in order)


@lru_cache(maxsize=128)
def _convert(sql: str, mark: str, percent: str) -> tuple[str, tuple[int, ...]]:
    """The text with other marks, and the position of the value of each mark."""
    order: list[int] = []

    def replace(found: re.Match[str]) -> str:
        if found[1] is None:
            return percent
        order.append(int(found[1]) - 1)
        return mark

    return _MARK.sub(replace, sql), tuple(order)
