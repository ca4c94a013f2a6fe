"""The statements of a transaction, in the pipeline mode of libpq: those of one round trip are sent
together.

psycopg sends each statement of its own pipeline when it is given, and looks for replies each time.
Here statements stay in the buffer of libpq until the sync. An enqueue is one packet: a process that
is suspended has sent all of its transaction or nothing. (libpq sends more than 8 kB in parts:
`suspended_calls` ends what is left of a half-sent one.)

A statement is prepared at its first use on a connection, once for each combination of types: NULL
has none.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import psycopg
from psycopg import errors
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format

from windlass.engine.sql.statements import Row
from windlass.engine.wakeup import await_socket

if TYPE_CHECKING:
    from psycopg import abc
    from psycopg.pq.abc import PGresult

    from windlass.engine.postgres.connections import DeadlineConnection

#: A statement, and the types of its values.
StatementKey = tuple[bytes, tuple[int, ...]]

_ROWS: Final = ExecStatus.TUPLES_OK
_SUCCESS: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
#: The server forgets the prepared statements of a connection when it has this number of them.
MOST_PREPARED: Final = 500


class Awaited(Protocol):
    """Something that was sent, and has a result."""

    def take(self, result: PGresult) -> None:
        """Take a result that is no error."""


class Reply:
    """The reply to a statement. It has come after the next sync."""

    __slots__ = ("_adapter", "_result")

    def __init__(self, adapter: abc.Transformer) -> None:
        self._adapter = adapter
        self._result: PGresult | None = None

    @property
    def has_come(self) -> bool:
        return self._result is not None

    @property
    def changed(self) -> int:
        """The number of rows that the statement has changed."""
        return self._arrived().command_tuples or 0

    def rows(self) -> list[Row]:
        """Return the rows; none for a statement that returns no rows."""
        result = self._arrived()
        if result.status != _ROWS:
            return []
        self._adapter.set_pgresult(result)
        return self._adapter.load_rows(0, result.ntuples, tuple)

    def take(self, result: PGresult) -> None:
        self._result = result

    def _arrived(self) -> PGresult:
        if self._result is None:
            raise RuntimeError("the reply is read before the sync, or its statement has failed")
        return self._result


class _Preparation:
    """A statement that the server is asked to prepare."""

    def __init__(self, prepared: dict[StatementKey, bytes], key: StatementKey, name: bytes) -> None:
        self._prepared = prepared
        self._key = key
        self._name = name

    def take(self, result: PGresult) -> None:
        self._prepared[self._key] = self._name


class Pipeline:
    """Statements on a connection that no other thread uses meanwhile."""

    def __init__(self, connection: DeadlineConnection) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._adapter: abc.Transformer = Transformer(connection)
        self._awaited: deque[Awaited] = deque()
        self._preparing: dict[StatementKey, bytes] = {}  # since the last sync
        self._error: psycopg.Error | None = None  # the first one since the last sync

    def send(self, text: bytes, values: Sequence[Any] = (), *, prepare: bool) -> Reply:
        """Leave a statement to be sent with the next sync."""
        adapter = self._adapter
        packed = adapter.dump_sequence(values, [PyFormat.AUTO] * len(values))
        types, formats = tuple(adapter.types or ()), adapter.formats
        try:
            if prepare:
                name = self._prepare((text, types))
                self._pgconn.send_query_prepared(name, packed, formats, Format.BINARY)
            else:
                marked = self.connection.mark + text
                self._pgconn.send_query_params(marked, packed, types, formats, Format.BINARY)
        except psycopg.OperationalError as lost:
            self._raise_reason(lost)
        reply = Reply(adapter)
        self._awaited.append(reply)
        return reply

    def _prepare(self, key: StatementKey) -> bytes:
        """Return the name of a prepared statement."""
        prepared = self.connection.prepared
        name = prepared.get(key) or self._preparing.get(key)
        if name is None:
            if len(prepared) + len(self._preparing) >= MOST_PREPARED:
                prepared = self._forget_prepared()
            name = self._preparing[key] = b"windlass_%d" % next(self.connection.numbers)
            text, types = key
            self._pgconn.send_prepare(name, self.connection.mark + text, types)
            self._awaited.append(_Preparation(prepared, key, name))
        return name

    def _forget_prepared(self) -> dict[StatementKey, bytes]:
        """Let the server forget what it has prepared; return the new, empty table of names."""
        self._pgconn.send_query_params(b"DEALLOCATE ALL", [])
        self._awaited.append(Reply(self._adapter))
        self._preparing = {}
        # Preparations that were sent before note their names in the old table.
        self.connection.prepared = {}
        return self.connection.prepared

    def sync(self) -> None:
        """Send the statements, and wait for their replies. Raises the first error of the server."""
        self.connection.is_used = True
        self._preparing = {}
        try:
            self._pgconn.pipeline_sync()
            self._flush()
            self._read_replies()
        except psycopg.OperationalError as lost:
            self._raise_reason(lost)
        except BaseException:
            self.abandon()  # not all replies were read
            raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Close the connection. The server rolls back what it did not commit."""
        self._pgconn.finish()

    def end(self) -> None:
        """Send what was not sent yet, and leave pipeline mode."""
        try:
            if self._awaited and self._is_open:
                self.sync()
        finally:
            if self._is_open:
                self._leave()

    @property
    def _is_open(self) -> bool:
        return self._pgconn.status == ConnStatus.OK

    def _leave(self) -> None:
        try:
            self._pgconn.exit_pipeline_mode()
        except psycopg.Error:  # replies are on their way that nothing waits for
            self.abandon()
            raise

    # ------------------------------------------------------------------------------------ replies

    def _flush(self) -> None:
        # While the socket takes no more, the server may wait until its replies are read.
        while self._pgconn.flush():
            if self._wait(to_write=True):
                self._pgconn.consume_input()
                while self._awaited and not self._pgconn.is_busy():
                    self._read_reply()

    def _read_replies(self) -> None:
        """Read the replies up to the sync."""
        while self._awaited:
            self._read_reply()
        if self._next_result().status != ExecStatus.PIPELINE_SYNC:
            raise psycopg.OperationalError("a reply came that nothing waits for")

    def _read_reply(self) -> None:
        result = self._next_result()
        awaited = self._awaited.popleft()
        if result.status in _SUCCESS:
            awaited.take(result)
        elif self._error is None:  # after it, the server answers that it ignores the others
            self._error = errors.error_from_result(result)
        self._await_input()
        self._pgconn.get_result()  # None, which ends the results of a statement

    def _next_result(self) -> PGresult:
        self._await_input()
        result = self._pgconn.get_result()
        if result is None:
            raise psycopg.OperationalError("the connection is lost")
        return result

    def _await_input(self) -> None:
        while self._pgconn.is_busy():
            self._wait()
            self._pgconn.consume_input()

    def _wait(self, *, to_write: bool = False) -> bool:
        """Wait for the server until the deadline of the call; return whether it has sent more."""
        left_s = self.connection.deadline - time.monotonic()
        if left_s > 0:
            is_ready, is_readable = await_socket(self._pgconn.socket, left_s, to_write=to_write)
            if is_ready:
                return is_readable
        raise TimeoutError("no answer in time")

    def _raise_reason(self, lost: psycopg.OperationalError) -> NoReturn:
        """Raise the first error of the server, perhaps why it has closed the connection."""
        reason = self._error
        if reason is None and not self._is_open:
            reason = self._find_reason()
        self.abandon()
        if reason is None:
            raise lost
        raise reason from lost

    def _find_reason(self) -> psycopg.Error | None:
        """Read the reply to the current statement, which may have come before the end."""
        result = self._pgconn.get_result()
        if result is None or result.status in _SUCCESS:
            return None
        error = errors.error_from_result(result)
        return None if error.sqlstate is None else error


@contextmanager
def pipelined(connection: DeadlineConnection) -> Iterator[Pipeline]:
    """Use pipeline mode. What was sent at the end of the block has its replies after it."""
    pipeline = Pipeline(connection)
    connection.pgconn.enter_pipeline_mode()
    try:
        yield pipeline
    except Exception:
        with suppress(psycopg.Error, TimeoutError):  # the error of the block counts
            pipeline.end()
        raise
    except BaseException:  # an interrupt, perhaps between a statement and its entry here
        pipeline.abandon()
        raise
    pipeline.end()
