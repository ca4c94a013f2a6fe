"""The systems that are measured: windlass and other task queues, with their commands and settings.

The settings are the best ones found for each system, with its default guarantees. A worker command
with `{processes}` starts the processes itself; other commands are started once for each process.
"""

from __future__ import annotations

from typing import Final

import msgspec

SYNC: Final = "sync"
ASYNC: Final = "async"
_ADAPTERS: Final = "benchmarks.peers.adapters"
_PROCRASTINATE: Final = (
    *("{python}", "-m", "procrastinate"),
    f"--app={_ADAPTERS}.procrastinate_.tasks.app",
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A task queue with a store, its commands and its settings."""

    name: str
    title: str
    environment: str  # a key of `environments.RECIPES`
    store: str  # a key of `stores.STORES`
    producer: tuple[str, ...]
    worker: tuple[str, ...]
    settings: str
    #: Makes the tables in a new database.
    prepare: tuple[str, ...] = ()
    #: Which tasks it runs: functions, coroutines or both. It enqueues those of the first kind.
    kinds: tuple[str, ...] = (SYNC,)
    slots: dict[str, int] = {}
    has_bulk: bool = False
    has_concurrent: bool = False
    imports: str  # how its language imports the library
    language: str = "Python"
    is_ours: bool = False
    #: Jobs per second that one process runs, roughly: the sizes of drains follow it.
    pace: int = 2_000

    @property
    def is_on_postgres(self) -> bool:
        return self.store.startswith("postgres")

    def task(self, name: str, kind: str = "") -> str:
        """The name of a task for threads or for coroutines."""
        return f"{name}_async" if (kind or self.kinds[0]) == ASYNC else name

    def worker_commands(self, processes: int, kind: str = "") -> list[list[str]]:
        slots = self.slots.get(kind or self.kinds[0], 10)
        values = {"{processes}": str(processes), "{slots}": str(slots)}
        command = [values.get(part, part) for part in self.worker]
        return [command] * (1 if "{processes}" in self.worker else processes)


def _python_producer(folder: str) -> tuple[str, ...]:
    return ("{python}", "-m", f"{_ADAPTERS}.{folder}.producer")


def _windlass(name: str, title: str, store: str, durability: str) -> System:
    worker = ("{python}", "-m", "windlass", "worker", f"{_ADAPTERS}.windlass_.tasks:app")
    return System(
        name=name,
        title=title,
        environment="windlass",
        store=store,
        producer=_python_producer("windlass_"),
        worker=(*worker, "-p", "{processes}", "-c", "{slots}"),
        settings=f"{durability}; 10 slots per process, 100 for coroutines; stored results",
        kinds=(SYNC, ASYNC),
        slots={SYNC: 10, ASYNC: 100},
        has_bulk=True,
        has_concurrent=True,
        imports="from windlass import Windlass",
        is_ours=True,
        pace=20_000,
    )


def _celery(pool: str, slots: int, pace: int) -> System:
    worker = ("{python}", "-m", "celery", "-A", f"{_ADAPTERS}.celery_.tasks", "worker")
    return System(
        name=f"celery-{pool}",
        title=f"Celery {pool}",
        environment="celery",
        store="redis",
        producer=_python_producer("celery_"),
        worker=(*worker, "-P", pool, "-c", str(slots), "--loglevel", "warning"),
        settings=f"`-P {pool} -c {slots}`, no result backend, log level warning",
        imports="from celery import Celery",
        pace=pace,
    )


def _huey(store: str, title: str, threads: int) -> System:
    worker = ("{python}", "-m", "huey.bin.huey_consumer", f"{_ADAPTERS}.huey_.tasks.huey")
    return System(
        name=f"huey-{store}",
        title=f"Huey {title}",
        environment="huey",
        store=store,
        producer=_python_producer("huey_"),
        worker=(*worker, "-w", str(threads), "-q"),
        settings=f"{threads} thread{'s' if threads > 1 else ''}, no results, quiet"
        + (", WAL, SQLite's default synchronous=FULL" if store == "sqlite" else ""),
        imports="from huey import RedisHuey, SqliteHuey",
    )


WINDLASS: Final = (
    _windlass("windlass-redis", "windlass Redis", "redis", "no persistence in Redis"),
    _windlass("windlass-full", "windlass SQLite full", "sqlite", "durability full"),
    _windlass("windlass-normal", "windlass SQLite normal", "sqlite-normal", "durability normal"),
    _windlass("windlass-postgres", "windlass PostgreSQL", "postgres", "fsync in PostgreSQL"),
)

PEERS: Final = (
    _celery("prefork", 1, 600),
    _celery("threads", 10, 600),
    System(
        name="dramatiq",
        title="Dramatiq",
        environment="dramatiq",
        store="redis",
        producer=_python_producer("dramatiq_"),
        worker=(
            *("{python}", "-m", "dramatiq", f"{_ADAPTERS}.dramatiq_.tasks"),
            *("-p", "{processes}", "-t", "8"),
        ),
        settings="`-p 1 -t 8`, no results, AsyncIO middleware for coroutines",
        kinds=(SYNC, ASYNC),
        imports="import dramatiq",
    ),
    _huey("redis", "Redis", 2),
    _huey("sqlite", "SQLite", 1),
    System(
        name="taskiq",
        title="Taskiq streams",
        environment="taskiq",
        store="redis",
        producer=_python_producer("taskiq_"),
        worker=(
            *("{python}", "-m", "taskiq", "worker", f"{_ADAPTERS}.taskiq_.tasks:broker"),
            *("--workers", "{processes}", "--max-async-tasks", "100", "--log-level", "WARNING"),
        ),
        settings="Redis streams, 100 async tasks, uvloop, no result backend",
        kinds=(ASYNC, SYNC),
        has_concurrent=True,
        imports="import taskiq, taskiq_redis",
        pace=1_800,
    ),
    System(
        name="pgqueuer",
        title="PgQueuer",
        environment="pgqueuer",
        store="postgres",
        producer=_python_producer("pgqueuer_"),
        worker=("{python}", "-m", f"{_ADAPTERS}.pgqueuer_.worker"),
        prepare=("{python}", "-m", "pgqueuer", "--pg-dsn", "{url}", "install"),
        settings="batch 100, asyncpg, uvloop; bulk in chunks of 1,000; a pool of 20 connections "
        "for concurrent calls",
        kinds=(ASYNC,),
        has_bulk=True,
        has_concurrent=True,
        imports="from pgqueuer import PgQueuer",
        pace=9_000,
    ),
    System(
        name="procrastinate",
        title="Procrastinate",
        environment="procrastinate",
        store="postgres",
        producer=_python_producer("procrastinate_"),
        worker=(*_PROCRASTINATE, "worker", "--concurrency", "{slots}"),
        prepare=(*_PROCRASTINATE, "schema", "--apply"),
        settings="`-c 10`, psycopg; bulk in chunks of 1,000; a pool of 20 connections",
        kinds=(ASYNC, SYNC),
        slots={SYNC: 10, ASYNC: 10},
        has_bulk=True,
        has_concurrent=True,
        imports="import procrastinate",
        pace=400,
    ),
    System(
        name="graphile-worker",
        title="Graphile Worker",
        environment="graphile-worker",
        store="postgres",
        producer=("node", "{adapters}/graphile_worker/producer.js"),
        worker=("node", "{adapters}/graphile_worker/worker.js", "24"),
        settings="24 jobs at once, local queue of 500, completion in batches; bulk in chunks of "
        "1,000; a pool of 20 connections",
        kinds=(ASYNC,),
        has_bulk=True,
        has_concurrent=True,
        imports="graphile-worker",
        language="JavaScript",
        pace=15_000,
    ),
    System(
        name="bullmq",
        title="BullMQ",
        environment="bullmq",
        store="redis",
        producer=("node", "{adapters}/bullmq/producer.js"),
        worker=("node", "{adapters}/bullmq/worker.js", "100"),
        settings="concurrency 100, finished jobs are removed; bulk in chunks of 1,000",
        kinds=(ASYNC,),
        has_bulk=True,
        has_concurrent=True,
        imports="bullmq",
        language="JavaScript",
        pace=9_000,
    ),
    System(
        name="sidekiq",
        title="Sidekiq",
        environment="sidekiq",
        store="redis",
        producer=("ruby", "{adapters}/sidekiq/producer.rb"),
        worker=("sidekiq", "-c", "10", "-r", "{adapters}/sidekiq/tasks.rb"),
        settings="`-c 10`, Debian's package, log level warning; bulk in chunks of 1,000",
        has_bulk=True,
        imports="sidekiq",
        language="Ruby",
        pace=4_500,
    ),
)


def _burdened(system: System, burden: str, title: str) -> System:
    return msgspec.structs.replace(
        system,
        name=f"{system.name}-{burden}",
        title=f"{system.title}, {title}",
        store=f"{system.store}-{burden}",
    )


_ON_POSTGRES: Final = [one for one in (*WINDLASS, *PEERS) if one.is_on_postgres]
#: The same systems on a store under a burden; measured only on request.
BURDENED: Final = (
    *(_burdened(system, "snapshot", "old snapshot") for system in _ON_POSTGRES),
    *(_burdened(one, "finished", "10 million finished") for one in _ON_POSTGRES if one.is_ours),
)

USUAL: Final = {system.name: system for system in (*WINDLASS, *PEERS)}
SYSTEMS: Final = {**USUAL, **{system.name: system for system in BURDENED}}
