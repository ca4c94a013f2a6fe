"""The engine contract for transactions of a caller: an enqueue on the caller's own database
connection, which is committed or rolled back together with the caller's writes.

The engine does not know that connection. It yields statements and gets rows, so that one function
of an engine serves blocking and async drivers (`windlass.client.connections` runs the statements).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from windlass.engine.contract.claims import Outcome, Verdict
from windlass.engine.contract.jobs import NewJob, Placed

R = TypeVar("R")


class Dialect(StrEnum):
    """The SQL of a database."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


class SqlStatement(msgspec.Struct, frozen=True):
    """One statement, with a value for each of its parameters `$1`, `$2` and so on.

    Drivers differ in how they infer types, so that every statement follows these rules:

    - Values are text, int, bool, bytes and None; on PostgreSQL also lists of these.
    - On PostgreSQL each parameter has a cast, `$1::text[]`, and each returned column is a text, a
      number, a boolean or bytes: other types are cast to text.
    - `$1` is nowhere but in place of a value: drivers with other marks get the text with theirs.
    """

    sql: str
    values: tuple[Any, ...] = ()


#: The rows that a statement returned; empty for a statement that returns none.
SqlRows: TypeAlias = Sequence[Sequence[Any]]
#: Statements to run in turn in the transaction of a caller. The generator gets the rows of each
#: statement, and returns the result. It gets no errors: when a statement fails, the generator is
#: closed, and the caller gets the error.
SqlGenerator: TypeAlias = Generator[SqlStatement, SqlRows, R]


class TransactionPlace(Protocol):
    """Stores jobs in a transaction of the caller: an engine, an outbox or a sandbox."""

    @property
    def location(self) -> str:
        """Name the database for messages, without secrets."""

    @property
    def dialect(self) -> Dialect | None:
        """Return the SQL of the statements, or None if there are none, in a sandbox."""

    def put_within(self, jobs: Sequence[NewJob]) -> SqlGenerator[list[Placed]]:
        """Do what `put` does, by statements that run in a transaction of the caller.

        The statements neither commit nor roll back, and hold no lock longer than until the end of
        that transaction. After a rollback no job was stored; until the commit no other connection
        sees a job. No worker is woken up: it finds the jobs at its next poll."""


class TransactionVerbs(TransactionPlace, Protocol):
    """The operations of an engine with `Capability.TRANSACTIONAL`: jobs are stored in its own
    tables, and end there, in a transaction of the caller."""

    @property
    def dialect(self) -> Dialect: ...

    def finish_within(self, outcomes: Sequence[Outcome]) -> SqlGenerator[list[Verdict]]:
        """Do what `finish` does, by statements that run in a transaction of the caller.

        A verdict other than OK means that the claim is over: the caller must roll back. From the
        first statement on, the jobs are locked, so the caller commits at once. The server ends the
        transaction of a caller that falls silent before its commit."""

    def find_verdicts(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Tell which of these ends were committed, after the reply to a commit was lost. Change
        nothing.

        Waits until no transaction has locked the jobs. REPEATED: the end was committed. OK: the end
        was not committed, and the claim is current. STALE: the end was not committed, and the claim
        is over."""

    def announce_ends(self, ids: Sequence[str]) -> None:
        """Wake the callers that wait for these jobs, after the commit that ended the jobs. Without
        this call they find the end by polling."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A block that is a transaction, for the code of a task, on a connection to the database of
        the jobs: its end commits, and an error rolls back. Errors are those of the driver."""

    def atransaction(self) -> AbstractAsyncContextManager[Any]:
        """The same for a task that is a coroutine."""
