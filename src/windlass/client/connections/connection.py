"""A connection of a caller, and the statements that run on it.

1. `CallerConnection` is what `using(connection=...)` keeps. `BlockingConnection` is for `enqueue`,
   `AsyncCallerConnection` for `aenqueue`; each library has a subclass of one or both.
2. Each use checks the connection first: its database, and that it is in a transaction or begins
   one. A connection that would commit each statement by itself is refused.
3. Errors of a driver pass unchanged, because the caller may retry its transaction by their type.
   Only those that a wrong set-up causes become `InvalidConnection`.
4. An enqueue that is interrupted between two statements aborts its transaction.
5. `transaction` is for jobs that end in a transaction of their task: a block of the library.

An enqueue commits, rolls back and closes no connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
)
from typing import Any, Final, TypeAlias, TypeVar

from windlass.engine.contract import Dialect, SqlGenerator, SqlRows, SqlStatement, TransactionPlace
from windlass.errors import InvalidConnection

R = TypeVar("R")

Execute: TypeAlias = Callable[[SqlStatement], SqlRows]
AwaitExecute: TypeAlias = Callable[[SqlStatement], Awaitable[SqlRows]]

_NAMES: Final = {Dialect.POSTGRESQL: "PostgreSQL", Dialect.SQLITE: "SQLite"}
#: The causes of an error that nest: the error of a library names the error of its driver.
_MOST_CAUSES: Final = 5
#: SQLSTATEs of PostgreSQL.
_IS_ABORTED: Final = "25P02"
_HAS_NO_TABLE: Final = frozenset({"42P01", "3F000"})
_HAS_NO_RIGHT: Final = "42501"
_IS_READ_ONLY: Final = "25006"
#: How the message of SQLite begins.
_NO_TABLE_ON_SQLITE: Final = "no such table: "
#: Makes a commit impossible, also for a caller that handles an interrupt inside its transaction. On
#: SQLite each statement of an enqueue is complete by itself, and this one has no effect.
_ABORT: Final = SqlStatement(
    "DO $$ BEGIN RAISE EXCEPTION 'an enqueue in this transaction was interrupted'; END $$", ()
)


class CallerConnection(ABC):
    """A connection of a caller. `kind` names its type in messages."""

    #: Whether a job ends in the transaction, instead of being enqueued.
    ends_job = False

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def a_kind(self) -> str:
        """The type with its article."""
        return f"{'an' if self.kind[0] in 'aAeEiIoO' else 'a'} {self.kind}"

    @abstractmethod
    def run(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        """Run statements for `place`, in the thread of the caller."""

    @abstractmethod
    async def arun(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        """Run statements for `place`, on the event loop of the caller."""

    @abstractmethod
    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        """A block that is a transaction on this connection, in the thread of the caller: its end
        commits, and an error rolls back. A connection in a transaction is refused."""

    @abstractmethod
    def atransaction(self, place: TransactionPlace) -> AbstractAsyncContextManager[Any]:
        """The same on the event loop of the caller."""

    def check_dialect(self, found: str, place: TransactionPlace) -> None:
        """Refuse a connection to another kind of database."""
        if place.dialect is not None and found != place.dialect:
            raise InvalidConnection(
                f"Expected a connection to {_NAMES[place.dialect]}, to the database of "
                f"{place.location}; found {self.a_kind} to {found}. Give a connection to that "
                "database, or name the other database in the setting outbox."
            )

    def refuse(self, found: str, advice: str) -> InvalidConnection:
        """The error for a connection in a wrong state."""
        purpose = "ends" if self.ends_job else "is stored"
        return InvalidConnection(
            f"Expected {self.a_kind} in a transaction, which the job {purpose} in; {found}. "
            f"{advice}"
        )

    def refuse_unbegun(self, found: str, advice: str) -> InvalidConnection:
        """The error for a connection outside of a transaction. `advice` is for an enqueue."""
        if self.ends_job:
            advice = (
                "The task ended the transaction itself, and what it wrote before is not undone. "
                "Leave COMMIT and ROLLBACK to the end of the block, or of the task."
            )
        return self.refuse(found, advice)

    def refuse_begun(self) -> InvalidConnection:
        """The error for a connection in a transaction that `transaction` must begin."""
        return InvalidConnection(
            f"Expected {self.a_kind} outside of a transaction, found one inside of one. "
            "ctx.transaction(...) begins the transaction itself, and commits it together with the "
            "job: begin none before, and commit what was written before."
        )


class BlockingConnection(CallerConnection):
    """A connection of a library that blocks."""

    @abstractmethod
    def begin(self, place: TransactionPlace) -> Execute:
        """Check the connection; return how a statement runs on it."""

    def run(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        with explained(self, place):
            return drive(statements, self.begin(place))

    def atransaction(self, place: TransactionPlace) -> AbstractAsyncContextManager[Any]:
        raise InvalidConnection(
            f"Expected an async connection, found {self.a_kind}. Write `with ctx.transaction(...)` "
            "in a task that is a plain function, or give the async connection of its library."
        )

    async def arun(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        raise InvalidConnection(
            f"Expected an async connection, found {self.a_kind}, which would block the event loop. "
            f"Give the async connection of its library; or call task.using(connection=...)."
            "enqueue(...) in the thread in which the connection is used."
        )


class AsyncCallerConnection(CallerConnection):
    """A connection of a library for coroutines."""

    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        raise InvalidConnection(
            f"Expected a blocking connection, found {self.a_kind}. In a coroutine, write `async "
            "with ctx.transaction(...)`."
        )

    def run(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        raise InvalidConnection(
            f"Expected a blocking connection, found {self.a_kind}. In a coroutine, write `await "
            "task.using(connection=...).aenqueue(...)`."
        )


class AwaitableConnection(AsyncCallerConnection):
    """A connection of a library for coroutines, whose statements are awaited."""

    @abstractmethod
    async def abegin(self, place: TransactionPlace) -> AwaitExecute:
        """Check the connection; return how a statement runs on it."""

    async def arun(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        with explained(self, place):
            return await adrive(statements, await self.abegin(place))


def plain_rows(rows: SqlRows) -> SqlRows:
    """Rows without the types of a driver: psycopg2 returns bytes as views."""
    return [tuple([_plain(value) for value in row]) for row in rows]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def drive(statements: SqlGenerator[R], execute: Execute) -> R:
    """Run statements in turn; return the result of the generator."""
    rows: SqlRows | None = None
    try:
        while True:
            try:
                statement = next(statements) if rows is None else statements.send(rows)
            except StopIteration as done:
                result: R = done.value
                return result
            rows = execute(statement)
    except BaseException as error:
        if _may_leave_half(rows, error):
            with suppress(Exception):
                execute(_ABORT)
        raise
    finally:
        statements.close()


async def adrive(statements: SqlGenerator[R], execute: AwaitExecute) -> R:
    """`drive`, for coroutines."""
    rows: SqlRows | None = None
    try:
        while True:
            try:
                statement = next(statements) if rows is None else statements.send(rows)
            except StopIteration as done:
                result: R = done.value
                return result
            rows = await execute(statement)
    except BaseException as error:
        if _may_leave_half(rows, error):
            with suppress(Exception):
                await execute(_ABORT)
        raise
    finally:
        statements.close()


def _may_leave_half(rows: SqlRows | None, error: BaseException) -> bool:
    """Whether an interrupt or a cancellation came between two statements. An error of the database
    aborts the transaction by itself."""
    return rows is not None and not isinstance(error, Exception)


@contextmanager
def explained(connection: CallerConnection, place: TransactionPlace) -> Iterator[None]:
    """Explain the errors that a wrong set-up causes."""
    try:
        yield
    except Exception as error:
        why = _explain(connection, place, error)
        if why is None:
            raise
        raise why from error


def _explain(
    connection: CallerConnection, place: TransactionPlace, error: Exception
) -> InvalidConnection | None:
    state = _sqlstate(error)
    if state == _IS_ABORTED:
        return connection.refuse(
            "found an aborted transaction: a statement failed before",
            "Roll back, or use a savepoint around statements that may fail.",
        )
    if state == _IS_READ_ONLY:
        return connection.refuse(
            "found a read-only one",
            "Begin it without READ ONLY, on the primary server.",
        )
    if state in _HAS_NO_TABLE or any(_NO_TABLE_ON_SQLITE in str(one) for one in _causes(error)):
        return InvalidConnection(
            f"Expected the tables of windlass in the database of this {connection.kind}, found "
            f"none ({_first_line(error)}). Run `windlass migrate` once for {place.location}, and "
            "check that the connection is to that database."
        )
    if state == _HAS_NO_RIGHT:
        return InvalidConnection(
            f"The role of this {connection.kind} may not store jobs in {place.location} "
            f"({_first_line(error)}). Grant it the rights that the guide on transactions lists."
        )
    return None


def _first_line(error: Exception) -> str:
    """The words of the database, without the statement that some drivers show below them."""
    return str(error).strip().partition("\n")[0]


def _sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of an error, or of the error of the driver that caused it."""
    for one in _causes(error):
        for name in ("sqlstate", "pgcode"):
            state = getattr(one, name, None)
            if isinstance(state, str):
                return state
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__
