"""The statements of a transaction, in the pipeline mode of libpq: those of one round trip are sent
together.

psycopg sends each statement of its own pipeline when it is given, and looks for replies each time.
Here statements stay in the buffer of libpq until the sync. An enqueue is one packet: a process that
is suspended has sent all of its transaction or nothing. (libpq sends more than 8 kB in parts:
`suspended_calls` ends what is left of a half-sent one.)

A statement is prepared at its first use on a connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

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
        return 0 if self._result is None else self._result.command_tuples or 0

    def rows(self) -> list[Row]:
        """Return the rows; none for a statement that returns no rows."""
        result = self._result
        if result is None or result.status != _ROWS:
            return []
        self._adapter.set_pgresult(result)
        return self._adapter.load_rows(0, result.ntuples, tuple)

    def take(self, result: PGresult) -> None:
        self._result = result


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
        self._server = connection.pgconn
        self._adapter: abc.Transformer = Transformer(connection)
        self._awaited: deque[Awaited] = deque()
        self._preparing: dict[StatementKey, bytes] = {}  # since the last sync

    def send(self, text: bytes, values: Sequence[Any] = (), *, prepare: bool) -> Reply:
        """Leave a statement to be sent with the next sync."""
        adapter = self._adapter
        packed = adapter.dump_sequence(values, [PyFormat.AUTO] * len(values))
        types, formats = tuple(adapter.types or ()), adapter.formats
        if prepare:
            name = self._prepare((text, types))
            self._server.send_query_prepared(name, packed, formats, Format.BINARY)
        else:
            marked = self.connection.mark + text
            self._server.send_query_params(marked, packed, types, formats, Format.BINARY)
        reply = Reply(adapter)
        self._awaited.append(reply)
        return reply

    def _prepare(self, key: StatementKey) -> bytes:
        """Return the name of a prepared statement."""
        prepared = self.connection.prepared
        name = prepared.get(key) or self._preparing.get(key)
        if name is None:
            name = self._preparing[key] = b"windlass_%d" % next(self.connection.numbers)
            text, types = key
            self._server.send_prepare(name, self.connection.mark + text, types)
            self._awaited.append(_Preparation(prepared, key, name))
        return name

    def sync(self) -> None:
        """Send the statements, and wait for their replies. Raises the first error of the server."""
        self.connection.is_used = True
        self._preparing = {}
        try:
            self._server.pipeline_sync()
            self._flush()
            error = self._read_replies()
        except BaseException:
            self.abandon()  # not all replies were read
            raise
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Close the connection. The server rolls back what it did not commit."""
        self._awaited.clear()
        self._server.finish()

    def end(self) -> None:
        """Send what was not sent yet, and leave pipeline mode."""
        if self._server.status != ConnStatus.OK:
            return
        if self._awaited:
            self.sync()
        self._server.exit_pipeline_mode()

    # ------------------------------------------------------------------------------------ replies

    def _flush(self) -> None:
        while self._server.flush():  # the socket takes no more: the server may wait until we read
            if self._wait(to_write=True):
                self._server.consume_input()

    def _read_replies(self) -> psycopg.Error | None:
        """Read the replies up to the sync; return the first error."""
        first: psycopg.Error | None = None
        try:
            while self._awaited:
                result = self._next_result()
                awaited = self._awaited.popleft()
                if result.status in _SUCCESS:
                    awaited.take(result)
                elif first is None:  # after it, the server answers that it ignores the others
                    first = self._error_of(result)
                self._end_reply()
            self._next_result()  # of the sync
        except psycopg.OperationalError as lost:
            if first is None:
                raise
            raise first from lost  # why the server has closed the connection
        return first

    def _next_result(self) -> PGresult:
        self._await_input()
        result = self._server.get_result()
        if result is None:
            raise psycopg.OperationalError("the connection is lost")
        return result

    def _end_reply(self) -> None:
        """Read the mark behind the result of a statement."""
        self._await_input()
        self._server.get_result()

    def _await_input(self) -> None:
        while self._server.is_busy():
            self._wait()
            self._server.consume_input()

    def _wait(self, *, to_write: bool = False) -> bool:
        """Wait for the server until the deadline of the call; return whether it has sent more."""
        left_s = self.connection.deadline - time.monotonic()
        if left_s > 0:
            is_ready, is_readable = await_socket(self._server.socket, left_s, to_write=to_write)
            if is_ready:
                return is_readable
        raise TimeoutError("no answer in time")

    def _error_of(self, result: PGresult) -> psycopg.Error:
        error = errors.error_from_result(result)
        if error.sqlstate is None and self._server.status != ConnStatus.OK:
            return psycopg.OperationalError(str(error))
        return error


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
