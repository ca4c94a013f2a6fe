"""A SQLite engine on its own file, and more engines on the same file; a shared Redis server, one
that tests may kill, and engines on both."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.proxy import Proxy
from tests.redis_server import RedisServer, private_server, shared_server
from windlass.engine.contract import Engine, EngineOptions, NewJob, Repaired
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.url import read_address
from windlass.engine.sqlite.engine import SQLiteEngine

OpenEngine = Callable[[], SQLiteEngine]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def open_engine(path: Path) -> Iterator[OpenEngine]:
    opened: list[SQLiteEngine] = []

    def open_another() -> SQLiteEngine:
        opened.append(SQLiteEngine(path, EngineOptions(lease_ms=2_000, timeout_ms=500)))
        return opened[-1]

    yield open_another
    for engine in opened:
        engine.shutdown()


@pytest.fixture
def engine(open_engine: OpenEngine) -> SQLiteEngine:
    return open_engine()


OpenRedis = Callable[..., RedisEngine]


@pytest.fixture
def server() -> RedisServer:
    return shared_server()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    own = private_server()
    yield own
    own.end()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    """A proxy before the shared server."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def open_redis() -> Iterator[OpenRedis]:
    """Open engines on URLs; all are shut down at the end."""
    opened: list[RedisEngine] = []

    def open_another(
        url: str, timeout_ms: int = 2_000, *, owns_sessions: bool = False
    ) -> RedisEngine:
        options = EngineOptions(lease_ms=2_000, timeout_ms=timeout_ms, owns_sessions=owns_sessions)
        opened.append(RedisEngine(read_address(url), options))
        return opened[-1]

    yield open_another
    for engine in opened:
        engine.shutdown()


@contextmanager
def hold_the_lock(path: Path) -> Iterator[None]:
    """Hold the lock file of a database, as a process that was stopped in a write would."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def new_job(number: int = 0, **fields: object) -> NewJob:
    plain: dict[str, object] = {
        "id": f"job-{number:06d}",
        "task": "t",
        "queue": "q",
        "payload": b"x",
    }
    return NewJob(**{**plain, **fields})  # type: ignore[arg-type]  # fields vary from test to test


def repair_all(engine: Engine, *, change: bool) -> Repaired:
    """Run all batches of a repair."""
    fixed: list[str] = []
    left: list[str] = []
    cursor: str | None = None
    while True:
        bite = engine.repair(cursor, change=change)
        fixed += bite.fixed
        left += bite.left
        cursor = bite.cursor
        if cursor is None:
            return Repaired(fixed=tuple(fixed), left=tuple(left))
