"""The connections to one server: a connection pool, deadlines, and retries after a failure.

1. `Connections.run` calls a function with a connection of the pool. Each call of the contract may
   be repeated. So after a broken connection, a deadlock or a restart of the server, `run` repeats
   the call, on a new connection if need be, until its deadline.
2. `DeadlineConnection` gives up a call at its deadline, also when the server is frozen.
3. After a fork, the child makes its own connections and never touches those of its parent.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from windlass.engine import fork_safety
from windlass.engine.postgres.blob_arrays import ListWriter
from windlass.engine.postgres.pipeline import StatementKey
from windlass.engine.postgres.url import PostgresAddress, unknown_option
from windlass.engine.sql.statements import Row
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge

T = TypeVar("T")

#: How long to wait before a repeat: at first, and at most, in seconds.
_FIRST_PAUSE_S: Final = 0.02
_MOST_PAUSE_S: Final = 0.5
#: How often a call that waits for a connection counts those in use, in seconds. Nothing tells it
#: of one that was lost in an interrupt.
_RECOUNT_S: Final = 0.5
#: The part of the time of a call that a statement may take. So the server ends the statement, and
#: says why, before the call itself runs out of time.
_STATEMENT_SHARE: Final = 0.9
#: The server ends the transaction of a silent client after this time, which frees its locks.
IDLE_MS: Final = 20_000
#: Probes on a connection without traffic, unless the url has other values. They keep a firewall
#: from forgetting the connection, and find a lost server after a minute; libpq waits for two hours.
KEEPALIVES: Final = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
#: The same from the other side: the server ends the transaction of a machine that was lost.
SERVER_PROBES: Final = tuple(f"SET tcp_{name} = {value}" for name, value in KEEPALIVES.items())
#: Plans that the planner must not choose. Every statement here searches by an index. But plans are
#: kept: a plan that was made for a small table reads the whole table when it has grown. For
#: the same reason statements join by `= ANY(ARRAY[...])`, and hide other conditions in an
#: expression: for an empty table all indexes cost the same, and the wrong one would be kept.
PLANNER: Final = (
    "enable_seqscan",
    "enable_bitmapscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_material",
    "jit",
)
#: SQLSTATE -> advice for errors that pass: a repeat may succeed.
_TRANSIENT: Final = {
    "25006": "The server is read-only: it is a standby, or was set to be.",
    "25P03": "This process was stopped for seconds in the middle of a transaction.",
    "40001": "Transactions on the server conflict.",
    "40P01": "Transactions on the server wait for each other.",
    "53100": "The disk of the server is full.",
    "53200": (
        "The server has no memory left; if it names locks, many enqueues with keys run at once: "
        "raise max_locks_per_transaction."
    ),
    "53300": "The server has no free connections: raise max_connections, or use a pooler.",
    "55P03": "Another transaction holds a lock for long.",
    "57014": (
        "A statement took too long. It may wait for an open transaction, such as one that has "
        "enqueued the same key."
    ),
    "57P01": "The server is shutting down, or this process was suspended in the middle of a call.",
    "57P02": "The server restarts after a crash.",
    "57P03": "The server is starting up.",
    "57P05": "The server ended an idle connection.",
}
#: Errors of a schema that was not made yet, or was removed, or has another format.
UNPREPARED: Final = (
    errors.UndefinedTable,
    errors.InvalidSchemaName,
    errors.UndefinedColumn,
    errors.DivisionByZero,  # of the statement `begin`
)
#: Classes of SQLSTATE that pass: connection exceptions.
_TRANSIENT_CLASSES: Final = ("08",)


def call_mark(schema: str, timeout_ms: int) -> bytes:
    """What the statements of our own transactions begin with. Others see it in the activity of the
    server, also behind a pooler. Statements in the transaction of a caller have no mark. The time
    is how long a call may take: other processes may allow calls less time."""
    return f"/* windlass {schema} {timeout_ms} ms */ ".encode()


def mark_prefix(schema: str) -> str:
    """What the marks of all processes that use a schema begin with."""
    return f"/* windlass {schema} "


class DeadlineConnection(psycopg.Connection[Row]):
    """A connection whose calls end at an instant of the monotonic clock."""

    deadline: float = float("inf")
    is_used = False  # whether anything was sent since it was taken
    place: _Place | None = None  # while it is in use
    mark = b""  # before the text of each statement

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.prepared: dict[StatementKey, bytes] = {}  # statement -> its name on the server
        self.numbers = count(1)  # of these names

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        self.is_used = True
        return super().wait(_until(gen, self), *args, **options)


def _until(gen: Generator[Any, Any, T], connection: DeadlineConnection) -> Generator[Any, Any, T]:
    """Pass on the waits of a generator of the driver, and give up at the deadline. The driver
    resumes this generator several times a second, also without an answer of the server."""
    try:
        state = next(gen)
        while True:
            ready = yield state
            if time.monotonic() >= connection.deadline:
                _abandon(gen, connection)
                raise TimeoutError("no answer in time")
            state = gen.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the value of the driver's own generator


def _abandon(gen: Generator[Any, Any, T], connection: DeadlineConnection) -> None:
    """End the driver's work on a connection, which cannot be used any more."""
    connection.pgconn.finish()
    with suppress(psycopg.Error, RuntimeError):
        gen.close()


class _PoolTimeoutError(TimeoutError):
    """No connection became free in time."""


class _PoolWaiter(threading.Condition):
    """A call that waits for a connection."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(lock)
        self.thread = threading.get_ident()


class _Place:
    """The place of a connection in the pool while it is in use. It is free when nothing refers to
    it any more: an interrupt may come between any two steps of a call."""


class Connections:
    """A pool of connections for one engine object."""

    def __init__(self, address: PostgresAddress, *, most: int, timeout_ms: int) -> None:
        self.address = address
        self._most = most
        self._timeout_s = timeout_ms / 1000
        self.mark = call_mark(address.schema, timeout_ms)
        self._reset()
        fork_safety.watch(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a signal handler may call while its thread has it
        self._idle: list[DeadlineConnection] = []
        self._places: WeakSet[_Place] = WeakSet()  # of the connections in use
        self._waiting: deque[_PoolWaiter] = deque()  # the next one first

    @property
    def location(self) -> str:
        return f"postgresql {self.address.with_schema}"

    # ------------------------------------------------------------------------------------ calls

    def run(self, work: Callable[[DeadlineConnection], T], *, most_s: float = float("inf")) -> T:
        """Call a function with a connection, and repeat it after errors that pass."""
        began = time.monotonic()
        deadline = began + min(self._timeout_s, most_s)
        pause_s, was_sent = _FIRST_PAUSE_S, False
        cause: Exception | None = None  # the last one that the server named
        while True:
            connection = None
            try:
                connection = self._take(deadline)
                connection.deadline, connection.is_used = deadline, False
                value = work(connection)
            except (psycopg.Error, TimeoutError) as error:
                is_used = connection is not None and connection.is_used
                was_sent = was_sent or (is_used and not _is_rolled_back(error))
                self._discard(connection)
                self._raise_if_final(error)
                if cause is None or getattr(error, "sqlstate", None) is not None:
                    cause = error
                if time.monotonic() + pause_s >= deadline:
                    raise self._unavailable(cause, began, unsent=not was_sent) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
            except BaseException:
                self._give_back(connection)
                raise
            else:
                self._give_back(connection)
                return value

    def run_apart(self, work: Callable[[DeadlineConnection], object], most_s: float) -> None:
        """Call a function once with a connection that is not of the pool: calls that are to be
        ended may use all of those."""
        deadline = time.monotonic() + most_s
        connection = self.connect(self.address.conninfo, deadline)
        try:
            work(connection)
        finally:
            connection.close()

    @property
    def is_busy(self) -> bool:
        """Whether a call would wait for a connection."""
        return bool(self._waiting) or not self._is_free()

    def _take(self, deadline: float) -> DeadlineConnection:
        with self._lock:
            if self._waiting or not self._is_free():
                self._await_turn(deadline)
            place = _Place()
            self._places.add(place)
            connection = self._idle.pop() if self._idle else None
            self._wake_next()
        try:
            if connection is None:
                connection = self.connect(self.address.conninfo, deadline)
        except BaseException:
            self._free(place)
            raise
        connection.place = place
        return connection

    def _free(self, place: _Place | None) -> None:
        with self._lock:
            if place is not None:
                self._places.discard(place)
            self._wake_next()

    @property
    def _taken(self) -> int:
        """The number of connections in use."""
        return len(self._places)

    def _is_free(self) -> bool:
        return self._taken < self._most

    def _await_turn(self, deadline: float) -> None:
        """Wait for a connection in FIFO order. Without the order, a thread that has given its
        connection back would take it again before a thread that waits wakes up. A signal handler
        goes before the call that it has interrupted, which continues only after the handler."""
        waiter = _PoolWaiter(self._lock)
        threads = [other.thread for other in self._waiting]
        at = threads.index(waiter.thread) if waiter.thread in threads else len(threads)
        self._waiting.insert(at, waiter)
        try:
            while self._waiting[0] is not waiter or not self._is_free():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise _PoolTimeoutError(f"all {self._most} connections are busy")
                waiter.wait(min(left_s, _RECOUNT_S))
        except BaseException:
            self._waiting.remove(waiter)
            self._wake_next()
            raise
        self._waiting.popleft()

    def _wake_next(self) -> None:
        if self._waiting and self._is_free():
            self._waiting[0].notify()

    def connect(self, conninfo: str, deadline: float) -> DeadlineConnection:
        """Make a connection for short statements."""
        left_s = max(1.0, deadline - time.monotonic())
        connection = DeadlineConnection.connect(
            self._conninfo(conninfo, max(2, round(left_s))),
            autocommit=True,
            prepare_threshold=None,  # `Pipeline` prepares statements
            cursor_factory=psycopg.RawCursor,
        )
        connection.deadline = deadline
        connection.mark = self.mark
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(list, ListWriter)
        try:
            if not self.address.is_pooled:
                for statement in [*self.settings("SET"), *SERVER_PROBES]:
                    connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _conninfo(self, conninfo: str, timeout_s: int) -> str:
        try:
            return make_conninfo(
                "",
                **{
                    **KEEPALIVES,
                    **conninfo_to_dict(conninfo),
                    "connect_timeout": str(timeout_s),
                    "fallback_application_name": "windlass",
                },
            )
        except psycopg.ProgrammingError as error:
            text = _first_line(str(error))
            option = _UNKNOWN_OPTION.search(text)
            raise EngineError(
                unknown_option(option[1])
                if option
                else f"The driver cannot read the url of {self.address} ({text}). Correct the url.",
                location=self.location,
            ) from error

    def settings(self, verb: str) -> list[str]:
        """The settings of a connection, or with `SET LOCAL` those of a transaction."""
        return [
            f"{verb} statement_timeout = {round(self._timeout_s * _STATEMENT_SHARE * 1000)}",
            f"{verb} idle_in_transaction_session_timeout = {IDLE_MS}",
            f"{verb} plan_cache_mode = force_generic_plan",
            f"{verb} default_transaction_isolation = 'read committed'",
            *(f"{verb} {name} = off" for name in PLANNER),
        ]

    def _give_back(self, connection: DeadlineConnection | None) -> None:
        if connection is None:
            return
        is_clean = (
            not connection.closed
            and connection.info.transaction_status == TransactionStatus.IDLE
            and connection.pgconn.pipeline_status == PipelineStatus.OFF  # an interrupt leaves it on
        )
        if not is_clean:
            self._discard(connection)
            return
        place, connection.place = connection.place, None
        with self._lock:
            self._idle.append(connection)
            self._free(place)

    def _discard(self, connection: DeadlineConnection | None) -> None:
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
            place, connection.place = connection.place, None
            self._free(place)

    def __del__(self) -> None:
        """Close the connections of an engine that was dropped without a shutdown."""
        for connection in getattr(self, "_idle", ()):
            with suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(psycopg.Error):
                connection.close()

    # ----------------------------------------------------------------------------------- errors

    def _raise_if_final(self, error: Exception) -> None:
        """Raise an engine error for a failure that a repeat does not help."""
        if isinstance(error, TimeoutError) or not isinstance(error, psycopg.Error):
            return
        code = error.sqlstate
        if isinstance(error, UNPREPARED):
            raise error  # the tables must be made first, or have another format
        if code is None:
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                self._raise_if_refused(error)
                return
            raise self._refusal(error) from error
        if code in _TRANSIENT or code[:2] in _TRANSIENT_CLASSES:
            return
        if code == "54000":  # a limit of the server
            raise PayloadTooLarge(
                f"PostgreSQL cannot store a value of this size ({_first_line(str(error))}). Store "
                "large data elsewhere, and enqueue its key."
            ) from error
        raise self._refusal(error) from error

    def _raise_if_refused(self, error: psycopg.Error) -> None:
        """Raise an engine error for a refused login. The driver has no SQLSTATE for a failure to
        connect."""
        text = str(error)
        for words, advice in _REFUSALS.items():
            if words in text:
                raise EngineError(
                    f"The PostgreSQL server at {self.address} refused the connection "
                    f"({describe_failure(error)}). {advice}",
                    location=self.location,
                ) from error

    def _refusal(self, error: psycopg.Error) -> EngineError:
        text = _first_line(str(error))
        if error.sqlstate == "42501":
            return EngineError(
                f"The role may not do this on the PostgreSQL server at {self.address} ({text}). "
                "`windlass doctor` prints the GRANT statements that are missing; to change the "
                f"tables, run `windlass migrate` as the owner of the schema {self.address.schema}.",
                location=self.location,
            )
        if error.sqlstate in _OF_POOLERS and not self.address.is_pooled:
            return EngineError(
                f"A pooler gives each transaction at {self.address} another connection to the "
                f"server ({text}). Add pooler=transaction to the url.",
                location=self.location,
            )
        return EngineError(
            f"The PostgreSQL server at {self.address} refused a statement ({text}). This is a bug "
            "in windlass or damaged data: run `windlass check`.",
            location=self.location,
        )

    def _unavailable(self, cause: Exception, began: float, *, unsent: bool) -> EngineUnavailable:
        seconds = time.monotonic() - began
        code = _code_of(cause)
        advice = _TRANSIENT.get(code or "", "Check that it runs, and the host and port in the url.")
        if isinstance(cause, _PoolTimeoutError):
            advice = "Other calls of this process use all of them: see what these wait for."
        did = "did not answer" if code is None else "did no work"
        return EngineUnavailable(
            f"The PostgreSQL server at {self.address} {did} for {seconds:.1f} s "
            f"({describe_failure(cause)}). {advice}",
            location=self.location,
            seconds=round(seconds, 3),
            unsent=unsent,
        )

    # ------------------------------------------------------------------------------------ forks

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections alone: the driver closes only those of its own process."""
        self._inherited = self._idle
        self._reset()


#: The message of a server that refuses a login -> how to fix the cause.
_REFUSALS: Final = {
    "authentication failed": "Check the user and the password in the url, or PGPASSWORD.",
    "no password supplied": "Give the password in the url, in PGPASSWORD or in ~/.pgpass.",
    "does not exist": "Create it first (createdb, createuser), or correct the url.",
    "no such database": "Name it in the settings of the pooler, or correct the url.",
    "no such user": "Name it in the settings of the pooler, or correct the url.",
    "no pg_hba.conf entry": "Allow this host, user and database in pg_hba.conf.",
    "server does not support SSL": "Use sslmode=prefer, or switch TLS on at the server.",
    "certificate verify failed": "Check sslrootcert and sslmode in the url.",
    "invalid connection option": "Correct the options after the question mark of the url.",
    "invalid sslmode value": "Use disable, prefer, require, verify-ca or verify-full.",
    "invalid integer value": "Correct the number in the url.",
    "invalid port number": "Correct the port in the url.",
}
#: What the server says when it takes no connection now -> the SQLSTATE, which the driver does not
#: tell for a connection that was never made.
_DELAYS: Final = {
    "connection slots are reserved": "53300",
    "too many clients already": "53300",
    "too many connections": "53300",
    "no more connections allowed": "53300",  # of PgBouncer
    "is starting up": "57P03",
    "is shutting down": "57P01",
    "in recovery mode": "57P02",
    "out of shared memory": "53200",
}
#: SQLSTATEs of a pooler: a statement was prepared on another connection to the server.
_OF_POOLERS: Final = ("26000", "42P05")
_UNKNOWN_OPTION: Final = re.compile(r'invalid URI query parameter: "(.*)"')
#: What the driver puts before the words of the server, which our messages name already.
_PREFIX: Final = re.compile(
    r"connection (?:failed|is bad): (?:connection to server at .+? failed: )?(?:FATAL: +)?"
)


def _code_of(error: Exception) -> str | None:
    """The SQLSTATE of an error, or of the words with which a server takes no connection now."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate
    text = str(error)
    return next((code for words, code in _DELAYS.items() if words in text), None)


def _is_rolled_back(error: Exception) -> bool:
    """Whether the server has rolled back what was sent. An error that also ends the connection may
    come after a commit: from a server that shuts down while the commit waits for a standby. So may
    one of a pooler, which has lost the server."""
    if not isinstance(error, psycopg.Error) or (error.sqlstate or "")[:2] in _TRANSIENT_CLASSES:
        return False
    return error.diag.severity_nonlocalized == "ERROR"


def describe_failure(error: Exception) -> str:
    """One line of an error of the driver, without the address."""
    text = _first_line(str(error)) or type(error).__name__
    return _PREFIX.sub("", text, count=1) or text


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(".")
