"""A large data set in a folder of its own, for the proof of the dashboard and for tests on it.

1. `DataSet.make` opens an engine on an empty folder, and `save` lets the folder keep what the
   engine has. SQLite has its file there, and a private Redis server its snapshot. A private
   PostgreSQL server has its data elsewhere; `save` copies it.
2. `DataSet.open` opens it again. `notes.json` has what the data set tells about itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tests.dashboard.backlog import tend_at
from tests.dashboard.page_requests import (
    Worked,
    commands_of_redis,
    rows_of_postgres,
    steps_of_sqlite,
    vacuum,
)
from tests.postgres_server import OWNER, PostgresServer
from tests.redis_server import RedisServer
from windlass.engine.contract import Engine

#: The variable that names the folder of a data set, for tests that are run on it. Variables that
#: begin with WINDLASS_ are settings of apps.
VARIABLE: Final = "DASHBOARD_DATA_SET"
_NOTES: Final = "notes.json"
#: How long a server may take to read or to write ten million jobs, in seconds.
_PATIENCE_S: Final = 600.0
#: The name of the namespace or database.
_NAME: Final = "dashboard"
_POSTGRES_SETTINGS: Final = {
    "autovacuum": "on",
    "max_wal_size": "4GB",
    "shared_buffers": "512MB",
}


class Notes(msgspec.Struct, kw_only=True):
    """What a data set tells about itself."""

    engine: str  # sqlite, redis or postgres
    finished: int
    ready: int
    middle_ms: int = 0  # when half of the finished jobs had ended
    work_at_a_tenth: dict[str, int] = {}  # of each request, when a tenth of the jobs was there


class Store(Protocol):
    """Where the jobs are while a data set is open."""

    url: str
    unit: str  # of what `counting` counts

    def counting(self) -> AbstractContextManager[Worked]:
        """Count the work of all engines that are opened in the block."""

    def settle(self, engine: Engine) -> None:
        """Do what maintenance has done some minutes after a load, if reads depend on it."""

    def stored_bytes(self) -> int: ...

    def memory_bytes(self) -> int:
        """What the server needs; 0 without one."""

    def save(self) -> None:
        """Write everything into the folder."""

    def close(self) -> None:
        """End the server."""


class _SqliteStore:
    unit = "steps"

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.url = f"sqlite:///{self._folder}/jobs.db?durability=normal"

    def counting(self) -> AbstractContextManager[Worked]:
        return steps_of_sqlite()

    def stored_bytes(self) -> int:
        return _size(self._folder)

    def settle(self, engine: Engine) -> None:
        """Do nothing: every commit leaves the tables as they are read."""

    def memory_bytes(self) -> int:
        return 0

    def save(self) -> None:
        """Do nothing: the file is in the folder."""

    def close(self) -> None:
        """Do nothing: there is no server."""


class _RedisStore:
    unit = "commands"

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        settings = ("--dir", str(self._folder), "--appendonly", "no")
        self._server = RedisServer(*settings, patience_s=_PATIENCE_S)
        self.url = self._server.url(namespace=_NAME)

    @contextmanager
    def counting(self) -> Iterator[Worked]:
        yield commands_of_redis(self._server)

    def settle(self, engine: Engine) -> None:
        """Do nothing: every command leaves the keys as they are read."""

    def stored_bytes(self) -> int:
        return _size(self._folder)

    def memory_bytes(self) -> int:
        return self._info("memory", "used_memory_rss")

    def save(self) -> None:
        before = self._info("persistence", "rdb_saves")
        self._server.tell("BGSAVE")
        self._await(lambda: self._info("persistence", "rdb_saves") > before)

    def close(self) -> None:
        self._server.end()

    def _info(self, part: str, field: str) -> int:
        told = self._server.tell("INFO", part).decode()
        (value,) = re.findall(rf"^{field}:(\d+)", told, re.MULTILINE)
        return int(value)

    @staticmethod
    def _await(is_done: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + _PATIENCE_S
        while not is_done():
            assert time.monotonic() < ends_s, "the server does not finish its snapshot"
            time.sleep(0.2)


class _PostgresStore:
    unit = "rows"

    def __init__(self, folder: Path) -> None:
        self._saved = folder / "data"
        saved = self._saved if self._saved.exists() else None
        self._server = PostgresServer(saved, fsync=False, **_POSTGRES_SETTINGS)
        if saved is None:
            with self._server.connect() as connection:
                connection.execute(f"CREATE DATABASE {_NAME} OWNER {OWNER}")
        self.url = self._server.url(_NAME, user=OWNER)
        self._settled_ms = time.time_ns() // 1_000_000

    @contextmanager
    def counting(self) -> Iterator[Worked]:
        yield rows_of_postgres(self._server, _NAME)

    def settle(self, engine: Engine) -> None:
        tend_at(engine, self._settled_ms)
        vacuum(self._server, _NAME)

    def stored_bytes(self) -> int:
        with self._server.connect(_NAME) as connection:
            [(size,)] = connection.execute(f"SELECT pg_database_size('{_NAME}')").fetchall()
        return int(size)

    def memory_bytes(self) -> int:
        return self._server.memory_bytes()

    def save(self) -> None:
        self._server.save(self._saved)

    def close(self) -> None:
        self._server.end()


#: The engines of data sets.
STORES: Final[dict[str, Callable[[Path], Store]]] = {
    "sqlite": _SqliteStore,
    "redis": _RedisStore,
    "postgres": _PostgresStore,
}


class DataSet:
    """An engine whose data is kept in a folder."""

    def __init__(self, folder: Path, notes: Notes) -> None:
        self.folder = folder
        self.notes = notes
        self.store = STORES[notes.engine](folder)

    @property
    def url(self) -> str:
        return self.store.url

    @classmethod
    def make(cls, folder: Path, notes: Notes) -> DataSet:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(
                f"Expected an empty folder for the data set, found files in {folder}. Name another "
                "folder, or use this data set."
            )
        return cls(folder, notes)

    @classmethod
    def open(cls, folder: Path) -> DataSet:
        return cls(folder, msgspec.json.decode((folder / _NOTES).read_bytes(), type=Notes))

    def save(self) -> None:
        """Write everything into the folder."""
        self.store.save()
        (self.folder / _NOTES).write_bytes(msgspec.json.encode(self.notes))

    def close(self) -> None:
        self.store.close()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
