"""The connections to one database file: one writer, one reader, group commit, and a lock file.

SQLite admits one writer at a time, and lets the others sleep and retry, which ruins latency. So the
writers of all processes queue on a lock file instead, where the kernel wakes the next one.
`Database.write` runs in the caller's thread when no other thread is writing. Otherwise the writer
thread takes the work and commits all pending work at once. The caller waits with a deadline, so
that a stopped process that holds the lock causes an error in other processes and never a hang.

SQLite keeps the state of its locks in the memory of the process, so a connection must not survive a
fork: the child would rely on locks that it does not have. Before a fork, connections are closed
while no transaction is open; parent and child open new ones as they need them.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import apsw

from windlass.engine import fork_safety
from windlass.engine.sqlite.files import FileLocation
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge

if sys.platform == "win32":  # only SQLite's own locks

    def _flock(_descriptor: int, _wait: bool) -> bool:
        return True

    def _unlock(_descriptor: int) -> None:
        return

else:
    import fcntl

    def _flock(descriptor: int, wait: bool) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

DURABILITY: Final = {"full": "FULL", "normal": "NORMAL"}
#: How often to check whether the file is still the same one, in seconds.
FILE_LOOK_S: Final = 1.0
#: The largest value that SQLite stores, unless it was built otherwise.
MOST_BYTES: Final = 1_000_000_000
#: The number of cached prepared statements. The cache is a ring: each execution takes the next
#: place, so that a batch evicts all other statements unless the cache is larger than the batch.
STATEMENT_CACHE: Final = 500
#: The first commit after a checkpoint truncates the write-ahead log to this size, in bytes. SQLite
#: checkpoints at about 4 MB. So only a log that grew by a large transaction or a long read is
#: truncated, and SQLite does not free disk space that it needs again soon.
LOG_BYTES: Final = 16 * 1024 * 1024
#: How long a fork waits for an open transaction, in seconds.
FORK_WAIT_S: Final = 5.0


class _Request:
    """A function that waits to run in the writer thread."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.done = threading.Event()
        self.abandoned = False
        self.value: Any = None
        self.error: BaseException | None = None


class Database:
    """One SQLite database, in a file, or in memory if `place` is None."""

    _write_connection: apsw.Connection | None
    _read_connection: apsw.Connection | None
    _lock_fd: int | None
    _requests: list[_Request]
    _thread: threading.Thread | None
    _is_forking: bool
    _held_for_fork: bool
    _generation: int  # number of the current writer thread
    _file: tuple[int, int] | None  # the identity of the file that the connections use
    _next_look: float

    def __init__(self, place: FileLocation | None, durability: str, timeout_ms: int) -> None:
        self.place = place
        self._durability = DURABILITY[durability]
        self._timeout_ms = timeout_ms
        self.on_new_file: Callable[[], None] = lambda: None
        self.files = 0  # how often another file has replaced the file
        self.known_file = -1  # the value of `files` for which the tables are known to exist
        self._reset()
        fork_safety.watch(self)

    @property
    def location(self) -> str:
        return str(self.place.path) if self.place else "memory"

    def write(self, work: Work[T]) -> T:
        """Run `work` inside a write transaction and commit."""
        self._look_at_file()
        if not (self._requests or self._is_forking) and self._writing.acquire(blocking=False):
            try:
                with self._file_lock(wait=False) as is_locked:
                    if is_locked:
                        return self._commit(work)
            finally:
                self._writing.release()
        return self._hand_over(work)

    def read(self, work: Work[T]) -> T:
        """Run `work` on a snapshot that includes all earlier commits."""
        self._look_at_file()
        if self.place is None:
            with self._writing:
                return self._mapped(lambda: work(self._writer()))
        with self._reading:
            return self._mapped(lambda: self._on_snapshot(work))

    def _on_snapshot(self, work: Work[T]) -> T:
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            return work(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connections; the next call opens new ones. A database in memory is lost."""
        self._stop_thread()
        if not self._writing.acquire(timeout=self._timeout_ms / 1000):
            return  # the writer thread waits for a lock that another process holds
        try:
            with self._reading:
                self._close_connections()
                self._file = None  # do not report a file replaced while closed
        finally:
            self._writing.release()

    def _close_connections(self) -> None:
        for connection in (self._write_connection, self._read_connection):
            if connection is not None:
                connection.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
        self._write_connection = self._read_connection = None
        self._lock_fd = None

    # ------------------------------------------------------------------------------ the writer

    def _commit(self, work: Work[T]) -> T:
        def transaction() -> T:
            connection = self._writer()
            try:
                connection.execute("BEGIN IMMEDIATE")
                value = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return value

        return self._mapped(transaction)

    def _hand_over(self, work: Work[T]) -> T:
        request = _Request(work)
        with self._more:
            self._requests.append(request)
            self._start_thread()
            self._more.notify()
        if not request.done.wait(self._timeout_ms / 1000):
            has_begun = self._abandon(request)
            raise EngineUnavailable(
                f"The SQLite database {self.location} could not be written to within "
                f"{self._timeout_ms / 1000:g} s: another process holds its lock. "
                "Look for a stopped or very slow process that uses the same file.",
                location=self.location,
                seconds=self._timeout_ms / 1000,
                unsent=not has_begun,
            )
        if request.error is not None:
            raise request.error
        value: T = request.value
        return value

    def _abandon(self, request: _Request) -> bool:
        """Withdraw the request of a caller that timed out; return whether its work has begun."""
        with self._more:
            request.abandoned = True
            if request not in self._requests:
                return True
            self._requests.remove(request)
            return False

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write_for_others,
                args=(self._generation,),
                name="windlass-sqlite-writer",
                daemon=True,
            )
            self._thread.start()

    def _stop_thread(self) -> None:
        """Let the writer thread finish its requests and end."""
        with self._more:
            thread, self._thread = self._thread, None
            self._generation += 1
            self._more.notify_all()
        if thread is not None:
            thread.join(self._timeout_ms / 1000)  # the thread may wait forever for the lock

    def _write_for_others(self, generation: int) -> None:
        while self._await_requests(generation):
            while self._is_forking:
                time.sleep(0.001)  # the lock is not fair: let the forking thread acquire it
            with self._writing:
                self._serve_all()

    def _await_requests(self, generation: int) -> bool:
        """Wait for requests; return False when a newer writer thread replaces this thread."""
        with self._more:
            while not self._requests and generation == self._generation:
                self._more.wait()
            return bool(self._requests)

    def _serve_all(self) -> None:
        """Serve all requests that came before the lock was acquired. No error ends the thread."""
        requests: list[_Request] = []
        try:
            with self._file_lock(wait=True):
                requests = self._take_requests()
                if requests:
                    self._commit(lambda connection: self._serve(connection, requests))
        except Exception as error:  # noqa: BLE001  # handed to every caller
            for request in requests or self._take_requests():
                request.error = copy.copy(error)
                request.done.set()
        for request in requests:
            request.done.set()

    def _take_requests(self) -> list[_Request]:
        with self._more:
            taken, self._requests = self._requests, []
        return [request for request in taken if not request.abandoned]

    def _serve(self, connection: apsw.Connection, requests: list[_Request]) -> None:
        """Run requests. A failing request is rolled back alone, unless SQLite rolls back all."""
        for request in requests:
            connection.execute("SAVEPOINT request")
            try:
                request.value = request.work(connection)
                connection.execute("RELEASE request")
            except Exception as error:
                if not connection.in_transaction:
                    raise
                connection.execute("ROLLBACK TO request")
                connection.execute("RELEASE request")
                request.error = self._to_engine_error(error)

    # ------------------------------------------------------------------- connections and locks

    def _look_at_file(self) -> None:
        """Check once a second whether the file was removed or replaced: the connections would
        continue on a file that no other process can see. The call that detects this raises an
        error; the next call uses the file that exists by then, or creates one."""
        now = time.monotonic()
        if self.place is None or now < self._next_look:
            return
        self._next_look = now + FILE_LOOK_S
        if self._file in (None, self.place.identity()):
            return
        if self._writing.acquire(blocking=False):  # during a write, try again in a second
            try:
                with self._reading:
                    self._close_connections()
                    self._file = None
                    self.files += 1
            finally:
                self._writing.release()
            self.on_new_file()
            raise self._gone()

    def _gone(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"The file of the SQLite database {self.location} was removed or replaced while it was "
            "in use. Its jobs cannot be reached any more; the next call uses the file that exists "
            "by then, or creates an empty one. To get the jobs back, stop all producers and "
            "workers, and restore a backup.",
            location=self.location,
            unsent=True,
        )

    def _writer(self) -> apsw.Connection:
        if self._write_connection is None:
            connection = self._connect()
            if self.place is not None and _is_empty(connection):
                # Settings stored in the file: set once, and never on a file in use.
                connection.pragma("journal_mode", "wal")
            self._write_connection = connection
        return self._write_connection

    def _reader(self) -> apsw.Connection:
        if self._read_connection is None:
            self._read_connection = self._connect()
        return self._read_connection

    def _connect(self) -> apsw.Connection:
        if self.place is not None:
            self.place.prepare()
            self._file = self._file or self.place.identity()
        connection = apsw.Connection(
            str(self.place.path) if self.place else ":memory:", statementcachesize=STATEMENT_CACHE
        )
        connection.set_busy_timeout(self._timeout_ms)
        connection.execute(f"PRAGMA synchronous = {self._durability}")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync does not reach the disk
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        # Plan statements once: otherwise SQLite plans some statements on every run, by their
        # values.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    @contextmanager
    def _file_lock(self, *, wait: bool) -> Iterator[bool]:
        """Hold the lock file. Without `wait`, yield whether the lock was free."""
        if self.place is None:
            yield True
            return
        if self._lock_fd is None:
            self._lock_fd = self._open_lock_file(self.place)
        descriptor = self._lock_fd
        is_locked = _flock(descriptor, wait)
        try:
            yield is_locked
        finally:
            if is_locked:
                _unlock(descriptor)

    def _open_lock_file(self, place: FileLocation) -> int:
        place.prepare()
        try:
            return os.open(place.lock_path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise EngineError(
                f"The lock file {place.lock_path} cannot be opened ({error.strerror}). "
                "The folder must exist and belong to the user that runs windlass."
            ) from error

    def _mapped(self, call: Callable[[], T]) -> T:
        began_at = time.monotonic()
        try:
            return call()
        except (apsw.BusyError, apsw.LockedError) as error:
            raise self._busy(error, time.monotonic() - began_at) from error
        except apsw.Error as error:
            raise self._to_engine_error(error) from error

    def _busy(self, error: apsw.Error, seconds: float) -> EngineUnavailable:
        """Make the error for a timeout; SQLite has rolled back the transaction."""
        return EngineUnavailable(
            f"The SQLite database {self.location} could not be used within {seconds:.1f} s "
            f"({error}): another program holds a lock on the file. End it, or wait and repeat; "
            f"`lsof {self.location}` shows which processes have it open.",
            location=self.location,
            seconds=round(seconds, 3),
            unsent=True,
        )

    def _to_engine_error(self, error: Exception) -> Exception:
        if isinstance(error, apsw.SQLError) and self._may_have_no_tables():
            return self._gone()
        return _map_error(error, self.location)

    def _may_have_no_tables(self) -> bool:
        """Return whether the file may be new: another thread or a connection met it first."""
        if 0 < self.files != self.known_file:
            return True
        return self.place is not None and self._file not in (None, self.place.identity())

    # -------------------------------------------------------------------------------- forking

    def _reset(self) -> None:
        self._writing = threading.Lock()  # held while this process writes
        self._reading = threading.Lock()
        self._more = threading.Condition()
        self._requests = []
        self._thread = None
        self._write_connection = None
        self._read_connection = None
        self._lock_fd = None
        self._is_forking = False
        self._held_for_fork = False
        self._generation = 0
        self._file = None
        self._next_look = 0.0

    def before_fork(self) -> None:
        self._is_forking = True
        self._held_for_fork = self._writing.acquire(timeout=FORK_WAIT_S)
        self._reading.acquire()  # reads never wait for other processes
        if self._held_for_fork and self.place is not None:
            self._close_connections()

    def after_fork_in_parent(self) -> None:
        self._is_forking = False
        self._reading.release()
        if self._held_for_fork:
            self._held_for_fork = False
            self._writing.release()

    def after_fork_in_child(self) -> None:
        memory = self._write_connection if self.place is None else None
        self._reset()
        self._write_connection = memory  # an independent copy of the parent's database


def _is_empty(connection: apsw.Connection) -> bool:
    return not list(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))


def _map_error(error: Exception, location: str) -> Exception:
    """Convert SQLite's errors to errors of windlass; return other errors unchanged."""
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return EngineError(
            f"{location} is not a healthy SQLite database ({error}). "
            "Give the path of a windlass database, or restore this one from a backup."
        )
    if isinstance(error, apsw.TooBigError):
        return PayloadTooLarge(
            f"The SQLite database {location} cannot store a call or result of this size ({error}), "
            f"and never will: its limit is {MOST_BYTES:,} bytes. Store the value elsewhere and "
            "pass its key, and set max_payload below the limit.",
            limit=MOST_BYTES,
        )
    for kinds, advice in _TRANSIENT:
        if isinstance(error, kinds):
            return EngineUnavailable(
                f"The SQLite database {location} failed ({error}). {advice}", location=location
            )
    return EngineError(
        f"The SQLite database {location} refused a statement ({error}). "
        "This is a bug in windlass or a damaged file: run `windlass check`."
    )


#: Transient failures, with the advice for each.
_TRANSIENT: Final[tuple[tuple[tuple[type[apsw.Error], ...], str], ...]] = (
    ((apsw.FullError,), "The disk is full: make room and repeat."),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError),
        "Check that the file and its folder belong to the user that runs windlass.",
    ),
    (
        (apsw.IOError, apsw.NoMemError, apsw.InterruptError),
        "Check the disk and the system's log, then repeat.",
    ),
)
