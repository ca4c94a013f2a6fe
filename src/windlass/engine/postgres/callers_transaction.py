"""Verbs as statements for a transaction of the caller, on a connection unknown to this engine.

A verb of a transaction runs its statements and uses the rows at once. To yield the statements
instead, `run_within` runs the verb again from its beginning for each statement. Statements with a
reply get the same rows again. The first statement without a reply ends the run, and is yielded. A
verb depends on these rows alone, so it runs the same statements each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from windlass.engine.contract import EngineOptions, SqlGenerator, SqlRows, SqlStatement
from windlass.engine.postgres.statements import statements_for
from windlass.engine.postgres.transaction import Start, Transaction, plain_values
from windlass.engine.sql.statements import Row

T = TypeVar("T")


def run_within(
    schema: str, start: Start, options: EngineOptions, clock: str, work: Callable[[Transaction], T]
) -> SqlGenerator[T]:
    """Yield the statements of a verb and of its bookkeeping; return what the verb returns."""
    replies: list[SqlRows] = []
    while True:
        tx = _Replay(schema, start, options, clock, replies)
        try:
            value = work(tx)
            tx.settle()
        except _Unanswered as ask:
            replies.append((yield ask.statement))
        else:
            return value


class _Unanswered(Exception):
    """A statement that has no reply yet."""

    def __init__(self, statement: SqlStatement) -> None:
        super().__init__(statement)
        self.statement = statement


class _Replay(Transaction):
    """A transaction whose first statements were answered before."""

    is_callers = True

    def __init__(
        self,
        schema: str,
        start: Start,
        options: EngineOptions,
        clock: str,
        replies: Sequence[SqlRows],
    ) -> None:
        self.schema = schema
        self._texts = statements_for(schema)
        self._replies = iter(replies)
        self._begin(start, options, clock)

    def grow_age(self, line: str) -> int:
        """Return the age of a queue, and do not store it: that row is locked until the end of the
        transaction."""
        return self.age_of(line)

    # --------------------------------------------------------------------------------- statements

    def rows(self, name: str, *values: Any) -> list[Row]:
        reply = next(self._replies, None)
        if reply is None:
            text = self._texts[name].decode()
            raise _Unanswered(SqlStatement(text, plain_values(name, values)))
        return [tuple(row) for row in reply]

    def later(self, name: str, *values: Any) -> Callable[[], list[Row]]:
        rows = self.rows(name, *values)
        return lambda: rows

    def run(self, name: str, *values: Any) -> None:
        self.rows(name, *values)

    def change(self, name: str, *values: Any) -> int:
        raise NotImplementedError("drivers differ in how they count changed rows")
