"""Make an empty store for each workload: a private Redis server, a SQLite file, or a database in a
private PostgreSQL cluster.

Redis has no persistence. PostgreSQL has its default settings, fsync included; its cluster stays for
the whole run. Two more stores show PostgreSQL under a burden: one with an old snapshot, which keeps
the server from removing dead rows, and one with ten million finished jobs of windlass.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import apsw
import psycopg

from benchmarks.peers.environments import NotInstalled, install_package, require_command
from benchmarks.peers.processes import ProcessTree
from tests.postgres_backlog import add_ended_jobs, make_tables

_HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 30.0
#: PostgreSQL refuses to run as root. Linux has this user for programs without rights.
_UNPRIVILEGED: Final = 65534
#: The number of finished jobs in the store `postgres-finished`.
FINISHED: Final = 10_000_000


class Store(ABC):
    """An empty store for one workload."""

    url: str
    server: ProcessTree | None = None

    @abstractmethod
    def stored_bytes(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...

    def url_for(self, environment: str) -> str:
        """The URL in the form that a system takes."""
        return self.url

    def cpu_s(self) -> float:
        return self.server.cpu_s() if self.server else 0.0


class RedisStore(Store):
    """A new Redis server without persistence."""

    def __init__(self) -> None:
        require_command("redis-server", "redis-server")
        self._folder = Path(tempfile.mkdtemp(prefix="peers-redis-"))
        self.port = free_port()
        command = ["redis-server", "--bind", _HOST, "--port", str(self.port), "--save", ""]
        command += ["--appendonly", "no", "--dir", str(self._folder)]
        self.server = ProcessTree([command], {}, self._folder)
        self.url = f"redis://{_HOST}:{self.port}/0"
        _wait_until(lambda: self.tell("PING").startswith(b"+PONG"), "redis-server")

    def tell(self, *words: str) -> bytes:
        try:
            with socket.create_connection((_HOST, self.port), timeout=5) as connection:
                connection.sendall(" ".join(words).encode() + b"\r\n")
                return connection.recv(65536)
        except ConnectionRefusedError:
            return b""

    def stored_bytes(self) -> int:
        memory = self.tell("INFO", "memory").decode()
        return int(memory.split("used_memory:")[1].split()[0])

    def close(self) -> None:
        assert self.server
        self.server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class SQLiteStore(Store):
    """A new SQLite file."""

    def __init__(self, durability: str = "full") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="peers-sqlite-"))
        self._durability = durability
        self.url = str(self._folder / "queue.db")

    def url_for(self, environment: str) -> str:
        """Other systems take a file name."""
        if environment != "windlass":
            return self.url
        return f"sqlite:///{self.url}?durability={self._durability}"

    def stored_bytes(self) -> int:
        connection = apsw.Connection(self.url)
        used = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
        size = used * int(connection.pragma("page_size"))
        connection.close()
        return size

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class PostgresCluster:
    """One server for all databases of a run."""

    def __init__(self) -> None:
        self.programs = _postgres_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="peers-postgres-"))
        self._user = _UNPRIVILEGED if os.getuid() == 0 else None
        if self._user:
            shutil.chown(self.folder, self._user)
        self.port = free_port()
        self._initialize()
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data")]
        command += ["-p", str(self.port), "-k", str(self.folder)]
        command += ["-c", f"listen_addresses={_HOST}"]
        self.server = ProcessTree([command], {}, self.folder, user=self._user)
        _wait_until(lambda: self.query("select 1", "postgres") == "1", "postgres")

    def _initialize(self) -> None:
        command = [str(self.programs / "initdb"), "-D", str(self.folder / "data")]
        command += ["-U", "peers", "--auth", "trust"]
        subprocess.run(command, user=self._user, check=True, capture_output=True, cwd=self.folder)

    def url(self, database: str) -> str:
        return f"postgresql://peers@{_HOST}:{self.port}/{database}"

    def query(self, statement: str, database: str) -> str:
        command = [str(self.programs / "psql"), "-XAtqc", statement, self.url(database)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def close(self) -> None:
        self.server.stop(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresStore(Store):
    """A new database in the cluster."""

    def __init__(self, template: str = "template1") -> None:
        self._cluster = postgres_cluster()
        self.server = self._cluster.server
        self._name = f"peers_{secrets.token_hex(4)}"
        create = f"create database {self._name} template {template} strategy file_copy"
        self._cluster.query(create, "postgres")
        self.url = self._cluster.url(self._name)

    def stored_bytes(self) -> int:
        """Measure all tables and indexes: each system has schemas of its own."""
        sizes = "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' "
        sizes += "and relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema')"
        return int(self._cluster.query(sizes, self._name))

    def close(self) -> None:
        self._cluster.query(f"drop database {self._name} with (force)", "postgres")


class OldSnapshotStore(PostgresStore):
    """A new database with a transaction whose snapshot is older than the first job."""

    def __init__(self) -> None:
        super().__init__()
        connection = psycopg.connect(self.url)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from pg_class")
        self._holder = connection

    def close(self) -> None:
        self._holder.close()
        super().close()


@cache
def postgres_cluster() -> PostgresCluster:
    return PostgresCluster()


@cache
def finished_template() -> str:
    """A database in which ten million jobs of windlass have succeeded."""
    cluster, name = postgres_cluster(), "finished"
    cluster.query(f"create database {name}", "postgres")
    make_tables(cluster.url(name))
    with psycopg.connect(cluster.url(name), autocommit=True) as connection:
        add_ended_jobs(connection, FINISHED)
    cluster.query("checkpoint", "postgres")
    return name


def close_stores() -> None:
    """End the server that stays for the whole run."""
    if postgres_cluster.cache_info().currsize:
        postgres_cluster().close()
        postgres_cluster.cache_clear()
        finished_template.cache_clear()


STORES: Final[dict[str, Callable[[], Store]]] = {
    "redis": RedisStore,
    "sqlite": SQLiteStore,
    "sqlite-normal": lambda: SQLiteStore("normal"),
    "postgres": PostgresStore,
    "postgres-snapshot": OldSnapshotStore,
    "postgres-finished": lambda: PostgresStore(finished_template()),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _postgres_programs() -> Path:
    found = _find_postgres()
    if found is None:
        install_package("postgresql", "PostgreSQL")
        found = _find_postgres()
    if found is None:
        raise NotInstalled("there is no initdb of PostgreSQL here: install the package postgresql")
    return found


def _find_postgres() -> Path | None:
    """The folder of the programs; Debian does not have it on the path."""
    on_path = shutil.which("initdb")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    found = [Path(on_path)] if on_path else versions
    return found[0].resolve().parent if found else None


def _wait_until(is_ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not start within {_PATIENCE_S:.0f} s")
        time.sleep(0.02)
