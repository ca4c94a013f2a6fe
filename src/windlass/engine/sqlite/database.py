"""The connections to one database file: one writer, one reader, group commit, and a lock file.

SQLite lets one writer in at a time and makes the others sleep and try again, which ruins latency.
So writers of all processes line up on a lock file instead, where the kernel wakes the next one.
`Database.write` runs in the caller's thread when nobody else is writing. Otherwise the work goes to
the writer thread, which commits all that piled up at once; the caller waits with a deadline, so
that a stopped process holding the lock costs others an error and never a hang.

SQLite keeps the state of its locks in the memory of the process, so a connection must not live
through a fork: the child would believe in locks that it does not have. Before a fork connections
are closed, when no transaction is under way; parent and child open new ones as they need them.
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
from windlass.engine.sqlite.files import Place
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge

if sys.platform == "win32":  # SQLite's own locking alone

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
#: How often to look whether the file is still the same one, in seconds.
FILE_LOOK_S: Final = 1.0
#: The largest value that SQLite stores, unless it was built otherwise.
MOST_BYTES: Final = 1_000_000_000
#: How many prepared statements are kept. Each run of one takes the next place in a ring, so that
#: the many runs of a batch push out all others unless there is room for the batch.
STATEMENT_CACHE: Final = 500
#: The write-ahead log is cut to this size, in bytes, by the first commit after a checkpoint has
#: emptied it. SQLite checkpoints at about 4 MB: only a log that a large transaction or a long read
#: has made longer is cut, and disk space that is always needed is not given back and asked for.
LOG_BYTES: Final = 16 * 1024 * 1024
#: How long a fork waits for a transaction under way, in seconds.
FORK_PATIENCE_S: Final = 5.0


class _Request:
    """A piece of work that waits for the writer thread."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.done = threading.Event()
        self.abandoned = False
        self.value: Any = None
        self.error: BaseException | None = None


class Database:
    """One SQLite database, in a file or (with no place) in memory."""

    _write_connection: apsw.Connection | None
    _read_connection: apsw.Connection | None
    _lock_fd: int | None
    _requests: list[_Request]
    _thread: threading.Thread | None
    _is_forking: bool
    _held_for_fork: bool
    _generation: int  # of the writer thread
    _file: tuple[int, int] | None  # which file the connections are open on
    _next_look: float

    def __init__(self, place: Place | None, durability: str, timeout_ms: int) -> None:
        self.place = place
        self._durability = DURABILITY[durability]
        self._timeout_ms = timeout_ms
        self.on_new_file: Callable[[], None] = lambda: None
        self.files = 0  # how often another file was found in place of the one before
        self.known_file = -1  # the last of them that is known to have tables
        self._reset()
        fork_safety.watch(self)

    @property
    def location(self) -> str:
        return str(self.place.path) if self.place else "memory"

    def write(self, work: Work[T]) -> T:
        """Run `work` inside a write transaction and commit it."""
        self._look_at_file()
        if not (self._requests or self._is_forking) and self._turn.acquire(blocking=False):
            try:
                with self._file_lock(wait=False) as is_locked:
                    if is_locked:
                        return self._commit(work)
            finally:
                self._turn.release()
        return self._hand_over(work)

    def read(self, work: Work[T]) -> T:
        """Run `work` on a snapshot; it sees every commit that ended before."""
        self._look_at_file()
        if self.place is None:
            with self._turn:
                return self._mapped(lambda: work(self._writer()))
        with self._reading:
            return self._mapped(lambda: self._on_snapshot(work))

    def _on_snapshot(self, work: Work[T]) -> T:
        connection = self._reader()
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connections; the next call opens new ones. A database in memory is lost."""
        self._stop_thread()
        if not self._turn.acquire(timeout=self._timeout_ms / 1000):
            return  # the writer thread waits for a lock that another process does not give up
        try:
            with self._reading:
                self._close_connections()
                self._file = None  # whatever happens to it now is none of our business
        finally:
            self._turn.release()

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
            connection.execute("BEGIN IMMEDIATE")
            try:
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
        """Its caller has given up: it must not be served any more, unless that has begun."""
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
        """Let the writer thread finish what it was given, and end it."""
        with self._more:
            thread, self._thread = self._thread, None
            self._generation += 1
            self._more.notify_all()
        if thread is not None:
            thread.join(self._timeout_ms / 1000)  # it may wait for a lock that is never given up

    def _write_for_others(self, generation: int) -> None:
        while self._await_requests(generation):
            while self._is_forking:
                time.sleep(0.001)  # the lock is not fair: step aside for the thread that forks
            with self._turn:
                self._serve_all()

    def _await_requests(self, generation: int) -> bool:
        """Whether there is something to do for the writer thread that was started last."""
        with self._more:
            while not self._requests and generation == self._generation:
                self._more.wait()
            return bool(self._requests)

    def _serve_all(self) -> None:
        """Serve all that piled up until the lock was there; no error ends the thread."""
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
        """One request that fails is rolled back alone, unless SQLite has given up on all."""
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
                request.error = self._in_our_words(error)

    # ------------------------------------------------------------------- connections and locks

    def _look_at_file(self) -> None:
        """Once a second, see whether the file was removed or replaced: connections would go on in
        one that nobody else can see. Whoever finds that fails, so that it is told; the next call
        goes on in the file that is there by then, or makes one."""
        now = time.monotonic()
        if self.place is None or now < self._next_look:
            return
        self._next_look = now + FILE_LOOK_S
        if self._file in (None, self.place.identity()):
            return
        if self._turn.acquire(blocking=False):  # else look again in a second
            try:
                with self._reading:
                    self._close_connections()
                    self._file = None
                    self.files += 1
            finally:
                self._turn.release()
            self.on_new_file()
            raise self._gone()

    def _gone(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"The file of the SQLite database {self.location} was removed or replaced while it was "
            "in use. What was stored in it cannot be reached any more; the next call uses the file "
            "that is there by then, or makes an empty one. To have the jobs back, stop all "
            "producers and workers, and restore a backup.",
            location=self.location,
            unsent=True,
        )

    def _writer(self) -> apsw.Connection:
        if self._write_connection is None:
            connection = self._connect()
            if self.place is not None and _is_empty(connection):
                # Kept in the file from now on: set once, and never again on a file in use.
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
        # Plans that do not depend on the values: else some statements are planned anew each time.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    @contextmanager
    def _file_lock(self, *, wait: bool) -> Iterator[bool]:
        """Hold the lock file; without `wait`, say whether it was free."""
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

    def _open_lock_file(self, place: Place) -> int:
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
            raise self._in_our_words(error) from error

    def _busy(self, error: apsw.Error, seconds: float) -> EngineUnavailable:
        """Whatever was done by then is rolled back."""
        return EngineUnavailable(
            f"The SQLite database {self.location} could not be used within {seconds:.1f} s "
            f"({error}): another program holds a lock on the file. End it, or wait and repeat; "
            f"`lsof {self.location}` shows who has it open.",
            location=self.location,
            seconds=round(seconds, 3),
            unsent=True,
        )

    def _in_our_words(self, error: Exception) -> Exception:
        if isinstance(error, apsw.SQLError) and self._may_have_no_tables():
            return self._gone()
        return _map_error(error, self.location)

    def _may_have_no_tables(self) -> bool:
        """Another thread has met a new file first, or a connection did before anybody looked."""
        if 0 < self.files != self.known_file:
            return True
        return self.place is not None and self._file not in (None, self.place.identity())

    # -------------------------------------------------------------------------------- forking

    def _reset(self) -> None:
        self._turn = threading.Lock()  # held while this process writes
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
        self._held_for_fork = self._turn.acquire(timeout=FORK_PATIENCE_S)
        self._reading.acquire()  # nothing that is read waits for others
        if self._held_for_fork and self.place is not None:
            self._close_connections()

    def after_fork_in_parent(self) -> None:
        self._is_forking = False
        self._reading.release()
        if self._held_for_fork:
            self._held_for_fork = False
            self._turn.release()

    def after_fork_in_child(self) -> None:
        memory = self._write_connection if self.place is None else None
        self._reset()
        self._write_connection = memory  # a copy of the parent's, with a life of its own


def _is_empty(connection: apsw.Connection) -> bool:
    return not list(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))


def _map_error(error: Exception, location: str) -> Exception:
    """SQLite's errors in our words; others stay as they are."""
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


#: Failures that may pass, and what to do about each.
_TRANSIENT: Final[tuple[tuple[tuple[type[apsw.Error], ...], str], ...]] = (
    ((apsw.FullError,), "The disk is full: make room and repeat."),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError),
        "Check that the file and its folder belong to the user that runs windlass.",
    ),
    (
        (apsw.IOError, apsw.NoMemError, apsw.InterruptError),
        "Look at the disk and the system's log, then repeat.",
    ),
)
