"""A private PostgreSQL server for the tests: a free port, its own folder, databases from templates.

1. `find_program` finds the programs of the newest PostgreSQL, also outside of the search path.
2. `run_unprivileged` runs programs that refuse to run as root. Where the kernel can, it ends them
   together with the tests.
3. `PostgresServer` is one server process, with actions for tests. It starts from a copy of a data
   folder, which is made once, below build/.
4. `shared_server` is the server of all tests that do not change it, `private_server` one for a test
   that does. Without PostgreSQL, tests that need it are skipped on a laptop, and fail in continuous
   integration.

Text sorts by the rules of a language, not by bytes, as in many production databases.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.redis_server import free_port

PROJECT: Final = Path(__file__).parent.parent
#: A variable with the folder of the programs of another version.
FOLDER: Final = "POSTGRES_PROGRAMS"
#: How long a server may take to start or to stop, in seconds.
PATIENCE_S: Final = 20.0
#: A process of the server tells within this time how many transactions it has ended, in seconds.
COUNT_LAG_S: Final = 12.0
ABSENT: Final = (
    "There is no PostgreSQL server here. `make programs` as root installs it on Debian and Ubuntu; "
    "elsewhere, install it so that `initdb` is found (on macOS: brew install postgresql)."
)

SUPERUSER: Final = "postgres"
#: Owns the databases, and so may change tables.
OWNER: Final = "windlass_owner"
#: The user of running programs: may change no table.
WORKER: Final = "windlass_worker"
#: Members log in with a password; all other users log in without one.
WITH_PASSWORD: Final = "with_password"

Connection = psycopg.Connection[tuple[Any, ...]]
Mode = Literal["fast", "immediate"]

_STOP_SIGNALS: Final[dict[Mode, signal.Signals]] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_ACCESS: Final = f"""\
local all all trust
host all +{WITH_PASSWORD} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",  # its load would come at any time
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %u@%d ",
}
#: Without them, data survives a killed server, but no crash of the machine.
_SYNC: Final = ("fsync", "full_page_writes")
_OTHERS: Final = """
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def find_program(name: str) -> str:
    """The path of a program of the newest PostgreSQL here, or of the one in a given folder."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: [int(part) for part in folder.parent.name.split(".")],
        reverse=True,
    )
    given = filter(None, [os.environ.get(FOLDER)])
    path = os.pathsep.join([*given, *map(str, folders), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(ABSENT)
    return found


@cache
def unprivileged_user() -> str | None:
    """The user for programs that refuse to run as root; none if we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise FileNotFoundError(ABSENT) from None


def new_folder(prefix: str) -> Path:
    """A folder for programs that run unprivileged. Its path is short: that of a socket has at most
    107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if user := unprivileged_user():
        shutil.chown(folder, user, user)
    return folder


def run_unprivileged(*command: str | Path, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a program in a folder. Where the kernel can, it ends the program when our thread ends,
    so that no server outlives tests that were killed."""
    user = unprivileged_user()
    setpriv = shutil.which("setpriv")
    bound = [setpriv, "--pdeathsig", "QUIT"] if setpriv else []
    with log.open("wb") as output:
        return subprocess.Popen(
            [*bound, *command],
            cwd=folder,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


class PostgresServer:
    """One server process, with actions for tests."""

    def __init__(
        self, saved: Path | None = None, /, *, fsync: bool = False, **settings: str
    ) -> None:
        """Start with no data, or with a copy of data that `save` has stored."""
        self._program = find_program("postgres")
        self.folder = new_folder("windlass-pg-")
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._settings = {
            **_SETTINGS,
            **dict.fromkeys(_SYNC, "on" if fsync else "off"),
            "unix_socket_directories": str(self.folder),
            **settings,
        }
        self._numbers = count(1)  # of databases
        _copy(saved or _prepared_data(), self._data)
        self._find_port()
        if saved is None:
            with self.connect() as connection:
                connection.execute(f"CREATE ROLE {WITH_PASSWORD}")
                connection.execute(f"CREATE USER {OWNER}; CREATE USER {WORKER}")

    # ------------------------------------------------------------------------------- the process

    def _find_port(self) -> None:
        """Find a free port. Another process may take it between its choice and its use."""
        while True:
            self.port = free_port()
            try:
                return self.start()
            except RuntimeError as error:
                if "Address already in use" not in str(error):
                    raise

    def start(self) -> None:
        """Start, and wait until the server accepts connections."""
        settings = {**self._settings, "port": str(self.port)}
        command: list[str | Path] = [self._program, "-D", self._data]
        command += [f"--{name}={value}" for name, value in settings.items()]
        self._process = run_unprivileged(*command, folder=self.folder, log=self._log)
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            if self._process.poll() is not None:
                raise RuntimeError(self.log())
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"not ready within {PATIENCE_S:g} s: {self.log()}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        """Whether this process has written that it accepts connections."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(self.pid)] and lines[7:] == ["ready   "]

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text()

    def stop(self, mode: Mode = "fast") -> None:
        """End all connections and stop. `immediate` is a crash: the next start recovers from it."""
        self._process.send_signal(_STOP_SIGNALS[mode])
        self._process.wait(PATIENCE_S)

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def save(self, folder: Path) -> None:
        """Store the data in a new folder. All connections end."""
        self.stop()
        _copy(self._data, folder)
        self.start()

    def memory_bytes(self) -> int:
        """What all processes of the server need, with shared memory counted once."""
        needed = 0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                needed += process.memory_full_info().pss
        return needed

    def freeze(self) -> None:
        """Suspend all processes of the server. The system still accepts connections for them."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                process.suspend()
                _await_status(process, psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def kill(self) -> None:
        """Kill all processes of the server, and wait until none runs."""
        self.freeze()
        for process in list(self._processes()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                _await_status(process, psutil.STATUS_ZOMBIE)
        self._process.wait(PATIENCE_S)

    def _processes(self) -> Iterator[psutil.Process]:
        """The first process, and then those that it has started: once suspended, it starts none."""
        first = psutil.Process(self.pid)
        yield first
        yield from first.children(recursive=True)

    def end(self) -> None:
        """End the server in any state, and remove its data."""
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --------------------------------------------------------------------------- users and places

    def connect(self, database: str = "postgres", user: str = SUPERUSER) -> Connection:
        """A connection by the socket, on which each statement is a transaction."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, dbname=database, user=user, autocommit=True
        )

    def url(
        self, database: str, *, user: str = WORKER, port: int | None = None, **options: object
    ) -> str:
        """The url of a database; the user may have a password, and the port may be that of a
        proxy."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}{_query(options)}"

    def socket_url(self, database: str, *, user: str = WORKER, **options: object) -> str:
        """The same by the socket."""
        place = {"host": self.folder, "port": self.port}
        return f"postgresql://{user}@/{database}{_query({**place, **options})}"

    def add_user(self, name: str, password: str) -> None:
        """Add a user who logs in with a password."""
        with self.connect() as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(
                    sql.Identifier(name), password, sql.Identifier(WITH_PASSWORD)
                )
            )

    def new_database(self, template: str = "template1") -> str:
        """The name of a new database, a copy of the template."""
        name = f"test_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER}")
        return name

    def count_transactions(self, database: str) -> int:
        """How many transactions of a database had ended `COUNT_LAG_S` ago, and perhaps later."""
        return self._count("SELECT xact_commit + xact_rollback", "pg_stat_database", database)

    def count_connections(self, database: str) -> int:
        return self._count("SELECT count(*)", "pg_stat_activity", database)

    def _count(self, what: str, table: str, database: str) -> int:
        with self.connect() as connection:
            query = f"{what} FROM {table} WHERE datname = %s".encode()
            [(number,)] = connection.execute(query, [database]).fetchall()
        return int(number)

    def drop_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def terminate_backends(self, database: str) -> int:
        """End all connections of a database; return how many there were. Wait until their
        transactions have ended."""
        with self.connect(database) as connection:
            return self.terminate_others(connection)

    def terminate_others(self, connection: Connection) -> int:
        """The same for all connections but this one."""
        number = self.signal_others(connection)
        deadline = time.monotonic() + PATIENCE_S
        while number and connection.execute(f"SELECT pid {_OTHERS}").fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return number

    def signal_others(self, connection: Connection) -> int:
        """The same without a wait, for a database whose users connect again."""
        return len(connection.execute(f"SELECT pg_terminate_backend(pid) {_OTHERS}").fetchall())


@cache
def shared_server() -> PostgresServer:
    """The server of all tests that do not change it."""
    server = private_server()
    atexit.register(server.end)
    return server


def private_server(*, fsync: bool = False, **settings: str) -> PostgresServer:
    """A server for a test that changes it; the test ends it."""
    try:
        return PostgresServer(fsync=fsync, **settings)
    except FileNotFoundError:
        if os.environ.get("CI"):
            raise
        pytest.skip(ABSENT)


def _query(options: dict[str, Any]) -> str:
    return f"?{urlencode(options, quote_via=quote)}" if options else ""


def _await_status(process: psutil.Process, *expected: str) -> None:
    """Wait for a status, or for the end: a zombie waits until its exit status is read."""
    deadline = time.monotonic() + PATIENCE_S
    while process.status() not in (*expected, psutil.STATUS_ZOMBIE):
        assert time.monotonic() < deadline, process
        time.sleep(0.001)


# ---------------------------------------------------------------------------- the first data folder


def _prepared_data() -> Path:
    """The data folder that all servers start from, made by the first one."""
    program = find_program("initdb")
    command = [program, *_initdb_options(program)]
    made_by = "\0".join([*command, _ACCESS, str(os.geteuid())])
    digest = hashlib.sha256(made_by.encode()).hexdigest()[:16]
    prepared = PROJECT / "build" / "postgres" / digest
    if not prepared.exists():
        prepared.parent.mkdir(parents=True, exist_ok=True)
        _prepare(command, prepared)
    return prepared


def _prepare(command: list[str], prepared: Path) -> None:
    """Make it elsewhere first: the folder of the project may be out of reach for the user."""
    folder = new_folder("windlass-pg-")
    data, log, near = folder / "data", folder / "log", prepared.with_name(folder.name)
    try:
        if run_unprivileged(*command, "-D", data, folder=folder, log=log).wait():
            raise RuntimeError(log.read_text())
        (data / "pg_hba.conf").write_text(_ACCESS)
        _copy(data, near)
        with suppress(OSError):  # tests in another process were faster
            near.rename(prepared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(near, ignore_errors=True)


def _initdb_options(program: str) -> list[str]:
    """The smallest segments of the log, because they are copied; and the order of a language, which
    PostgreSQL brings itself since version 15."""
    found = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = int(found.stdout.split()[2].partition(".")[0])
    language = ["--locale-provider", "icu", "--icu-locale", "en-US"] if version >= 15 else []
    return [
        *("--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"),
        *("--wal-segsize", "1", "--no-sync", *language),
    ]


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with its owner."""
    subprocess.run(["cp", "-pR", source, target], check=True)
